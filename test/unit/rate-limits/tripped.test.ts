import { describe, expect, test, vi } from "vitest"
import { isPaused, type Model } from "../../../src/core/task.ts"
import { Unattended } from "../../../src/features/board/unattended.ts"
import { MINUTE_MS } from "../../../src/lib/format.ts"
import { TaskHandle } from "../../../src/runtime/tasks/task-handle.ts"
import { toolsFor } from "../../../src/tools/index.ts"
import type { Tool } from "../../../src/tools/tool.ts"
import { eventually } from "../../support/eventually.ts"
import { answerAll, isParkedNow, Provider, parkedTask, parkedTasks, settings } from "../../support/limit-scene.ts"
import type { Reply } from "../../support/model.ts"
import { Rig, type RigOptions } from "../../support/rig.ts"

const SHORT = { shutMs: 8000 }

describe("an overloaded model", () => {
  /** Refuses so many of the first requests with a 529 or the like, and answers the others. */
  const failing = (times: number, status = 529, message = "Overloaded") => {
    const rig = new Rig({ options: { ...settings, maxConcurrentTasks: 12 } })
    let left = times
    const asked: { sessionID: string; at: number }[] = []
    rig.script(({ sessionID }) => {
      if (sessionID === rig.parent) return undefined
      asked.push({ sessionID, at: rig.clock.now() })
      return left-- > 0 ? { status, body: { error: { message } } } : { text: "done", delay: 30_000 }
    })
    return { rig, asked }
  }
  const parkedOf = (rig: Rig) => rig.manager.list(rig.parent).filter(({ task }) => task.run.parkedTimes).length

  test("a single overload is left to OpenCode's own retry, without parking or reporting a task", async () => {
    const { rig } = failing(1)
    const tasks = await Promise.all(Array.from({ length: 12 }, (_, at) => rig.launch({ prompt: `FIND ${at}` })))
    for (const { id } of tasks) expect((await rig.ended(id)).status).toBe("completed")
    expect(parkedOf(rig)).toBe(0)
    expect(rig.opencode.toasts.filter(({ title }) => title.includes("scripted/alpha"))).toEqual([])
  })

  test("nothing is kept of a task's requests before one of them is refused", async () => {
    const kept = vi.spyOn(WeakMap.prototype, "set")
    const ofTasks = () => kept.mock.calls.filter(([key]) => key instanceof TaskHandle)
    const { rig } = failing(0)
    expect((await rig.ended((await rig.launch()).id)).status).toBe("completed")
    expect(ofTasks()).toEqual([])
    const refused = failing(1)
    expect((await refused.rig.ended((await refused.rig.launch()).id)).status).toBe("completed")
    expect(ofTasks()).not.toEqual([])
    vi.restoreAllMocks()
  })

  test("a model that is overloaded twice within ten seconds is left alone for five, then probed once", async () => {
    const { rig, asked } = failing(2)
    const tasks = await Promise.all(Array.from({ length: 4 }, (_, at) => rig.launch({ prompt: `FIND ${at}` })))
    await rig.clock.advance(1000)
    expect(parkedOf(rig)).toBeGreaterThan(0)
    const late = await rig.launch({ prompt: "LATE" })
    const before = asked.length
    await rig.clock.advance(3000)
    expect(asked).toHaveLength(before)
    for (const { id } of [...tasks, late]) expect((await rig.ended(id)).status).toBe("completed")
  })

  test("a model whose answers begin and break off is asked more and more rarely, even if only one task asks it", async () => {
    const rig = new Rig({ options: settings })
    const asked: number[] = []
    rig.script(({ sessionID }) => {
      if (sessionID === rig.parent) return undefined
      asked.push(rig.clock.now())
      const breaksOff = { status: 529, body: { error: { message: "Overloaded" } } }
      rig.clock.after(500, () => rig.opencode.conclude(sessionID, breaksOff))
      return { hang: true, text: "half of an ans" }
    })
    const { id } = await rig.launch()
    await rig.clock.until(() => asked.length === 5, 5 * MINUTE_MS)
    const waits = asked.slice(1).map((at, nth) => Math.floor((at - (asked[nth] ?? 0)) / 5000))
    expect(waits).toEqual([1, 2, 4, 8])
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  })

  test("a model that is overloaded twice in half a minute is still asked", async () => {
    const { rig } = failing(1)
    const first = await rig.launch()
    await rig.clock.advance(20_000)
    rig.script(({ sessionID, lastUser }) =>
      lastUser.includes("AGAIN") && sessionID !== rig.parent
        ? { status: 529, body: { error: { message: "Overloaded" } } }
        : undefined,
    )
    const second = await rig.launch({ prompt: "AGAIN" })
    await rig.clock.advance(1000)
    expect(parkedOf(rig)).toBe(0)
    await rig.manager.cancel({ type: "task", reference: second.id }, rig.caller)
    expect((await rig.ended(first.id)).status).toBe("completed")
  })

  test("an overload of more than half a minute is reported as overload, and not as a limit", async () => {
    const { rig } = failing(1000)
    const { id } = await rig.launch()
    await rig.clock.advance(10_000)
    expect(rig.view(id).phase).toMatch(/^parked/)
    expect(rig.notices().filter(({ visible }) => visible.startsWith("⏸"))).toEqual([])
    await rig.clock.advance(2 * MINUTE_MS)
    const told = rig.notices().filter(({ visible }) => visible.startsWith("⏸"))
    expect(told.map(({ visible }) => visible)).toEqual([
      expect.stringMatching(/^⏸ \*\*scripted\/alpha is overloaded, next try \d\d:\d\d\.\*\* 1 task is parked\.$/),
    ])
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  })

  test("the texts about parked items of a map offer to try one by the map's id, and no call that takes only whole tasks", async () => {
    const { rig } = failing(1000)
    const { id } = await rig.launch({ prompt: "MAP {{item}}", each: ["a"] })
    await rig.clock.until(() => rig.notices().some(({ visible }) => visible.startsWith("⏸")))
    const toast = rig.opencode.toasts.find(({ title }) => title.includes("is overloaded"))
    expect(toast?.message).toBe("1 task is parked and goes on by itself.")
    const offer = `superagents_task(unpark="${id}") tries now.`
    expect(rig.notices()[0]?.hidden).toContain(`It goes on by itself: do not wait, poll or launch it again. ${offer}`)
    expect(rig.notices()[0]?.hidden).not.toContain("superagents_cancel")
    const tool = toolsFor(rig.manager, rig.options).superagents_output as Tool
    const { output } = await tool.execute({ task_id: `${id}/1` }, rig.caller)
    expect(output).toContain(`It goes on by itself; ${offer}`)
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  })

  test("a map whose items are all parked says so, and when they are tried again", async () => {
    const { rig } = failing(1000)
    const { id } = await rig.launch({ prompt: "MAP {{item}}", each: ["a", "b"] })
    const phase = () => rig.manager.parts.reports.get(id)?.phase
    const parked = () => rig.manager.list(rig.task(id).sessionID).filter(({ task }) => isPaused(task))
    await rig.clock.until(() => parked().length > 0)
    expect(phase()).toMatch(/^parked, next try \d\d:\d\d$/)
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  })

  test("an attempt to unpark a map tries one of its parked items, and names it", async () => {
    const { rig, asked } = failing(1000)
    const tool = toolsFor(rig.manager, rig.options).superagents_task as Tool
    const { id } = await rig.launch({ prompt: "MAP {{item}}", each: ["a", "b"] })
    const items = () => rig.manager.list(rig.task(id).sessionID)
    // The fake clock goes on beside the real one: the items' code is loaded, which takes real time.
    await eventually(() => rig.clock.advance(500).then(() => items().some(({ task }) => isPaused(task))))
    const before = asked.length
    const { output } = await tool.execute({ unpark: id }, rig.caller)
    expect(output).toMatch(/^bg_\w+ \(find it \(item 1 of 2\)\) tries scripted\/alpha now\.$/)
    await rig.clock.advance(1000)
    expect(asked.length).toBe(before + 1)
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    await expect(rig.manager.unpark(id, rig.parent)).rejects.toThrow(`${id} is not parked: it is cancelled.`)
  })

  test("a model that cannot be reached is reported with those words", async () => {
    const { rig } = failing(0)
    await rig.ended((await rig.launch()).id)
    const tool = toolsFor(rig.manager, rig.options).superagents_task as Tool
    answerAll(rig, { status: 500, body: { error: { message: "Unable to connect" } } })
    const { id } = await rig.launch({ prompt: "FIND again" })
    await rig.clock.advance(3000)
    const { output } = await tool.execute({ prompt: "LATER", description: "d", agent: "general" }, rig.caller)
    expect(output).toMatch(/scripted\/alpha cannot be reached, next try \d\d:\d\d/)
    await rig.clock.advance(2 * MINUTE_MS)
    expect(rig.opencode.toasts.map(({ title }) => title)).toContainEqual(
      expect.stringMatching(/^scripted\/alpha cannot be reached, next try/),
    )
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  })
})

