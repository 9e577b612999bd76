import { fileURLToPath } from "node:url"
import { afterAll, beforeAll, expect, test } from "vitest"
import { ask, eventually, openSession, unwrap } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url))
const MISSING = "/question"

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  const options = { entry: path("../../dist/server.js"), missing: MISSING }
  opencode = await startOpencode({ model, plugin: [[path("../support/fixtures/missing-route-plugin.ts"), options]] })
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

test("an OpenCode that lacks a route gets no tools; a toast and the log name it once", async () => {
  await eventually(() => opencode.logs().includes("it lacks GET /question"))
  expect(await unwrap(opencode.client.tool.ids())).not.toContain("superagents_task")
  const sessionID = await openSession(opencode)
  expect(await ask(opencode, sessionID, "hello")).toBe("ok")
  expect(await ask(opencode, sessionID, "once more")).toBe("ok")
  const [request] = model.requests
  expect(request?.tools).toContain("bash")
  expect(request?.tools.filter((name) => name.startsWith("superagents"))).toEqual([])
  const toasts = opencode.events.all.flatMap(({ type, properties }) => (type === "tui.toast.show" ? [properties] : []))
  expect(toasts).toMatchObject([
    { variant: "error", message: expect.stringMatching(/OpenCode \(local\).*GET \/question/) },
  ])
  expect(opencode.logs().split("it lacks GET /question")).toHaveLength(2)
})
