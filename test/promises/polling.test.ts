import { fileURLToPath } from "node:url"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { ask, callTool, openSession } from "../support/drive.ts"
import type { Host } from "../support/host.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { launch, notifications, notified, startPlugged } from "../support/plugin.ts"

const DEAF = fileURLToPath(new URL("../support/fixtures/deaf-plugin.ts", import.meta.url))

let model: ScriptedModel
let host: Host

beforeAll(async () => {
  model = await startModel()
  const options = { pollInterval: 300, taskTimeout: 20_000 }
  host = await startPlugged(model, options, { plugin: DEAF, env: { NODE_ENV: "development" } })
  await ask(host, await openSession(host), "warm up")
})

afterAll(async () => {
  await host?.stop()
  await model?.close()
})

beforeEach(() => model.reset())

test("polling finds the end after a missed session.idle event, and reports it once", async () => {
  model.use((request) => (request.lastUser === "P-UNHEARD" ? { text: "nobody told you" } : undefined))
  const session = await openSession(host)
  const { id } = await launch(host, model, session, { prompt: "P-UNHEARD" })
  await notified(host, session)
  const { output } = await callTool(host, model, session, "superagents_output", { task_id: id })
  expect(output).toContain("Status: completed")
  expect(output).toContain("nobody told you")
  expect(await notifications(host, session)).toHaveLength(1)
})
