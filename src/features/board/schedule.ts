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
  #round = { minute: Number.NaN, quietUntil: undefined as number | undefined, at: 0, text: "" }

  /** Throws for an invalid pattern. */
  constructor(pattern: string, timezone?: string) {
    this.#cron = new Cron(pattern, { paused: true, timezone })
  }

  /** Next time after `after`, in ms; undefined for none. */
  next(after: number): number | undefined {
    return this.#cron.nextRun(new Date(after))?.getTime()
  }

  /**
   * Text about the next round after `now`, or after `quietUntil`, if rounds are off until then; empty for none. The text
   * is cached for a minute: each of a thousand tasks needs it, and a search without a result takes milliseconds.
   */
  round(now: number, quietUntil?: number): string {
    const minute = Math.floor(now / MINUTE_MS)
    const known = this.#round
    if (known.minute === minute && known.quietUntil === quietUntil && known.at > now) return known.text
    const at = this.next(quietUntil ?? now)
    const text = at === undefined ? "" : formatTime(at, now)
    this.#round = { minute, quietUntil, at: at ?? Number.POSITIVE_INFINITY, text }
    return text
  }
}
