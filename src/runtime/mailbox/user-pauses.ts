import type { Clock } from "../../core/ports.ts"
import type { Lane } from "./lane.ts"

/** Waits that end with the plugin. */
export class Pauses {
  readonly #clock: Clock
  readonly #stopped: AbortSignal
  readonly #open = new Set<() => void>()

  constructor(clock: Clock, stopped: AbortSignal) {
    this.#clock = clock
    this.#stopped = stopped
    stopped.addEventListener("abort", () => {
      for (const end of this.#open) end()
    })
  }

  /** Waits `ms`, or until the lane is released. Resolves with whether the time passed. */
  async in(lane: Lane, ms: number): Promise<boolean> {
    const passed = await this.for(ms, (release) => {
      lane.release = release
    })
    lane.release = () => {}
    return passed
  }

  /** Waits `ms`, or until the function that `cancellable` is handed is called. Resolves with whether the time passed. */
  for(ms: number, cancellable: (cancel: () => void) => void = () => {}): Promise<boolean> {
    if (ms === 0 || this.#stopped.aborted) return Promise.resolve(true)
    return new Promise((resolve) => {
      const end = (passed = false) => {
        cancel()
        this.#open.delete(end)
        resolve(passed)
      }
      const cancel = this.#clock.after(ms, () => end(true))
      this.#open.add(end)
      cancellable(end)
    })
  }
}
