import { afterAll, beforeAll, expect, test, vi } from "vitest"

/** So many lives take a few seconds: whoever runs the tests runs into what is planted here. */
const MOST_LIVES = 300
const NEWS = "../../src/engine/tasks/news.ts"

// Files of tests share a process: what an earlier one has loaded is loaded anew, and no later one finds what is planted.
beforeAll(() => {
  vi.resetModules()
  // Planted: a wake that does not ask whether its parent has ended, or was stopped by its user.
  vi.doMock(NEWS, async (original) => ({ ...(await original<object>()), mayWake: () => true }))
})

afterAll(() => {
  vi.doUnmock(NEWS)
  vi.resetModules()
})

test("two parts of the engine that disagree are found", async () => {
  const { BrokenLife, live } = await import("./lives.ts")
  const found: { readonly seed: number; readonly breaches: readonly string[] }[] = []
  for (let seed = 0; seed < MOST_LIVES; seed++)
    try {
      await live(seed)
    } catch (error) {
      if (!(error instanceof BrokenLife)) throw error
      found.push({ seed, breaches: error.breaches })
    }
  console.log(`a planted wake: ${found.length} of ${MOST_LIVES} lives break, the first is ${found[0]?.seed}`)
  const breaches = found.flatMap((life) => life.breaches)
  expect(breaches).toContainEqual(expect.stringMatching(/has ended \((cancelled|error)\) and is asked to go on/))
  expect(breaches).toContainEqual(expect.stringMatching(/after its user's ESC/))
})
