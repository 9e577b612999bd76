import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { callTool, openSession, unwrap } from "../support/drive.ts"
import type { Host } from "../support/host.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { launchedFrom, notified, startPlugged } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"

/** Tasks in git worktrees of their own, on the real host and in a real repository. */

let model: ScriptedModel
let host: Host
let user: Repository
let session: string

beforeAll(async () => {
  model = await startModel()
  host = await startPlugged(model, { maxConcurrentTasks: 20 })
  user = new Repository(host.directory)
}, 90_000)
afterAll(async () => {
  await host?.stop()
  await model?.close()
})
beforeEach(async () => {
  model.reset()
  user.commit("before the test")
  session = await openSession(host)
})

const TIMEOUT = { timeout: 60_000 }
const LINES = Array.from({ length: 40 }, (_, index) => `line ${index}`)
const text = (changed: Record<number, string> = {}) => LINES.map((line, at) => `${changed[at] ?? line}\n`).join("")

const tool = (name: string, args: Record<string, unknown>) => callTool(host, model, session, name, args, TIMEOUT)
const launch = async (prompt: string, args: Record<string, unknown> = {}) =>
  launchedFrom(
    await tool("superagents_task", { description: prompt, prompt, agent: "general", place: "worktree", ...args }),
  )
const output = async (id: string) => (await tool("superagents_output", { task_id: id })).output ?? ""
const bash = (command: string) => ({ tools: [{ name: "bash", args: { command, description: "works" } }] })

/** The agent that is asked this runs the commands, one a step, and then says "done". */
const agent = (prompt: string, ...commands: string[]) =>
  model.use((request) => {
    if (request.sessionID === session || !request.lastUser.startsWith(prompt)) return undefined
    const done = request.sinceUser.filter(({ role }) => role === "tool").length
    const command = commands[done]
    return command === undefined ? { text: `done: ${prompt}` } : bash(command)
  })

const worktrees = () => {
  const root = join(host.home, "data/opencode/superagents/worktrees")
  return existsSync(root) ? readdirSync(root).flatMap((room) => readdirSync(join(root, room))) : []
}
const setLine = (at: number, to: string) => `sed -i 's/^line ${at}$/${to}/' shared.txt`

test("a task works in what its parent sees, leaves nothing behind, and its work is merged on demand", async () => {
  user.write("shared.txt", text()).write("gone.txt", "x").commit()
  user.write("shared.txt", text({ 0: "mine, not committed" })).write("mine.txt", "untracked\n")
  user.write("staged.txt", "staged\n").git("add", "staged.txt")
  const before = user.state()
  agent(
    "WORK",
    `pwd; cat mine.txt staged.txt; head -1 shared.txt; ${setLine(39, "theirs")}; rm gone.txt`,
    "git commit -qam x; echo n > new.txt; exit 3",
  )
  const { id, child } = await launch("WORK")
  await notified(host, session, 1, 60_000)
  expect(user.state()).toEqual(before)
  expect(worktrees()).toEqual([])
  expect(user.worktrees()).toBe(1)
  const shown = await output(id)
  expect(shown).toContain("Worktree: 3 files, +2 −2: gone.txt, new.txt, shared.txt")
  expect(shown).toContain("Receipt: 2 commands (1 failed)")
  expect(shown).toContain("+theirs")
  expect(shown).toContain(`superagents_task(merge="${id}")`)
  const ran = (await unwrap(host.client.session.messages({ sessionID: child }))).flatMap(({ parts }) =>
    parts.flatMap((part) => (part.type === "tool" && part.state.status === "completed" ? part.state.output : [])),
  )
  expect(ran[0]).toContain(`/${id}\nuntracked\nstaged\nmine, not committed\n`)
  expect((await unwrap(host.client.session.get({ sessionID: child }))).directory).toBe(host.directory)
  expect((await tool("superagents_list", {})).output).toContain(`${id} (unmerged)`)
  expect((await tool("superagents_task", { merge: id })).output).toContain("Merged into your files, uncommitted.")
  const base64 = (content: string) => `644 ${Buffer.from(content).toString("base64")}`
  const { "gone.txt": _gone, ...rest } = before
  expect(user.state()).toEqual({
    ...rest,
    "new.txt": base64("n\n"),
    "shared.txt": base64(text({ 0: "mine, not committed", 39: "theirs" })),
  })
  expect((await tool("superagents_list", {})).output).not.toContain("unmerged")
  expect((await tool("superagents_task", { merge: id })).output).toMatch(/have all of it already/)
})
