import { decimal } from "./text.ts"

/** Amounts for readers. Costs are US dollars, as the host counts them. */

/** Amounts of money closer than this are the same: sums of them are not exact. */
export const SAME_USD = 1e-9

/** What was spent: `$0.0841`, `$1.20`, `$1,234.50`. `atLeast`: the host does not know all of it. */
export const dollars = (amount: number, atLeast = false): string => {
  const digits = amount >= 1 ? 2 : 4
  return `${atLeast ? "at least " : ""}$${decimal(amount, digits, digits)}`
}

const LEAST_IN_CENTS = 0.1

/** A sum for a person who looks at the whole: `$4.37`, `$0.88`; with four digits where it is less than ten cents. */
export const cents = (amount: number, atLeast = false): string => {
  const digits = amount >= LEAST_IN_CENTS || amount === 0 ? 2 : 4
  return `${atLeast ? "at least " : ""}$${decimal(amount, 2, digits)}`
}

/** `$4.37 of $5.00`. */
export const spentShort = (amount: number, allowed: number, atLeast = false): string =>
  `${cents(amount, atLeast)} of ${cents(allowed)}`

/** What may be spent, as somebody set it: `$0.50`, `$0.0005`. */
export const budget = (amount: number): string => `$${decimal(amount, 2, 6)}`

/** `$0.0841 of $0.50`, or what was spent alone where `allowed` is 0, which means any. */
export const spentOf = (amount: number, allowed: number, atLeast = false): string =>
  allowed > 0 ? `${dollars(amount, atLeast)} of ${budget(allowed)}` : dollars(amount, atLeast)
