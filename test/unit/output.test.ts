import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { renderOutput } from "../../src/present/output.ts"
import { copiedToast } from "../../src/present/toasts.ts"
import { Journal, type JournalPorts, LATER_MS } from "../../src/runtime/services.ts"
import { TaskStore } from "../../src/runtime/tasks/store.ts"
import type { TaskHandle } from "../../src/runtime/tasks/task-handle.ts"
import { findBatch, findTask } from "../../src/runtime/tasks/view.ts"
import { toolsFor } from "../../src/tools/index.ts"
import { FakeApi } from "../support/fake-api.ts"
import { FakeClock } from "../support/fake-clock.ts"
import { jsonCopy } from "../support/fake-database.ts"
import { Rig } from "../support/rig.ts"
import { taskOf } from "../support/tasks.ts"

describe("a fetched answer", () => {
  test("an answer is marked as fetched once, at the first look after the task's end", async () => {
    const rig = new Rig({ options: { notifyAnswerChars: 0 } })
    rig.onPrompt("FIND", { text: "the answer", delay: 100 })
    const { id, sessionID } = await rig.launch()
    await rig.output(id)
    expect(rig.task(id).retrievedAt).toBeUndefined()
    await rig.ended(id)
    const at = rig.clock.now()
    expect((await rig.output(id)).answer).toBe("the answer")
    expect(rig.task(id).retrievedAt).toBe(at)
    await rig.clock.advance(LATER_MS)
    await rig.output(id)
    expect(rig.task(id).retrievedAt).toBe(at)
    expect((await rig.opencode.session(sessionID))?.record?.task.retrievedAt).toBe(at)
  })

  test("the mark of a fetched answer is saved with the next poll of OpenCode while other tasks run", async () => {
    const rig = new Rig({ options: { notifyAnswerChars: 0 } })
    rig.onPrompt("LONG", { hang: true })
    await rig.launch({ prompt: "LONG" })
    const { id, sessionID } = await rig.launch()
    await rig.ended(id)
    await rig.clock.advance(LATER_MS)
    await rig.output(id)
    const written = async () => (await rig.opencode.session(sessionID))?.record?.task.retrievedAt
    expect(await written()).toBeUndefined()
    await rig.manager.parts.poller.tick()
    await rig.settle()
    expect(await written()).toBe(rig.clock.now())
  })

  test("the manager returns frozen copies of its tasks", async () => {
    const rig = new Rig()
    const { id } = await rig.launch()
    const view = rig.view(id)
    expect(Object.isFrozen(view) && Object.isFrozen(view.task)).toBe(true)
  })

  test("an answer is read from the session only once, and again after it has left the cache", async () => {
    const rig = new Rig({ options: { resultCacheTTL: 60_000 } })
    const { id, sessionID } = await rig.launch()
    await rig.ended(id)
    let reads = 0
    rig.opencode.onCall = (method, session) => {
      if (method === "messagesSince" && session === sessionID) reads++
      return undefined
    }
    await rig.output(id)
    await rig.output(id)
    expect(reads, "what its end was judged by").toBe(0)
    await rig.clock.advance(60_000)
    await rig.output(id)
    await rig.output(id)
    expect(reads).toBe(1)
  })

  test("the answer cache is off when its time is 0", async () => {
    const rig = new Rig({ options: { resultCacheTTL: 0 } })
    const { id } = await rig.launch()
    await rig.ended(id)
    await rig.output(id)
    const before = rig.opencode.calls.length
    await rig.output(id)
    expect(rig.opencode.calls.length).toBeGreaterThan(before)
  })

  test("the answer cache holds up to a million characters, and drops the oldest answers first", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "long ".repeat(120_000) })
    const first = await rig.launch()
    await rig.ended(first.id)
    const second = await rig.launch()
    await rig.ended(second.id)
    const read: string[] = []
    rig.opencode.onCall = (method, session) => {
      if (method === "messagesSince" && session) read.push(session)
      return undefined
    }
    await rig.output(second.id)
    expect(read).toEqual([])
    await rig.output(first.id)
    expect(read).toEqual([first.sessionID])
  })

  test("superagents_output waits for the end up to its timeout, and stops when the call is aborted", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "the answer", delay: 5000 })
    const { id } = await rig.launch()
    const gone = new AbortController()
    const waits = [rig.output(id, rig.caller, 1000), rig.output(id, rig.caller, 60_000, gone.signal)]
    await rig.clock.advance(1000)
    expect((await waits[0])?.view.task.status).toBe("running")
    gone.abort()
    expect((await waits[1])?.view.task.status).toBe("running")
    expect((await rig.output(id, rig.caller, 60_000, gone.signal)).view.task.status).toBe("running")
    const last = rig.output(id, rig.caller, 60_000)
    await rig.ended(id)
    expect((await last).answer).toBe("the answer")
    expect(await rig.output(id, rig.caller, 60_000)).toMatchObject({ answer: "the answer" })
  })

  test("waiting output calls return when the plugin is stopped", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { hang: true })
    const { id } = await rig.launch()
    const waiting = rig.output(id, rig.caller, 60_000)
    await rig.settle()
    rig.manager.stop()
    expect((await waiting).view.task.status).toBe("running")
    await rig.clock.advance(600_000)
    expect(rig.timers.pending).toBe(0)
  })

  test("a stopped manager does nothing more, whatever was in progress", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "the answer", delay: 3000 })
    for (let count = 0; count < 10; count++) await rig.launch()
    const queued = await rig.launch({ prompt: "QUEUED" })
    rig.opencode.onCall = (method) => (method === "activity" ? { slow: 5000 } : undefined)
    await rig.clock.advance(100)
    const looking = rig.manager.parts.poller.tick()
    await rig.clock.advance(2000)
    rig.manager.stop()
    rig.opencode.calls.length = 0
    await rig.clock.advance(600_000)
    await looking
    expect(rig.opencode.calls).toEqual([])
    expect(rig.manager.list(rig.parent).map(({ task }) => task.status)).toEqual(Array(11).fill("running"))
    expect(rig.opencode.stored(queued.sessionID).messages).toEqual([])
    expect(rig.errors()).toEqual([])
  })

  test("superagents_output says that an answer is lost with its session if the parent never got all of it", async () => {
    const rig = new Rig({ options: { resultCacheTTL: 0 } })
    rig.onPrompt("FIND", { text: "x".repeat(4001) })
    const { id, sessionID } = await rig.launch()
    await rig.ended(id)
    await rig.clock.advance(1000)
    rig.opencode.deleteByUser(sessionID)
    expect(await rig.output(id)).toMatchObject({ answer: "", gone: true })
  })

  test.each([0, 60_000])(
    "a short delivered answer stays available after its session is deleted, with a cache time of %i",
    async (ttl) => {
      const rig = new Rig({ options: { resultCacheTTL: ttl } })
      rig.onPrompt("FIND", { text: "the short answer" })
      const { id, sessionID } = await rig.launch()
      await rig.ended(id)
      await rig.clock.advance(120_000)
      rig.onPrompt("OTHER", { text: "another" })
      await rig.ended((await rig.launch({ prompt: "OTHER" })).id)
      rig.opencode.deleteByUser(sessionID)
      expect(await rig.output(id)).toMatchObject({ answer: "the short answer", gone: false })
    },
  )

  test("superagents_output says that its wait ended without a result, and how long it waited", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { hang: true })
    const { id } = await rig.launch()
    const waiting = rig.output(id, rig.caller, 60_000)
    await rig.clock.advance(60_000)
    expect(renderOutput(await waiting, 0).output).toContain("It is still running after a wait of 1m. You will be told")
    expect(renderOutput(await rig.output(id), 0).output).toContain("It is still running. You will")
  })

  test("a manager that is stopped in the middle of a poll starts no new timer", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { hang: true })
    await rig.launch()
    rig.opencode.onCall = (method) => (method === "activity" ? { slow: 500 } : undefined)
    await rig.clock.advance(2200)
    rig.manager.stop()
    await rig.clock.advance(60_000)
    expect(rig.timers.pending).toBe(0)
  })
})

