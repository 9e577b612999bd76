import { expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { untilAtRest } from "../../src/runtime/recovery/recovery.ts"
import { FakeClock } from "../support/fake-clock.ts"

/** How long it waits, in ms, while a session is at work for so long. */
async function waited(workingMs: number, activity?: () => Promise<ReadonlyMap<string, never>>): Promise<number> {
  const clock = new FakeClock()
  const begin = clock.now()
  let end: number | undefined
  const working = new Map([["ses_1", {} as never]])
  const read = activity ?? (async () => (clock.now() - begin < workingMs ? working : new Map<string, never>()))
  void untilAtRest({ activity: read }, clock).then(() => {
    end = clock.now() - begin
  })
  await clock.until(() => end !== undefined)
  return end ?? Number.NaN
}

test("the search for earlier tasks waits for a second, and while a session is at work, for five at most", async () => {
  expect(await waited(0)).toBe(1000)
  expect(await waited(2500)).toBe(3000)
  expect(await waited(60_000)).toBe(5000)
})

test("the search for earlier tasks begins where OpenCode does not say what is at work", async () => {
  expect(await waited(0, () => Promise.reject(new OpencodeError("not now")))).toBe(1000)
})
