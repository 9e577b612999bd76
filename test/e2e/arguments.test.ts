import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest"
import { ask, callTools, openSession } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { countSessions, gate, launch, launchAll, notified, startPlugged } from "../support/plugin.ts"

let model: ScriptedModel
let opencode: Opencode
let session: string
let sessionsBefore: number

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model)
  session = await openSession(opencode)
  await ask(opencode, session, "warm up")
  sessionsBefore = await countSessions(opencode)
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => model.reset())

/** Calls the tool with each of the arguments, all in one message, and returns what it said. */
const call = async (name: string, args: readonly unknown[], sessionID = session) => {
  const outcomes = await callTools(
    opencode,
    model,
    sessionID,
    args.map((each) => ({ name, args: each })),
  )
  return outcomes.map(({ status, error, output }) => ({ status, text: error ?? output ?? "" }))
}

const GOOD = { description: "do it", prompt: "P-NEVER", agent: "general" }

describe("a malformed call of superagents_task", () => {
  afterEach(async () => {
    expect(await countSessions(opencode), "no session was made").toBe(sessionsBefore)
    expect(model.requests.filter((request) => request.sessionID !== session)).toEqual([])
  })

  const CASES: [string, Record<string, unknown>, RegExp][] = [
    ["no description", { ...GOOD, description: undefined }, /`description` is missing/],
    ["an empty description", { ...GOOD, description: "" }, /`description`/],
    ["a blank description", { ...GOOD, description: "  \n " }, /`description`/],
    ["a description of 201 characters", { ...GOOD, description: "x".repeat(201) }, /`description`.*200/],
    ["a numeric description", { ...GOOD, description: 5 }, /`description`.*Got 5/],
    ["a null description", { ...GOOD, description: null }, /`description` is missing/],
    ["no prompt", { ...GOOD, prompt: undefined }, /`prompt` is missing/],
    ["an empty prompt", { ...GOOD, prompt: "" }, /`prompt`/],
    ["a prompt of 100,001 characters", { ...GOOD, prompt: "x".repeat(100_001) }, /`prompt`.*100,?000/],
    ["a list for a prompt", { ...GOOD, prompt: ["do", "it"] }, /`prompt`/],
    ["an object for a prompt", { ...GOOD, prompt: { text: "do it" } }, /`prompt`/],
    ["no agent", { ...GOOD, agent: undefined }, /`agent` is missing/],
    ["an unknown agent", { ...GOOD, agent: "nobody" }, /No agent "nobody" \(argument `agent`\)\. There are: .*general/],
    ["a prototype's key for an agent", { ...GOOD, agent: "__proto__" }, /No agent "__proto__".*There are: /],
    ["true for an agent", { ...GOOD, agent: true }, /`agent`/],
    ["a word for fork", { ...GOOD, fork: "yes" }, /`fork`/],
    ["a word for timeout", { ...GOOD, timeout: "soon" }, /`timeout`/],
    ["a timeout of 0", { ...GOOD, timeout: 0 }, /`timeout`/],
    ["a negative timeout", { ...GOOD, timeout: -1 }, /`timeout`/],
    ["a fraction for timeout", { ...GOOD, timeout: 1.5 }, /`timeout`/],
    ["a timeout over taskTimeout", { ...GOOD, timeout: 1_800_001 }, /`timeout`.*1800000/],
    ["a number for model", { ...GOOD, model: 7 }, /`model`/],
    ["an unknown model", { ...GOOD, model: "scripted/alfa" }, /`model`.*scripted\/alpha/],
    ["a model without a provider", { ...GOOD, model: "beta" }, /`model`.*scripted\/beta/],
    ["an empty batch", { ...GOOD, batch: "" }, /`batch`/],
    ["an unknown argument", { ...GOOD, priority: 1 }, /Unknown argument `priority`/],
    ["the key constructor", { ...GOOD, constructor: 1 }, /Unknown argument `constructor`/],
    [
      "fork with resume",
      { prompt: "go on", resume: "bg_aaaaaaaa", fork: true },
      /`fork` and `resume` are mutually exclusive/,
    ],
    ["resume of nothing", { prompt: "go on", resume: "" }, /`resume`/],
    ["resume of an unknown task", { prompt: "go on", resume: "bg_aaaaaaaa" }, /No task "bg_aaaaaaaa"/],
    ["resume without a prompt", { resume: "bg_aaaaaaaa" }, /No task "bg_aaaaaaaa"/],
    ["resume with an agent", { resume: "bg_aaaaaaaa", prompt: "go on", agent: "general" }, /leave out `agent`/],
  ]

  test("a malformed superagents_task call gives an error that names the argument and says what to do", async () => {
    const outcomes = await call(
      "superagents_task",
      CASES.map(([, args]) => args),
    )
    for (const [index, [what, , expected]] of CASES.entries()) {
      expect(outcomes[index], what).toEqual({ status: "error", text: expect.stringMatching(expected) })
      expect(outcomes[index]?.text.length, `${what}: short`).toBeLessThan(600)
      expect(outcomes[index]?.text, `${what}: no raw exception`).not.toMatch(/ZodError|TypeError|\n\s+at /)
    }
  })

  test("a superagents_task call whose arguments are not an object gives an error too", async () => {
    const raw = ['["do it"]', '"do it"', "5", "null", "true", "{}"]
    for (const { status, text } of await call("superagents_task", raw)) {
      expect(status, text).toBe("error")
      expect(text).toMatch(/The arguments must be an object with: description|Argument `prompt` is missing/)
    }
  })

  test("OpenCode itself refuses a superagents_task call that has the key __proto__", async () => {
    const raw = `{"__proto__": {"prompt": "P-NEVER"}, "description": "do it", "agent": "general"}`
    const [outcome] = await call("superagents_task", [raw])
    expect(outcome?.text).toContain("forbidden prototype property")
  })

  test("a superagents_task call that is not valid JSON is reported as broken", async () => {
    const [outcome] = await call("superagents_task", ['{"description": "do it", "prompt": '])
    expect(outcome?.text).toMatch(/JSON|invalid/i)
  })
})

