import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { Unattended } from "../../src/features/board/unattended.ts"
import type { CallFault } from "../support/fake-api.ts"
import type { Reply } from "../support/model.ts"
import { Rig } from "../support/rig.ts"
import { FAR } from "./far.ts"
import { FULL, SCHEMA } from "./kinds.ts"
import { live, stillTime } from "./lives.ts"
import { replay } from "./replay.ts"
import { KeptResults } from "./results.ts"
import { HANG, MINUTE, witness } from "./witness.ts"
import { World } from "./world.ts"

/** What the simulation has found, each with the shortest life that shows it. */

test("a task that waits for an unreported task after a restart begins once that is reported", async () => {
  const rig = new Rig()
  const first = await rig.launch()
  rig.opencode.onCall = (method, session) =>
    method === "prompt" && session === rig.parent ? { slow: MINUTE } : undefined
  await rig.clock.advance(5000)
  rig.restart()
  await rig.manager.recover()
  const { id } = await rig.launch({ after: [first.id] })
  await rig.clock.advance(MINUTE)
  expect(rig.task(first.id).delivery.state).toBe("confirmed")
  expect(rig.task(id).status).toBe("completed")
})

test("a parent that a dead process has left is settled before a notification wakes it", async () => {
  const rig = new Rig({ options: { maxDepth: 2 } })
  rig.onPrompt("WORK", HANG)
  const dead = await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(5000)
  rig.restart()
  await rig.manager.recover()
  const { sessionID } = rig.task(dead.id)
  const { id } = await rig.launch({}, sessionID)
  await rig.clock.advance(100)
  expect(rig.task(id, sessionID).status).toBe("completed")
  expect(rig.task(dead.id).status).toBe("running")
  expect(rig.notices(sessionID)).toEqual([])
  await rig.clock.advance(5000)
  expect(rig.task(dead.id).status).toBe("error")
  expect(rig.notices(sessionID)).toHaveLength(1)
})

test("sleep of the machine while a task is queued does not extend its time limit", async () => {
  const rig = new Rig({ options: { maxConcurrentTasks: 1, lastWord: 0 } })
  rig.onPrompt("WORK", HANG)
  const first = await rig.launch({ prompt: "WORK" })
  const { id } = await rig.launch({ prompt: "WORK", timeout: 5000 })
  await rig.clock.advance(1000)
  await rig.clock.sleep(60 * MINUTE)
  await rig.manager.cancel({ type: "task", reference: first.id }, rig.caller)
  await rig.clock.advance(MINUTE)
  expect(rig.task(id)).toMatchObject({ status: "error", outcome: { reason: { code: "timeout" } } })
})

test("a question that an agent asks between its end and its stop is refused, too", async () => {
  const rig = new Rig()
  rig.opencode.asking.add("bash")
  rig.onPrompt("ASK", { tools: [{ name: "bash", args: {} }], delay: 500 })
  const { id } = await rig.launch({ prompt: "ASK" })
  await rig.clock.advance(100)
  rig.opencode.onCall = (method) => (method === "abort" ? { slow: 1000 } : undefined)
  const cancelled = rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  await rig.clock.advance(MINUTE)
  await cancelled
  expect(rig.opencode.questions).toEqual([])
})

test("a task that its user stopped is still cancelled after a crash", async () => {
  const rig = new Rig()
  rig.onPrompt("WORK", HANG)
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(100)
  rig.opencode.abortByUser(sessionID)
  await rig.clock.advance(5000)
  expect(rig.notices()[0]?.visible).toMatch(/^⊘/)
  rig.restart()
  await rig.manager.recover()
  await rig.clock.advance(MINUTE)
  expect(rig.task(id).status).toBe("cancelled")
})

test("a user's message to a task that ended at a limit is answered before the parent is notified", async () => {
  const rig = new Rig({ options: { taskTimeout: 20_000, lastWord: 3000 } })
  rig.onPrompt("WORK", HANG)
  rig.onPrompt("HELLO", { text: "here I am" })
  const seen = witness(rig)
  const { sessionID } = await rig.launch({ prompt: "WORK" })
  rig.opencode.onCall = (method, session) =>
    method === "prompt" && session === rig.parent ? { slow: MINUTE } : undefined
  await rig.clock.advance(MINUTE / 2)
  rig.opencode.say(sessionID, "HELLO", { agent: "general" })
  await rig.clock.advance(1000)
  expect(seen.texts(sessionID).at(-1)).toBe("HELLO")
})

test("a message to a fork that is still being created gets an answer", () =>
  // A fork that is slow to be made lets others go first, for a time that the clock of a test knows nothing of.
  stillTime(async () => {
    const rig = new Rig()
    rig.onPrompt("WORK", { text: "done", delay: 2000 })
    rig.opencode.onCall = (method) => (method === "saveRecord" ? { slow: 1000 } : undefined)
    const launching = rig.launch({ prompt: "WORK", fork: true })
    await rig.clock.advance(100)
    const [fork] = rig.manager.list(rig.parent)
    let isAnswered = false
    const told = rig.manager.tell(fork?.task.id ?? "", "MORE", rig.caller).finally(() => {
      isAnswered = true
    })
    told.catch(() => {})
    await rig.clock.advance(MINUTE)
    await launching
    expect(isAnswered).toBe(true)
  }))

test("a task that is resumed before its end is reported gets both runs reported", async () => {
  const rig = new Rig({ options: { resumable: ["completed", "error"] } })
  rig.onPrompt("WORK", { text: "done", delay: 500 })
  rig.onPrompt("AGAIN", { text: "done again", delay: 500 })
  const first = await rig.launch({ prompt: "WORK", timeout: 200 })
  const { id } = await rig.launch({ prompt: "WORK", timeout: 300 })
  // Before the first one is told that it failed, that is written down.
  rig.opencode.onCall = (method, session) =>
    method === "saveRecord" && session === first.sessionID ? { slow: 5000 } : undefined
  await rig.clock.advance(1000)
  expect(rig.task(id).status).toBe("error")
  await rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
  await rig.clock.advance(MINUTE)
  expect(rig.task(id)).toMatchObject({ status: "completed", run: { generation: 1 } })
  expect(rig.notices()).toHaveLength(3)
})

test("an agent still reads a message when its turn then ends at a refused question", async () => {
  const rig = new Rig()
  rig.opencode.asking.add("bash")
  rig.onPrompt("ASK", { tools: [{ name: "bash", args: {} }] })
  rig.onPrompt("MORE", { text: "heard" })
  const { id } = await rig.launch({ prompt: "ASK" })
  await rig.clock.advance(1000)
  await rig.manager.tell(id, "MORE", rig.caller)
  await rig.clock.advance(100)
  for (const ask of rig.opencode.questions) rig.opencode.refuseByUser(ask)
  await rig.ended(id)
  expect((await rig.output(id)).answer).toBe("heard")
})

test("the sender of a message hears that the task was cleared before the message arrived", async () => {
  const rig = new Rig()
  rig.onPrompt("WORK", HANG)
  const { id } = await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(100)
  rig.opencode.onCall = (method) => (method === "prompt" ? { slow: 2000 } : undefined)
  const told = rig.manager.tell(id, "MORE", rig.caller).catch((error: Error) => error.message)
  await rig.settle()
  await rig.manager.clear(rig.parent)
  await rig.clock.advance(MINUTE)
  expect(await Promise.race([told, "nothing came back"])).toBe(`Task ${id} was cleared: it was told nothing.`)
})

