import { describe, expect, test } from "vitest"
import { NOTHING_SPENT, needsBill, refusalOf, type SpendingLimits } from "../../src/core/spending.ts"
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

describe("nothing may begin where a limit is used up:", () => {
  const refused = (limits: Partial<SpendingLimits>, spent: Partial<typeof NOTHING_SPENT>) =>
    refusalOf({ ...OFF, ...limits }, { ...NOTHING_SPENT, ...spent })

  test("the task's own, where it is resumed", () => {
    expect(refused({ maxCostPerTask: 0.5 }, { task: cost(0.5) })).toBe(
      "it spent $0.5000 of $0.50 (option maxCostPerTask)",
    )
  })

  test("the session's", () => {
    expect(refused({ maxCostPerSession: 0.1 }, { session: cost(0.1012) })).toBe(
      "the session's tasks spent $0.1012 of $0.10 (option maxCostPerSession)",
    )
  })

  test("the session's tokens", () => {
    const session = { ...NO_USAGE, input: 1200, atLeast: true } as const
    expect(refused({ maxTokensPerSession: 1000 }, { session })).toBe(
      "the session's tasks used at least 1200 tokens, the option maxTokensPerSession allows 1000",
    )
  })

  test("the day's", () => {
    expect(refused({ maxCostPerDay: 2 }, { day: cost(2.5) })).toBe(
      "the project's tasks of the last 24 hours spent $2.5000 of $2.00 (option maxCostPerDay)",
    )
  })

  test("exactly at it, whatever sums of amounts are worth", () => {
    expect(refused({ maxCostPerSession: 0.3 }, { session: cost(0.1 + 0.1 + 0.1) })).toBeDefined()
    expect(refused({ maxCostPerSession: 0.3 }, { session: cost(0.2999) })).toBeUndefined()
  })

  test("but not for a limit that is off, or a run's own", () => {
    const spent = { task: cost(9), session: cost(9), day: cost(9) }
    expect(refused({ maxTokensPerTask: 1 }, spent)).toBeUndefined()
  })
})

test("a bill is needed for what several tasks share, and for a run's own budget", () => {
  expect(needsBill(OFF)).toBe(false)
  expect(needsBill({ ...OFF, maxTokensPerTask: 5 }, taskOf())).toBe(false)
  expect(needsBill({ ...OFF, maxCostPerDay: 0.01 })).toBe(true)
  expect(needsBill(OFF, taskOf({ run: { budget: { max: 1, before: 0 } } }))).toBe(true)
})