describe("a tripped breaker", () => {
  const refusing = (options: object = {}, worktrees?: RigOptions["worktrees"]) => {
    const provider = new Provider({ shutMs: 8000 }, { ...settings, ...options }, { worktrees })
    return { provider, rig: provider.rig }
  }

  test("a breaker resets with the first part of an answer, without waiting for its end", async () => {
    const { rig, tasks } = await parkedTasks(8, SHORT)
    const began = rig.clock.now()
    answerAll(rig, { hang: true, text: "so far" })
    await rig.clock.until(() => tasks.every(({ id }) => rig.view(id).phase === "working"), MINUTE_MS)
    expect(rig.clock.now() - began).toBeLessThan(10_000)
  })

  test("a breaker does not wait for a probe that asks for a permission", async () => {
    const { provider, rig, tasks } = await parkedTasks(3, SHORT)
    provider.left = 1000
    rig.opencode.asking.add("bash")
    rig.script(({ sessionID, lastUser }) =>
      sessionID === rig.parent || !lastUser.includes("FIND 0")
        ? undefined
        : { tools: [{ name: "bash", args: { command: "true" } }] },
    )
    const [, second, third] = tasks
    await rig.clock.advance(20_000)
    expect([second, third].map((task) => rig.task(task?.id ?? "").status)).toEqual(["completed", "completed"])
    expect(rig.view(tasks[0]?.id ?? "").phase).toBe("waiting for permission")
    await rig.manager.cancel({ type: "all" }, rig.caller)
  })

  test("a breaker sends another probe if its probe is silent for half a minute", async () => {
    const {
      provider,
      rig,
      tasks: [, second],
    } = await parkedTasks(2, SHORT)
    provider.left = 1000
    rig.script(({ sessionID, lastUser }) =>
      sessionID === rig.parent || !lastUser.includes("FIND 0") ? undefined : { text: "late", delay: 10 * MINUTE_MS },
    )
    await rig.clock.advance(20_000)
    expect(rig.view(second?.id ?? "").phase).toMatch(/^parked/)
    await rig.clock.advance(25_000)
    expect(rig.task(second?.id ?? "").status).toBe("completed")
    await rig.manager.cancel({ type: "all" }, rig.caller)
  })

  test("a breaker does not wait for a task whose place is still being prepared, and probes with another", async () => {
    const ready: (() => void)[] = []
    const place = {
      capture: async () => {},
      enter: async () => {
        await new Promise<void>((resolve) => ready.push(resolve))
        return { directory: "/place", preface: "Work in /place." }
      },
      archive: async () => ({ files: [], added: 0, removed: 0, submodules: [], unsaved: [] }),
    }
    const { provider, rig } = refusing({}, async () => place as never)
    const [first] = await provider.launchAll(1)
    await rig.clock.until(() => isParkedNow(rig, first.id))
    const slow = await rig.launch({ prompt: "SLOW", place: "worktree" })
    const next = await rig.launch({ prompt: "NEXT" })
    await rig.manager.cancel({ type: "task", reference: first.id }, rig.caller)
    provider.left = 1000
    await rig.clock.advance(20_000)
    expect(ready).toHaveLength(1)
    expect(rig.task(next.id).status).toBe("completed")
    for (const make of ready) make()
    expect((await rig.ended(slow.id)).status).toBe("completed")
  })

  test("a late refusal of a request from before the breaker tripped changes neither its probe nor its wait", async () => {
    const rig = new Rig({ options: settings })
    const limited = { status: 429, body: { error: { message: "Rate limit reached." } } }
    const replies: Record<string, Reply[]> = {
      LATE: [{ ...limited, delay: 8000 }],
      FIRST: [limited, { text: "done", delay: 10_000 }],
    }
    rig.script(({ sessionID, lastUser }) => (sessionID === rig.parent ? undefined : replies[lastUser]?.shift()))
    const began = rig.clock.now()
    const late = await rig.launch({ prompt: "LATE" })
    await rig.launch({ prompt: "FIRST" })
    await rig.clock.advance(1000)
    const next = await rig.launch({ prompt: "NEXT" })
    await rig.clock.advance(9000)
    expect([rig.task(late.id).run.parkedTimes, rig.task(next.id).run.startedAt]).toEqual([1, undefined])
    await rig.ended(next.id)
    // The probe was sent after 5 s, and answered 10 s later.
    expect(Math.floor(((rig.task(next.id).run.startedAt ?? 0) - began) / 1000)).toBe(15)
  })

  test("a breaker that no task waits for is forgotten, so a launch hours later begins at once", async () => {
    const { provider, rig, task } = await parkedTask(SHORT)
    await rig.manager.cancel({ type: "task", reference: task.id }, rig.caller)
    await rig.clock.advance(8 * 60 * MINUTE_MS)
    provider.left = 1000
    answerAll(rig, { text: "done", delay: 20_000 })
    const six = await provider.launchAll(6)
    await rig.clock.advance(1000)
    expect(six.map(({ id }) => rig.view(id).phase)).toEqual(six.map(() => "working"))
    for (const { id } of six) expect((await rig.ended(id)).status).toBe("completed")
  })

  test("a task that waits for a breaker and has not begun shows which model it waits for", async () => {
    const { provider, rig } = refusing()
    await provider.launchAll(1)
    await rig.clock.advance(4000)
    const next = await rig.launch({ prompt: "NEXT" })
    expect(rig.view(next.id).phase).toMatch(/^waiting for scripted\/alpha, which is at its limit \(until \d\d:\d\d\)$/)
    answerAll(rig, { text: "done", delay: 10_000 })
    await rig.clock.until(() => rig.view(next.id).phase === "waiting for scripted/alpha (another task tests it first)")
    const list = await (toolsFor(rig.manager, rig.options).superagents_list as Tool).execute({}, rig.caller)
    expect(list.output).toContain("running, waiting for scripted/alpha (another task tests it first)")
    provider.left = 1000
    expect((await rig.ended(next.id)).status).toBe("completed")
    expect(rig.task(next.id).run).not.toHaveProperty("parkedTimes")
  })

  test("a refused compaction trips the breaker of the compacting model only, and the task continues", async () => {
    const rig = new Rig({ options: settings })
    let isShut = true
    rig.opencode.contextTokens = 1000
    rig.opencode.compaction = {
      model: { provider: "scripted", id: "beta" },
      reply: () => (isShut ? { status: 429, body: { error: { message: "Rate limit. Try again in 60s" } } } : undefined),
    }
    rig.onPrompt("BIG", { tools: [{ name: "read", args: {} }], usage: { input: 5000 } })
    rig.onPrompt("Continue", { text: "went on", usage: { input: 10 } })
    const { id } = await rig.launch({ prompt: "BIG" })
    await rig.clock.advance(2000)
    expect(rig.task(id).run.parked).toMatchObject({ model: "scripted/beta" })
    rig.onPrompt("OTHER", { text: "done", usage: { input: 10 } })
    const other = await rig.launch({ prompt: "OTHER" })
    const beside = await rig.launch({ prompt: "OTHER too", model: "scripted/beta" })
    await rig.clock.advance(2000)
    expect([rig.task(other.id).status, rig.task(beside.id).status]).toEqual(["completed", "running"])
    isShut = false
    expect(await rig.ended(id)).toMatchObject({ status: "completed" })
    expect((await rig.ended(beside.id)).status).toBe("completed")
    expect(rig.errors()).toEqual([])
  })

  describe("behind an answer that fills the context", () => {
    const answering = (refusal: Reply, options: object = {}) => {
      const rig = new Rig({ options: { ...settings, ...options } })
      rig.opencode.contextTokens = 1000
      rig.opencode.compaction = { reply: () => refusal }
      rig.onPrompt("BIG", { text: "THE ANSWER", usage: { input: 5000 } })
      return rig
    }
    const refused = (message: string, status = 429) => ({ status, body: { error: { message } } })

    test.each([
      ["refused until later", refused("Rate limit. Try again in 60s")],
      ["refused for longer than a task may be parked", refused("Rate limit. Try again in 5h")],
      ["not paid for", refused("Payment required", 402)],
      ["not paid for and tried again", refused("You exceeded your quota: insufficient_quota")],
    ])("a compaction that is %s leaves the answer as it is, at once", async (_how, refusal) => {
      const rig = answering(refusal, { maxParked: 60 * MINUTE_MS })
      const { id, sessionID } = await rig.launch({ prompt: "BIG" })
      await rig.clock.advance(3000)
      expect(rig.task(id)).toMatchObject({ status: "completed" })
      expect(rig.task(id).run).not.toHaveProperty("parkedTimes")
      expect((await rig.output(id)).answer).toBe("THE ANSWER")
      expect(rig.opencode.isWorking(sessionID)).toBe(false)
      expect(rig.errors()).toEqual([])
    })

    test("a compaction that is held because its model is at its limit leaves the answer as it is", async () => {
      const rig = answering({ text: "never asked" })
      const { id } = await rig.launch({ prompt: "BIG" })
      rig.onPrompt("FIND", refused("Rate limit. Try again in 60s"))
      rig.onPrompt("BIG", { text: "THE ANSWER", usage: { input: 5000 }, delay: 5000 })
      await rig.ended(id)
      const late = await rig.launch({ prompt: "BIG too" })
      await rig.clock.advance(100)
      const first = await rig.launch()
      await rig.clock.until(() => isParkedNow(rig, first.id))
      await rig.clock.advance(8000)
      expect(rig.task(late.id)).toMatchObject({ status: "completed" })
      expect(rig.task(late.id).run).not.toHaveProperty("parkedTimes")
      await rig.manager.cancel({ type: "all" }, rig.caller)
    })

    test("a request to go on behind such a compaction is not parked either", async () => {
      const rig = answering({ text: "in short" })
      rig.onPrompt("Continue if you have next steps", refused("Rate limit. Try again in 60s"))
      const { id } = await rig.launch({ prompt: "BIG" })
      await rig.clock.advance(3000)
      expect(rig.task(id)).toMatchObject({ status: "completed" })
      expect((await rig.output(id)).answer).toBe("THE ANSWER")
    })

    test("a task that was told more before such a compaction is parked, and goes on", async () => {
      let isShut = true
      const rig = answering({ text: "in short" })
      rig.opencode.compaction = { reply: () => (isShut ? refused("Rate limit. Try again in 60s") : undefined) }
      rig.onPrompt("BIG", { text: "THE ANSWER", usage: { input: 5000 }, delay: 1000 })
      rig.script(({ prompt }) => (/MORE|Go on/.test(prompt) ? { text: "ALL OF IT" } : undefined))
      const { id } = await rig.launch({ prompt: "BIG" })
      await rig.clock.advance(500)
      await rig.manager.tell(id, "MORE", rig.caller)
      await rig.clock.advance(3000)
      expect(rig.task(id).run.parked).toMatchObject({ model: "scripted/alpha" })
      isShut = false
      expect(await rig.ended(id)).toMatchObject({ status: "completed" })
      expect((await rig.output(id)).answer).toBe("ALL OF IT")
    })

    const slowRead = (rig: Rig, about: string) => {
      let reads = 0
      rig.opencode.onCall = (method, session) =>
        method === "messagesSince" && session === about && ++reads === 1 ? { slow: 20_000 } : undefined
    }

    test("a task is not parked whose model answers others again while its answer is looked for", async () => {
      let isShut = true
      const rig = answering({ text: "in short" })
      rig.opencode.compaction = { reply: () => (isShut ? refused("Rate limit. Try again in 10m") : undefined) }
      rig.onPrompt("BIG", { text: "THE ANSWER", usage: { input: 5000 }, delay: 1000 })
      rig.script(({ prompt }) => (/MORE|Continue/.test(prompt) ? { text: "ALL OF IT", delay: 30_000 } : undefined))
      const { id, sessionID } = await rig.launch({ prompt: "BIG" })
      await rig.clock.advance(500)
      await rig.manager.tell(id, "MORE", rig.caller)
      slowRead(rig, sessionID)
      await rig.clock.advance(600)
      const other = await rig.launch({ prompt: "OTHER" })
      await rig.clock.until(() => isParkedNow(rig, other.id))
      isShut = false
      await rig.manager.unpark(other.id, rig.parent)
      expect((await rig.ended(other.id)).status).toBe("completed")
      expect(await rig.ended(id)).toMatchObject({ status: "completed" })
      expect(rig.task(id).run).not.toHaveProperty("parkedTimes")
      expect((await rig.output(id)).answer).toBe("ALL OF IT")
    })

    test("a task that was held while its answer was looked for closes no model that answers again", async () => {
      const rig = answering({ text: "in short" })
      rig.onPrompt("FIND", refused("Rate limit. Try again in 10m"))
      rig.onPrompt("BIG", { text: "THE ANSWER", usage: { input: 5000 }, delay: 5000 })
      rig.script(({ prompt }) => (/MORE|Go on/.test(prompt) ? { text: "ALL OF IT" } : undefined))
      const { id, sessionID } = await rig.launch({ prompt: "BIG" })
      await rig.clock.advance(100)
      const first = await rig.launch()
      await rig.clock.until(() => isParkedNow(rig, first.id))
      await rig.manager.tell(id, "MORE", rig.caller)
      slowRead(rig, sessionID)
      await rig.clock.advance(6000)
      rig.onPrompt("FIND", { text: "done" })
      await rig.manager.unpark(first.id, rig.parent)
      await rig.ended(first.id)
      const began = rig.clock.now()
      expect(await rig.ended(id)).toMatchObject({ status: "completed" })
      expect(rig.clock.now() - began).toBeLessThan(MINUTE_MS)
      expect((await rig.output(id)).answer).toBe("ALL OF IT")
    })

    test("a task that was resumed while its answer was looked for is not stopped again", async () => {
      const rig = answering({ text: "never asked" }, { resumable: ["cancelled"] })
      rig.onPrompt("FIND", refused("Rate limit. Try again in 60s"))
      rig.onPrompt("BIG", { text: "THE ANSWER", usage: { input: 5000 }, delay: 5000 })
      const { id, sessionID } = await rig.launch({ prompt: "BIG" })
      await rig.clock.advance(100)
      const first = await rig.launch()
      await rig.clock.until(() => isParkedNow(rig, first.id))
      let reads = 0
      const stops: string[] = []
      rig.opencode.onCall = (method, session) => {
        if (method === "abort" && session === sessionID) stops.push(method)
        return method === "messagesSince" && session === sessionID && ++reads === 1 ? { slow: 20_000 } : undefined
      }
      await rig.clock.advance(8000)
      expect([reads, rig.task(id).status]).toEqual([1, "running"])
      const reference = { type: "task", reference: id } as const
      await Promise.all([rig.manager.cancel(reference, rig.caller), rig.clock.advance(5000)])
      await rig.manager.resume(id, { prompt: "OTHER" }, rig.caller)
      stops.length = 0
      await rig.clock.advance(20_000)
      expect([rig.task(id).status, stops]).toEqual(["resumed", []])
      await rig.manager.cancel({ type: "all" }, rig.caller)
    })

    test("a task with tasks of its own is parked behind such an answer, and they wake it", async () => {
      let isShut = true
      const rig = answering({ text: "in short" }, { maxDepth: 2 })
      rig.opencode.compaction = { reply: () => (isShut ? refused("Rate limit. Try again in 60s") : undefined) }
      rig.script(({ prompt }) => (/OWN|Go on/.test(prompt) ? { text: "mine", delay: 20_000 } : undefined))
      rig.onPrompt("BIG", { text: "THE ANSWER", usage: { input: 5000 }, delay: 1000 })
      const { id, sessionID } = await rig.launch({ prompt: "BIG" })
      await rig.launch({ prompt: "OWN" }, sessionID)
      await rig.clock.advance(5000)
      expect(rig.task(id).run.parked).toMatchObject({ model: "scripted/alpha" })
      isShut = false
      rig.onPrompt("ended", { text: "WITH MINE" })
      expect(await rig.ended(id)).toMatchObject({ status: "completed" })
    })
  })

  test("parking a task reads only its last message, and not its history", async () => {
    const { provider, rig } = refusing()
    const calls: string[] = []
    rig.opencode.onCall = (method) => {
      calls.push(method)
      return undefined
    }
    const [task] = await provider.launchAll(1)
    await rig.clock.until(() => isParkedNow(rig, task.id))
    await rig.clock.advance(1000)
    expect(calls).not.toContain("messagesSince")
    expect(calls.filter((method) => method === "lastMessage")).toHaveLength(1)
  })
})

