import { Cron } from "croner"
import { DEFAULT_SCHEDULE } from "./options.ts"

/** No further away a weekday is the nearest of its name. */
const WEEKDAY_SAYS_IT_MS = 6 * 24 * 3_600_000

/** The schedule that counts: of this pattern, or the usual one where it is none. `refused` hears why it is not. */
export function scheduleOf(pattern: string, refused: (why: string) => void = () => {}): Schedule {
  try {
    return new Schedule(pattern)
  } catch (error) {
    refused(String(error))
    return new Schedule(DEFAULT_SCHEDULE)
  }
}

/**
 * When the clock wakes: a cron pattern in local time. A time that a daylight change leaves out comes at the change; one
 * that it brings twice comes once; an hour is never dropped.
 */
export class Schedule {
  readonly #cron: Cron
  readonly #timeZone: string
  #round = { minute: Number.NaN, at: 0, text: "" }

  /** Throws where the pattern is none. */
  constructor(pattern: string, timeZone = Intl.DateTimeFormat().resolvedOptions().timeZone) {
    this.#timeZone = timeZone
    this.#cron = new Cron(pattern, { paused: true, timezone: timeZone })
  }

  /** The next time after `after`; undefined where there is none any more. Both in ms. */
  next(after: number): number | undefined {
    return this.#cron.nextRun(new Date(after))?.getTime()
  }

  /**
   * What is said of the next round after `now`, in ms; empty where there is none any more. Looked for once a minute: it
   * is asked for each of a thousand tasks, and to find a round that never comes takes ms.
   */
  round(now: number): string {
    const minute = Math.floor(now / 60_000)
    if (this.#round.minute !== minute || this.#round.at <= now) {
      const at = this.next(now)
      this.#round = { minute, at: at ?? Number.POSITIVE_INFINITY, text: at === undefined ? "" : this.text(at, now) }
    }
    return this.#round.text
  }

  /** A time for readers: `14:00` today, `Mon 06:00` within days, `1 Apr 06:00` later. */
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
