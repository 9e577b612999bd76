import { describe, expect, test } from "vitest"
import { HostError } from "../../src/core/ports.ts"
import { ANSWER_GRACE_MS } from "../../src/manager/watcher.ts"
import { Rig } from "../support/rig.ts"

const HANG = { hang: true } as const

describe("a run completes", () => {
  test("when its model's turn ends well; the parent is told once, and nothing ticks any more", async () => {
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
    expect(rig.host.toasts.at(-1)).toMatchObject({ title: "Background agent finished", variant: "success" })
  })

  test.each<[string, Rig["host"]["onEvent"]]>([
    ["every event comes twice", () => "double"],
    ["no event comes at all", () => "lose"],
    ["every event comes late", () => ({ late: 1500 })],
    ["the idle event is lost", (event) => (event.type === "idle" ? "lose" : undefined)],
  ])("also when %s", async (_when, onEvent) => {
    const rig = new Rig()
    rig.host.onEvent = onEvent
    const task = await rig.ended((await rig.launch()).id)
    await rig.clock.advance(60_000)
    expect(task.status).toBe("completed")
    expect(rig.notices()).toHaveLength(1)
    expect(rig.timers.pending).toBe(0)
  })

  test("by events alone when polling is off", async () => {
    const rig = new Rig({ options: { pollInterval: 0, taskTimeout: 0, stallTimeout: 0 } })
    const task = await rig.launch()
    expect(rig.timers.pending).toBe(0)
    expect((await rig.ended(task.id)).status).toBe("completed")
    expect(rig.host.calls).not.toContain("activity")
  })

  test("with one look at the host a tick, however many run", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    for (let count = 0; count < 5; count++) await rig.launch()
    rig.host.calls.length = 0
    await rig.clock.advance(10_000)
    expect(rig.host.calls).toEqual(Array(5).fill("activity"))
    expect(rig.timers.pending).toBe(1)
  })

  test("with its tool calls counted by id, and the last ones named", async () => {
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
      toolCalls: 6,
      recentTools: ["grep", "read", "edit", "glob", "list"],
      lastText: "looking",
    })
    expect((await rig.ended(id)).outcome?.toolCalls).toBe(6)
  })

  test("with a note when it ended at a refused permission", async () => {
    const rig = new Rig()
    rig.host.asking.add("question")
    rig.onPrompt("FIND", { tools: [{ name: "question", args: {} }] })
    const { id } = await rig.launch()
    await rig.clock.advance(100)
    const ask = rig.view(id).asks[0]
    if (!ask) throw new Error("no question")
    await rig.host.refuse(ask, "")
    const task = await rig.ended(id)
    expect(task).toMatchObject({ status: "completed", outcome: { note: "The agent stopped at a refused permission." } })
  })
})

describe("open todos", () => {
  const withTodos = (options: object = {}) => {
    const rig = new Rig({ options: { todoGrace: 5000, ...options } })
    rig.script(({ toolResults, lastUser }) => {
      if (!lastUser.includes("FIND")) return undefined
      const todos = [{ content: "rest", status: "pending" }]
      return toolResults.length === 0 ? { tools: [{ name: "todowrite", args: { todos } }] } : { text: "half done" }
    })
    return rig
  }

  test("of an idle child are waited for, then told", async () => {
    const rig = withTodos()
    const { id } = await rig.launch()
    await rig.clock.advance(4000)
    expect(rig.task(id).status).toBe("running")
    const task = await rig.ended(id)
    expect(task).toMatchObject({ status: "completed", outcome: { openTodos: 1 } })
    expect(rig.notices()[0]?.hidden).toContain("the agent left 1 of its todos open")
  })

  test("are waited for although polling is off", async () => {
    const rig = withTodos({ pollInterval: 0 })
    const { id } = await rig.launch()
    await rig.clock.advance(10_000)
    expect(rig.task(id).status).toBe("completed")
  })

  test("end the wait when somebody goes on with them", async () => {
    const rig = withTodos()
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(3000)
    rig.onPrompt("GO ON", { text: "all done", delay: 4000 })
    rig.host.say(sessionID, "GO ON")
    await rig.clock.advance(3000)
    expect(rig.task(id).status).toBe("running")
    rig.host.stored(sessionID).todos = []
    const task = await rig.ended(id)
    expect(task).toMatchObject({ status: "completed", outcome: { openTodos: 0 } })
    expect((await rig.manager.output(id, rig.caller)).answer).toBe("all done")
  })

  test("are not waited for with a grace of 0", async () => {
    const rig = withTodos({ todoGrace: 0 })
    const { id } = await rig.launch()
    await rig.clock.advance(200)
    expect(rig.task(id).status).toBe("completed")
  })
})

