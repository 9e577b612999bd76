import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest"
import { ask, callTool, callTools, eventually, openSession } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launch, notified, startPlugged } from "../support/plugin.ts"

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(
    model,
    { taskTimeout: 15_000, stallTimeout: 2500, maxTokensPerTask: 1000, todoGrace: 600, pollInterval: 500 },
    { config: { agent: { doer: { mode: "subagent", description: "Does it.", prompt: "Do it." } } } },
  )
  await ask(opencode, await openSession(opencode), "warm up")
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => model.reset())

const outputOf = async (session: string, id: string) =>
  (await callTool(opencode, model, session, "superagents_output", { task_id: id })).output ?? ""

const words = (count: number) => Array.from({ length: count }, (_, index) => `word${index} `).join("")

/** A tool call whose arguments are never complete. */
const HALF = { name: "write", args: '{"filePath": "' }

describe("a task over a limit", () => {
  test("a task that passes the option taskTimeout is ended, names that limit, and keeps its text", async () => {
    model.use((request) =>
      request.lastUser === "P-ENDLESS" ? { text: words(200), chunks: 200, pace: 300 } : undefined,
    )
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-ENDLESS" })
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).toContain(" failed in ")
    expect(notification?.hidden).toContain("Reason: Stopped at its time limit of 15s (the option taskTimeout).")
    expect(await outputOf(session, id)).toContain(`Text it had written:\n<task_output id="${id}">\nword0 word1 `)
    const request = await model.waitFor((each) => each.sessionID === child)
    await eventually(() => request.aborted.aborted)
  })

  test("a task that passes the argument timeout is ended, names that limit, and keeps its text", async () => {
    model.use((request) => (request.lastUser === "P-TIMED" ? { hang: true, text: "not much" } : undefined))
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-TIMED", timeout: 1500 })
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).toMatch(/ failed in [1-9](\.\d)?s\./)
    expect(notification?.hidden).toContain("Reason: Stopped at its time limit of 1.5s (its timeout argument).")
    expect(await outputOf(session, id)).toContain("Status: error")
    const request = await model.waitFor((each) => each.sessionID === child)
    await eventually(() => request.aborted.aborted)
  })

  test("a task that reaches its timeout names its provider's repeated error and when that began", async () => {
    const body = { error: { message: "the disk of our server is broken" } }
    model.use((request) =>
      request.lastUser === "P-BROKEN" ? { status: 500, body, headers: { "retry-after": "3" } } : undefined,
    )
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "P-BROKEN", timeout: 10_000 })
    const calls = [
      { name: "superagents_output", args: { task_id: id } },
      { name: "superagents_list", args: {} },
    ]
    const told = await eventually(async () => {
      const shown = (await callTools(opencode, model, session, calls)).map(({ output = "" }) => output)
      return shown.every((each) => each.includes("retrying")) && shown
    })
    for (const each of told)
      expect(each).toMatch(/running, retrying since [\d:]+ \(attempt \d+: .*the disk of our server is broken/)
    const [notification] = await notified(opencode, session)
    expect(notification?.hidden).toMatch(
      /Reason: Stopped at its time limit of 10s \(its timeout argument\)\. Since (\w{3} )?\d\d:\d\d every request to its model has failed \(attempt \d+: .*the disk of our server is broken/,
    )
  })

  test("a task that is writing a tool call is ended only after three times stallTimeout without output", async () => {
    model.use(({ lastUser }) => (lastUser === "P-HALF" ? { hang: true, call: HALF } : undefined))
    const session = await openSession(opencode)
    await launch(opencode, model, session, { prompt: "P-HALF" })
    const [notification] = await notified(opencode, session)
    expect(notification?.hidden).toMatch(
      /nothing was heard of it for (7\.[5-9]|[89](\.\d)?|1\d)s; the option stallTimeout allows 2\.5s, and 3 times that while it writes a tool call/,
    )
  })

  test("a task that was parked while it was writing a tool call is ended after stallTimeout without output", async () => {
    const limited = { fails: { message: "Rate limit reached. Try again in 2s" }, call: HALF }
    const replies = [limited, { hang: true } as const]
    model.use(({ lastUser }) => (lastUser === "P-PARKED" ? replies.shift() : undefined))
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "P-PARKED" })
    const [notification] = await notified(opencode, session)
    expect(notification?.hidden).toMatch(/nothing was heard of it for \S+; the option stallTimeout allows 2\.5s\./)
    expect(await outputOf(session, id)).toMatch(/^Parked 1 time, /m)
  })

  test("a task that is silent longer than the option stallTimeout is ended and keeps its text", async () => {
    model.use((request) => (request.lastUser === "P-SILENT" ? { hang: true, text: "hm" } : undefined))
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-SILENT" })
    const [notification] = await notified(opencode, session)
    expect(notification?.hidden).toMatch(/Reason: Stopped because nothing was heard of it .*stallTimeout allows 2\.5s/)
    expect(await outputOf(session, id)).toContain(`<task_output id="${id}">\nhm\n</task_output>`)
    const request = await model.waitFor((each) => each.sessionID === child)
    await eventually(() => request.aborted.aborted)
  })

  test("a task that passes the option maxTokensPerTask is ended, names that limit, and keeps its text", async () => {
    model.use((request) => {
      if (request.lastUser !== "P-DEAR") return undefined
      const usage = { input: 500, output: 50, cached: 5000 }
      return { text: "still looking", tools: [{ name: "glob", args: { pattern: "*" } }], usage }
    })
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "P-DEAR" })
    const [notification] = await notified(opencode, session)
    expect(notification?.hidden).toMatch(/used \d+ tokens, the option maxTokensPerTask allows 1000\./)
    expect(await outputOf(session, id)).toContain("still looking")
    const steps = model.requests.filter((request) => request.lastUser === "P-DEAR").length
    expect(steps).toBeGreaterThanOrEqual(2)
    expect(steps).toBeLessThanOrEqual(4)
  })
})

