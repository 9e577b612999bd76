import { describe, expect, test, vi } from "vitest"
import { ManagerRuns } from "../../../src/features/board/runs.ts"
import { Unattended } from "../../../src/features/board/unattended.ts"
import { MINUTE_MS } from "../../../src/lib/format.ts"
import type { LaunchRequest } from "../../../src/runtime/launch/request.ts"
import type { EnterRequest, Place } from "../../../src/runtime/places/place.ts"
import { flush } from "../../support/fake-clock.ts"
import { FakeMachine } from "../../support/fake-machine.ts"
import { answerAll, isParkedNow, limited, Provider, parkedTask, settings } from "../../support/limit-scene.ts"
import { Rig, type RigOptions } from "../../support/rig.ts"

describe("parked tasks after a restart", () => {
  test("a parked task stays parked over a restart, and continues in time without repeating a step", async () => {
    const { provider, rig, task } = await parkedTask({ bucket: 2, shutMs: 30 * MINUTE_MS })
    const { sessionID } = rig.task(task.id)
    const calls = () =>
      rig.opencode.stored(sessionID).messages.flatMap(({ parts }) => parts.filter(({ type }) => type === "tool")).length
    const done = calls()
    rig.restart()
    await rig.manager.recover()
    await flush()
    await rig.clock.advance(MINUTE_MS)
    expect(rig.view(task.id).phase).toMatch(/^parked/)
    expect(rig.notices().filter(({ visible }) => visible.includes("Agent"))).toEqual([])
    provider.left = 100
    expect((await rig.ended(task.id)).status).toBe("completed")
    expect(done).toBe(2)
    expect(calls()).toBe(2)
  })

  test("the tasks of one breaker, parked one after the other, are no series of refusals after a restart", async () => {
    const rig = new Rig({ options: settings })
    let isOpen = true
    rig.script(({ sessionID, toolResults, prompt }) => {
      if (sessionID === rig.parent) return undefined
      if (!isOpen) return { status: 429, body: { error: { message: "Rate limit reached." } } }
      if (toolResults.length > 0) return { text: "done" }
      return { tools: [{ name: "read", args: { ms: 1000 + 300 * Number(prompt.replace("FIND ", "")) } }] }
    })
    const numbers = Array.from({ length: 8 }, (_, at) => at)
    const tasks = await Promise.all(numbers.map((at) => rig.launch({ prompt: `FIND ${at}` })))
    await rig.clock.advance(900)
    isOpen = false
    await rig.clock.until(() => tasks.every(({ id }) => isParkedNow(rig, id)))
    isOpen = true
    rig.restart()
    await rig.manager.recover()
    await rig.clock.advance(MINUTE_MS / 2)
    expect(tasks.map(({ id }) => rig.task(id).status)).toEqual(tasks.map(() => "completed"))
  })

  test("a task that was parked while it was asked for its last word says it after a restart", async () => {
    const rig = new Rig({ options: { taskTimeout: 30_000, lastWord: 10_000 } })
    let isOpen = true
    rig.script(({ sessionID, toolResults, lastUser }) => {
      if (sessionID === rig.parent) return undefined
      if (!isOpen) return { status: 429, body: { error: { message: "Rate limit reached. Try again in 60s" } } }
      if (lastUser.startsWith("You are near your time limit")) return { text: "what is left", delay: 1000 }
      return toolResults.length > 0 ? { text: "done" } : { tools: [{ name: "read", args: { ms: 600_000 } }] }
    })
    const { id } = await rig.launch()
    await rig.clock.advance(5000)
    isOpen = false
    await rig.clock.until(() => isParkedNow(rig, id))
    rig.restart()
    await rig.manager.recover()
    isOpen = true
    expect(await rig.ended(id)).toMatchObject({ outcome: { saidLastWord: true, reason: { code: "timeout" } } })
    expect(rig.notices().at(-1)?.hidden).toContain("what is left")
  })

  test("what a parked task has spent before a restart counts for its budget", async () => {
    const rig = new Rig({ options: { maxCostPerTask: 0.05, lastWord: 0 } })
    let isOpen = true
    rig.script(({ sessionID }) => {
      if (sessionID === rig.parent) return undefined
      if (!isOpen) return { status: 429, body: { error: { message: "Rate limit reached. Try again in 60s" } } }
      return { tools: [{ name: "read", args: { ms: 100 } }], usage: { input: 10_000 } }
    })
    const { id } = await rig.launch()
    await rig.clock.until(() => rig.view(id).whole.usage.cost > 0.025)
    isOpen = false
    await rig.clock.until(() => isParkedNow(rig, id))
    const { usage } = rig.view(id).whole
    rig.restart()
    await rig.manager.recover()
    await rig.clock.advance(10_000)
    expect(rig.view(id)).toMatchObject({ phase: expect.stringMatching(/^parked/), whole: { usage } })
    isOpen = true
    const { outcome } = await rig.ended(id)
    expect(outcome).toMatchObject({ reason: { code: "budget" } })
    expect(outcome?.usage.cost).toBeLessThan(0.07)
  })

  test("a parked task continues in time although the system clock is set back", async () => {
    const { rig, task } = await parkedTask({ shutMs: 8000, tells: false })
    rig.clock.setBack(60 * MINUTE_MS)
    rig.script(() => ({ text: "done" }))
    await rig.clock.advance(MINUTE_MS)
    expect(rig.task(task.id).status).toBe("completed")
  })

  test("a parked task continues after a restart days later if its provider has opened", async () => {
    const { provider, rig, task } = await parkedTask({ bucket: 2, shutMs: 30 * MINUTE_MS })
    provider.left = 100
    rig.manager.stop()
    await rig.clock.sleep(60 * 60 * MINUTE_MS)
    rig.restart()
    await rig.manager.recover()
    await flush()
    expect((await rig.ended(task.id)).status).toBe("completed")
  })
})

