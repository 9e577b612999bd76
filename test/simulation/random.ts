/** Random numbers that a seed decides: the same seed, the same life. */
export class Random {
  #state: number

  constructor(seed: number) {
    this.#state = Math.imul(seed ^ (seed >>> 16), 0x9e3779b1) >>> 0
  }

  /** From 0 up to, and without, 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }

  /** A whole number from 0 up to, and without, `end`. */
  below(end: number): number {
    return Math.floor(this.next() * end)
  }

  chance(probability: number): boolean {
    return this.next() < probability
  }

  pick<Value>(values: readonly Value[]): Value {
    return values[this.below(values.length)] as Value
  }

  /** One of the values, as often as its weight says. */
  weighed<Value extends { readonly weight: number }>(values: readonly Value[]): Value {
    let left = this.next() * values.reduce((sum, { weight }) => sum + weight, 0)
    for (const value of values) {
      left -= value.weight
      if (left < 0) return value
    }
    return values.at(-1) as Value
  }
}
