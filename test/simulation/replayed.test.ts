import { readFileSync } from "node:fs"
import { expect, test } from "vitest"
import { replay } from "./replay.ts"

/** Lives that broke once, by the seed that they had: their inputs are recorded, since a seed means another life by now. */
test.each([
  ["a record is not read of a time before its task was resumed", 4777082],
  ["a task that was cleared is not written again by a write that is still under way", 4906487],
  ["what its user has an agent do while its end is told does not change that end after a crash", 4984172],
])("%s", async (_what, seed) => {
  const file = new URL(`./tapes/${seed}.json`, import.meta.url)
  const { watch } = await replay(JSON.parse(readFileSync(file, "utf8")))
  expect(watch.breaches).toEqual([])
})