describe("signs of life", () => {
  test("a running tool keeps a task from counting as silent", async () => {
    model.use((request) => {
      if (request.lastUser !== "P-TOOL") return undefined
      if (request.sinceUser.length > 0) return { text: "slept well" }
      return { tools: [{ name: "bash", args: { command: "sleep 3.5", description: "sleeps" } }] }
    })
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "P-TOOL" })
    await notified(opencode, session)
    expect(await outputOf(session, id)).toContain("slept well")
  })

  test("text that arrives slowly keeps a task from counting as silent", async () => {
    model.use((request) => (request.lastUser === "P-DROPS" ? { text: words(9), chunks: 9, pace: 400 } : undefined))
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "P-DROPS" })
    await notified(opencode, session)
    expect(await outputOf(session, id)).toContain("Status: completed")
  })
})

describe("an agent with open todos", () => {
  const todos = [
    { content: "first", status: "completed", priority: "high" },
    { content: "second", status: "pending", priority: "low" },
  ]

  test("a task that left todos open is completed after todoGrace, and its output says so", async () => {
    model.use((request) => {
      if (request.lastUser !== "P-TODO") return undefined
      return request.sinceUser.length > 0 ? { text: "enough" } : { tools: [{ name: "todowrite", args: { todos } }] }
    })
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "P-TODO", agent: "doer" })
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).toContain(" finished in ")
    expect(notification?.hidden).toContain("left 1 of its todos open")
    expect(await outputOf(session, id)).toContain("Note: the agent left 1 of its todos open.")
  })

  test("a task that closes its open todos before the end is completed without a note", async () => {
    const closed = todos.map((todo) => ({ ...todo, status: "completed" }))
    model.use((request) => {
      if (request.lastUser !== "P-TODO-DONE") return undefined
      if (request.toolResults.length === 0) return { tools: [{ name: "todowrite", args: { todos } }] }
      if (request.toolResults.length === 1) return { tools: [{ name: "todowrite", args: { todos: closed } }] }
      return { text: "all done" }
    })
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "P-TODO-DONE", agent: "doer" })
    const [notification] = await notified(opencode, session)
    expect(notification?.hidden).not.toContain("todos")
    expect(await outputOf(session, id)).not.toContain("todos open")
  })
})