test("an agent that is being stopped cannot launch more tasks", async () => {
  const rig = new Rig({ options: { maxDepth: 2 } })
  rig.onPrompt("WORK", HANG)
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(100)
  rig.opencode.onCall = (method) => (method === "abort" || method === "createSession" ? { slow: 2000 } : undefined)
  const launching = rig.launch({ prompt: "WORK" }, sessionID).catch((error: Error) => error.message)
  await rig.clock.advance(1000)
  const cancelled = rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  await rig.clock.advance(MINUTE)
  await cancelled
  expect(await launching).toMatch(/was stopped/)
  expect(rig.manager.list(sessionID)).toEqual([])
})

test("a user's message to a queued task does not hang when the provider refuses requests", async () => {
  const rig = new Rig({ options: { maxConcurrentTasks: 1 } })
  let isOpen = false
  rig.script(({ sessionID }) =>
    isOpen || sessionID === rig.parent
      ? undefined
      : { status: 429, body: { error: { message: "Rate limit reached. Try again in 10s" } } },
  )
  await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(100)
  const { id, sessionID } = await rig.launch({ prompt: "MORE" })
  rig.opencode.say(sessionID, "HELLO", { agent: "general" })
  await rig.clock.advance(1000)
  isOpen = true
  await rig.clock.advance(MINUTE)
  expect(rig.opencode.isWorking(sessionID)).toBe(false)
  expect(rig.task(id).status).toBe("completed")
})

test("a busy parent that cancels the last task of a batch still reads the earlier results", async () => {
  const rig = new Rig({ options: { wake: "last" } })
  rig.onPrompt("WORK", { text: "done", delay: 500 })
  rig.onPrompt("HANG", HANG)
  await rig.launch({ prompt: "WORK" })
  const { id } = await rig.launch({ prompt: "HANG" })
  rig.opencode.say(rig.parent, "HANG")
  await rig.clock.advance(1000)
  await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  rig.opencode.conclude(rig.parent, { text: "so far" })
  await rig.clock.advance(MINUTE)
  const roles = rig.opencode.stored(rig.parent).messages.map(({ role }) => role)
  expect(rig.notices()).toHaveLength(2)
  expect(roles.at(-1)).toBe("assistant")
})

test("a parked task continues even if the task that it waited for was resumed meanwhile", async () => {
  const rig = new Rig({ options: { resumable: ["completed"] } })
  rig.onPrompt("AGAIN", HANG)
  const first = await rig.launch({ prompt: "WORK", model: "scripted/beta" })
  let isOpen = false
  rig.onPrompt("AFTER", { text: "done" })
  rig.script(({ lastUser }) =>
    isOpen || !lastUser.includes("AFTER")
      ? undefined
      : { status: 429, body: { error: { message: "Rate limit reached. Try again in 10s" } } },
  )
  const { id } = await rig.launch({ prompt: "AFTER", after: [first.id] })
  await rig.clock.advance(2000)
  expect(rig.task(id).run.parked).toBeDefined()
  await rig.manager.resume(first.id, { prompt: "AGAIN" }, rig.caller)
  isOpen = true
  await rig.clock.advance(MINUTE)
  expect(rig.task(id).status).toBe("completed")
})

test("a task launched just as the machine wakes gets no longer time limit", async () => {
  const rig = new Rig({ options: { taskTimeout: 20_000, lastWord: 0 } })
  rig.onPrompt("WORK", HANG)
  await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(100)
  // The first that happens then is the call, and not the clock's tick.
  const late = rig.clock.now() + 60 * MINUTE
  const { now } = rig.timers
  rig.timers.now = () => late
  const { id } = await rig.launch({ prompt: "WORK" })
  rig.timers.now = now
  await rig.clock.sleep(60 * MINUTE - 100)
  await rig.clock.advance(MINUTE)
  expect(rig.task(id)).toMatchObject({ status: "error", outcome: { reason: { code: "timeout" } } })
})

test("a parent is woken after its batch's last task is cancelled even if an OpenCode call fails", async () => {
  const rig = new Rig({ options: { wake: "last" } })
  rig.onPrompt("WORK", { text: "done", delay: 500 })
  rig.onPrompt("HANG", HANG)
  await rig.launch({ prompt: "WORK" })
  const { id } = await rig.launch({ prompt: "HANG" })
  await rig.clock.advance(2000)
  let failed = false
  rig.opencode.onCall = (method, session) => {
    if (failed || method !== "messagesSince" || session !== rig.parent) return undefined
    failed = true
    return { fail: new OpencodeError("out of order") }
  }
  await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  await rig.clock.advance(MINUTE)
  expect(failed).toBe(true)
  expect(rig.opencode.stored(rig.parent).messages.at(-1)?.role).toBe("assistant")
})

test("a parent is woken by an earlier task of a batch whose merge took longer", async () => {
  const world = new World({ options: { wake: "last" }, lastWord: "obeys" })
  world.meets = ({ site }) => (site === "place.merge" ? { slow: 20_000 } : undefined)
  await world.launch({ prompt: "DO quick", batch: "one", place: "worktree", merge: true })
  await world.launch({ prompt: "DO slow", batch: "one" })
  await world.clock.advance(MINUTE)
  expect(world.rig.notices()).toHaveLength(2)
  expect(world.opencode.stored(world.parent).messages.at(-1)?.role).toBe("assistant")
})

test("a failed task stays failed after a crash although its user continued it", async () => {
  const rig = new Rig()
  rig.onPrompt("WORK", { status: 400 })
  rig.onPrompt("HELLO", { text: "here I am" })
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(100)
  expect(rig.notices()[0]?.visible).toMatch(/^✗/)
  rig.restart()
  rig.opencode.say(sessionID, "HELLO", { agent: "general" })
  await rig.clock.advance(1000)
  await rig.manager.recover()
  await rig.clock.advance(MINUTE)
  expect(rig.task(id).status).toBe("error")
  expect(rig.notices()).toHaveLength(1)
})

test("a failed task stays failed after a crash although its user was answered before its notification", async () => {
  const rig = new Rig()
  rig.onPrompt("WORK", { status: 400 })
  rig.onPrompt("HELLO", { text: "here I am" })
  rig.opencode.onCall = (method, session) =>
    method === "prompt" && session === rig.parent ? { slow: 1000 } : undefined
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.clock.until(() => rig.task(id).status === "error")
  rig.opencode.say(sessionID, "HELLO", { agent: "general" })
  await rig.clock.until(() => rig.notices().length === 1)
  rig.restart()
  await rig.manager.recover()
  await rig.clock.advance(MINUTE)
  expect(rig.task(id).status).toBe("error")
  expect(rig.notices()).toHaveLength(1)
})

test("a failed task stays failed after a crash although its user rewrote its prompt before its notification", async () => {
  const rig = new Rig()
  rig.onPrompt("WORK", { status: 400 })
  rig.onPrompt("HELLO", { text: "here I am" })
  rig.opencode.onCall = (method, session) =>
    method === "prompt" && session === rig.parent ? { slow: 1000 } : undefined
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.clock.until(() => rig.task(id).status === "error")
  rig.opencode.undo(sessionID, rig.task(id).run.promptID)
  rig.opencode.say(sessionID, "HELLO", { agent: "general" })
  await rig.clock.until(() => rig.notices().length === 1)
  rig.restart()
  await rig.manager.recover()
  await rig.clock.advance(MINUTE)
  expect(rig.task(id).status).toBe("error")
  expect(rig.notices()).toHaveLength(1)
})

