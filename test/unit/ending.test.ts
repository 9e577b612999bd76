import { describe, expect, test } from "vitest"
import type { Feature } from "../../src/core/feature.ts"
import { OpencodeError } from "../../src/core/ports.ts"
import { ANSWER_GRACE_MS } from "../../src/core/run/events.ts"
import { sleepFor } from "../../src/lib/clock.ts"
import { Rig } from "../support/rig.ts"

const HANG = { hang: true } as const

describe("a completed run", () => {
  test("a run completes when its model's turn ends, its parent is notified once, and no timer is left", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "the answer", chunks: 3 })
    const task = await rig.ended((await rig.launch()).id)
    expect(task).toMatchObject({
      status: "completed",
      outcome: { toolCalls: 0, usage: { input: 100, output: 20 }, openTodos: 0 },
      delivery: { state: "confirmed", done: 1, total: 1, running: 0, wake: true },
    })
    expect(task.outcome).not.toHaveProperty("reason.code")
    await rig.clock.advance(60_000)
    expect(rig.notices()).toHaveLength(1)
    expect(rig.timers.pending).toBe(0)
    expect(rig.errors()).toEqual([])
    expect(rig.opencode.toasts.at(-1)).toMatchObject({ title: "Background agent finished", variant: "success" })
  })

  test.each<[string, Rig["opencode"]["onEvent"]]>([
    ["every event comes twice", () => "double"],
    ["no event comes at all", () => "lose"],
    ["every event comes late", () => ({ late: 1500 })],
    ["the idle event is lost", (event) => (event.type === "idle" ? "lose" : undefined)],
  ])("a run completes and its parent is notified once although %s", async (_when, onEvent) => {
    const rig = new Rig()
    rig.opencode.onEvent = onEvent
    const task = await rig.ended((await rig.launch()).id)
    await rig.clock.advance(60_000)
    expect(task.status).toBe("completed")
    expect(rig.notices()).toHaveLength(1)
    expect(rig.timers.pending).toBe(0)
  })

  test("a run completes by events alone when polling is off", async () => {
    const rig = new Rig({ options: { pollInterval: 0, taskTimeout: 0, stallTimeout: 0 } })
    rig.onPrompt("FIND", { text: "done", delay: 3000 })
    const task = await rig.launch()
    // The toast of its launch is shown by then.
    await rig.clock.advance(1500)
    // That others are told now and then that it is looked after.
    expect(rig.timers.pending).toBe(1)
    expect((await rig.ended(task.id)).status).toBe("completed")
    expect(rig.opencode.calls).not.toContain("activity")
  })

  test("several runs that send events share one occasional poll of OpenCode", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    for (let count = 0; count < 5; count++) await rig.launch()
    await rig.clock.advance(2000)
    rig.opencode.calls.length = 0
    await rig.clock.advance(90_000)
    // A silence of a minute may be that of a question whose event was lost: it is looked for once.
    expect(rig.opencode.calls.filter((call) => call !== "activity")).toEqual(["openAsks"])
    expect(rig.opencode.calls).toHaveLength(8)
    expect(rig.timers.pending).toBe(1)
  })

  test("a run that sends no events makes OpenCode be polled at every poll interval", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    rig.onPrompt("DEAF", HANG)
    await rig.launch()
    const deaf = await rig.launch({ prompt: "DEAF" })
    rig.opencode.onEvent = (event) => ("sessionID" in event && event.sessionID === deaf.sessionID ? "lose" : undefined)
    rig.opencode.calls.length = 0
    await rig.clock.advance(10_000)
    expect(rig.opencode.calls.filter((method) => method === "activity")).toHaveLength(5)
  })

  test("a run's tool calls are counted by id, and the last five are named", async () => {
    const rig = new Rig()
    const tools = ["read", "grep", "read", "edit", "glob", "list"].map((name) => ({ name, args: {} }))
    rig.script(({ toolResults, lastUser }) => {
      if (!lastUser.includes("FIND")) return undefined
      if (toolResults.length === 0) return { tools, text: "looking" }
      return { text: "found", delay: 1000 }
    })
    const { id } = await rig.launch()
    await rig.clock.advance(500)
    expect(rig.view(id)).toMatchObject({
      whole: { toolCalls: 6 },
      recentTools: ["grep", "read", "edit", "glob", "list"],
      lastText: "looking",
    })
    expect((await rig.ended(id)).outcome?.toolCalls).toBe(6)
  })

  test.each([
    ["bash", "The agent stopped at a refused permission."],
    ["question", "The agent asked the user a question, which was dismissed; its turn ended there."],
  ])("a run that ended at a refusal of %s completes with a note, or is cancelled without text", async (name, note) => {
    for (const text of ["this far", undefined]) {
      const task = await refused(name, text)
      const reason = { code: "refused", text: `${note} It had written nothing.` }
      expect(task).toMatchObject(
        text ? { status: "completed", outcome: { note } } : { status: "cancelled", outcome: { reason } },
      )
    }
  })

  const refused = async (name: string, text: string | undefined) => {
    const rig = new Rig()
    rig.opencode.asking.add(name)
    rig.onPrompt("FIND", { text, tools: [{ name, args: {} }] })
    const { id } = await rig.launch()
    await rig.clock.advance(100)
    const ask = rig.view(id).asks[0]
    if (!ask) throw new Error("no question")
    await rig.opencode.refuse(ask, "")
    return rig.ended(id)
  }
})

