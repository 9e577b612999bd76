import type { Clock } from "../core/ports.ts"

/** How often a tick that takes its time is looked after, in ms: a timer that comes late tells of a sleep. */
const GUARD_MS = 1000
/** A deadline that has passed is due at once, but no sooner than so long after the last tick began, in ms. */
const PASSED_MS = 1000

/**
 * Calls `tick` when something is due. One timer, however much there is to do, and none when there is nothing. `tick`
 * is told how late it comes, and must not reject.
 */
export class Ticker {
  readonly #clock: Clock
  readonly #tick: (late: number) => Promise<void>
  #due = Number.POSITIVE_INFINITY
  /** When the timer that is set fires. */
  #alarm = Number.POSITIVE_INFINITY
  #cancel: (() => void) | undefined
  #ticking = false
  /** When the last tick began. */
  #tickedAt = Number.NEGATIVE_INFINITY
  /** How late the timer came while a tick went on. */
  #overslept = 0

  constructor(clock: Clock, tick: (late: number) => Promise<void>) {
    this.#clock = clock
    this.#tick = tick
  }

  /** How long ago the timer should have fired that has not; with what a tick that goes on was held up by. */
  get late(): number {
    return Math.max(this.#overslept, this.#clock.now() - this.#alarm, 0)
  }

  /**
   * Makes sure that a tick comes at `time` at the latest. A time that has passed is never armed as it is: asked for by
   * each tick, it would keep the host's thread busy.
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
    // What was due before anybody asked for it is not late: nobody slept meanwhile.
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
    // Somebody may have set the clock back since.
    return time > now ? time : Math.max(now, Math.min(this.#tickedAt, now) + PASSED_MS)
  }

  #guard(): void {
    this.#arm(this.#clock.now() + GUARD_MS, () => {
      this.#overslept = this.late
      this.#guard()
    })
  }
}