test("a task keeps its reported end when its user writes before the notification and the process dies", async () => {
  const rig = new Rig()
  rig.onPrompt("WORK", { text: "done" })
  rig.onPrompt("HELLO", HANG)
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.clock.until(() => rig.task(id).status === "completed")
  rig.opencode.say(sessionID, "HELLO", { agent: "general" })
  await rig.clock.until(() => rig.notices().length === 1)
  expect(rig.notices()[0]?.visible).toMatch(/^✓/)
  rig.restart()
  await rig.manager.recover()
  await rig.clock.advance(MINUTE)
  expect(rig.task(id).status).toBe("completed")
  expect((await rig.output(id)).answer).toBe("done")
  expect(rig.notices()).toHaveLength(1)
})

test("a parked task that was reported as done is not prompted again after a crash", async () => {
  const world = new World({ options: {}, lastWord: "obeys" })
  await world.launch({ prompt: "DO quick" })
  world.provider.close(8000, true)
  await world.clock.advance(1000)
  expect(world.first?.run.parked).toBeDefined()
  world.meets = ({ site }) => (site.startsWith("write a record") ? { held: new Promise<void>(() => {}) } : undefined)
  const told = () => world.rig.notices().filter(({ visible }) => visible.startsWith("✓"))
  await world.clock.until(() => told().length > 0)
  const sites: string[] = []
  world.meets = ({ site }) => void sites.push(site)
  await world.restart()
  await world.clock.advance(MINUTE)
  expect(world.tasks).toMatchObject([{ status: "completed" }])
  expect(sites).not.toContain("tell a task its prompt")
  expect(told()).toHaveLength(1)
})

test("a session of a failed launch that cannot be deleted at once is deleted later", async () => {
  const rig = new Rig()
  const before = rig.opencode.database.sessions.size
  let isOut = true
  rig.opencode.onCall = (method) => {
    if (method === "createSession") return { fail: new OpencodeError("out of order"), after: true }
    return isOut && method === "deleteSession" ? { fail: new OpencodeError("out of order") } : undefined
  }
  await expect(rig.launch()).rejects.toThrow("could not be launched")
  await rig.clock.advance(10_000)
  isOut = false
  await rig.clock.advance(2 * MINUTE)
  expect(rig.opencode.database.sessions.size).toBe(before)
  expect(rig.timers.pending).toBe(0)
})

/** Two machines on one project. The first falls asleep, and the other takes over what it ran. */
async function takenOver(reply: Reply, options: object = {}) {
  const rig = new Rig({ options })
  const other = new Rig({ options, share: { clock: rig.clock, database: rig.opencode.database } })
  rig.opencode.database.strangers = true
  for (const each of [rig, other]) each.onPrompt("WORK", reply)
  const { id } = await rig.launch({ prompt: "WORK" })
  await other.manager.ready(rig.parent)
  const seen: string[] = []
  rig.manager.parts.reports.subscribe(() => {
    const { status } = rig.task(id)
    if (seen.at(-1) !== status) seen.push(status)
  })
  return { rig, other, id, seen }
}

/** The first machine sleeps until the other takes over. `fault`: what the other's calls meet from then on. */
async function sleepUntilTaken(rig: Rig, other: Rig, fault: (method: string) => CallFault = () => undefined) {
  rig.timers.frozen = true
  let isTaken = false
  other.opencode.onCall = (method) => {
    isTaken ||= method === "saveRecord"
    return isTaken ? fault(method) : undefined
  }
  await rig.clock.until(() => isTaken)
  rig.timers.frozen = false
}

test("a reported end is not taken back when another machine owns the record by then", async () => {
  const { rig, other, seen } = await takenOver({ text: "done" })
  await rig.clock.advance(300)
  expect(rig.notices()).toHaveLength(1)
  await sleepUntilTaken(rig, other, (method) => (method === "messagesSince" ? { slow: MINUTE } : undefined))
  await rig.clock.advance(5 * MINUTE)
  expect(seen).toEqual(["running", "completed"])
  expect(rig.notices()).toHaveLength(1)
})

test("a task that is resumed just when another machine takes it over is what that machine knows of it", async () => {
  const { rig, other, id } = await takenOver({ text: "done" })
  rig.opencode.onCall = (method, session) =>
    method === "prompt" && session === rig.parent ? { fail: new OpencodeError("no") } : undefined
  await rig.clock.advance(5000)
  expect(rig.task(id)).toMatchObject({ status: "completed", delivery: { state: "pending" } })
  await rig.clock.sleep(60 * MINUTE)
  other.restart()
  await other.manager.recover()
  await rig.manager.resume(id, { prompt: "WORK" }, rig.caller)
  await rig.clock.advance(MINUTE)
  expect(rig.task(id)).toMatchObject({ status: "completed", run: { generation: 0 } })
})

test("an end is reported although another machine took over the run with which its task has gone on since", async () => {
  const { rig, other, id } = await takenOver({ text: "done" })
  for (const each of [rig, other]) each.onPrompt("AGAIN", HANG)
  let isRefused = true
  rig.opencode.onCall = (method, session) =>
    isRefused && method === "prompt" && session === rig.parent ? { fail: new OpencodeError("no") } : undefined
  await rig.clock.until(() => rig.task(id).status === "completed")
  await rig.clock.advance(1000)
  await rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
  await rig.clock.advance(1000)
  await sleepUntilTaken(rig, other)
  isRefused = false
  await rig.clock.advance(5 * MINUTE)
  expect(rig.task(id)).toMatchObject({ status: "error", run: { generation: 1 }, delivery: { state: "confirmed" } })
  expect(rig.notices()).toHaveLength(2)
})

test("a dependent's end is reported although another machine took over the task it waited for", async () => {
  const { rig, other, id } = await takenOver(HANG)
  const next = await rig.launch({ after: [id] })
  await rig.clock.advance(1000)
  await sleepUntilTaken(rig, other)
  const { sessionID } = rig.task(id)
  // That it is not its own any more it hears when all else is done.
  rig.opencode.onCall = (method, session) =>
    method === "saveRecord" && session === sessionID ? { slow: 1000 } : undefined
  await rig.manager.cancel({ type: "task", reference: id }, rig.caller).catch(() => undefined)
  await rig.clock.advance(5 * MINUTE)
  expect(rig.task(next.id)).toMatchObject({ status: "cancelled", delivery: { state: "confirmed" } })
})

test("a machine that slept past its lease notices the loss of its task before it evaluates it", async () => {
  const { rig, other, seen } = await takenOver({ text: "done" }, { pollInterval: 0, taskTimeout: MINUTE, lastWord: 0 })
  rig.opencode.onEvent = () => "lose"
  await rig.clock.advance(MINUTE / 2)
  await sleepUntilTaken(rig, other)
  await rig.clock.advance(5 * MINUTE)
  expect(seen).not.toContain("error")
  expect(seen.at(-1)).toBe("completed")
  expect(rig.notices()).toHaveLength(1)
})

test("a question of a task that is parked is refused", async () => {
  const rig = new Rig()
  rig.opencode.asking.add("bash")
  let isOpen = true
  rig.onPrompt("WORK", { tools: [{ name: "bash", args: {} }] })
  rig.script(({ sessionID }) =>
    isOpen || sessionID === rig.parent
      ? undefined
      : { status: 429, body: { error: { message: "Rate limit reached. Try again in 10s" } } },
  )
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(100)
  expect(rig.opencode.questions).toHaveLength(1)
  isOpen = false
  rig.opencode.abortByUser(sessionID)
  rig.opencode.say(sessionID, "HELLO", { agent: "general" })
  await rig.clock.advance(100)
  expect(rig.task(id).run.parked).toBeDefined()
  expect(rig.opencode.questions).toEqual([])
})

