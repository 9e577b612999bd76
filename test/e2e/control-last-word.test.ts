import { afterAll, beforeAll, describe, expect, test, vi } from "vitest"
import { ask, callTool, eventually, messages, openSession, toolParts, unwrap } from "../support/drive.ts"
import { ASKS_FOR_LS, fiveNearALimit, isAsked } from "../support/last-words.ts"
import { type ModelRequest, type Reply, type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, launch, notified, startPlugged, type TaskArguments } from "../support/plugin.ts"

/**
 * The last word before every limit, on the real OpenCode. Each case has an agent and a session of its own, and they run
 * side by side: most of their time is waiting.
 */

vi.setConfig({ testTimeout: 300_000, hookTimeout: 180_000 })
/** Turns take long where other tests run beside. */
const PATIENT = { timeout: 90_000 }
const LIMIT = "time limit of 18s \\(its timeout argument\\)"
const TIMED = { timeout: 18_000 }
/** What a step uses that says so: $0.01. */
const CENT = { input: 10_000, output: 0 }
const FIFTH_OF_A_CENT = { input: 2000, output: 0 }

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(
    model,
    {
      ...{ lastWord: 6000, maxTokensPerTask: 100_000, maxCostPerSession: 0.15, resumable: ["error"] },
      // Only two agents together come so far.
      maxTokensPerSession: 120_000,
      // A number here has a task's time count while its question is open.
      ...{ maxLaunchesPerMinute: 0, maxConcurrentTasks: 0, permissionTimeout: 300_000 },
    },
    { permission: ASKS_FOR_LS },
  )
  const done = model.use(({ sinceUser }) => (sinceUser.length === 0 ? read() : undefined))
  await ask(opencode, await openSession(opencode), "warm up", PATIENT)
  done()
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

const read = (more: object = {}): Reply => ({ tools: [{ name: "read", args: { filePath: "README.md" } }], ...more })
const bash = (command: string): Reply => ({
  tools: [{ name: "bash", args: { command, description: "x" } }],
  usage: CENT,
})
const OBEYS = (): Reply => ({ text: "half is done, the rest is in a.txt", usage: CENT })

const asked = (child: string) => model.requests.filter((request) => request.sessionID === child && isAsked(request))
const outputOf = async (session: string, id: string) =>
  (await callTool(opencode, model, session, "superagents_output", { task_id: id }, PATIENT)).output ?? ""

let cases = 0

/** An agent that does its work as it says, and then what it says when it is asked for its last word; in a session of its own unless it is given one. */
const launched = async (
  work: (request: ModelRequest) => Reply | Promise<Reply>,
  word: (request: ModelRequest) => Reply,
  args: Partial<TaskArguments> = TIMED,
  given?: string,
) => {
  const prompt = `L-CASE-${++cases}.`
  model.use((request) => {
    if (!request.userTexts.includes(prompt) || !request.parentSessionID) return undefined
    return isAsked(request) ? word(request) : work(request)
  })
  const session = given ?? (await openSession(opencode))
  return { session, ...(await launch(opencode, model, session, { prompt, ...args }, PATIENT)) }
}

const told = async (session: string) => {
  const [notification, ...others] = await notified(opencode, session, 1, PATIENT.timeout)
  expect(others).toEqual([])
  return notification
}

/** It ended by its limit, once, with its last word marked as partial in output and notification. */
const saidItsWord = async ({ session, id }: { session: string; id: string }, limit: string, tasks = 1) => {
  const notifications = await notified(opencode, session, tasks, PATIENT.timeout)
  expect(notifications).toHaveLength(tasks)
  const notification = notifications.find(({ hidden }) => hidden.includes(`Task ${id}: error.`))
  expect(notification?.visible).toContain(" failed in ")
  expect(notification?.hidden).toMatch(new RegExp(`Reason: Stopped at .*${limit}.*\\.\\n`))
  expect(notification?.hidden).toMatch(/partial[\s\S]*half is done, the rest is in a\.txt/)
  const output = await outputOf(session, id)
  expect(output).toContain("Status: error")
  expect(output).toMatch(/Its last word, which is partial:\n<task_output[\s\S]*half is done/)
}

