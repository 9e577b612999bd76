import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest"
import { ask, callTool, eventually, openSession, toolParts, unwrap } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launch, notified, startPlugged } from "../support/plugin.ts"

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(
    model,
    { permissionTimeout: 12_000, stallTimeout: 2500, pollInterval: 500 },
    { permission: { "*": "allow", bash: "ask", doom_loop: "ask" } },
  )
  await ask(opencode, await openSession(opencode), "warm up")
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => {
  model.reset()
  model.use((request) => {
    if (!request.lastUser.startsWith("P-ASK")) return undefined
    const [result] = request.toolResults
    if (result) return { text: `the tool said: ${result.content}` }
    const args = { command: `echo ${request.lastUser}`, description: "says it" }
    return { text: "I need the shell", tools: [{ name: "bash", args }] }
  })
})

const questionOf = (child: string) =>
  eventually(async () => (await unwrap(opencode.client.permission.list())).find(({ sessionID }) => sessionID === child))

const call = async (session: string, tool: string, args: Record<string, unknown> = {}) =>
  (await callTool(opencode, model, session, `superagents_${tool}`, args)).output ?? ""

describe("a child that asks for a permission", () => {
  test("a child that asks for a permission shows its question and continues when the user allows it", async () => {
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-ASK-YES" })
    const question = await questionOf(child)
    const [list, output] = [await call(session, "list"), await call(session, "output", { task_id: id })]
    expect(list).toContain("| running, waiting for permission (bash: echo P-ASK-YES) |")
    expect(output).toContain("Status: running, waiting for permission (bash: echo P-ASK-YES)")
    expect(output).toContain("Waits for an answer from the user (permission): bash: echo P-ASK-YES")
    await unwrap(opencode.client.permission.reply({ requestID: question.id, reply: "once" }))
    await notified(opencode, session)
    expect(await call(session, "output", { task_id: id })).toContain("the tool said: P-ASK-YES")
  })

  test("a child whose permission the user refuses is reported with that refusal", async () => {
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-ASK-NO" })
    const question = await questionOf(child)
    await unwrap(opencode.client.permission.reply({ requestID: question.id, reply: "reject" }))
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).toContain(" finished in ")
    const output = await call(session, "output", { task_id: id })
    expect(output).toContain("Note: The agent stopped at a refused permission.")
    expect(output).toContain("I need the shell")
  })

  test("a permission without an answer is refused after permissionTimeout, and the child continues instead of ending as silent", async () => {
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-ASK-NOBODY" })
    await questionOf(child)
    const [notification] = await notified(opencode, session, 1, 20_000)
    expect(notification?.visible).toContain(" finished in ")
    expect(await unwrap(opencode.client.permission.list())).toEqual([])
    expect((await toolParts(opencode, child, "bash"))[0]?.state).toMatchObject({
      status: "error",
      error: expect.stringContaining("Nobody allowed running echo P-ASK-NOBODY in time. Go on without it"),
    })
    expect(await call(session, "output", { task_id: id })).toContain("the tool said: ")
  })

  test("a child whose permission question for three equal calls gets no answer continues its task", async () => {
    const args = { filePath: "/no/such/file" }
    const read = { name: "read", args }
    model.use(({ userTexts }) => {
      if (userTexts[0] !== "P-LOOP") return undefined
      return userTexts.length > 1 ? { text: `told: ${userTexts.at(-1)}` } : { text: "reads", tools: [read, read, read] }
    })
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-LOOP" })
    await questionOf(child)
    expect(await call(session, "output", { task_id: id })).toMatch(
      /\(permission\): doom_loop: read \(refused .* if nobody answers; the agent then goes on without it\)/,
    )
    const [notification] = await notified(opencode, session, 1, 20_000)
    expect(notification?.visible).toContain(" finished in ")
    expect(await call(session, "output", { task_id: id })).toContain(
      "Nobody allowed the same call three times in a row of read in time. The refusal ended your turn, but not your task. Go on without it",
    )
  })

  test("a child that is cancelled while it asks for a permission leaves no question open", async () => {
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-ASK-CANCEL" })
    await questionOf(child)
    await call(session, "cancel", { task_id: id })
    expect(await unwrap(opencode.client.permission.list())).toEqual([])
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).toContain("cancelled after ")
    expect(model.requests.filter((request) => request.sessionID === child)).toHaveLength(1)
  })

  test("a child that reaches its time limit while it asks for a permission leaves no question open", async () => {
    const session = await openSession(opencode)
    const { child } = await launch(opencode, model, session, { prompt: "P-ASK-LIMIT", timeout: 2000 })
    await questionOf(child)
    const [notification] = await notified(opencode, session)
    expect(notification?.hidden).toContain("time limit of 2s")
    await eventually(async () => (await unwrap(opencode.client.permission.list())).length === 0)
  })

  test("a permission question of OpenCode's own subagent below a child is shown on the child's task", async () => {
    model.use((request) => {
      if (request.lastUser !== "P-DELEGATE" || request.sinceUser.length > 0) return undefined
      const args = { description: "deeper", prompt: "P-ASK-DEEP", subagent_type: "general" }
      return { tools: [{ name: "task", args }] }
    })
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-DELEGATE" })
    const offered = (await model.waitFor((request) => request.sessionID === child)).tools
    if (offered.includes("task")) {
      await eventually(async () => (await unwrap(opencode.client.permission.list())).length === 1)
      expect(await call(session, "list")).toContain("waiting for permission (bash: echo P-ASK-DEEP)")
      await call(session, "cancel", { task_id: id })
    }
    await notified(opencode, session)
    await eventually(async () => (await unwrap(opencode.client.permission.list())).length === 0)
  })
})