test("tasks that were interrupted with their parent do not wake it when another one ends later", async () => {
  const rig = new Rig({ options: { wake: "last", maxDepth: 2 } })
  rig.onPrompt("WORK", { text: "done" })
  rig.onPrompt("DEEP", HANG)
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.launch({ prompt: "DEEP" }, sessionID)
  await rig.launch({ prompt: "DEEP" }, sessionID)
  await rig.clock.advance(1000)
  rig.restart()
  const seen = witness(rig)
  let isFirst = true
  // One of them is settled some time after the other.
  rig.opencode.onCall = (method, session) => {
    if (method !== "session" || session === sessionID || session === rig.parent || !isFirst) return undefined
    isFirst = false
    return { slow: 5000 }
  }
  await rig.manager.recover()
  await rig.clock.advance(MINUTE)
  expect(rig.task(id).status).toBe("completed")
  expect(seen.requests(sessionID)).toBe(0)
})

test("a task that is settled after a crash is not taken up again because of an outdated record", async () => {
  const rig = new Rig()
  rig.onPrompt("WORK", HANG)
  const { id } = await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(100)
  rig.restart()
  let release = () => {}
  const heldAfter = new Promise<void>((resolve) => {
    release = resolve
  })
  const begun = rig.clock.now()
  // The look is that of its parent's next turn; what it is settled by is read meanwhile.
  rig.opencode.onCall = (method) => {
    const isLook = method === "session" && rig.clock.now() === begun
    return isLook || method === "messagesSince" ? { heldAfter } : undefined
  }
  void rig.manager.recover()
  void rig.manager.ready(rig.parent)
  await rig.clock.advance(1000)
  rig.opencode.onCall = () => undefined
  release()
  await rig.clock.advance(MINUTE)
  const session = rig.opencode.stored(rig.task(id).sessionID)
  expect(rig.opencode.database.recordIn(session)?.task.status).toBe("error")
  expect(rig.task(id).delivery.state).toBe("confirmed")
})

test("a message to a session at the moment its end is reported does not change that end", async () => {
  const rig = new Rig()
  rig.onPrompt("WORK", { text: "done" })
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.clock.until(() => rig.notices().length > 0)
  rig.opencode.say(sessionID, "HELLO", { agent: "general" })
  rig.restart()
  await rig.manager.recover()
  await rig.clock.advance(MINUTE)
  expect(rig.task(id).status).toBe("completed")
})

test("an agent whose model is at its limit continues with its own task's result when the model reopens", async () => {
  const rig = new Rig({ options: { maxDepth: 2, stallTimeout: 20_000 } })
  let isOpen = true
  rig.onPrompt("WORK", { text: "I wait for it", delay: 500 })
  rig.onPrompt("BRIEF", { text: "found", delay: 5000 })
  rig.script(({ lastUser }) =>
    isOpen || lastUser.includes("BRIEF")
      ? undefined
      : { status: 429, body: { error: { message: "Rate limit reached. Try again in 60s" } } },
  )
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.launch({ prompt: "BRIEF", model: "scripted/beta" }, sessionID)
  await rig.clock.advance(1000)
  isOpen = false
  await rig.launch({ prompt: "OTHER" })
  await rig.clock.advance(30_000)
  expect(rig.task(id).status).toBe("running")
  isOpen = true
  const seen = witness(rig)
  await rig.clock.advance(2 * MINUTE)
  expect(seen.requests(sessionID)).toBe(1)
  expect(rig.task(id).status).toBe("completed")
})

test("a message to a map from the screen is refused and leaves nothing pending", async () => {
  const rig = new Rig({ results: new KeptResults() })
  rig.onPrompt("WORK", { text: "done", delay: 1000 })
  const { id, sessionID } = await rig.launch({ prompt: "WORK {{item}}", each: [1, 2] })
  await rig.clock.advance(100)
  const superagentsRequest = { id: "one", action: "tell", prompt: "MORE" }
  rig.opencode.writeMetadata(sessionID, { ...rig.opencode.stored(sessionID).metadata, superagentsRequest })
  await rig.clock.advance(MINUTE)
  expect(rig.task(id).status).toBe("completed")
  expect(rig.opencode.toasts.map(({ title }) => title)).toContain("Not done")
  expect(await Promise.race([rig.manager.parts.background.idle().then(() => "settled"), rig.settle()])).toBe("settled")
})

test("a map launched while its model is at its limit begins when the model reopens", async () => {
  const rig = new Rig({ results: new KeptResults() })
  let isOpen = false
  rig.onPrompt("WORK", { text: "done" })
  rig.script(({ sessionID }) =>
    isOpen || sessionID === rig.parent
      ? undefined
      : { status: 429, body: { error: { message: "Rate limit reached. Try again in 10s" } } },
  )
  const first = await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(1000)
  await rig.manager.cancel({ type: "task", reference: first.id }, rig.caller)
  isOpen = true
  const { id } = await rig.launch({ prompt: "WORK {{item}}", each: [1, 2, 3] })
  await rig.clock.advance(5 * MINUTE)
  expect(rig.task(id).status).toBe("completed")
})

test("a parent is woken when the task that probed its model was deleted after the model reopened", async () => {
  const rig = new Rig()
  let isOpen = false
  rig.onPrompt("WORK", HANG)
  rig.script(({ sessionID }) =>
    isOpen || sessionID === rig.parent
      ? undefined
      : { status: 429, body: { error: { message: "Rate limit reached. Try again in 10s" } } },
  )
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(100)
  expect(rig.task(id).run.parked).toBeDefined()
  isOpen = true
  await rig.clock.until(() => rig.task(id).run.parked === undefined)
  await rig.clock.advance(100)
  rig.opencode.deleteByUser(sessionID)
  await rig.clock.advance(MINUTE)
  expect(rig.opencode.stored(rig.parent).messages.at(-1)?.role).toBe("assistant")
})

test("an agent reads a message that arrives as its turn ends, although a notification follows it", async () => {
  const rig = new Rig({ options: { maxDepth: 2, wake: "never" } })
  rig.onPrompt("WORK", { text: "done", delay: 500 })
  rig.onPrompt("BRIEF", { text: "found", delay: 600 })
  rig.onPrompt("MORE", { text: "heard" })
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.launch({ prompt: "BRIEF" }, sessionID)
  // It is stored when the agent has answered and OpenCode has still to close its turn: nobody reads it.
  await rig.clock.advance(505)
  const told = rig.manager.tell(id, "MORE", rig.caller)
  await rig.ended(id)
  await told
  expect((await rig.output(id)).answer).toBe("heard")
})

test("a parent whose turn ends just as it is notified is woken although more is stored after", async () => {
  const rig = new Rig()
  rig.onPrompt("WORK", { text: "done", delay: 500 })
  rig.onPrompt("HANG", HANG)
  await rig.launch({ prompt: "WORK" })
  const other = await rig.launch({ prompt: "HANG" })
  rig.opencode.say(rig.parent, "HANG")
  let isTold = false
  rig.opencode.onCall = (method, session) => {
    isTold ||= method === "prompt" && session === rig.parent
    return undefined
  }
  await rig.clock.until(() => isTold)
  rig.opencode.conclude(rig.parent, { text: "so far" })
  await rig.manager.cancel({ type: "task", reference: other.id }, rig.caller)
  await rig.clock.advance(MINUTE)
  expect(rig.notices()).toHaveLength(2)
  expect(rig.opencode.stored(rig.parent).messages.at(-1)?.role).toBe("assistant")
})

