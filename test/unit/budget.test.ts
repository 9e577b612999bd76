import { describe, expect, test, vi } from "vitest"
import { CallError } from "../../src/core/errors.ts"
import { DAY_MS, MINUTE_MS } from "../../src/lib/format.ts"
import { RECORD_KEY } from "../../src/runtime/record/codec.ts"
import { isParkedNow, limited } from "../support/limit-scene.ts"
import { Rig } from "../support/rig.ts"
import { CENT, spendingRig as rigged, STEP, spend } from "../support/spending-scene.ts"

/** What is spent, and the limits that tasks share. A step costs a cent. */

const cost = (rig: Rig) =>
  rig.manager
    .list(rig.parent)
    .reduce((sum, { task: { earlier, outcome } }) => sum + earlier.usage.cost + (outcome?.usage.cost ?? 0), 0)

describe("a session's budget", () => {
  test("a session's budget stops all tasks that share it, and each end is reported once", async () => {
    const rig = rigged({ maxCostPerSession: 0.1 })
    const tasks = await Promise.all(Array.from({ length: 10 }, () => rig.launch(spend)))
    for (const { id } of tasks) await rig.ended(id)
    expect(cost(rig)).toBeGreaterThan(0.1 - 1e-9)
    expect(cost(rig)).toBeLessThanOrEqual(0.2 + 1e-9)
    for (const { id } of tasks) expect(rig.task(id).outcome?.reason?.code).toBe("budget")
    expect(rig.notices()).toHaveLength(10)
  })

  test("a session's budget stops all its tasks at the moment when one of them exceeds it", async () => {
    const rig = rigged({ maxCostPerSession: 0.02, pollInterval: 60_000 })
    rig.onPrompt("BUILD", { tools: [{ name: "build", args: { ms: 600_000 } }] })
    const builds = [await rig.launch({ prompt: "BUILD" }), await rig.launch({ prompt: "BUILD" })]
    const { id } = await rig.launch(spend)
    const { run } = await rig.ended(id)
    expect(builds.map((each) => rig.task(each.id).run.endedAt)).toEqual([run.endedAt, run.endedAt])
  })

  test("a session's budget refuses a launch or resume once it is used up and says so", async () => {
    const rig = rigged({ maxCostPerSession: 0.04 })
    const { id } = await rig.launch(spend)
    expect((await rig.ended(id)).status).toBe("completed")
    const why =
      "Nothing was launched: the session's tasks spent $0.0400 of $0.04 (option maxCostPerSession). Only the user can raise it: do the rest yourself, or tell them."
    await expect(rig.launch(spend)).rejects.toThrow(new CallError(why))
    await expect(rig.manager.resume(id, { prompt: "SPEND" }, rig.caller)).rejects.toThrow("option maxCostPerSession")
    expect(await rig.launch(spend, rig.openParent())).toBeDefined()
  })

  test("a session's budget counts work that a user requests after a task's end once, also after a restart", async () => {
    const rig = rigged({ maxCostPerSession: 0.06 })
    const { sessionID } = await rig.ended((await rig.launch(spend)).id)
    await rig.clock.advance(1000)
    expect(cost(rig)).toBeCloseTo(0.04)
    rig.opencode.onEvent = () => "double"
    rig.opencode.say(sessionID, "SPEND more", { agent: "general" })
    await rig.clock.advance(20_000)
    expect(cost(rig)).toBeCloseTo(0.08)
    await expect(rig.launch(spend)).rejects.toThrow("spent $0.0800 of $0.06")
    rig.restart()
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    expect(cost(rig)).toBeCloseTo(0.08)
  })

  test("the day's budget counts work that a user requests more than a day after a task's end", async () => {
    const rig = rigged({ maxCostPerDay: 1 })
    const day = () => rig.manager.spentBy(rig.parent).day.cost
    const { sessionID } = await rig.ended((await rig.launch(spend)).id)
    await rig.clock.advance(25 * 3_600_000)
    expect(day()).toBe(0)
    rig.opencode.say(sessionID, "SPEND more", { agent: "general" })
    await rig.clock.advance(20_000)
    expect(day()).toBeCloseTo(0.04)
    expect(cost(rig)).toBeCloseTo(0.08)
    await rig.clock.advance(25 * 3_600_000)
    expect(day()).toBe(0)
  })

  test("a session's budget includes nested tasks and tasks that were cleared", async () => {
    const rig = rigged({ maxCostPerSession: 0.08, maxDepth: 2 })
    const top = await rig.launch(spend)
    const below = await rig.launch(spend, top.sessionID)
    await rig.ended(below.id, top.sessionID)
    await rig.ended(top.id)
    await rig.manager.clear(rig.parent)
    await expect(rig.launch(spend)).rejects.toThrow(/spent \$0\.0\d+ of \$0\.08/)
    expect(rig.manager.spentBy(rig.parent).session.cost).toBeGreaterThanOrEqual(0.08)
  })

  test("a session's budget lets two tasks begin on its last cent and no more after that", async () => {
    const rig = rigged({ maxCostPerSession: 0.05 })
    await rig.ended((await rig.launch(spend)).id)
    const both = await Promise.all([rig.launch(spend), rig.launch(spend)])
    for (const { id } of both) expect((await rig.ended(id)).outcome?.reason?.code).toBe("budget")
    expect(cost(rig)).toBeLessThanOrEqual(0.07 + 1e-9)
    await expect(rig.launch(spend)).rejects.toThrow("option maxCostPerSession")
  })

  test("a queued task ends before it begins when the session's budget is used up", async () => {
    const rig = rigged({ maxCostPerSession: 0.04, maxConcurrentTasks: 1 })
    await rig.launch(spend)
    const waiting = await rig.launch(spend)
    const task = await rig.ended(waiting.id)
    expect(task.outcome?.reason).toMatchObject({
      code: "budget",
      text: expect.stringMatching(/^It never began: the session's/),
    })
    expect(rig.opencode.stored(waiting.sessionID).messages).toEqual([])
  })
})

describe("a session's budget after a pause", () => {
  const SHUT_MS = 5 * MINUTE_MS

  /** A run whose model is at its limit after so many steps, and another run that takes so many steps meanwhile. */
  const scene = async (max: number, before: number, others: number) => {
    const rig = new Rig({ options: { maxCostPerSession: max, maxLaunchesPerMinute: 0 } })
    let requests = 0
    let opensAt = Number.POSITIVE_INFINITY
    rig.script(({ sessionID, prompt, toolResults }) => {
      if (sessionID === rig.parent) return undefined
      if (prompt === "OTHER") return toolResults.length < others - 1 ? STEP : { text: "other", ...CENT }
      requests++
      if (toolResults.length < before) return STEP
      opensAt = Math.min(opensAt, rig.clock.now() + SHUT_MS)
      const left = opensAt - rig.clock.now()
      return left > 0 ? limited(` Try again in ${left / 1000}s`) : { text: "what I found", ...CENT }
    })
    const { id } = await rig.launch(spend)
    await rig.clock.until(() => isParkedNow(rig, id))
    if (others > 0) await rig.launch({ prompt: "OTHER", model: "scripted/beta" })
    return { outcome: (await rig.ended(id)).outcome, requests }
  }

  test("a run that was parked while it was asked for its last word says it", async () => {
    const { outcome } = await scene(0.1, 9, 0)
    expect(outcome).toMatchObject({ saidLastWord: true, reason: { code: "budget" } })
  })

  test("a run is asked for its last word with its first request if others have brought the budget near its end", async () => {
    const { outcome, requests } = await scene(0.1, 3, 6)
    expect(outcome).toMatchObject({ saidLastWord: true, reason: { code: "budget" } })
    expect(requests).toBe(3 + 1 + 1)
  })

  test("a run ends without a further request if others have exceeded the budget", async () => {
    const { outcome, requests } = await scene(0.1, 3, 8)
    expect(outcome?.reason?.text).toMatch(
      /^Stopped at the session's budget: the session's tasks spent \$0\.1100 of \$0\.10/,
    )
    expect(requests).toBe(3 + 1)
  })

  test("a run that has done nothing yet ends before it begins if others have brought the budget near its end", async () => {
    const { outcome, requests } = await scene(0.1, 0, 9)
    expect(outcome?.reason?.text).toMatch(/^It never began: the session's/)
    expect(requests).toBe(1)
  })
})

describe("the default limits", () => {
  const HUNGRY = { tools: [{ name: "read", args: { ms: 200 } }], usage: { input: 300_000 } }
  const hungry = (options: object = {}) => {
    const rig = new Rig({ options: { lastWord: 0, ...options } })
    rig.script(({ prompt, toolResults }) =>
      prompt.startsWith("SPEND") ? (toolResults.length < 40 ? HUNGRY : { text: "done" }) : undefined,
    )
    return rig
  }

  test("a run without any options is stopped at two million tokens", async () => {
    const rig = hungry()
    const { outcome } = await rig.ended((await rig.launch(spend)).id)
    expect(outcome?.reason?.text).toMatch(/the option maxTokensPerTask allows 2000000\.$/)
    expect(outcome?.usage.input).toBeLessThanOrEqual(2_400_000)
  })

  test("a session without any options is stopped at ten dollars", async () => {
    const rig = hungry()
    const tasks = await Promise.all(Array.from({ length: 10 }, () => rig.launch(spend)))
    for (const { id } of tasks) await rig.ended(id)
    expect(cost(rig)).toBeGreaterThanOrEqual(10)
    expect(cost(rig)).toBeLessThanOrEqual(10 + 10 * 0.3)
    await expect(rig.launch(spend)).rejects.toThrow("of $10.00 (option maxCostPerSession)")
  })

  test("the value 0 turns off the default limits for tokens and cost", async () => {
    const rig = hungry({ maxTokensPerTask: 0, maxCostPerSession: 0 })
    const { status, outcome } = await rig.ended((await rig.launch(spend)).id)
    expect([status, outcome?.usage.input]).toEqual(["completed", 40 * 300_000 + 100])
  })
})

describe("a task's budget", () => {
  test("a task's budget is enforced even if OpenCode's usage events are lost", async () => {
    const rig = rigged({ maxCostPerTask: 0.05, pollInterval: 100 }, 100)
    rig.opencode.onEvent = () => "lose"
    const { id } = await rig.launch(spend)
    const task = await rig.ended(id)
    expect(task.outcome?.reason?.code).toBe("budget")
    expect(task.outcome?.usage.cost).toBeLessThanOrEqual(0.07 + 1e-9)
  })

  test("a task's budget includes all its runs, and a resume beyond it is refused", async () => {
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
      "it spent $0.0400 of $0.04 (option maxCostPerTask). Launch a new task, or tell the user.",
    )
  })

  test("a task's budget includes the cost of the tasks that it launched", async () => {
    const rig = rigged({ maxCostPerTask: 0.05, maxDepth: 2 }, 3)
    rig.onPrompt("WAIT", { tools: [{ name: "build", args: { ms: 60_000 } }], ...CENT })
    const top = await rig.launch({ prompt: "WAIT" })
    for (const _ of [1, 2]) await rig.launch(spend, top.sessionID)
    const task = await rig.ended(top.id)
    expect(task.outcome?.reason?.code).toBe("budget")
  })

  test("the budget argument of a call includes the task's own tasks, even cleared ones", async () => {
    const rig = rigged({ maxDepth: 2 }, 2)
    rig.onPrompt("WAIT", { tools: [{ name: "build", args: { ms: 60_000 } }], ...CENT })
    const top = await rig.launch({ prompt: "WAIT", maxCost: 0.03 })
    for (const _ of [1, 2]) {
      await rig.ended((await rig.launch(spend, top.sessionID)).id, top.sessionID)
      await rig.manager.clear(top.sessionID)
    }
    expect((await rig.ended(top.id)).outcome?.reason?.text).toMatch(
      /\$0\.0400 of \$0\.03 \(argument max_cost, or option agents\)/,
    )
  })

  test("the budget argument of a call is enforced as soon as the task's own task exceeds it", async () => {
    const rig = rigged({ maxDepth: 2, pollInterval: 60_000 }, 1)
    rig.onPrompt("WAIT", { tools: [{ name: "build", args: { ms: 600_000 } }] })
    const top = await rig.launch({ prompt: "WAIT", maxCost: 0.005 })
    const own = await rig.launch(spend, top.sessionID)
    await rig.clock.until(() => rig.view(own.id, top.sessionID).thisRun.usage.cost > 0)
    await rig.settle()
    expect(rig.task(top.id).outcome?.reason).toMatchObject({ code: "budget" })
  })

  test("the budget argument of a resume covers only that run", async () => {
    const rig = rigged({}, 3)
    const { id } = await rig.launch(spend)
    await rig.ended(id)
    await rig.manager.resume(id, { prompt: "SPEND", maxCost: 0.015 }, rig.caller)
    const task = await rig.ended(id)
    expect(task.outcome?.reason?.text).toBe(
      "Stopped at its budget: it spent $0.0200 of $0.015 (argument max_cost, or option agents).",
    )
  })
})

describe("the budget of a day", () => {
  test("the day's budget covers all sessions, restarts and processes of a project", async () => {
    const rig = rigged({ maxCostPerDay: 0.1 })
    const { id } = await rig.launch(spend)
    await rig.ended(id)
    const other = new Rig({
      options: { maxCostPerDay: 0.1, lastWord: 0 },
      share: { clock: rig.clock, database: rig.opencode.database },
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

  test("other processes' records are read only for a day's budget, and a failed read is ignored", async () => {
    const reads = async (options: object) => {
      const rig = rigged(options)
      rig.opencode.onCall = (method) => (method === "recordsSince" ? { fail: new Error("no") as never } : undefined)
      const before = rig.opencode.calls.filter((name) => name === "recordsSince").length
      await rig.launch(spend)
      return rig.opencode.calls.filter((name) => name === "recordsSince").length - before
    }
    expect(await reads({ maxCostPerSession: 1 })).toBe(0)
    expect(await reads({ maxCostPerDay: 1 })).toBe(1)
  })

  test("a list shows what other processes have spent of the day's budget since the last look", async () => {
    const rig = rigged({ maxCostPerDay: 1 })
    await rig.ended((await rig.launch(spend)).id)
    const other = new Rig({ share: { clock: rig.clock, database: rig.opencode.database } })
    other.script(({ prompt }) => (prompt === "SPEND" ? { text: "done", ...CENT } : undefined))
    // Ids are told apart by their number in a rig.
    await other.ended((await other.launch()).id)
    await other.ended((await other.launch(spend)).id)
    await rig.clock.advance(60_000)
    expect((await rig.manager.bill(rig.parent)).day.cost).toBeCloseTo(0.051, 6)
  })

  test("the day's budget also holds for simultaneous launches, which wait for other processes' costs", async () => {
    const other = rigged({})
    await other.ended((await other.launch(spend)).id)
    const rig = new Rig({
      options: { maxCostPerDay: 0.03 },
      share: { clock: other.clock, database: other.opencode.database },
    })
    rig.opencode.onCall = (method) => (method === "recordsSince" ? { slow: 50 } : undefined)
    const launches = Promise.allSettled([rig.launch(spend), rig.launch(spend)])
    await rig.clock.advance(1000)
    expect((await launches).map(({ status }) => status)).toEqual(["rejected", "rejected"])
  })

  test("the day's budget includes the tasks in all folders of the project", async () => {
    const rig = rigged({ maxCostPerDay: 1 })
    const asked = vi.spyOn(rig.opencode, "recordsSince")
    await rig.launch(spend)
    expect(asked.mock.lastCall).toEqual([expect.any(Number), "project"])
  })
})

test("budgets and an unneeded last word cause no additional calls of OpenCode", async () => {
  const calls = async (options: object) => {
    const rig = new Rig({ options })
    await rig.ended((await rig.launch()).id)
    await rig.clock.advance(60_000)
    return rig.opencode.calls
  }
  const plain = await calls({ lastWord: 0 })
  expect(await calls({})).toEqual(plain)
  expect(await calls({ maxCostPerTask: 1, maxCostPerSession: 1, maxTokensPerSession: 100_000 })).toEqual(plain)
})

describe("past spending", () => {
  test("a clear and a restart do not reset what a session and a day have spent", async () => {
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

  test("the loss of the signing key does not reset what the day has spent", async () => {
    const rig = rigged({ maxCostPerDay: 0.04 })
    const { id, sessionID } = await rig.launch(spend)
    await rig.ended(id)
    const { metadata } = rig.opencode.stored(sessionID)
    const record = metadata[RECORD_KEY] as object
    rig.opencode.writeMetadata(sessionID, { ...metadata, [RECORD_KEY]: { ...record, signature: "of another key" } })
    rig.restart()
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    expect(rig.manager.list(rig.parent)).toEqual([])
    await expect(rig.launch(spend)).rejects.toThrow("$0.0400 of $0.04 (option maxCostPerDay)")
    await rig.clock.advance(DAY_MS + 60_000)
    expect(await rig.launch(spend)).toBeDefined()
  })

  test("the cost of a known task with a changed record is counted only once", async () => {
    const rig = rigged({ maxCostPerDay: 0.07 })
    const { id, sessionID } = await rig.launch(spend)
    await rig.ended(id)
    const { metadata } = rig.opencode.stored(sessionID)
    rig.opencode.writeMetadata(sessionID, { [RECORD_KEY]: { ...(metadata[RECORD_KEY] as object), signature: "none" } })
    expect(await rig.launch(spend)).toBeDefined()
  })

  test("a cleared task leaves no record when no budget is set", async () => {
    const rig = rigged({ maxCostPerSession: 0 })
    const { id, sessionID } = await rig.launch(spend)
    await rig.ended(id)
    await rig.manager.clear(rig.parent)
    expect(rig.opencode.stored(sessionID).metadata).toEqual({})
  })

  test("a launch is refused if the budget is used up while the user decides about it", async () => {
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

  test("a running task is stopped when another process uses up the day's budget", async () => {
    const limits = { maxCostPerDay: 0.1, lastWord: 0 }
    const rig = rigged(limits, 1000)
    rig.onPrompt("SLOW", { tools: [{ name: "build", args: { ms: 120_000 } }] })
    const { id } = await rig.launch({ prompt: "SLOW" })
    const options = { lastWord: 0, maxTokensPerTask: 0 }
    const other = new Rig({ options, share: { clock: rig.clock, database: rig.opencode.database } })
    other.script(({ prompt }) => (prompt === "SPEND" ? STEP : undefined))
    // Ids are told apart by their number in a rig.
    await other.ended((await other.launch()).id)
    const theirs = await other.launch(spend)
    const task = await rig.ended(id)
    expect(task.outcome?.reason?.text).toMatch(/^Stopped at the day's budget: .* of \$0\.10/)
    expect(rig.clock.now() - (task.run.startedAt ?? 0)).toBeLessThan(60_000)
    expect(other.task(theirs.id, other.parent).status).toBe("running")
  })

  test("a running task is stopped when another process's known worktree task uses up the day's budget", async () => {
    const rig = rigged({ maxCostPerDay: 0.1, lastWord: 0 }, 1000)
    rig.onPrompt("SLOW", { tools: [{ name: "build", args: { ms: 120_000 } }] })
    const worktrees = { capture: async () => {}, enter: async () => ({ directory: "/place", preface: "" }) }
    const share = { clock: rig.clock, database: rig.opencode.database }
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
