import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { NO_USAGE } from "../../src/core/task.ts"
import { Rig } from "../support/rig.ts"

const HANG = { hang: true } as const

describe("a run over a limit", () => {
  const limited = async (options: object, reply: Parameters<Rig["onPrompt"]>[1]) => {
    const rig = new Rig({ options })
    rig.onPrompt("FIND", reply)
    const { id, sessionID } = await rig.launch()
    const task = await rig.ended(id)
    await rig.clock.advance(1000)
    expect((await rig.opencode.activity()).has(sessionID)).toBe(false)
    expect(rig.notices()).toHaveLength(1)
    return { rig, task }
  }

  test("a time limit ends and stops a run, and its text is preserved", async () => {
    const { rig, task } = await limited({ taskTimeout: 5000 }, { hang: true, text: "so far" })
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "timeout" } } })
    expect((task.run.endedAt ?? 0) - (task.run.startedAt ?? 0)).toBe(5000)
    expect((await rig.output(task.id)).answer).toBe("so far")
  })

  test("a time limit ends and stops a run even if polling is off", async () => {
    const { task } = await limited({ taskTimeout: 5000, pollInterval: 0 }, { hang: true })
    expect(task.outcome?.reason?.code).toBe("timeout")
  })

  test("a limit on silence ends and stops a silent run", async () => {
    const { task } = await limited({ stallTimeout: 5000 }, { hang: true, text: "so far" })
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "silence" } } })
  })

  test("a token limit ends and stops a run", async () => {
    const { task } = await limited({ maxTokensPerTask: 50 }, { tools: [{ name: "read", args: {} }] })
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "tokens" } } })
  })

  test("repeated empty answers end and stop a run", async () => {
    const { task } = await limited({}, { empty: true })
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "empty" } } })
    expect((task.run.endedAt ?? 0) - (task.run.startedAt ?? 0)).toBeLessThan(1000)
  })
})

test("empty answers end a run at the third in a row, even after sixty tool calls", async () => {
  const rig = new Rig()
  rig.script(({ lastUser, toolResults }) => {
    if (!lastUser.includes("FIND")) return undefined
    const { length } = toolResults
    return length < 60 ? { tools: [{ name: "read", args: { length } }] } : { empty: true }
  })
  const { outcome } = await rig.ended((await rig.launch()).id)
  expect(outcome).toMatchObject({ toolCalls: 60, reason: { text: expect.stringContaining("sent 3 empty answers") } })
})

test("answers of which only the end was heard are verified with OpenCode before they count as empty", async () => {
  const rig = new Rig()
  rig.opencode.onEvent = ({ type }) =>
    type === "tool" || type === "text" || type === "text-delta" ? "lose" : undefined
  rig.script(({ lastUser, toolResults }) => {
    if (!lastUser.includes("FIND")) return undefined
    return toolResults.length < 6 ? { tools: [{ name: "read", args: {} }] } : { text: "found" }
  })
  const task = await rig.ended((await rig.launch()).id)
  expect(task).toMatchObject({ status: "completed", outcome: { toolCalls: 6, recentTools: Array(5).fill("read") } })
  expect(rig.notices()[0]?.hidden).toContain("6 tool calls")
})

test("a cancelled run's figures come from its messages, and are minimums if a step was cut off", async () => {
  const rig = new Rig()
  rig.opencode.onEvent = ({ type }) => (type === "tool" || type === "answered" ? "lose" : undefined)
  rig.script(({ lastUser, toolResults }) => {
    if (!lastUser.includes("FIND")) return undefined
    return toolResults.length < 2 ? { tools: [{ name: "read", args: {} }] } : { hang: true, text: "so far" }
  })
  const { id } = await rig.launch()
  await rig.clock.advance(1000)
  const [view] = await rig.manager.cancel({ type: "all" }, rig.caller)
  expect(view?.task.outcome).toMatchObject({ toolCalls: 2, usage: { output: 40, atLeast: true } })
  await rig.ended(id)
  await rig.clock.advance(20_000)
  expect((await rig.opencode.session(rig.task(id).sessionID))?.record?.task.outcome).toEqual(rig.task(id).outcome)
})