test("a compaction that uses the last tokens does not end a run before its last word", async () => {
  let child = ""
  model.use((request) => {
    const usage = { input: 99_990, cached: 150_000, output: 0 }
    if (request.lastUser === "L-COMPACTED") return read({ usage, delay: 2000 })
    return request.sessionID === child && isAsked(request) ? OBEYS() : undefined
  })
  const session = await openSession(opencode)
  const task = await launch(opencode, model, session, { prompt: "L-COMPACTED" }, PATIENT)
  child = task.child
  await saidItsWord({ session, id: task.id }, "token limit")
  const kinds = (await messages(opencode, child)).map(({ info }) => info.role === "assistant" && info.summary === true)
  expect(kinds).toContain(true)
  // The request of a compaction asks for none: its summary would be taken for the last word.
  expect(asked(child).map(({ tools }) => tools.length > 0)).toEqual([true])
})

describe.concurrent("the last word near each limit", () => {
  const steps = () => read({ usage: CENT, delay: 60 })

  test("a child near its time limit ends with its last word, in a fork as well", async () => {
    const tasks = await Promise.all([
      launched(() => read({ delay: 250 }), OBEYS),
      launched(() => read({ delay: 250 }), OBEYS, { ...TIMED, fork: true }),
    ])
    for (const task of tasks) {
      await saidItsWord(task, LIMIT)
      expect(asked(task.child)).toHaveLength(1)
      expect(asked(task.child)[0]?.lastUser).toContain("You are near your time limit of 18s")
    }
  })

  test("a child near its token limit ends with its last word", async () => {
    const task = await launched(steps, OBEYS, {})
    await saidItsWord(task, "token limit")
    expect(asked(task.child)).toHaveLength(1)
  })

  test("two children near their session's token limit both end with their last words", async () => {
    const door = gate()
    const spending = () => {
      let taken = 0
      return async () => {
        await door.opened
        // Small steps near the limit: neither passes it while the other is in one.
        return read({ usage: ++taken > 5 ? FIFTH_OF_A_CENT : CENT, delay: 60 })
      }
    }
    const obeys = () => ({ ...OBEYS(), usage: FIFTH_OF_A_CENT })
    const one = await launched(spending(), obeys, {})
    const other = await launched(spending(), obeys, {}, one.session)
    door.open()
    const limit =
      "session's token limit: the session's tasks used \\d+ tokens, the option maxTokensPerSession allows 120000"
    for (const task of [one, other]) {
      await saidItsWord(task, limit, 2)
      expect(asked(task.child)).toHaveLength(1)
    }
  })

  test("a child near its cost limit ends with its last word, in a fork as well", async () => {
    const [fresh, forked] = await Promise.all([
      launched(steps, OBEYS, { max_cost: 0.05 }),
      launched(steps, OBEYS, { max_cost: 0.05, fork: true }),
    ])
    await saidItsWord(fresh, "argument max_cost, or option agents")
    await saidItsWord(forked, "argument max_cost, or option agents")
    // Five steps reach nine tenths; the sixth is the word.
    const requests = model.requests.filter(({ sessionID }) => sessionID === fresh.child)
    expect(requests.findIndex(isAsked)).toBe(5)
    expect(requests).toHaveLength(6)
  })

  test("five different children near their session's cost limit all end with their last words", async () => {
    await fiveNearALimit(opencode, model, {
      // Dear ones: no task comes near its own limit on tokens.
      step: { input: 0, output: 17_500 },
      limit: /Stopped at the session's budget: the session's tasks spent .* of \$0\.15 \(option maxCostPerSession\)/,
    })
  })

  test("a task resumed after its last word has all its tools and no limit warning", async () => {
    const { session, id, child } = await launched(steps, OBEYS, { max_cost: 0.05 })
    await told(session)
    const before = model.requests.find(({ sessionID }) => sessionID === child)?.tools
    model.use(({ lastUser, sessionID }) =>
      sessionID === child && lastUser === "L-AGAIN" ? { text: "went on" } : undefined,
    )
    await callTool(opencode, model, session, "superagents_task", { resume: id, prompt: "L-AGAIN" }, PATIENT)
    const again = await model.waitFor(
      ({ lastUser, sessionID }) => sessionID === child && lastUser === "L-AGAIN",
      PATIENT,
    )
    expect(again.tools).toEqual(before)
    expect(isAsked(again)).toBe(false)
    await notified(opencode, session, 2, PATIENT.timeout)
    expect(await outputOf(session, id)).toContain("went on")
    const row = await unwrap(opencode.client.session.get({ sessionID: child }))
    expect(row.permission ?? []).not.toContainEqual(expect.objectContaining({ permission: "*" }))
  })
})

