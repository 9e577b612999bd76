import { type Clock, MAX_TIMER_MS, OpencodeError } from "../core/ports.ts"

export const sleepFor = (clock: Clock, ms: number): Promise<void> =>
  new Promise((resolve) => void clock.after(ms, () => resolve()))

/** Its timers do not keep the process alive. */
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

/** Waits, in ms, before a call that must not be given up lightly is made again. */
const DELAYS_MS = [100, 500, 2000] as const
/** Waits where no caller is blocked and no other code would make the call later. */
export const PATIENT_MS = [...DELAYS_MS, 15_000, 60_000] as const

/**
 * Does the work, and a few times again when it fails, unless what it is about is gone or the plugin has ended. Rejects
 * with the last error.
 */
export async function retry<Result>(
  clock: Clock,
  stopped: AbortSignal,
  work: () => Promise<Result>,
  delays: readonly number[] = DELAYS_MS,
): Promise<Result> {
  for (const delay of delays) {
    try {
      return await work()
    } catch (error) {
      if (stopped.aborted || (error instanceof OpencodeError && (error.notFound || error.takenOver))) throw error
      await sleepFor(clock, delay)
    }
    stopped.throwIfAborted()
  }
  return work()
}
