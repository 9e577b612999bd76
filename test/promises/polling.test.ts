import { fileURLToPath } from "node:url"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { ask, callTool, openSession } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launch, notifications, notified, startPlugged } from "../support/plugin.ts"

const DEAF = fileURLToPath(new URL("../support/fixtures/deaf-plugin.ts", import.meta.url))

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  const options = { pollInterval: 300, taskTimeout: 20_000 }
  opencode = await startPlugged(model, options, { plugin: DEAF, env: { NODE_ENV: "development" } })
  await ask(opencode, await openSession(opencode), "warm up")
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => model.reset())

test("polling finds the end after a missed session.idle event, and reports it once", async () => {
  model.use((request) => (request.lastUser === "P-UNHEARD" ? { text: "nobody told you" } : undefined))
  const session = await openSession(opencode)
  const { id } = await launch(opencode, model, session, { prompt: "P-UNHEARD" })
  await notified(opencode, session)
  const { output } = await callTool(opencode, model, session, "superagents_output", { task_id: id })
  expect(output).toContain("Status: completed")
  expect(output).toContain("nobody told you")
  expect(await notifications(opencode, session)).toHaveLength(1)
})
