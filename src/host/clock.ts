import type { Clock } from "../core/ports.ts"

/** The real clock. Its timers do not keep the process alive. */
export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, run) {
    const timer = setTimeout(run, ms)
    timer.unref?.()
    return () => clearTimeout(timer)
  },
}
