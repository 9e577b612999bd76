import type { Clock } from "../core/ports.ts"

/**
 * Calls `tick` when something is due. One timer, however much there is to do, and none when there is nothing. `tick`
 * is told how late it comes, and must not reject.
 */
export class Ticker {
  readonly #clock: Clock
  readonly #tick: (late: number) => Promise<void>
  #due = Number.POSITIVE_INFINITY
  #cancel: (() => void) | undefined
  #ticking = false

  constructor(clock: Clock, tick: (late: number) => Promise<void>) {
    this.#clock = clock
    this.#tick = tick
  }

  /** How long ago a tick should have come that has not; 0 where none is overdue, and while one goes on. */
  get late(): number {
    return this.#ticking ? 0 : Math.max(0, this.#clock.now() - this.#due)
  }

  /** Makes sure that a tick comes at `time` at the latest. */
  at(time: number): void {
    if (time >= this.#due) return
    this.#due = time
    this.#arm()
  }

  stop(): void {
    this.#cancel?.()
    this.#cancel = undefined
    this.#due = Number.POSITIVE_INFINITY
  }

  #arm(): void {
    this.#cancel?.()
    this.#cancel = undefined
    if (this.#ticking) return
    this.#cancel = this.#clock.after(Math.max(0, this.#due - this.#clock.now()), () => void this.#run())
  }

  async #run(): Promise<void> {
    const { late } = this
    this.#cancel = undefined
    this.#due = Number.POSITIVE_INFINITY
    this.#ticking = true
    await this.#tick(late)
    this.#ticking = false
    if (this.#due !== Number.POSITIVE_INFINITY) this.#arm()
  }
}
