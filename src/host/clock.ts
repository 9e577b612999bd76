import type { Clock } from "../core/ports.ts"

/** A timer that is asked for more fires at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1

/** The real clock. Its timers do not keep the process alive. */
export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, run) {
    let timer: ReturnType<typeof setTimeout>
    const wait = (left: number) => {
      const next = left > LONGEST_TIMER_MS ? () => wait(left - LONGEST_TIMER_MS) : run
      timer = setTimeout(next, Math.min(left, LONGEST_TIMER_MS))
      timer.unref?.()
    }
    wait(ms)
    return () => clearTimeout(timer)
  },
}
