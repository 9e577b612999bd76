import { createOpencodeClient, type OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { afterAll, beforeAll, expect, test } from "vitest"
import { type ForkPorts, forkContext } from "../../src/features/forks/fork.ts"
import { OpencodeForks } from "../../src/features/forks/opencode/forks.ts"
import { systemClock } from "../../src/lib/clock.ts"
import { startWorker } from "../../src/lib/thread.ts"
import { OpencodeHttpApi } from "../../src/opencode/api.ts"
import { toUsage } from "../../src/opencode/convert.ts"
import { OpencodeModels } from "../../src/opencode/models.ts"
import { TokenCounter } from "../../src/runtime/tokens/counter.ts"
import { draftBelow, type ForkWorld, forkContract, LIMITS } from "../contract/forks.ts"
import { ask, messages, unwrap } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { textOf } from "../support/model-request.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"
import { openWithPast } from "../support/past.ts"
import { SIGNER } from "../support/records.ts"

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startOpencode({ model })
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

const counter = new TokenCounter(systemClock, () => startWorker(new URL("../../dist/tokenizer.js", import.meta.url)))

/** A client whose requests for some paths are answered by somebody else. */
const clientWith = (isMeant: (path: string) => boolean, answer: () => Promise<Response>): OpencodeClient =>
  createOpencodeClient({
    baseUrl: opencode.url,
    directory: opencode.directory,
    fetch: (request) => (isMeant(new URL((request as Request).url).pathname) ? answer() : fetch(request)),
  })

const page = async () => new Response("<html></html>", { headers: { "content-type": "text/html" } })
const refusal = async () => Response.json({ data: { message: "no" } }, { status: 500 })

const portsOn = (client: OpencodeClient): ForkPorts & { opencode: OpencodeHttpApi } => {
  const sessions = new OpencodeHttpApi(client, "fork-contract", SIGNER, systemClock)
  const models = new OpencodeModels(sessions.providers, counter)
  return {
    forks: new OpencodeForks({ client, sessions, directory: opencode.directory, models }),
    models,
    opencode: sessions,
  }
}

const worldWith = (client: OpencodeClient): ForkWorld => {
  const ports = portsOn(client)
  return {
    ports,
    openWithPast: (past) => openWithPast(opencode, past),
    async session(sessionID) {
      const session = await ports.opencode.session(sessionID)
      const { title, tokens, cost } = await unwrap(client.session.get({ sessionID }))
      return session && { ...session, title, usage: toUsage(tokens, cost) }
    },
    metadata: async (sessionID) => (await unwrap(client.session.get({ sessionID }))).metadata ?? {},
    setMetadata: async (sessionID, metadata) => void (await unwrap(client.session.update({ sessionID, metadata }))),
    undo: async (sessionID, messageID) => void (await unwrap(client.session.revert({ sessionID, messageID }))),
    stored: (sessionID) => messages(opencode, sessionID),
    async ask(sessionID) {
      await ask(opencode, sessionID, "THE PROMPT", { agent: "general", model: "scripted/alpha" })
      const request = model.requests.find((each) => each.sessionID === sessionID && each.lastUser === "THE PROMPT")
      if (!request) throw new Error("the fork never asked its model")
      const said = request.messages.filter(({ role }) => role !== "system")
      return { said: said.map(({ role, content }) => `${role}: ${textOf(content)}`), tools: request.tools }
    },
    sessionIDs: async () => (await unwrap(client.session.list({ limit: 10_000 }))).map(({ id }) => id).sort(),
    close: async () => {},
  }
}

const seen = new Map<string, unknown>()
const BY_REPLAY = "made by replay"
const BY_COPY = "made by session.fork, where there is no replay"

forkContract(BY_REPLAY, async () => worldWith(opencode.client), seen)
forkContract(BY_COPY, async () => worldWith(clientWith((path) => path === "/sync/replay", page)), seen)

test("a fork that neither method can make gives an error and leaves nothing behind", async () => {
  const before = await worldWith(opencode.client).sessionIDs()
  const { id: parentID, messageIDs } = await openWithPast(opencode, [
    { role: "user", text: "hello" },
    { role: "assistant", text: "hi", calls: [{ tool: "read", input: {}, output: "z".repeat(2000) }] },
    { role: "assistant", text: "calling" },
  ])
  const refuse = new Set(["/sync/replay", "/part/"])
  const client = clientWith((path) => [...refuse].some((each) => path.includes(each)), refusal)
  const request = { draft: draftBelow(parentID, String(messageIDs.at(-1))), title: "none", rules: [], limits: LIMITS }
  await expect(forkContext(portsOn(client), request)).rejects.toThrow("rewrite the history: no")
  refuse.delete("/part/")
  await forkContext(portsOn(client), request)
  expect(await worldWith(opencode.client).sessionIDs()).toHaveLength(before.length + 2)
})

test("a copy that OpenCode would compact at once gives an error and leaves nothing behind", async () => {
  const { id: parentID, messageIDs } = await openWithPast(opencode, [
    { role: "user", text: "hello" },
    { role: "assistant", text: "hi", counted: 195_000 },
    { role: "assistant", text: "calling" },
  ])
  const before = await worldWith(opencode.client).sessionIDs()
  const request = { draft: draftBelow(parentID, String(messageIDs.at(-1))), title: "none", rules: [], limits: LIMITS }
  const copying = portsOn(clientWith((path) => path === "/sync/replay", page))
  await expect(forkContext(copying, request)).rejects.toThrow("OpenCode would compact the copy")
  expect(await worldWith(opencode.client).sessionIDs()).toEqual(before)
})

test("both ways to fork make and report the same for every history", () => {
  const of = (name: string) => [...seen].flatMap(([key, view]) => (key.startsWith(name) ? [view] : []))
  expect(of(BY_REPLAY).length).toBeGreaterThan(4)
  expect(of(BY_COPY)).toEqual(of(BY_REPLAY))
})