describe("a malformed call", () => {
  const huge = "x".repeat(100_000)
  const CASES: Record<string, [unknown, RegExp][]> = {
    superagents_output: [
      [{}, /`task_id` is missing/],
      [{ task_id: null }, /`task_id` is missing/],
      [{ task_id: 5 }, /`task_id`.*Got 5/],
      [{ task_id: ["bg_aaaaaaaa"] }, /`task_id`/],
      [{ task_id: "" }, /No task ""|`task_id`/],
      [{ task_id: huge }, /no background tasks|No task|`task_id`/],
      [{ task_id: "__proto__" }, /No task "__proto__"/],
      [{ task_id: "bg_aaaaaaaa" }, /No task "bg_aaaaaaaa".*no background tasks/],
      [{ task_id: "bg_a", block: "yes" }, /`block`/],
      [{ task_id: "bg_a", timeout: 0 }, /`timeout`/],
      [{ task_id: "bg_a", timeout: 600_001 }, /`timeout`.*600000/],
      [{ task_id: "bg_a", timeout: "long" }, /`timeout`/],
      [{ task_id: "bg_a", offset: -1 }, /`offset`/],
      ['{ "task_id": "bg_a", "offset": 1e400 }', /No task|`offset`/],
      [{ task_id: "bg_a", wait: true }, /Unknown argument `wait`/],
      ['"bg_aaaaaaaa"', /must be an object|`task_id` is missing/],
      ["[]", /must be an object|`task_id` is missing/],
    ],
    superagents_list: [
      [{ status: "done" }, /`status`/],
      [{ status: 1 }, /`status`/],
      [{ status: ["running"] }, /`status`/],
      [{ batch: {} }, /`batch`/],
      [{ toString: 1 }, /Unknown argument `toString`/],
      ["[1]", /must be an object/],
    ],
    superagents_cancel: [
      [{}, /exactly one of .* none was given/],
      [{ all: false }, /exactly one of .* none was given/],
      [{ all: "true" }, /`all`/],
      [{ task_id: 1 }, /`task_id`/],
      [{ task_id: "bg_a", all: true }, /exactly one of .* 2 were given/],
      [{ task_id: "bg_a", batch: "b", all: true }, /exactly one of .* 3 were given/],
      [{ task_id: "" }, /No task ""|`task_id`/],
      [{ batch: "" }, /`batch`/],
      [{ batch: "nightly" }, /No batch "nightly"/],
      [{ task_id: "bg_aaaaaaaa" }, /No task "bg_aaaaaaaa"/],
      [{ task_id: huge }, /No task|`task_id`/],
      ["5", /must be an object|exactly one of/],
    ],
    superagents_clear: [
      [{ really: true }, /Unknown argument `really`/],
      ["[1]", /must be an object/],
    ],
  }

  test.each(Object.keys(CASES))("a malformed call of %s gives an error that names the argument", async (tool) => {
    const cases = CASES[tool] ?? []
    const outcomes = await call(
      tool,
      cases.map(([args]) => args),
    )
    for (const [index, [args, expected]] of cases.entries()) {
      const what = JSON.stringify(args).slice(0, 80)
      expect(outcomes[index], what).toEqual({ status: "error", text: expect.stringMatching(expected) })
      expect(outcomes[index]?.text.length, `${what}: short`).toBeLessThan(600)
    }
  })
})

