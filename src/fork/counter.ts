import type { Clock } from "../core/ports.ts"

export type CountOrder = { readonly id: number; readonly texts: readonly string[] }
export type CountAnswer = { readonly id: number; readonly counts: readonly number[] }

/** A thread that answers a `CountOrder` with a `CountAnswer`, as `node:worker_threads` has it. */
export type CountThread = {
  postMessage(order: CountOrder): void
  on(event: "message", listener: (answer: CountAnswer) => void): unknown
  on(event: "error" | "exit", listener: () => void): unknown
  terminate(): unknown
}

/** How long a thread is kept without work: the next fork of a burst finds it. It holds some 150 MB. */
export const IDLE_MS = 5000
/** How long an answer may take; loading the tokenizer takes a second. */
export const ANSWER_MS = 15_000
/** How long no thread is tried after one failed. */
export const REST_MS = 600_000

/** Counts tokens in a thread that is started when it is first needed and ended when it has nothing to do. */
export class TokenCounter {
  readonly #clock: Clock
  readonly #start: () => CountThread
  #thread: CountThread | undefined
  readonly #waiting = new Map<number, (counts: readonly number[] | undefined) => void>()
  #orders = 0
  #failedAt: number | undefined
  #stopTimer: () => void = () => {}

  /** `start` may throw. */
  constructor(clock: Clock, start: () => CountThread) {
    this.#clock = clock
    this.#start = start
  }

  /** How many tokens each text is; undefined where no thread can be had. Never rejects. */
  count(texts: readonly string[]): Promise<readonly number[] | undefined> {
    const thread = this.#running()
    if (!thread) return Promise.resolve(undefined)
    const id = ++this.#orders
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve)
      this.#watch(thread)
      try {
        thread.postMessage({ id, texts })
      } catch {
        this.#fail(thread)
      }
    })
  }

  #running(): CountThread | undefined {
    if (this.#thread) return this.#thread
    if (this.#failedAt !== undefined && this.#clock.now() - this.#failedAt < REST_MS) return undefined
    try {
      const thread = this.#start()
      this.#thread = thread
      thread.on("message", (answer) => this.#answered(thread, answer))
      thread.on("error", () => this.#fail(thread))
      thread.on("exit", () => this.#fail(thread))
      return thread
    } catch {
      this.#failedAt = this.#clock.now()
      return undefined
    }
  }

  #answered(thread: CountThread, { id, counts }: CountAnswer): void {
    if (thread !== this.#thread) return
    this.#waiting.get(id)?.(counts)
    this.#waiting.delete(id)
    this.#watch(thread)
  }

  /** Ends a thread that does not answer, and one that is not asked. */
  #watch(thread: CountThread): void {
    this.#stopTimer()
    this.#stopTimer =
      this.#waiting.size > 0
        ? this.#clock.after(ANSWER_MS, () => this.#fail(thread))
        : this.#clock.after(IDLE_MS, () => this.#drop())
  }

  /** The thread is of no use: what comes now is not counted. One that was ended on purpose is not heard any more. */
  #fail(thread: CountThread): void {
    if (thread !== this.#thread) return
    this.#failedAt = this.#clock.now()
    this.#drop()
  }

  /** Ends the thread; who waits is answered with undefined. */
  #drop(): void {
    const thread = this.#thread
    this.#thread = undefined
    this.#stopTimer()
    const waiting = [...this.#waiting.values()]
    this.#waiting.clear()
    for (const answer of waiting) answer(undefined)
    try {
      // In some runtimes this is a promise.
      void Promise.resolve(thread?.terminate()).catch(() => {})
    } catch {
      // It has ended already.
    }
  }
}
