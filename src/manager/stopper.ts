import type { Clock, Host } from "../core/ports.ts"
import type { Ask } from "../core/task.ts"
import { persistently } from "./retry.ts"

/** How long an abort may take before the caller goes on; the host carries it out all the same. */
const ABORT_LIMIT_MS = 5000

/**
 * Ends what a session does: refuses its open questions first, since an abort would leave them open for ever, then
 * aborts it. Never rejects; a failure is logged.
 */
export class Stopper {
  readonly #host: Host
  readonly #clock: Clock

  constructor(host: Host, clock: Clock) {
    this.#host = host
    this.#clock = clock
  }

  /** `asks` are the open questions of the session and of those below it. */
  async stop(sessionID: string, asks: readonly Ask[]): Promise<void> {
    await this.#bounded(this.#stop(sessionID, asks))
  }

  async #stop(sessionID: string, asks: readonly Ask[]): Promise<void> {
    const sessions = new Set([sessionID, ...asks.map((ask) => ask.sessionID)])
    // Without a message: with one, the child's model would be asked again before the abort comes.
    await Promise.all(asks.map((ask) => this.#attempt(() => this.#host.refuse(ask, ""), ask.sessionID)))
    await Promise.all([...sessions].map((id) => this.#attempt(() => this.#host.abort(id), id)))
  }

  async #attempt(work: () => Promise<void>, sessionID: string): Promise<void> {
    try {
      await persistently(this.#clock, work)
    } catch (error) {
      this.#host.log("warn", "could not stop a session", { session: sessionID, error: String(error) })
    }
  }

  #bounded(work: Promise<void>): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#clock.after(ABORT_LIMIT_MS, resolve)
      void work.then(() => {
        cancel()
        resolve()
      })
    })
  }
}