describe("a run fails", () => {
  test("when the provider fails, in its words, whatever comes first: the idle or the message's error", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { status: 400, body: { error: { message: "no such luck" } } })
    const task = await rig.ended((await rig.launch()).id)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "provider", text: "no such luck" } } })
    await rig.clock.advance(60_000)
    expect(rig.notices()).toHaveLength(1)
    expect(rig.notices()[0]?.visible).toMatch(/^✗ \*\*Agent "find it" failed in \d+ms\.\*\*\nTask Progress: 1\/1$/)
    expect(rig.notices()[0]?.hidden).toContain("Reason: no such luck")
    expect(rig.host.toasts.at(-1)).toEqual({
      title: "Background agent failed",
      message: "find it: no such luck",
      variant: "error",
    })
  })

  test("when the host's retries are used up, and says meanwhile that it retries", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { status: 500, body: { error: { message: "overloaded" } } })
    const { id } = await rig.launch()
    await rig.clock.advance(1000)
    expect(rig.view(id)).toMatchObject({ phase: "retrying", retry: { attempt: 1, message: "overloaded" } })
    expect(await rig.ended(id)).toMatchObject({ status: "error", outcome: { reason: { code: "provider" } } })
    expect(rig.clock.now() - (rig.task(id).run.startedAt ?? 0)).toBeGreaterThan(60_000)
  })

  test("learns of retries by polling when no event comes", async () => {
    const rig = new Rig()
    rig.host.onEvent = () => "lose"
    rig.onPrompt("FIND", { status: 500 })
    const { id } = await rig.launch()
    await rig.clock.advance(2500)
    expect(rig.view(id).phase).toBe("retrying")
  })

  test("when the host says of an agent, too late, that it does not know it", async () => {
    const rig = new Rig()
    const launching = rig.launch()
    rig.host.onCall = (method) => {
      // After the launch has read the agents.
      if (method === "prompt") rig.host.agentList = rig.host.agentList.filter(({ name }) => name !== "general")
      return undefined
    }
    const task = await rig.ended((await launching).id)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "provider" } } })
    expect(task.outcome?.reason?.text).toContain("Agent not found")
  })

  test("but not for an error that comes before the prompt has begun: it may be an earlier run's", async () => {
    const rig = new Rig()
    const { id, sessionID } = await rig.launch()
    rig.host.tell({ type: "error", sessionID, error: { name: "MessageAbortedError", message: "Aborted" } })
    expect((await rig.ended(id)).status).toBe("completed")
  })

  test("when nothing ever answers the prompt", async () => {
    const rig = new Rig()
    rig.host.onCall = (method) => (method === "prompt" ? "forget" : undefined)
    const { id } = await rig.launch()
    rig.host.onCall = () => undefined
    await rig.clock.advance(ANSWER_GRACE_MS)
    expect(rig.task(id).status).toBe("running")
    const task = await rig.ended(id)
    expect(task.outcome?.reason).toEqual({
      code: "host",
      text: "OpenCode did not begin to answer the prompt within 10 seconds.",
    })
  })

  test("when the answer breaks off without an error", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(100)
    rig.host.onEvent = () => "lose"
    rig.host.abortByUser(sessionID)
    await rig.clock.advance(10)
    delete rig.host.stored(sessionID).messages.at(-1)?.error
    const task = await rig.ended(id)
    expect(task.outcome?.reason).toEqual({
      code: "host",
      text: "The answer broke off: OpenCode stopped working on it without an error.",
    })
  })

  test("completes all the same when only a later message of the user's has no answer", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "the answer", delay: 100 })
    const { id, sessionID } = await rig.launch()
    await rig.clock.until(() => rig.host.stored(sessionID).messages.at(-1)?.finish === "stop")
    await rig.host.prompt({ sessionID, messageID: "msg_x", noReply: true, parts: [{ id: "p", text: "by the way" }] })
    const task = await rig.ended(id)
    expect(task.status).toBe("completed")
  })
})

