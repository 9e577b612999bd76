import { describe, expect, test } from "vitest"
import { NO_USAGE } from "../../src/core/task.ts"
import { MOST_EMPTY_ANSWERS, nextDeadline, overrun, type RunLimits } from "../../src/core/watchdog.ts"
import { askOf, progressOf, taskOf } from "../support/tasks.ts"

const OFF: RunLimits = { taskTimeout: 0, stallTimeout: 0, maxTokensPerTask: 0, permissionTimeout: 0 }
const usage = { ...NO_USAGE, input: 900, output: 90, reasoning: 11, cacheRead: 50_000 }

describe("a run is stopped", () => {
  test("at its time limit, counted from admission, and told which limit that was", () => {
    const task = taskOf({ run: { startedAt: 1000, timeout: 2000 } })
    const limits = { ...OFF, taskTimeout: 2000 }
    expect(overrun(task, progressOf(), limits, false, 2999)).toBeUndefined()
    expect(overrun(task, progressOf(), limits, false, 3000)).toEqual({
      code: "timeout",
      text: "Stopped at its time limit of 2s (the option taskTimeout).",
    })
    expect(overrun(task, progressOf(), OFF, false, 3000)?.text).toBe(
      "Stopped at its time limit of 2s (its timeout argument).",
    )
  })

  test("above its token limit, cache reads left out", () => {
    const limits = { ...OFF, maxTokensPerTask: 1000 }
    expect(overrun(taskOf(), progressOf({ usage }), limits, false, 0)).toEqual({
      code: "tokens",
      text: "Stopped at its token limit: it used 1001 tokens, the option maxTokensPerTask allows 1000.",
    })
    const less = { ...usage, input: usage.input - 1 }
    expect(overrun(taskOf(), progressOf({ usage: less }), limits, false, 0)).toBeUndefined()
  })

  test("after empty answers in a row", () => {
    expect(overrun(taskOf(), progressOf({ emptyAnswers: MOST_EMPTY_ANSWERS - 1 }), OFF, false, 0)).toBeUndefined()
    expect(overrun(taskOf(), progressOf({ emptyAnswers: MOST_EMPTY_ANSWERS }), OFF, false, 0)).toEqual({
      code: "empty",
      text: "Stopped because the model sent 3 empty answers in a row. Try another model, or try again later.",
    })
  })

  test("after silence", () => {
    const limits = { ...OFF, stallTimeout: 5000 }
    expect(overrun(taskOf(), progressOf({ lastSignAt: 1000 }), limits, false, 5999)).toBeUndefined()
    expect(overrun(taskOf(), progressOf({ lastSignAt: 1000 }), limits, false, 6500)).toEqual({
      code: "silence",
      text: "Stopped because nothing was heard of it for 5.5s; the option stallTimeout allows 5s.",
    })
  })

  test.each([
    ["a tool runs", { openCalls: 1 }, false],
    ["a question is open", { asks: [askOf()] }, false],
    ["the host tries again", { retry: { attempt: 1, message: "" } }, false],
    ["its own tasks run", {}, true],
  ])("not for silence while %s", (_why, progress, ownTasks) => {
    const limits = { ...OFF, stallTimeout: 5000 }
    expect(overrun(taskOf(), progressOf({ lastSignAt: 0, ...progress }), limits, ownTasks, 99_000)).toBeUndefined()
    expect(nextDeadline(taskOf(), progressOf(progress), limits, ownTasks)).toBe(Number.POSITIVE_INFINITY)
  })

  test("by nothing that is turned off", () => {
    expect(overrun(taskOf(), progressOf({ usage, lastSignAt: 0 }), OFF, false, 1e12)).toBeUndefined()
  })
})

describe("the next deadline", () => {
  test("is the earliest of time limit, silence and open questions", () => {
    const limits = { ...OFF, stallTimeout: 5000, permissionTimeout: 700 }
    const task = taskOf({ run: { startedAt: 1000, timeout: 3000 } })
    expect(nextDeadline(task, progressOf({ lastSignAt: 500 }), limits, false)).toBe(4000)
    expect(nextDeadline(taskOf(), progressOf({ lastSignAt: 500 }), limits, false)).toBe(5500)
    expect(nextDeadline(task, progressOf({ asks: [askOf({ askedAt: 1100 })] }), limits, false)).toBe(1800)
  })

  test("is never where nothing is limited, and for a queued run", () => {
    expect(nextDeadline(taskOf(), progressOf({ asks: [askOf()] }), OFF, false)).toBe(Number.POSITIVE_INFINITY)
    const queued = taskOf({ run: { startedAt: undefined, timeout: 3000 } })
    expect(nextDeadline(queued, progressOf(), OFF, false)).toBe(Number.POSITIVE_INFINITY)
  })
})
