import { type Clock, MAX_TIMER_MS, OpencodeError } from "../core/ports.ts"

export const sleepFor = (clock: Clock, ms: number): Promise<void> =>
  new Promise((resolve) => void clock.after(ms, () => resolve()))

/** Resolves when the work is done, and after `ms` at the latest. The work must not reject. */
export const doneWithin = (clock: Clock, ms: number, work: Promise<unknown>): Promise<void> =>
  new Promise((resolve) => {
    const cancel = clock.after(ms, resolve)
    void work.then(() => {
      cancel()
      resolve()
    })
  })

/** Resolves after other work of the event loop had a chance to run. */
export const yieldToEventLoop = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0))

/** Longest time for which a piece of long work should occupy OpenCode's one thread, in ms. */
const SLICE_MS = 4

/** Returns a function that long work awaits again and again. It lets other work run whenever a slice of time is over. */
export function sliced(): () => Promise<void> {
  let since = performance.now()
  return async () => {
    if (performance.now() - since < SLICE_MS) return
    await yieldToEventLoop()
    since = performance.now()
  }
}

/** The system's clock. A pending timer does not keep the process alive. */
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

/** Delays before each repetition of a failed call that must not be given up easily, in ms. */
const DELAYS_MS = [100, 500, 2000] as const
/** Longer series of delays, for a call that blocks no caller and that no other code would repeat later. */
export const PATIENT_MS = [...DELAYS_MS, 15_000, 60_000] as const

/**
 * Does the work and repeats it a few times when it fails, unless the object of the work is gone or the plugin has
 * ended. Rejects with the last error.
 */
export async function retry<Result>(
  clock: Clock,
  stopped: AbortSignal,
  work: () => Promise<Result>,
  delays: Iterable<number> = DELAYS_MS,
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