test.each([
  [{}, 12_000],
  [{ pollInterval: 2000 }, 2000],
  [{ pollInterval: 30_000 }, 30_000],
])("OpenCode is polled at the user's interval, or rarely by default while events arrive: %j", async (options, ms) => {
  const rig = new Rig({ options: { stallTimeout: 0, ...options } })
  rig.onPrompt("FIND", HANG)
  await rig.launch()
  await rig.clock.advance(60_000)
  rig.opencode.calls.length = 0
  await rig.clock.advance(120_000)
  expect(rig.opencode.calls.filter((call) => call === "activity")).toHaveLength(120_000 / ms)
})

test("answers whose end is reported before their content do not count as empty", async () => {
  const rig = new Rig()
  rig.onPrompt("FIND", HANG)
  const { id, sessionID } = await rig.launch()
  await rig.clock.advance(100)
  for (const messageID of ["msg_1", "msg_2", "msg_3", "msg_4"]) {
    rig.opencode.tell({ type: "answered", sessionID, messageID, usage: NO_USAGE, finish: "called" })
    rig.opencode.tell({
      type: "tool",
      sessionID,
      messageID,
      callID: `call of ${messageID}`,
      tool: "read",
      state: "ended",
    })
  }
  await rig.clock.advance(100)
  expect(rig.task(id).status).toBe("running")
})

test("a time limit holds without constant retries even if OpenCode does not report its sessions' state", async () => {
  const rig = new Rig({ options: { taskTimeout: 60_000, lastWord: 0 } })
  rig.onPrompt("FIND", HANG)
  const { id } = await rig.launch()
  await rig.clock.advance(1000)
  rig.opencode.onCall = (method) => (method === "activity" ? { fail: new OpencodeError("HTTP 500") } : undefined)
  await rig.clock.advance(120_000)
  expect(rig.task(id).outcome?.reason?.code).toBe("timeout")
  expect(
    rig.opencode.logs.filter(({ message }) => message === "could not ask OpenCode what its sessions do").length,
  ).toBeLessThan(60)
})