describe("a task list", () => {
  test("a list has only the session's own tasks, oldest first, and filters by status and batch", async () => {
    const rig = new Rig()
    rig.onPrompt("SLOW", { hang: true })
    const slow = await rig.launch({ prompt: "SLOW", batch: "search" })
    const quick = await rig.launch({ batch: "search" })
    const other = await rig.launch()
    await rig.launch({}, rig.openParent())
    await rig.ended(quick.id)
    const ids = (filter?: object) => rig.manager.list(rig.parent, filter).map(({ task }) => task.id)
    expect(ids()).toEqual([slow.id, quick.id, other.id])
    expect(ids({ status: "running" })).toEqual([slow.id])
    expect(ids({ batch: "search", status: "completed" })).toEqual([quick.id])
    expect(ids({ batch: "nothing" })).toEqual([])
  })
})

describe("the history of tasks", () => {
  const filled = async (count: number, maxHistory: number) => {
    const rig = new Rig({ options: { maxHistory, notifyAnswerChars: 0, maxCostPerSession: 0 } })
    const ids = []
    for (let index = 0; index < count; index++) {
      const { id } = await rig.launch({ description: `task ${index}` })
      await rig.ended(id)
      ids.push(id)
    }
    return { rig, ids }
  }
  const left = (rig: Rig) => rig.manager.list(rig.parent).map(({ task }) => task.description)

  test("a full history drops the oldest tasks with read answers first, together with their records", async () => {
    const { rig, ids } = await filled(3, 3)
    const session = rig.task(ids[1] ?? "").sessionID
    await rig.output(ids[1] ?? "")
    await rig.launch({ description: "task 3" })
    await rig.clock.advance(1000)
    await rig.launch({ description: "task 4" })
    await rig.settle()
    expect(left(rig)).toEqual(["task 0", "task 2", "task 3", "task 4"])
    expect(rig.opencode.stored(session).metadata).toEqual({})
    expect(rig.manager.parts.store.parentState(rig.parent).droppedUnread).toBe(0)
  })

  test("a full history counts the dropped tasks whose answers were never read", async () => {
    const { rig } = await filled(4, 2)
    expect(left(rig)).toEqual(["task 1", "task 2", "task 3"])
    await rig.launch({ description: "task 4" })
    expect(left(rig)).toEqual(["task 2", "task 3", "task 4"])
    expect(rig.manager.parts.store.parentState(rig.parent).droppedUnread).toBe(2)
    await rig.manager.clear(rig.parent)
    expect(rig.manager.parts.store.parentState(rig.parent).droppedUnread).toBe(0)
  })

  test("the history never drops running or unreported tasks, and has no limit at 0", async () => {
    const { rig } = await filled(4, 0)
    expect(left(rig)).toHaveLength(4)
    const strict = new Rig({ options: { maxHistory: 1 } })
    strict.onPrompt("SLOW", { hang: true })
    for (let count = 0; count < 3; count++) await strict.launch({ prompt: "SLOW" })
    expect(left(strict)).toHaveLength(3)
  })
})

