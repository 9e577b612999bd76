import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { LATER_MS } from "../../src/runtime/services.ts"
import { Rig } from "../support/rig.ts"

const HANG = { hang: true, text: "so far" } as const

const running = async (count = 1, options: object = {}) => {
  const rig = new Rig({ options })
  rig.onPrompt("FIND", HANG)
  const tasks = []
  for (let index = 0; index < count; index++) tasks.push(await rig.launch())
  await rig.clock.advance(100)
  const [first] = tasks
  if (!first) throw new Error("no task")
  return { rig, tasks, first }
}
const busy = async (rig: Rig) => [...(await rig.opencode.activity()).keys()].filter((id) => id !== rig.parent)

describe("a cancel", () => {
  test("a cancel ends a task once, stops its session, and leaves its text readable", async () => {
    const { rig, first } = await running()
    const [view] = await rig.manager.cancel({ type: "task", reference: first.id }, rig.caller)
    expect(view?.task).toMatchObject({ id: first.id, status: "cancelled", outcome: { reason: { code: "cancelled" } } })
    expect(await busy(rig)).toEqual([])
    await rig.ended(first.id)
    await rig.clock.advance(60_000)
    expect(rig.task(first.id)).toMatchObject({ status: "cancelled", delivery: { state: "confirmed" } })
    expect(rig.notices()).toHaveLength(1)
    expect((await rig.output(first.id)).answer).toBe("so far")
    await rig.clock.advance(LATER_MS)
    expect(rig.timers.pending).toBe(0)
  })

  test("a cancel ends all tasks of the session, or all of one batch, and no others", async () => {
    const { rig, tasks } = await running(2)
    const batch = await rig.launch({ batch: "search" })
    const foreign = await rig.launch({}, rig.openParent())
    const cancelled = await rig.manager.cancel({ type: "batch", name: "search" }, rig.caller)
    expect(cancelled.map(({ task }) => task.id)).toEqual([batch.id])
    const rest = await rig.manager.cancel({ type: "all" }, rig.caller)
    expect(rest.map(({ task }) => task.id)).toEqual(tasks.map(({ id }) => id))
    expect(await rig.manager.cancel({ type: "all" }, rig.caller)).toEqual([])
    expect(await rig.manager.cancel({ type: "batch", name: "search" }, rig.caller)).toEqual([])
    expect(rig.task(foreign.id, foreign.parentID).status).toBe("running")
  })

  test("a queued task is cancelled without any request to its session", async () => {
    const { rig } = await running(1, { maxConcurrentTasks: 1 })
    const queued = await rig.launch()
    rig.opencode.calls.length = 0
    await rig.manager.cancel({ type: "task", reference: queued.id }, rig.caller)
    expect(rig.opencode.calls).not.toContain("abort")
    await rig.ended(queued.id)
    expect(rig.opencode.stored(queued.sessionID).messages).toEqual([])
    expect(rig.notices()[0]?.visible).toContain("cancelled after 0ms")
  })

  test("a cancel lets the next queued task begin", async () => {
    const { rig, first } = await running(1, { maxConcurrentTasks: 1 })
    const queued = await rig.launch()
    await rig.manager.cancel({ type: "task", reference: first.id }, rig.caller)
    expect(rig.view(queued.id).phase).toBe("working")
  })

  test("two cancels at the same time end a task only once", async () => {
    const { rig, first } = await running()
    const results = await Promise.all([1, 2].map(() => rig.manager.cancel({ type: "all" }, rig.caller)))
    expect(results.map((views) => views.length).toSorted()).toEqual([0, 1])
    await rig.ended(first.id)
    expect(rig.notices()).toHaveLength(1)
  })

  test.each([
    ["what has ended", "is not running: it is cancelled. Nothing was cancelled."],
    ["what there is not", 'No task "bg_zzzzzzzz" in this session. There are: bg_'],
  ])("a cancel of %s is refused", async (what, text) => {
    const { rig, first } = await running()
    await rig.manager.cancel({ type: "all" }, rig.caller)
    const reference = what === "what has ended" ? first.id : "bg_zzzzzzzz"
    await expect(rig.manager.cancel({ type: "task", reference }, rig.caller)).rejects.toThrow(text)
  })

  test("a cancel of an unknown batch is refused, and the error lists the known names", async () => {
    const { rig } = await running()
    await expect(rig.manager.cancel({ type: "batch", name: "x" }, rig.caller)).rejects.toThrow(
      'No batch "x" in this session. No task has a batch name.',
    )
    await rig.launch({ batch: "search" })
    await expect(rig.manager.cancel({ type: "batch", name: "x" }, rig.caller)).rejects.toThrow("There are: search.")
  })

  test("a cancel takes effect at once and returns in bounded time even when OpenCode never answers", async () => {
    const { rig, first } = await running()
    rig.opencode.onCall = (method) => (method === "abort" ? { slow: 60_000 } : undefined)
    const cancelling = rig.manager.cancel({ type: "all" }, rig.caller)
    await rig.settle()
    expect(rig.task(first.id).status).toBe("cancelled")
    await rig.clock.advance(5000)
    expect(await cancelling).toHaveLength(1)
  })

  test("a cancel stops the child session even when OpenCode fails to do so at first", async () => {
    const { rig, first } = await running()
    let failures = 2
    rig.opencode.onCall = (method) =>
      method === "abort" && failures-- > 0 ? { fail: new OpencodeError("no") } : undefined
    const cancelling = rig.manager.cancel({ type: "all" }, rig.caller)
    await rig.ended(first.id)
    await rig.clock.advance(1000)
    expect(await cancelling).toHaveLength(1)
    expect(await busy(rig)).toEqual([])
  })

  test("a task stays cancelled even when OpenCode never stops its session, and the log says so", async () => {
    const { rig, first } = await running()
    rig.opencode.onCall = (method) => (method === "abort" ? { fail: new OpencodeError("no") } : undefined)
    const cancelling = rig.manager.cancel({ type: "all" }, rig.caller)
    await rig.ended(first.id)
    await rig.clock.advance(10_000)
    expect(await cancelling).toHaveLength(1)
    const warning = { level: "warn", message: "could not stop a session" }
    expect(rig.opencode.logs).toContainEqual(expect.objectContaining(warning))
    expect(rig.timers.pending).toBe(0)
  })

  test.each([
    ["asks its model nothing until OpenCode has stopped it", { slow: 60_000 }, 0],
    ["goes on once OpenCode has failed to stop it", { fail: new OpencodeError("no") }, 1],
  ])("an agent whose task was cancelled %s", async (_what, abort, later) => {
    const rig = new Rig()
    let asked = 0
    rig.script(({ prompt }) =>
      prompt === "LOOP" ? { delay: 100, tools: [{ name: "read", args: { times: ++asked } }] } : undefined,
    )
    const task = await rig.launch({ prompt: "LOOP" })
    await rig.clock.advance(1000)
    rig.opencode.onCall = (method) => (method === "abort" ? abort : undefined)
    const cancelling = rig.manager.cancel({ type: "task", reference: task.id }, rig.caller)
    const before = asked
    expect(before).toBeGreaterThan(1)
    await rig.clock.advance(300)
    expect(asked).toBe(before)
    await rig.clock.advance(20_000)
    expect(Math.min(1, asked - before)).toBe(later)
    await cancelling
  })

  test("a cancel refuses open questions first, so that none stays open for ever", async () => {
    const { rig } = await running()
    rig.opencode.asking.add("bash")
    rig.onPrompt("ASK", { tools: [{ name: "bash", args: {} }] })
    await rig.launch({ prompt: "ASK" })
    await rig.clock.advance(100)
    expect(await rig.opencode.openAsks()).toHaveLength(1)
    rig.opencode.calls.length = 0
    await rig.manager.cancel({ type: "all" }, rig.caller)
    await rig.clock.advance(100)
    expect(await rig.opencode.openAsks()).toEqual([])
    expect(rig.opencode.calls.indexOf("refuse")).toBeLessThan(rig.opencode.calls.lastIndexOf("abort"))
    expect(await busy(rig)).toEqual([])
  })

  test("a task that is cancelled just as its turn comes never begins", async () => {
    const { rig, first } = await running(1, { maxConcurrentTasks: 1 })
    const queued = await rig.launch()
    rig.opencode.onCall = (method) => (method === "saveRecord" ? { slow: 500 } : undefined)
    await rig.manager.cancel({ type: "task", reference: first.id }, rig.caller)
    expect(rig.view(queued.id).phase).toBe("working")
    await rig.manager.cancel({ type: "task", reference: queued.id }, rig.caller)
    await rig.clock.advance(10_000)
    expect(rig.opencode.stored(queued.sessionID).messages).toEqual([])
  })

  test("a task that is cancelled while its prompt is being sent is stopped", async () => {
    const { rig, first } = await running(1, { maxConcurrentTasks: 1 })
    const queued = await rig.launch()
    rig.opencode.onCall = (method, sessionID) =>
      method === "prompt" && sessionID === queued.sessionID ? { slow: 500 } : undefined
    await rig.manager.cancel({ type: "task", reference: first.id }, rig.caller)
    await rig.clock.advance(100)
    await rig.manager.cancel({ type: "task", reference: queued.id }, rig.caller)
    await rig.clock.advance(10_000)
    expect(await busy(rig)).toEqual([])
    expect(rig.task(queued.id).status).toBe("cancelled")
  })
})