describe("the limit on silence", () => {
  test("a run is not silent while a tool runs, a question waits or OpenCode retries", async () => {
    const rig = new Rig({ options: { stallTimeout: 5000, permissionTimeout: 0 } })
    rig.opencode.asking.add("bash")
    rig.onPrompt("TOOL", { tools: [{ name: "build", args: { ms: 20_000 } }] })
    rig.onPrompt("ASK", { tools: [{ name: "bash", args: {} }] })
    rig.onPrompt("RETRY", { status: 503 })
    const ids = []
    for (const prompt of ["TOOL", "ASK", "RETRY"]) ids.push((await rig.launch({ prompt })).id)
    await rig.clock.advance(15_000)
    expect(ids.map((id) => rig.task(id).status)).toEqual(["running", "running", "running"])
  })

  const HALF = { ...HANG, call: { name: "write", args: '{"filePath": "' } }

  test("a run whose tool call is never finished ends after three times the limit on silence", async () => {
    const rig = new Rig({ options: { stallTimeout: 60_000 } })
    rig.onPrompt("FIND", HALF)
    const { id } = await rig.launch()
    await rig.clock.advance(170_000)
    expect(rig.task(id).status).toBe("running")
    await rig.clock.advance(20_000)
    expect(rig.task(id).outcome?.reason?.code).toBe("silence")
  })

  test("a run that was parked while it wrote a tool call still ends by silence", async () => {
    const rig = new Rig({ options: { stallTimeout: 60_000 } })
    rig.script(({ lastUser }) => (lastUser.includes("FIND") ? replies.shift() : undefined))
    const replies = [HALF, HANG]
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(1000)
    rig.opencode.conclude(sessionID, { status: 429, body: { error: { message: "Rate limit. Try again in 60s" } } })
    await rig.clock.advance(110_000)
    expect(rig.task(id)).toMatchObject({ status: "running", run: { parkedTimes: 1 } })
    await rig.clock.advance(20_000)
    expect(rig.task(id).outcome?.reason?.code).toBe("silence")
  })

  test("a half-written tool call is found in OpenCode if no event reported it", async () => {
    const rig = new Rig({ options: { stallTimeout: 60_000 } })
    rig.opencode.onEvent = ({ type }) => (type === "tool" ? "lose" : undefined)
    rig.onPrompt("FIND", { ...HALF, delay: 50_000 })
    const { id } = await rig.launch()
    await rig.clock.advance(120_000)
    expect(rig.task(id).status).toBe("running")
    await rig.clock.advance(70_000)
    expect(rig.task(id).outcome?.reason?.code).toBe("silence")
  })

  test("a run is not silent while it waits for a slot or its prompt is accepted slowly", async () => {
    const rig = new Rig({ options: { stallTimeout: 5000, maxConcurrentTasks: 1 } })
    rig.script(({ prompt, toolResults }) =>
      prompt.includes("FIRST") && toolResults.length === 0
        ? { tools: [{ name: "build", args: { ms: 20_000 } }] }
        : undefined,
    )
    await rig.launch({ prompt: "FIRST" })
    const { id, sessionID } = await rig.launch()
    rig.opencode.onCall = (method, session) =>
      method === "prompt" && session === sessionID ? { slow: 500 } : undefined
    const task = await rig.ended(id)
    expect((task.run.startedAt ?? 0) - task.run.createdAt).toBeGreaterThan(15_000)
    expect(task.status).toBe("completed")
  })

  test("a run is not silent while the notification of its own ended task is still due", async () => {
    const rig = new Rig({ options: { stallTimeout: 5000, maxDepth: 2 } })
    rig.script(({ prompt, toolResults }) =>
      prompt.includes("OWN") && toolResults.length === 0
        ? { tools: [{ name: "build", args: { ms: 20_000 } }] }
        : undefined,
    )
    const outer = await rig.launch()
    const own = await rig.launch({ prompt: "OWN" }, outer.sessionID)
    await rig.clock.advance(15_000)
    rig.opencode.onCall = (method, session) =>
      method === "prompt" && session === outer.sessionID ? { slow: 2000 } : undefined
    await rig.clock.until(() => rig.task(own.id, outer.sessionID).status === "completed")
    await rig.manager.ready(rig.parent)
    expect((await rig.ended(outer.id)).status).toBe("completed")
  })

  test("a run ends after ten minutes of silence, even if its record is rewritten meanwhile", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    const task = await rig.ended((await rig.launch()).id)
    expect(task.outcome?.reason?.code).toBe("silence")
    expect((task.run.endedAt ?? 0) - (task.run.startedAt ?? 0)).toBeLessThan(610_000)
  })

  test("silence is verified only once at a time, however slow OpenCode is", async () => {
    const rig = new Rig({ options: { stallTimeout: 5000 } })
    rig.opencode.onEvent = () => "lose"
    rig.opencode.onCall = (method) => (method === "lastMessage" ? { slow: 250 } : undefined)
    rig.script(({ lastUser, toolResults }) => {
      if (!lastUser.includes("FIND")) return undefined
      return toolResults.length < 4 ? { tools: [{ name: "read", args: {} }], delay: 4000 } : { text: "found" }
    })
    expect((await rig.ended((await rig.launch()).id)).status).toBe("completed")
    expect(rig.opencode.calls.filter((method) => method === "lastMessage").length).toBeLessThan(6)
  })

  test("a run is not silent if OpenCode shows a running tool or a question without an event", async () => {
    const rig = new Rig({ options: { stallTimeout: 5000, permissionTimeout: 0 } })
    rig.opencode.onEvent = () => "lose"
    rig.opencode.asking.add("bash")
    rig.onPrompt("TOOL", { tools: [{ name: "build", args: { ms: 20_000 } }] })
    rig.onPrompt("ASK", { tools: [{ name: "bash", args: {} }] })
    const tool = await rig.launch({ prompt: "TOOL" })
    const ask = await rig.launch({ prompt: "ASK" })
    await rig.clock.advance(15_000)
    expect(rig.task(tool.id).status).toBe("running")
    expect(rig.view(ask.id).phase).toBe("waiting for permission")
  })
})