describe("what was found out about a parked task before a restart", () => {
  /** A task that was parked when its agent was asked for another answer, two restarts later. */
  const parkedAnswer = async (options: RigOptions["options"], request: Partial<LaunchRequest>) => {
    const machine = Object.assign(new FakeMachine(), {
      run: async () => ({ exitCode: 1, output: `${"x".repeat(10_000)} 1 failed` }),
    })
    const rig = new Rig({ options, worktrees: async () => machine as never as Place })
    const provider = { answers: 0, isOpen: true }
    rig.script(({ sessionID }) => {
      if (sessionID === rig.parent) return undefined
      if (!provider.isOpen) return limited(" Try again in 60s")
      provider.isOpen = provider.answers > 0
      provider.answers++
      return { text: "no JSON" }
    })
    const { id, sessionID } = await rig.launch(request)
    await rig.clock.until(() => isParkedNow(rig, id))
    for (let restarts = 0; restarts < 2; restarts++) {
      rig.restart()
      await rig.manager.recover()
      await rig.clock.advance(5000)
    }
    return { rig, id, sessionID, provider }
  }
  const checked = { check: "npm test", place: "worktree" } as const

  test.each([
    ["schema", { schema: { type: "number" } }],
    ["check", checked],
  ])("a restart gives a parked task no further attempt at its %s", async (code, request) => {
    const { rig, id, provider } = await parkedAnswer({ schemaRetries: 1, checkRetries: 1 }, request)
    provider.isOpen = true
    expect(await rig.ended(id)).toMatchObject({ status: "error", outcome: { reason: { code } } })
    expect(provider.answers).toBe(2)
  })

  test("the result of a parked task's check is that of its run, with the end of its output, if it is cancelled", async () => {
    const { rig, id, sessionID } = await parkedAnswer({}, checked)
    const output = expect.stringMatching(/^.{0,4000} 1 failed$/)
    const stored = (await rig.opencode.session(sessionID))?.record?.task.run.parked
    expect(stored?.found?.check?.output).toEqual(output)
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    const check = { passed: false, runs: 1, how: "exit code 1", output }
    expect(await rig.ended(id)).toMatchObject({ status: "cancelled", outcome: { receipt: { check } } })
  })

  test("the questions that nobody answered before a task was parked are told of at its end", async () => {
    const rig = new Rig({ options: { permissionTimeout: 60_000 } })
    rig.opencode.asking.add("bash")
    let isOpen = false
    rig.script(({ sessionID, toolResults }) => {
      if (sessionID === rig.parent) return undefined
      if (toolResults.length === 0) return { tools: [{ name: "bash", args: {} }] }
      return isOpen ? { text: "went on" } : limited(" Try again in 60s")
    })
    const { id } = await rig.launch()
    await rig.clock.until(() => isParkedNow(rig, id))
    rig.restart()
    await rig.manager.recover()
    isOpen = true
    expect(await rig.ended(id)).toMatchObject({ status: "completed", outcome: { unanswered: ["bash"] } })
    expect(rig.notices().at(-1)?.hidden).toContain("Refused, since nobody answered in time: bash")
  })
})

