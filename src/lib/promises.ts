/** Whether the work resolves. Never rejects. */
export const succeeds = (work: Promise<unknown>): Promise<boolean> =>
  work.then(
    () => true,
    () => false,
  )

/** Work of which only one is done at a time, in the order of the calls; each key has an order of its own. */
export class SerialQueue {
  readonly #last = new Map<string, Promise<unknown>>()

  /** `ready` replaces the wait for what came before; the next one waits for both. */
  take<Value>(
    work: () => Promise<Value>,
    key = "",
    ready: (before: Promise<unknown>) => Promise<unknown> = (before) => before,
  ): Promise<Value> {
    const before = this.#last.get(key) ?? Promise.resolve()
    const done = ready(before).then(work)
    const settled: Promise<unknown> = Promise.all([before, done.catch(() => {})]).then(() => {
      if (this.#last.get(key) === settled) this.#last.delete(key)
    })
    this.#last.set(key, settled)
    return done
  }
}
