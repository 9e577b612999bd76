import { Worker } from "node:worker_threads"
import type { Clock } from "../core/ports.ts"

/** A thread that answers each order with an answer of the same id, as `node:worker_threads` has it. */
export type Thread<Order, Answer> = {
  postMessage(order: Order): void
  on(event: "message", listener: (answer: Answer) => void): unknown
  on(event: "error" | "exit", listener: () => void): unknown
  terminate(): unknown
}

export type ThreadLimits = {
  /** How long a thread is kept without work: the next order of a burst finds it. */
  readonly idleMs: number
  /** How long an answer may take; then the thread is ended, and all who wait get none. */
  readonly answerMs: number
  /** How long no thread is tried after one failed. */
  readonly restMs: number
}

type Numbered = { readonly id: number }

/** Has work done in a thread that is started when it is first needed and ended when it has nothing to do. */
export class Helper<Order extends Numbered, Answer extends Numbered> {
  readonly #clock: Clock
  readonly #limits: ThreadLimits
  readonly #start: () => Thread<Order, Answer>
  #thread: Thread<Order, Answer> | undefined
  readonly #waiting = new Map<number, (answer: Answer | undefined) => void>()
  #orders = 0
  #failedAt: number | undefined
  #stopTimer: () => void = () => {}

  /** `start` may throw. */
  constructor(clock: Clock, limits: ThreadLimits, start: () => Thread<Order, Answer>) {
    this.#clock = clock
    this.#limits = limits
    this.#start = start
  }

  /** The thread's answer; undefined where no thread can be had, or none answers in time. Never rejects. */
  ask(order: Omit<Order, "id">, answerMs = this.#limits.answerMs): Promise<Answer | undefined> {
    const thread = this.#running()
    if (!thread) return Promise.resolve(undefined)
    const id = ++this.#orders
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve)
      this.#watch(thread, answerMs)
      try {
        thread.postMessage({ ...order, id } as Order)
      } catch {
        this.#fail(thread)
      }
    })
  }

  /** Ends the thread, if one runs. */
  end(): void {
    this.#drop()
  }

  #running(): Thread<Order, Answer> | undefined {
    if (this.#thread) return this.#thread
    if (this.#failedAt !== undefined && this.#clock.now() - this.#failedAt < this.#limits.restMs) return undefined
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

  #answered(thread: Thread<Order, Answer>, answer: Answer): void {
    if (thread !== this.#thread) return
    this.#waiting.get(answer.id)?.(answer)
    this.#waiting.delete(answer.id)
    this.#watch(thread)
  }

  /** Ends a thread that does not answer, and one that is not asked. */
  #watch(thread: Thread<Order, Answer>, answerMs = this.#limits.answerMs): void {
    const { idleMs } = this.#limits
    this.#stopTimer()
    this.#stopTimer =
      this.#waiting.size > 0
        ? this.#clock.after(answerMs, () => this.#fail(thread))
        : this.#clock.after(idleMs, () => this.#drop())
  }

  /** The thread is of no use: what comes now gets no answer. One that was ended on purpose is not heard any more. */
  #fail(thread: Thread<Order, Answer>): void {
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

/** Starts the thread in the file at `url`. It does not keep the process alive. */
export function startThread<Order, Answer>(url: URL): Thread<Order, Answer> {
  const worker = new Worker(url)
  worker.unref()
  return worker
}