describe("a task reference", () => {
  const TRIES = { kind: "tries", prompt: "", count: 3, timeout: 0 } as const
  const own = [
    taskOf({ id: "bg_aaaa1111", sessionID: "ses_x1", description: "one" }),
    taskOf({ id: "bg_aaaa2222", sessionID: "ses_y2", description: "two" }),
  ]

  test.each([
    ["bg_aaaa1111", "one"],
    ["ses_y2", "two"],
    ["bg_aaaa2", "two"],
    ["ses_x", "one"],
    [" bg_aaaa1111 ", "one"],
  ])("the reference %j finds its task", (reference, description) => {
    expect(findTask(reference, own).description).toBe(description)
  })

  test("an exact task reference wins over a longer id that begins with it", () => {
    const longer = taskOf({ id: "bg_aaaa11112", description: "longer" })
    expect(findTask("bg_aaaa1111", [longer, ...own]).description).toBe("one")
  })

  test.each([
    ["bg_", own, '"bg_" fits several tasks: bg_aaaa1111 (one), bg_aaaa2222 (two). Give more of the id.'],
    ["", own, 'No task "" in this session. There are: bg_aaaa1111 (one), bg_aaaa2222 (two).'],
    ["zzz", own, 'No task "zzz" in this session. There are: bg_aaaa1111 (one), bg_aaaa2222 (two).'],
    ["bg_x", [], 'No task "bg_x": this session has no background tasks. Launch one with superagents_task.'],
    [
      "bg_map/3",
      [taskOf({ id: "bg_map", group: TRIES })],
      "You can read bg_map/3 alone, but not cancel, resume, unpark or tell it, nor wait for it with after: nothing was done. Use bg_map, of which it is part, for all of these except a message.",
    ],
  ])("the reference %j is an error that lists the existing tasks", (reference, tasks, text) => {
    expect(() => findTask(reference, tasks)).toThrow(text)
  })
})

