/**
 * What is on its way to sessions and may take very long: prompts, and calls that stop them. A run begins in a session
 * when nothing of an earlier one is to come there any more.
 */
export class Underway {
  readonly #calls = new Map<string, Set<Promise<unknown>>>()

  /** Counts what `work` does to the session until it has come to its end; resolves and rejects as it does. */
  async track<Result>(sessionID: string, work: () => Promise<Result>): Promise<Result> {
    const calls = this.#calls.get(sessionID) ?? new Set()
    this.#calls.set(sessionID, calls)
    const call = work()
    calls.add(call)
    try {
      return await call
    } finally {
      calls.delete(call)
      if (calls.size === 0 && this.#calls.get(sessionID) === calls) this.#calls.delete(sessionID)
    }
  }

  /** Resolves when nothing is on its way to the session. */
  async none(sessionID: string): Promise<void> {
    for (let calls = this.#calls.get(sessionID); calls; calls = this.#calls.get(sessionID))
      await Promise.allSettled(calls)
  }
}