describe("a limit ends a run, really stops it, and keeps what it had written:", () => {
  const limited = async (options: object, reply: Parameters<Rig["onPrompt"]>[1]) => {
    const rig = new Rig({ options })
    rig.onPrompt("FIND", reply)
    const { id, sessionID } = await rig.launch()
    const task = await rig.ended(id)
    await rig.clock.advance(1000)
    expect((await rig.host.activity()).has(sessionID)).toBe(false)
    expect(rig.notices()).toHaveLength(1)
    return { rig, task }
  }

  test("its time", async () => {
    const { rig, task } = await limited({ taskTimeout: 5000 }, { hang: true, text: "so far" })
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "timeout" } } })
    expect((task.run.endedAt ?? 0) - (task.run.startedAt ?? 0)).toBe(5000)
    expect((await rig.manager.output(task.id, rig.caller)).answer).toBe("so far")
  })

  test("its time, also with polling off", async () => {
    const { task } = await limited({ taskTimeout: 5000, pollInterval: 0 }, { hang: true })
    expect(task.outcome?.reason?.code).toBe("timeout")
  })

  test("silence", async () => {
    const { task } = await limited({ stallTimeout: 5000 }, { hang: true, text: "so far" })
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "silence" } } })
  })

  test("tokens", async () => {
    const { task } = await limited({ maxTokensPerTask: 50 }, { tools: [{ name: "read", args: {} }] })
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "tokens" } } })
  })

  test("empty answers", async () => {
    const { task } = await limited({}, { empty: true })
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "empty" } } })
    expect((task.run.endedAt ?? 0) - (task.run.startedAt ?? 0)).toBeLessThan(1000)
  })
})

test("answers whose end is told of before their content are not empty", async () => {
  const rig = new Rig()
  rig.onPrompt("FIND", HANG)
  const { id, sessionID } = await rig.launch()
  await rig.clock.advance(100)
  for (const messageID of ["msg_1", "msg_2", "msg_3", "msg_4"]) {
    rig.host.tell({ type: "answered", sessionID, messageID, finish: "tool-calls" })
    rig.host.tell({ type: "tool", sessionID, messageID, callID: `call of ${messageID}`, tool: "read", ended: true })
  }
  await rig.clock.advance(100)
  expect(rig.task(id).status).toBe("running")
})

describe("silence", () => {
  test("is no silence while a tool runs, a question waits, or the host tries again", async () => {
    const rig = new Rig({ options: { stallTimeout: 5000, permissionTimeout: 0 } })
    rig.host.asking.add("bash")
    rig.onPrompt("TOOL", { tools: [{ name: "build", args: { ms: 20_000 } }] })
    rig.onPrompt("ASK", { tools: [{ name: "bash", args: {} }] })
    rig.onPrompt("RETRY", { status: 503 })
    const ids = []
    for (const prompt of ["TOOL", "ASK", "RETRY"]) ids.push((await rig.launch({ prompt })).id)
    await rig.clock.advance(15_000)
    expect(ids.map((id) => rig.task(id).status)).toEqual(["running", "running", "running"])
  })

  test("of ten minutes ends a run, although its record is written again meanwhile", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    const task = await rig.ended((await rig.launch()).id)
    expect(task.outcome?.reason?.code).toBe("silence")
    expect((task.run.endedAt ?? 0) - (task.run.startedAt ?? 0)).toBeLessThan(610_000)
  })

  test("is checked against the host before it ends a run: the events may be what is silent", async () => {
    const rig = new Rig({ options: { stallTimeout: 5000 } })
    rig.host.onEvent = () => "lose"
    rig.script(({ lastUser, toolResults }) => {
      if (!lastUser.includes("FIND")) return undefined
      return toolResults.length < 4 ? { tools: [{ name: "read", args: {} }], delay: 4000 } : { text: "found" }
    })
    const task = await rig.ended((await rig.launch()).id)
    expect(task.status).toBe("completed")
  })

  test("is no silence when the host shows a running tool or an open question that no event told of", async () => {
    const rig = new Rig({ options: { stallTimeout: 5000, permissionTimeout: 0 } })
    rig.host.onEvent = () => "lose"
    rig.host.asking.add("bash")
    rig.onPrompt("TOOL", { tools: [{ name: "build", args: { ms: 20_000 } }] })
    rig.onPrompt("ASK", { tools: [{ name: "bash", args: {} }] })
    const tool = await rig.launch({ prompt: "TOOL" })
    const ask = await rig.launch({ prompt: "ASK" })
    await rig.clock.advance(15_000)
    expect(rig.task(tool.id).status).toBe("running")
    expect(rig.view(ask.id).phase).toBe("waiting for permission")
  })
})

