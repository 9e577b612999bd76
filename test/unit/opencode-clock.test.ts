import { afterEach, beforeEach, expect, test, vi } from "vitest"
import { systemClock } from "../../src/lib/clock.ts"
import { DAY_MS } from "../../src/lib/format.ts"
import { Cached } from "../../src/opencode/cache.ts"

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

test("a delay longer than the timer maximum fires exactly when it is due", () => {
  const due = vi.fn()
  systemClock.after(30 * DAY_MS, due)
  vi.advanceTimersByTime(30 * DAY_MS - 1)
  expect(due).not.toHaveBeenCalled()
  vi.advanceTimersByTime(1)
  expect(due).toHaveBeenCalledTimes(1)
  expect(vi.getTimerCount()).toBe(0)
})

test("a delay longer than the timer maximum can be cancelled at any time and leaves no timer", () => {
  const due = vi.fn()
  const cancel = systemClock.after(30 * DAY_MS, due)
  vi.advanceTimersByTime(29 * DAY_MS)
  cancel()
  expect(vi.getTimerCount()).toBe(0)
  vi.advanceTimersByTime(2 * DAY_MS)
  expect(due).not.toHaveBeenCalled()
})

test("a cached value expires by elapsed time, even when the system clock is set back", async () => {
  let reads = 0
  const cached = new Cached(1000, async () => ++reads)
  expect(await cached.get()).toBe(1)
  vi.setSystemTime(Date.now() - DAY_MS)
  vi.advanceTimersByTime(1000)
  await cached.get()
  expect(await cached.get()).toBe(2)
})
