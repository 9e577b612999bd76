import { execFile } from "node:child_process"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { describe, expect, test } from "vitest"
import { BINARY } from "../support/server-process.ts"

/**
 * Code that reads texts of agents on OpenCode's thread needs work in proportion to their length, and no more stack for a
 * longer one. Steps are counted, so that a busy machine changes nothing; CPU time is compared coarsely.
 */

const READERS = fileURLToPath(new URL("../support/fixtures/readers.ts", import.meta.url))

/** OpenCode runs the plugin in Bun, whose patterns fall back otherwise than those of Node. */
const ENGINES = [
  ["steps", process.execPath, ["--import", "tsx", READERS, "steps"]],
  ["time", process.execPath, ["--import", "tsx", READERS, "time"]],
  ["time in OpenCode's engine", BINARY, [READERS, "time"]],
] as const

describe.each(ENGINES)("linear %s for reading a text", async (_kind, program, args) => {
  const env = { ...process.env, BUN_BE_BUN: "1" }
  const { stdout } = await promisify(execFile)(program, args, { env, timeout: 60_000 })

  test.each(Object.entries(JSON.parse(stdout)))("%s", (_what, tooMuch) => {
    expect(tooMuch).toEqual([])
  })
})
