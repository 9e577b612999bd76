import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { ask, callTool, callTools, eventually, idle, openSession, unwrap } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, launch, launchAll, notifications, notified, startPlugged, wakes } from "../support/plugin.ts"

/** Promises 1, 2, 3, 7, 7b and 8 of docs/reliability.md, on one OpenCode. */

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model)
  await ask(opencode, await openSession(opencode), "warm up")
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})
beforeEach(() => model.reset())

const outputOf = async (session: string, id: string) =>
  (await callTool(opencode, model, session, "superagents_output", { task_id: id })).output ?? ""

test("a child that the user aborts counts as cancelled, and the parent is woken", async () => {
  model.use(({ lastUser }) => (lastUser === "P-ABORTED" ? { hang: true } : undefined))
  const session = await openSession(opencode)
  const { id, child } = await launch(opencode, model, session, { prompt: "P-ABORTED" })
  await model.waitFor((request) => request.sessionID === child)
  await unwrap(opencode.client.session.abort({ sessionID: child }))
  const [notification] = await notified(opencode, session)
  expect(notification?.visible).toContain("⊘ **Agent ")
  await eventually(() => wakes(model, session).length === 1)
  const output = await outputOf(session, id)
  expect(output).toContain("Status: cancelled")
  expect(output).toContain("Reason: It was stopped in its own session, most likely by the user.")
})

test("three tasks that end at once send three notifications and wake the parent at most twice", async () => {
  const door = gate()
  model.use(async (request) => {
    if (!request.lastUser.startsWith("P-AT-ONCE-")) return undefined
    await door.opened
    return { text: "at once" }
  })
  const session = await openSession(opencode)
  await launchAll(
    opencode,
    model,
    session,
    [1, 2, 3].map((number) => ({ prompt: `P-AT-ONCE-${number}` })),
  )
  await eventually(() => model.inFlight === 3)
  door.open()
  await notified(opencode, session, 3)
  await eventually(() => wakes(model, session).some((request) => request.lastUser.includes("3/3")))
  await idle(opencode, session)
  expect(await notifications(opencode, session)).toHaveLength(3)
  expect(wakes(model, session).length).toBeLessThanOrEqual(2)
})

test("a task whose model answers 400 after some steps is an error and keeps its earlier text", async () => {
  model.use((request) => {
    if (request.lastUser !== "P-LATER") return undefined
    if (request.sinceUser.length > 0) return { status: 400, body: { error: { message: "out of credit" } } }
    return { text: "I have begun", tools: [{ name: "glob", args: { pattern: "*" } }] }
  })
  const session = await openSession(opencode)
  const { id } = await launch(opencode, model, session, { prompt: "P-LATER" })
  const [notification] = await notified(opencode, session)
  expect(notification?.hidden).toContain("Reason: out of credit")
  const output = await outputOf(session, id)
  expect(output).toContain("Status: error")
  expect(output).toContain(`Text it had written:\n<task_output id="${id}">\nI have begun\n</task_output>`)
})

test("a child at the depth limit is offered neither our launching tool nor OpenCode's", async () => {
  const session = await openSession(opencode)
  const { child } = await launch(opencode, model, session, { prompt: "P-SHALLOW" })
  const { tools } = await model.waitFor((request) => request.sessionID === child)
  expect(tools).toContain("bash")
  expect(tools).not.toContain("superagents_task")
  expect(tools).not.toContain("task")
  await notified(opencode, session)
})

test("a running task reads a message at its next step", async () => {
  const door = gate()
  model.use(async ({ lastUser, sinceUser }) => {
    if (lastUser === "T-MORE") return { text: "both done" }
    if (lastUser !== "T-WORK") return undefined
    await door.opened
    return sinceUser.length > 0 ? { text: "one done" } : { tools: [{ name: "read", args: { filePath: "README.md" } }] }
  })
  const session = await openSession(opencode)
  const { id, child } = await launch(opencode, model, session, { prompt: "T-WORK" })
  const { output, status } = await callTool(opencode, model, session, "superagents_task", {
    tell: id,
    prompt: "T-MORE",
  })
  expect(status).toBe("completed")
  expect(output).toContain(id)
  door.open()
  const [notification] = await notified(opencode, session)
  expect(notification?.visible).toContain(" finished in ")
  expect((await unwrap(opencode.client.session.status()))[child]).toBeUndefined()
  expect(await outputOf(session, id)).toContain("\nboth done\n</task_output>")
  expect(await notifications(opencode, session)).toHaveLength(1)
})

test("a malformed call is an error, and leaves the server working: it still answers and launches tasks", async () => {
  const session = await openSession(opencode)
  const calls = [5, "{}", '["do it"]'].map((args) => ({ name: "superagents_task", args }))
  const outcomes = await callTools(opencode, model, session, calls)
  expect(outcomes.map(({ error }) => error)).toEqual(calls.map(() => expect.any(String)))
  expect(await ask(opencode, session, "still there?")).toBe("ok")
  const other = await openSession(opencode)
  await launch(opencode, model, other, { prompt: "P-ALIVE" })
  await notified(opencode, other)
})
