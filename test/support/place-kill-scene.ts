import { chmodSync, existsSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, beforeAll, expect } from "vitest"
import { callTool, eventually, openSession, say, unwrap } from "./drive.ts"
import type { Moment } from "./fixtures/dying-plugin.ts"
import { fates } from "./killing.ts"
import { type ScriptedModel, startModel } from "./model.ts"
import type { Opencode } from "./opencode.ts"
import { notified, PACKAGE, startPlugged } from "./plugin.ts"
import { isRunning } from "./process-id.ts"
import { Repository, text } from "./repository.ts"

/**
 * OpenCode dies while a task's worktree is made ready, put away or merged, and comes back: one end, told once, nothing
 * lost, nothing left over. What git does in between has moments of its own in test/place/crash.
 */

const DYING = fileURLToPath(new URL("./fixtures/dying-plugin.ts", import.meta.url))
export const MOVE = { method: "POST", path: "/move-session$" }

let model: ScriptedModel
let opencode: Opencode
let user: Repository
let folder: string

export const MERGED = "completed"
export const INTERRUPTED = "error"

export function placeKillScene(): void {
  beforeAll(async () => {
    model = await startModel()
    folder = realpathSync(mkdtempSync(join(tmpdir(), "superagents-place-kill-")))
    // Kills who runs it when it is told to do what stands in a file, and does it all the same.
    const words = join(folder, "words")
    const git = [
      "#!/bin/sh",
      `[ -e ${words} ] && case "$*" in *"$(cat ${words})"*) rm ${words}; kill -9 $PPID;; esac`,
      `PATH='${process.env.PATH}' exec git "$@"`,
    ].join("\n")
    writeFileSync(join(folder, "git"), git)
    chmodSync(join(folder, "git"), 0o755)
    const options = { entry: `file://${PACKAGE}/dist/server.js`, orders: join(folder, "orders") }
    opencode = await startPlugged(model, options, { plugin: DYING, env: { PATH: `${folder}:${process.env.PATH}` } })
    user = new Repository(opencode.directory)
  })
  afterAll(async () => {
    await opencode?.stop()
    await model?.close()
    rmSync(folder, { recursive: true, force: true })
  })
}

/** A task that OpenCode dies in at a moment: a call of the plugin's, or words of a call of git; ends with the status. */
export async function diesAt(moment: Moment | string, status: string): Promise<void> {
  user.write("shared.txt", text()).commit()
  user.write("shared.txt", text({ 0: "mine, not committed" })).write("mine.txt", "untracked\n")
  const before = user.state()
  model.reset()
  model.use(({ lastUser, firstUser, sinceUser }) => {
    const args = { description: "the job", prompt: "THE JOB", agent: "general", place: "worktree", merge: true }
    if (sinceUser.length > 0) return undefined
    if (lastUser === "hand it over") return { tools: [{ name: "superagents_task", args }] }
    const command = "sed -i 's/^line 30$/theirs/' shared.txt; echo new > new.txt"
    return firstUser.startsWith("THE JOB")
      ? { tools: [{ name: "bash", args: { command, description: "works" } }] }
      : undefined
  })
  const { pid } = opencode
  const session = await openSession(opencode)
  if (typeof moment === "string") writeFileSync(join(folder, "words"), moment)
  else writeFileSync(join(folder, "orders"), JSON.stringify(moment))
  await say(opencode, session, "hand it over").catch(() => {})
  await eventually(() => !isRunning(pid), { timeout: 150_000, message: () => `OpenCode dies ${opencode.logs()}` })
  await opencode.restart()
  const [child] = (await unwrap(opencode.client.session.children({ sessionID: session }))).map((each) => {
    const { superagents } = each.metadata as { superagents: { task: { id: string } } }
    return { sessionID: each.id, id: superagents.task.id }
  })
  const { id, sessionID } = child ?? { id: "none", sessionID: "none" }
  expect(await fates(opencode, model, session, [id])).toEqual([{ id, status, notifications: 1 }])
  const root = join(opencode.home, "data/opencode/superagents/worktrees")
  const left = () => readdirSync(root).flatMap((room) => readdirSync(join(root, room)))
  await eventually(() => left().length === 0, { timeout: 30_000, message: () => `nothing is left: ${left()}` })
  expect(user.worktrees()).toBe(1)
  expect(user.ours().filter((name) => name.startsWith("refs/superagents-merge"))).toEqual([])
  const stages = join(user.top, ".git/superagents")
  expect(existsSync(stages) ? readdirSync(stages) : []).toEqual([])
  const base64 = (content: string) => `644 ${Buffer.from(content).toString("base64")}`
  const merged = {
    "shared.txt": base64(text({ 0: "mine, not committed", 30: "theirs" })),
    "new.txt": base64("new\n"),
  }
  expect(user.state()).toEqual({ ...before, ...(status === MERGED && merged) })
  const [news] = await notified(opencode, session)
  if (status === MERGED) expect(news?.hidden).toMatch(/Changes: 2 files.*\n(?:Merged into|Your files have all of it)/)
  expect((await unwrap(opencode.client.session.get({ sessionID }))).directory).toBe(opencode.directory)
  const { output } = await callTool(opencode, model, session, "superagents_list", {})
  expect(output).not.toContain("unmerged")
  if (user.has("new.txt")) user.remove("new.txt")
}
