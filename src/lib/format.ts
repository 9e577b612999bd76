import prettyMilliseconds from "pretty-ms"
import { decimal } from "./text.ts"

/** Examples: `850ms`, `12.3s`, `2m 30s`, `1h 2m`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)}ms`
  if (ms < 59_950) return prettyMilliseconds(ms, { secondsDecimalDigits: 1, keepDecimalsOnWholeSeconds: false })
  return prettyMilliseconds(Math.round(ms / 1000) * 1000, { unitCount: 2, secondsDecimalDigits: 0 })
}

/** Text for a duration that grows. Whole seconds only, so that the text changes once a second. */
export const ticking = (ms: number): string => (ms < 1000 ? "0s" : duration(Math.floor(ms / 1000) * 1000))

const DAY_MS = 86_400_000

const two = (number: number): string => String(number).padStart(2, "0")

/** Local time for a reader at `now`: `07:12`, `Tue 07:12` on another day, `2026-03-02 07:12` a week away. */
export function formatTime(at: number, now: number): string {
  const date = new Date(at)
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`
  const isToday = date.toDateString() === new Date(now).toDateString()
  if (isToday) return time
  const day = date.toLocaleDateString("en-US", { weekday: "short" })
  if (Math.abs(at - now) < 7 * DAY_MS) return `${day} ${time}`
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`
}

/** Amounts for readers, in US dollars as OpenCode counts them. */

/** Amounts closer than this are equal: sums are not exact. */
export const SAME_USD = 1e-9

/** Examples: `$0.0841`, `$1.20`, `$1,234.50`. `atLeast`: part of the cost is unknown. */
export const dollars = (amount: number, atLeast = false): string => {
  const digits = amount >= 1 ? 2 : 4
  return `${atLeast ? "at least " : ""}$${decimal(amount, digits, digits)}`
}

const LEAST_IN_CENTS = 0.1

/** Example: `$4.37`. Amounts below ten cents have four decimals. */
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
