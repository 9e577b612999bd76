import { setTimeout as sleep } from "node:timers/promises"
import { inspect } from "node:util"

const DEFAULT_TIMEOUT_MS = 10_000
const FIRST_PAUSE_MS = 10
const LONGEST_PAUSE_MS = 150

/** Polls until `look` returns something truthy, which is the result. A throw counts as "not yet". */
export const eventually = async <Value>(
  look: () => Value | Promise<Value>,
  {
    timeout = DEFAULT_TIMEOUT_MS,
    message = String(look),
  }: { timeout?: number; message?: string | (() => string) } = {},
): Promise<NonNullable<Exclude<Value, false>>> => {
  const deadline = performance.now() + timeout
  let last: unknown
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 1.5, LONGEST_PAUSE_MS)) {
    try {
      const value = await look()
      if (value) return value as NonNullable<Exclude<Value, false>>
      last = value
    } catch (error) {
      last = error
    }
    if (performance.now() + pause > deadline) break
    await sleep(pause)
  }
  const text = typeof message === "string" ? message : message()
  throw new Error(`not within ${timeout} ms: ${text}\nlast: ${inspect(last, { depth: 6 })}`)
}