describe("an idle child's open todos", () => {
  const withTodos = (options: object = {}) => {
    const rig = new Rig({ options: { todoGrace: 5000, ...options } })
    rig.script(({ toolResults, lastUser }) => {
      if (!lastUser.includes("FIND")) return undefined
      const todos = [{ content: "rest", status: "pending" }]
      return toolResults.length === 0 ? { tools: [{ name: "todowrite", args: { todos } }] } : { text: "half done" }
    })
    return rig
  }

  test("a run waits for the open todos of an idle child, then reports them", async () => {
    const rig = withTodos()
    const { id } = await rig.launch()
    await rig.clock.advance(4000)
    expect(rig.task(id).status).toBe("running")
    const task = await rig.ended(id)
    expect(task).toMatchObject({ status: "completed", outcome: { openTodos: 1 } })
    expect(rig.notices()[0]?.hidden).toContain("the agent left 1 of its todos open")
  })

  test("a run waits for open todos although polling is off", async () => {
    const rig = withTodos({ pollInterval: 0 })
    const { id } = await rig.launch()
    await rig.clock.advance(10_000)
    expect(rig.task(id).status).toBe("completed")
  })

  test("a sleep of the machine does not shorten the wait for open todos", async () => {
    const rig = withTodos({ todoGrace: 60_000 })
    const { id } = await rig.launch()
    await rig.clock.advance(20_000)
    await rig.clock.sleep(8 * 3_600_000)
    await rig.clock.advance(30_000)
    expect(rig.task(id).status).toBe("running")
    expect((await rig.ended(id)).status).toBe("completed")
  })

  test("the wait for open todos ends when somebody continues the work", async () => {
    const rig = withTodos()
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(3000)
    rig.onPrompt("GO ON", { text: "all done", delay: 4000 })
    rig.opencode.say(sessionID, "GO ON")
    await rig.clock.advance(3000)
    expect(rig.task(id).status).toBe("running")
    rig.opencode.stored(sessionID).todos = []
    const task = await rig.ended(id)
    expect(task).toMatchObject({ status: "completed", outcome: { openTodos: 0 } })
    expect((await rig.output(id)).answer).toBe("all done")
  })

  test("a run does not wait for open todos when todoGrace is 0", async () => {
    const rig = withTodos({ todoGrace: 0 })
    const { id } = await rig.launch()
    await rig.clock.advance(200)
    expect(rig.task(id).status).toBe("completed")
  })
})