describe("a user who asks a task's agent with another model", () => {
  const beta = { provider: "scripted", id: "beta" }
  const alpha = { provider: "scripted", id: "alpha" }
  const asking = async (reply: Reply) => {
    const rig = new Rig({ options: settings })
    rig.onPrompt("FIRST", { text: "first", delay: 5000 })
    rig.onPrompt("SECOND", { text: "second", delay: 30_000 })
    rig.onPrompt("MORE", reply)
    const { id, sessionID } = await rig.launch({ prompt: "FIRST" })
    const second = await rig.launch({ prompt: "SECOND" })
    await rig.clock.advance(1000)
    rig.opencode.say(sessionID, "MORE", { agent: "general", model: beta })
    return { rig, id, second }
  }
  const limitOf = (rig: Rig, model: Model) => rig.manager.parts.pauser?.limitOf(model)
  const refused = { status: 429, body: { error: { message: "Rate limit reached. Try again in 60s" } } }

  test("trips the breaker of that model only", async () => {
    const { rig, id, second } = await asking(refused)
    await rig.clock.advance(5000)
    expect(rig.task(id).run.parked).toMatchObject({ model: "scripted/beta" })
    expect(rig.view(second.id).phase).toBe("working")
    expect([limitOf(rig, alpha), limitOf(rig, beta)?.waitsFor]).toEqual([undefined, "scripted/beta"])
    await rig.manager.cancel({ type: "all" }, rig.caller)
  })

  test("does not make the task that model's probe, since the task goes on with its own", async () => {
    const { rig, id } = await asking(refused)
    await rig.clock.until(() => isParkedNow(rig, id))
    const beside = await rig.launch({ prompt: "BESIDE", model: "scripted/beta" })
    expect(isParkedNow(rig, beside.id)).toBe(true)
    rig.onPrompt("Go on", { text: "by alpha", delay: 30_000 })
    await rig.clock.until(() => !isParkedNow(rig, id), MINUTE_MS + 5000)
    await rig.clock.advance(3000)
    expect([rig.view(id).phase, rig.task(beside.id).status]).toEqual(["working", "completed"])
    expect(limitOf(rig, beta)).toBeUndefined()
    await rig.manager.cancel({ type: "all" }, rig.caller)
  })

  test("leaves the task's own model free where the other has no credit", async () => {
    const { rig, id } = await asking({ status: 402, body: { error: { message: "Payment required" } } })
    await rig.clock.advance(5000)
    expect(rig.task(id)).toMatchObject({ status: "error", outcome: { reason: { code: "provider" } } })
    const { pauser } = rig.manager.parts
    expect([pauser?.refusesModel(alpha), pauser?.refusesModel(beta)]).toEqual([undefined, expect.any(String)])
    await rig.manager.cancel({ type: "all" }, rig.caller)
  })

  test("is answered while the task's own model is at its limit, which stays so", async () => {
    const { rig, id } = await asking({ text: "by beta", delay: 1000 })
    rig.onPrompt("FIND", refused)
    const third = await rig.launch()
    await rig.clock.until(() => isParkedNow(rig, third.id))
    await rig.clock.advance(7000)
    expect(rig.task(id)).toMatchObject({ status: "completed" })
    expect(rig.task(id).run).not.toHaveProperty("parkedTimes")
    expect(limitOf(rig, alpha)?.waitsFor).toBe("scripted/alpha")
    await rig.manager.cancel({ type: "all" }, rig.caller)
  })
})