describe("a launch at a model's limit", () => {
  const scene = async (
    options: RigOptions["options"] = settings,
    shutMs = 30 * MINUTE_MS,
    places: Pick<RigOptions, "worktrees" | "kind"> = {},
  ) => {
    const provider = new Provider({ shutMs }, options, places)
    const [first] = await provider.launchAll(1)
    await provider.rig.clock.until(() => isParkedNow(provider.rig, first.id))
    return { provider, rig: provider.rig, first: first.id }
  }

  test("a task launched at its model's limit is parked without using a request, slot or time", async () => {
    const { provider, rig } = await scene({ ...settings, maxConcurrentTasks: 1, taskTimeout: MINUTE_MS })
    const before = provider.requests
    const { id } = await rig.launch({ prompt: "FIND LATER" })
    await rig.clock.advance(20 * MINUTE_MS)
    expect(rig.view(id)).toMatchObject({ phase: expect.stringMatching(/^parked until \d\d:\d\d$/), elapsed: 0 })
    expect(provider.requests).toBe(before)
    provider.left = 100
    expect(await rig.ended(id)).toMatchObject({ status: "completed", run: { parkedTimes: 1 } })
    const asked = rig.opencode.stored(rig.task(id).sessionID).messages.filter(({ role }) => role === "user")
    expect(asked.map(({ parts }) => parts.map((part) => part.type === "text" && part.text))).toEqual([["FIND LATER"]])
    expect(rig.view(id).elapsed).toBeLessThan(MINUTE_MS)
    expect(rig.errors()).toEqual([])
  })

  test("a task launched at its model's limit survives a restart, and so does a queued one", async () => {
    const { provider, rig, first } = await scene({ ...settings, maxConcurrentTasks: 1 })
    const tasks = [first, (await rig.launch({ prompt: "FIND A" })).id, (await rig.launch({ prompt: "FIND B" })).id]
    await rig.clock.advance(1000)
    rig.restart()
    await rig.manager.recover()
    await rig.clock.advance(MINUTE_MS)
    for (const id of tasks) expect(rig.view(id).phase).toMatch(/^parked until/)
    provider.left = 100
    for (const id of tasks) expect((await rig.ended(id)).status).toBe("completed")
    expect(rig.notices().filter(({ visible }) => visible.includes("finished"))).toHaveLength(3)
  })

  /** The next OpenCode has taken over what the last one left. */
  const restarted = async (rig: Rig) => {
    await rig.clock.advance(1000)
    rig.restart()
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    await rig.clock.advance(MINUTE_MS)
  }
  const asked = (rig: Rig, sessionID: string) =>
    rig.opencode
      .stored(sessionID)
      .messages.flatMap(({ role, parts: [part] }) => (role === "user" && part?.type === "text" ? [part.text] : []))

  test.each(["after", "without"])(
    "a parked launch has the answers that it waited for in its prompt, once, %s a restart",
    async (restart) => {
      const { provider, rig } = await scene()
      rig.onPrompt("BEFORE", { text: "what was found" })
      const before = await rig.launch({ prompt: "BEFORE", model: "scripted/beta" })
      const { id, sessionID } = await rig.launch({ prompt: "FIND LATER", after: [before.id] })
      await rig.clock.until(() => isParkedNow(rig, id))
      if (restart === "after") await restarted(rig)
      expect(rig.view(id).phase).toMatch(/^parked until/)
      provider.left = 100
      expect((await rig.ended(id)).status).toBe("completed")
      expect(asked(rig, sessionID)).toEqual([expect.stringMatching(/what was found[\s\S]*Your task:\n\nFIND LATER$/)])
      expect(asked(rig, sessionID)[0]?.match(/what was found/g)).toHaveLength(1)
    },
  )

  test("a parked launch is told of the place in which it begins after a restart", async () => {
    const machine = new FakeMachine()
    const enter = vi.spyOn(machine, "enter")
    const { provider, rig } = await scene(settings, undefined, { worktrees: async () => machine as never as Place })
    const { id, sessionID } = await rig.launch({ prompt: "FIND LATER", place: "worktree" })
    await restarted(rig)
    expect(rig.view(id).phase).toMatch(/^parked until/)
    provider.left = 100
    expect((await rig.ended(id)).status).toBe("completed")
    expect(enter.mock.calls).toEqual([[expect.objectContaining({ taskID: id, again: false })]])
    const [prompt] = rig.opencode.stored(sessionID).messages
    expect(prompt?.parts).toMatchObject([{ text: "FIND LATER" }, { text: "\n\nYou work on big." }])
  })

  test("a parked board run survives a restart, and the board shows it as queued", async () => {
    const board = { dir: ".opencode/tasks", agents: null, schedule: "0 0 30 2 *", maxConcurrentRuns: 2 }
    const { provider, rig } = await scene({ ...settings, board })
    const model = { provider: "scripted", id: "alpha" }
    rig.opencode.agentList = rig.opencode.agentList.map((agent) => ({ ...agent, model }))
    const sessionID = rig.opencode.openSession()
    await new Unattended(rig.manager.parts).start({ sessionID, agent: "general", description: "#1", prompt: "FIND it" })
    await rig.clock.until(() => rig.manager.taskIn(sessionID)?.phase?.startsWith("parked") === true)
    const runs = () => new ManagerRuns(rig.manager, Promise.resolve(), rig.clock)
    expect(runs().of(sessionID)).toMatchObject({ state: "queued", pause: { waitsFor: expect.any(String) } })
    await restarted(rig)
    expect(rig.manager.taskIn(sessionID)?.phase).toMatch(/^parked until/)
    expect(runs().of(sessionID)?.state).toBe("queued")
    provider.left = 100
    await rig.clock.until(() => rig.manager.taskIn(sessionID)?.task.status === "completed")
    expect(asked(rig, sessionID)).toEqual(["FIND it"])
  })

  test("parked tries survive a restart, and the first to pass wins", async () => {
    const { provider, rig } = await scene({}, 30 * MINUTE_MS, {
      worktrees: async () => new FakeMachine() as never as Place,
      kind: { isShared: true, guards: true },
    })
    const { id } = await rig.launch({ prompt: "FIND it", tries: 2, check: "true", place: "worktree" })
    const members = () => rig.manager.list(rig.task(id).sessionID)
    await rig.clock.until(() => members().length === 2 && members().every(({ phase }) => phase?.startsWith("parked")))
    await restarted(rig)
    expect([rig.task(id).status, ...members().map(({ phase }) => phase?.slice(0, 6))]).toEqual([
      "running",
      "parked",
      "parked",
    ])
    provider.left = 100
    expect((await rig.endedBeside(id, 20_000)).status).toBe("completed")
    expect(rig.task(id).outcome?.group).toMatchObject({ rows: [{ how: "won" }, {}] })
    expect(rig.errors()).toEqual([])
  })

  test("the parked items of a map survive a restart, and the map completes", async () => {
    const { provider, rig } = await scene()
    const { id } = await rig.launch({ prompt: "FIND {{item}}", each: ["a", "b", "c"] })
    const members = () => rig.manager.list(rig.task(id).sessionID)
    await rig.clock.until(() => members().some(({ phase }) => phase?.startsWith("parked")))
    await restarted(rig)
    expect([rig.task(id).status, members()[0]?.phase?.slice(0, 6)]).toEqual(["running", "parked"])
    provider.left = 100
    expect(await rig.endedBeside(id, 20_000)).toMatchObject({
      status: "completed",
      outcome: { group: { valid: 3, total: 3 } },
    })
  })

  test("the parked items of a large map survive a restart after which the session is used at once", async () => {
    const provider = new Provider({ shutMs: 30 * MINUTE_MS }, { ...settings, each: { ask: 0 } })
    const { rig } = provider
    const { id } = await rig.launch({ prompt: "FIND {{item}}", each: Array.from({ length: 26 }, (_none, nth) => nth) })
    const members = () => rig.manager.list(rig.task(id).sessionID)
    await rig.clock.until(() => members().some(({ phase }) => phase?.startsWith("parked")))
    rig.restart()
    await rig.manager.ready(rig.parent)
    await rig.clock.advance(1000)
    expect([rig.task(id).status, members()[0]?.phase?.slice(0, 6)]).toEqual(["running", "parked"])
    provider.left = 1000
    expect(await rig.endedBeside(id, 20_000)).toMatchObject({
      status: "completed",
      outcome: { group: { valid: 26, total: 26 } },
    })
  })

  test("a queued task is parked as soon as its model's breaker trips", async () => {
    const provider = new Provider({ shutMs: 30 * MINUTE_MS }, { ...settings, maxConcurrentTasks: 1 })
    const { rig } = provider
    const tasks = await provider.launchAll(3)
    await rig.clock.advance(2000)
    for (const { id } of tasks) expect(rig.view(id).phase).toMatch(/^parked until/)
    expect(provider.requests).toBe(1)
    expect(rig.notices().find(({ visible }) => visible.startsWith("⏸"))?.visible).toContain("3 tasks are parked.")
  })

  test("a parked launch can be probed, receive messages and be cancelled like any parked task", async () => {
    const { provider, rig } = await scene()
    const { id } = await rig.launch({ prompt: "FIND LATER" })
    const other = await rig.launch({ prompt: "FIND NEVER" })
    await rig.manager.tell(id, "Look at the tests, too.", rig.caller)
    await rig.manager.cancel({ type: "task", reference: other.id }, rig.caller)
    const before = provider.requests
    provider.left = 100
    const seen: string[] = []
    rig.script(({ sessionID, lastUser }) => {
      if (sessionID === rig.task(id).sessionID) seen.push(lastUser)
      return undefined
    })
    // The provider has opened, whatever it said.
    answerAll(rig, { text: "done" })
    await rig.manager.unpark(id, rig.parent)
    expect((await rig.ended(id)).status).toBe("completed")
    expect(rig.opencode.stored(rig.task(id).sessionID).messages.filter(({ role }) => role === "user")).toHaveLength(2)
    expect(provider.requests).toBe(before)
    expect(rig.task(other.id).status).toBe("cancelled")
  })

  test("a task ends at once and says so if the reset is later than it may be parked", async () => {
    const { rig } = await scene({ ...settings, maxParked: 60 * MINUTE_MS })
    const hours = new Provider(
      { bucket: 0, shutMs: 2 * 60 * MINUTE_MS },
      { ...settings, maxConcurrentTasks: 1, maxParked: 60 * MINUTE_MS },
    )
    const tasks = await hours.launchAll(2)
    for (const { id } of tasks)
      expect(await hours.rig.ended(id)).toMatchObject({
        outcome: { reason: { code: "limit", text: expect.stringMatching(/longer than a task is parked.*maxParked/) } },
      })
    expect(hours.requests).toBe(1)
    expect(rig.errors()).toEqual([])
  })

  test("parked launches end without a request if another task finds that money is missing", async () => {
    const { provider, rig } = await scene()
    const tasks = [await rig.launch({ prompt: "FIND A" }), await rig.launch({ prompt: "FIND B" })]
    const asked: string[] = []
    rig.script(({ sessionID }) => {
      if (sessionID === rig.parent) return undefined
      asked.push(sessionID)
      return { status: 402, body: { error: { message: "Payment required" } } }
    })
    await rig.clock.advance(31 * MINUTE_MS)
    for (const { id } of tasks)
      expect(await rig.ended(id)).toMatchObject({
        outcome: {
          reason: { code: "provider", text: expect.stringMatching(/^Not begun: scripted\/alpha refused another task/) },
        },
      })
    expect(asked).toHaveLength(1)
    expect(provider.requests).toBe(1)
  })
})

