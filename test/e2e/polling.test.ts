import { fileURLToPath } from "node:url"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { ask, eventually, openSession } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, launch, launchAll, notifications, notified, startPlugged } from "../support/plugin.ts"

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

test("polling finds the error after a missed error event", async () => {
  model.use((request) => (request.lastUser === "P-UNSAID" ? { status: 400 } : undefined))
  const session = await openSession(opencode)
  await launch(opencode, model, session, { prompt: "P-UNSAID" })
  const [notification] = await notified(opencode, session)
  expect(notification?.visible).toContain(" failed in ")
  expect(notification?.hidden).toContain("Reason: scripted status 400")
})

test("polling does not disturb a task that still works", async () => {
  const door = gate()
  model.use(async (request) => {
    if (!request.lastUser.startsWith("P-WORKS")) return undefined
    if (request.sinceUser.length < 6) return { tools: [{ name: "glob", args: { pattern: "*" } }] }
    await door.opened
    return { text: "done at last" }
  })
  const session = await openSession(opencode)
  const [a] = await launchAll(opencode, model, session, [{ prompt: "P-WORKS-1" }, { prompt: "P-QUICK" }])
  await notified(opencode, session)
  await eventually(() =>
    model.requests.some(({ sessionID, sinceUser }) => sessionID === a?.child && sinceUser.length >= 6),
  )
  expect(await notifications(opencode, session)).toHaveLength(1)
  door.open()
  const [, last] = await notified(opencode, session, 2)
  expect(last?.visible).toContain('"do P-WORKS-1" finished')
})

test("a developer sees the mark [hint attached] in a notification", async () => {
  const session = await openSession(opencode)
  await launch(opencode, model, session, { prompt: "P-DEVELOP" })
  const [notification] = await notified(opencode, session)
  expect(notification?.visible).toMatch(/\nTask Progress: 1\/1\n\[hint attached\]$/)
})
