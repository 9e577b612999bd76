/**
 * Cached value, refreshed in the background when older than `ms`: callers only wait for the first read. A failed
 * refresh keeps the old value.
 */
export class Cached<Value> {
  readonly #ms: number
  readonly #read: () => Promise<Value>
  #value: Promise<Value> | undefined
  #readAt = 0

  constructor(ms: number, read: () => Promise<Value>) {
    this.#ms = ms
    this.#read = read
  }

  /** Rejects where the first read fails. */
  get(): Promise<Value> {
    const now = performance.now()
    const current = this.#value
    if (current && now - this.#readAt < this.#ms) return current
    this.#readAt = now
    const fresh = this.#read()
    if (!current) this.#value = fresh
    fresh.then(
      () => {
        this.#value = fresh
      },
      () => {
        if (this.#value === fresh) this.#value = undefined
      },
    )
    return current ?? fresh
  }
}
