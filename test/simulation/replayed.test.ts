import { readFileSync } from "node:fs"
import { expect, test } from "vitest"
import { replay } from "./replay.ts"

/** Lives that broke once, by the seed that they had: their inputs are recorded, since a seed means another life by now. */
test.each([
  ["a record is not read of a time before its task was resumed", 4777082],
  ["a task that was cleared is not written again by a write that is still under way", 4906487],
  ["what its user has an agent do while its end is told does not change that end after a crash", 4984172],
  ["an answer from before an agent's children had ended is not its last word, however late it is read", 4381780],
  ["a time limit does not count what passes between a crash and the end of its owner's lease", 4407879],
  ["a turn that its user begins after a crash goes on, and its question is the user's", 4531162],
  ["a question of such a turn is open only until its user answers", 4220822],
  ["an end that was told stays so after a crash, though its prompt was rewritten before it was recorded", 427],
  ["what another machine ends after a crash is over for every process", 786],
  ["an end is not told while it is open whether another machine took the task over during sleep", 4671484],
])("%s", async (_what, seed) => {
  const file = new URL(`./tapes/${seed}.json`, import.meta.url)
  const { watch } = await replay(JSON.parse(readFileSync(file, "utf8")))
  expect(watch.breaches).toEqual([])
})