test("a user's new message is answered although they stopped the wake just before it", async () => {
  const rig = new Rig()
  rig.onPrompt("WORK", { text: "done", delay: 500 })
  rig.onPrompt("HELLO", { text: "here I am" })
  const seen = witness(rig)
  await rig.launch({ prompt: "WORK" })
  let release = () => {}
  const held = new Promise<void>((resolve) => {
    release = resolve
  })
  let isTold = false
  rig.opencode.onCall = (method, session) => {
    isTold ||= method === "prompt" && session === rig.parent
    return method === "hasMessage" ? { held } : undefined
  }
  await rig.clock.until(() => isTold)
  await rig.clock.advance(3)
  rig.opencode.abortByUser(rig.parent)
  await rig.clock.advance(300)
  rig.opencode.say(rig.parent, "HELLO")
  release()
  await rig.clock.advance(MINUTE)
  expect(seen.texts(rig.parent)).toContain("HELLO")
})

test("a slow archive wakes the parent although the last answer of its batch was fetched by a call", async () => {
  const world = new World({ options: { wake: "last" }, lastWord: "obeys" })
  world.meets = ({ site }) => (site === "place.archive" ? { slow: 20_000 } : undefined)
  const { rig, parent } = world
  await world.launch({ prompt: "DO quick", batch: "one" })
  await world.launch({ prompt: "DO quick", place: "worktree" })
  await world.launch({ prompt: "DO slow" })
  const last = world.tasks.at(-1)
  const answer = rig.output(last?.id ?? "", rig.caller, MINUTE)
  await world.clock.advance(100)
  world.opencode.conclude(last?.sessionID ?? "", { text: "done" })
  await world.clock.advance(MINUTE)
  await answer
  expect(rig.notices()).toHaveLength(3)
  expect(world.opencode.stored(parent).messages.at(-1)?.role).toBe("assistant")
})

test("another process knows the tries of a group for as long as they run", async () => {
  const world = new World({ options: {}, lastWord: "obeys" })
  await world.launch({ prompt: "DO hanging", tries: 2, place: "worktree", check: "pass" })
  await world.clock.advance(100)
  await world.other.manager.ready(world.parent)
  const tries = [...world.opencode.activityNow.keys()]
  const known = () => tries.map((session) => world.other.manager.taskIn(session)?.task.status)
  expect(known()).toEqual(["running", "running"])
  await world.clock.advance(MINUTE / 2)
  expect(known()).toEqual(["running", "running"])
})

test("sleep of the machine while a task is parked is subtracted from its time limit once", async () => {
  // Its life by its seed: what wakes first decides it.
  await live(9066, "checks")
})

test("an agent that a crash ended is not woken by a parked task that it had launched", async () => {
  const world = new World({ options: { maxDepth: 2 }, lastWord: "obeys", snapshotMs: 200 })
  await world.launch({ prompt: "DO launching" })
  // What it launches begins later than the last that its messages tell.
  world.meets = ({ site }) => (site === "ask who calls" ? { slow: 300 } : undefined)
  await world.clock.advance(200)
  world.provider.close(8000, true)
  await world.clock.advance(200)
  await world.restart()
  await world.clock.advance(MINUTE)
  expect(world.tasks.map(({ status }) => status)).toEqual(["error", "completed"])
  expect(world.watch.breaches).toEqual([])
})

test("a parent is woken when the last task of its batch is cancelled during another's notification", async () => {
  const world = new World({ options: { wake: "last" }, lastWord: "obeys" })
  const { rig, manager, parent } = world
  await world.launch({ prompt: "DO slow" })
  await world.launch({ prompt: "DO hanging" })
  await world.launch({ prompt: "DO quick" })
  const [slow, hanging] = world.tasks
  await world.clock.advance(1000)
  world.meets = ({ site }) => (site === "tell the parent its news, to be stored" ? { slow: 2000 } : undefined)
  await world.clock.until(() => world.task(slow?.id ?? "")?.status === "completed")
  await world.clock.advance(1000)
  const cancelled = manager.cancel({ type: "task", reference: hanging?.id ?? "" }, rig.caller)
  await world.clock.advance(MINUTE)
  await cancelled
  expect(rig.notices()).toHaveLength(3)
  expect(world.opencode.stored(parent).messages.at(-1)?.role).toBe("assistant")
})

/**
 * A task that is to work in a place of its own waits for its slot, and its user has it do something meanwhile. `move`:
 * what its move there meets.
 */
async function busyInQueue(text: string, move?: CallFault) {
  const world = new World({ options: { maxConcurrentTasks: 1 }, lastWord: "obeys" })
  await world.launch({ prompt: "DO hanging" })
  await world.launch({ prompt: "DO quick", place: "worktree" })
  const [first, task] = world.tasks
  const { id = "", sessionID = "" } = task ?? {}
  world.opencode.say(sessionID, text, { agent: "general" })
  const whenAsked: string[] = []
  world.meets = ({ site, sessionID: asked }) => {
    const isAsked = site === "tell a task its prompt" && asked === sessionID
    if (isAsked) whenAsked.push(world.opencode.isWorking(sessionID) ? "at work" : "idle")
    return site === "move a session" && asked === sessionID ? move : undefined
  }
  await world.clock.advance(100)
  world.opencode.conclude(first?.sessionID ?? "", { text: "done" })
  await world.clock.advance(1000)
  return { world, id, sessionID, whenAsked }
}

test("a user's request to a queued task that is refused repeatedly does not cause an endless loop", async () => {
  await live(6854)
})

test("a user's request to a queued task can be stopped although its place becomes ready meanwhile", async () => {
  const { world, id, sessionID, whenAsked } = await busyInQueue("DO hanging")
  const cancelled = world.manager.cancel({ type: "task", reference: id }, world.rig.caller)
  await world.clock.advance(MINUTE)
  await cancelled
  expect(world.opencode.isWorking(sessionID)).toBe(false)
  expect([whenAsked, world.places.open]).toEqual([[], []])
})

test("a user's request to a queued task is stopped even while its session is being moved", async () => {
  let release = () => {}
  const heldAfter = new Promise<void>((resolve) => {
    release = resolve
  })
  const { world, id, sessionID } = await busyInQueue("DO hanging", { heldAfter })
  const cancelled = world.manager.cancel({ type: "task", reference: id }, world.rig.caller)
  await world.clock.advance(1000)
  release()
  await world.clock.advance(MINUTE)
  await cancelled
  expect(world.opencode.isWorking(sessionID)).toBe(false)
})

test("a task is prompted in its place only after its user's own request is finished", async () => {
  const { world, id, whenAsked } = await busyInQueue("DO slow")
  await world.clock.advance(MINUTE)
  expect(whenAsked).toEqual(["idle"])
  expect(world.task(id)?.status).toBe("completed")
  expect(world.watch.breaches).toEqual([])
})

test("an agent's own tasks belong to the process in which the agent works", async () => {
  const world = new World({ options: { maxDepth: 2 }, lastWord: "obeys" })
  const { other } = world
  const { sessionID } = await other.launch({ prompt: "DO launching" })
  await world.clock.advance(1000)
  const own = other.manager.list(sessionID).map(({ task }) => other.manager.parts.reports.isForeign(task.id))
  expect(own).toEqual([false])
})

test("tries whose work could not be archived at their end still report their results", async () => {
  const world = new World({ options: {}, lastWord: "obeys" })
  const { rig, history } = world
  world.meets = ({ site, sessionID }) =>
    site === "place.archive" && history.nameOf(sessionID) === "A"
      ? { fail: new OpencodeError("out of order") }
      : undefined
  await world.launch({ prompt: "DO quick", tries: 2, place: "worktree", check: "pass", schema: SCHEMA })
  await world.clock.advance(MINUTE)
  world.watch.check()
  expect(world.watch.breaches).toEqual([])
  const [task] = world.tasks
  expect(task).toMatchObject({
    status: "completed",
    outcome: {
      note: expect.stringMatching(/^What it changed was not kept at its end, and is still in .*: git did not do it$/),
      value: { valid: true },
      receipt: { check: { passed: true } },
      group: { kind: "tries", won: expect.stringMatching(/^try [12]$/) },
    },
  })
  expect(rig.notices()[0]?.hidden).toMatch(/Tries: 2 of 2, won by try [12]; /)
})

