import prettyMilliseconds from "pretty-ms"
import { decimal } from "./text.ts"

/** Units of time in ms. */
export const MINUTE_MS = 60_000
export const HOUR_MS = 60 * MINUTE_MS
export const DAY_MS = 24 * HOUR_MS

/** Examples: `850ms`, `12.3s`, `2m 30s`, `1h 2m`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)}ms`
  if (ms < 59_950) return prettyMilliseconds(ms, { secondsDecimalDigits: 1, keepDecimalsOnWholeSeconds: false })
  return prettyMilliseconds(Math.round(ms / 1000) * 1000, { unitCount: 2, secondsDecimalDigits: 0 })
}

/** Text for a duration that grows. Whole seconds only, so that the text changes once a second. */
export const ticking = (ms: number): string => (ms < 1000 ? "0s" : duration(Math.floor(ms / 1000) * 1000))

/** Examples: `just now`, `12s ago`, `5m ago`, `3h ago`, `2d ago`. */
export function ago(ms: number): string {
  if (ms < 2000) return "just now"
  if (ms < MINUTE_MS) return `${Math.floor(ms / 1000)}s ago`
  if (ms < HOUR_MS) return `${Math.floor(ms / MINUTE_MS)}m ago`
  return ms < DAY_MS ? `${Math.floor(ms / HOUR_MS)}h ago` : `${Math.floor(ms / DAY_MS)}d ago`
}

const two = (number: number): string => String(number).padStart(2, "0")

/** Example: `14:05`, in local time. */
export function clockTime(at: number): string {
  const date = new Date(at)
  return `${two(date.getHours())}:${two(date.getMinutes())}`
}

/** Local midnight before `at`. */
export const startOfDay = (at: number): number => new Date(at).setHours(0, 0, 0, 0)

/** Parts of a local date as `toDateString` writes them in English, without a formatter. */
function dateParts(at: number) {
  const [weekday = "", month = "", day = "", year = ""] = new Date(at).toDateString().split(" ")
  return { weekday, day: `${Number(day)} ${month}`, year }
}

/** Example: `22 Nov 14:05`. */
export const dayTime = (at: number): string => `${dateParts(at).day} ${clockTime(at)}`

/** For a time nearer than this, the weekday alone says which day is meant. */
const WEEKDAY_SAYS_IT_MS = 6 * DAY_MS

/** Local time for a reader at `now`: `07:12`, `Tue 07:12` on a near day, `22 Nov 07:12`, `1 Jan 2027 07:12`. */
export function formatTime(at: number, now: number): string {
  if (startOfDay(at) === startOfDay(now)) return clockTime(at)
  const { weekday, day, year } = dateParts(at)
  if (Math.abs(at - now) < WEEKDAY_SAYS_IT_MS) return `${weekday} ${clockTime(at)}`
  return year === dateParts(now).year ? dayTime(at) : `${day} ${year} ${clockTime(at)}`
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

/** Example: `$4.37 of $5.00`; only the first amount where `allowed` is 0, for no limit. */
export const spentShort = (amount: number, allowed: number, atLeast = false): string =>
  allowed > 0 ? `${cents(amount, atLeast)} of ${budget(allowed)}` : cents(amount, atLeast)

/** A limit as the user wrote it: `$0.50`, `$0.0005`. */
export const budget = (amount: number): string => `$${decimal(amount, 2, 6)}`

/** Example: `$0.0841 of $0.50`; only the first amount where `allowed` is 0, for no limit. */
export const spentOf = (amount: number, allowed: number, atLeast = false): string =>
  allowed > 0 ? `${dollars(amount, atLeast)} of ${budget(allowed)}` : dollars(amount, atLeast)
