import { describe, expect, test } from "vitest"
import { allowanceOf, NOTHING_SPENT, needsBill, type SpendingLimits, spendingRefusal } from "../../src/core/spending.ts"
import { NO_USAGE } from "../../src/core/task.ts"
import { taskOf } from "../support/tasks.ts"

const OFF: SpendingLimits = {
  maxTokensPerTask: 0,
  maxTokensPerSession: 0,
  maxCostPerTask: 0,
  maxCostPerSession: 0,
  maxCostPerDay: 0,
}
const cost = (amount: number, atLeast = false) => ({
  ...NO_USAGE,
  cost: amount,
  ...(atLeast && ({ atLeast } as const)),
})

describe("a used-up limit", () => {
  const refused = (limits: Partial<SpendingLimits>, spent: Partial<typeof NOTHING_SPENT>) =>
    spendingRefusal({ ...OFF, ...limits }, { ...NOTHING_SPENT, ...spent })

  test("a resume is refused when the task's own budget is used up", () => {
    expect(refused({ maxCostPerTask: 0.5 }, { task: cost(0.5) })).toBe(
      "it spent $0.5000 of $0.50 (option maxCostPerTask)",
    )
  })

  test("a launch is refused when the session's budget is used up", () => {
    expect(refused({ maxCostPerSession: 0.1 }, { session: cost(0.1012) })).toBe(
      "the session's tasks spent $0.1012 of $0.10 (option maxCostPerSession)",
    )
  })

  test("a launch is refused when the day's budget is used up", () => {
    expect(refused({ maxCostPerDay: 2 }, { day: cost(2.5) })).toBe(
      "the project's tasks of the last 24 hours spent $2.50 of $2.00 (option maxCostPerDay)",
    )
  })

  test("a launch is refused when the spending equals the limit exactly, despite rounding errors of sums", () => {
    expect(refused({ maxCostPerSession: 0.3 }, { session: cost(0.1 + 0.1 + 0.1) })).toBeDefined()
    expect(refused({ maxCostPerSession: 0.3 }, { session: cost(0.2699) })).toBeUndefined()
  })

  test("a launch is refused when only the reserve for a last word is left of a limit", () => {
    expect(refused({ maxCostPerSession: 0.3 }, { session: cost(0.1 + 0.17) })).toBe(
      "the session's tasks spent $0.2700 of $0.30 (option maxCostPerSession), and what is left, $0.0300, is too little to begin with",
    )
    expect(refused({ maxCostPerSession: 0.3 }, { session: cost(0.28, true) })).toContain(
      "spent at least $0.2800 of $0.30 (option maxCostPerSession), and what is left, at most $0.0200,",
    )
    expect(refused({ maxTokensPerSession: 1000 }, { session: { ...NO_USAGE, input: 950 } })).toBe(
      "the session's tasks used 950 tokens, the option maxTokensPerSession allows 1000, and what is left, 50 tokens, is too little to begin with",
    )
    expect(refused({ maxCostPerDay: 2 }, { day: cost(1.9) })).toContain("what is left, $0.1000,")
  })

  test("a launch is not refused for a limit that is off or that belongs to a single run", () => {
    const spent = { task: cost(9), session: cost(9), day: cost(9) }
    expect(refused({ maxTokensPerTask: 1 }, spent)).toBeUndefined()
  })
})

describe("a run's allowance", () => {
  const all = { maxCostPerTask: 1, maxCostPerSession: 10, maxTokensPerSession: 5000, maxCostPerDay: 20 }
  const task = taskOf({ run: { budget: { max: 0.5, before: 0.2 } } })
  const told = (limits: Partial<SpendingLimits>, spent: Partial<typeof NOTHING_SPENT> = {}, run = task) =>
    allowanceOf({ ...OFF, ...limits }, { ...NOTHING_SPENT, ...spent }, run)

  test("an allowance that rounds to the whole limit is shown as the whole limit", () => {
    expect(told({ maxCostPerSession: 10 }, { session: cost(0.0001) }, taskOf())).toEqual([
      "$10.00 for this session's tasks",
    ])
  })

  test("a run is told each limit that is on and how much others have left of it", () => {
    expect(told({ maxTokensPerTask: 2_000_000 }, {}, taskOf())).toEqual(["2,000,000 tokens for this run"])
    expect(told({})).toEqual(["$0.50 for this run (max_cost)"])
    const group = { kind: "each", prompt: "", total: 6, timeout: 0, file: "/rows" } as const
    expect(told({ maxTokensPerTask: 2_000_000 }, {}, taskOf({ group }))).toEqual(["2,000,000 tokens for each"])
    const session = { ...NO_USAGE, input: 1200, cost: 0.0841 }
    expect(told(all, { task: cost(0.2), session, day: cost(25) })).toEqual([
      "$0.50 for this run (max_cost)",
      "$0.8000 of $1.00 left for this task",
      "$9.92 of $10.00 left for this session's tasks",
      "3,800 of 5,000 tokens left for this session's tasks",
      "$0.0000 of $20.00 left for the project's tasks within 24 hours",
    ])
    expect(told(all, { task: cost(0.2, true), session: { ...session, atLeast: true }, day: cost(25, true) })).toEqual([
      "$0.50 for this run (max_cost)",
      "at most $0.8000 of $1.00 left for this task",
      "at most $9.92 of $10.00 left for this session's tasks",
      "at most 3,800 of 5,000 tokens left for this session's tasks",
      "$0.0000 of $20.00 left for the project's tasks within 24 hours",
    ])
    expect(told({ maxCostPerSession: 10 }, {}, taskOf())).toEqual(["$10.00 for this session's tasks"])
  })
})

test("a bill is needed only for limits that tasks share and for a run's own budget", () => {
  expect(needsBill(OFF)).toBe(false)
  expect(needsBill({ ...OFF, maxTokensPerTask: 5 }, taskOf())).toBe(false)
  expect(needsBill({ ...OFF, maxCostPerDay: 0.01 })).toBe(true)
  expect(needsBill(OFF, taskOf({ run: { budget: { max: 1, before: 0 } } }))).toBe(true)
})