describe("parked tasks and a second process", () => {
  test("a second process leaves a parked task alone, says so, and takes over when the first dies", async () => {
    const provider = new Provider({ bucket: 1, shutMs: 30 * MINUTE_MS })
    const { rig } = provider
    const [task] = await provider.launchAll(1)
    const id = task.id
    await rig.clock.until(() => isParkedNow(rig, id))
    await rig.clock.advance(1000)
    const other = new Rig({
      options: rig.options as never,
      share: { clock: rig.clock, database: rig.opencode.database },
    })
    await other.manager.recover()
    await other.manager.ready(rig.parent)
    const seen = () => other.manager.list(rig.parent)[0]?.phase
    expect(seen()).toMatch(/^parked until/)
    for (const model of [undefined, "scripted/beta"])
      await expect(other.manager.unpark(id, rig.parent, model)).rejects.toThrow(
        `Task ${id} is run by another OpenCode process. Only the user can try it, there.`,
      )
    const before = provider.requests
    await rig.clock.advance(5 * MINUTE_MS)
    expect([provider.requests, seen()]).toEqual([before, expect.stringMatching(/^parked until/)])
    rig.crash()
    other.script(({ sessionID, toolResults }) => {
      if (sessionID === rig.parent) return undefined
      return toolResults.length < 2 ? { tools: [{ name: "read", args: {} }] } : { text: "done" }
    })
    await rig.clock.advance(10 * MINUTE_MS)
    expect(seen()).toMatch(/^parked until/)
    await rig.clock.advance(30 * MINUTE_MS)
    expect(other.manager.list(rig.parent)[0]?.task.status).toBe("completed")
    const { messages } = other.opencode.stored(task.sessionID)
    expect(messages.flatMap(({ parts }) => parts.filter(({ type }) => type === "tool"))).toHaveLength(2)
  })
})

