import { expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { FakeClock } from "../support/fake-clock.ts"
import { FakeDatabase } from "../support/fake-database.ts"
import { Rig, type RigOptions } from "../support/rig.ts"

/** Two OpenCode processes on one project. */
const twoProcesses = (options: RigOptions["options"] = {}) => {
  const share = { clock: new FakeClock(), database: new FakeDatabase() }
  return { clock: share.clock, first: new Rig({ options, share }), second: new Rig({ options, share }) }
}

test("the overview lists the tasks of all sessions, oldest first", async () => {
  const rig = new Rig()
  const other = rig.openParent()
  const first = await rig.launch()
  await rig.clock.advance(10)
  const second = await rig.launch({ description: "other" }, other)
  expect(rig.manager.parts.reports.list().map(({ task }) => task.id)).toEqual([first.id, second.id])
  expect(rig.manager.parts.reports.get(second.id)?.task.description).toBe("other")
  expect(rig.manager.parts.reports.get("bg_nothere0")).toBeUndefined()
})

test("reading an answer in the overview does not count as fetched by the parent", async () => {
  const rig = new Rig({ options: { notifyAnswerChars: 0 } })
  rig.onPrompt("FIND", { text: "found it" })
  const { id } = await rig.launch()
  await rig.ended(id)
  expect(await rig.manager.parts.reports.answer(id)).toBe("found it")
  expect(rig.task(id).retrievedAt).toBeUndefined()
  expect(await rig.manager.parts.reports.answer("bg_nothere0")).toBe("")
})

test("the user can stop a task in the overview once, and its parent is notified and woken", async () => {
  const rig = new Rig()
  rig.onPrompt("FIND", { hang: true })
  const { id } = await rig.launch()
  expect(await rig.manager.parts.reports.cancel(id)).toBe(true)
  await rig.ended(id)
  expect(rig.task(id)).toMatchObject({ status: "cancelled", outcome: { reason: { text: "The user stopped it." } } })
  expect(rig.notices()).toHaveLength(1)
  expect(await rig.manager.parts.reports.cancel(id)).toBe(false)
  expect(await rig.manager.parts.reports.cancel("bg_nothere0")).toBe(false)
})

test("the overview notifies its subscribers when tasks are added, change, work or are removed", async () => {
  const rig = new Rig()
  rig.onPrompt("FIND", { hang: true })
  const heard: string[] = []
  const end = rig.manager.parts.reports.subscribe((id) => heard.push(id))
  const { id, sessionID } = await rig.launch()
  expect(new Set(heard)).toEqual(new Set([id]))
  await rig.clock.advance(10)
  heard.length = 0
  rig.manager.handle({ type: "text-delta", sessionID, partID: "prt_1", delta: "a", messageID: "msg_1" })
  expect(heard).toEqual([id])
  await rig.manager.parts.reports.cancel(id)
  await rig.ended(id)
  heard.length = 0
  await rig.manager.clear(rig.parent)
  expect(heard).toContain(id)
  expect(rig.manager.parts.reports.list()).toEqual([])
  end()
  heard.length = 0
  await rig.launch({ prompt: "again" })
  expect(heard).toEqual([])
})

test("the overview shows another process's running task but cannot cancel it", async () => {
  const { clock, first, second } = twoProcesses()
  first.onPrompt("FIND", { hang: true })
  const { id } = await first.launch()
  await clock.advance(10)
  await second.manager.recover()
  const { reports: overview } = second.manager.parts
  expect([overview.get(id)?.task.status, overview.isForeign(id)]).toEqual(["running", true])
  expect(await overview.cancel(id)).toBe(false)
  expect(first.task(id).status).toBe("running")
})

test("the overview reads messages of another process's tasks only on refresh, and only new ones", async () => {
  const { clock, first, second } = twoProcesses()
  first.onPrompt("FIND", { hang: true })
  const { id, sessionID } = await first.launch()
  await clock.advance(10)
  await second.manager.recover()
  let reads = 0
  second.opencode.onCall = (method) => {
    if (method === "messagesSince") reads++
    return undefined
  }
  await clock.advance(120_000)
  expect(reads).toBe(0)
  const { reports: overview } = second.manager.parts
  await overview.refresh()
  await overview.refresh()
  await second.manager.ready(first.parent)
  expect(reads).toBe(1)
  first.opencode.conclude(sessionID, { text: "so far", tools: [{ name: "read", args: {} }] })
  await clock.advance(1000)
  await overview.refresh()
  expect([reads, overview.get(id)?.lastText]).toEqual([2, "so far"])
  second.opencode.onCall = (method) => (method === "lastMessage" ? { fail: new OpencodeError("gone") } : undefined)
  await overview.refresh()
  expect(overview.get(id)?.lastText).toBe("so far")
})

test("a refresh of the overview finds tasks that another process launched later", async () => {
  const { clock, first, second } = twoProcesses()
  await second.manager.recover()
  await clock.advance(60_000)
  first.onPrompt("FIND", { hang: true })
  const { id } = await first.launch()
  await clock.advance(10)
  const { reports: overview } = second.manager.parts
  expect(overview.get(id)).toBeUndefined()
  await overview.refresh()
  expect([overview.get(id)?.task.status, overview.isForeign(id)]).toEqual(["running", true])
  second.opencode.onCall = (method) => (method === "recordsSince" ? { fail: new OpencodeError("gone") } : undefined)
  await overview.refresh()
  expect(overview.get(id)?.task.status).toBe("running")
})

test("a session that is used again shows what another process has launched and ended there meanwhile", async () => {
  const { clock, first, second } = twoProcesses()
  await second.manager.ready(first.parent)
  first.onPrompt("FIND", { hang: true })
  const { id, sessionID } = await first.launch()
  await clock.advance(20_000)
  const use = async () => {
    await second.manager.ready(first.parent)
    return second.manager.list(first.parent).map(({ task }) => `${task.id} ${task.status}`)
  }
  expect(await use()).toEqual([`${id} running`])
  first.opencode.conclude(sessionID, { text: "found" })
  await first.ended(id)
  await clock.advance(20_000)
  first.onPrompt("MORE", { hang: true })
  await first.manager.resume(id, { prompt: "MORE" }, first.caller)
  await clock.advance(20_000)
  expect(await use()).toEqual([`${id} resumed`])
})

test("a call that waits for another process's task returns when that process has ended the task and died", async () => {
  const { clock, first, second } = twoProcesses()
  first.onPrompt("FIND", { hang: true })
  const { id, sessionID } = await first.launch()
  await clock.advance(10)
  await second.manager.ready(first.parent)
  let hasReturned = false
  const waiting = second.output(id, second.callerIn(first.parent), 600_000)
  void waiting.then(() => {
    hasReturned = true
  })
  first.opencode.conclude(sessionID, { text: "found" })
  await clock.advance(1500)
  first.crash()
  await clock.advance(60_000)
  expect(hasReturned).toBe(true)
})

test("what this process has read of another's ended task stays read when that process writes the record again", async () => {
  const { clock, first, second } = twoProcesses({ notifyAnswerChars: 0 })
  const { id } = await first.launch()
  await first.ended(id)
  await clock.advance(20_000)
  await second.manager.ready(first.parent)
  await second.output(id, second.callerIn(first.parent))
  expect(second.task(id, first.parent).retrievedAt).toBeDefined()
  await clock.advance(20_000)
  await first.manager.parts.journal.save(first.task(id))
  await second.manager.ready(first.parent)
  expect(second.task(id, first.parent).retrievedAt).toBeDefined()
})

test("what another process launched is found at the next use where a look for it has failed", async () => {
  const { clock, first, second } = twoProcesses()
  await second.manager.ready(first.parent)
  first.onPrompt("FIND", { hang: true })
  const { id } = await first.launch()
  second.opencode.onCall = (method) => (method === "recordsSince" ? { fail: new OpencodeError("gone") } : undefined)
  await clock.advance(60_000)
  await second.manager.ready(first.parent)
  expect(second.manager.list(first.parent)).toEqual([])
  second.opencode.onCall = () => undefined
  await clock.advance(60_000)
  await second.manager.ready(first.parent)
  expect(second.task(id, first.parent).status).toBe("running")
})
