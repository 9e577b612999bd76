import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { ask, callTool, eventually, openSession, toolParts } from "../support/drive.ts"
import { type ModelRequest, type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, isNotification, launch, notifications, notified, startPlugged } from "../support/plugin.ts"

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, { maxDepth: 2 })
  await ask(opencode, await openSession(opencode), "warm up")
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => model.reset())

/** A child that launches a task of its own, ends its turn, and answers once it has heard of it. */
const launchesOwn = (child: string, grandchild: string) => (request: ModelRequest) => {
  if (request.firstUser !== child) return undefined
  if (isNotification(request.lastUser)) return { text: "now I have heard of it" }
  if (request.sinceUser.length > 0) return { text: "I am waiting" }
  const args = { description: "the deeper part", prompt: grandchild, agent: "general" }
  return { tools: [{ name: "superagents_task", args }] }
}

test("a child below the depth limit may launch a task, and ends only after that task's notification", async () => {
  const door = gate()
  model.use(launchesOwn("P-CHILD", "P-GRANDCHILD"))
  model.use(async (request) => {
    if (request.lastUser !== "P-GRANDCHILD") return undefined
    await door.opened
    return { text: "from the depth" }
  })
  const session = await openSession(opencode)
  const { id, child } = await launch(opencode, model, session, { prompt: "P-CHILD" })
  await eventually(async () => (await toolParts(opencode, child, "superagents_task"))[0]?.state.status === "completed")
  const waiting = async () => {
    const { output = "" } = await callTool(opencode, model, session, "superagents_output", { task_id: id })
    return output.includes("Status: running, waiting for its own tasks") && output.includes("I am waiting")
  }
  await eventually(waiting)
  expect(await notifications(opencode, session)).toEqual([])
  door.open()
  const [told] = await notified(opencode, session)
  expect(told?.visible).toContain('✓ **Agent "do P-CHILD" finished in ')
  expect(told?.visible, "the parent's batch has the child alone").toContain("Task Progress: 1/1")
  const [own] = await notifications(opencode, child)
  expect(own?.visible).toContain('✓ **Agent "the deeper part" finished in ')
  const { output } = await callTool(opencode, model, session, "superagents_output", { task_id: id })
  expect(output).toContain(`<task_output id="${id}">\nnow I have heard of it\n</task_output>`)
  expect(output, "the child's own three answers and the grandchild's").toContain("Usage: 480 tokens")
})

test("a grandchild is offered no launching tool of ours or of OpenCode's, but its parent is", async () => {
  model.use(launchesOwn("P-OFFER-CHILD", "P-OFFER-GRANDCHILD"))
  const session = await openSession(opencode)
  const { child } = await launch(opencode, model, session, { prompt: "P-OFFER-CHILD" })
  await notified(opencode, session)
  const of = (prompt: string) => model.requests.find((request) => request.lastUser === prompt)
  expect(of("P-OFFER-CHILD")?.tools).toContain("superagents_task")
  expect(of("P-OFFER-GRANDCHILD")?.parentSessionID).toBe(child)
  const tools = of("P-OFFER-GRANDCHILD")?.tools ?? []
  expect(tools).toContain("bash")
  expect(tools.filter((name) => name.startsWith("superagents"))).toEqual([])
  expect(tools).not.toContain("task")
})

test("cancelling a child also cancels the child's own tasks", async () => {
  model.use(launchesOwn("P-DOOMED", "P-DOOMED-TOO"))
  model.use((request) => (request.lastUser === "P-DOOMED-TOO" ? { hang: true } : undefined))
  const session = await openSession(opencode)
  const { id } = await launch(opencode, model, session, { prompt: "P-DOOMED" })
  const deep = await model.waitFor((request) => request.lastUser === "P-DOOMED-TOO")
  await callTool(opencode, model, session, "superagents_cancel", { task_id: id })
  await eventually(() => deep.aborted.aborted)
  const [told] = await notified(opencode, session)
  expect(told?.visible).toContain("cancelled after ")
})

test("a grandchild lists only its own tasks, and the parent lists only its child", async () => {
  model.use(launchesOwn("P-SCOPE", "P-SCOPE-DEEP"))
  const session = await openSession(opencode)
  const { id } = await launch(opencode, model, session, { prompt: "P-SCOPE" })
  await notified(opencode, session)
  const { output = "" } = await callTool(opencode, model, session, "superagents_list", {})
  expect(output.match(/^bg_\w+/gm)).toEqual([id])
})