describe("a limit that a process met before it died", () => {
  /** A process whose task is parked until then, and another one, whose task works at a call for ten minutes. */
  const twoProcesses = async (limit: string) => {
    const rig = new Rig({ options: settings })
    rig.onPrompt("FIND", limited(` Try again in ${limit}`))
    const share = { clock: rig.clock, database: rig.opencode.database }
    const other = new Rig({ options: rig.options as never, share })
    other.onPrompt("FIND", { text: "found", delay: MINUTE_MS })
    other.script(({ lastUser, toolResults }) => {
      if (!lastUser.includes("WORK")) return undefined
      return toolResults.length > 0 ? { text: "done" } : { tools: [{ name: "read", args: { ms: 10 * MINUTE_MS } }] }
    })
    const { id: working } = await other.launch({ prompt: "WORK" })
    await rig.clock.advance(1000)
    const { id } = await rig.launch()
    await rig.clock.until(() => isParkedNow(rig, id))
    rig.crash()
    return { rig, other, id, working }
  }

  test("holds no request of a task that works where its task is taken over after its time", async () => {
    const { rig, other, id, working } = await twoProcesses("4m")
    await rig.clock.advance(10 * MINUTE_MS - 5000)
    await other.manager.ready(rig.parent)
    expect((await other.ended(working)).run).not.toHaveProperty("parkedTimes")
    expect((await other.ended(id, rig.parent)).status).toBe("completed")
  })

  test("holds no launch of a process that the model has answered since", async () => {
    const { rig, other, id } = await twoProcesses("5h")
    await rig.clock.advance(MINUTE_MS)
    await other.ended((await other.launch({ prompt: "EARLY" })).id)
    await other.manager.ready(rig.parent)
    await rig.clock.advance(1000)
    expect((await other.ended((await other.launch({ prompt: "LATE" })).id)).run).not.toHaveProperty("parkedTimes")
    await rig.clock.advance(2 * MINUTE_MS)
    expect(other.task(id, rig.parent).status).toBe("completed")
  })
})

