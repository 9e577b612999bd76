import { Cron } from "croner"
import { DEFAULT_SCHEDULE } from "./options.ts"

/** For a time nearer than this, the weekday alone says which day is meant. */
const WEEKDAY_SAYS_IT_MS = 6 * 24 * 3_600_000

/**
 * Schedule for a cron pattern. For an invalid pattern, calls `refused` with the reason and returns the default
 * schedule.
 */
export function scheduleOf(pattern: string, refused: (why: string) => void = () => {}): Schedule {
  try {
    return new Schedule(pattern)
  } catch (error) {
    refused(String(error))
    return new Schedule(DEFAULT_SCHEDULE)
  }
}

/**
 * Cron schedule in local time. A time that daylight saving skips comes at the change, a repeated time comes once, and
 * hourly times always come.
 */
export class Schedule {
  readonly #cron: Cron
  readonly #timeZone: string
  #round = { minute: Number.NaN, at: 0, text: "" }

  /** Throws for an invalid pattern. */
  constructor(pattern: string, timeZone = Intl.DateTimeFormat().resolvedOptions().timeZone) {
    this.#timeZone = timeZone
    this.#cron = new Cron(pattern, { paused: true, timezone: timeZone })
  }

  /** Next time after `after`, in ms; undefined for none. */
  next(after: number): number | undefined {
    return this.#cron.nextRun(new Date(after))?.getTime()
  }

  /**
   * Text about the next round after `now`; empty for none. The text is cached for a minute: each of a thousand tasks
   * needs it, and a search without a result takes milliseconds.
   */
  round(now: number): string {
    const minute = Math.floor(now / 60_000)
    if (this.#round.minute !== minute || this.#round.at <= now) {
      const at = this.next(now)
      this.#round = { minute, at: at ?? Number.POSITIVE_INFINITY, text: at === undefined ? "" : this.text(at, now) }
    }
    return this.#round.text
  }

  /** Examples: `14:00` today, `Mon 06:00` within days, `1 Apr 06:00` later. */
  text(at: number, now: number): string {
    const time = this.#format(at, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" })
    const day = { year: "numeric", month: "2-digit", day: "2-digit" } as const
    if (this.#format(at, day) === this.#format(now, day)) return time
    if (Math.abs(at - now) < WEEKDAY_SAYS_IT_MS) return `${this.#format(at, { weekday: "short" })} ${time}`
    const isThisYear = this.#format(at, { year: "numeric" }) === this.#format(now, { year: "numeric" })
    return `${this.#format(at, { day: "numeric", month: "short", ...(!isThisYear && { year: "numeric" }) })} ${time}`
  }

  #format(at: number, options: Intl.DateTimeFormatOptions): string {
    return new Intl.DateTimeFormat("en-GB", { ...options, timeZone: this.#timeZone }).format(at)
  }
}
