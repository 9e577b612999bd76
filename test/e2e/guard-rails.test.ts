import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest"
import { ask, callTool, eventually, idle, openSession, say, unwrap } from "../support/drive.ts"
import { type ModelRequest, type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, launch, launchAll, notifications, notified, startPlugged, wakes } from "../support/plugin.ts"

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(
    model,
    {},
    {
      config: {
        agent: {
          second: {
            mode: "subagent",
            description: "Has a model of its own.",
            model: "scripted/beta",
            prompt: "Think.",
          },
        },
      },
    },
  )
  await ask(opencode, await openSession(opencode), "warm up")
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => model.reset())

const call = async (session: string, tool: string, args: Record<string, unknown> = {}) =>
  (await callTool(opencode, model, session, `superagents_${tool}`, args)).output ?? ""

const hangs = (prompt: string) => model.use((request) => (request.lastUser === prompt ? { hang: true } : undefined))

const asked = (child: string): Promise<ModelRequest> => model.waitFor((request) => request.sessionID === child)

describe("a child at the depth limit", () => {
  test("a child at the depth limit that calls the launching tool anyway creates no task", async () => {
    model.use((request) => {
      if (request.lastUser !== "P-INSIST" || request.sinceUser.length > 0) return undefined
      const args = { description: "deeper", prompt: "P-TOO-DEEP", agent: "general" }
      return { tools: [{ name: "superagents_task", args }] }
    })
    const session = await openSession(opencode)
    await launch(opencode, model, session, { prompt: "P-INSIST" })
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).toContain(" finished in ")
    expect(model.requests.some(({ lastUser }) => lastUser === "P-TOO-DEEP")).toBe(false)
  })
})

describe("the model of a child", () => {
  test("a launch can choose the child's model without changing the parent's model", async () => {
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-MODEL", model: "scripted/beta" })
    expect((await asked(child)).model).toBe("beta")
    await notified(opencode, session)
    await eventually(() => wakes(model, session).length === 1)
    expect(wakes(model, session)[0]?.model).toBe("alpha")
    expect(await call(session, "output", { task_id: id })).toContain("Agent: general (scripted/beta)")
    const row = await unwrap(opencode.client.session.get({ sessionID: session }))
    expect(row.model).toMatchObject({ providerID: "scripted", id: "alpha" })
  })

  test("a child uses its agent's own model rather than the parent's model", async () => {
    const session = await openSession(opencode)
    const { child } = await launch(opencode, model, session, { prompt: "P-OWN-MODEL", agent: "second" })
    expect((await asked(child)).model).toBe("beta")
    await notified(opencode, session)
    await eventually(() => wakes(model, session)[0]?.model === "alpha")
  })

  test("an unknown model is refused with a list of similar model names", async () => {
    const session = await openSession(opencode)
    const args = { description: "do it", prompt: "P-NEVER", agent: "general", model: "scripted/betta" }
    const { status, error } = await callTool(opencode, model, session, "superagents_task", args)
    expect(status).toBe("error")
    expect(error).toMatch(/No model "scripted\/betta" .* Did you mean: scripted\/beta\b/)
  })
})

describe("tokens and cost", () => {
  test("tokens and cost agree in the output, the list, the hint and the total", async () => {
    const usage = { input: 1000, output: 200, reasoning: 50, cached: 300 }
    model.use((request) => {
      if (!request.lastUser.startsWith("P-COST")) return undefined
      if (request.sinceUser.length > 0) return { text: "counted", usage }
      return { tools: [{ name: "glob", args: { pattern: "*" } }], usage }
    })
    const session = await openSession(opencode)
    const [first] = await launchAll(opencode, model, session, [{ prompt: "P-COST-1" }, { prompt: "P-COST-2" }])
    const found = await notified(opencode, session, 2)
    for (const { hidden } of found)
      expect(hidden).toContain("Used: 1 tool call, 2,500 tokens + 600 from the cache, $0.0030.")
    expect(await call(session, "output", { task_id: first?.id })).toContain(
      "Usage: 2,500 tokens + 600 from the cache, $0.0030",
    )
    const rows = (await call(session, "list")).split("\n")
    expect(rows[0]).toContain("| 1 tool call | 2,500 tokens + 600 from the cache, $0.0030")
    // With what the session may cost by default.
    expect(rows[2]).toMatch(
      /^2 tasks, 0 running \| 2 tool calls \| .*5,000 tokens \+ 1,200 from the cache, \$0\.0060 of \$10/,
    )
    const row = await unwrap(opencode.client.session.get({ sessionID: String(first?.child) }))
    expect(row.tokens).toMatchObject({ input: 2000, output: 400, reasoning: 100, cache: { read: 600 } })
    expect(row.cost).toBeCloseTo(0.003, 6)
  })
})

describe("an end by the user", () => {
  test("aborting the parent leaves its children running, and they report their ends", async () => {
    const door = gate()
    model.use(async (request) => {
      if (request.lastUser === "tell me a story") return { hang: true, text: "Once" }
      if (request.lastUser !== "P-LIVES-ON") return undefined
      await door.opened
      return { text: "still here" }
    })
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "P-LIVES-ON" })
    await say(opencode, session, "tell me a story")
    const request = await model.waitFor(({ lastUser }) => lastUser === "tell me a story")
    await unwrap(opencode.client.session.abort({ sessionID: session }))
    await eventually(() => request.aborted.aborted)
    await idle(opencode, session)
    expect(await call(session, "list")).toContain(`${id} do P-LIVES-ON | general | running, working |`)
    door.open()
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).toContain(" finished in ")
    await eventually(() => wakes(model, session).length === 1)
  })

  test("a child that the user deletes counts as cancelled, and the parent is woken", async () => {
    hangs("P-DELETED")
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-DELETED" })
    await asked(child)
    await unwrap(opencode.client.session.delete({ sessionID: child }))
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).toContain("⊘ **Agent ")
    expect(notification?.hidden).toContain("Reason: Its session was deleted.")
    await eventually(() => wakes(model, session).length === 1)
    expect(await call(session, "output", { task_id: id })).toContain("Status: cancelled")
    expect(await notifications(opencode, session)).toHaveLength(1)
  })

  test("deleting the parent stops its own children and leaves other sessions alone", async () => {
    hangs("P-ORPHAN")
    const door = gate()
    model.use(async (request) => {
      if (request.lastUser !== "P-BYSTANDER") return undefined
      await door.opened
      return { text: "what happened?" }
    })
    const [doomed, other] = [await openSession(opencode), await openSession(opencode)]
    const { child } = await launch(opencode, model, doomed, { prompt: "P-ORPHAN" })
    await launch(opencode, model, other, { prompt: "P-BYSTANDER" })
    const request = await asked(child)
    await unwrap(opencode.client.session.delete({ sessionID: doomed }))
    await eventually(() => request.aborted.aborted)
    await eventually(async () => (await unwrap(opencode.client.session.status()))[child] === undefined)
    door.open()
    const [notification] = await notified(opencode, other)
    expect(notification?.visible).toContain(" finished in ")
  })
})
