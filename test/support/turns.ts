import { vi } from "vitest"

/**
 * Most steps that `work` takes between two turns of the event loop, on a machine on which each look at the clock takes a
 * millisecond. No real time is measured.
 */
export async function mostStepsAtOnce(work: (step: () => void) => Promise<unknown>): Promise<number> {
  let [now, steps, most, isOver] = [0, 0, 0, false]
  const clock = vi.spyOn(performance, "now").mockImplementation(() => ++now)
  const turn = () => {
    steps = 0
    if (!isOver) setImmediate(turn)
  }
  setImmediate(turn)
  try {
    await work(() => {
      most = Math.max(most, ++steps)
    })
    return most
  } finally {
    isOver = true
    clock.mockRestore()
  }
}