describe("parked worktree tasks after a restart", () => {
  test("a parked worktree task is archived at a restart, and continues in a new worktree with its prompt", async () => {
    const calls: string[] = []
    const place = {
      capture: async () => {},
      enter: async ({ again, bringIn }: EnterRequest) => {
        calls.push(`enter ${again ?? false} ${bringIn ?? false}`)
        return { directory: "/place", preface: `Work in /place, ${calls.length}.` }
      },
      archive: async () => {
        calls.push("put away")
        return { files: [], added: 0, removed: 0, submodules: [], unsaved: [] }
      },
    }
    const places = { worktrees: async () => place as never }
    const provider = new Provider({ bucket: 1, shutMs: 30 * MINUTE_MS }, settings, places)
    const { rig } = provider
    const { id, sessionID } = await rig.launch({ prompt: "FIND 0", place: "worktree" })
    await rig.clock.until(() => isParkedNow(rig, id))
    rig.restart()
    await rig.manager.recover()
    await rig.clock.advance(MINUTE_MS)
    expect(rig.view(id).phase).toMatch(/^parked until/)
    expect(calls).toEqual(["enter false false"])
    expect(rig.opencode.folderOf(sessionID)).toBe("/project")
    provider.left = 100
    expect((await rig.ended(id)).status).toBe("completed")
    expect(calls).toEqual(["enter false false", "put away", "enter true false", "put away"])
    const asked = rig.opencode.stored(sessionID).messages.filter(({ role }) => role === "user")
    expect(asked.map(({ parts }) => parts.map((part) => (part.type === "text" ? part.text : "")))).toEqual([
      ["FIND 0", "\n\nWork in /place, 1."],
    ])
    expect(rig.errors()).toEqual([])
  })
})
