import { Cron } from "croner"
import { formatTime, MINUTE_MS } from "../../lib/format.ts"
import { DEFAULT_SCHEDULE } from "./options.ts"

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
  #round = { minute: Number.NaN, at: 0, text: "" }

  /** Throws for an invalid pattern. */
  constructor(pattern: string, timezone?: string) {
    this.#cron = new Cron(pattern, { paused: true, timezone })
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
    const minute = Math.floor(now / MINUTE_MS)
    if (this.#round.minute !== minute || this.#round.at <= now) {
      const at = this.next(now)
      this.#round = { minute, at: at ?? Number.POSITIVE_INFINITY, text: at === undefined ? "" : formatTime(at, now) }
    }
    return this.#round.text
  }
}
