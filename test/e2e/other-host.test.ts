import { fileURLToPath } from "node:url"
import { afterAll, beforeAll, expect, test } from "vitest"
import { ask, eventually, openSession, unwrap } from "../support/drive.ts"
import { type Host, startHost } from "../support/host.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url))
const MISSING = "/question"

let model: ScriptedModel
let host: Host

beforeAll(async () => {
  model = await startModel()
  const options = { entry: path("../../dist/server.js"), missing: MISSING }
  host = await startHost({ model, plugin: [[path("../support/fixtures/other-host-plugin.ts"), options]] })
})

afterAll(async () => {
  await host?.stop()
  await model?.close()
})

test("an OpenCode that lacks a route gets no tools; a toast and the log name it once", async () => {
  await eventually(() => host.logs().includes("it lacks GET /question"))
  expect(await unwrap(host.client.tool.ids())).not.toContain("superagents_task")
  const sessionID = await openSession(host)
  expect(await ask(host, sessionID, "hello")).toBe("ok")
  expect(await ask(host, sessionID, "once more")).toBe("ok")
  const [request] = model.requests
  expect(request?.tools).toContain("bash")
  expect(request?.tools.filter((name) => name.startsWith("superagents"))).toEqual([])
  const toasts = host.events.all.flatMap(({ type, properties }) => (type === "tui.toast.show" ? [properties] : []))
  expect(toasts).toMatchObject([
    { variant: "error", message: expect.stringMatching(/OpenCode \(local\).*GET \/question/) },
  ])
  expect(host.logs().split("it lacks GET /question")).toHaveLength(2)
})