test("a refused turn of the user, which cannot be parked, causes only occasional polls of OpenCode", async () => {
  const rig = new Rig({ options: { ...settings, board: { dir: ".opencode/tasks", agents: null } } })
  const sessionID = rig.opencode.openSession()
  rig.script((request) =>
    request.sessionID === sessionID ? { status: 429, body: { error: { message: "Rate limit reached." } } } : undefined,
  )
  let looks = 0
  const atOnce = new Map<number, number>()
  rig.opencode.onCall = (method) => {
    if (method !== "activity") return undefined
    looks++
    atOnce.set(rig.clock.now(), (atOnce.get(rig.clock.now()) ?? 0) + 1)
    if (looks > 600) throw new Error("OpenCode is asked back to back")
    return undefined
  }
  const messageID = `msg_${(BigInt(rig.clock.now()) * 4096n).toString(16).slice(-12)}UsersOwn000001`
  await rig.opencode.prompt({ sessionID, messageID, agent: "general", parts: [{ text: "And this?" }] })
  await new Unattended(rig.manager.parts).adopt({ sessionID, agent: "general", description: "#5 Migrate" }, messageID)
  await rig.clock.advance(MINUTE_MS)
  expect(looks).toBeGreaterThan(0)
  expect(looks).toBeLessThan(40)
  expect(Math.max(...atOnce.values())).toBeLessThanOrEqual(2)
})

