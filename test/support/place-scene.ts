import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, expect } from "vitest"
import { callsOf } from "./calls.ts"
import { openSession } from "./drive.ts"
import { type ScriptedModel, startModel } from "./model.ts"
import type { Opencode } from "./opencode.ts"
import { startPlugged } from "./plugin.ts"
import { Repository } from "./repository.ts"
import { shellAgentOf } from "./shell-agent.ts"

/** What the tests of tasks in worktrees share: one OpenCode for a file, in a real repository, and a new session for each test. */

export let model: ScriptedModel
export let opencode: Opencode
export let user: Repository
export let session: string

export const LONG = { timeout: 90_000 }
export const PERMISSION = {
  "*": "allow",
  external_directory: "ask",
  bash: { "*": "allow", "rm *": "ask", "forbidden *": "deny" },
  edit: { "*": "allow", "locked/*": "deny" },
}

export function placeScene(): void {
  beforeAll(async () => {
    model = await startModel()
    const limits = { maxDepth: 2, maxConcurrentTasks: 20, maxTokensPerTask: 100_000, lastWord: 3000 }
    const options = { ...limits, checkTimeout: 3000, checkRetries: 2 }
    opencode = await startPlugged(model, options, { permission: PERMISSION })
    user = new Repository(opencode.directory)
  }, 90_000)
  afterAll(async () => {
    await opencode?.stop()
    await model?.close()
  })
  beforeEach(async () => {
    model.reset()
    user.commit("before the test")
    session = await openSession(opencode)
  })
}

const LINES = Array.from({ length: 40 }, (_, index) => `line ${index}`)
export const text = (changed: Record<number, string> = {}) =>
  LINES.map((line, at) => `${changed[at] ?? line}\n`).join("")
export const base64 = (content: string) => `644 ${Buffer.from(content).toString("base64")}`
export const setLine = (at: number, to: string) => `sed -i 's/^line ${at}$/${to}/' shared.txt`

export const { tool, launch, output, list, merge, told } = callsOf(() => ({ opencode, model, session }), "worktree")

export const agent = shellAgentOf(() => ({ model, session }))

export const worktrees = () => {
  const root = join(opencode.home, "data/opencode/superagents/worktrees")
  return existsSync(root) ? readdirSync(root).flatMap((room) => readdirSync(join(root, room))) : []
}
export const nothingLeft = () => {
  expect(worktrees()).toEqual([])
  expect(user.worktrees()).toBe(1)
}
