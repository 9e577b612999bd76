import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, afterEach, beforeAll, expect, test } from "vitest"
import { eventually, openSession, say, unwrap } from "../support/drive.ts"
import type { Moment } from "../support/fixtures/dying-plugin.ts"
import type { Host } from "../support/host.ts"
import { fates } from "../support/killing.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { PACKAGE, startPlugged } from "../support/plugin.ts"

/** The host dies at named moments of the plugin's own work; what is left must be one end, told once. */

const DYING = fileURLToPath(new URL("../support/fixtures/dying-plugin.ts", import.meta.url))
const PROMPT = { method: "POST", path: "/prompt_async$" }
const RECORD = { method: "PATCH", path: "/session/[^/]+$" }

let model: ScriptedModel
let host: Host | undefined
let folder: string

beforeAll(async () => {
  model = await startModel()
  folder = mkdtempSync(join(tmpdir(), "superagents-moments-"))
})
afterEach(async () => {
  await host?.stop()
  host = undefined
})
afterAll(async () => {
  await model?.close()
  rmSync(folder, { recursive: true, force: true })
})

const lives = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

test.each<[string, Moment, status: string]>([
  ["before the child's session is made", { method: "POST", path: "/session$", nth: 1, when: "before" }, "none"],
  ["before the prompt is accepted", { ...PROMPT, nth: 1, when: "before" }, "error"],
  ["when the prompt was just accepted", { ...PROMPT, nth: 1, when: "after" }, "error"],
  ["between the child's end and its record", { ...RECORD, nth: 1, when: "before" }, "completed"],
  ["between the record and the notification", { ...RECORD, nth: 1, when: "after" }, "completed"],
  ["when the notification was just accepted", { ...PROMPT, nth: 2, when: "after" }, "completed"],
  ["between the notification and its record", { ...RECORD, nth: 2, when: "before" }, "completed"],
])("%s", async (_name, moment, status) => {
  const died = join(folder, `${moment.method}-${moment.nth}-${moment.when}-${status}`)
  const options = { entry: `file://${PACKAGE}/dist/server.js`, died, moment }
  model.reset()
  model.use(({ lastUser, sinceUser }) => {
    if (lastUser !== "hand it over" || sinceUser.length > 0) return undefined
    const args = { description: "the job", prompt: "THE JOB", agent: "general" }
    return { tools: [{ name: "superagents_task", args }] }
  })
  host = await startPlugged(model, options, { plugin: DYING })
  const { pid } = host
  const session = await openSession(host)
  await say(host, session, "hand it over").catch(() => {})
  await eventually(() => !lives(pid), { timeout: 30_000, message: () => `the host dies ${host?.logs()}` })
  await host.restart()
  const children = await unwrap(host.client.session.children({ sessionID: session }))
  const ids = children.map(
    ({ metadata }) => (metadata as { superagents: { task: { id: string } } }).superagents.task.id,
  )
  if (status === "none") return expect(ids).toEqual([])
  expect(ids).toHaveLength(1)
  const told = await fates(host, model, session, ids)
  expect(told).toEqual([{ id: ids[0], status, notifications: 1 }])
})
