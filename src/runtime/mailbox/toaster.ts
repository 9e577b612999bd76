import type { Clock, OpencodeApi, Toast } from "../../core/ports.ts"
import type { Ask, Task } from "../../core/task.ts"
import { Collector } from "../../lib/background.ts"
import { addBounded } from "../../lib/collections.ts"
import type { Options } from "../../options/options.ts"
import { askToast, copiedToast, summarize } from "../../present/toasts.ts"

/**
 * Toasts within this time are shown as one. An agent that ends soon after its launch would otherwise wait for the first
 * toast to disappear.
 */
const GATHER_MS = 1000
const MOST_FORKS = 256

/** Shows toasts, unless the option `toasts` is off. */
export class Toaster {
  readonly #opencode: OpencodeApi
  readonly #enabled: boolean
  readonly #clock: Clock
  readonly #news: Collector<Toast>
  readonly #toldForks = new Map<string, true>()
  #shownAt = 0

  constructor({ opencode, clock, options }: { opencode: OpencodeApi; clock: Clock; options: Options }) {
    this.#opencode = opencode
    this.#clock = clock
    this.#enabled = options.toasts
    this.#news = new Collector(clock, GATHER_MS, (toasts) => {
      this.#shownAt = clock.now()
      for (const toast of summarize(toasts)) opencode.toast(toast)
    })
  }

  /** Shows a toast soon, together with others. */
  add(toast: Toast): void {
    if (this.#enabled) this.#news.add(toast)
  }

  /** Shows, once for each fork of a conversation, that the tasks stay with the first conversation. */
  copied(sessionID: string, tasks: number): void {
    if (this.#enabled && !this.#toldForks.has(sessionID)) this.#news.add(copiedToast(tasks))
    addBounded(this.#toldForks, sessionID, true, MOST_FORKS)
  }

  /** Shows collected toasts now, unless one was shown a moment ago. */
  flush(): void {
    if (this.#clock.now() - this.#shownAt >= GATHER_MS) this.#news.flush()
  }

  /** Shows at once that a task waits for an answer. Collected toasts are shown before. */
  asked(task: Task, ask: Ask): void {
    if (!this.#enabled) return
    this.#news.flush()
    this.#opencode.toast(askToast(task, ask))
  }
}
