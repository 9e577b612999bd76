import { execFile } from "node:child_process"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { BINARY } from "../../test/support/server-process.ts"
import type { Case } from "../support/case.ts"
import { under } from "../support/rows.ts"

const SCRIPT = fileURLToPath(new URL("../in-process.ts", import.meta.url))

/** What `bench/in-process.ts` prints. */
type InProcess = { readonly eventMicros: number[]; readonly taskKB: number[]; readonly tasks: number }

/** The plugin alone, with an OpenCode that is played, in the JavaScript engine that OpenCode brings. */
export const inProcessCase: Case = async ({ runs, short, built, progress }) => {
  const eventMicros: number[] = []
  const taskKB: number[] = []
  for (let run = 1; run <= runs; run++) {
    progress(`in-process: run ${run} of ${runs}`)
    const args = [SCRIPT, built.entry, short ? "400" : "2000"]
    const { stdout } = await promisify(execFile)(BINARY, args, { env: { ...process.env, BUN_BE_BUN: "1" } })
    const result = JSON.parse(stdout) as InProcess
    eventMicros.push(...result.eventMicros)
    taskKB.push(...result.taskKB)
  }
  return [
    {
      case: "in-process",
      figure: "event hook, 1,000 tasks known, a session that is not ours",
      unit: "µs",
      native: [],
      plugin: eventMicros,
      goal: under(5, "µs"),
    },
    {
      case: "in-process",
      figure: "memory for each ended task kept",
      unit: "KB",
      native: [],
      plugin: taskKB,
      goal: under(2, "KB"),
    },
  ]
}