describe("questions", () => {
  const asking = async (options: object = {}) => {
    const rig = new Rig({ options: { permissionTimeout: 60_000, ...options } })
    rig.host.asking.add("bash")
    rig.script(({ lastUser, toolResults }) => {
      if (!lastUser.includes("FIND")) return undefined
      return toolResults.length === 0 ? { tools: [{ name: "bash", args: {} }] } : { text: "went on" }
    })
    const task = await rig.launch()
    await rig.clock.advance(100)
    return { rig, ...task }
  }

  test("are shown, and go away when the user answers", async () => {
    const { rig, id } = await asking()
    expect(rig.view(id)).toMatchObject({ phase: "waiting for permission", asks: [{ what: "bash" }] })
    expect(rig.host.toasts.at(-1)).toMatchObject({ title: "A background agent asks for permission" })
    rig.host.answer(rig.view(id).asks[0]?.id ?? "")
    expect(await rig.ended(id)).toMatchObject({ status: "completed" })
  })

  test("are refused when nobody answers in time, and the child goes on", async () => {
    const { rig, id } = await asking()
    const task = await rig.ended(id)
    expect(task.status).toBe("completed")
    expect((task.run.endedAt ?? 0) - (task.run.startedAt ?? 0)).toBeGreaterThanOrEqual(60_000)
    expect((task.run.endedAt ?? 0) - (task.run.startedAt ?? 0)).toBeLessThan(61_000)
  })

  test("wait for ever with a timeout of 0", async () => {
    const { rig, id } = await asking({ permissionTimeout: 0, taskTimeout: 0 })
    await rig.clock.advance(3_600_000)
    expect(rig.view(id).phase).toBe("waiting for permission")
  })

  test("are told to the parent's model after a while, once, without starting it", async () => {
    const { rig, id } = await asking()
    await rig.clock.advance(50_000)
    const hints = rig.host
      .stored(rig.parent)
      .messages.filter(({ parts }) => JSON.stringify(parts).includes("waits for"))
    expect(hints).toHaveLength(1)
    expect(JSON.stringify(hints[0]?.parts)).toContain(`Background task ${id} (find it) waits for the user's answer`)
    expect(rig.answers()).toEqual([])
  })

  test("of a session below the child's are the child's own", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(100)
    const below = rig.host.openSession({ parentID: sessionID })
    const ask = { id: "per_x", sessionID: below, kind: "question", what: "Which?", askedAt: rig.clock.now() } as const
    rig.host.tell({ type: "asked", ask })
    expect(rig.view(id)).toMatchObject({ phase: "waiting for an answer", asks: [{ what: "Which?" }] })
    rig.host.tell({ type: "replied", sessionID: below, askID: "per_x" })
    expect(rig.view(id).phase).toBe("working")
  })
})

describe("a child's session", () => {
  test.each(["heard", "not heard"])(
    "that the user stops ends the task as cancelled and wakes the parent (%s)",
    async (how) => {
      const rig = new Rig()
      rig.onPrompt("FIND", { hang: true, text: "so far" })
      const { id, sessionID } = await rig.launch()
      await rig.clock.advance(100)
      if (how === "not heard") rig.host.onEvent = () => "lose"
      rig.host.abortByUser(sessionID)
      const task = await rig.ended(id)
      expect(task).toMatchObject({
        status: "cancelled",
        outcome: { reason: { code: "aborted" } },
        delivery: { wake: true },
      })
      expect((await rig.manager.output(id, rig.caller)).answer).toBe("so far")
    },
  )

  test.each(["heard", "not heard"])(
    "that the user deletes ends the task as cancelled and wakes the parent (%s)",
    async (how) => {
      const rig = new Rig()
      rig.onPrompt("FIND", { hang: true, text: "so far" })
      const { id, sessionID } = await rig.launch()
      await rig.clock.advance(100)
      if (how === "not heard") {
        rig.host.onEvent = () => "lose"
        rig.host.abortByUser(sessionID)
      }
      rig.host.deleteByUser(sessionID)
      const task = await rig.ended(id)
      expect(task.status).toBe("cancelled")
      expect(rig.notices()).toHaveLength(1)
      expect(rig.notices()[0]?.visible).toMatch(/^⊘/)
      expect((await rig.host.activity()).has(sessionID)).toBe(false)
      await expect(rig.manager.output(id, rig.caller)).resolves.toMatchObject({ answer: expect.any(String) })
    },
  )
})

describe("the host's failures", () => {
  test("while a run is looked at are got over", async () => {
    const rig = new Rig()
    let failures = 0
    rig.host.onCall = (method) => {
      if (!["activity", "messagesSince", "session", "openTodos"].includes(method) || failures-- <= 0) return undefined
      return { fail: new HostError("busy") }
    }
    const { id } = await rig.launch()
    failures = 8
    expect((await rig.ended(id)).status).toBe("completed")
  })

  test("that make every look slow do not stack looks up", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    await rig.launch()
    rig.host.calls.length = 0
    rig.host.onCall = (method) => (method === "activity" ? { slow: 20_000 } : undefined)
    await rig.clock.advance(60_000)
    expect(rig.host.calls.filter((method) => method === "activity").length).toBeLessThanOrEqual(3)
  })
})