describe("a compaction behind an answer", () => {
  test.each([
    ["time", { taskTimeout: 30_000 }],
    ["time, with a last word", { taskTimeout: 30_000, lastWord: 10_000 }],
    ["money", { maxCostPerTask: 0.045 }],
  ])("a compaction that outlasts the limit of %s leaves the answer as it is", async (_what, options) => {
    const rig = new Rig({ options: { lastWord: 0, ...options } })
    rig.opencode.contextTokens = 1000
    rig.opencode.compaction = { reply: () => ({ text: "in short", delay: 600_000 }) }
    rig.onPrompt("BIG", { text: "THE ANSWER", usage: { input: 5000 }, delay: 1000 })
    const { id, sessionID } = await rig.launch({ prompt: "BIG" })
    expect(await rig.ended(id)).toMatchObject({ status: "completed" })
    expect((await rig.output(id)).answer).toBe("THE ANSWER")
    await rig.clock.advance(5000)
    expect(rig.opencode.isWorking(sessionID)).toBe(false)
    expect(rig.errors()).toEqual([])
  })

  test.each([
    ["valid", "[1]", { status: "completed", outcome: { value: { valid: true } } }],
    ["not valid", '"no list"', { status: "error", outcome: { reason: { code: "timeout" } } }],
  ])("where it outlasts a limit, a value that is %s is judged", async (_what, text, expected) => {
    const rig = new Rig({ options: { lastWord: 0, taskTimeout: 30_000 } })
    rig.opencode.contextTokens = 1000
    rig.opencode.compaction = { reply: () => ({ text: "in short", delay: 600_000 }) }
    rig.onPrompt("BIG", { text, usage: { input: 5000 }, delay: 1000 })
    const { id, sessionID } = await rig.launch({ prompt: "BIG", schema: { type: "array" } })
    expect(await rig.ended(id)).toMatchObject(expected)
    await rig.clock.advance(5000)
    expect(rig.opencode.isWorking(sessionID)).toBe(false)
    expect(rig.errors()).toEqual([])
  })
})

test("an answer behind which a compaction outlasts a limit is not checked: the limit would end the check", async () => {
  const rig = new Rig({ options: { lastWord: 0, taskTimeout: 30_000 } })
  rig.opencode.contextTokens = 1000
  rig.opencode.compaction = { reply: () => ({ text: "in short", delay: 600_000 }) }
  rig.onPrompt("BIG", { text: "THE ANSWER", usage: { input: 5000 }, delay: 1000 })
  const { id } = await rig.launch({ prompt: "BIG", check: "sleep 1" })
  expect(await rig.ended(id)).toMatchObject({ status: "error", outcome: { reason: { code: "timeout" } } })
  expect(rig.task(id).outcome?.receipt?.check).toBeUndefined()
})

describe("a shell command that the user runs", () => {
  test("a task that waits for its own task goes on after a shell command in it, and reads that task's end", async () => {
    const rig = new Rig({ options: { maxDepth: 2, maxRepeats: 2 } })
    rig.onPrompt("INNER", { text: "found", delay: 60_000 })
    const outer = await rig.launch()
    rig.onPrompt("Background agent", { text: "the answer" })
    const inner = await rig.launch({ prompt: "INNER" }, outer.sessionID)
    for (let nth = 0; nth < 4; nth++) {
      await rig.clock.advance(2000)
      rig.opencode.shell(outer.sessionID, "ls")
    }
    await rig.clock.advance(24_000)
    expect([rig.task(outer.id).status, rig.task(inner.id, outer.sessionID).status]).toEqual(["running", "running"])
    expect(await rig.ended(outer.id)).toMatchObject({ status: "completed", outcome: { toolCalls: 0 } })
    expect(rig.task(inner.id, outer.sessionID).status).toBe("completed")
  })

  test.each([5, 3000])("a shell command of %i ms does not delay the wake of the session that it ran in", async (ms) => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "the answer", delay: 1000 })
    const { id } = await rig.launch()
    rig.opencode.shell(rig.parent, "ls", ms)
    await rig.clock.advance(5000)
    expect(rig.task(id).delivery.state).toBe("confirmed")
    expect(rig.answers().filter(({ finish }) => finish === "stop")).toHaveLength(1)
  })
})

