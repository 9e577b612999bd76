import { describe, expect, test } from "vitest"
import type { Reply } from "../../support/model.ts"
import { Rig, type RigOptions } from "../../support/rig.ts"

const CACHED = { input: 10, cached: 5000 }
const SECOND = 1000

/** A process in which a model has told of its cache, and tasks that answer when they are asked. */
const rigged = async (reply: Reply = { text: "found", delay: SECOND }, options: RigOptions["options"] = {}) => {
  const rig = new Rig({ options })
  rig.onPrompt("FIND", reply)
  await told(rig)
  return rig
}

/** Another agent's answer tells of the cache. */
const told = async (rig: Rig, usage: object = CACHED) => {
  rig.onPrompt("WARM", { text: "warm", usage })
  await rig.ended((await rig.launch({ prompt: "WARM", agent: "build" })).id)
}

const three = async (rig: Rig, change: Parameters<Rig["launch"]>[0] = {}) => [
  await rig.launch(change),
  await rig.launch(change),
  await rig.launch(change),
]
const phases = (rig: Rig) => rig.manager.list(rig.parent).flatMap(({ phase }) => phase ?? [])
const asked = (rig: Rig, sessionID: string) => rig.opencode.stored(sessionID).messages.length > 0

describe("fresh tasks of one message", () => {
  test("fresh tasks of one message wait until the first one's answer begins, then are all prompted at once", async () => {
    const rig = await rigged()
    const [first, second, third] = await three(rig)
    expect(phases(rig)).toEqual(["working", `held behind ${first?.id}`, `held behind ${first?.id}`])
    expect(rig.view(second?.id ?? "").task).toMatchObject({ status: "running" })
    await rig.clock.advance(SECOND - 50)
    expect(asked(rig, second?.sessionID ?? "")).toBe(false)
    await rig.clock.advance(100)
    expect([second, third].map((task) => asked(rig, task?.sessionID ?? ""))).toEqual([true, true])
    for (const task of [first, second, third]) expect((await rig.ended(task?.id ?? "")).status).toBe("completed")
  })

  test("held tasks are prompted when the first ends without an answer or the hold time is over", async () => {
    const failing = await rigged({ status: 400 })
    const [, second] = await three(failing)
    await failing.clock.advance(200)
    expect(asked(failing, second?.sessionID ?? "")).toBe(true)
    const slow = await rigged({ text: "found", delay: 60 * SECOND }, { cacheHold: 3000 })
    const [, other] = await three(slow)
    await slow.clock.advance(2900)
    expect(asked(slow, other?.sessionID ?? "")).toBe(false)
    await slow.clock.advance(300)
    expect(asked(slow, other?.sessionID ?? "")).toBe(true)
  })

  test("a held task is prompted when the session of the first one cannot be created", async () => {
    const rig = await rigged()
    let making = 0
    const { createSession } = rig.opencode
    rig.opencode.createSession = async (...args) => {
      if (++making === 1) {
        await new Promise<void>((resolve) => void rig.clock.after(100, resolve))
        throw new Error("no")
      }
      return createSession.apply(rig.opencode, args)
    }
    const launches = [rig.launch(), rig.launch()].map((launch) => launch.catch(() => undefined))
    await rig.clock.advance(50)
    expect(phases(rig)).toHaveLength(1)
    expect(phases(rig)[0]).toMatch(/^held behind bg_/)
    await rig.clock.advance(100)
    const [, second] = await Promise.all(launches)
    expect(asked(rig, second?.sessionID ?? "")).toBe(true)
  })

  test("a task is prompted at once when the first one answers before its session is created", async () => {
    const rig = await rigged({ text: "found", delay: 50 })
    const { createSession } = rig.opencode
    let making = 0
    rig.opencode.createSession = async (...args) => {
      if (++making === 2) await new Promise<void>((resolve) => void rig.clock.after(400, resolve))
      return createSession.apply(rig.opencode, args)
    }
    const launches = [rig.launch(), rig.launch()]
    await rig.clock.advance(410)
    const [, second] = await Promise.all(launches)
    await rig.clock.advance(10)
    expect(asked(rig, second?.sessionID ?? "")).toBe(true)
  })

  test("held tasks of a nested session prepare their places after the hold and complete", async () => {
    const rig = await rigged(undefined, { maxDepth: 2 })
    rig.onPrompt("ABOVE", { hang: true })
    const { sessionID } = await rig.launch({ prompt: "ABOVE", agent: "plan" })
    await rig.clock.advance(100)
    const request = { model: "scripted/alpha" }
    const tasks = [await rig.launch(request, sessionID), await rig.launch(request, sessionID)]
    expect(rig.view(tasks[1]?.id ?? "", sessionID).phase).toBe(`held behind ${tasks[0]?.id}`)
    for (const task of tasks) expect((await rig.ended(task.id, sessionID)).status).toBe("completed")
  })

  test.each<[string, RigOptions["options"], Parameters<Rig["launch"]>[0]]>([
    ["the option is 0", { cacheHold: 0 }, {}],
    ["they are forks", {}, { fork: true }],
    ["they wait for a slot anyway", { maxConcurrentTasks: 1 }, {}],
  ])("fresh tasks of one message are not held where %s", async (_where, options, change) => {
    const rig = await rigged(undefined, options)
    await three(rig, change)
    expect(phases(rig).filter((phase) => phase.startsWith("held"))).toEqual([])
  })

  test("fresh tasks are not held when their model reports no cache or a similar task has just begun", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "found" })
    await told(rig, {})
    await three(rig)
    expect(phases(rig).filter((phase) => phase.startsWith("held"))).toEqual([])
    await rig.clock.advance(5000)
    await told(rig)
    await three(rig)
    expect(phases(rig).filter((phase) => phase.startsWith("held"))).toEqual([])
    await rig.clock.advance(241_000)
    await three(rig)
    expect(phases(rig).filter((phase) => phase.startsWith("held"))).toHaveLength(2)
  })

  test("a fresh task waits only for a sibling with the same agent, model and message", async () => {
    const rig = await rigged()
    const first = await rig.launch()
    await rig.launch({ agent: "plan" })
    await rig.launch({ model: "scripted/beta" })
    await rig.launch({}, rig.openParent())
    expect(phases(rig)).toEqual(["working", "working", "working"])
    const own = await rig.launch()
    expect(rig.view(own.id).phase).toBe(`held behind ${first.id}`)
  })
})

