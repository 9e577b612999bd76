import { describe, expect, test } from "vitest"
import { NOTHING_SPENT, type PurseLimit } from "../../src/core/spending.ts"
import { type LastWord, NO_USAGE, type Progress, type Task, type Usage } from "../../src/core/task.ts"
import {
  askTimeoutAt,
  limitActionOf,
  MOST_EMPTY_ANSWERS,
  nextLimitAt,
  type RunLimits,
  tooLateFor,
  type Watched,
} from "../../src/core/watchdog.ts"
import { askOf, progressOf, purseOf, taskOf } from "../support/tasks.ts"

const OFF: RunLimits = {
  taskTimeout: 0,
  agents: {},
  stallTimeout: 0,
  permissionTimeout: 0,
  maxRepeats: 0,
  maxTokensPerTask: 0,
  maxTokensPerSession: 0,
  maxCostPerTask: 0,
  maxCostPerSession: 0,
  maxCostPerDay: 0,
  lastWord: 0,
}
const usage = { ...NO_USAGE, input: 900, output: 90, reasoning: 11, cacheRead: 50_000 }
const cost = (amount: number, atLeast = false) => ({
  ...NO_USAGE,
  cost: amount,
  ...(atLeast && ({ atLeast } as const)),
})

type Given = Partial<Omit<Watched, "limits" | "progress" | "spent">> & {
  limits?: Partial<RunLimits>
  progress?: Partial<Progress>
  spent?: Partial<Watched["spent"]>
}

const watched = ({ limits, progress, spent, ...more }: Given = {}): Watched => ({
  task: taskOf(),
  ownTasks: false,
  presence: { isOpen: false, wroteAt: Number.NEGATIVE_INFINITY },
  now: 1000,
  ...more,
  limits: { ...OFF, ...limits },
  progress: progressOf(progress),
  spent: { ...NOTHING_SPENT, ...spent },
})
const demand = (given: Given = {}) => limitActionOf(watched(given))
const timed = (timeout: number): Task => taskOf({ run: { startedAt: 1000, timeout } })

describe("an unanswered question", () => {
  const until = (permissionTimeout: number | null, isOpen: boolean, wroteAt = Number.NEGATIVE_INFINITY) =>
    askTimeoutAt(askOf({ askedAt: 10_000_000 }), permissionTimeout, { isOpen, wroteAt }) - 10_000_000

  test("by default an open question is refused after five minutes, or after an hour with a user present", () => {
    expect(until(null, false)).toBe(300_000)
    expect(until(null, true)).toBe(3_600_000)
    expect(until(null, false, 10_000_000 - 3_600_000)).toBe(300_000)
    expect(until(null, false, 10_000_000 - 600_000)).toBe(3_000_000)
    expect(until(null, false, 10_000_000 + 600_000)).toBe(4_200_000)
  })

  test("an open question is refused after the configured time, whoever is present, or never", () => {
    expect([until(1000, true, 10_000_000), until(0, false)]).toEqual([1000, Number.POSITIVE_INFINITY])
  })
})

describe("equal calls", () => {
  const repeats = (times: number, more: Given = {}) =>
    demand({
      limits: { maxRepeats: 12, lastWord: 1000, ...more.limits },
      progress: { repeated: { tool: "read\n", times }, ...more.progress },
    })
  const text = "Stopped at its limit of equal calls: read, 24 times in a row with the same result (option maxRepeats)."

  test("too many equal calls lead to a last word, and later to the end of the run", () => {
    expect(repeats(23)).toBeUndefined()
    expect(repeats(24)).toEqual({ action: "warn", reason: { code: "repeats", text } })
    const lastWord = { state: "requested", at: 900, reason: { code: "repeats", text } } as const
    expect(repeats(35, { progress: { lastWord } })).toBeUndefined()
    expect(repeats(36, { progress: { lastWord } })).toEqual({ action: "stop", reason: { code: "repeats", text } })
  })

  test("equal calls end a run at once without a last word, and never when the limit is off", () => {
    expect(repeats(23, { limits: { lastWord: 0 } })).toBeUndefined()
    expect(repeats(24, { limits: { lastWord: 0 } })).toEqual({ action: "stop", reason: { code: "repeats", text } })
    expect(repeats(1000, { limits: { maxRepeats: 0 } })).toBeUndefined()
    expect(demand({ limits: { maxRepeats: 12 } })).toBeUndefined()
  })
})