describe("a failed run", () => {
  test("a run whose provider fails ends once, with the error text of the provider", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { status: 400, body: { error: { message: "no such luck" } } })
    const task = await rig.ended((await rig.launch()).id)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "provider", text: "no such luck" } } })
    await rig.clock.advance(60_000)
    expect(rig.notices()).toHaveLength(1)
    expect(rig.notices()[0]?.visible).toMatch(/^✗ \*\*Agent "find it" failed in \d+ms\.\*\*\nTask Progress: 1\/1$/)
    expect(rig.notices()[0]?.hidden).toContain("Reason: no such luck")
    expect(rig.opencode.toasts.at(-1)).toEqual({
      title: "Background agent failed",
      message: "find it: no such luck",
      variant: "error",
    })
  })

  test("a run fails when OpenCode's retries are used up, and shows meanwhile that it retries", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { status: 500, body: { error: { message: "out of order" } } })
    const { id } = await rig.launch()
    await rig.clock.advance(1000)
    expect(rig.view(id)).toMatchObject({ phase: "retrying", retry: { attempt: 1, message: "out of order" } })
    expect(await rig.ended(id)).toMatchObject({ status: "error", outcome: { reason: { code: "provider" } } })
    expect(rig.clock.now() - (rig.task(id).run.startedAt ?? 0)).toBeGreaterThan(60_000)
  })

  test("a run shows retries that only polling could find when no event arrives", async () => {
    const rig = new Rig()
    rig.opencode.onEvent = () => "lose"
    rig.onPrompt("FIND", { status: 500 })
    const { id } = await rig.launch()
    await rig.clock.advance(2500)
    expect(rig.view(id).phase).toBe("retrying")
  })

  test("a run fails when OpenCode no longer knows its agent at the prompt", async () => {
    const rig = new Rig()
    const launching = rig.launch()
    rig.opencode.onCall = (method) => {
      // After the launch has read the agents.
      if (method === "prompt") rig.opencode.agentList = rig.opencode.agentList.filter(({ name }) => name !== "general")
      return undefined
    }
    const task = await rig.ended((await launching).id)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "provider" } } })
    expect(task.outcome?.reason?.text).toContain("Agent not found")
  })

  test("a run does not fail by an error event that arrives before its prompt has begun", async () => {
    const rig = new Rig()
    const { id, sessionID } = await rig.launch()
    rig.opencode.tell({ type: "error", sessionID, error: { message: "Aborted", aborted: true } })
    expect((await rig.ended(id)).status).toBe("completed")
  })

  test("a run fails when nothing ever answers its prompt", async () => {
    const rig = new Rig()
    rig.opencode.onCall = (method) => (method === "prompt" ? "forget" : undefined)
    const { id } = await rig.launch()
    rig.opencode.onCall = () => undefined
    await rig.clock.advance(ANSWER_GRACE_MS)
    expect(rig.task(id).status).toBe("running")
    const task = await rig.ended(id)
    expect(task.outcome?.reason).toEqual({
      code: "host",
      text: "OpenCode did not begin to answer the prompt in time.",
    })
  })

  test("a run does not fail by idle events while its model is still thinking", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "the answer", delay: 60_000 })
    const { id, sessionID } = await rig.launch()
    for (let count = 0; count < 4; count++) {
      await rig.clock.advance(10_000)
      rig.opencode.tell({ type: "idle", sessionID })
    }
    expect((await rig.ended(id)).status).toBe("completed")
  })

  test("a run fails when its answer breaks off without an error", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(100)
    rig.opencode.onEvent = () => "lose"
    rig.opencode.abortByUser(sessionID)
    await rig.clock.advance(10)
    delete rig.opencode.stored(sessionID).messages.at(-1)?.error
    const task = await rig.ended(id)
    expect(task.outcome?.reason).toEqual({
      code: "host",
      text: "The answer broke off: OpenCode stopped working on it without an error.",
    })
  })

  test("a run completes although a later message of the user has no answer", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "the answer", delay: 100 })
    const { id, sessionID } = await rig.launch()
    await rig.clock.until(() => rig.opencode.stored(sessionID).messages.at(-1)?.finish === "stop")
    await rig.opencode.prompt({ sessionID, messageID: "msg_x", noReply: true, parts: [{ text: "by the way" }] })
    const task = await rig.ended(id)
    expect(task.status).toBe("completed")
  })
})

