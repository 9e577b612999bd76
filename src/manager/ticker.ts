import type { Clock } from "../core/ports.ts"

/**
 * Calls `tick` while there is something to look after: every `interval` ms, and earlier where something is due. One
 * timer, however much there is to do, and none when there is nothing. `tick` must not reject.
 */
export class Ticker {
  readonly #clock: Clock
  readonly #interval: number
  readonly #tick: () => Promise<void>
  #due = Number.POSITIVE_INFINITY
  #cancel: (() => void) | undefined
  #ticking = false

  /** `interval` 0: only where something is due. */
  constructor(clock: Clock, interval: number, tick: () => Promise<void>) {
    this.#clock = clock
    this.#interval = interval
    this.#tick = tick
  }

  /** Makes sure that a tick comes within the interval. */
  wake(): void {
    if (this.#interval > 0) this.at(this.#clock.now() + this.#interval)
  }

  /** Makes sure that a tick comes at `time` at the latest. */
  at(time: number): void {
    if (time >= this.#due || time === Number.POSITIVE_INFINITY) return
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
    this.#cancel = undefined
    this.#due = Number.POSITIVE_INFINITY
    this.#ticking = true
    await this.#tick()
    this.#ticking = false
    if (this.#due !== Number.POSITIVE_INFINITY) this.#arm()
  }
}
