import { afterEach, beforeEach, expect, test, vi } from "vitest"
import { systemClock } from "../../src/lib/clock.ts"
import { Cached } from "../../src/opencode/cached.ts"

const DAY_MS = 86_400_000

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

test("what is longer than a timer can be comes when it is due, and no sooner", () => {
  const due = vi.fn()
  systemClock.after(30 * DAY_MS, due)
  vi.advanceTimersByTime(30 * DAY_MS - 1)
  expect(due).not.toHaveBeenCalled()
  vi.advanceTimersByTime(1)
  expect(due).toHaveBeenCalledTimes(1)
  expect(vi.getTimerCount()).toBe(0)
})

test("what is longer than a timer can be is taken back at any time, and nothing is left", () => {
  const due = vi.fn()
  const cancel = systemClock.after(30 * DAY_MS, due)
  vi.advanceTimersByTime(29 * DAY_MS)
  cancel()
  expect(vi.getTimerCount()).toBe(0)
  vi.advanceTimersByTime(2 * DAY_MS)
  expect(due).not.toHaveBeenCalled()
})

test("a value grows old by the time that has passed, whatever the clock is set to", async () => {
  let reads = 0
  const cached = new Cached(1000, async () => ++reads)
  expect(await cached.get()).toBe(1)
  vi.setSystemTime(Date.now() - DAY_MS)
  vi.advanceTimersByTime(1000)
  await cached.get()
  expect(await cached.get()).toBe(2)
})
