import { describe, expect, test } from "vitest"
import { LEASE_MS, OpencodeError } from "../../src/core/ports.ts"
import type { ForkApi } from "../../src/features/forks/ports.ts"
import { FakeApi } from "../support/fake-api.ts"
import { Rig, running } from "../support/rig.ts"

describe("a crash and a restart", () => {
  test("after a crash, a running task ends as interrupted, notifies once and wakes its parent", async () => {
    const { rig, id, sessionID } = await running()
    rig.restart()
    await rig.manager.recover()
    const task = await rig.ended(id)
    await rig.clock.advance(60_000)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "interrupted" } } })
    expect(rig.notices()).toHaveLength(1)
    expect(rig.notices()[0]?.hidden).toContain("it was interrupted")
    expect(rig.answers()).toHaveLength(1)
    expect((await rig.opencode.session(sessionID))?.record?.task.status).toBe("error")
    expect(rig.timers.pending).toBe(0)
    rig.restart()
    await rig.manager.recover()
    await rig.clock.advance(60_000)
    expect(rig.notices()).toHaveLength(1)
  })

  describe("a parent stopped by its user", () => {
    /** Parent at work when its user pressed ESC; its agent still is. */
    const stopped = async () => {
      const all = await running()
      all.rig.onPrompt("THINK", { hang: true, text: "hm" })
      all.rig.opencode.say(all.rig.parent, "THINK")
      await all.rig.clock.advance(100)
      all.rig.opencode.abortByUser(all.rig.parent)
      return all
    }
    /** How often its model is asked after a restart; it is told once. */
    const asked = async ({ rig, id }: Awaited<ReturnType<typeof stopped>>) => {
      const before = rig.answers().length
      rig.restart()
      await rig.manager.recover()
      await rig.ended(id)
      await rig.clock.advance(10_000)
      expect(rig.notices()).toHaveLength(1)
      return rig.answers().length - before
    }

    test("after a crash, a parent that its user stopped is notified without being woken until its user writes", async () => {
      const all = await stopped()
      await all.rig.clock.advance(2000)
      expect(await asked(all)).toBe(0)
      all.rig.opencode.say(all.rig.parent, "go on")
      await all.rig.clock.advance(2000)
      const before = all.rig.answers().length
      all.rig.onPrompt("NEXT", { text: "next is done" })
      await all.rig.ended((await all.rig.launch({ prompt: "NEXT" })).id)
      await all.rig.clock.advance(2000)
      expect(all.rig.answers().length - before).toBe(1)
    })

    test("after a crash, a stopped parent is not woken after a shell command of its user", async () => {
      const all = await stopped()
      await all.rig.clock.advance(2000)
      all.rig.opencode.shell(all.rig.parent, "git status")
      await all.rig.clock.advance(2000)
      expect(await asked(all)).toBe(0)
    })

    test("after a crash, a stopped parent is woken if its user has written since", async () => {
      const all = await stopped()
      await all.rig.clock.advance(2000)
      all.rig.opencode.say(all.rig.parent, "go on")
      await all.rig.clock.advance(2000)
      expect(await asked(all)).toBe(1)
    })

    test("after a crash, a stopped parent is woken if its user has written since in another process", async () => {
      const { rig, id } = await stopped()
      await rig.clock.advance(2000)
      const other = new Rig({ share: { clock: rig.clock, database: rig.opencode.database } })
      await other.manager.ready(rig.parent)
      other.opencode.say(rig.parent, "go on")
      await rig.clock.advance(2000)
      rig.crash()
      await other.ended(id, rig.parent)
      await rig.clock.advance(10_000)
      expect(other.notices(rig.parent)).toHaveLength(1)
      expect(other.answers(rig.parent).at(-1)?.parentID).toBe(other.notices(rig.parent)[0]?.id)
    })

    test("after a crash, a parent that was stopped before its answer had begun is not woken", async () => {
      const all = await running()
      all.rig.opencode.say(all.rig.parent, "THINK")
      all.rig.opencode.abortByUser(all.rig.parent)
      await all.rig.clock.advance(2000)
      // OpenCode had not stored the answer yet.
      expect(all.rig.opencode.stored(all.rig.parent).messages.pop()?.role).toBe("assistant")
      expect(await asked(all)).toBe(0)
    })

    test("after a crash, a parent that was stopped only by OpenCode's own end is woken", async () => {
      const all = await stopped()
      await all.rig.clock.advance(100)
      expect(await asked(all)).toBe(1)
    })
  })

  test("after a crash, an agent that is cleared is not woken by the end of a task that it had launched", async () => {
    const rig = new Rig({ options: { maxDepth: 2 } })
    rig.onPrompt("WORK", { hang: true, text: "hm" })
    const outer = await rig.launch({ prompt: "WORK" })
    const inner = await rig.launch({ prompt: "WORK" }, outer.sessionID)
    await rig.clock.advance(1000)
    rig.restart()
    rig.opencode.onCall = (method, sessionID) =>
      method === "messagesSince" && sessionID === inner.sessionID ? { slow: 5000 } : undefined
    await rig.manager.recover()
    await rig.clock.until(() => rig.task(outer.id).status === "error")
    await rig.clock.advance(2000)
    expect(await rig.manager.clear(rig.parent)).toMatchObject({ cleared: 1 })
    const before = rig.answers(outer.sessionID).length
    await rig.clock.advance(30_000)
    expect(rig.notices(outer.sessionID)).toHaveLength(1)
    expect(rig.answers(outer.sessionID)).toHaveLength(before)
  })

  test("after a crash, a task that had finished unnoticed has ended at the time of its last message", async () => {
    const { rig, id, sessionID } = await running()
    await rig.clock.advance(60_000)
    const last = rig.opencode.stored(sessionID).messages.at(-1)
    rig.crash()
    last?.parts.push({ type: "text", id: "prt_last", text: "done", synthetic: false })
    Object.assign(last ?? {}, { finish: "stop", completedAt: rig.clock.now() })
    await rig.clock.advance(8 * 3_600_000)
    rig.restart()
    await rig.manager.recover()
    expect(await rig.ended(id)).toMatchObject({ status: "completed", run: { endedAt: last?.completedAt } })
    expect((await rig.output(id)).answer).toMatch(/done$/)
    expect(rig.notices()[0]?.visible).toContain("finished in 1m")
  })

  test("a claim that is written late does not revive the record of a task that was cleared meanwhile", async () => {
    const rig = new Rig()
    const task = await rig.ended((await rig.launch()).id)
    await rig.clock.advance(5000)
    const { journal, store } = rig.manager.parts
    const [handle] = [...store.entries()]
    rig.opencode.onCall = (method, _of, record) => (method === "saveRecord" && record ? { slow: 5000 } : undefined)
    const claimed = journal.claim(task)
    const erased = handle && journal.erase(handle)
    await rig.clock.advance(10_000)
    await Promise.all([claimed, erased])
    expect(rig.opencode.stored(task.sessionID).metadata).toEqual({})
  })

  test("after a crash, an interrupted run ends at the time when its owner was last seen", async () => {
    const { rig, id, sessionID } = await running()
    const begun = rig.opencode.stored(sessionID).messages.at(-1)?.createdAt ?? 0
    rig.crash()
    await rig.clock.advance(8 * 3_600_000)
    rig.restart()
    await rig.manager.recover()
    expect((await rig.ended(id)).run.endedAt).toBe(begun)
  })

  test("after a crash, a session's tasks are listed oldest first", async () => {
    const rig = new Rig()
    const ids = []
    for (let count = 0; count < 3; count++) {
      ids.push((await rig.launch()).id)
      await rig.clock.advance(1000)
    }
    rig.restart()
    const records = rig.opencode.recordsOf.bind(rig.opencode)
    rig.opencode.recordsOf = async (parent) => (await records(parent)).toReversed()
    await rig.manager.ready(rig.parent)
    expect(rig.manager.list(rig.parent).map(({ task }) => task.id)).toEqual(ids)
  })

  test("after a crash, a task that could not be settled at the start is settled once OpenCode answers", async () => {
    const { rig, id } = await running()
    rig.restart()
    rig.opencode.onCall = (method) => (method === "messagesSince" ? { fail: new OpencodeError("not yet") } : undefined)
    await rig.manager.recover()
    rig.opencode.onCall = () => undefined
    await rig.clock.advance(30_000)
    expect(rig.task(id).status).toBe("error")
    expect(rig.notices()).toHaveLength(1)
    expect(rig.timers.pending).toBe(0)
  })

  test("after a crash, a task that had failed unnoticed is reported as failed", async () => {
    const { rig, id, sessionID } = await running()
    rig.crash()
    const last = rig.opencode.stored(sessionID).messages.at(-1)
    if (last) last.error = { name: "APIError", message: "no such luck" }
    rig.restart()
    await rig.manager.recover()
    expect((await rig.ended(id)).outcome?.reason).toEqual({ code: "provider", text: "no such luck" })
  })

  test("after a crash, a queued task is reported as interrupted and is not started", async () => {
    const { rig, id } = await running({ maxConcurrentTasks: 1 })
    const queued = await rig.launch({ prompt: "SECOND" })
    rig.restart()
    await rig.manager.recover()
    expect((await rig.ended(id)).status).toBe("error")
    expect((await rig.ended(queued.id)).outcome?.reason).toEqual({
      code: "interrupted",
      text: "OpenCode stopped or was restarted before it began: it was interrupted. Launch it again if it is still needed.",
    })
    expect(rig.opencode.stored(queued.sessionID).messages).toEqual([])
    expect(rig.notices()).toHaveLength(2)
  })

  test("after a crash while a fork was probed, the probe's session is that of an interrupted task", async () => {
    const rig = new Rig()
    const probe: string[] = []
    const beginsAlike: ForkApi["beginsAlike"] = async ({ draft, ...session }) => {
      const sessionID = await rig.opencode.createSession(session, draft)
      probe.push(sessionID)
      const messageID = `msg_${"f".repeat(12)}x`
      const parts = [{ text: "Nothing is asked." }]
      await rig.opencode.prompt({ sessionID, messageID, agent: "build", noReply: true, parts })
      return new Promise(() => {})
    }
    Object.assign(rig.forks, { beginsAlike })
    void rig.launch({ fork: "whole", agent: undefined })
    await rig.settle()
    rig.restart()
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    const [view, ...others] = rig.manager.list(rig.parent)
    expect(others).toEqual([])
    const { sessionID, outcome } = await rig.ended(view?.task.id ?? "")
    expect([sessionID]).toEqual(probe)
    expect(outcome?.reason?.text).toMatch(/^OpenCode stopped or was restarted before it began: /)
    expect(rig.notices()).toHaveLength(1)
  })

  test("after a crash, a task that had ended without a notification is reported", async () => {
    const rig = new Rig()
    const { id } = await rig.launch()
    rig.opencode.onCall = (method) => (method === "persona" ? "crash" : undefined)
    await rig.clock.advance(10_000)
    expect(rig.notices()).toEqual([])
    rig.restart()
    await rig.manager.recover()
    expect((await rig.ended(id)).status).toBe("completed")
    expect(rig.notices()).toHaveLength(1)
  })

  test("after a crash, a notification that was sent but not recorded is not sent again", async () => {
    const rig = new Rig()
    const { id } = await rig.launch()
    rig.opencode.onCall = (method) => (method === "hasMessage" ? "crash" : undefined)
    await rig.clock.advance(10_000)
    // OpenCode had accepted it: here, before the process died.
    rig.restart()
    await rig.manager.recover()
    const before = rig.notices().length
    expect((await rig.ended(id)).delivery.state).toBe("confirmed")
    await rig.clock.advance(60_000)
    expect(rig.notices()).toHaveLength(Math.max(1, before))
  })

  test("after a crash, a notification recorded late is not repeated, even by a second restart", async () => {
    const rig = new Rig()
    const { id, sessionID } = await rig.launch()
    rig.opencode.onCall = (method) => (method === "saveRecord" ? "forget" : undefined)
    await rig.ended(id)
    const state = async () => (await rig.opencode.session(sessionID))?.record?.task.delivery.state
    expect(await state()).toBe("none")
    rig.restart()
    await rig.manager.recover()
    await rig.clock.advance(1000)
    expect(await state()).toBe("confirmed")
    rig.restart()
    await rig.manager.recover()
    await rig.clock.advance(60_000)
    expect(rig.notices()).toHaveLength(1)
  })

  test("after a crash, a notification that was stored without its texts is stored completely", async () => {
    const rig = new Rig()
    const { id } = await rig.launch()
    rig.opencode.onCall = (method) => (method === "hasMessage" ? "crash" : undefined)
    await rig.clock.advance(10_000)
    const { messages } = rig.opencode.stored(rig.parent)
    const half = messages.findLast(({ role }) => role === "user")
    half?.parts.splice(1)
    rig.restart()
    await rig.manager.recover()
    expect((await rig.ended(id)).delivery.state).toBe("confirmed")
    expect(rig.opencode.stored(rig.parent).messages.filter((message) => message.id === half?.id)).toHaveLength(1)
    expect(rig.opencode.stored(rig.parent).messages.find((message) => message.id === half?.id)?.parts).toHaveLength(2)
  })

  test("after a crash, a reported task is still known with its answer, and can be resumed", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "the answer" })
    const { id } = await rig.launch()
    await rig.ended(id)
    await rig.clock.advance(1000)
    rig.restart()
    await rig.manager.ready(rig.parent)
    expect((await rig.output(id)).answer).toBe("the answer")
    await rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
    await rig.ended(id)
    await rig.clock.advance(1000)
    expect(rig.notices()).toHaveLength(2)
  })

  test("after a crash, a session's tasks and forks are loaded when the session is first used", async () => {
    const { rig, id } = await running()
    const fork = await rig.launch({ fork: true })
    rig.restart()
    await rig.manager.ready(rig.parent)
    expect(
      rig.manager
        .list(rig.parent)
        .map(({ task }) => task.id)
        .toSorted(),
    ).toEqual([id, fork.id].toSorted())
    await rig.ended(fork.id)
    await rig.ended(id)
    expect(rig.notices()).toHaveLength(2)
  })

  test("a task interrupted long ago is reported after a crash without waking its parent", async () => {
    const { rig, id } = await running()
    rig.crash()
    await rig.clock.advance(3_600_000)
    rig.restart()
    await rig.manager.recover()
    await rig.ended(id)
    await rig.clock.advance(10_000)
    expect(rig.notices()).toHaveLength(1)
    expect(rig.answers()).toEqual([])
  })

  test.each(["recordsSince", "messagesSince", "recordsOf"])(
    "after a crash, recovery is repeated at the next use if OpenCode fails at %s",
    async (failing) => {
      const { rig, id } = await running()
      rig.restart()
      rig.opencode.onCall = (method) => (method === failing ? { fail: new OpencodeError("not yet") } : undefined)
      const recovering = rig.manager.recover()
      await rig.clock.advance(5000)
      await recovering
      await rig.manager.ready(rig.parent)
      rig.opencode.onCall = () => undefined
      await rig.manager.ready(rig.parent)
      expect((await rig.ended(id)).status).toBe("error")
      await rig.clock.advance(60_000)
      expect(rig.notices()).toHaveLength(1)
    },
  )
})

