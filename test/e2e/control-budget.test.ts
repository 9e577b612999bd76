import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest"
import { ask, callTool, callTools, openSession, unwrap } from "../support/drive.ts"
import { fates } from "../support/killing.ts"
import { ASKS_FOR_LS, fiveNearALimit, isAsked } from "../support/last-words.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launch, launchAll, notified, startPlugged } from "../support/plugin.ts"

/** The bill, on the real OpenCode with a model that has a price. A step costs $0.01. */

/** Turns take long where other tests run beside. */
vi.setConfig({ testTimeout: 300_000, hookTimeout: 180_000 })
const PATIENT = { timeout: 90_000 }

let model: ScriptedModel
let opencode: Opencode | undefined

beforeAll(async () => {
  model = await startModel()
})
afterAll(() => model?.close())
beforeEach(() => model.reset())

const CENT = { input: 10_000, output: 0 }
const running = () => opencode as Opencode
const task = (session: string, args: object) =>
  callTool(running(), model, session, "superagents_task", { description: "d", agent: "general", ...args }, PATIENT)
const listed = async (session: string) =>
  (await callTool(running(), model, session, "superagents_list", {}, PATIENT)).output ?? ""
const costOf = async (sessionID: string) => (await unwrap(running().client.session.get({ sessionID }))).cost ?? 0

/** Agents of `B-…` take so many steps of a cent each, unless they are asked for their last word. */
const script = (steps: number, delay = 150) =>
  model.use((request) => {
    const prompt = request.userTexts.find((text) => text.startsWith("B-"))
    if (!prompt) return undefined
    if (isAsked(request)) return { text: `last word of ${prompt}`, usage: CENT }
    const done = request.sinceUser.filter(({ role }) => role === "assistant").length
    if (done + 1 >= steps) return { text: `answer of ${prompt}`, usage: CENT, delay }
    return { tools: [{ name: "read", args: { filePath: "README.md" } }], text: "on it", usage: CENT, delay }
  })

