import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { expect, test } from "vitest"
import { callTool, eventually, openSession, unwrap } from "../support/drive.ts"
import type { Reply } from "../support/model.ts"
import { startOpencode } from "../support/opencode.ts"
import {
  LONG,
  launch,
  merge,
  model,
  nothingLeft,
  opencode,
  PERMISSION,
  placeScene,
  session,
  setLine,
  text,
  told,
  user,
  worktrees,
} from "../support/place-scene.ts"
import { gate, launchedFrom, notifications, notified, startPlugged } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"
import { bash } from "../support/shell-agent.ts"

/** Worktrees whose OpenCode dies, is not alone, or does not load the plugin there. */

placeScene()

test("a restart of the project's instance also restarts its worktree's agent, which keeps its work and is reported", async () => {
  const steps = [bash("echo precious > kept.txt")]
  model.use(({ sessionID, firstUser, sinceUser }) => {
    if (sessionID === session || !firstUser.startsWith("DISPOSED")) return undefined
    return steps[sinceUser.filter(({ role }) => role === "tool").length] ?? { hang: true }
  })
  const { id, child } = await launch("DISPOSED")
  const asked = await model.waitFor(({ sessionID, sinceUser }) => sessionID === child && sinceUser.length > 0, LONG)
  await unwrap(opencode.client.instance.dispose())
  await opencode.events.connect(opencode.url, opencode.directory)
  const [news, ...more] = await told()
  expect(news?.hidden).toContain("interrupted")
  expect(news?.hidden).toContain("Changes: 1 file, +1 −0: kept.txt")
  expect(more).toEqual([])
  expect(asked.aborted.aborted).toBe(true)
  await eventually(() => worktrees().length === 0, { timeout: 30_000 })
  nothingLeft()
  expect(await merge(id)).toContain("Merged into your files")
  expect(user.read("kept.txt")).toBe("precious\n")
}, 180_000)

test("a kill of OpenCode keeps the work of nested worktrees too, leaves no files over, and is reported", async () => {
  user.write("shared.txt", text()).commit()
  const before = user.state()
  const below = { description: "below", prompt: "BELOW", agent: "general", place: "worktree", merge: true }
  const steps: Record<string, Reply[]> = {
    KILLED: [bash("echo precious > work.txt"), { tools: [{ name: "superagents_task", args: below }] }],
    BELOW: [bash("echo deep > deep.txt")],
  }
  model.use(({ sessionID, firstUser, sinceUser }) => {
    const [name = ""] = /^(?:KILLED|BELOW)/.exec(firstUser) ?? []
    if (sessionID === session || !steps[name]) return undefined
    return steps[name][sinceUser.filter(({ role }) => role === "tool").length] ?? { hang: true }
  })
  const { id, child } = await launch("KILLED")
  await model.waitFor(({ firstUser, sinceUser }) => firstUser.startsWith("BELOW") && sinceUser.length > 0, LONG)
  expect(worktrees().filter((name) => name.endsWith(".json"))).toHaveLength(2)
  await opencode.kill("SIGKILL")
  await opencode.restart()
  const [news] = await told()
  expect(news?.hidden).toContain("interrupted")
  expect(news?.hidden).toContain("Changes: 1 file, +1 −0: work.txt")
  await eventually(() => worktrees().length === 0, { timeout: 30_000 })
  nothingLeft()
  expect(user.state()).toEqual(before)
  expect(await merge(id)).toContain("Merged into your files")
  expect(user.read("work.txt")).toBe("precious\n")
  const [own] = await unwrap(opencode.client.session.children({ sessionID: child }))
  expect(own?.directory).toBe(opencode.directory)
  const records = own ? [own.metadata as { superagents: { task: { id: string } } }] : []
  const [ref] = records.map(({ superagents }) => `refs/superagents/${superagents.task.id}`)
  expect(user.git("show", `${ref}:deep.txt`)).toBe("deep\n")
  const [, told2] = await notifications(opencode, child)
  expect(told2?.hidden).toContain("Changes: 1 file, +1 −0: deep.txt")
}, 180_000)

test("a second process uses its own worktree beside the first's, and both merge into the same file", async () => {
  user.write("shared.txt", text()).commit()
  const { opened, open } = gate()
  const parents = [session]
  model.use(async ({ sessionID = "", firstUser, sinceUser }) => {
    const [name, line] = /^(?:FIRST|SECOND)-PROCESS-(\d+)/.exec(firstUser) ?? []
    if (parents.includes(sessionID) || !name) return undefined
    if (!sinceUser.some(({ role }) => role === "tool")) return bash(`${setLine(Number(line), name)}; touch ${name}`)
    await opened
    return { text: "done" }
  })
  const { id, child } = await launch("FIRST-PROCESS-5", { merge: true })
  await model.waitFor(({ sessionID, sinceUser }) => sessionID === child && sinceUser.length > 0, LONG)
  const second = await startOpencode({ home: opencode.home })
  try {
    const other = await openSession(second)
    parents.push(other)
    const args = { description: "d", prompt: "SECOND-PROCESS-30", agent: "general", place: "worktree", merge: true }
    const theirs = launchedFrom(await callTool(second, model, other, "superagents_task", args, LONG))
    await model.waitFor(({ sessionID, sinceUser }) => sessionID === theirs.child && sinceUser.length > 0, LONG)
    expect(worktrees()).toEqual(expect.arrayContaining([id, theirs.id]))
    open()
    const [[mine], [news]] = await Promise.all([told(), notified(second, other, 1, 90_000)])
    expect(mine?.hidden).toContain("Merged into your files")
    expect(news?.hidden).toContain("Merged into your files")
    expect(user.read("shared.txt")).toBe(text({ 5: "FIRST-PROCESS-5", 30: "SECOND-PROCESS-30" }))
  } finally {
    await second.stop()
  }
  nothingLeft()
}, 180_000)

test("polling finds the end and questions of a worktree task where the plugin is not loaded", async () => {
  const home = realpathSync(mkdtempSync(join(tmpdir(), "superagents-bare-")))
  const config = {
    provider: model.provider(),
    enabled_providers: ["scripted"],
    model: "scripted/alpha",
    small_model: "scripted/alpha",
    permission: PERMISSION,
    snapshot: false,
  }
  mkdirSync(join(home, "config/opencode"), { recursive: true })
  writeFileSync(join(home, "config/opencode/opencode.json"), JSON.stringify(config))
  const bare = await startPlugged(
    model,
    { pollInterval: 500, permissionTimeout: 1000 },
    { home, permission: PERMISSION },
  )
  const project = new Repository(bare.directory)
  try {
    project.write(".git/info/exclude", "opencode.json\n")
    const parent = await openSession(bare)
    model.use(({ sessionID, firstUser, sinceUser }) => {
      if (sessionID === parent || !firstUser.startsWith("BARE")) return undefined
      const done = sinceUser.filter(({ role }) => role === "tool").length
      return [bash("test ! -e opencode.json && echo bare > bare.txt"), bash("rm bare.txt")][done] ?? { text: "done" }
    })
    const args = { description: "d", prompt: "BARE", agent: "general", place: "worktree", merge: true }
    await callTool(bare, model, parent, "superagents_task", args, LONG)
    const [news] = await notified(bare, parent, 1, 90_000)
    expect(news?.hidden).toContain("Merged into your files")
    expect(project.read("bare.txt")).toBe("bare\n")
    expect(project.worktrees()).toBe(1)
  } finally {
    await bare.stop()
    rmSync(home, { recursive: true, force: true, maxRetries: 5 })
  }
}, 180_000)
