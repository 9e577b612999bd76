import { describe, expect, test } from "vitest"
import { live, storyOf } from "./lives.ts"

/** As many as a machine that checks everything has time for; at a desk a few. By hand: `LIVES=1000000 npm run simulate`. */
const LIVES = Number(process.env.LIVES ?? (process.env.CI ? 10_000 : 300))
/** So many files of tests like this one live them. */
const PARTS = 2
const TIMEOUT_MS = 600_000

describe("lives at random", () => {
  test("the same seed is the same life", async () => {
    for (const seed of [7, 77, 777]) expect(await storyOf(seed)).toBe(await storyOf(seed))
  })

  test("no promise is broken, whatever comes and whenever", { timeout: TIMEOUT_MS }, async () => {
    for (let seed = 0; seed < LIVES / PARTS; seed++) await live(seed)
  })
})