describe("the budgets of tasks and sessions", () => {
  beforeAll(async () => {
    const options = { maxCostPerSession: 0.1, maxCostPerTask: 0.05, maxLaunchesPerMinute: 0, lastWord: 5000 }
    opencode = await startPlugged(model, { ...options, resumable: ["completed", "error"] })
    script(2)
    await ask(opencode, await openSession(opencode), "B-WARM", PATIENT)
  })
  afterAll(() => opencode?.stop())

  test("budgets keep ten agents worth $0.40 below $0.10 plus the current steps, and all text is reported", async () => {
    script(4)
    const session = await openSession(running())
    const prompts = Array.from({ length: 10 }, (_, index) => ({ prompt: `B-${index}.` }))
    const tasks = await launchAll(running(), model, session, prompts, PATIENT)
    const found = await notified(running(), session, 10, PATIENT.timeout)
    expect(found).toHaveLength(10)
    const costs = await Promise.all(tasks.map(({ child }) => costOf(child)))
    const total = costs.reduce((sum, cost) => sum + cost, 0)
    expect(total).toBeGreaterThan(0.0899)
    expect(total).toBeLessThanOrEqual(0.1 + 10 * 0.01 + 1e-9)
    for (const { hidden } of found) expect(hidden).toMatch(/Reason: Stopped at the session's budget: .* of \$0\.10 /)
    const looks = tasks.map(({ id }) => ({ name: "superagents_output", args: { task_id: id } }))
    for (const { output } of await callTools(running(), model, session, looks, PATIENT))
      expect(output).toMatch(/on it|last word of/)
    expect((await listed(session)).split("\n").at(-1)).toMatch(/\$0\.\d{4} of \$0\.10/)
    const { error } = await task(session, { prompt: "B-MORE" })
    expect(error).toMatch(/the session's tasks spent (at least )?\$0\.\d{4} of \$0\.10 \(option maxCostPerSession\)/)
    const resumed = await task(session, {
      resume: tasks[0]?.id,
      prompt: "B-MORE",
      description: undefined,
      agent: undefined,
    })
    expect(resumed.error).toContain("option maxCostPerSession")
    expect(model.requests.some(({ lastUser }) => lastUser === "B-MORE")).toBe(false)
  })

  test("a task that used up its budget cannot be resumed; other sessions' tasks do not matter", async () => {
    script(9, 30)
    const session = await openSession(running())
    const { id, child } = await launch(running(), model, session, { prompt: "B-DEAR" }, PATIENT)
    const [notification] = await notified(running(), session, 1, PATIENT.timeout)
    expect(notification?.hidden).toMatch(
      /Stopped at its budget: it spent \$0\.0\d{3} of \$0\.05 \(option maxCostPerTask\)/,
    )
    expect(await costOf(child)).toBeLessThanOrEqual(0.06 + 1e-9)
    const { error } = await task(session, { resume: id, prompt: "B-MORE", description: undefined, agent: undefined })
    expect(error).toContain("(option maxCostPerTask)")
  })

  test("a call can ask for a smaller budget than the configured one, not for a larger one", async () => {
    script(9, 30)
    const session = await openSession(running())
    expect((await task(session, { prompt: "B-MORE", max_cost: 0.06 })).error).toMatch(/`max_cost`.*0\.05/)
    expect((await task(session, { prompt: "B-MORE", max_cost: 0 })).error).toContain("`max_cost`")
    const { child } = await launch(running(), model, session, { prompt: "B-CHEAP", max_cost: 0.02 }, PATIENT)
    const [notification] = await notified(running(), session, 1, PATIENT.timeout)
    expect(notification?.hidden).toMatch(/Stopped at its budget: .* of \$0\.02 \(argument max_cost, or option agents\)/)
    expect(await costOf(child)).toBeLessThanOrEqual(0.03 + 1e-9)
  })
})

describe("the budget of a day", () => {
  afterEach(() => opencode?.stop())

  test("the day's spending still counts after a SIGKILL during last words, which are not requested again", async () => {
    opencode = await startPlugged(model, { maxCostPerDay: 0.08, lastWord: 8000 }, { permission: ASKS_FOR_LS })
    script(2, 30)
    const session = await openSession(opencode)
    // One hangs in a tool at its time limit, is interrupted and asked, and hangs then, too.
    model.use((request) => {
      if (request.userTexts[0] !== "B-TOOL") return undefined
      if (isAsked(request)) return { hang: true }
      return { tools: [{ name: "bash", args: { command: "sleep 30", description: "x" } }], usage: { input: 1 } }
    })
    const inTool = await launch(opencode, model, session, { prompt: "B-TOOL", timeout: 6000 }, PATIENT)
    await launch(opencode, model, session, { prompt: "B-DONE" }, PATIENT)
    await notified(opencode, session, 1, PATIENT.timeout)
    // The other comes near its budget, is asked, and has not answered yet.
    model.use((request) => {
      if (request.userTexts[0] !== "B-HANGS") return undefined
      if (isAsked(request)) return { hang: true }
      return { tools: [{ name: "read", args: { filePath: "README.md" } }], usage: CENT }
    })
    const near = await launch(opencode, model, session, { prompt: "B-HANGS", max_cost: 0.01 }, PATIENT)
    const lost = [inTool, near]
    for (const { child } of lost)
      await model.waitFor((each) => each.sessionID === child && isAsked(each), { timeout: PATIENT.timeout })
    const before = 0.02 + (await costOf(near.child)) + (await costOf(inTool.child))
    expect(before).toBeGreaterThan(0.0299)
    await opencode.kill()
    await opencode.restart()
    const words = () => model.requests.filter((each) => lost.some(({ child }) => child === each.sessionID)).length
    const asked = words()
    const told = await fates(
      opencode,
      model,
      session,
      lost.map(({ id }) => id),
    )
    expect(told).toEqual(lost.map(({ id }) => ({ id, status: "error", notifications: 1 })))
    // What is left for the day is seen by five of another session; they have their last word before it is spent.
    const { children } = await fiveNearALimit(opencode, model, {
      step: { input: 22_000, output: 0 },
      limit: /Stopped at the day's budget: .* spent at least \$0\.07\d\d of \$0\.08 \(option maxCostPerDay\)/,
    })
    const spent = (await Promise.all(children.map(costOf))).reduce((sum, cost) => sum + cost, before)
    expect(spent).toBeLessThanOrEqual(0.08)
    // Who would begin with the rest would be asked for its last word at once.
    const { error } = await task(session, { prompt: "B-MORE" })
    expect(error).toMatch(
      /the project's tasks of the last 24 hours spent at least \$0\.07\d\d of \$0\.08 .*, and what is left, at most \$0\.00\d\d, is too little to begin with/,
    )
    expect(words()).toBe(asked)
    for (const { notifications } of await fates(
      opencode,
      model,
      session,
      lost.map(({ id }) => id),
    ))
      expect(notifications).toBe(1)
  })
})
