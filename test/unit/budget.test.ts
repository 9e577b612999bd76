import { describe, expect, test, vi } from "vitest"
import { DAY_MS } from "../../src/core/bill.ts"
import { CallError } from "../../src/core/errors.ts"
import { RECORD_KEY } from "../../src/runtime/record/codec.ts"
import { Rig } from "../support/rig.ts"

/** What is spent, and the limits that tasks share. A step costs a cent. */

const CENT = { usage: { input: 10_000 } }
const STEP = { tools: [{ name: "read", args: { ms: 200 } }], ...CENT }

const rigged = (options: object, steps = 4) => {
  const rig = new Rig({ options: { lastWord: 0, ...options } })
  rig.script(({ prompt, toolResults }) => {
    if (!prompt.startsWith("SPEND")) return undefined
    return toolResults.length + 1 < steps ? STEP : { text: "done", ...CENT }
  })
  return rig
}
const spend = { prompt: "SPEND" }
const cost = (rig: Rig) =>
  rig.manager
    .list(rig.parent)
    .reduce((sum, { task: { earlier, outcome } }) => sum + earlier.usage.cost + (outcome?.usage.cost ?? 0), 0)

describe("a session's budget", () => {
  test("stops all that share it, by no more than the steps under way, and each is told once", async () => {
    const rig = rigged({ maxCostPerSession: 0.1 })
    const tasks = await Promise.all(Array.from({ length: 10 }, () => rig.launch(spend)))
    for (const { id } of tasks) await rig.ended(id)
    expect(cost(rig)).toBeGreaterThan(0.1 - 1e-9)
    expect(cost(rig)).toBeLessThanOrEqual(0.2 + 1e-9)
    for (const { id } of tasks) expect(rig.task(id).outcome?.reason?.code).toBe("budget")
    expect(rig.notices()).toHaveLength(10)
  })

  test("stops all that share it in the moment in which one passes it, whatever they are doing", async () => {
    const rig = rigged({ maxCostPerSession: 0.02, pollInterval: 60_000 })
    rig.onPrompt("BUILD", { tools: [{ name: "build", args: { ms: 600_000 } }] })
    const builds = [await rig.launch({ prompt: "BUILD" }), await rig.launch({ prompt: "BUILD" })]
    const { id } = await rig.launch(spend)
    const { run } = await rig.ended(id)
    expect(builds.map((each) => rig.task(each.id).run.endedAt)).toEqual([run.endedAt, run.endedAt])
  })

  test("refuses what would begin beyond it, and says so", async () => {
    const rig = rigged({ maxCostPerSession: 0.04 })
    const { id } = await rig.launch(spend)
    expect((await rig.ended(id)).status).toBe("completed")
    const why =
      "Nothing was launched: the session's tasks spent $0.0400 of $0.04 (option maxCostPerSession). Only the user can raise it: do the rest yourself, or tell them."
    await expect(rig.launch(spend)).rejects.toThrow(new CallError(why))
    await expect(rig.manager.resume(id, { prompt: "SPEND" }, rig.caller)).rejects.toThrow("option maxCostPerSession")
    expect(await rig.launch(spend, rig.openParent())).toBeDefined()
  })

  test("counts what somebody else has a task do after its end, once, also after a restart", async () => {
    const rig = rigged({ maxCostPerSession: 0.06 })
    const { sessionID } = await rig.ended((await rig.launch(spend)).id)
    await rig.clock.advance(1000)
    expect(cost(rig)).toBeCloseTo(0.04)
    rig.host.onEvent = () => "double"
    rig.host.say(sessionID, "SPEND more", { agent: "general" })
    await rig.clock.advance(20_000)
    expect(cost(rig)).toBeCloseTo(0.08)
    await expect(rig.launch(spend)).rejects.toThrow("spent $0.0800 of $0.06")
    rig.restart()
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    expect(cost(rig)).toBeCloseTo(0.08)
  })

  test("counts for its day what somebody has a task do more than a day after its end", async () => {
    const rig = rigged({ maxCostPerDay: 1 })
    const day = () => rig.manager.spentBy(rig.parent).day.cost
    const { sessionID } = await rig.ended((await rig.launch(spend)).id)
    await rig.clock.advance(25 * 3_600_000)
    expect(day()).toBe(0)
    rig.host.say(sessionID, "SPEND more", { agent: "general" })
    await rig.clock.advance(20_000)
    expect(day()).toBeCloseTo(0.04)
    expect(cost(rig)).toBeCloseTo(0.08)
    await rig.clock.advance(25 * 3_600_000)
    expect(day()).toBe(0)
  })

  test("counts what tasks below a task spend, and what was cleared", async () => {
    const rig = rigged({ maxCostPerSession: 0.08, maxDepth: 2 })
    const top = await rig.launch(spend)
    const below = await rig.launch(spend, top.sessionID)
    await rig.ended(below.id, top.sessionID)
    await rig.ended(top.id)
    await rig.manager.clear(rig.parent)
    await expect(rig.launch(spend)).rejects.toThrow(/spent \$0\.0\d+ of \$0\.08/)
    expect(rig.manager.spentBy(rig.parent).session.cost).toBeGreaterThanOrEqual(0.08)
  })

  test("lets two in on its last cent, since nobody knows what they will spend, and then no more", async () => {
    const rig = rigged({ maxCostPerSession: 0.05 })
    await rig.ended((await rig.launch(spend)).id)
    const both = await Promise.all([rig.launch(spend), rig.launch(spend)])
    for (const { id } of both) expect((await rig.ended(id)).outcome?.reason?.code).toBe("budget")
    expect(cost(rig)).toBeLessThanOrEqual(0.07 + 1e-9)
    await expect(rig.launch(spend)).rejects.toThrow("option maxCostPerSession")
  })

  test("ends what waited for its slot until all was spent, before it begins", async () => {
    const rig = rigged({ maxCostPerSession: 0.04, maxConcurrentTasks: 1 })
    await rig.launch(spend)
    const waiting = await rig.launch(spend)
    const task = await rig.ended(waiting.id)
    expect(task.outcome?.reason).toMatchObject({
      code: "budget",
      text: expect.stringMatching(/^It never began: the session's/),
    })
    expect(rig.host.stored(waiting.sessionID).messages).toEqual([])
  })
})

describe("without any option", () => {
  const HUNGRY = { tools: [{ name: "read", args: { ms: 200 } }], usage: { input: 300_000 } }
  const hungry = (options: object = {}) => {
    const rig = new Rig({ options: { lastWord: 0, ...options } })
    rig.script(({ prompt, toolResults }) =>
      prompt.startsWith("SPEND") ? (toolResults.length < 40 ? HUNGRY : { text: "done" }) : undefined,
    )
    return rig
  }

  test("a run that goes on and on is stopped at two million tokens", async () => {
    const rig = hungry()
    const { outcome } = await rig.ended((await rig.launch(spend)).id)
    expect(outcome?.reason?.text).toMatch(/the option maxTokensPerTask allows 2000000\.$/)
    expect(outcome?.usage.input).toBeLessThanOrEqual(2_400_000)
  })

  test("and a session's at ten dollars", async () => {
    const rig = hungry()
    const tasks = await Promise.all(Array.from({ length: 10 }, () => rig.launch(spend)))
    for (const { id } of tasks) await rig.ended(id)
    expect(cost(rig)).toBeGreaterThanOrEqual(10)
    expect(cost(rig)).toBeLessThanOrEqual(10 + 10 * 0.3)
    await expect(rig.launch(spend)).rejects.toThrow("of $10.00 (option maxCostPerSession)")
  })

  test("0 turns both off", async () => {
    const rig = hungry({ maxTokensPerTask: 0, maxCostPerSession: 0 })
    const { status, outcome } = await rig.ended((await rig.launch(spend)).id)
    expect([status, outcome?.usage.input]).toEqual(["completed", 40 * 300_000 + 100])
  })
})

describe("a task's budget", () => {
  test("holds where no event tells what it spends", async () => {
    const rig = rigged({ maxCostPerTask: 0.05, pollInterval: 100 }, 100)
    rig.host.onEvent = () => "lose"
    const { id } = await rig.launch(spend)
    const task = await rig.ended(id)
    expect(task.outcome?.reason?.code).toBe("budget")
    expect(task.outcome?.usage.cost).toBeLessThanOrEqual(0.07 + 1e-9)
  })

  test("counts all its runs; a resume beyond it is refused", async () => {
    const rig = rigged({ maxCostPerTask: 0.05 })
    const { id } = await rig.launch(spend)
    await rig.ended(id)
    await rig.manager.resume(id, { prompt: "SPEND" }, rig.caller)
    const task = await rig.ended(id)
    expect(task.outcome?.reason?.text).toBe("Stopped at its budget: it spent $0.0600 of $0.05 (option maxCostPerTask).")
    const rigThatResumes = rigged({ maxCostPerTask: 0.04 })
    const other = await rigThatResumes.launch(spend)
    await rigThatResumes.ended(other.id)
    await expect(rigThatResumes.manager.resume(other.id, { prompt: "SPEND" }, rigThatResumes.caller)).rejects.toThrow(
      "it spent $0.0400 of $0.04 (option maxCostPerTask)",
    )
  })

  test("counts its own tasks", async () => {
    const rig = rigged({ maxCostPerTask: 0.05, maxDepth: 2 }, 3)
    rig.onPrompt("WAIT", { tools: [{ name: "build", args: { ms: 60_000 } }], ...CENT })
    const top = await rig.launch({ prompt: "WAIT" })
    for (const _ of [1, 2]) await rig.launch(spend, top.sessionID)
    const task = await rig.ended(top.id)
    expect(task.outcome?.reason?.code).toBe("budget")
  })

  test("as a call sets it counts its own tasks, too, those that it has cleared as well", async () => {
    const rig = rigged({ maxDepth: 2 }, 2)
    rig.onPrompt("WAIT", { tools: [{ name: "build", args: { ms: 60_000 } }], ...CENT })
    const top = await rig.launch({ prompt: "WAIT", maxCost: 0.03 })
    for (const _ of [1, 2]) {
      await rig.ended((await rig.launch(spend, top.sessionID)).id, top.sessionID)
      await rig.manager.clear(top.sessionID)
    }
    expect((await rig.ended(top.id)).outcome?.reason?.text).toMatch(/\$0\.0400 of \$0\.03 \(argument max_cost\)/)
  })

  test("as a call sets it is passed when its own task spends, and not when the clock looks next", async () => {
    const rig = rigged({ maxDepth: 2, pollInterval: 60_000 }, 1)
    rig.onPrompt("WAIT", { tools: [{ name: "build", args: { ms: 600_000 } }] })
    const top = await rig.launch({ prompt: "WAIT", maxCost: 0.005 })
    const own = await rig.launch(spend, top.sessionID)
    await rig.clock.until(() => rig.view(own.id, top.sessionID).thisRun.usage.cost > 0)
    await rig.settle()
    expect(rig.task(top.id).outcome?.reason).toMatchObject({ code: "budget" })
  })

  test("as a call sets it is this run's", async () => {
    const rig = rigged({}, 3)
    const { id } = await rig.launch(spend)
    await rig.ended(id)
    await rig.manager.resume(id, { prompt: "SPEND", maxCost: 0.015 }, rig.caller)
    const task = await rig.ended(id)
    expect(task.outcome?.reason?.text).toBe("Stopped at its budget: it spent $0.0200 of $0.015 (argument max_cost).")
  })
})

describe("the day's budget", () => {
  test("is the project's: all sessions, restarts and all processes", async () => {
    const rig = rigged({ maxCostPerDay: 0.1 })
    const { id } = await rig.launch(spend)
    await rig.ended(id)
    const other = new Rig({
      options: { maxCostPerDay: 0.1, lastWord: 0 },
      share: { clock: rig.clock, database: rig.host.database },
    })
    other.script(({ prompt }) => (prompt === "SPEND" ? STEP : undefined))
    // Ids are told apart by their number in a rig.
    await other.ended((await other.launch()).id)
    const theirs = await other.launch(spend)
    await other.ended(theirs.id)
    expect(other.task(theirs.id, other.parent).outcome?.reason?.text).toMatch(
      /^Stopped at the day's budget: the project's tasks of the last 24 hours spent \$0\.1\d+ of \$0\.10/,
    )
    rig.restart()
    await rig.manager.recover()
    await expect(rig.launch(spend)).rejects.toThrow("option maxCostPerDay")
    await rig.clock.advance(DAY_MS + 60_000)
    expect(await rig.launch(spend)).toBeDefined()
  })

  test("asks for other processes' records only where it is on, and goes on without them", async () => {
    const reads = async (options: object) => {
      const rig = rigged(options)
      rig.host.onCall = (method) => (method === "recordsSince" ? { fail: new Error("no") as never } : undefined)
      const before = rig.host.calls.filter((name) => name === "recordsSince").length
      await rig.launch(spend)
      return rig.host.calls.filter((name) => name === "recordsSince").length - before
    }
    expect(await reads({ maxCostPerSession: 1 })).toBe(0)
    expect(await reads({ maxCostPerDay: 1 })).toBe(1)
  })

  test("holds for launches that come together: each waits for what others have spent", async () => {
    const other = rigged({})
    await other.ended((await other.launch(spend)).id)
    const rig = new Rig({
      options: { maxCostPerDay: 0.03 },
      share: { clock: other.clock, database: other.host.database },
    })
    rig.host.onCall = (method) => (method === "recordsSince" ? { slow: 50 } : undefined)
    const launches = Promise.allSettled([rig.launch(spend), rig.launch(spend)])
    await rig.clock.advance(1000)
    expect((await launches).map(({ status }) => status)).toEqual(["rejected", "rejected"])
  })

  test("asks for those of all folders of the project", async () => {
    const rig = rigged({ maxCostPerDay: 1 })
    const asked = vi.spyOn(rig.host, "recordsSince")
    await rig.launch(spend)
    expect(asked.mock.lastCall).toEqual([expect.any(Number), "project"])
  })
})

test("limits on what is spent, and a last word that nobody needs, cost no call", async () => {
  const calls = async (options: object) => {
    const rig = new Rig({ options })
    await rig.ended((await rig.launch()).id)
    await rig.clock.advance(60_000)
    return rig.host.calls
  }
  const plain = await calls({ lastWord: 0 })
  expect(await calls({})).toEqual(plain)
  expect(await calls({ maxCostPerTask: 1, maxCostPerSession: 1, maxTokensPerSession: 100_000 })).toEqual(plain)
})

describe("what was spent is not forgotten", () => {
  test("by a clear and a restart", async () => {
    const limits = { maxCostPerSession: 0.04, maxCostPerDay: 0.08 }
    const rig = rigged(limits)
    await rig.ended((await rig.launch(spend)).id)
    await rig.manager.clear(rig.parent)
    rig.restart()
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    expect(rig.manager.list(rig.parent)).toEqual([])
    await expect(rig.launch(spend)).rejects.toThrow(/spent \$0\.0400 of \$0\.04 \(option maxCostPerSession\)/)
    const other = rig.openParent()
    await rig.ended((await rig.launch(spend, other)).id, other)
    await expect(rig.launch(spend, rig.openParent())).rejects.toThrow("$0.0800 of $0.08 (option maxCostPerDay)")
  })

  test("by the loss of the key: the sessions tell it for a day", async () => {
    const rig = rigged({ maxCostPerDay: 0.04 })
    const { id, sessionID } = await rig.launch(spend)
    await rig.ended(id)
    const { metadata } = rig.host.stored(sessionID)
    const record = metadata[RECORD_KEY] as object
    rig.host.writeMetadata(sessionID, { ...metadata, [RECORD_KEY]: { ...record, signature: "of another key" } })
    rig.restart()
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    expect(rig.manager.list(rig.parent)).toEqual([])
    await expect(rig.launch(spend)).rejects.toThrow("$0.0400 of $0.04 (option maxCostPerDay)")
    await rig.clock.advance(DAY_MS + 60_000)
    expect(await rig.launch(spend)).toBeDefined()
  })

  test("twice, where the record of a task that is known here was changed", async () => {
    const rig = rigged({ maxCostPerDay: 0.07 })
    const { id, sessionID } = await rig.launch(spend)
    await rig.ended(id)
    const { metadata } = rig.host.stored(sessionID)
    rig.host.writeMetadata(sessionID, { [RECORD_KEY]: { ...(metadata[RECORD_KEY] as object), signature: "none" } })
    expect(await rig.launch(spend)).toBeDefined()
  })

  test("and without such limits nothing is kept of a task that was cleared", async () => {
    const rig = rigged({ maxCostPerSession: 0 })
    const { id, sessionID } = await rig.launch(spend)
    await rig.ended(id)
    await rig.manager.clear(rig.parent)
    expect(rig.host.stored(sessionID).metadata).toEqual({})
  })

  test("while the user takes time to allow a launch", async () => {
    const rig = rigged({ maxCostPerSession: 0.04 })
    const first = await rig.launch(spend)
    let allow = () => {}
    const asked = new Promise<void>((resolve) => {
      allow = resolve
    })
    const request = { description: "find it", prompt: "SPEND", agent: "general", fork: false }
    const second = rig.manager.launch(request, { ...rig.caller, authorize: () => asked })
    await rig.ended(first.id)
    allow()
    await expect(second).rejects.toThrow("option maxCostPerSession")
    expect(rig.manager.list(rig.parent)).toHaveLength(1)
  })

  test("where another process spends it, while a task runs here", async () => {
    const limits = { maxCostPerDay: 0.1, lastWord: 0 }
    const rig = rigged(limits, 1000)
    rig.onPrompt("SLOW", { tools: [{ name: "build", args: { ms: 120_000 } }] })
    const { id } = await rig.launch({ prompt: "SLOW" })
    const options = { lastWord: 0, maxTokensPerTask: 0 }
    const other = new Rig({ options, share: { clock: rig.clock, database: rig.host.database } })
    other.script(({ prompt }) => (prompt === "SPEND" ? STEP : undefined))
    // Ids are told apart by their number in a rig.
    await other.ended((await other.launch()).id)
    const theirs = await other.launch(spend)
    const task = await rig.ended(id)
    expect(task.outcome?.reason?.text).toMatch(/^Stopped at the day's budget: .* of \$0\.10/)
    expect(rig.clock.now() - (task.run.startedAt ?? 0)).toBeLessThan(60_000)
    expect(other.task(theirs.id, other.parent).status).toBe("running")
  })

  test("where another process spends it in a task that is known here and works in a place of its own", async () => {
    const rig = rigged({ maxCostPerDay: 0.1, lastWord: 0 }, 1000)
    rig.onPrompt("SLOW", { tools: [{ name: "build", args: { ms: 120_000 } }] })
    const worktrees = { capture: async () => {}, enter: async () => ({ directory: "/place", preface: "" }) }
    const share = { clock: rig.clock, database: rig.host.database }
    const other = new Rig({ options: { lastWord: 0 }, worktrees: async () => worktrees as never, share })
    other.script(({ prompt }) => (prompt.startsWith("SPEND") ? STEP : undefined))
    // Ids are told apart by their number in a rig.
    await other.ended((await other.launch()).id)
    await other.launch({ ...spend, place: "worktree" })
    await rig.clock.advance(500)
    await rig.manager.recover()
    expect(rig.manager.list(other.parent)).toHaveLength(2)
    await rig.clock.advance(1000)
    const { id } = await rig.launch({ prompt: "SLOW" })
    const task = await rig.ended(id)
    expect(task.outcome?.reason?.text).toMatch(/^Stopped at the day's budget: .* of \$0\.10/)
    expect(rig.clock.now() - (task.run.startedAt ?? 0)).toBeLessThan(60_000)
  })
})
