import { spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import type { Case } from "../support/case.ts"

const SCRIPT = fileURLToPath(new URL("../fork.ts", import.meta.url))

/** A fork against OpenCode's bare one: a program of its own, which prints its own table. */
export const forkCase: Case = async ({ progress, short }) => {
  if (!existsSync(SCRIPT)) {
    progress("fork: there is no bench/fork.ts yet")
    return []
  }
  const child = spawn(process.execPath, [...process.execArgv, SCRIPT, ...(short ? ["--short"] : [])], {
    stdio: "inherit",
  })
  const [code] = await once(child, "exit")
  if (code !== 0) throw new Error(`bench/fork.ts ended with code ${code}`)
  return []
}