test("a run whose model answered only with errors names them in its reason at any limit", () => {
  const since = new Date(2026, 0, 5, 14, 3).getTime()
  const failing = { since, attempt: 12, message: "Service\nUnavailable" }
  const told = "Since 14:03 every request to its model has failed (attempt 12: Service Unavailable)."
  const task = taskOf({ run: { startedAt: since - 1000, timeout: 40_000 } })
  const late = { task, now: since + 40_000 }
  expect(demand({ ...late, progress: { failing } })?.reason.text).toBe(
    `Stopped at its time limit of 40s (its timeout argument). ${told}`,
  )
  expect(demand({ ...late, progress: {} })?.reason.text).not.toContain("Since")
  const lastWord = {
    state: "requested",
    at: 1000,
    reason: { code: "timeout", text: "Stopped at its time limit." },
  } as const
  expect(demand({ ...late, progress: { failing, lastWord } })).toEqual({
    action: "stop",
    reason: { code: "timeout", text: `Stopped at its time limit. ${told}` },
  })
  const near = { ...late, now: since + 38_000, limits: { lastWord: 5000 }, progress: { failing } }
  expect(demand(near)).toMatchObject({ action: "warn", reason: { text: expect.not.stringContaining("Since") } })
})

test("a last word's time stops while its task is paused, but the purse's deadline does not", () => {
  const lastWord = { state: "requested", at: 200, reason: { code: "budget", text: "" } } as LastWord
  const endOf = (purse?: PurseLimit) =>
    nextLimitAt(
      watched({
        task: taskOf({ run: { startedAt: 1000, timeout: 0, stoppedSince: 1500 } }),
        limits: { lastWord: 500, purse },
        progress: { lastWord },
      }),
    )
  expect([endOf(), endOf(purseOf(0, 1700))]).toEqual([Number.POSITIVE_INFINITY, 1700])
})

describe("the end of the purse", () => {
  const purse = purseOf(0, 10_000)
  const reason = { code: "purse", text: "" } as const
  const limits = { lastWord: 3000, purse }
  const stop = { action: "stop", reason: { code: "purse", text: expect.stringMatching(/^Stopped at the end of the/) } }

  // Sleep, and standing still, move what a last word has.
  test.each(["requested", "speaking", "done"] as const)(
    "the end of the purse stops a last word whose time was moved past it (%s)",
    (state) => {
      const progress = { lastWord: { state, at: 8500, reason }, openCalls: 1 }
      expect(demand({ task: timed(0), limits, progress, now: 9999 })).toBeUndefined()
      expect(nextLimitAt(watched({ task: timed(0), limits, progress, now: 9999 }))).toBe(10_000)
      expect(demand({ task: timed(0), limits, progress, now: 10_000 })).toMatchObject(stop)
    },
  )

  test("the end of the purse stops a run even while its host is unreachable", () => {
    const progress = { away: { host: "big", since: 5000, most: 0 } }
    expect(demand({ task: timed(0), limits, progress, now: 9999 })).toBeUndefined()
    expect(demand({ task: timed(0), limits, progress, now: 10_000 })).toMatchObject(stop)
  })
})

