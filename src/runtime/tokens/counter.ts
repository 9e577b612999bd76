import type { Clock } from "../../core/ports.ts"
import { OnDemandWorker, type WorkerThread } from "../../lib/thread.ts"

export type CountOrder = { readonly id: number; readonly texts: readonly string[] }
export type CountAnswer = { readonly id: number; readonly counts: readonly number[] }
export type CountThread = WorkerThread<CountOrder, CountAnswer>

/** Time after which an idle thread is ended, in ms: the tokenizer uses some 150 MB. */
export const IDLE_MS = 5000
/** Time limit for an answer of the thread, in ms. Loading the tokenizer takes about one second of it. */
export const ANSWER_MS = 15_000
export const COOLDOWN_MS = 600_000

/** Counts tokens in a worker thread. */
export class TokenCounter {
  readonly #helper: OnDemandWorker<CountOrder, CountAnswer>

  /** `start` creates the worker thread and may throw. */
  constructor(clock: Clock, start: () => CountThread) {
    this.#helper = new OnDemandWorker(clock, { idleMs: IDLE_MS, answerMs: ANSWER_MS, cooldownMs: COOLDOWN_MS }, start)
  }

  /** Token count of each text; undefined without a thread. Never rejects. */
  async count(texts: readonly string[]): Promise<readonly number[] | undefined> {
    return (await this.#helper.ask({ texts }))?.counts
  }
}
