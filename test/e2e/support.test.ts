import { fileURLToPath } from "node:url"
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest"
import { ask, callTool, callTools, eventually, idle, lastError, messages, openSession, say } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"

const PLUGIN = fileURLToPath(new URL("../support/fixtures/echo-plugin.ts", import.meta.url))

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startOpencode({ model, plugin: [[PLUGIN, { loud: true }]] })
}, 60_000)

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => model.reset())

describe("the scripted model", () => {
  test("the scripted model answers a prompt on the real OpenCode", async () => {
    model.use((request) => (request.lastUser === "hello" ? { text: "good day to you", chunks: 4 } : undefined))
    const sessionID = await openSession(opencode)
    expect(await ask(opencode, sessionID, "hello")).toBe("good day to you")
    // Another model reads its own name in the system prompt.
    model.prefixes.allow(sessionID)
    expect(await ask(opencode, sessionID, "something unscripted", { model: "scripted/beta" })).toBe("ok")
    expect(model.requests.map((request) => request.model)).toEqual(["alpha", "beta"])
    expect(model.requests[1]).toMatchObject({ sessionID, firstUser: "hello", lastUser: "something unscripted" })
    expect(model.inFlight).toBe(0)
    expect(model.peakInFlight).toBe(1)
  })

  test("the scripted model separates requests for titles from the others", async () => {
    const { data } = await opencode.client.session.create()
    await ask(opencode, String(data?.id), "hello")
    await eventually(
      async () => (await opencode.client.session.get({ sessionID: String(data?.id) })).data?.title === "Title",
    )
    expect(model.titles).toHaveLength(1)
    expect(model.requests).toHaveLength(1)
  })

  test("the scripted model reports the same tokens and cost as the session's row", async () => {
    model.use(() => ({
      text: "dear",
      reasoning: "hm",
      usage: { input: 1000, output: 200, reasoning: 50, cached: 300 },
    }))
    const sessionID = await openSession(opencode)
    await ask(opencode, sessionID, "hello")
    const { data } = await opencode.client.session.get({ sessionID })
    expect(data?.tokens).toEqual({ input: 1000, output: 200, reasoning: 50, cache: { read: 300, write: 0 } })
    expect(data?.cost).toBeCloseTo(0.0015, 6)
  })

  test("a 400 from the scripted model ends the turn with an error", async () => {
    model.use(() => ({ status: 400, body: { error: { message: "no such luck" } } }))
    const sessionID = await openSession(opencode)
    expect(await ask(opencode, sessionID, "hello")).toBe("")
    expect(await lastError(opencode, sessionID)).toMatchObject({ name: "APIError", data: { statusCode: 400 } })
    expect(model.requests).toHaveLength(1)
  })

  test("a hanging request of the scripted model ends when the session is aborted", async () => {
    model.use(() => ({ hang: true, text: "so far" }))
    const sessionID = await openSession(opencode)
    await say(opencode, sessionID, "hello")
    const request = await model.waitFor((each) => each.sessionID === sessionID)
    expect(model.inFlight).toBe(1)
    await opencode.client.session.abort({ sessionID })
    await idle(opencode, sessionID)
    await eventually(() => request.aborted.aborted && model.inFlight === 0)
    expect(await lastError(opencode, sessionID)).toMatchObject({ name: "MessageAbortedError" })
  })

  test("the scripted model stops a delayed answer when the client disconnects", async () => {
    model.use(() => ({ text: "late", delay: 60_000 }))
    const sessionID = await openSession(opencode)
    await say(opencode, sessionID, "hello")
    await model.waitFor((each) => each.sessionID === sessionID)
    await opencode.client.session.abort({ sessionID })
    await eventually(() => model.inFlight === 0)
  })

  test("a connection that the scripted model breaks is asked for again", async () => {
    model.use((request) => (request.number === 1 ? { cut: true, text: "hal" } : { text: "whole" }))
    const sessionID = await openSession(opencode)
    expect(await ask(opencode, sessionID, "hello")).toBe("whole")
  })
})

describe("scripted tool calls", () => {
  test("a scripted tool call reaches the plugin and returns with its result", async () => {
    const sessionID = await openSession(opencode)
    const outcome = await callTool(opencode, model, sessionID, "echo", { text: "hi" })
    expect(outcome).toMatchObject({
      status: "completed",
      title: "Echo",
      output: '{"text":"hi"}',
      input: { text: "hi" },
    })
    expect(outcome.metadata).toMatchObject({ keys: ["text"] })
    expect(outcome.durationMs).toBeGreaterThanOrEqual(0)
    expect(model.requests.map((request) => request.toolResults)).toEqual([
      [],
      [{ name: "echo", content: '{"text":"hi"}' }],
    ])
    expect(model.requests[0]?.tools).toContain("echo")
    expect(JSON.stringify(model.requests[0]?.body.tools)).toContain('Says it back. {\\"loud\\":true}')
  })

  test("a scripted tool call reports the error that the tool threw", async () => {
    const sessionID = await openSession(opencode)
    const outcome = await callTool(opencode, model, sessionID, "echo", { text: "throw" })
    expect(outcome).toMatchObject({ status: "error", error: expect.stringContaining("thrown as asked") })
  })

  test("several scripted tool calls are sent together in one message", async () => {
    const sessionID = await openSession(opencode)
    const calls = ["one", "two"].map((text) => ({ name: "echo", args: { text } }))
    const outcomes = await callTools(opencode, model, sessionID, calls)
    expect(outcomes.map((outcome) => outcome.output)).toEqual(['{"text":"one"}', '{"text":"two"}'])
    expect(model.requests).toHaveLength(2)
  })

  test("a scripted tool call may contain broken JSON", async () => {
    const sessionID = await openSession(opencode)
    expect(await callTool(opencode, model, sessionID, "echo", '{"text": ')).toMatchObject({ status: "completed" })
  })
})

describe("the test support's OpenCode", () => {
  test("the test support's OpenCode waits for past and future events, and names those that never came", async () => {
    const since = opencode.events.mark()
    const sessionID = await openSession(opencode)
    await ask(opencode, sessionID, "hello")
    const created = await opencode.events.waitFor((event) => event.type === "session.created", { since })
    expect(created.properties).toMatchObject({ sessionID })
    const never = opencode.events.waitFor(() => false, { timeout: 50, what: "something impossible" })
    await expect(never).rejects.toThrow(/something impossible.*session\.idle.*listening on/s)
  })

  test("the test support's OpenCode keeps its sessions over SIGKILL and restart", async () => {
    const sessionID = await openSession(opencode, { title: "survivor" })
    await ask(opencode, sessionID, "hello")
    const { pid } = opencode
    await opencode.kill()
    await opencode.restart()
    expect(opencode.pid).not.toBe(pid)
    expect(await messages(opencode, sessionID)).toHaveLength(2)
    expect(await ask(opencode, sessionID, "again")).toBe("ok")
    expect(await callTool(opencode, model, sessionID, "echo", { text: "back" })).toMatchObject({ status: "completed" })
  })
})
