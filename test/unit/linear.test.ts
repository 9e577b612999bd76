import { execFile } from "node:child_process"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { describe, expect, test } from "vitest"

/**
 * Code that reads texts of agents on OpenCode's thread needs work in proportion to their length, and no more stack for a
 * longer one. Steps are counted, so that a busy machine changes nothing; CPU time is compared coarsely.
 */

const READERS = fileURLToPath(new URL("../support/fixtures/readers.ts", import.meta.url))

describe.each(["steps", "time"])("linear %s for reading a text", async (kind) => {
  const { stdout } = await promisify(execFile)(process.execPath, ["--import", "tsx", READERS, kind])

  test.each(Object.entries(JSON.parse(stdout)))("%s", (_what, tooMuch) => {
    expect(tooMuch).toEqual([])
  })
})
