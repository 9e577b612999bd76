import { expect, test } from "vitest"
import { storyOf } from "./lives.ts"
import { livesTests } from "./many.ts"

test("the same seed is the same life", async () => {
  for (const seed of [7, 77, 777]) expect(await storyOf(seed)).toBe(await storyOf(seed))
})

livesTests(0)
