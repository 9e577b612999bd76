import { setTimeout as sleep } from "node:timers/promises"
import { inspect } from "node:util"

const DEFAULT_TIMEOUT_MS = 20_000
const FIRST_PAUSE_MS = 10
const LONGEST_PAUSE_MS = 150

/** Where nothing is heard, something may have changed all the same. */
const LONGEST_SILENCE_MS = 1000

/** What tells that it may be worth another look: resolves when something has happened since `mark`, or after `limit` ms. */
export type News = { mark(): number; since(mark: number, limit: number): Promise<void> }

/**
 * Polls until `look` returns something truthy, which is the result. A throw counts as "not yet". With `news` it looks
 * again only when there is some, and first when there is some since the mark `since`: each look costs OpenCode.
 */
export const eventually = async <Value>(
  look: () => Value | Promise<Value>,
  {
    timeout = DEFAULT_TIMEOUT_MS,
    message = String(look),
    news,
    since,
  }: { timeout?: number; message?: string | (() => string); news?: News; since?: number } = {},
): Promise<NonNullable<Exclude<Value, false>>> => {
  const deadline = performance.now() + timeout
  let last: unknown
  if (since !== undefined) await news?.since(since, Math.min(LONGEST_SILENCE_MS, timeout))
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 1.5, LONGEST_PAUSE_MS)) {
    const mark = news?.mark() ?? 0
    try {
      const value = await look()
      if (value) return value as NonNullable<Exclude<Value, false>>
      last = value
    } catch (error) {
      last = error
    }
    if (performance.now() + pause > deadline) break
    await sleep(pause)
    await news?.since(mark, Math.min(LONGEST_SILENCE_MS, deadline - performance.now()))
  }
  const text = typeof message === "string" ? message : message()
  throw new Error(`not within ${timeout} ms: ${text}\nlast: ${inspect(last, { depth: 6 })}`)
}
