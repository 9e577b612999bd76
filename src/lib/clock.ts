import { type Clock, MAX_TIMER_MS } from "../core/ports.ts"

/** Resolves when so much time has passed. */
export const pause = (clock: Clock, ms: number): Promise<void> =>
  new Promise((resolve) => void clock.after(ms, () => resolve()))

/** The real clock. Its timers do not keep the process alive. */
export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, run) {
    let timer: ReturnType<typeof setTimeout>
    const wait = (left: number) => {
      const next = left > MAX_TIMER_MS ? () => wait(left - MAX_TIMER_MS) : run
      timer = setTimeout(next, Math.min(left, MAX_TIMER_MS))
      timer.unref?.()
    }
    wait(ms)
    return () => clearTimeout(timer)
  },
}