test("parked board runs that continue together respect the limit of concurrent runs", async () => {
  const board = { dir: ".opencode/tasks", agents: null, schedule: "0 0 30 2 *", maxConcurrentRuns: 1 }
  const provider = new Provider({ shutMs: MINUTE_MS }, { ...settings, board })
  const { rig } = provider
  const sessions = [rig.opencode.openSession(), rig.opencode.openSession(), rig.opencode.openSession()]
  const phases = () => sessions.map((id) => rig.manager.taskIn(id)?.phase)
  for (const sessionID of sessions)
    await new Unattended(rig.manager.parts).start({ sessionID, agent: "general", description: "#1", prompt: "FIND it" })
  await rig.clock.until(() => phases().every((phase) => phase?.startsWith("parked")))
  provider.left = 100
  let most = 0
  await rig.clock.until(() => {
    most = Math.max(most, phases().filter((phase) => phase === "working").length)
    return phases().every((phase) => phase === undefined)
  })
  expect(most).toBe(1)
})

test("parked board runs wait for free slots, and continue before runs that have not begun", async () => {
  const board = { dir: ".opencode/tasks", agents: null, schedule: "0 0 30 2 *", maxConcurrentRuns: 2 }
  const rig = new Rig({ options: { ...settings, board } })
  const beta = { provider: "scripted", id: "beta" }
  rig.opencode.agentList = rig.opencode.agentList.map((agent) =>
    agent.name === "plan" ? { ...agent, model: beta } : agent,
  )
  const asked: string[] = []
  let isShut = true
  rig.script(({ sessionID, lastUser }) => {
    if (sessionID === rig.parent) return undefined
    asked.push(lastUser)
    if (isShut && lastUser.startsWith("FIRST"))
      return { status: 429, body: { error: { message: "Rate limit reached. Try again in 30s" } } }
    return { hang: true }
  })
  const start = async (prompt: string) => {
    const sessionID = rig.opencode.openSession()
    await new Unattended(rig.manager.parts).start({
      sessionID,
      agent: prompt.startsWith("FIRST") ? "general" : "plan",
      description: prompt,
      prompt,
    })
    return sessionID
  }
  const phase = (sessionID: string) => rig.manager.taskIn(sessionID)?.phase
  const first = [await start("FIRST a"), await start("FIRST b")]
  await rig.clock.until(() => first.every((id) => phase(id)?.startsWith("parked")))
  const others = [await start("OTHER c"), await start("OTHER d")]
  const last = await start("OTHER e")
  await rig.clock.until(() => asked.filter((prompt) => prompt.startsWith("OTHER")).length === 2)
  expect(phase(last)).toBe("queued")
  isShut = false
  const before = asked.length
  await rig.clock.advance(60_000)
  // Both slots are taken: nobody goes to see.
  expect(asked).toHaveLength(before)
  expect(first.map(phase)).toEqual(Array(2).fill("parked, waiting for a free slot"))
  rig.opencode.conclude(others[0] ?? "", { text: "done" })
  await rig.clock.advance(5000)
  expect([asked.length - before, first.filter((id) => phase(id) === "working").length]).toEqual([1, 1])
  expect(phase(last)).toBe("queued")
})
