import { createRoot, createSignal } from "solid-js"
import { afterEach, beforeEach, expect, test, vi } from "vitest"
import { createClock } from "../../../src/features/terminal/clock.ts"

// In Node the package's own choice is its server build, in which effects never run.
vi.mock("solid-js", () => vi.importActual("solid-js/dist/solid.js"))

beforeEach(() => {
  vi.useFakeTimers()
})

afterEach(() => {
  vi.useRealTimers()
})

test("one timer exists while something runs, and none before, afterwards or without the component", () => {
  const [running, setRunning] = createSignal(0)
  const { clock, dispose } = createRoot((dispose) => ({ clock: createClock(running), dispose }))
  expect(vi.getTimerCount()).toBe(0)
  setRunning(1)
  expect(vi.getTimerCount()).toBe(1)
  const [now, frame] = [clock.now(), clock.spinner()]
  vi.advanceTimersByTime(1000)
  expect(clock.now()).toBe(now + 1000)
  expect(clock.spinner()).not.toBe(frame)
  setRunning(10)
  const before = clock.now()
  vi.advanceTimersByTime(3999)
  expect(clock.now()).toBe(before)
  vi.advanceTimersByTime(1)
  expect(clock.now()).toBe(before + 4000)
  setRunning(0)
  expect(vi.getTimerCount()).toBe(0)
  setRunning(1)
  dispose()
  expect(vi.getTimerCount()).toBe(0)
})

test("the spinner moves on with each tick, however slow the ticks are", () => {
  for (const running of [1, 4, 10, 30, 60]) {
    const { clock, dispose } = createRoot((dispose) => ({ clock: createClock(() => running), dispose }))
    const frames = Array.from({ length: 5 }, () => {
      vi.advanceTimersToNextTimer()
      return clock.spinner()
    })
    expect(new Set(frames).size).toBe(5)
    dispose()
  }
})
