/** Whether the work resolves. Never rejects. */
export const succeeds = (work: Promise<unknown>): Promise<boolean> =>
  work.then(
    () => true,
    () => false,
  )

/** Items that `forAll` works on at once. */
const AT_ONCE = 64

/** Runs `work` for all items, some at a time. */
export async function forAll<Item>(items: readonly Item[], work: (item: Item) => Promise<void>): Promise<void> {
  for (let start = 0; start < items.length; start += AT_ONCE)
    await Promise.all(items.slice(start, start + AT_ONCE).map(work))
}

/** Queue that does one piece of work at a time, in the order of the calls. Each key has a queue of its own. */
export class SerialQueue {
  readonly #last = new Map<string, Promise<unknown>>()

  /**
   * Adds work to the key's queue. By default the work starts after all earlier work; with `ready` it can start sooner,
   * and later work still waits for both.
   */
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
