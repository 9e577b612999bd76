import { Gather } from "../core/gather.ts"
import type { Clock, Host, Toast } from "../core/ports.ts"
import type { Ask, Task } from "../core/task.ts"
import type { Options } from "../options.ts"
import { askToast, endToast, launchToast, summarize } from "./toast.ts"

/** What comes within this time is told together: the screen shows one toast, and each costs the host a call. */
const GATHER_MS = 300

/** Tells the user on the screen, unless the option `toasts` is off. */
export class Toaster {
  readonly #host: Host
  readonly #enabled: boolean
  readonly #news: Gather<Toast>

  constructor({ host, clock, options }: { host: Host; clock: Clock; options: Options }) {
    this.#host = host
    this.#enabled = options.toasts
    this.#news = new Gather(clock, GATHER_MS, (toasts) => {
      for (const toast of summarize(toasts)) host.toast(toast)
    })
  }

  launched(task: Task): void {
    if (this.#enabled) this.#news.add(launchToast(task))
  }

  ended(task: Task): void {
    if (this.#enabled) this.#news.add(endToast(task))
  }

  /** At once, and after what came before it: somebody is waited for. */
  asked(task: Task, ask: Ask): void {
    if (!this.#enabled) return
    this.#news.flush()
    this.#host.toast(askToast(task, ask))
  }
}
