/**
 * A value that is read when it is first needed, and again, behind the caller's back, when it is older than `ms`: nobody
 * waits for what changes seldom. A failed read leaves the value as it was.
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

  /** Rejects where the value has never been read and cannot be. */
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
