import type { Clock } from "../core/ports.ts"

/** Interval of the timer during a long tick, in ms: its delay shows sleep. */
const GUARD_MS = 1000
/** A passed deadline is due at once, but not sooner than this after the last tick began, in ms. */
const PASSED_MS = 1000

/**
 * Calls `tick` when a deadline is due, with one timer for all, and none without deadlines. `tick` receives its delay
 * and must not reject.
 */
export class Ticker {
  readonly #clock: Clock
  readonly #tick: (late: number) => Promise<void>
  #due = Number.POSITIVE_INFINITY
  /** Time of the current timer. */
  #alarm = Number.POSITIVE_INFINITY
  #cancel: (() => void) | undefined
  #ticking = false
  /** Start of the last tick. */
  #tickedAt = Number.NEGATIVE_INFINITY
  /** Delay of the timer during a running tick. */
  #overslept = 0

  constructor(clock: Clock, tick: (late: number) => Promise<void>) {
    this.#clock = clock
    this.#tick = tick
  }

  /** Delay of the current timer, including the delay of a running tick. */
  get late(): number {
    return Math.max(this.#overslept, this.#clock.now() - this.#alarm, 0)
  }

  /**
   * Schedules a tick at `time` at the latest. A passed time is postponed, because a tick that always asks for one would
   * keep OpenCode's thread busy.
   */
  at(time: number): void {
    const due = this.#ahead(time)
    if (due >= this.#due) return
    this.#due = due
    if (!this.#ticking) this.#arm(due, () => void this.#run())
  }

  stop(): void {
    this.#disarm()
    this.#due = Number.POSITIVE_INFINITY
  }

  #arm(time: number, run: () => void): void {
    this.#disarm()
    const now = this.#clock.now()
    // A deadline that passed before it was requested is no sign of sleep.
    this.#alarm = Math.max(time, now)
    this.#cancel = this.#clock.after(this.#alarm - now, run)
  }

  #disarm(): void {
    this.#cancel?.()
    this.#cancel = undefined
    this.#alarm = Number.POSITIVE_INFINITY
  }

  async #run(): Promise<void> {
    const { late } = this
    this.#due = Number.POSITIVE_INFINITY
    this.#tickedAt = this.#clock.now()
    this.#ticking = true
    this.#guard()
    await this.#tick(late)
    this.#ticking = false
    this.#overslept = 0
    this.#disarm()
    if (this.#due !== Number.POSITIVE_INFINITY) this.#arm(this.#ahead(this.#due), () => void this.#run())
  }

  #ahead(time: number): number {
    const now = this.#clock.now()
    // The clock may have been set back.
    return time > now ? time : Math.max(now, Math.min(this.#tickedAt, now) + PASSED_MS)
  }

  #guard(): void {
    this.#arm(this.#clock.now() + GUARD_MS, () => {
      this.#overslept = this.late
      this.#guard()
    })
  }
}
