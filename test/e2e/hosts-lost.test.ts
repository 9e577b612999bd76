import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { expect, test } from "vitest"
import { callsOf } from "../support/calls.ts"
import { eventually, openSession } from "../support/drive.ts"
import {
  far,
  going,
  hostsScene,
  LONG,
  list,
  model,
  nothingLeft,
  opencode,
  output,
  session,
  toastsOfHost,
  told,
  tool,
  working,
} from "../support/hosts-scene.ts"
import { startOpencode } from "../support/opencode.ts"
import { notifications, notified } from "../support/plugin.ts"
import { shellAgentOf } from "../support/shell-agent.ts"

/** Losses of contact, cancels and clears without it, restarts here, a server that dies there. */

hostsScene()

test("a run continues on its host while contact is lost, and is read when the host answers", async () => {
  const { wait, go } = going("LOSS")
  const { id } = await working("LOSS", `${wait}; echo made > made.txt`)
  const toasts = toastsOfHost()
  far.cut()
  await eventually(async () => (await list()).includes("no contact with big"), LONG)
  expect((await tool("superagents_task", { tell: id, prompt: "MORE" })).error).toContain(
    `big cannot be reached now: nothing was said to ${id}.`,
  )
  expect(await output(id)).toContain("no contact with big")
  go()
  far.set("open")
  const back = performance.now()
  await eventually(async () => !(await list()).includes("no contact"), LONG)
  expect(performance.now() - back).toBeLessThan(15_000)
  const [{ hidden } = { hidden: "" }, ...more] = await told()
  expect(hidden).toContain("done: LOSS")
  expect(more).toEqual([])
  expect(await output(id)).toContain("made.txt")
  nothingLeft()
  // One for the loss, however often it was tried, and one for the contact.
  expect(toasts()).toEqual(["big: no contact", "big: contact again"])
}, 180_000)

test("each loss of contact shows one toast, however many tasks run on the host", async () => {
  await working("FIRST", "sleep 600")
  await working("SECOND", "sleep 600")
  const toasts = toastsOfHost()
  const expected: string[] = []
  for (let nth = 0; nth < 2; nth++) {
    far.cut()
    expected.push("big: no contact", "big: contact again")
    await eventually(async () => ((await list()).match(/no contact with big/g) ?? []).length === 2, LONG)
    far.set("open")
    await eventually(async () => !(await list()).includes("no contact"), LONG)
  }
  await eventually(() => toasts().length >= expected.length, LONG)
  await tool("superagents_clear", {})
  await eventually(async () => far.folders().length === 0, LONG)
  expect(toasts()).toEqual(expected)
}, 240_000)

test("a local restart of OpenCode in the middle of a run continues the same run and notifies nobody", async () => {
  const { wait, go } = going("RESTART")
  const { id } = await working("RESTART", `${wait}; echo made > made.txt`)
  await opencode.kill("SIGKILL")
  await opencode.restart()
  go()
  const toasts = toastsOfHost()
  await eventually(async () => (await list()).includes(id), LONG)
  const [{ hidden } = { hidden: "" }, ...more] = await told()
  expect(hidden).toContain("done: RESTART")
  expect(more).toEqual([])
  expect(await output(id)).toContain("made.txt")
  nothingLeft()
  expect(model.requests.filter(({ firstUser }) => firstUser.startsWith("RESTART"))).toHaveLength(2)
  // Nothing was lost.
  expect(toasts()).toEqual([])
}, 180_000)

test("an OpenCode in contact with the host takes over the task of another that died, and reads it there", async () => {
  const second = await startOpencode({ home: opencode.home })
  try {
    const own = await openSession(second)
    shellAgentOf(() => ({ model, session: own }))("OWN", ["sleep 600"])
    const inOwn = callsOf(() => ({ opencode: second, model, session: own }), "big")
    await inOwn.launch("OWN")
    await eventually(async () => (await inOwn.list()).includes("1 tool call"), LONG)
    const { wait, go } = going("TAKEN")
    await working("TAKEN", `${wait}; echo made > made.txt`)
    await opencode.kill("SIGKILL")
    const there = callsOf(() => ({ opencode: second, model, session }), "big")
    await eventually(async () => (await there.list()).includes("running"), LONG)
    await eventually(async () => !(await there.list()).includes("no contact"), { timeout: 30_000 })
    go()
    const [{ hidden } = { hidden: "" }, ...more] = await notified(second, session)
    expect(hidden).toContain("done: TAKEN")
    expect(more).toEqual([])
    await inOwn.tool("superagents_clear", {})
    await eventually(async () => far.folders().length === 0, LONG)
  } finally {
    await second.stop()
    await opencode.restart()
  }
}, 240_000)

test("a task that is cancelled without contact is stopped when the host answers, and its changes are fetched", async () => {
  const { id } = await working("CANCEL", "echo made > made.txt; sleep 600")
  far.cut()
  await eventually(async () => (await list()).includes("no contact with big"), LONG)
  const cancelled = await tool("superagents_cancel", { task_id: id })
  expect(cancelled.output).toContain(id)
  expect(await output(id)).toContain("It is stopped on big as soon as big answers.")
  expect(await output(id)).toContain("What it changed is still on big, and is fetched when big answers; ")
  expect(far.folders()).toContain(id)
  far.set("open")
  await eventually(async () => far.folders().length === 0, LONG)
  await eventually(async () => (await output(id)).includes("made.txt"), LONG)
  expect(await output(id)).not.toContain("still on big")
  nothingLeft()
}, 180_000)

test("a task cancelled without contact is stopped when the host answers, even by the next OpenCode process", async () => {
  const pid = join(far.root, "cancelled.pid")
  const { id } = await working("STOPPED", `echo made > made.txt; echo $$ > '${pid}'; sleep 600`)
  const works = () => existsSync(`/proc/${readFileSync(pid, "utf8").trim()}`)
  await eventually(() => existsSync(pid) && works(), LONG)
  far.cut()
  await eventually(async () => (await list()).includes("no contact with big"), LONG)
  await tool("superagents_cancel", { task_id: id })
  await opencode.kill("SIGKILL")
  await opencode.restart()
  await eventually(async () => (await output(id)).includes("still on big"), LONG)
  expect([works(), far.folders().includes(id)]).toEqual([true, true])
  const before = await told()
  const toasts = toastsOfHost()
  far.set("open")
  await eventually(async () => far.folders().length === 0, LONG)
  await eventually(async () => (await output(id)).includes("made.txt"), LONG)
  await eventually(() => !works(), LONG)
  expect(await output(id)).not.toContain("still on big")
  expect(await notifications(opencode, session)).toEqual(before)
  expect(toasts()).toEqual([])
  nothingLeft()
}, 240_000)

test("a task that is cleared without contact is stopped and removed when the host answers", async () => {
  await working("CLEAR", "echo made > made.txt; sleep 600")
  far.cut()
  await eventually(async () => (await list()).includes("no contact with big"), LONG)
  expect((await tool("superagents_clear", {})).error).toBeUndefined()
  far.set("open")
  await eventually(async () => far.folders().length === 0, { ...LONG, message: () => opencode.logs() })
  nothingLeft()
}, 180_000)

test("a server that dies on the host interrupts its run, which is reported with its text and files", async () => {
  const { id } = await working("DIES", "echo made > made.txt; sleep 20")
  far.signalServer("SIGKILL")
  const [{ hidden } = { hidden: "" }] = await told()
  expect(hidden).toContain("OpenCode on big stopped while it worked.")
  expect(await output(id)).toContain("made.txt")
  nothingLeft()
}, 180_000)