describe.concurrent("a child near its time limit", () => {
  test("a child that keeps calling tools near its time limit is refused with the reason, and is stopped", async () => {
    const { session, id, child } = await launched(
      () => read({ delay: 1_000 }),
      () => read({ text: "not yet", delay: 1_000 }),
    )
    expect((await told(session))?.hidden).toMatch(new RegExp(`Reason: Stopped at its ${LIMIT}\\.`))
    const refused = (await toolParts(opencode, child)).filter(({ state }) => state.status === "error")
    // One that was under way is cut off; those after it are refused.
    expect(JSON.stringify(refused.map(({ state }) => state))).toContain("You are near your time limit")
    expect(await outputOf(session, id)).toContain("not yet")
    const [first, ...later] = asked(child)
    expect(first?.tools).not.toEqual([])
    // They stay on offer: a provider has what its requests begin with in its cache.
    for (const { tools } of later) expect(tools).toEqual(first?.tools)
  })

  test("a child hanging in a tool near its time limit is interrupted and can say its last word", async () => {
    const task = await launched(
      () => bash("sleep 60"),
      () => ({ ...OBEYS(), delay: 300 }),
    )
    await saidItsWord(task, LIMIT)
    expect(asked(task.child)).toHaveLength(1)
    expect(asked(task.child)[0]?.tools).toContain("bash")
    expect((await messages(opencode, task.child)).at(-1)?.info.role).toBe("assistant")
  })

  test("a child that calls a tool instead of saying its last word gets no tools next time", async () => {
    const task = await launched(
      () => bash("sleep 60"),
      (request) => (request.tools.length > 0 ? read({ delay: 100 }) : { ...OBEYS(), delay: 100 }),
    )
    model.prefixes.allow(task.child)
    await saidItsWord(task, LIMIT)
    expect(asked(task.child).map(({ tools }) => tools.length > 0)).toEqual([true, false])
  })

  test("a child that hangs during its last word is stopped when the extra time is over", async () => {
    const { session, id, child } = await launched(
      () => bash("sleep 60"),
      () => ({ hang: true, text: "almost" }),
    )
    expect((await told(session))?.hidden).toMatch(new RegExp(`Reason: Stopped at its ${LIMIT}\\.`))
    expect(await outputOf(session, id)).toContain("almost")
    await eventually(() => asked(child)[0]?.aborted.aborted, PATIENT)
  })

  test("a child that waits for a permission near its time limit has its question refused first", async () => {
    const task = await launched(() => bash("ls"), OBEYS)
    await saidItsWord(task, LIMIT)
    const open = await unwrap(opencode.client.permission.list())
    expect(open.filter(({ sessionID }) => sessionID === task.child)).toEqual([])
    expect(asked(task.child)).toHaveLength(1)
  })

  test("a child that ended or was cancelled before its time limit is not asked for a last word", async () => {
    const ended = await launched(() => ({ text: "all is done", delay: 400 }), OBEYS)
    expect((await told(ended.session))?.visible).toContain(" finished in ")
    const hanging = await launched(() => bash("sleep 60"), OBEYS)
    await callTool(opencode, model, hanging.session, "superagents_cancel", { task_id: hanging.id }, PATIENT)
    expect((await told(hanging.session))?.visible).toContain(" cancelled after ")
    expect(asked(hanging.child)).toEqual([])
  })
})