test("a cleared task does not come back even if its record could not be removed", async () => {
  const { rig } = await running()
  rig.opencode.onCall = (method) => (method === "saveRecord" ? { fail: new OpencodeError("no") } : undefined)
  const clearing = rig.manager.clear(rig.parent)
  await rig.clock.advance(10_000)
  await clearing
  await rig.manager.recover()
  await rig.clock.advance(10_000)
  expect(rig.manager.list(rig.parent)).toEqual([])
  expect(rig.notices()).toEqual([])
})

describe("another process on the project", () => {
  const second = (rig: Rig) => {
    const { opencode, manager } = rig
    const other = new Rig({ options: rig.options as never, share: { clock: rig.clock, database: opencode.database } })
    return { first: { opencode, manager }, other }
  }

  test("another process shows a living process's task, but cannot cancel or clear it", async () => {
    const { rig, id } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    await other.manager.ready(rig.parent)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { id, status: "running" } }])
    // Not that nothing runs: its caller would believe that.
    for (const selector of [{ type: "task", reference: id } as const, { type: "all" } as const])
      await expect(other.manager.cancel(selector, rig.caller)).rejects.toThrow(
        "is run by another OpenCode process. Only the user can cancel it, there.",
      )
    await expect(other.manager.resume(id, { prompt: "more" }, rig.caller)).rejects.toThrow(
      "is run by another OpenCode process. It can be resumed once it has ended there",
    )
    expect(await other.manager.clear(rig.parent)).toEqual({ cleared: 0, stopped: 0, left: 1 })
    await rig.clock.advance(30_000)
    expect(rig.task(id).status).toBe("running")
    expect(rig.notices()).toEqual([])
  })

  test.each(["a while", "a moment"])(
    "of two processes that resume the same task %s apart, only one does so",
    async (apart) => {
      const rig = new Rig()
      const { id, sessionID } = await rig.ended((await rig.launch()).id)
      await rig.clock.advance(20_000)
      const { other } = second(rig)
      await other.manager.ready(rig.parent)
      const asked = () => rig.opencode.stored(sessionID).messages.filter(({ role }) => role === "user").length
      const before = asked()
      const again = async ({ manager }: Rig) =>
        manager.resume(id, { prompt: "again" }, rig.caller).catch((error) => error)
      const seen = await other.opencode.session(sessionID)
      await again(rig)
      await rig.clock.advance(300)
      if (apart === "a moment") other.opencode.session = async () => seen
      const fail = new OpencodeError("taken over", { takenOver: true })
      other.opencode.onCall = (method) => (method === "saveRecord" ? { fail } : undefined)
      const result = await again(other)
      other.opencode.session = rig.opencode.session
      if (apart === "a while") expect(String(result)).toContain("is currently being resumed")
      await rig.clock.advance(60_000)
      expect(asked()).toBe(before + 1)
      expect([rig.task(id).status, other.task(id, rig.parent).status]).toEqual(["completed", "completed"])
      expect(rig.notices()).toHaveLength(2)
    },
  )

  test("a resume in another process continues from the last run, whichever process ran it", async () => {
    const rig = new Rig()
    const { id } = await rig.ended((await rig.launch()).id)
    await rig.clock.advance(20_000)
    const { other } = second(rig)
    await other.manager.ready(rig.parent)
    const asked = { ...rig.caller }
    await other.manager.resume(id, { prompt: "again" }, asked)
    await rig.clock.advance(60_000)
    await rig.manager.resume(id, { prompt: "and again" }, asked)
    await rig.clock.advance(20_000)
    const { run, earlier } = rig.task(id)
    expect([run.generation, earlier.usage.cost]).toEqual([2, 0.002])
    expect(rig.notices().map(({ visible }) => visible.split(" ")[1])).toEqual(["**Agent", "**Resume", "**Resume"])
  })

  test("a call that waits for another process's task returns when the task ends there", async () => {
    const { rig, id, sessionID } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    const waiting = other.output(id, rig.caller, 600_000)
    await rig.clock.advance(1000)
    rig.opencode.abortByUser(sessionID)
    const since = rig.clock.now()
    let status: string | undefined
    void waiting.then(({ view }) => {
      status = view.task.status
    })
    await rig.clock.until(() => status !== undefined)
    expect(status).toBe("cancelled")
    expect(rig.clock.now() - since).toBeLessThan(60_000)
  })

  test("another process sees how a task ends, but does not notify of it", async () => {
    const { rig, id, sessionID } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    rig.opencode.abortByUser(sessionID)
    await rig.ended(id)
    await rig.clock.advance(20_000)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { status: "cancelled" } }])
    expect(rig.notices()).toHaveLength(1)
    expect(other.timers.pending).toBe(0)
  })

  test("another process takes over a task when the process that ran it dies", async () => {
    const { rig, id } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    rig.crash()
    await rig.clock.advance(30_000)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { id, status: "error" } }])
    expect(rig.notices()).toHaveLength(1)
  })

  test("a question that an agent asked while no process owned its task is refused at the takeover", async () => {
    const { rig, id, sessionID } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    rig.crash()
    other.opencode.asking.add("bash")
    other.script(({ lastUser }) => (lastUser === "GO ON" ? { tools: [{ name: "bash", args: {} }] } : undefined))
    other.opencode.say(sessionID, "GO ON")
    await rig.clock.advance(1000)
    expect(await other.opencode.openAsks()).toMatchObject([{ sessionID, what: "bash" }])
    await rig.clock.advance(30_000)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { id, status: "error" } }])
    expect(await other.opencode.openAsks()).toEqual([])
  })

  test("another process takes over a dead process's task in time even if the clock was set back", async () => {
    const { rig, id } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    await rig.clock.advance(20_000)
    rig.clock.setBack(3_600_000)
    rig.crash()
    await rig.clock.advance(30_000)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { id, status: "error" } }])
  })

  test("another process sends the notification that a dead process had not sent", async () => {
    const { rig, id, sessionID } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    rig.opencode.onCall = (method) => (method === "persona" ? { fail: new OpencodeError("no") } : undefined)
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    await rig.clock.advance(20_000)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { status: "cancelled" } }])
    expect((await rig.opencode.session(sessionID))?.record?.task.delivery.state).toBe("pending")
    rig.crash()
    await rig.clock.advance(30_000)
    expect(rig.notices()).toHaveLength(1)
    expect(other.timers.pending).toBe(0)
  })

  test("another process shows a task's tool calls and usage from its messages", async () => {
    const rig = new Rig()
    rig.script(({ lastUser, toolResults }) => {
      if (!lastUser.includes("FIND")) return undefined
      return toolResults.length < 2 ? { tools: [{ name: "read", args: {} }] } : { hang: true, text: "so far" }
    })
    await rig.launch()
    await rig.clock.advance(1000)
    const { other } = second(rig)
    await other.manager.ready(rig.parent)
    const [view] = other.manager.list(rig.parent)
    expect(view).toMatchObject({ thisRun: { toolCalls: 2 }, recentTools: ["read", "read"], phase: "working" })
    expect(view?.thisRun.usage.output).toBe(40)
  })

  test("another process reads the records of a parent's tasks with one call each ten seconds", async () => {
    const { rig } = await running()
    for (const prompt of ["FIND a", "FIND b"]) await rig.launch({ prompt })
    const { other } = second(rig)
    await other.manager.recover()
    const before = other.opencode.calls.length
    await rig.clock.advance(30_000)
    const reads = other.opencode.calls.slice(before).filter((call) => call === "session" || call === "recordsOf")
    expect(reads).toEqual(["recordsOf", "recordsOf", "recordsOf"])
  })

  test("another process does not forget a task only because its session could not be read", async () => {
    const { rig, id } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    other.opencode.onCall = (method) => (method === "session" ? { fail: new OpencodeError("busy") } : undefined)
    await other.manager.ready(rig.parent)
    await rig.clock.advance(30_000)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { id } }])
    rig.crash()
    other.opencode.onCall = () => undefined
    await rig.clock.advance(30_000)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { id, status: "error" } }])
    expect(rig.notices()).toHaveLength(1)
  })

  test.each([
    ["forgets what the first one cleared, and looks at it no more", {}],
    ["the same of what is still to be paid for", { maxCostPerSession: 100 }],
  ])("another process on the same project: %s", async (_what, options) => {
    const rig = new Rig({ options })
    rig.script(({ lastUser, toolResults }) =>
      lastUser === "FIND"
        ? toolResults.length > 0
          ? { hang: true }
          : { tools: [{ name: "read", args: {} }] }
        : undefined,
    )
    const { id } = await rig.launch()
    await rig.clock.advance(100)
    const { other } = second(rig)
    await other.manager.recover()
    const waiting = other.output(id, rig.caller, 600_000).catch((error: Error) => error.message)
    const begun = rig.clock.now()
    await rig.manager.clear(rig.parent)
    await rig.clock.until(() => other.manager.list(rig.parent).length === 0)
    expect(await waiting).toContain("was cleared")
    expect(rig.clock.now() - begun).toBeLessThan(20_000)
    await rig.clock.advance(20_000)
    expect(other.timers.pending).toBe(0)
  })

  test("two processes that recover a task at the same time send its notification once", async () => {
    for (const finished of [true, false]) {
      const { rig, id, sessionID } = await running()
      rig.crash()
      const last = rig.opencode.stored(sessionID).messages.at(-1)
      if (finished) Object.assign(last ?? {}, { finish: "stop", completedAt: rig.clock.now() })
      const share = { clock: rig.clock, database: rig.opencode.database }
      const [one, two] = [new Rig({ share }), new Rig({ share })]
      const recovering = [one.manager.recover()]
      await rig.clock.advance(1)
      recovering.push(two.manager.recover())
      await Promise.all(recovering)
      await rig.clock.advance(60_000)
      expect(rig.notices()).toHaveLength(1)
      const record = (await one.opencode.session(sessionID))?.record?.task
      expect(record).toMatchObject({ id, status: finished ? "completed" : "error", delivery: { state: "confirmed" } })
    }
  })

  test("another process forgets a task whose session was deleted", async () => {
    const { rig, sessionID } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    rig.opencode.deleteByUser(sessionID)
    await other.manager.ready(rig.parent)
    expect(other.manager.list(rig.parent)).toEqual([])
  })

  test("a process whose task was taken over no longer writes, ends or continues it", async () => {
    const { rig, id, sessionID } = await running({ stallTimeout: 0, taskTimeout: 0 })
    const { other } = second(rig)
    const fail = new OpencodeError("taken over", { takenOver: true })
    rig.opencode.onCall = (method) => (method === "saveRecord" ? { fail } : undefined)
    rig.opencode.database.strangers = true
    await rig.clock.advance(LEASE_MS)
    await other.opencode.saveRecord(sessionID, rig.task(id))
    rig.opencode.calls.length = 0
    await expect(rig.manager.cancel({ type: "all" }, rig.caller)).rejects.toThrow("run by another OpenCode process")
    expect(rig.opencode.isWorking(sessionID)).toBe(false)
    rig.opencode.abortByUser(sessionID)
    await rig.clock.advance(20_000)
    expect(rig.task(id).status).toBe("running")
    expect(rig.opencode.calls).not.toContain("saveRecord")
    expect(rig.errors()).toEqual([])
  })

  test.each([
    ["runs", {}],
    ["waits", { after: ["bg_aaaaaaa1"] }],
  ])("a process renews the lease of a task that %s, even without polling and limits", async (_how, request) => {
    const { rig, id } = await running({ pollInterval: 0, stallTimeout: 0, taskTimeout: 0 })
    const { sessionID } = "after" in request ? await rig.launch(request) : rig.task(id)
    await rig.clock.advance(1000)
    for (let look = 0; look < 3; look++) {
      const seenAt = (await rig.opencode.session(sessionID))?.record?.owner.seenAt ?? 0
      await rig.clock.advance(LEASE_MS - 1000)
      expect((await rig.opencode.session(sessionID))?.record?.owner.seenAt).toBeGreaterThan(seenAt)
    }
  })

  test("another process does not write the record of a task that its owner looks after", async () => {
    const rig = new Rig()
    rig.onPrompt("AGAIN", { text: "second", delay: 30_000 })
    const { id, sessionID } = await rig.ended((await rig.launch()).id)
    await rig.clock.advance(1000)
    const { other } = second(rig)
    await other.manager.ready(rig.parent)
    expect(await other.output(id, rig.caller)).toMatchObject({ answer: "ok" })
    await rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
    await rig.clock.advance(20_000)
    expect((await rig.opencode.session(sessionID))?.record?.task.run.generation).toBe(1)
    expect(other.opencode.calls).not.toContain("saveRecord")
  })

  test("another process cannot resume a task whose end its owner has not reported yet", async () => {
    const rig = new Rig()
    const { id } = await rig.launch()
    const { undoneFrom, messages } = rig.opencode.stored(rig.parent)
    rig.opencode.stored(rig.parent).undoneFrom = messages[0]?.id
    await rig.clock.until(() => rig.task(id).status === "completed")
    await rig.clock.advance(5000)
    const { other } = second(rig)
    await other.manager.ready(rig.parent)
    const resume = () => other.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
    await expect(resume()).rejects.toThrow("ended in another OpenCode process, which has not told of that yet")
    expect(other.task(id, rig.parent).status).toBe("completed")
    rig.opencode.stored(rig.parent).undoneFrom = undoneFrom
    await rig.ended(id)
    await rig.clock.advance(15_000)
    await other.manager.ready(rig.parent)
    await resume()
    expect(await other.ended(id, rig.parent)).toMatchObject({ status: "completed", run: { generation: 1 } })
  })

  test("a process renews the lease of its running task regularly", async () => {
    const { rig, task } = await running({ stallTimeout: 0 })
    const seen = async () => (await rig.opencode.session(task.sessionID))?.record?.owner.seenAt ?? 0
    const before = await seen()
    await rig.clock.advance(LEASE_MS)
    expect((await seen()) - before).toBeGreaterThan(LEASE_MS / 2)
  })
})

