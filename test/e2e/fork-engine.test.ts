import { fileURLToPath } from "node:url"
import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { countTokens } from "gpt-tokenizer/encoding/o200k_base"
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest"
import { NO_FIGURES, type TaskDraft } from "../../src/core/task.ts"
import { type ForkPorts, type ForkRequest, forkContext } from "../../src/features/forks/fork.ts"
import { OpencodeForks } from "../../src/features/forks/opencode/forks.ts"
import { systemClock } from "../../src/lib/clock.ts"
import { startWorker } from "../../src/lib/thread.ts"
import { OpencodeHttpApi } from "../../src/opencode/api.ts"
import { OpencodeModels } from "../../src/opencode/models.ts"
import { TokenCounter } from "../../src/runtime/tokens/counter.ts"
import { ask, callTool, idle, messages, openSession, unwrap } from "../support/drive.ts"
import { decodeRecord } from "../support/groups.ts"
import { type ModelRequest, type ScriptedModel, startModel } from "../support/model.ts"
import { textOf } from "../support/model-request.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"
import { openWithPast, type PastMessage } from "../support/past.ts"
import { SIGNER } from "../support/records.ts"

const PLUGIN = fileURLToPath(new URL("../support/fixtures/echo-plugin.ts", import.meta.url))
const LIMITS = { maxTokens: 100_000, maxToolResultChars: 1500 }
const counter = new TokenCounter(systemClock, () => startWorker(new URL("../../dist/tokenizer.js", import.meta.url)))
const ALPHA = { provider: "scripted", id: "alpha" }

let model: ScriptedModel
let opencode: Opencode
let ports: ForkPorts

