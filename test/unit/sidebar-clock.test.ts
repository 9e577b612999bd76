import { createRoot, createSignal } from "solid-js"
import { afterEach, beforeEach, expect, test, vi } from "vitest"
import { createClock } from "../../src/sidebar/clock.ts"

// In Node the package's own choice is its server build, in which effects never run.
vi.mock("solid-js", () => vi.importActual("solid-js/dist/solid.js"))

beforeEach(() => {
  vi.useFakeTimers()
})

afterEach(() => {
  vi.useRealTimers()
})

test("there is one timer while something runs, and none before, after, and when the component is gone", () => {
  const [runs, setRuns] = createSignal(false)
  const { clock, dispose } = createRoot((dispose) => ({ clock: createClock(runs), dispose }))
  expect(vi.getTimerCount()).toBe(0)
  setRuns(true)
  expect(vi.getTimerCount()).toBe(1)
  const [now, frame] = [clock.now(), clock.spinner()]
  vi.advanceTimersByTime(1000)
  expect(clock.now()).toBe(now + 1000)
  expect(clock.spinner()).not.toBe(frame)
  setRuns(false)
  expect(vi.getTimerCount()).toBe(0)
  setRuns(true)
  dispose()
  expect(vi.getTimerCount()).toBe(0)
})
