import { Worker } from "node:worker_threads"
import type { Clock } from "../core/ports.ts"

/** A worker thread. It answers each order with an answer that has the order's id. */
export type WorkerThread<Order, Answer> = {
  postMessage(order: Order): void
  on(event: "message", listener: (answer: Answer) => void): unknown
  on(event: "error" | "exit", listener: () => void): unknown
  terminate(): unknown
}

export type WorkerLimits = {
  /** How long an idle thread is kept for further orders. */
  readonly idleMs: number
  /** Time limit for an answer; then the thread is ended and all pending orders get no answer. */
  readonly answerMs: number
  /** After a thread has failed, no new thread is started for this time. */
  readonly cooldownMs: number
}

type Numbered = { readonly id: number }

/** Worker thread that is started on demand and ended when idle. */
export class OnDemandWorker<Order extends Numbered, Answer extends Numbered> {
  readonly #clock: Clock
  readonly #limits: WorkerLimits
  readonly #start: () => WorkerThread<Order, Answer>
  #thread: WorkerThread<Order, Answer> | undefined
  readonly #waiting = new Map<number, (answer: Answer | undefined) => void>()
  #orders = 0
  #failedAt: number | undefined
  #stopTimer: () => void = () => {}

  /** `start` may throw. */
  constructor(clock: Clock, limits: WorkerLimits, start: () => WorkerThread<Order, Answer>) {
    this.#clock = clock
    this.#limits = limits
    this.#start = start
  }

  /**
   * Gives an order to the thread; undefined where no thread can be started or no answer comes in time. Never rejects.
   */
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

  end(): void {
    this.#drop()
  }

  #running(): WorkerThread<Order, Answer> | undefined {
    if (this.#thread) return this.#thread
    if (this.#failedAt !== undefined && this.#clock.now() - this.#failedAt < this.#limits.cooldownMs) return undefined
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

  #answered(thread: WorkerThread<Order, Answer>, answer: Answer): void {
    if (thread !== this.#thread) return
    this.#waiting.get(answer.id)?.(answer)
    this.#waiting.delete(answer.id)
    this.#watch(thread)
  }

  /** Sets a timer that ends the thread if it does not answer an order, or if it stays idle. */
  #watch(thread: WorkerThread<Order, Answer>, answerMs = this.#limits.answerMs): void {
    const { idleMs } = this.#limits
    this.#stopTimer()
    this.#stopTimer =
      this.#waiting.size > 0
        ? this.#clock.after(answerMs, () => this.#fail(thread))
        : this.#clock.after(idleMs, () => this.#drop())
  }

  /**
   * Called when a thread has failed: pending orders get no answer. Errors of a thread that was ended on purpose are
   * ignored.
   */
  #fail(thread: WorkerThread<Order, Answer>): void {
    if (thread !== this.#thread) return
    this.#failedAt = this.#clock.now()
    this.#drop()
  }

  /** Ends the thread; pending orders get undefined. */
  #drop(): void {
    const thread = this.#thread
    this.#thread = undefined
    this.#stopTimer()
    const waiting = [...this.#waiting.values()]
    this.#waiting.clear()
    for (const answer of waiting) answer(undefined)
    try {
      // In some runtimes `terminate` returns a promise, whose rejection is caught here.
      void Promise.resolve(thread?.terminate()).catch(() => {})
    } catch {
      // The thread has ended already.
    }
  }
}

/** The thread does not keep the process alive. */
export function startWorker<Order, Answer>(url: URL): WorkerThread<Order, Answer> {
  const worker = new Worker(url)
  worker.unref()
  return worker
}