beforeAll(async () => {
  model = await startModel()
  opencode = await startOpencode({ model, plugin: [PLUGIN] })
  ports = portsOn(opencode.client)
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => model.reset())

const portsOn = (client: OpencodeClient): ForkPorts => {
  const sessions = new OpencodeHttpApi(client, "fork-engine", SIGNER, systemClock)
  const models = new OpencodeModels(sessions.providers, counter)
  return {
    forks: new OpencodeForks({ client, sessions, directory: opencode.directory, models }),
    models,
    opencode: sessions,
  }
}

let made = 0
const draftOf = (parentID: string, parentMessageID: string): TaskDraft => ({
  id: `bg_${String(made++).padStart(8, "0")}`,
  parentID,
  parentMessageID,
  description: "look",
  agent: "general",
  model: ALPHA,
  batch: "auto:x",
  depth: 1,
  createdAt: 1,
  earlier: NO_FIGURES,
  fingerprint: "f",
  status: "running",
  run: { generation: 0, promptID: "msg_x", createdAt: Date.now(), timeout: 0 },
  delivery: { state: "none" },
})

const fork = (parentID: string, messageID: string, change: Partial<ForkRequest> = {}, by = ports) =>
  forkContext(by, { draft: draftOf(parentID, messageID), title: "the fork", rules: [], limits: LIMITS, ...change })

/** What the model is shown when the fork gets its prompt, without the system prompt. */
const viewOf = async (sessionID: string): Promise<ModelRequest> => {
  await ask(opencode, sessionID, "THE PROMPT", { agent: "general", model: "scripted/alpha" })
  const request = model.requests.find((each) => each.sessionID === sessionID)
  if (!request) throw new Error("the fork never asked its model")
  return request
}

const said = (request: ModelRequest) =>
  request.messages.filter(({ role }) => role !== "system").map(({ role, content }) => `${role}: ${textOf(content)}`)

/** What `test/contract/forks.ts` does not ask: real calls, real summaries, and lengths. */
describe("a fork of a short history", () => {
  let parent: string
  let messageID: string

  beforeAll(async () => {
    model.use((request) => (request.lastUser === "the word is tulip" ? { text: "I remember tulip" } : undefined))
    parent = await openSession(opencode, { title: "parent" })
    await ask(opencode, parent, "the word is tulip")
    await callTool(opencode, model, parent, "echo", { text: "z".repeat(5989) }, { text: "long" })
    await callTool(opencode, model, parent, "echo", { text: "brief" }, { text: "short" })
    await ask(opencode, parent, "and now?")
    messageID = String((await messages(opencode, parent)).at(-1)?.info.id)
  })

  test("a short history's fork has earlier messages unchanged, cut results with their length, and the prompt last", async () => {
    const { sessionID, info } = await fork(parent, messageID)
    const request = await viewOf(sessionID)
    const view = said(request)
    expect(view[0]).toBe("user: the word is tulip")
    expect(view[1]).toBe("assistant: I remember tulip")
    expect(view.at(-1)).toBe("user: THE PROMPT")
    expect(view.at(-2)).toMatch(/^user: \[Forked context\].*1 tool result over 1500 characters cut.*Read files again/s)
    expect(info.cuts).toMatchObject([{ tool: "echo", call: expect.stringMatching(/^\{"text":"z+…$/), of: 6000 }])
    expect(view.at(-3)).toBe("user: and now?")
    const results = request.messages.filter(({ role }) => role === "tool").map(({ content }) => textOf(content))
    expect(results[0]).toHaveLength(1500)
    expect(results[0]).toMatch(/^\{"text":"z+\n\[Cut: 6000 characters originally, the first \d+ kept\.\]$/)
    expect(results[1]).toBe('{"text":"brief"}')
    const calls = request.messages.flatMap(({ tool_calls }) => tool_calls ?? [])
    expect(calls[0]?.function).toEqual({ name: "echo", arguments: JSON.stringify({ text: "z".repeat(5989) }) })
    expect(request.messages.filter(({ role }) => role === "tool").map(({ tool_call_id }) => tool_call_id)).toEqual(
      calls.map(({ id }) => id),
    )
    expect(info).toMatchObject({ messages: 9, droppedMessages: 0, cutResults: 1 })
  })

  test("a fork is a child of its parent with its own record, agent and rules, without cost", async () => {
    const draft = draftOf(parent, messageID)
    const rules = [{ permission: "bash", pattern: "*", action: "deny" as const }]
    const { sessionID, info } = await fork(parent, messageID, { draft, rules })
    const session = await unwrap(opencode.client.session.get({ sessionID }))
    expect(session).toMatchObject({ parentID: parent, title: "the fork", agent: "general", permission: rules, cost: 0 })
    expect(decodeRecord(session, SIGNER)?.task).toEqual({ ...draft, sessionID, fork: info })
    expect((await viewOf(sessionID)).tools).not.toContain("bash")
    const roots = await unwrap(opencode.client.session.list({ roots: true, limit: 1000 }))
    expect(roots.map(({ id }) => id)).not.toContain(sessionID)
    const after = await unwrap(opencode.client.session.get({ sessionID }))
    expect(after.tokens).toMatchObject({ input: 100, output: 20 })
  })

  test("a fork is empty when the calling message is the first of its session", async () => {
    const first = String((await messages(opencode, parent))[0]?.info.id)
    const { sessionID, info } = await fork(parent, first)
    expect(said(await viewOf(sessionID))).toHaveLength(2)
    expect(info.messages).toBe(0)
  })
})

describe("a fork of a compacted history", () => {
  test("a fork of a compacted history begins at the summary, where the parent's model begins", async () => {
    model.use(({ lastUser }) => ({ text: lastUser.startsWith("fact") ? `noted ${lastUser}` : "SUMMARY" }))
    const parent = await openSession(opencode)
    for (const fact of ["fact one", "fact two", "fact three"]) await ask(opencode, parent, fact)
    await unwrap(opencode.client.session.summarize({ sessionID: parent, providerID: "scripted", modelID: "alpha" }))
    await idle(opencode, parent)
    await ask(opencode, parent, "fact four")
    const last = String((await messages(opencode, parent)).at(-1)?.info.id)
    model.requests.length = 0
    await ask(opencode, parent, "fact five")
    const seenByParent = said(model.requests[0] as ModelRequest)
    const { sessionID } = await fork(parent, last)
    const seen = said(await viewOf(sessionID))
    const upToFork = seenByParent.slice(0, seenByParent.indexOf("user: fact four") + 1)
    expect(seen.slice(0, upToFork.length)).toEqual(upToFork)
    expect(seen.join("\n")).toContain("SUMMARY")
  })
})

describe("a fork of a long history", () => {
  const WORDS =
    "the manager keeps every running task under watch and tells its parent when an answer is there; ".repeat(55)

  /** Some 310,000 tokens in 300 messages. */
  const past: PastMessage[] = Array.from({ length: 150 }, (_, turn): PastMessage[] => [
    { role: "user", text: `question ${turn}` },
    {
      role: "assistant",
      text: `answer ${turn}: ${WORDS}${WORDS.slice(0, -20)}`,
      calls: [{ tool: "read", input: { path: `/file/${turn}` }, output: "short" }],
    },
  ]).flat()

  test("a fork of a long history keeps the newest turns within the limit and says what was dropped", async () => {
    const { id, messageIDs } = await openWithPast(opencode, [...past, { role: "assistant", text: "calling" }])
    const { sessionID, info } = await fork(id, String(messageIDs.at(-1)))
    const request = await viewOf(sessionID)
    const view = said(request)
    const tokens = request.messages.slice(1).reduce((sum, message) => sum + countTokens(JSON.stringify(message)), 0)
    expect(past.reduce((sum, { text = "" }) => sum + countTokens(text), 0)).toBeGreaterThan(280_000)
    expect(tokens).toBeLessThan(102_000)
    expect(tokens).toBeGreaterThan(90_000)
    expect(info.droppedMessages + info.messages).toBe(300)
    expect(view[0]).toMatch(/^user: question \d+$/)
    expect(view).toContain("user: question 149")
    expect(view.at(-1)).toBe("user: THE PROMPT")
    const preamble = view.at(-2) ?? ""
    expect(preamble).toContain(`${info.droppedMessages} older messages left out to stay under 100000 tokens`)
    expect(preamble).toContain("User: question 0\n")
    expect(preamble).toMatch(/Agent: answer \d+: the manager.*\.\.\.\n\[Tool: read\] \{"path":"\/file\/\d+"\}\n/)
    expect(request.messages.filter(({ role }) => role === "tool")).toHaveLength(info.messages / 2)
  })

  test("a fork respects the context size of the child's model, and copies no token counts", async () => {
    const counted = past.slice(0, 160).map((message, index): PastMessage => {
      return message.role === "assistant" ? { ...message, counted: (index + 1) * 2000 } : message
    })
    const { id, messageIDs } = await openWithPast(opencode, [...counted, { role: "assistant", text: "calling" }])
    const { sessionID, info } = await fork(id, String(messageIDs.at(-1)), { limits: { ...LIMITS, maxTokens: 500_000 } })
    expect(info.tokens).toBeLessThanOrEqual(120_000)
    expect(info.tokens).toBeGreaterThan(110_000)
    expect(info.droppedMessages).toBeGreaterThan(0)
    expect(info.droppedMessages + info.messages).toBe(160)
    const last = (await messages(opencode, sessionID))
      .map(({ info: each }) => each)
      .findLast((each) => each.role === "assistant")
    expect(last).toMatchObject({ cost: 0, tokens: { output: 0 } })
    expect(said(await viewOf(sessionID)).join("\n")).not.toContain("What did we do so far?")
  })
})
