import type { Clock } from "../../core/ports.ts"
import type { Lane } from "./lane.ts"

/** Waits that end when the plugin stops. */
export class StoppableWaits {
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

  /** Resolves to whether the time passed, rather than the lane's release. */
  async in(lane: Lane, ms: number): Promise<boolean> {
    const passed = await this.for(ms, (release) => {
      lane.release = release
    })
    lane.release = () => {}
    return passed
  }

  /** Resolves to whether the time passed. `cancellable` receives a function that ends the wait. */
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