describe("a held task", () => {
  test("a message to a held task is added to the end of its prompt", async () => {
    const rig = await rigged()
    const [, second] = await three(rig)
    expect((await rig.manager.tell(second?.id ?? "", "AND MORE", rig.caller)).waits).toBe(true)
    await rig.clock.advance(SECOND + 50)
    const [prompt] = rig.opencode.stored(second?.sessionID ?? "").messages
    expect(prompt?.parts[0]).toMatchObject({ text: "FIND\n\nAND MORE" })
  })

  test.each(["cancel", "clear"] as const)("a held task that is ended by %s is never prompted", async (how) => {
    const rig = await rigged()
    const [first, second] = await three(rig)
    if (how === "cancel") await rig.manager.cancel({ type: "task", reference: second?.id ?? "" }, rig.caller)
    else await rig.manager.clear(rig.parent)
    await rig.clock.advance(10 * SECOND)
    expect(asked(rig, second?.sessionID ?? "")).toBe(false)
    expect(asked(rig, first?.sessionID ?? "")).toBe(true)
  })

  test("a held task ends at its time limit, because its clock runs", async () => {
    const rig = await rigged({ text: "found", delay: 60 * SECOND }, { cacheHold: 30_000, lastWord: 0 })
    await rig.launch()
    const { id, sessionID } = await rig.launch({ timeout: 2000 })
    const task = await rig.ended(id)
    expect(task.outcome?.reason?.code).toBe("timeout")
    expect((task.run.endedAt ?? 0) - (task.run.startedAt ?? 0)).toBe(2000)
    expect(asked(rig, sessionID)).toBe(false)
  })

  test("a held task ends when other tasks use up the limit of the session", async () => {
    const rig = await rigged({ text: "found", usage: { input: 900 }, delay: 100 }, { maxTokensPerSession: 1100 })
    rig.onPrompt("SPEND", { text: "much", usage: { input: 2000 }, delay: 300 })
    await rig.launch({ prompt: "SPEND", agent: "plan" })
    rig.onPrompt("FIND", { text: "found", delay: 10 * SECOND })
    const [, second] = await three(rig)
    await rig.clock.advance(1000)
    expect(rig.task(second?.id ?? "").outcome?.reason?.code).toBe("budget")
    expect(asked(rig, second?.sessionID ?? "")).toBe(false)
  })

  test("a held task waits longer by the time that the computer slept", async () => {
    const rig = await rigged({ text: "found", delay: 600 * SECOND }, { cacheHold: 5000, stallTimeout: 0 })
    const [, second] = await three(rig)
    await rig.clock.advance(1000)
    rig.clock.sleep(60_000)
    await rig.clock.advance(1000)
    expect(asked(rig, second?.sessionID ?? "")).toBe(false)
    await rig.clock.advance(5000)
    expect(asked(rig, second?.sessionID ?? "")).toBe(true)
  })

  test("a held task is reported as interrupted before it began after a crash", async () => {
    const rig = await rigged()
    await three(rig)
    await rig.clock.advance(20)
    rig.restart()
    await rig.manager.recover()
    await rig.clock.advance(60_000)
    const [, , second] = rig.manager.list(rig.parent)
    expect(second?.task.outcome?.reason?.code).toBe("interrupted")
    expect(second?.task.outcome?.reason?.text).toContain("before it began")
  })
})