test("a launch is refused when the purse has ended or too little time of it is left", () => {
  const purse = purseOf(0, 9000)
  expect(tooLateFor({ lastWord: 1000 }, 8999)).toBeUndefined()
  expect(tooLateFor({ lastWord: 1000, purse }, 7999)).toBeUndefined()
  expect(tooLateFor({ lastWord: 1000, purse }, 8000)).toMatch(
    /^the night's purse pays until \d\d:\d\d \(nightly\), and the time left is too little to begin with$/,
  )
  // A last word takes a third of it at most.
  expect(tooLateFor({ lastWord: 60_000, purse }, 5999)).toBeUndefined()
  expect(tooLateFor({ lastWord: 60_000, purse }, 6000)).toContain("pays until")
  expect(tooLateFor({ lastWord: 0, purse }, 8999)).toBeUndefined()
  expect(tooLateFor({ lastWord: 0, purse }, 9000)).toMatch(/^the night's purse paid until \d\d:\d\d \(nightly\)$/)
})

describe("a run over its limit", () => {
  test("a run is stopped at its time limit, counted from admission, and the reason names the limit", () => {
    const limits = { taskTimeout: 2000 }
    expect(demand({ task: timed(2000), limits, now: 2999 })).toBeUndefined()
    expect(demand({ task: timed(2000), limits, now: 3000 })).toEqual({
      action: "stop",
      reason: { code: "timeout", text: "Stopped at its time limit of 2s (the option taskTimeout)." },
    })
    expect(demand({ task: timed(2000), now: 3000 })?.reason.text).toBe(
      "Stopped at its time limit of 2s (its timeout argument).",
    )
    const agents = { general: { timeout: 2000 } }
    expect(demand({ task: timed(2000), limits: { agents }, now: 3000 })?.reason.text).toBe(
      "Stopped at its time limit of 2s (the option agents).",
    )
  })

  test.each([
    [
      "its task's budget",
      { maxCostPerTask: 0.05 },
      { task: cost(0.0512) },
      "Stopped at its budget: it spent $0.0512 of $0.05 (option maxCostPerTask).",
    ],
    [
      "the session's",
      { maxCostPerSession: 0.1 },
      { session: cost(0.1012, true) },
      "Stopped at the session's budget: the session's tasks spent at least $0.1012 of $0.10 (option maxCostPerSession).",
    ],
    [
      "the session's tokens",
      { maxTokensPerSession: 1000 },
      { session: usage },
      "Stopped at the session's token limit: the session's tasks used 1001 tokens, the option maxTokensPerSession allows 1000.",
    ],
    [
      "the day's",
      { maxCostPerDay: 2 },
      { day: cost(2.01) },
      "Stopped at the day's budget: the project's tasks of the last 24 hours spent $2.01 of $2.00 (option maxCostPerDay).",
    ],
  ])("a run is stopped above this limit: %s", (_what, limits, spent, text) => {
    expect(demand({ limits, spent })).toEqual({ action: "stop", reason: { code: "budget", text } })
  })

  test("a run is stopped above its own max_cost, with its own tasks included and earlier runs left out", () => {
    const task = taskOf({ run: { budget: { max: 0.05, before: 0.2 } } })
    expect(demand({ task, spent: { task: cost(0.25) } })).toBeUndefined()
    expect(demand({ task, spent: { task: cost(0.26) } })?.reason.text).toBe(
      "Stopped at its budget: it spent $0.0600 of $0.05 (argument max_cost, or option agents).",
    )
  })

  test("a run is stopped after three empty answers in a row", () => {
    expect(demand({ progress: { emptyAnswers: MOST_EMPTY_ANSWERS - 1 } })).toBeUndefined()
    expect(demand({ progress: { emptyAnswers: MOST_EMPTY_ANSWERS } })?.reason).toEqual({
      code: "empty",
      text: "Stopped because the model sent 3 empty answers in a row, or answers without a known finish reason.",
    })
  })

  test("a run is stopped when nothing is heard of it for too long", () => {
    const limits = { stallTimeout: 5000, lastWord: 60_000 }
    expect(demand({ limits, progress: { lastSignAt: 1000 }, now: 5999 })).toBeUndefined()
    expect(demand({ limits, progress: { lastSignAt: 1000 }, now: 6500 })).toEqual({
      action: "stop",
      reason: {
        code: "silence",
        text: "Stopped because nothing was heard of it for 5.5s; the option stallTimeout allows 5s.",
      },
    })
  })

  test("a run that is writing a tool call is stopped only after three times that silence", () => {
    const progress = { lastSignAt: 1000, pendingCalls: 1 }
    const limits = { stallTimeout: 5000 }
    expect(demand({ limits, progress, now: 15_999 })).toBeUndefined()
    expect(nextLimitAt(watched({ limits, progress, now: 2000 }))).toBe(16_000)
    expect(demand({ limits, progress, now: 16_000 })?.reason.text).toBe(
      "Stopped because nothing was heard of it for 15s; the option stallTimeout allows 5s, and 3 times that while it writes a tool call.",
    )
    expect(demand({ limits, progress: { ...progress, openCalls: 1 }, now: 16_000 })).toBeUndefined()
  })

  test.each([
    ["a tool runs", { openCalls: 1 }, false],
    ["a question is open", { asks: [askOf()] }, false],
    ["OpenCode tries again", { retry: { attempt: 1, message: "" } }, false],
    ["its own tasks run", {}, true],
  ])("a run is not stopped for silence while %s", (_why, progress, ownTasks) => {
    const given = { limits: { stallTimeout: 5000 }, progress: { lastSignAt: 0, ...progress }, ownTasks, now: 99_000 }
    expect(demand(given)).toBeUndefined()
    expect(nextLimitAt(watched(given))).toBe(Number.POSITIVE_INFINITY)
  })
})

describe("the request for a last word", () => {
  const worked = { toolCalls: 1 }

  test("a last word is requested before the time limit, at most a third of it earlier", () => {
    const limits = { lastWord: 60_000 }
    expect(demand({ task: timed(600_000), limits, now: 540_999 })).toBeUndefined()
    expect(demand({ task: timed(600_000), limits, now: 541_000 })).toMatchObject({
      action: "warn",
      reason: { code: "timeout" },
    })
    expect(demand({ task: timed(3000), limits, now: 2999 })).toBeUndefined()
    expect(demand({ task: timed(3000), limits, now: 3000 })?.action).toBe("warn")
    expect(demand({ task: timed(3000), limits, now: 4000 })?.action).toBe("stop")
  })

  test("a last word is requested at nine tenths of a token or cost limit", () => {
    const limits = { lastWord: 60_000, maxCostPerSession: 0.1 }
    expect(demand({ limits, progress: worked, spent: { session: cost(0.0899) } })).toBeUndefined()
    expect(demand({ limits, progress: worked, spent: { session: cost(0.09) } })).toMatchObject({ action: "warn" })
    expect(demand({ limits, progress: worked, spent: { session: cost(0.1) } })).toMatchObject({ action: "warn" })
    expect(demand({ limits, progress: worked, spent: { session: cost(0.11) } })).toMatchObject({ action: "stop" })
    const tokens = { lastWord: 60_000, maxTokensPerTask: 1000 }
    const used = { ...NO_USAGE, input: 900 }
    expect(demand({ limits: tokens, progress: { ...worked, usage: used } })?.action).toBe("warn")
  })

  test("a last word is requested only from a run that has begun to do something", () => {
    const near = { limits: { lastWord: 60_000, maxCostPerDay: 1 }, spent: { day: cost(0.95) } }
    expect(demand(near)).toBeUndefined()
    for (const progress of [{ toolCalls: 1 }, { lastText: "so far" }, { usage: { ...NO_USAGE, output: 1 } }])
      expect(demand({ ...near, progress })?.action).toBe("warn")
  })

  test("a last word is never requested when the option turns it off", () => {
    const limits = { maxCostPerDay: 1, taskTimeout: 3000 }
    expect(demand({ limits, progress: worked, spent: { day: cost(0.95) } })).toBeUndefined()
    expect(demand({ limits, task: timed(3000), now: 3999 })).toBeUndefined()
  })
})

describe("a requested last word", () => {
  const LIMITS = { lastWord: 60_000, maxCostPerSession: 0.1, taskTimeout: 600_000 }
  const reason = { code: "budget", text: "Stopped at the session's budget." } as const
  const asked = (word: Partial<LastWord>, given: Given = {}) =>
    demand({
      limits: LIMITS,
      task: timed(600_000),
      now: 2000,
      spent: { session: cost(0.095) },
      ...given,
      progress: { lastWord: { state: "requested", reason, at: 1000, ...word }, ...given.progress },
    })
  const SPENT = { session: cost(0.11) }

  test.each([
    ["in a tool", { openCalls: 1 }],
    ["writing a call", { pendingCalls: 1 }],
    ["before a question", { asks: [askOf()] }],
  ])("a run asked for its last word is interrupted %s, once, and then gets new time", (_where, progress) => {
    expect(asked({}, { progress, now: 61_999 })).toBeUndefined()
    expect(asked({}, { progress, now: 62_000 })).toEqual({ action: "interrupt", reason })
    expect(asked({}, { progress, spent: SPENT })).toEqual({ action: "interrupt", reason })
    expect(asked({ state: "speaking" }, { progress, now: 62_000 })?.action).toBe("stop")
    const again = { againAt: 600_000 }
    expect(asked(again, { spent: SPENT, now: 660_999 })).toBeUndefined()
    expect(asked({ ...again, state: "speaking" }, { spent: SPENT, now: 660_999 })).toBeUndefined()
    expect(asked({ ...again, state: "done" }, { spent: SPENT, now: 660_999 })?.action).toBe("stop")
    expect(asked(again, { progress, now: 661_000 })).toEqual({ action: "stop", reason })
  })

  test("the reason after a last word says what was spent at the request and by the end", () => {
    const told = (source: string, session: Usage, then: Usage, limits: Partial<RunLimits>) => {
      const run = { limits: { ...LIMITS, maxCostPerSession: 0, ...limits }, progress: { toolCalls: 1 } }
      const near = demand({ ...run, spent: { session } })
      expect([near?.action, near?.reason.text]).toEqual(["warn", expect.stringContaining(source)])
      return asked({ reason: near?.reason ?? reason }, { limits: run.limits, spent: { session: then }, now: 62_000 })
        ?.reason.text
    }
    const money = { maxCostPerSession: 0.1 }
    expect(told("maxCostPerSession", cost(0.095), cost(0.1137), money)).toBe(
      "Stopped at the session's budget: the session's tasks spent $0.0950 of $0.10 (option maxCostPerSession) when it was asked for its last word, and $0.1137 by its end.",
    )
    expect(told("maxCostPerSession", cost(0.095), cost(0.095), money)).toBe(
      "Stopped at the session's budget: the session's tasks spent $0.0950 of $0.10 (option maxCostPerSession).",
    )
    const used = (input: number) => ({ ...NO_USAGE, input, atLeast: true }) as const
    expect(told("maxTokensPerSession", used(950), used(1200), { maxTokensPerSession: 1000 })).toMatch(
      /^Stopped at .* used at least 950 tokens, .* when it was asked for its last word, and at least 1200 tokens by its end\.$/,
    )
  })
})

describe("the next deadline", () => {
  test("the next deadline is the request for the last word before the end", () => {
    expect(nextLimitAt(watched({ task: timed(3000), limits: { lastWord: 500 } }))).toBe(3500)
  })

  test("a run has no deadline when it is queued or nothing limits it", () => {
    expect(nextLimitAt(watched({ progress: { asks: [askOf()] } }))).toBe(Number.POSITIVE_INFINITY)
    const queued = taskOf({ run: { startedAt: undefined, timeout: 3000 } })
    expect(nextLimitAt(watched({ task: queued }))).toBe(Number.POSITIVE_INFINITY)
  })
})
