import { describe, expect, test } from "vitest"
import { alsoRecent, type BilledTasks, billOf, payer, recentRuns, remainsOf } from "../../src/core/spending.ts"
import { NO_USAGE, type Task } from "../../src/core/task.ts"
import { DAY_MS } from "../../src/lib/format.ts"
import { outcomeOf, taskOf } from "../support/tasks.ts"

const NOW = 10 * DAY_MS
const ended = (hoursAgo: number) => ({ endedAt: NOW - hoursAgo * 3_600_000 })
const task = (id: string, parentID: string, more: Parameters<typeof taskOf>[0] = {}): Task =>
  taskOf({
    id,
    sessionID: `ses_${id}`,
    parentID,
    status: more?.run?.endedAt === undefined ? "running" : "error",
    ...more,
  })
const spent = (cost: number, atLeast = false) => ({
  ...NO_USAGE,
  cost,
  input: 10,
  ...(atLeast && ({ atLeast } as const)),
})
const billed = (tasks: readonly Task[]): BilledTasks => ({
  get: (id) => tasks.find((each) => each.id === id),
  ofParent: (sessionID) => tasks.filter(({ parentID }) => parentID === sessionID),
  all: () => tasks,
})
/** Of tasks and what their last run cost, and the runs before it. */
const bill = (costs: readonly (readonly [Task, number, number?])[]) =>
  billOf(
    billed(costs.map(([each]) => each)),
    ({ id }) => {
      const [, lastRun = 0, before] = costs.find(([each]) => each.id === id) ?? []
      return { lastRun: spent(lastRun), before: before === undefined ? NO_USAGE : spent(before) }
    },
    NOW,
  )

describe("a bill", () => {
  const top = task("top", "root")
  const child = task("child", "ses_top", { run: ended(1) })
  const grandchild = task("grand", "ses_child")
  const other = task("other", "elsewhere")
  const all = bill([
    [top, 1],
    [child, 2],
    [grandchild, 4],
    [other, 8],
  ])

  test("a task's bill includes its own tasks, at every depth", () => {
    expect(all.task("grand").cost).toBe(4)
    expect(all.task("child").cost).toBe(6)
    expect(all.task("top")).toMatchObject({ cost: 7, input: 30 })
    expect(all.task("unknown")).toEqual(NO_USAGE)
  })

  test("a session's bill includes all of its tasks, also ended ones, and no other session's", () => {
    expect(all.session("root").cost).toBe(7)
    expect(all.session("ses_top").cost).toBe(6)
    expect(all.session("nobody")).toEqual(NO_USAGE)
  })

  test("the bills of a session and of a task read no other session's tasks", () => {
    const read: string[] = []
    const tasks = { ...billed([top, child, grandchild, other]), all: () => expect.fail("reads all tasks") }
    const lazy = billOf(
      tasks,
      ({ id }) => {
        read.push(id)
        return { lastRun: spent(1), before: NO_USAGE }
      },
      NOW,
    )
    expect([lazy.session("root").cost, lazy.task("child").cost]).toEqual([3, 2])
    expect(read).toEqual(["top", "child", "grand"])
  })

  test("a task's bill includes all of its runs", () => {
    expect(bill([[top, 1, 0.5]]).task("top")).toMatchObject({ cost: 1.5, input: 20 })
  })

  test("the bill of the day covers the whole project", () => {
    expect(all.day().cost).toBe(15)
  })
})

describe("the bill of a day", () => {
  test("a run counts toward the day until 24 hours after its end", () => {
    expect(bill([[task("a", "p", { run: ended(23) }), 1]]).day().cost).toBe(1)
    expect(bill([[task("a", "p", { run: ended(24) }), 1]]).day().cost).toBe(0)
    expect(bill([[task("a", "p", { status: "error" }), 1]]).day().cost).toBe(0)
    expect(bill([[task("a", "p", { run: { startedAt: 0 } }), 1]]).day().cost).toBe(1)
  })

  test("the bill of the day counts only those runs of a resumed task that ended within it", () => {
    const run = ended(1)
    expect(bill([[task("a", "p", { run }), 2, 3]]).day().cost).toBe(2)
    const recent = [
      { endedAt: NOW - DAY_MS, cost: 1 },
      { endedAt: NOW - 5, cost: 0.5 },
    ]
    expect(bill([[task("a", "p", { run: { ...run, recent } }), 2, 3]]).day().cost).toBe(2.5)
  })

  test("the bill of the day is marked as a minimum when OpenCode does not know all costs", () => {
    const one = (hoursAgo: number) => {
      const tasks = [task("a", "p", { run: ended(hoursAgo) })]
      return billOf(billed(tasks), () => ({ lastRun: spent(1, true), before: NO_USAGE }), NOW).day()
    }
    expect(one(1)).toEqual({ ...NO_USAGE, cost: 1, atLeast: true })
    expect(one(25)).toEqual(NO_USAGE)
  })

  test("the bill of the day stays a minimum when a task is resumed whose step was cut off", () => {
    const cutOff = (cost: number) => task("a", "p", { run: ended(2), outcome: outcomeOf({ usage: spent(cost, true) }) })
    for (const cost of [0, 3]) {
      const recent = recentRuns(cutOff(cost), NOW)
      const earlier = { toolCalls: 0, usage: spent(cost, true) }
      const resumed = task("a", "p", { status: "resumed", earlier, run: { startedAt: NOW, recent } })
      expect(bill([[resumed, 1]]).day()).toEqual({ ...NO_USAGE, cost: cost + 1, atLeast: true })
      const later = { ...resumed, run: { ...resumed.run, recent: recent?.map((each) => ({ ...each, ...ended(25) })) } }
      expect(bill([[later, 1]]).day()).toEqual({ ...NO_USAGE, cost: 1 })
    }
  })
})