describe("a child's session", () => {
  test.each(["heard", "not heard"])(
    "a task is cancelled and its parent woken when the user stops the child's session (%s)",
    async (how) => {
      const rig = new Rig()
      rig.onPrompt("FIND", { hang: true, text: "so far" })
      const { id, sessionID } = await rig.launch()
      await rig.clock.advance(100)
      if (how === "not heard") rig.opencode.onEvent = () => "lose"
      rig.opencode.abortByUser(sessionID)
      const task = await rig.ended(id)
      expect(task).toMatchObject({
        status: "cancelled",
        outcome: { reason: { code: "aborted" } },
        delivery: { wake: true },
      })
      expect((await rig.output(id)).answer).toBe("so far")
    },
  )

  test.each(["heard", "not heard"])(
    "a task is cancelled and its parent woken when the user deletes the child's session (%s)",
    async (how) => {
      const rig = new Rig()
      rig.onPrompt("FIND", { hang: true, text: "so far" })
      const { id, sessionID } = await rig.launch()
      await rig.clock.advance(100)
      if (how === "not heard") {
        rig.opencode.onEvent = () => "lose"
        rig.opencode.abortByUser(sessionID)
      }
      rig.opencode.deleteByUser(sessionID)
      const task = await rig.ended(id)
      expect(task.status).toBe("cancelled")
      expect(rig.notices()).toHaveLength(1)
      expect(rig.notices()[0]?.visible).toMatch(/^⊘/)
      expect((await rig.opencode.activity()).has(sessionID)).toBe(false)
      await expect(rig.output(id)).resolves.toMatchObject({ answer: expect.any(String) })
    },
  )
})

describe("failed requests to OpenCode", () => {
  test("a run completes although several requests to OpenCode fail while it is watched", async () => {
    const rig = new Rig()
    let failures = 0
    rig.opencode.onCall = (method) => {
      if (!["activity", "messagesSince", "session", "openTodos"].includes(method) || failures-- <= 0) return undefined
      return { fail: new OpencodeError("busy") }
    }
    const { id } = await rig.launch()
    failures = 8
    expect((await rig.ended(id)).status).toBe("completed")
  })

  test("polls of a slow OpenCode do not pile up", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    await rig.launch()
    rig.opencode.calls.length = 0
    rig.opencode.onCall = (method) => (method === "activity" ? { slow: 20_000 } : undefined)
    await rig.clock.advance(60_000)
    expect(rig.opencode.calls.filter((method) => method === "activity").length).toBeLessThanOrEqual(3)
  })
})

