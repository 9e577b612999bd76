import { DAY_MS } from "../../../core/bill.ts"
import { budget, cents, dollars as spent } from "../../../lib/format.ts"
import { oneLine, short as shortOf } from "../../../lib/text.ts"

const SECOND_MS = 1000
const MINUTE_MS = 60_000
const HOUR_MS = 3_600_000

/**
 * Puts marks around text of agents or providers, so that its writing direction does not change the sentence around it.
 */
export const isolated = (text: string): string => `\u2068${oneLine(text)}\u2069`

/** Examples: `just now`, `12s ago`, `5m ago`, `3h ago`, `2d ago`. */
export function ago(ms: number): string {
  if (ms < 2 * SECOND_MS) return "just now"
  if (ms < MINUTE_MS) return `${Math.floor(ms / SECOND_MS)}s ago`
  if (ms < HOUR_MS) return `${Math.floor(ms / MINUTE_MS)}m ago`
  if (ms < DAY_MS) return `${Math.floor(ms / HOUR_MS)}h ago`
  return `${Math.floor(ms / DAY_MS)}d ago`
}

/** Examples: `$0.0042`, `$12.30`. `atLeast`: part of the cost is unknown. */
export const dollars = (cost: number, atLeast = false): string => `${atLeast ? "≥ " : ""}${spent(cost)}`

/** Spending of a day: `$0.88 of $5.00`. Only the first amount where `allowed` is 0. */
export const daySpent = (cost: number, atLeast: boolean, allowed = 0): string =>
  `${atLeast ? "≥ " : ""}${cents(cost)}${allowed > 0 ? ` of ${budget(allowed)}` : ""}`

/** Example: `$0.8800 of $5.00`; only the first amount where `allowed` is 0. */
export const dollarsOf = (cost: number, atLeast: boolean, allowed = 0): string =>
  allowed > 0 ? `${dollars(cost, atLeast)} of ${budget(allowed)}` : dollars(cost, atLeast)

/** Example: `12.3K`; `atLeast`: part of the count is unknown. */
export const short = (count: number, atLeast = false): string => `${atLeast ? "≥ " : ""}${shortOf(count)}`

/** Example: ` + 16.4K from the cache`; empty for none. */
export const cached = (count = 0): string => (count > 0 ? ` + ${short(count)} from the cache` : "")

export const plural = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`

/** Example: `14:05`, in local time. */
export const clockTime = (at: number): string =>
  new Date(at).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })

/** Example: `14:05:09`, in local time. */
export const timeOfDay = (at: number): string => new Date(at).toLocaleTimeString("en-GB")

/** Example: `22 Nov 14:05`. */
export const dayTime = (at: number): string =>
  `${new Date(at).toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${clockTime(at)}`

/** Examples: `14:05` on the day of `now`, otherwise `22 Nov 14:05`. */
export const shortTime = (at: number, now: number): string =>
  startOfDay(at) === startOfDay(now) ? clockTime(at) : dayTime(at)

/** Local midnight before `at`. */
export const startOfDay = (at: number): number => new Date(at).setHours(0, 0, 0, 0)

/** Hue for a name, one of six. These hues differ from the colours of states. */
export const hueOf = (name: string): number =>
  [...name].reduce((sum, letter) => (sum * 31 + (letter.codePointAt(0) ?? 0)) % 997, 7) % 6
