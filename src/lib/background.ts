import type { Clock } from "../core/ports.ts"

/**
 * Runs work that nobody awaits. Every promise is caught and counted, so that no rejection is unhandled and tests can
 * wait until all work is done.
 */
export class Background {
  readonly #pending = new Set<Promise<void>>()
  readonly #onError: (what: string, error: unknown) => void

  /** `onError` must not throw. */
  constructor(onError: (what: string, error: unknown) => void) {
    this.#onError = onError
  }

  /** Resolves once the work is over; never rejects. */
  run(what: string, work: () => Promise<unknown>): Promise<void> {
    const promise = Promise.resolve()
      .then(work)
      .then(
        () => {},
        (error) => this.#onError(what, error),
      )
      .then(() => void this.#pending.delete(promise))
    this.#pending.add(promise)
    return promise
  }

  /** Resolves when no work is pending, including work started meanwhile. */
  async idle(): Promise<void> {
    while (this.#pending.size > 0) await Promise.all(this.#pending)
  }
}

/** Collects items for `ms` after the first and hands them over together, oldest first. */
export class Collector<Item> {
  readonly #clock: Clock
  readonly #ms: number
  readonly #handOver: (items: readonly Item[]) => void
  readonly #items: Item[] = []
  #firstAt = 0
  #cancel?: () => void

  /** `handOver` must not throw. */
  constructor(clock: Clock, ms: number, handOver: (items: readonly Item[]) => void) {
    this.#clock = clock
    this.#ms = ms
    this.#handOver = handOver
  }

  add(item: Item): void {
    if (this.#items.length === 0) {
      this.#firstAt = this.#clock.now()
      this.#cancel = this.#clock.after(this.#ms, () => this.flush())
    }
    this.#items.push(item)
  }

  /** Hands over the items now, unless the first came less than `least` ms ago. */
  flush(least = 0): void {
    if (this.#items.length === 0 || this.#clock.now() - this.#firstAt < least) return
    this.#cancel?.()
    this.#handOver(this.#items.splice(0))
  }
}

/** Interval of the timer that runs during a long tick, in ms. If this timer is late, the computer has slept. */
const GUARD_MS = 1000
/** A deadline that has already passed is due at once, but at least this many ms after the last tick began. */
const PASSED_MS = 1000

/**
 * Calls `tick` when a deadline is due, with one timer for all deadlines and none without deadlines. `tick` receives the
 * timer's delay and must not reject.
 */
export class Ticker {
  readonly #clock: Clock
  readonly #tick: (late: number) => Promise<void>
  #due = Number.POSITIVE_INFINITY
  /** Time for which the current timer is set. */
  #alarm = Number.POSITIVE_INFINITY
  #cancel: (() => void) | undefined
  #ticking = false
  /** Start of the last tick. */
  #tickedAt = Number.NEGATIVE_INFINITY
  /** Delay of the timer that was measured during the running tick. */
  #overslept = 0

  constructor(clock: Clock, tick: (late: number) => Promise<void>) {
    this.#clock = clock
    this.#tick = tick
  }

  /** By how much the current timer is late, including the delay measured during a running tick. */
  get late(): number {
    return Math.max(this.#overslept, this.#clock.now() - this.#alarm, 0)
  }

  /**
   * Schedules a tick at `time` at the latest. A time in the past is postponed a little: otherwise a tick that always
   * requests another tick at once would keep OpenCode's thread busy.
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
    // A deadline in the past must not count as a delay of the timer: the computer did not sleep.
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
    this.#watchSleep()
    await this.#tick(late)
    this.#ticking = false
    this.#overslept = 0
    this.#disarm()
    if (this.#due !== Number.POSITIVE_INFINITY) this.#arm(this.#ahead(this.#due), () => void this.#run())
  }

  #ahead(time: number): number {
    const now = this.#clock.now()
    // The system clock may have been set back, so the last tick is never taken as later than now.
    return time > now ? time : Math.max(now, Math.min(this.#tickedAt, now) + PASSED_MS)
  }

  #watchSleep(): void {
    this.#arm(this.#clock.now() + GUARD_MS, () => {
      this.#overslept = this.late
      this.#watchSleep()
    })
  }
}
