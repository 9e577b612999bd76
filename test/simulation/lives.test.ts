import { expect, test } from "vitest"
import { historyOf } from "./lives.ts"
import { livesTest } from "./many.ts"

/** The first few of each kind; the `lives-…` files live the others in the long part of the tests. */

test("the same seed gives the same simulated history", async () => {
  for (const seed of [7, 77, 777]) expect(await historyOf(seed)).toBe(await historyOf(seed))
})

livesTest("plain", { from: 0, to: 150 })
livesTest("maps", { from: 0, to: 25 })
livesTest("checks", { from: 0, to: 25 })
livesTest("parked", { from: 0, to: 25 })
livesTest("purse", { from: 0, to: 25 })
livesTest("hosts", { from: 0, to: 25 })