describe("a batch reference", () => {
  const tasks = [
    taskOf({ id: "bg_aaaa1111", batch: "auto:bg_aaaa1111" }),
    taskOf({ id: "bg_aaaa2222", batch: "auto:bg_aaaa1111" }),
    taskOf({ id: "bg_bbbb3333", batch: "name:search" }),
    taskOf({ id: "bg_bbbb4444", batch: "name:bg_aaaa1111x" }),
  ]

  test.each([
    ["search", "name:search"],
    [" search ", "name:search"],
    ["bg_aaaa1111", undefined],
    ["bg_aaaa", undefined],
    ["bg_bbbb3333", undefined],
    ["bg_aaaa1111x", "name:bg_aaaa1111x"],
    ["bg_bbbb", undefined],
    ["", undefined],
    ["nothing", undefined],
  ])("the batch reference %j resolves to %s", (reference, key) => {
    expect(findBatch(reference, tasks)).toBe(key)
  })
})

describe("record writes", () => {
  const journalWith = (ports: Pick<JournalPorts, "opencode" | "clock" | "stopped" | "store">) =>
    new Journal({ ...ports, isSending: () => false, isUnread: () => false, takenOver: () => {} })

  test("a burst of changes writes a record at most twice, with the newest state last", async () => {
    const clock = new FakeClock()
    const opencode = new FakeApi({ clock })
    const sessionID = opencode.openSession()
    const stop = new AbortController()
    const task = taskOf({ sessionID })
    const store = new TaskStore()
    store.add(task, 0)
    const journal = journalWith({ opencode, clock, stopped: stop.signal, store })
    opencode.onCall = () => ({ slow: 300 })
    const saving = journal.save(task)
    await clock.advance(100)
    const saves = [1, 2, 3, 4, 5].map((retrievedAt) => {
      store.add({ ...task, retrievedAt }, 0)
      return journal.save(task)
    })
    await clock.advance(10_000)
    await Promise.all([saving, ...saves])
    expect(opencode.calls).toEqual(["saveRecord", "saveRecord"])
    expect((await opencode.database.sessions.get(sessionID))?.metadata).toMatchObject({
      superagents: { task: { retrievedAt: 5 } },
    })
  })

  test("a task that was cleared is not claimed behind the slow removal of its record", async () => {
    const clock = new FakeClock()
    const opencode = new FakeApi({ clock })
    const sessionID = opencode.openSession()
    const task = taskOf({ sessionID })
    const store = new TaskStore()
    store.add(task, 0)
    const journal = journalWith({ opencode, clock, stopped: new AbortController().signal, store })
    opencode.onCall = () => ({ slow: 300 })
    const erased = journal.erase(store.clear(task.id) as TaskHandle)
    const claimed = expect(journal.claim(task)).rejects.toThrow("was cleared")
    await clock.advance(1000)
    await Promise.all([erased, claimed])
    opencode.onCall = () => undefined
    expect((await opencode.session(sessionID))?.record).toBeUndefined()
  })

  test("a record write that may wait goes with the next write, or follows alone after a short delay", async () => {
    const clock = new FakeClock()
    const opencode = new FakeApi({ clock })
    const sessionID = opencode.openSession()
    const task = taskOf({ sessionID })
    const stop = new AbortController()
    const timers = clock.view()
    const store = new TaskStore()
    store.add(task, 0)
    const journal = journalWith({ opencode, clock: timers, stopped: stop.signal, store })
    journal.saveLater(task)
    journal.saveLater(task)
    await clock.advance(LATER_MS - 1)
    expect(opencode.calls).toEqual([])
    await clock.advance(1)
    expect(opencode.calls).toEqual(["saveRecord"])
    journal.saveLater(task)
    await journal.save(task)
    await clock.advance(LATER_MS)
    expect(opencode.calls).toHaveLength(2)
    journal.saveLater(task)
    await journal.erase(store.remove(task.id) as TaskHandle)
    journal.saveLater(task)
    stop.abort()
    expect(timers.pending).toBe(0)
    await clock.advance(LATER_MS)
    expect(opencode.calls).toHaveLength(3)
  })

  test("a record equals the manager's task once all writes are done", async () => {
    const rig = new Rig()
    rig.opencode.onCall = (method) => (method === "saveRecord" ? { slow: 300 } : undefined)
    const { id, sessionID } = await rig.launch()
    await rig.ended(id)
    await rig.output(id)
    await rig.clock.advance(LATER_MS + 1000)
    const record = (await rig.opencode.session(sessionID))?.record
    expect(record?.task).toEqual(jsonCopy(rig.task(id)))
  })

  test("a record that OpenCode rejects is written again, logged, and written once OpenCode takes it", async () => {
    const rig = new Rig()
    const { id, sessionID } = await rig.launch()
    let failures = 2
    rig.opencode.onCall = (method) =>
      method === "saveRecord" && failures-- > 0 ? { fail: new OpencodeError("no") } : undefined
    await rig.ended(id)
    await rig.clock.advance(LATER_MS)
    expect((await rig.opencode.session(sessionID))?.record?.task.delivery.state).toBe("confirmed")
    failures = Number.POSITIVE_INFINITY
    const other = await rig.launch()
    await rig.ended(other.id)
    await rig.clock.advance(2 * LATER_MS)
    expect(rig.errors()).toContainEqual(expect.stringContaining("task record not written"))
    expect(rig.notices()).toHaveLength(2)
    failures = 0
    await rig.clock.advance(2 * LATER_MS)
    expect((await rig.opencode.session(other.sessionID))?.record?.task.delivery.state).toBe("confirmed")
    expect(rig.timers.pending).toBe(0)
  })
})

