import { describe, expect, test } from "vitest"
import { allPausedSince, pauseAmong } from "../../src/core/dependencies.ts"
import {
  mayResumeBefore,
  type PauseView,
  pauseOf,
  pauseText,
  pauseTextAtEnd,
  pauseTextForModel,
  whenOf,
} from "../../src/core/pause.ts"
import type { Parked } from "../../src/core/record.ts"
import { elapsed, isPaused, type Task } from "../../src/core/task.ts"
import { transition } from "../../src/core/transition.ts"
import { rowOf } from "../../src/features/terminal/view-model.ts"
import { summaryOf } from "../../src/present/summary.ts"
import { outcomeOf, taskOf } from "../support/tasks.ts"

const NOW = new Date(2026, 10, 23, 7, 0).getTime()
const at = (hours: number, minutes: number) => new Date(2026, 10, 23, hours, minutes).getTime()
const parkedOf = (parked: Partial<Parked>): Task =>
  taskOf({ run: { startedAt: 1, parked: { at: 1, model: "mock/one", why: "its limit", ...parked } } })

describe("a parked task's text", () => {
  test.each<[string, Pick<PauseView, "until" | "next">]>([
    ["parked until 07:12", { until: at(7, 12) }],
    ["parked, next try 07:12", { next: at(7, 12) }],
    ["parked", { until: at(7, 0) }],
    ["parked", {}],
  ])("the text of a parked task reads: %s", (text, when) => {
    expect(pauseText(when, NOW)).toBe(text)
    expect(whenOf(when, NOW)?.in).toBe(text === "parked" ? undefined : 720_000)
  })

  test("a parked task's text names the day of its reset if that is not the reader's today", () => {
    const until = at(7, 12)
    const standing = { until }
    expect(pauseText(standing, until - 86_400_000)).toBe("parked until Mon 07:12")
    expect(pauseText(standing, NOW)).toBe("parked until 07:12")
  })

  test("a parked task's text uses the newest known reset time of its model", () => {
    const own = parkedOf({ at: 5, next: at(6, 0) })
    const others = [
      taskOf(),
      parkedOf({ at: 9, model: "mock/two", until: at(9, 0) }),
      parkedOf({ at: 7, next: at(7, 30) }),
      parkedOf({ at: 6, until: at(7, 20) }),
      { ...parkedOf({ at: 8, until: at(8, 0) }), status: "error" as const },
    ]
    expect(pauseAmong(own, others)).toMatchObject({ waitsFor: "mock/one", next: at(7, 30) })
    expect(pauseAmong(taskOf(), others)).toBeUndefined()
    expect(pauseAmong({ ...own, status: "cancelled" }, others)).toBeUndefined()
    const seen = [own, ...others].map((task) => ({ task }))
    expect(rowOf({ task: own }, seen, NOW).detail).toContain("parked, next try 07:30")
  })
})

test("a pause for readers leaves out the findings that are stored with it", () => {
  const { run } = parkedOf({ found: { unanswered: ["bash"] } })
  expect(pauseOf(run)).toEqual({ at: 1, waitsFor: "mock/one", why: "its limit" })
})

test("the summary of a task that was parked says how often, how long and for which model", () => {
  const run = { parkedTimes: 2, parkedMs: 18_060_000 }
  const lines = (task: Partial<Task>) =>
    summaryOf(taskOf({ status: "completed", outcome: outcomeOf(), ...task, run: { ...run, ...task.run } }))
  const model = { provider: "mock", id: "one" }
  expect(lines({ model })).toEqual(["Parked 2 times, 5h 1m in all (mock/one)."])
  expect(lines({})).toEqual(["Parked 2 times, 5h 1m in all."])
  const switches = [{ model: "mock/two", step: 4, why: "limit until 07:12" }]
  expect(lines({ model, run: { ...taskOf().run, switches, model: { provider: "mock", id: "two" } } })).toEqual([
    "Model: mock/one, then mock/two from step 4 (limit until 07:12).",
    "Parked 2 times, 5h 1m in all.",
  ])
})

