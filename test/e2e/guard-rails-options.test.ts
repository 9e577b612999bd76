import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { ask, callTool, openSession } from "../support/drive.ts"
import { eventually } from "../support/eventually.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { countSessions, launch, launchAll, notifications, notified, startPlugged, wakes } from "../support/plugin.ts"

let model: ScriptedModel
let opencode: Opencode
let startLogs: string

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, {
    maxConcurrentTasks: "many",
    taskTimeout: -5,
    maxConcurrent: 3,
    fork: { maxTokens: 1, depth: 2 },
    allowModelOverride: false,
    reuseIdentical: true,
    wake: "never",
  })
  // The plugin reports through OpenCode's own log, which is written a moment later.
  startLogs = await eventually(() => opencode.logs().includes("fork.depth") && opencode.logs())
  await ask(opencode, await openSession(opencode), "warm up")
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => model.reset())

test("wrong options are reported by name in the log and not on the terminal", () => {
  const [output = "", log = ""] = startLogs.split(/^--- \//m)
  expect(log).toMatch(/Option \\?"maxConcurrentTasks\\?" is \\*"many\\*": .*expected.*Using the default/)
  expect(log).toMatch(/Option \\?"taskTimeout\\?" is -5: .*Using the default/)
  expect(log).toMatch(/Unknown option \\?"maxConcurrent\\?"/)
  expect(log).toMatch(/Option \\?"fork\.maxTokens\\?" is 1: /)
  expect(log).toMatch(/Unknown option \\?"fork\.depth\\?"/)
  expect(output).not.toContain("maxConcurrent")
})

test("the default is used for each option that is wrong", async () => {
  const session = await openSession(opencode)
  const tasks = Array.from({ length: 11 }, (_, index) => ({ prompt: `P-DEFAULT-${index}` }))
  model.use(({ lastUser }) => (lastUser.startsWith("P-DEFAULT") ? { hang: true } : undefined))
  const launched = await launchAll(opencode, model, session, tasks)
  expect(launched.filter(({ output }) => output.includes("waits for a free slot"))).toHaveLength(1)
  await callTool(opencode, model, session, "superagents_cancel", { all: true })
  await notified(opencode, session, 11)
})

test("allowModelOverride: false refuses another model before anything is created", async () => {
  const session = await openSession(opencode)
  const before = await countSessions(opencode)
  const args = { description: "do it", prompt: "P-NEVER", agent: "general", model: "scripted/beta" }
  const { status, error } = await callTool(opencode, model, session, "superagents_task", args)
  expect(status).toBe("error")
  expect(error).toContain("Argument `model` is not allowed here (option allowModelOverride is false).")
  expect(await countSessions(opencode)).toBe(before)
})

test("reuseIdentical: true returns the earlier task for the same agent and prompt", async () => {
  const session = await openSession(opencode)
  const first = await launch(opencode, model, session, { prompt: "P-SAME" })
  await notified(opencode, session)
  const again = await launch(opencode, model, session, { prompt: "P-SAME", description: "said otherwise" })
  expect(again.id).toBe(first.id)
  const different = await launch(opencode, model, session, { prompt: "P-SAME", agent: "explore" })
  expect(different.id).not.toBe(first.id)
  await notified(opencode, session, 2)
  expect(model.requests.filter(({ lastUser }) => lastUser === "P-SAME")).toHaveLength(2)
})

test('wake: "never" notifies the parent without waking it', async () => {
  const session = await openSession(opencode)
  await launch(opencode, model, session, { prompt: "P-QUIET" })
  await notified(opencode, session)
  expect(await ask(opencode, session, "anything?")).toBe("ok")
  expect(await notifications(opencode, session)).toHaveLength(1)
  expect(wakes(model, session)).toEqual([])
})
