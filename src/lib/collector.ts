import type { Clock } from "../core/ports.ts"

/** Collects what comes within `ms` of the first item, and hands it over in one go, oldest first. */
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

  /** Hands over what there is now, unless the first of it came less than `least` ms ago. */
  flush(least = 0): void {
    if (this.#items.length === 0 || this.#clock.now() - this.#firstAt < least) return
    this.#cancel?.()
    this.#handOver(this.#items.splice(0))
  }
}