describe("a conversation forked by its user", () => {
  const forked = async (tool = "superagents_task", state: "completed" | "error" = "completed") => {
    const rig = new Rig()
    const { id, sessionID } = await rig.launch()
    const copy = rig.openParent()
    const result = `Task: ${id} "find it"\nAlso bg_zzzzzzzz.`
    const call = {
      type: "tool",
      callID: "call_1",
      tool,
      input: {},
      state,
      result,
      childID: sessionID,
      media: [],
      handle: 0,
    } as const
    const past = [{ id: "msg_1", role: "assistant", parts: [call], handle: 0 }] as const
    rig.forks.past = past
    const use = async (name: string, args: object, sessionID = copy) => {
      const told = toolsFor(rig.manager, rig.options)[name]?.execute(args, rig.callerIn(sessionID))
      return told?.then(({ output }) => output).catch((error: Error) => error.message)
    }
    return { rig, id, sessionID, copy, use, past }
  }

  test("the task tools explain a fork whose tasks it mentions, and its user sees one toast", async () => {
    const { rig, id, copy, use } = await forked()
    const told = `This conversation is a fork, and what it was forked from launched 1 task: ${id} (find it). It belongs to that conversation, and its answer goes there: do not wait here. To look there, the user opens it (opencode --session ${rig.parent}). Launch a new task for what you need here.`
    expect(await use("superagents_list", {})).toBe(`No background tasks found. ${told}`)
    expect(await use("superagents_output", { task_id: id })).toContain(
      `no background tasks. Launch one with superagents_task. ${told}`,
    )
    expect(await use("superagents_task", { tell: id, prompt: "MORE" })).toContain(told)
    expect(await use("superagents_cancel", { batch: "nothing" })).toContain(told)
    await rig.launch({ prompt: "its own" }, copy)
    expect(await use("superagents_output", { task_id: id })).toContain(told)
    await rig.clock.advance(5000)
    const toasts = rig.opencode.toasts.filter(({ title }) => title.startsWith("Background agents stay"))
    expect(toasts.map(({ message }) => message)).toEqual([
      "1 task of the conversation that was forked: its answer arrives there, not here",
    ])
    expect(copiedToast(2).message).toContain("2 tasks of the conversation that was forked: their answers arrive there")
  })

  test("the task tools explain a fork after a restart too, although nobody has used the first conversation since", async () => {
    const { rig, id, sessionID, copy, use, past } = await forked()
    await rig.launch({ prompt: "not in the fork" })
    await rig.ended(id)
    rig.restart()
    rig.forks.past = past
    expect(await use("superagents_list", {})).toContain(
      `No background tasks found. This conversation is a fork, and what it was forked from launched 1 task: ${id} (find it).`,
    )
    expect(rig.manager.list(rig.parent)).toEqual([])
    rig.opencode.database.sessions.delete(sessionID)
    expect(await use("superagents_list", {})).toBe("No background tasks found")
    expect(rig.manager.list(copy)).toEqual([])
  })

  test("no hint about a fork is given for unlaunched ids, in the original conversation, or to an agent", async () => {
    const { rig, id, copy, use } = await forked("read")
    expect(await use("superagents_list", {})).toBe("No background tasks found")
    const refused = await forked("superagents_task", "error")
    expect(await refused.use("superagents_list", {})).toBe("No background tasks found")
    const launched = await forked()
    expect(await launched.use("superagents_output", { task_id: "bg_x" }, launched.rig.parent)).not.toContain("fork")
    const { sessionID } = launched.rig.task(launched.id)
    expect(await launched.use("superagents_list", {}, sessionID)).toBe("No background tasks found")
    rig.opencode.database.sessions.delete(copy)
    expect(await use("superagents_output", { task_id: id })).not.toContain("fork")
  })
})