test("tries report their results although the winner's answer could not be read at first", async () => {
  const world = new World({ options: {}, lastWord: "obeys" })
  const { rig } = world
  let reads: "before" | "fail" | "again" = "before"
  world.meets = ({ site }) => {
    if (site === "place.settle") reads = "fail"
    if (site !== "read a task's messages" || reads !== "fail") return undefined
    reads = "again"
    return { fail: new OpencodeError("out of order") }
  }
  await world.launch({ prompt: "DO quick", tries: 2, place: "worktree", check: "pass", schema: SCHEMA })
  await world.clock.advance(MINUTE)
  expect(reads).toBe("again")
  const { outcome } = world.tasks[0] ?? {}
  expect(outcome).toMatchObject({
    value: { valid: true },
    receipt: { check: { passed: true } },
    work: { files: ["a"] },
  })
  expect(rig.notices()[0]?.hidden).toMatch(/Tries: 2 of 2, won by try [12]; /)
})

test("the session of a map item is deleted with its map although its creation was reported as failed", async () => {
  const world = new World({ options: {}, lastWord: "obeys" })
  let made = 0
  world.meets = ({ site }) => {
    if (site !== "make a session" || ++made !== 2) return undefined
    return { fail: new OpencodeError("out of order"), after: true }
  }
  await world.launch({ prompt: "Item {{item}}.\nDO quick", each: [0, 1] })
  await world.clock.advance(MINUTE)
  const [map] = world.tasks
  expect(map).toMatchObject({ status: "error", outcome: { reason: { code: "host" } } })
  world.opencode.deleteByUser(map?.sessionID ?? "")
  await world.other.manager.ready(world.parent)
  await world.clock.advance(MINUTE)
  expect([...world.opencode.database.sessions.keys()].filter((id) => !world.isParent(id))).toEqual([])
  expect(world.other.timers.pending).toBe(0)
})

test("a crash after the end of a task was recorded still reports its value and check", async () => {
  const world = new World({ options: {}, lastWord: "obeys" })
  const { rig, watch } = world
  world.meets = ({ site }) => (site === "place.archive" ? "crash" : undefined)
  await world.launch({ prompt: "DO valid", place: "worktree", check: "pass", schema: SCHEMA })
  await world.clock.until(() => world.opencode.isDead)
  world.meets = () => undefined
  await world.restart()
  await world.clock.advance(MINUTE)
  watch.check()
  expect(watch.breaches).toEqual([])
  const [task] = world.tasks
  expect(task).toMatchObject({ status: "completed", outcome: { value: { valid: true }, work: { files: ["a"] } } })
  expect(rig.notices()[0]?.hidden).toContain("check `pass` passed")
})

test("a parked task that was given another model continues with that model after a crash", async () => {
  const world = new World({ options: {}, lastWord: "obeys" })
  await world.launch({ prompt: "DO quick" })
  world.provider.close(60 * MINUTE, true)
  let writes = 0
  world.meets = ({ site }) => {
    // It goes on when the last call to its session has come back, which none here does.
    if (site === "take a message back") return { heldAfter: new Promise<void>(() => {}) }
    // What is written a moment later names its other model, too.
    return site === "write a record: running" && ++writes === 1
      ? { fail: new OpencodeError("out of order") }
      : undefined
  }
  await world.clock.advance(50)
  const [{ id, run } = { id: "", run: undefined }] = world.tasks
  expect(run?.parked?.model).toBe("scripted/alpha")
  await world.manager.unpark(id, world.parent, "scripted/beta")
  await world.clock.advance(1000)
  world.provider.open()
  world.meets = () => undefined
  await world.restart()
  await world.clock.advance(MINUTE)
  expect(world.task(id)).toMatchObject({ status: "completed", run: { model: { id: "beta" } } })
  expect(world.rig.timers.pending).toBe(0)
})

describe("a parked task's unremoved step", () => {
  async function parked() {
    const world = new World({ options: {}, lastWord: "obeys" })
    await world.launch({ prompt: "DO quick" })
    world.provider.close(10_000, true)
    let isOut = true
    world.meets = ({ site }) =>
      isOut && site === "take a message back" ? { fail: new OpencodeError("out of order") } : undefined
    await world.clock.advance(100)
    const mend = () => {
      isOut = false
    }
    return { world, mend }
  }

  test("a failed removal of a parked task's last step is tried again, and the task continues", async () => {
    const { world, mend } = await parked()
    mend()
    await world.clock.advance(MINUTE)
    expect(world.tasks).toMatchObject([{ status: "completed" }])
  })

  test("the next process removes a parked task's last step when the first one died before", async () => {
    const { world, mend } = await parked()
    mend()
    await world.restart()
    await world.clock.advance(MINUTE)
    expect(world.tasks).toMatchObject([{ status: "completed" }])
  })
})

test("a session that is deleted while a dead process's task is settled stays deleted without another notification", async () => {
  const rig = new Rig()
  // The process dies between what is told and what is written.
  rig.opencode.onCall = (method) => (method === "saveRecord" ? "crash" : undefined)
  const { id, sessionID } = await rig.launch({ prompt: "DO quick" })
  await rig.clock.advance(5000)
  expect(rig.opencode.isDead).toBe(true)
  const told = rig.notices()
  expect(told).toHaveLength(1)
  rig.restart()
  let isDeleted = false
  rig.opencode.onCall = (method, session) => {
    if (method !== "messagesSince" || session !== sessionID || isDeleted) return undefined
    isDeleted = true
    rig.opencode.deleteByUser(sessionID)
    return undefined
  }
  await rig.manager.recover()
  await rig.clock.advance(MINUTE)
  expect(isDeleted).toBe(true)
  expect(rig.manager.parts.reports.get(id)).toBeUndefined()
  expect(rig.notices()).toEqual(told)
  expect(rig.timers.pending).toBe(0)
})

test("a task cleared during lost contact to its host is stopped and removed when contact returns", async () => {
  const world = new World({ options: { hosts: { [FAR]: { ssh: FAR } } }, lastWord: "obeys", far: 0 })
  const { far, opencode } = world
  await world.launch({ prompt: "DO hanging", place: FAR })
  await world.clock.advance(1000)
  const [task] = world.tasks
  far?.lose()
  const { metadata } = opencode.stored(task?.sessionID ?? "")
  opencode.writeMetadata(task?.sessionID ?? "", { ...metadata, superagentsRequest: { id: "r1", action: "clear" } })
  await world.clock.advance(MINUTE)
  expect([world.tasks, far?.folders]).toEqual([[], [task?.id]])
  far?.answer()
  await world.clock.advance(MINUTE)
  expect([far?.folders, far?.there.activityNow.size]).toEqual([[], 0])
  expect(world.watch.breaches).toEqual([])
})

test("a process that settles a crashed agent also settles the tasks that the agent had launched", async () => {
  const world = new World({ options: { maxDepth: 2 }, lastWord: "obeys", snapshotMs: 5000 })
  const { rig, other, parent } = world
  await world.launch({ prompt: "DO launching" })
  await other.manager.ready(parent)
  const known = () => other.manager.parts.reports.list().map(({ task }) => task)
  expect(known()).toHaveLength(1)
  await world.clock.advance(200)
  expect(world.tasks).toHaveLength(2)
  rig.crash()
  await world.clock.advance(MINUTE)
  expect(known().map(({ status, outcome }) => [status, outcome?.reason?.code])).toEqual([
    ["error", "interrupted"],
    ["error", "interrupted"],
  ])
  const [agent, own] = known()
  expect(agent?.run.endedAt).toBeGreaterThanOrEqual(own?.run.createdAt ?? Number.POSITIVE_INFINITY)
})