describe("a clear", () => {
  test("superagents_clear forgets the session's tasks and records, stops running ones and notifies nobody", async () => {
    const { rig, tasks } = await running(2, { maxCostPerSession: 0 })
    const done = await rig.launch({ prompt: "QUICK" })
    await rig.ended(done.id)
    const told = rig.notices().length
    expect(await rig.manager.clear(rig.parent)).toEqual({ cleared: 3, stopped: 2 })
    await rig.clock.advance(60_000)
    expect(rig.manager.list(rig.parent)).toEqual([])
    expect(rig.notices()).toHaveLength(told)
    expect(await busy(rig)).toEqual([])
    for (const { sessionID } of [...tasks, done]) expect(rig.opencode.stored(sessionID).metadata).toEqual({})
    expect(rig.timers.pending).toBe(0)
    expect(await rig.manager.clear(rig.parent)).toEqual({ cleared: 0, stopped: 0 })
  })

  test("superagents_clear ends a call that waits for a task", async () => {
    const { rig, first } = await running()
    const waiting = rig.output(first.id, rig.caller, 60_000)
    await rig.settle()
    await rig.manager.clear(rig.parent)
    expect((await waiting).view.task.status).toBe("cancelled")
    await rig.clock.advance(1000)
    expect(rig.timers.pending).toBe(0)
  })

  test("superagents_clear drops a notification that is not yet delivered", async () => {
    const { rig, first } = await running()
    rig.opencode.onCall = (method) => (method === "persona" ? { fail: new OpencodeError("not now") } : undefined)
    await rig.manager.cancel({ type: "all" }, rig.caller)
    await rig.clock.advance(100)
    await rig.manager.clear(rig.parent)
    rig.opencode.onCall = () => undefined
    await rig.clock.advance(600_000)
    expect(rig.notices()).toEqual([])
    expect(rig.opencode.stored(first.sessionID).metadata).toEqual({})
    expect(rig.timers.pending).toBe(0)
  })

  test("superagents_clear leaves the tasks of other sessions alone", async () => {
    const { rig } = await running()
    const foreign = await rig.launch({}, rig.openParent())
    await rig.manager.clear(rig.parent)
    expect(rig.task(foreign.id, foreign.parentID).status).toBe("running")
  })
})

