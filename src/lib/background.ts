/**
 * Work that nobody awaits. Every promise is caught and counted, so that no rejection is unhandled and tests can wait
 * for quiet.
 */
export class Background {
  readonly #pending = new Set<Promise<void>>()
  readonly #onError: (what: string, error: unknown) => void

  /** `onError` must not throw. */
  constructor(onError: (what: string, error: unknown) => void) {
    this.#onError = onError
  }

  run(what: string, work: () => Promise<unknown>): void {
    const promise = Promise.resolve()
      .then(work)
      .then(
        () => {},
        (error) => this.#onError(what, error),
      )
      .then(() => void this.#pending.delete(promise))
    this.#pending.add(promise)
  }

  /** Resolves when no work is pending, including work started meanwhile. */
  async idle(): Promise<void> {
    while (this.#pending.size > 0) await Promise.all(this.#pending)
  }
}