test("when a model reopens, a task with a slot goes before one that waited longer without a slot", async () => {
  const world = new World({ options: { maxConcurrentTasks: 1, maxDepth: 2 }, lastWord: "obeys", snapshotMs: 200 })
  world.provider.close(30_000, true)
  await world.launch({ prompt: "DO launching" })
  await world.clock.advance(100)
  await world.launch({ prompt: "DO quick" })
  await world.launch({ prompt: "DO quick" })
  // The first goes to see, and what it launches is parked: that was still to be answered.
  await world.clock.advance(3 * MINUTE)
  expect(world.tasks.map(({ status }) => status)).toEqual(["completed", "completed", "completed", "completed"])
  expect(world.watch.breaches).toEqual([])
})

test("an agent that had answered before its process died is completed and not prompted again", async () => {
  const world = new World({ options: { maxDepth: 2 }, lastWord: "obeys" })
  await world.launch({ prompt: "DO launching" })
  await world.clock.until(() => world.tasks.length === 2)
  await world.clock.advance(1)
  world.provider.close(8000, true)
  await world.clock.advance(200)
  const [agent, own] = world.tasks
  expect(own?.run.parked).toBeDefined()
  await world.restart()
  await world.clock.advance(3000)
  expect(world.task(agent?.id ?? "")?.status).toBe("completed")
  await world.clock.advance(MINUTE)
  expect(world.task(own?.id ?? "")?.status).toBe("completed")
  const texts = world.opencode.stored(agent?.sessionID ?? "").messages.map(({ role }) => role)
  // The news of its own task stand there, unanswered.
  expect(texts.at(-1)).toBe("user")
  expect(world.watch.breaches).toEqual([])
})

test("an answer that is fetched during a compaction is reported by that call and not by a notification", async () => {
  const { watch, tasks } = await replay({
    endOptions: { options: {}, lastWord: "obeys" },
    steps: [
      { launch: { prompt: "DO filling" } },
      { input: "its parent waits for its answer", task: "bg_aaaaaaa1" },
      { input: "the parent's user writes", task: "bg_aaaaaaa1" },
    ],
    calls: {},
    events: {},
  })
  expect(tasks[0]?.retrievedAt).toBeDefined()
  expect(watch.fetched.get("bg_aaaaaaa1")).toBe(FULL)
  expect(watch.breaches).toEqual([])
})

/** An agent ends so, its process dies before that is recorded, and its user then writes its prompt anew. */
async function rewrittenAfterwards(reply: Reply, answer: Reply) {
  const rig = new Rig()
  rig.onPrompt("WORK", reply)
  rig.onPrompt("BETTER", answer)
  rig.opencode.onCall = (method) => (method === "saveRecord" ? "crash" : undefined)
  const { id, sessionID, run } = await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(5000)
  expect(rig.opencode.isDead).toBe(true)
  rig.restart()
  rig.opencode.undo(sessionID, run.promptID)
  rig.opencode.say(sessionID, "BETTER", { agent: "general" })
  await rig.clock.advance(1000)
  await rig.manager.recover()
  await rig.clock.advance(MINUTE)
  expect(rig.notices()).toHaveLength(1)
  return { task: rig.task(id), notice: rig.notices()[0] }
}

const STILL_AT_IT = { tools: [{ name: "read", args: { ms: MINUTE } }] } satisfies Reply

test.each<[string, Reply, Reply]>([
  ["completed", { text: "done" }, STILL_AT_IT],
  ["error", { status: 400, body: { error: { message: "no such luck" } } }, { text: "done" }],
  ["error", { text: "so far", finish: "content_filter" }, { text: "done" }],
  ["error", { text: "so far", finish: "content_filter" }, STILL_AT_IT],
])(
  "an end as %s was told, and its session no longer shows it: it stays so after a crash",
  async (status, reply, answer) => {
    const { task, notice } = await rewrittenAfterwards(reply, answer)
    expect(notice?.hidden).toContain(`: ${status}. `)
    expect(task).toMatchObject({ status, delivery: { state: "confirmed" } })
  },
)

test("a run whose user replaces its prompt and then compacts the session ends with the answer to the new prompt", async () => {
  const rig = new Rig()
  rig.onPrompt("WORK", HANG)
  rig.onPrompt("BETTER", { text: "the better answer" })
  const { id, sessionID, run } = await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(100)
  rig.opencode.onEvent = () => "lose"
  rig.opencode.abortByUser(sessionID)
  await rig.clock.advance(100)
  rig.opencode.undo(sessionID, run.promptID)
  rig.opencode.say(sessionID, "BETTER", { agent: "general" })
  await rig.clock.advance(100)
  rig.opencode.compact(sessionID)
  rig.opencode.abortByUser(sessionID)
  await rig.clock.advance(MINUTE)
  expect(rig.task(id).status).toBe("completed")
  expect(rig.notices()[0]?.hidden).toContain("the better answer")
})

test("a task whose model is silent ends although the news of its own task waits until it is idle", async () => {
  const rig = new Rig({ options: { wake: "never", stallTimeout: 20_000, taskTimeout: 0, maxDepth: 2 } })
  rig.onPrompt("WORK", HANG)
  rig.onPrompt("OWN", { text: "done" })
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(100)
  const own = await rig.manager.launch(
    { prompt: "OWN", description: "own", agent: "general", fork: false },
    rig.callerIn(sessionID),
  )
  await rig.clock.advance(MINUTE)
  expect(rig.task(id)).toMatchObject({ status: "error", outcome: { reason: { code: "silence" } } })
  expect(rig.manager.parts.reports.get(own.view.task.id)?.task.delivery.state).toBe("confirmed")
})

test("the last messages of a run that is stopped are read again where OpenCode refuses once, so its bill holds", async () => {
  const rig = new Rig()
  rig.opencode.onEvent = ({ type }) => (type === "answered" || type === "tool" ? "lose" : undefined)
  rig.script(({ sessionID, toolResults }) => {
    if (sessionID === rig.parent) return undefined
    return toolResults.length > 0 ? HANG : { tools: [{ name: "read", args: {} }] }
  })
  const { id } = await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(1000)
  let reads = 0
  rig.opencode.onCall = (method) =>
    method === "messagesSince" && reads++ === 0 ? { fail: new OpencodeError("busy") } : undefined
  const cancelled = rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  await rig.clock.advance(MINUTE)
  await cancelled
  expect(reads).toBeGreaterThan(1)
  expect(rig.task(id).outcome?.usage.cost).toBeGreaterThan(0)
})

/** A provider that refuses one request, when `refuses` says so, and names a time in s until which it is closed. */
const refusingOnce = (rig: Rig, refuses: (lastUser: string) => boolean, seconds = 20) => {
  let isRefused = false
  rig.script(({ lastUser }) => {
    if (isRefused || !refuses(lastUser)) return undefined
    isRefused = true
    return { status: 429, body: { error: { message: `Rate limit reached. Try again in ${seconds}s` } } }
  })
}

