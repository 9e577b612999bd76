import { decimal } from "./text.ts"

/** Amounts for readers, in US dollars as OpenCode counts them. */

/** Amounts closer than this are equal: sums are not exact. */
export const SAME_USD = 1e-9

/** Examples: `$0.0841`, `$1.20`, `$1,234.50`. `atLeast`: part of the cost is unknown. */
export const dollars = (amount: number, atLeast = false): string => {
  const digits = amount >= 1 ? 2 : 4
  return `${atLeast ? "at least " : ""}$${decimal(amount, digits, digits)}`
}

const LEAST_IN_CENTS = 0.1

/** Two digits, `$4.37`; four below ten cents. */
export const cents = (amount: number, atLeast = false): string => {
  const digits = amount >= LEAST_IN_CENTS || amount === 0 ? 2 : 4
  return `${atLeast ? "at least " : ""}$${decimal(amount, 2, digits)}`
}

/** Example: `$4.37 of $5.00`. */
export const spentShort = (amount: number, allowed: number, atLeast = false): string =>
  `${cents(amount, atLeast)} of ${cents(allowed)}`

/** A limit as the user wrote it: `$0.50`, `$0.0005`. */
export const budget = (amount: number): string => `$${decimal(amount, 2, 6)}`

/** Example: `$0.0841 of $0.50`; only the first amount where `allowed` is 0, for no limit. */
export const spentOf = (amount: number, allowed: number, atLeast = false): string =>
  allowed > 0 ? `${dollars(amount, atLeast)} of ${budget(allowed)}` : dollars(amount, atLeast)