describe("an argument's limits", () => {
  test("an argument of null counts as absent", async () => {
    const mine = await openSession(opencode)
    const absent = { fork: null, resume: null, model: null, batch: null, timeout: null } as never
    const { id } = await launch(opencode, model, mine, { prompt: "P-NULLS", ...(absent as object) })
    await notified(opencode, mine)
    const [output] = await call("superagents_output", [{ task_id: id, block: null, timeout: null, offset: null }], mine)
    expect(output).toMatchObject({ status: "completed", text: expect.stringContaining("Status: completed") })
  })

  test("an argument may be as long as the documented limits allow", async () => {
    const mine = await openSession(opencode)
    const prompt = `P-LONG-${"x".repeat(100_000 - 7)}`
    await launch(opencode, model, mine, { prompt, description: "d".repeat(200) })
    const [notification] = await notified(opencode, mine)
    expect(notification?.visible).toContain(`"${"d".repeat(200)}"`)
    expect(model.requests.some((request) => request.lastUser === prompt)).toBe(true)
  })
})

describe("a task's id", () => {
  test("a task id may be shortened to a unique prefix; otherwise the error names the candidates", async () => {
    const mine = await openSession(opencode)
    const tasks = await launchAll(opencode, model, mine, [{ prompt: "P-X" }, { prompt: "P-Y" }])
    await notified(opencode, mine, 2)
    const [x, y] = tasks
    const [ambiguous, empty, byPrefix, bySession, bySessionPrefix] = await call(
      "superagents_output",
      [
        { task_id: "bg_" },
        { task_id: "  " },
        { task_id: x?.id.slice(0, 10) },
        { task_id: y?.child },
        { task_id: y?.child.slice(0, -1) },
      ],
      mine,
    )
    expect(ambiguous).toEqual({ status: "error", text: expect.stringMatching(/fits several tasks/) })
    for (const { id } of tasks) {
      expect(ambiguous?.text).toContain(id)
      expect(empty?.text).toContain(id)
    }
    expect(empty?.status).toBe("error")
    expect(byPrefix?.text).toContain(`Task: ${x?.id}`)
    expect(bySession?.text).toContain(`Task: ${y?.id}`)
    expect(bySessionPrefix?.text).toContain(`Task: ${y?.id}`)
  })

  test("a task id of another session is unknown in this session for every tool", async () => {
    const door = gate()
    model.use(async (request) => {
      if (request.lastUser !== "P-FOREIGN") return undefined
      await door.opened
      return { text: "not for you" }
    })
    const [mine, other] = [await openSession(opencode), await openSession(opencode)]
    const { id, child } = await launch(opencode, model, mine, { prompt: "P-FOREIGN" })
    const unknown = { status: "error", text: expect.stringContaining(`No task "`) }
    for (const reference of [id, child]) {
      expect(await call("superagents_output", [{ task_id: reference }], other)).toEqual([unknown])
      expect(await call("superagents_cancel", [{ task_id: reference }], other)).toEqual([unknown])
      expect(await call("superagents_task", [{ resume: reference, prompt: "go on" }], other)).toEqual([unknown])
    }
    expect((await call("superagents_list", [{}], other))[0]?.text).toBe("No background tasks found")
    expect((await call("superagents_cancel", [{ all: true }], other))[0]?.text).toContain("nothing was cancelled")
    await call("superagents_clear", [{}], other)
    door.open()
    await notified(opencode, mine)
    expect((await call("superagents_output", [{ task_id: id }], mine))[0]?.text).toContain("not for you")
  })
})