test("a task that is parked when the news of its own task wake it reads them when it goes on", async () => {
  const rig = new Rig({ options: { maxDepth: 2 } })
  rig.onPrompt("OWN", { text: "the finding", delay: 1000 })
  rig.script(({ lastUser, toolResults }) => {
    if (lastUser.includes("WORK")) return { text: "waiting for my own task" }
    if (lastUser.includes("Go on where you were")) return { text: `done: ${toolResults.length} calls` }
    return undefined
  })
  refusingOnce(rig, (lastUser) => lastUser.includes('Agent "own" finished') || lastUser.includes("Task bg_"))
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.manager.launch(
    { prompt: "OWN", description: "own", agent: "general", fork: false },
    rig.callerIn(sessionID),
  )
  await rig.clock.advance(5000)
  expect(rig.task(id).run.parked).toBeDefined()
  await rig.clock.advance(MINUTE)
  expect(rig.notices()[0]?.hidden).toContain("done: 0 calls")
})

test("a word that is told to a parked task is read once", async () => {
  const rig = new Rig()
  rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { text: "done" }))
  refusingOnce(rig, (lastUser) => lastUser.includes("WORK"))
  const { id, sessionID } = await rig.launch({ prompt: "WORK" })
  await rig.clock.advance(5000)
  expect(rig.task(id).run.parked).toBeDefined()
  await rig.manager.tell(id, "And this.", rig.caller)
  await rig.clock.advance(MINUTE)
  expect(rig.task(id).status).toBe("completed")
  const texts = JSON.stringify(rig.opencode.stored(sessionID).messages)
  expect(texts.split("And this.")).toHaveLength(2)
})

test("a task that is told a word before it begins reads about its place, too", async () => {
  const world = new World({ options: { maxDepth: 2 }, lastWord: "obeys" })
  world.provider.close(30_000, true)
  await world.launch({ prompt: "DO quick" })
  await world.clock.advance(100)
  await world.launch({ prompt: "DO quick", place: "worktree" })
  await world.clock.advance(100)
  const placed = world.tasks.find(({ place }) => place !== undefined)
  expect(placed?.run.parked).toBeDefined()
  await world.manager.tell(placed?.id ?? "", "And this.", world.rig.caller)
  await world.clock.advance(3 * MINUTE)
  const texts = JSON.stringify(world.opencode.stored(placed?.sessionID ?? "").messages)
  expect(texts).toContain("You work there.")
  expect(texts.split("And this.")).toHaveLength(2)
})

test("a task whose wake waits for its model does not keep the slot that the model's next probe needs", async () => {
  const rig = new Rig({ options: { maxDepth: 2, taskTimeout: 0, maxConcurrentPerModel: { "scripted/alpha": 1 } } })
  rig.script(({ sessionID, lastUser }) => {
    if (sessionID === rig.parent) return undefined
    return lastUser.includes("OWN") ? { text: "found", delay: 3000 } : { text: "waiting, or done" }
  })
  const { id, sessionID } = await rig.launch({ prompt: "WORK", model: "scripted/alpha" })
  const request = { prompt: "OWN", description: "own", agent: "general", fork: false, model: "scripted/beta" }
  await rig.manager.launch(request, rig.callerIn(sessionID))
  await rig.clock.advance(1000)
  refusingOnce(rig, (lastUser) => lastUser.includes("OTHER"))
  const other = await rig.launch({ prompt: "OTHER", model: "scripted/alpha" })
  await rig.clock.advance(1000)
  expect(rig.task(other.id).run.parked).toBeDefined()
  await rig.clock.advance(3 * MINUTE)
  expect([rig.task(other.id).status, rig.task(id).status]).toEqual(["completed", "completed"])
})

test("the time for which a task's wake waits for its model does not count", async () => {
  const rig = new Rig({ options: { maxDepth: 2, taskTimeout: 60_000, lastWord: 0, wake: "each" } })
  rig.script(({ sessionID, lastUser }) => {
    if (sessionID === rig.parent) return undefined
    return lastUser.includes("OWN") ? { text: "found", delay: 3000 } : { text: "waiting, or done" }
  })
  const { id, sessionID } = await rig.launch({ prompt: "WORK", model: "scripted/alpha" })
  const request = { prompt: "OWN", description: "own", agent: "general", fork: false, model: "scripted/beta" }
  await rig.manager.launch(request, rig.callerIn(sessionID))
  await rig.clock.advance(1000)
  refusingOnce(rig, (lastUser) => lastUser.includes("OTHER"), 600)
  await rig.launch({ prompt: "OTHER", model: "scripted/alpha" })
  await rig.clock.advance(15 * MINUTE)
  expect(rig.task(id)).toMatchObject({ status: "completed" })
  expect(rig.task(id).run.lastWordAt).toBeUndefined()
})

test("another process forgets a cleared task although its thread has another task by now", async () => {
  const rig = new Rig()
  const other = new Rig({ share: { clock: rig.clock, database: rig.opencode.database } })
  rig.onPrompt("WORK", HANG)
  const thread = { sessionID: other.parent, agent: "general", description: "a thread", prompt: "WORK" }
  await new Unattended(rig.manager.parts).start(thread)
  await rig.clock.advance(1000)
  await other.manager.recover()
  const [first] = other.manager.parts.reports.list().map(({ task }) => task.id)
  expect(other.manager.parts.reports.isForeign(first ?? "")).toBe(true)
  await rig.manager.clear("")
  expect(rig.manager.parts.reports.list()).toEqual([])
  void new Unattended(rig.manager.parts).start(thread)
  await rig.clock.advance(MINUTE)
  const known = other.manager.parts.reports.list().map(({ task }) => task.id)
  expect(known).toEqual(rig.manager.parts.reports.list().map(({ task }) => task.id))
  expect(known).not.toContain(first)
})

test("two processes with tasks of one session do not both start its model", async () => {
  const world = new World({ options: {}, lastWord: "obeys" })
  const { rig, other, parent } = world
  for (const each of [rig, other]) each.onPrompt("Task Progress", { text: "ok", delay: 300 })
  await rig.launch({ prompt: "DO quick" })
  await other.manager.ready(parent)
  await other.launch({ prompt: "DO quick" }, parent)
  await rig.clock.advance(5 * MINUTE)
  const answers = world.opencode.stored(parent).messages.filter(({ role }) => role === "assistant")
  expect(answers.length).toBeLessThan(5)
  expect(world.watch.breaches).toEqual([])
})

test("the message with which a run goes on after a pause does not take the place of a word of the same moment", async () => {
  const world = new World({ options: {}, lastWord: "obeys" })
  const { rig, provider, parent } = world
  provider.close(8000, true)
  const { id, sessionID } = await rig.launch({ prompt: "DO quick" })
  await rig.clock.until(() => rig.task(id).run.parked !== undefined)
  await rig.manager.tell(id, "AN EARLIER WORD", rig.caller)
  await rig.clock.advance(100)
  provider.open()
  void rig.manager.tell(id, "THE WORD", rig.caller)
  await rig.manager.unpark(id, parent)
  await rig.clock.advance(MINUTE)
  expect(rig.task(id).status).toBe("completed")
  expect(JSON.stringify(world.opencode.stored(sessionID).messages)).toContain("THE WORD")
})

test("a turn that a user begins in a thread after its run ended with its purse is no run of the purse", async () => {
  const world = new World({ options: {}, lastWord: "obeys", purse: true })
  const { bursar, clock, opencode, provider, watch } = world
  const [thread = ""] = bursar?.threads ?? []
  provider.close(MINUTE, false)
  bursar?.run(thread, "working")
  await clock.until(() => world.first?.run.parked !== undefined)
  bursar?.open(1, MINUTE)
  bursar?.end()
  await clock.until(() => world.first?.status === "error")
  watch.userWrote(thread)
  opencode.say(thread, "DO quick", { agent: "general" })
  await clock.advance(MINUTE / 2)
  expect(opencode.isWorking(thread)).toBe(true)
  expect(watch.breaches).toEqual([])
})
