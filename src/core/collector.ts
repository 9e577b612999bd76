import type { Clock } from "./ports.ts"

/** Collects what comes within `ms` of the first item, and hands it over in one go, oldest first. */
export class Collector<Item> {
  readonly #clock: Clock
  readonly #ms: number
  readonly #handOver: (items: readonly Item[]) => void
  readonly #items: Item[] = []
  #cancel = () => {}

  /** `handOver` must not throw. */
  constructor(clock: Clock, ms: number, handOver: (items: readonly Item[]) => void) {
    this.#clock = clock
    this.#ms = ms
    this.#handOver = handOver
  }

  add(item: Item): void {
    if (this.#items.length === 0) this.#cancel = this.#clock.after(this.#ms, () => this.flush())
    this.#items.push(item)
  }

  /** Hands over what there is now. */
  flush(): void {
    this.#cancel()
    if (this.#items.length > 0) this.#handOver(this.#items.splice(0))
  }
}