test("a paused task has a text for the model that launched it, and one for its end", () => {
  const task = parkedOf({ until: at(7, 12) })
  const pause = pauseOf(task.run)
  if (!pause) throw new Error("it stands still")
  expect([isPaused(task), isPaused(taskOf()), isPaused({ ...task, status: "error" })]).toEqual([true, false, false])
  expect(pauseTextForModel(pause, "bg_1")).toBe(
    'mock/one says "its limit". It goes on by itself; superagents_task(unpark="bg_1") tries now.',
  )
  expect(pauseTextAtEnd(pause, NOW)).toBe("mock/one is at its limit until 07:12.")
  expect(pauseTextAtEnd({ ...pause, until: undefined }, NOW)).toBe("mock/one is at its limit.")
  expect([mayResumeBefore(pause, at(7, 13)), mayResumeBefore(pause, at(7, 12))]).toEqual([true, false])
  expect(mayResumeBefore({ ...pause, until: undefined }, NOW)).toBe(true)
})

describe("the pause of all children", () => {
  const own = (run: Parameters<typeof taskOf>[0]) => taskOf(run)
  const parked = (at: number) => taskOf({ run: { startedAt: 1, stoppedSince: at } })
  test.each<[string, readonly Task[], number | undefined]>([
    ["nobody is at work", [taskOf({ status: "completed" }), taskOf({ run: { startedAt: undefined } })], undefined],
    ["one works", [parked(5), own({ run: { startedAt: 1 } })], undefined],
    ["the last was parked", [parked(5), parked(8), taskOf({ status: "error" })], 8],
    ["one's own are", [parked(5), own({ run: { startedAt: 1, stoppedSince: 9 } })], 9],
  ])("the time since when all children of a task are parked is right if %s", (_name, tasks, since) =>
    expect(allPausedSince(tasks)).toBe(since),
  )
})

describe("a clock stopped by parked tasks", () => {
  const running = taskOf({ run: { startedAt: 1000 } })
  const still = transition(running, { type: "clock stopped", generation: 0, at: 3000 })

  test("the clock of a task stops while its children are parked, and ends with its run", () => {
    expect(elapsed(still, 90_000)).toBe(2000)
    expect(transition(still, { type: "clock stopped", generation: 0, at: 4000 })).toBe(still)
    const counts = transition(still, { type: "clock running", generation: 0, at: 8000 })
    expect(counts.run).toMatchObject({ uncountedMs: 5000 })
    expect(elapsed(counts, 10_000)).toBe(4000)
    const again = transition(counts, { type: "clock stopped", generation: 0, at: 10_000 })
    const ended = transition(again, {
      type: "completed",
      generation: 0,
      at: 20_000,
      outcome: outcomeOf(),
      delivery: { state: "none" },
    })
    expect(ended.run).toMatchObject({ uncountedMs: 15_000, endedAt: 20_000 })
    expect(ended.run).not.toHaveProperty("stoppedSince")
    expect(elapsed(ended, 99_000)).toBe(4000)
  })

  test.each([
    ["of another run", transition(running, { type: "clock stopped", generation: 1, at: 3000 })],
    ["that counts", transition(running, { type: "clock running", generation: 0, at: 3000 })],
  ])("the clock of a waiting task does not change by an event %s", (_name, task) => expect(task).toBe(running))

  test("a sleep of the run's process is left out of its time, once, while it runs", () => {
    const sleep = { type: "slept", generation: 0, ms: 700 } as const
    const slept = transition(transition(running, sleep), sleep)
    expect([slept.run.uncountedMs, elapsed(slept, 9000)]).toEqual([1400, 6600])
    expect(elapsed(transition(slept, { ...sleep, ms: -5000 }), 4000)).toBe(6600)
    const refused = { type: "parked", generation: 0, at: 5000, model: "mock/one", why: "its limit" } as const
    for (const task of [
      still,
      transition(running, refused),
      taskOf({ run: { startedAt: undefined } }),
      taskOf({ status: "completed" }),
      taskOf({ run: { startedAt: 1000, generation: 1 } }),
    ])
      expect(transition(task, sleep)).toBe(task)
  })

  test("the clock of a task that has not begun or has ended is not paused", () => {
    const queued = taskOf({ run: { startedAt: undefined } })
    expect(transition(queued, { type: "clock stopped", generation: 0, at: 3000 })).toBe(queued)
    const ended = taskOf({ status: "completed" })
    expect(transition(ended, { type: "clock stopped", generation: 0, at: 3000 })).toBe(ended)
  })
})
