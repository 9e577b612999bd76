/** A value that is read when it is first needed and again when it is older than `ms`. A failed read is not kept. */
export class Kept<Value> {
  readonly #ms: number
  readonly #read: () => Promise<Value>
  #value: Promise<Value> | undefined
  #readAt = 0

  constructor(ms: number, read: () => Promise<Value>) {
    this.#ms = ms
    this.#read = read
  }

  get(): Promise<Value> {
    const now = Date.now()
    if (this.#value && now - this.#readAt < this.#ms) return this.#value
    const value = this.#read()
    value.catch(() => {
      if (this.#value === value) this.#value = undefined
    })
    this.#value = value
    this.#readAt = now
    return value
  }
}
