import type { Clock } from "../core/ports.ts"

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
