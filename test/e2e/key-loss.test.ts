import { chmodSync, readFileSync, rmSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, expect, test } from "vitest"
import { callTool, openSession, say } from "../support/drive.ts"
import { eventually } from "../support/eventually.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launch, notified, startPlugged } from "../support/plugin.ts"
import { startProxy } from "../support/proxy.ts"

/** The key that signs records goes, or others may write it: that is said, and a day's budget is not free again. */

const TITLE = "superagents: tasks that are not believed"
const CENT = { input: 10_000, output: 0 }

let model: ScriptedModel
let opencode: Opencode
/** All of this file's life passes it, but for what goes to OpenCode itself and to the page. */
let proxy: Awaited<ReturnType<typeof startProxy>>

beforeAll(async () => {
  model = await startModel()
  proxy = await startProxy()
  const env = { http_proxy: proxy.url, HTTP_PROXY: proxy.url, NO_PROXY: "", no_proxy: "" }
  opencode = await startPlugged(model, { maxCostPerDay: 0.01, lastWord: 0, web: { port: 0 } }, { env })
  model.use(({ lastUser }) => (lastUser === "SPEND" ? { text: "spent", usage: CENT } : undefined))
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
  await proxy?.close()
})

const key = () => join(opencode.home, "data", "opencode", "superagents", "record.key")

/** The warnings that a screen would show. */
const warnings = () =>
  opencode.events.all.flatMap(({ type, properties }) =>
    type === "tui.toast.show" && properties.title === TITLE ? [properties.message] : [],
  )

test("a deleted key is reported in log and toast, and earlier tasks still count towards the day's budget", async () => {
  const session = await openSession(opencode)
  await launch(opencode, model, session, { prompt: "SPEND" })
  await notified(opencode, session)
  const old = readFileSync(key(), "utf8")
  await opencode.kill("SIGKILL")
  rmSync(key())
  await opencode.restart()
  const task = { description: "more", prompt: "SPEND", agent: "general" }
  const { error } = await callTool(opencode, model, await openSession(opencode), "superagents_task", task)
  expect(error).toContain("spent $0.0100 of $0.01 (option maxCostPerDay)")
  const text = `1 background task of the last days cannot be listed: this installation's key did not sign the records. ${key()} was missing, and a new key was made`
  await eventually(() => warnings().some((message) => message.startsWith(text)))
  await eventually(() => opencode.logs().includes("cannot be listed"))
  expect(readFileSync(key(), "utf8")).not.toBe(old)
  expect(opencode.logs()).not.toContain(readFileSync(key(), "utf8"))
})

test("a key that others can write is not used; the fix is named and nothing is overwritten", async () => {
  await opencode.kill("SIGKILL")
  chmodSync(key(), 0o666)
  const before = readFileSync(key(), "utf8")
  await opencode.restart()
  await say(opencode, await openSession(opencode), "hello")
  await eventually(() =>
    warnings().some((message) => message.includes(`(mode 0666). If you trust what is in it: chmod 600 ${key()}`)),
  )
  expect(readFileSync(key(), "utf8")).toBe(before)
})

test("an http_proxy sees only requests to models, not those to OpenCode on loopback or to the page", async () => {
  const { origin } = new URL(model.url)
  expect(proxy.seen.length).toBeGreaterThan(0)
  expect(proxy.seen.filter((url) => !url.startsWith(origin))).toEqual([])
})
