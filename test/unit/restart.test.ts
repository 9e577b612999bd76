import { describe, expect, test } from "vitest"
import { HostError, LEASE_MS } from "../../src/core/ports.ts"
import { FakeHost } from "../support/fake-host.ts"
import { Rig, running } from "../support/rig.ts"

describe("after a crash and a restart", () => {
  test("a task that ran is ended as interrupted, told once, and its parent woken", async () => {
    const { rig, id, sessionID } = await running()
    rig.restart()
    await rig.manager.recover()
    const task = await rig.ended(id)
    await rig.clock.advance(60_000)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "interrupted" } } })
    expect(rig.notices()).toHaveLength(1)
    expect(rig.notices()[0]?.hidden).toContain("it was interrupted")
    expect(rig.answers()).toHaveLength(1)
    expect((await rig.host.session(sessionID))?.record?.task.status).toBe("error")
    expect(rig.timers.pending).toBe(0)
    rig.restart()
    await rig.manager.recover()
    await rig.clock.advance(60_000)
    expect(rig.notices()).toHaveLength(1)
  })

  describe("a parent that its user had stopped", () => {
    /** Parent at work when its user pressed ESC; its agent still is. */
    const stopped = async () => {
      const all = await running()
      all.rig.onPrompt("THINK", { hang: true, text: "hm" })
      all.rig.host.say(all.rig.parent, "THINK")
      await all.rig.clock.advance(100)
      all.rig.host.abortByUser(all.rig.parent)
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

    test("is told without being woken, and woken again by what ends after its user has written", async () => {
      const all = await stopped()
      await all.rig.clock.advance(2000)
      expect(await asked(all)).toBe(0)
      all.rig.host.say(all.rig.parent, "go on")
      await all.rig.clock.advance(2000)
      const before = all.rig.answers().length
      all.rig.onPrompt("NEXT", { text: "next is done" })
      await all.rig.ended((await all.rig.launch({ prompt: "NEXT" })).id)
      await all.rig.clock.advance(2000)
      expect(all.rig.answers().length - before).toBe(1)
    })

    test("is woken where its user has written since", async () => {
      const all = await stopped()
      await all.rig.clock.advance(2000)
      all.rig.host.say(all.rig.parent, "go on")
      await all.rig.clock.advance(2000)
      expect(await asked(all)).toBe(1)
    })

    test("is woken where OpenCode's own end has stopped it", async () => {
      const all = await stopped()
      await all.rig.clock.advance(100)
      expect(await asked(all)).toBe(1)
    })
  })

  test("a task that had finished, unheard, is told as finished", async () => {
    const { rig, id, sessionID } = await running()
    rig.crash()
    const last = rig.host.stored(sessionID).messages.at(-1)
    if (last)
      Object.assign(last, { finish: "stop", parts: [{ type: "text", id: "p", text: "done", synthetic: false }] })
    rig.restart()
    await rig.manager.recover()
    expect((await rig.ended(id)).status).toBe("completed")
    expect((await rig.manager.output(id, rig.caller)).answer).toBe("done")
  })

  test("an end has the time of the child's last message, however late it is found", async () => {
    const { rig, id, sessionID } = await running()
    await rig.clock.advance(60_000)
    const last = rig.host.stored(sessionID).messages.at(-1)
    rig.crash()
    last?.parts.push({ type: "text", id: "prt_last", text: "done", synthetic: false })
    Object.assign(last ?? {}, { finish: "stop", completedAt: rig.clock.now() })
    await rig.clock.advance(8 * 3_600_000)
    rig.restart()
    await rig.manager.recover()
    expect((await rig.ended(id)).run.endedAt).toBe(last?.completedAt)
    expect(rig.notices()[0]?.visible).toContain("finished in 1m")
  })

  test("an interrupted run ended when its owner was last seen, not when that was found", async () => {
    const { rig, id, sessionID } = await running()
    const begun = rig.host.stored(sessionID).messages.at(-1)?.createdAt ?? 0
    rig.crash()
    await rig.clock.advance(8 * 3_600_000)
    rig.restart()
    await rig.manager.recover()
    expect((await rig.ended(id)).run.endedAt).toBe(begun)
  })

  test("tasks are listed oldest first", async () => {
    const rig = new Rig()
    const ids = []
    for (let count = 0; count < 3; count++) {
      ids.push((await rig.launch()).id)
      await rig.clock.advance(1000)
    }
    rig.restart()
    const records = rig.host.recordsOf.bind(rig.host)
    rig.host.recordsOf = async (parent) => (await records(parent)).toReversed()
    await rig.manager.ready(rig.parent)
    expect(rig.manager.list(rig.parent).map(({ task }) => task.id)).toEqual(ids)
  })

  test("what could not be settled at the start is settled when the host answers, unasked", async () => {
    const { rig, id } = await running()
    rig.restart()
    rig.host.onCall = (method) => (method === "messagesSince" ? { fail: new HostError("not yet") } : undefined)
    await rig.manager.recover()
    rig.host.onCall = () => undefined
    await rig.clock.advance(30_000)
    expect(rig.task(id).status).toBe("error")
    expect(rig.notices()).toHaveLength(1)
    expect(rig.timers.pending).toBe(0)
  })

  test("a task that had failed, unheard, is told as failed", async () => {
    const { rig, id, sessionID } = await running()
    rig.crash()
    const last = rig.host.stored(sessionID).messages.at(-1)
    if (last) last.error = { name: "APIError", message: "no such luck" }
    rig.restart()
    await rig.manager.recover()
    expect((await rig.ended(id)).outcome?.reason).toEqual({ code: "provider", text: "no such luck" })
  })

  test("a queued task is not started, but told as interrupted before it began", async () => {
    const { rig, id } = await running({ maxConcurrentTasks: 1 })
    const queued = await rig.launch({ prompt: "SECOND" })
    rig.restart()
    await rig.manager.recover()
    expect((await rig.ended(id)).status).toBe("error")
    expect((await rig.ended(queued.id)).outcome?.reason).toEqual({
      code: "interrupted",
      text: "OpenCode stopped or was restarted before it began: it was interrupted. Launch it again if it is still needed.",
    })
    expect(rig.host.stored(queued.sessionID).messages).toEqual([])
    expect(rig.notices()).toHaveLength(2)
  })

  test("a task that was ended and not told is told", async () => {
    const rig = new Rig()
    const { id } = await rig.launch()
    rig.host.onCall = (method) => (method === "persona" ? "crash" : undefined)
    await rig.clock.advance(10_000)
    expect(rig.notices()).toEqual([])
    rig.restart()
    await rig.manager.recover()
    expect((await rig.ended(id)).status).toBe("completed")
    expect(rig.notices()).toHaveLength(1)
  })

  test("a task that was told and not recorded as told is not told again", async () => {
    const rig = new Rig()
    const { id } = await rig.launch()
    rig.host.onCall = (method) => (method === "hasMessage" ? "crash" : undefined)
    await rig.clock.advance(10_000)
    // The host had accepted it: here, before the process died.
    rig.restart()
    await rig.manager.recover()
    const before = rig.notices().length
    expect((await rig.ended(id)).delivery.state).toBe("confirmed")
    await rig.clock.advance(60_000)
    expect(rig.notices()).toHaveLength(Math.max(1, before))
  })

  test("a told task whose record says so only later is not told again, nor by a second restart", async () => {
    const rig = new Rig()
    const { id, sessionID } = await rig.launch()
    rig.host.onCall = (method) => (method === "saveRecord" ? "forget" : undefined)
    await rig.ended(id)
    const state = async () => (await rig.host.session(sessionID))?.record?.task.delivery.state
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

  test("a notification that the dying host stored without its texts is stored whole", async () => {
    const rig = new Rig()
    const { id } = await rig.launch()
    rig.host.onCall = (method) => (method === "hasMessage" ? "crash" : undefined)
    await rig.clock.advance(10_000)
    const { messages } = rig.host.stored(rig.parent)
    const half = messages.findLast(({ role }) => role === "user")
    half?.parts.splice(1)
    rig.restart()
    await rig.manager.recover()
    expect((await rig.ended(id)).delivery.state).toBe("confirmed")
    expect(rig.host.stored(rig.parent).messages.filter((message) => message.id === half?.id)).toHaveLength(1)
    expect(rig.host.stored(rig.parent).messages.find((message) => message.id === half?.id)?.parts).toHaveLength(2)
  })

  test("a told task is known again, with its answer, and can be resumed", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "the answer" })
    const { id } = await rig.launch()
    await rig.ended(id)
    await rig.clock.advance(1000)
    rig.restart()
    await rig.manager.ready(rig.parent)
    expect((await rig.manager.output(id, rig.caller)).answer).toBe("the answer")
    await rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
    await rig.ended(id)
    await rig.clock.advance(1000)
    expect(rig.notices()).toHaveLength(2)
  })

  test("a session's tasks are there at its first use, without a start's look; its forks too", async () => {
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

  test("of long ago a parent is told without being woken", async () => {
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
    "a host that fails at %s is asked again at the next use",
    async (failing) => {
      const { rig, id } = await running()
      rig.restart()
      rig.host.onCall = (method) => (method === failing ? { fail: new HostError("not yet") } : undefined)
      const recovering = rig.manager.recover()
      await rig.clock.advance(5000)
      await recovering
      await rig.manager.ready(rig.parent)
      rig.host.onCall = () => undefined
      await rig.manager.ready(rig.parent)
      expect((await rig.ended(id)).status).toBe("error")
      await rig.clock.advance(60_000)
      expect(rig.notices()).toHaveLength(1)
    },
  )
})

test("a cleared task does not come back although its record could not be removed", async () => {
  const { rig } = await running()
  rig.host.onCall = (method) => (method === "saveRecord" ? { fail: new HostError("no") } : undefined)
  const clearing = rig.manager.clear(rig.parent)
  await rig.clock.advance(10_000)
  await clearing
  await rig.manager.recover()
  await rig.clock.advance(10_000)
  expect(rig.manager.list(rig.parent)).toEqual([])
  expect(rig.notices()).toEqual([])
})

describe("another process on the same project", () => {
  const second = (rig: Rig) => {
    const { host, manager } = rig
    const other = new Rig({ options: rig.options as never, share: { clock: rig.clock, database: host.database } })
    return { first: { host, manager }, other }
  }

  test("shows what a living one runs, and leaves it alone", async () => {
    const { rig, id } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    await other.manager.ready(rig.parent)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { id, status: "running" } }])
    // Not that nothing runs: its caller would believe that.
    for (const selector of [{ type: "task", reference: id } as const, { type: "all" } as const])
      await expect(other.manager.cancel(selector, rig.caller)).rejects.toThrow(
        "is run by another OpenCode process. Cancel it there.",
      )
    expect(await other.manager.clear(rig.parent)).toEqual({ cleared: 0, stopped: 0, left: 1 })
    await rig.clock.advance(30_000)
    expect(rig.task(id).status).toBe("running")
    expect(rig.notices()).toEqual([])
  })

  test.each(["a while", "a moment"])(
    "asks again what ended there; of two that do so %s apart one does",
    async (apart) => {
      const rig = new Rig()
      const { id, sessionID } = await rig.ended((await rig.launch()).id)
      await rig.clock.advance(20_000)
      const { other } = second(rig)
      await other.manager.ready(rig.parent)
      const asked = () => rig.host.stored(sessionID).messages.filter(({ role }) => role === "user").length
      const before = asked()
      const again = async ({ manager }: Rig) =>
        manager.resume(id, { prompt: "again" }, rig.caller).catch((error) => error)
      const seen = await other.host.session(sessionID)
      await again(rig)
      await rig.clock.advance(300)
      if (apart === "a moment") other.host.session = async () => seen
      const fail = new HostError("taken over", { takenOver: true })
      other.host.onCall = (method) => (method === "saveRecord" ? { fail } : undefined)
      const result = await again(other)
      other.host.session = rig.host.session
      if (apart === "a while") expect(String(result)).toContain("is currently being resumed")
      await rig.clock.advance(60_000)
      expect(asked()).toBe(before + 1)
      expect([rig.task(id).status, other.task(id, rig.parent).status]).toEqual(["completed", "completed"])
      expect(rig.notices()).toHaveLength(2)
    },
  )

  test("goes on from the last run there was, in whichever process that was", async () => {
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

  test("a call that waits for it comes back when it ends there", async () => {
    const { rig, id, sessionID } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    const waiting = other.manager.output(id, rig.caller, 600_000)
    await rig.clock.advance(1000)
    rig.host.abortByUser(sessionID)
    const since = rig.clock.now()
    let status: string | undefined
    void waiting.then(({ view }) => {
      status = view.task.status
    })
    await rig.clock.until(() => status !== undefined)
    expect(status).toBe("cancelled")
    expect(rig.clock.now() - since).toBeLessThan(60_000)
  })

  test("sees how it ends there, and says nothing of it", async () => {
    const { rig, id, sessionID } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    rig.host.abortByUser(sessionID)
    await rig.ended(id)
    await rig.clock.advance(20_000)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { status: "cancelled" } }])
    expect(rig.notices()).toHaveLength(1)
    expect(other.timers.pending).toBe(0)
  })

  test("takes over what the first one ran when that one dies", async () => {
    const { rig, id } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    rig.crash()
    await rig.clock.advance(30_000)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { id, status: "error" } }])
    expect(rig.notices()).toHaveLength(1)
  })

  test("takes it over within half a minute also where the clock has been set back", async () => {
    const { rig, id } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    await rig.clock.advance(20_000)
    rig.clock.setBack(3_600_000)
    rig.crash()
    await rig.clock.advance(30_000)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { id, status: "error" } }])
  })

  test("tells what the first one had ended and not told when it died", async () => {
    const { rig, id, sessionID } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    rig.host.onCall = (method) => (method === "persona" ? { fail: new HostError("no") } : undefined)
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    await rig.clock.advance(20_000)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { status: "cancelled" } }])
    expect((await rig.host.session(sessionID))?.record?.task.delivery.state).toBe("pending")
    rig.crash()
    await rig.clock.advance(30_000)
    expect(rig.notices()).toHaveLength(1)
    expect(other.timers.pending).toBe(0)
  })

  test("shows how much its work was, read from its messages", async () => {
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

  test("does not forget a task because its session could not be read", async () => {
    const { rig, id } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    other.host.onCall = (method) => (method === "session" ? { fail: new HostError("busy") } : undefined)
    await other.manager.ready(rig.parent)
    await rig.clock.advance(30_000)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { id } }])
    rig.crash()
    other.host.onCall = () => undefined
    await rig.clock.advance(30_000)
    expect(other.manager.list(rig.parent)).toMatchObject([{ task: { id, status: "error" } }])
    expect(rig.notices()).toHaveLength(1)
  })

  test.each([
    ["forgets what the first one cleared, and looks at it no more", {}],
    ["the same of what is still to be paid for", { maxCostPerSession: 100 }],
  ])("%s", async (_what, options) => {
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
    const waiting = other.manager.output(id, rig.caller, 600_000).catch((error: Error) => error.message)
    const begun = rig.clock.now()
    await rig.manager.clear(rig.parent)
    await rig.clock.until(() => other.manager.list(rig.parent).length === 0)
    expect(await waiting).toContain("was cleared")
    expect(rig.clock.now() - begun).toBeLessThan(20_000)
    await rig.clock.advance(20_000)
    expect(other.timers.pending).toBe(0)
  })

  test("that recovers at the same time tells the same message", async () => {
    for (const finished of [true, false]) {
      const { rig, id, sessionID } = await running()
      rig.crash()
      const last = rig.host.stored(sessionID).messages.at(-1)
      if (finished) Object.assign(last ?? {}, { finish: "stop", completedAt: rig.clock.now() })
      const share = { clock: rig.clock, database: rig.host.database }
      const [one, two] = [new Rig({ share }), new Rig({ share })]
      const recovering = [one.manager.recover()]
      await rig.clock.advance(1)
      recovering.push(two.manager.recover())
      await Promise.all(recovering)
      await rig.clock.advance(60_000)
      expect(rig.notices()).toHaveLength(1)
      const record = (await one.host.session(sessionID))?.record?.task
      expect(record).toMatchObject({ id, status: finished ? "completed" : "error", delivery: { state: "confirmed" } })
    }
  })

  test("forgets a task whose session is gone", async () => {
    const { rig, sessionID } = await running()
    const { other } = second(rig)
    await other.manager.recover()
    rig.host.deleteByUser(sessionID)
    await other.manager.ready(rig.parent)
    expect(other.manager.list(rig.parent)).toEqual([])
  })

  test("that took a task over has it: what ran it here writes and ends it no more, and does not go on with it", async () => {
    const { rig, id, sessionID } = await running({ stallTimeout: 0, taskTimeout: 0 })
    const { other } = second(rig)
    const fail = new HostError("taken over", { takenOver: true })
    rig.host.onCall = (method) => (method === "saveRecord" ? { fail } : undefined)
    rig.host.database.strangers = true
    await rig.clock.advance(LEASE_MS)
    await other.host.saveRecord(sessionID, rig.task(id))
    rig.host.calls.length = 0
    await expect(rig.manager.cancel({ type: "all" }, rig.caller)).rejects.toThrow("run by another OpenCode process")
    expect(rig.host.isWorking(sessionID)).toBe(false)
    rig.host.abortByUser(sessionID)
    await rig.clock.advance(20_000)
    expect(rig.task(id).status).toBe("running")
    expect(rig.host.calls).not.toContain("saveRecord")
    expect(rig.errors()).toEqual([])
  })

  test.each([
    ["runs", {}],
    ["waits", { after: ["bg_aaaaaaa1"] }],
  ])(
    "learns now and then that one that %s is looked after, also where nothing is polled and no limit is near",
    async (_how, request) => {
      const { rig, id } = await running({ pollInterval: 0, stallTimeout: 0, taskTimeout: 0 })
      const { sessionID } = "after" in request ? await rig.launch(request) : rig.task(id)
      await rig.clock.advance(1000)
      for (let look = 0; look < 3; look++) {
        const seenAt = (await rig.host.session(sessionID))?.record?.owner.seenAt ?? 0
        await rig.clock.advance(LEASE_MS - 1000)
        expect((await rig.host.session(sessionID))?.record?.owner.seenAt).toBeGreaterThan(seenAt)
      }
    },
  )

  test("writes nothing of a task that the first one looks after, though it has ended", async () => {
    const rig = new Rig()
    rig.onPrompt("AGAIN", { text: "second", delay: 30_000 })
    const { id, sessionID } = await rig.ended((await rig.launch()).id)
    await rig.clock.advance(1000)
    const { other } = second(rig)
    await other.manager.ready(rig.parent)
    expect(await other.manager.output(id, rig.caller)).toMatchObject({ firstLook: false, answer: "ok" })
    await rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
    await rig.clock.advance(20_000)
    expect((await rig.host.session(sessionID))?.record?.task.run.generation).toBe(1)
    expect(other.host.calls).not.toContain("saveRecord")
  })

  test("does not resume what the first one has ended and not told of: nobody would look after it", async () => {
    const rig = new Rig()
    const { id } = await rig.launch()
    const { undoneFrom, messages } = rig.host.stored(rig.parent)
    rig.host.stored(rig.parent).undoneFrom = messages[0]?.id
    await rig.clock.until(() => rig.task(id).status === "completed")
    await rig.clock.advance(5000)
    const { other } = second(rig)
    await other.manager.ready(rig.parent)
    const resume = () => other.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
    await expect(resume()).rejects.toThrow("ended in another OpenCode process, which has not told of that yet")
    expect(other.task(id, rig.parent).status).toBe("completed")
    rig.host.stored(rig.parent).undoneFrom = undoneFrom
    await rig.ended(id)
    await rig.clock.advance(15_000)
    await other.manager.ready(rig.parent)
    await resume()
    expect(await other.ended(id, rig.parent)).toMatchObject({ status: "completed", run: { generation: 1 } })
  })

  test("knows by its renewed lease that a task is looked after", async () => {
    const { rig, task } = await running({ stallTimeout: 0 })
    const seen = async () => (await rig.host.session(task.sessionID))?.record?.owner.seenAt ?? 0
    const before = await seen()
    await rig.clock.advance(LEASE_MS)
    expect((await seen()) - before).toBeGreaterThan(LEASE_MS / 2)
  })
})

test("the fake host's second process is a process of its own", () => {
  const rig = new Rig()
  const host = new FakeHost({ clock: rig.clock, database: rig.host.database, instance: "another" })
  expect(host.ownership(rig.host.owner)).toBe("alive")
  rig.host.kill()
  expect(host.ownership(rig.host.owner)).toBe("dead")
})