test("answers beside a task's runs leave the bill of the day after 24 hours, however steadily they come", () => {
  const minutes = 50
  let recent: ReturnType<typeof recentRuns>
  for (let at = NOW - 3 * DAY_MS; at <= NOW; at += minutes * 60_000)
    recent = alsoRecent(recent, { endedAt: at, cost: 1 })
  const day = bill([[task("a", "p", { run: { ...ended(80), recent } }), 0]]).day().cost
  expect(day).toBeGreaterThanOrEqual((24 * 60) / minutes)
  expect(day).toBeLessThanOrEqual((25 * 60) / minutes + 1)
  expect(recent?.length).toBeLessThanOrEqual(25)
})

describe("the remembered cost of earlier runs", () => {
  const ran = (cost: number, run: Partial<Task["run"]> = {}) =>
    task("a", "p", { run, outcome: outcomeOf({ usage: spent(cost) }) })

  test("a resume remembers what the runs of the last day cost", () => {
    const recent = [{ endedAt: NOW - DAY_MS, cost: 9 }]
    expect(recentRuns(ran(3, { recent, ...ended(2) }), NOW)).toEqual([{ ...ended(2), cost: 3 }])
  })

  test("a resume remembers no runs that cost nothing or ended long ago", () => {
    expect(recentRuns(ran(0, ended(2)), NOW)).toBeUndefined()
    expect(recentRuns(ran(1, ended(30)), NOW)).toBeUndefined()
    expect(recentRuns(ran(1), NOW)).toEqual([{ endedAt: NOW, cost: 1 }])
    expect(recentRuns({ ...ran(1, ended(2)), outcome: undefined }, NOW)).toBeUndefined()
  })
})

describe("the bill of a forgotten task", () => {
  const usage = spent(0.5)
  const secret = {
    description: "secret",
    fingerprint: "f",
    retrievedAt: 5,
    run: { endedAt: 4 },
    status: "error",
  } as const

  test("a forgotten task keeps its cost and nothing of its work", () => {
    const reason = { code: "timeout", text: "secret" } as const
    const outcome = outcomeOf({
      usage,
      reason,
      filesChanged: ["secret"],
      meanwhile: { files: ["secret"], more: 0 },
      recentTools: ["secret"],
      note: "secret",
    })
    const told = { ...outcome, thought: "secret", group: { kind: "tries", cost: 1, rows: [{ why: "secret" }] } }
    const group = { kind: "map", prompt: "secret", timeout: 0 }
    const model = { provider: "mock", id: "secret" }
    const run = {
      ...secret.run,
      ...{ check: "secret", files: ["secret"], guard: ["secret"], schema: { title: "secret" }, after: ["secret"] },
      lastWordFor: reason,
      switches: [{ model: "secret", step: 1, why: "secret" }],
      model,
    }
    const remains = remainsOf(taskOf({ ...secret, batch: "name:secret", group, run, outcome: told }))
    expect(remains).toMatchObject({ forgotten: true, outcome: { usage }, delivery: { state: "none" } })
    expect(JSON.stringify(remains)).not.toContain("secret")
  })

  test("a forgotten task without an outcome keeps the usage of its earlier runs", () => {
    const earlier = { toolCalls: 1, usage: spent(0) }
    expect(remainsOf(taskOf({ ...secret, earlier }))).toMatchObject({ earlier, outcome: undefined, forgotten: true })
  })

  test("nothing remains of a forgotten task that cost nothing", () => {
    expect(remainsOf(taskOf({ ...secret, outcome: outcomeOf() }))).toBeUndefined()
  })
})

test("the session above all tasks pays for them, and circular records cause no endless loop", () => {
  const tasks = [task("a", "root"), task("b", "ses_a"), task("x", "ses_y"), task("y", "ses_x")]
  const taskIn = (sessionID: string) => tasks.find((each) => each.sessionID === sessionID)
  expect(payer("root", taskIn)).toBe("root")
  expect(payer("ses_b", taskIn)).toBe("root")
  expect(["ses_x", "ses_y"]).toContain(payer("ses_x", taskIn))
})

test("a day lasts 24 hours even when the clocks change", () => {
  // In central Europe the clocks go forward in the night of 2026-03-29 and back in that of 2026-10-25.
  for (const noon of ["2026-03-29T12:00:00+02:00", "2026-10-25T12:00:00+01:00"].map((each) => Date.parse(each))) {
    const dayAt = (endedAt: number) =>
      billOf(
        billed([task("a", "p", { run: { endedAt } })]),
        () => ({ lastRun: spent(1), before: NO_USAGE }),
        noon,
      ).day().cost
    expect(dayAt(noon - DAY_MS + 1)).toBe(1)
    expect(dayAt(noon - DAY_MS)).toBe(0)
  }
})
