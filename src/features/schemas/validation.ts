import type { Clock } from "../../core/ports.ts"
import type { Schema } from "../../core/task.ts"
import { OnDemandWorker, type WorkerThread } from "../../lib/thread.ts"
import type { ValidationResult } from "./check-value.ts"

export type ValueOrder = { readonly id: number; readonly schema: Schema; readonly text: string }
export type ValueAnswer = { readonly id: number } & ValidationResult
export type ValueThread = WorkerThread<ValueOrder, ValueAnswer>

/** Time limit of a validation, in ms: a pattern in a schema can run for ever. */
export const MOST_CHECK_MS = 2000
/** Time limit for starting a thread, in ms. On a busy machine the start may take long. */
export const MOST_START_MS = 30_000
const SLICES = 20
/** Order that only tests whether the thread answers. */
const NOTHING = { schema: {}, text: "0" }

/** Validates agents' answers in worker threads, started on demand. */
export class Validation {
  readonly #start: () => ValueThread
  readonly #clock: Clock

  /** `start` may throw. */
  constructor(clock: Clock, start: () => ValueThread) {
    this.#clock = clock
    this.#start = start
  }

  /** Validates an answer in a thread of its own, so that a thread that hangs blocks no other answer. Never rejects. */
  async check(schema: Schema, text: string): Promise<ValidationResult> {
    const limits = { idleMs: MOST_CHECK_MS, answerMs: MOST_CHECK_MS, cooldownMs: 0 }
    const helper = new OnDemandWorker<ValueOrder, ValueAnswer>(this.#clock, limits, this.#start)
    const isReady = (await helper.ask(NOTHING, MOST_START_MS)) !== undefined
    const patience = this.#patience()
    const asked = isReady ? helper.ask({ schema, text }, MOST_START_MS) : undefined
    const answer = await Promise.race([asked, patience.over])
    patience.end()
    helper.end()
    if (answer) {
      const { id: _of, ...found } = answer
      return found
    }
    const why = isReady ? `within ${MOST_CHECK_MS / 1000} s` : "at all: no thread could be started for that"
    return { valid: false, problems: [`it could not be checked ${why}`] }
  }

  /** Waits for the time limit in slices, so that time in which the whole process is held up hardly counts. */
  #patience(): { readonly over: Promise<undefined>; readonly end: () => void } {
    let end = () => {}
    const over = new Promise<undefined>((resolve) => {
      const wait = (left: number) => {
        if (left === 0) return resolve(undefined)
        end = this.#clock.after(MOST_CHECK_MS / SLICES, () => wait(left - 1))
      }
      wait(SLICES)
    })
    return { over, end: () => end() }
  }
}