describe("a deleted parent", () => {
  test("a deleted parent's tasks and forks are stopped, and nobody is notified", async () => {
    const { rig, first } = await running()
    const fork = await rig.launch({ fork: true })
    const other = rig.openParent()
    await rig.clock.advance(100)
    expect(await busy(rig)).toHaveLength(2)
    rig.opencode.deleteByUser(rig.parent)
    await rig.clock.advance(60_000)
    expect(rig.manager.list(rig.parent)).toEqual([])
    expect(await busy(rig)).not.toContain(fork.sessionID)
    expect(rig.opencode.database.sessions.has(first.sessionID)).toBe(false)
    expect(rig.notices(other)).toEqual([])
    expect(rig.timers.pending).toBe(0)
    expect(rig.errors()).toEqual([])
  })
})

describe("the tasks of an ended task", () => {
  const nested = async () => {
    const rig = new Rig({ options: { maxDepth: 3 } })
    rig.onPrompt("FIND", HANG)
    const outer = await rig.launch()
    const inner = await rig.launch({}, outer.sessionID)
    const innermost = await rig.launch({}, inner.sessionID)
    await rig.clock.advance(100)
    return { rig, outer, inner, innermost }
  }

  test("a cancel of a task also cancels the tasks that it launched", async () => {
    const { rig, outer, inner, innermost } = await nested()
    await rig.manager.cancel({ type: "all" }, rig.caller)
    await rig.ended(outer.id)
    await rig.clock.advance(60_000)
    expect(rig.task(inner.id, outer.sessionID)).toMatchObject({
      status: "cancelled",
      outcome: { reason: { code: "parent-ended" } },
    })
    expect(rig.task(innermost.id, inner.sessionID).status).toBe("cancelled")
    expect(await busy(rig)).toEqual([])
    expect(rig.timers.pending).toBe(0)
  })

  test("a task that waits for its own tasks goes on when they have ended", async () => {
    const rig = new Rig({ options: { maxDepth: 2 } })
    rig.onPrompt("INNER", { text: "inner answer", delay: 20_000 })
    rig.onPrompt("✓", { text: "the outer answer" })
    const outer = await rig.launch({ prompt: "OUTER" })
    const inner = await rig.launch({ prompt: "INNER" }, outer.sessionID)
    await rig.clock.advance(15_000)
    expect(rig.view(outer.id).phase).toBe("waiting for its own tasks")
    await rig.ended(outer.id)
    expect(rig.task(inner.id, outer.sessionID).status).toBe("completed")
    expect(rig.notices(outer.sessionID)).toHaveLength(1)
    expect((await rig.output(outer.id)).answer).toBe("the outer answer")
    const own = rig.view(inner.id, outer.sessionID).whole.usage.output
    expect(rig.view(outer.id).whole.usage.output).toBe(40 + own)
  })

  test("a task waits for a notification that arrives while its messages are being read", async () => {
    const rig = new Rig({ options: { maxDepth: 2 } })
    rig.onPrompt("INNER", { text: "inner answer", delay: 2000 })
    rig.onPrompt("✓", { text: "the outer answer" })
    const outer = await rig.launch({ prompt: "OUTER" })
    await rig.launch({ prompt: "INNER" }, outer.sessionID)
    // The messages are read before the news comes, and handed over after it was told.
    rig.opencode.onCall = (method, sessionID) =>
      method === "session" && sessionID === outer.sessionID ? { slow: 1500 } : undefined
    await rig.ended(outer.id)
    expect((await rig.output(outer.id)).answer).toBe("the outer answer")
  })

  test("a task with its own tasks completes even when notifications never wake it", async () => {
    const rig = new Rig({ options: { maxDepth: 2, wake: "never" } })
    const outer = await rig.launch({ prompt: "OUTER" })
    await rig.launch({ prompt: "INNER" }, outer.sessionID)
    expect((await rig.ended(outer.id)).status).toBe("completed")
  })
})