describe("a compaction", () => {
  const STEP = { tools: [{ name: "read", args: { ms: 500 } }], text: "Progress: 2 of 3" }
  const GO_ON = "A compaction of the conversation ended your turn while you were at work. Go on where you were."

  /** An agent whose answer fills the context: OpenCode compacts behind it, and asks whether there is more to do. */
  const filling = ({ options = {}, delay = 0 }: { options?: object; delay?: number }) => {
    const rig = new Rig({ options })
    rig.opencode.contextTokens = 1000
    rig.onPrompt("FIND", { text: "the answer", usage: { input: 5000 } })
    rig.onPrompt("Continue if you have next steps", { text: "There is nothing left to do", ...(delay && { delay }) })
    return rig
  }

  test.each([
    ["", {}],
    [", though that fails", { reply: () => ({ status: 400 }) }],
  ])("a run goes on after the user compacts its session in the middle of the work%s", async (_how, compaction) => {
    const rig = new Rig()
    rig.opencode.compaction = compaction
    rig.script(({ prompt, toolResults }) => {
      if (prompt.includes(GO_ON)) return { text: "the answer" }
      return prompt.includes("FIND") && toolResults.length === 0 ? STEP : undefined
    })
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(200)
    rig.opencode.compact(sessionID)
    expect(await rig.ended(id)).toMatchObject({ status: "completed", outcome: { toolCalls: 1 } })
    expect((await rig.output(id)).answer).toBe("the answer")
  })

  test("a compaction after an answer that fills the context keeps that answer", async () => {
    const rig = filling({ delay: 3000 })
    const { id, sessionID } = await rig.launch()
    expect((await rig.ended(id)).status).toBe("completed")
    expect(rig.opencode.isWorking(sessionID)).toBe(false)
    expect((await rig.output(id)).answer).toBe("the answer")
    expect(rig.notices()[0]?.hidden).toContain("Its whole answer:\n<task_output>\nthe answer\n")
  })

  test("a task whose answer ended before it was asked for its last word has completed", async () => {
    // The machine sleeps while OpenCode compacts, and the request behind that comes near the time limit.
    const rig = filling({ options: { taskTimeout: 60_000, lastWord: 3000, pollInterval: 0 } })
    const { id } = await rig.launch()
    await rig.clock.advance(20)
    await rig.clock.sleep(3_600_000)
    expect(await rig.ended(id)).toMatchObject({ status: "completed", run: { lastWordAt: expect.any(Number) } })
    expect((await rig.output(id)).answer).toBe("the answer")
  })

  test("a task that its user stops after a compaction, before it has read its last message, is cancelled", async () => {
    const rig = filling({ delay: 3000 })
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(500)
    await rig.manager.tell(id, "MORE", rig.caller)
    rig.opencode.abortByUser(sessionID)
    expect(await rig.ended(id)).toMatchObject({ status: "cancelled", outcome: { reason: { code: "aborted" } } })
    expect((await rig.output(id)).answer).toBe("the answer")
  })
})

test("a run that crashed after a tool call with finish reason stop is interrupted, not completed", async () => {
  const rig = new Rig()
  rig.script(({ prompt, toolResults }) => {
    if (!prompt.includes("FIND")) return undefined
    const look = { tools: [{ name: "read", args: {} }], text: "Let me look at it", finish: "stop" }
    return toolResults.length === 0 ? look : HANG
  })
  const { id, sessionID } = await rig.launch()
  await rig.clock.advance(1000)
  rig.crash()
  // The next step had not begun yet.
  rig.opencode.stored(sessionID).messages.pop()
  rig.restart()
  await rig.manager.recover()
  expect(await rig.ended(id)).toMatchObject({ status: "error", outcome: { reason: { code: "interrupted" } } })
})

test("a run whose last message holds only thoughts has ended without an answer", async () => {
  const rig = new Rig()
  rig.script(({ prompt, toolResults }) => {
    if (!prompt.includes("FIND")) return undefined
    const look = { tools: [{ name: "read", args: {} }], text: "Let me look at it" }
    return toolResults.length === 0 ? look : { text: "", reasoning: "I should stop here" }
  })
  const { id } = await rig.launch()
  expect((await rig.ended(id)).outcome).toMatchObject({ thought: "I should stop here" })
  const [notice] = rig.notices()
  expect(notice?.visible).toMatch(/^⊖ .* ended without an answer after /)
  expect(notice?.hidden).toContain("Its whole earlier text:\n<task_output>\nLet me look at it\n")
})

test("a message that a user writes while an answer is verified is answered before the run ends", async () => {
  const slow: Feature = {
    name: "slow",
    verifies: () => true,
    body: ({ clock }) => ({
      verify: async () => {
        await sleepFor(clock, 3000)
        return { ok: true, finding: {} }
      },
    }),
  }
  const rig = new Rig({ features: [slow] })
  rig.onPrompt("FIND", { text: "found" })
  rig.onPrompt("HELLO", { text: "found more", delay: 5000 })
  const { id, sessionID } = await rig.launch()
  await rig.clock.advance(1000)
  rig.opencode.say(sessionID, "HELLO", { agent: "general" })
  expect((await rig.ended(id)).status).toBe("completed")
  expect(rig.opencode.stored(sessionID).messages.at(-1)?.finish).toBe("stop")
  expect((await rig.output(id)).answer).toBe("found more")
  expect(rig.notices()[0]?.hidden).toContain("found more")
})
