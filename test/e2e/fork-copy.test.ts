import { fileURLToPath } from "node:url"
import { afterAll, beforeAll, expect, test } from "vitest"
import { ask, callTool, openSession, unwrap } from "../support/drive.ts"
import { eventually } from "../support/eventually.ts"
import { statuses } from "../support/killing.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { textOf } from "../support/model-request.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"
import { launch, notified } from "../support/plugin.ts"

/** The plugin on an OpenCode that cannot replay a session's events: forks are made by `session.fork`. */
const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url))

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  const options = { entry: path("../../dist/server.js"), missing: "/sync/replay" }
  opencode = await startOpencode({ model, plugin: [[path("../support/fixtures/missing-route-plugin.ts"), options]] })
  model.use((request) => (request.lastUser.startsWith("HANG") ? { hang: true } : undefined))
  model.use((request) => (request.lastUser === "the word is tulip" ? { text: "I remember tulip" } : undefined))
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

test("a fork knows the conversation, is launched as usual, keeps the parent's deny rules, and costs its own", async () => {
  const permission = [{ permission: "bash", pattern: "*", action: "deny" as const }]
  const { id: session } = await unwrap(opencode.client.session.create({ title: "strict", permission }))
  await ask(opencode, session, "the word is tulip")
  const { id, child, output } = await launch(opencode, model, session, { prompt: "WHICH WORD", fork: true })
  expect(output).toMatch(
    new RegExp(
      `^Background task launched\\. Task ID: ${id}.*\nInherited: 3 messages, about [\\d,]+ tokens\nLimits: .*\nYou will be told`,
    ),
  )
  const request = await model.waitFor(({ sessionID }) => sessionID === child)
  const said = request.messages.filter(({ role }) => role !== "system").map(({ content }) => textOf(content))
  expect(said.slice(0, 2)).toEqual(["the word is tulip", "I remember tulip"])
  expect(said.at(-2)).toContain("Nothing was left out or cut: 3 messages kept.")
  expect(said.at(-1)).toContain("WHICH WORD")
  expect(request.tools).toContain("read")
  expect(request.tools).not.toContain("bash")
  expect(request.tools).not.toContain("superagents_task")
  expect((await unwrap(opencode.client.session.get({ sessionID: child }))).parentID).toBeUndefined()
  await notified(opencode, session)
  const list = await callTool(opencode, model, session, "superagents_list", {})
  expect(list.output).toContain(`${id} (forked) `)
  expect(list.output).toContain("120 tokens, $0.0001")
})

test("a fork is restored after a restart like any other task", async () => {
  const session = await openSession(opencode)
  await ask(opencode, session, "the word is tulip")
  const { id } = await launch(opencode, model, session, { prompt: "HANG forked", fork: true })
  await model.waitFor(({ lastUser }) => lastUser.startsWith("HANG forked"))
  await opencode.kill("SIGKILL")
  await opencode.restart()
  // It is no child of the session, so it is found once OpenCode is at rest, or after five seconds.
  await eventually(async () => (await statuses(opencode, model, session)).get(id) === "error")
  expect(await notified(opencode, session)).toHaveLength(1)
})

test("a fork is stopped when its parent is deleted, and nobody is notified", async () => {
  const session = await openSession(opencode)
  await ask(opencode, session, "the word is tulip")
  await launch(opencode, model, session, { prompt: "HANG with the parent", fork: true })
  const request = await model.waitFor(({ lastUser }) => lastUser.startsWith("HANG with the parent"))
  await unwrap(opencode.client.session.delete({ sessionID: session }))
  if (!request.aborted.aborted)
    await new Promise((resolve) => request.aborted.addEventListener("abort", resolve, { once: true }))
})