test("the fake OpenCode's second process counts as a process of its own", () => {
  const rig = new Rig()
  const opencode = new FakeApi({ clock: rig.clock, database: rig.opencode.database, instance: "another" })
  expect(opencode.ownership(rig.opencode.owner)).toBe("alive")
  rig.opencode.kill()
  expect(opencode.ownership(rig.opencode.owner)).toBe("dead")
})

test.each([0, 1000])(
  "after a restart, notifications come in the order of the ends, although the first claim takes %i ms longer",
  async (slow) => {
    const rig = new Rig({ options: { wake: "never" } })
    rig.onPrompt("SLOW", { text: "slow", delay: 20_000 })
    rig.onPrompt("QUICK", { text: "quick", delay: 5000 })
    rig.onPrompt("TALK", { hang: true, text: "hm" })
    await rig.launch({ prompt: "SLOW", description: "slow" })
    const { sessionID } = await rig.launch({ prompt: "QUICK", description: "quick" })
    await rig.clock.advance(100)
    // While the parent works, messages that do not wake it wait.
    rig.opencode.say(rig.parent, "TALK")
    await rig.clock.advance(60_000)
    expect(rig.notices()).toEqual([])
    rig.restart()
    rig.opencode.onCall = (method, of) => (method === "saveRecord" && of === sessionID ? { slow } : undefined)
    await rig.manager.recover()
    await rig.clock.advance(60_000)
    expect(rig.notices().map(({ visible }) => visible.split("\n")[0])).toEqual([
      '✓ **Agent "quick" finished in 5s.**',
      '✓ **Agent "slow" finished in 20s.**',
    ])
  },
)

test("after a restart, a cancel whose record could not be written is the end that its parent was told", async () => {
  const { rig, id } = await running()
  rig.opencode.onCall = (method) => (method === "saveRecord" ? { fail: new OpencodeError("no") } : undefined)
  const cancelling = rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  await rig.clock.advance(60_000)
  await cancelling
  expect(rig.notices()[0]?.hidden).toContain("cancelled, by your own call.")
  rig.restart()
  await rig.manager.recover()
  expect((await rig.ended(id)).status).toBe("cancelled")
  expect(rig.notices()).toHaveLength(1)
})
