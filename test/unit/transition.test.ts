import { describe, expect, test } from "vitest"
import { NO_USAGE, type Task } from "../../src/core/task.ts"
import { type TaskEvent, transition } from "../../src/core/transition.ts"
import { DAY_MS } from "../../src/lib/format.ts"
import { deliveryOf, outcomeOf, runOf, taskOf } from "../support/tasks.ts"

const ended = { generation: 0, at: 9000, outcome: outcomeOf({ toolCalls: 3 }), delivery: deliveryOf() }
const END_OF = { completed: "completed", error: "failed", cancelled: "cancelled" } as const
const terminal = (status: keyof typeof END_OF, more: Partial<Task> = {}) =>
  transition(taskOf(more as object), { type: END_OF[status], ...ended })

test("work beside a task's runs is added to its cost and to the day it happened", () => {
  const usage = (cost: number) => ({ ...NO_USAGE, cost })
  const after = (task: Task, at: number, cost: number) =>
    transition(task, { type: "answered beside", generation: 0, at, usage: usage(cost) })
  const first = after(terminal("completed"), 10_000, 1)
  expect(first).toMatchObject({ earlier: { usage: { cost: 1 } }, run: { recent: [{ endedAt: 10_000, cost: 1 }] } })
  expect(after(first, 20_000, 2).run.recent).toEqual([{ endedAt: 20_000, cost: 3 }])
  expect(after(first, 10_000 + DAY_MS / 2, 2).run.recent).toHaveLength(2)
  expect(after(first, 10_000 + DAY_MS, 2).run.recent).toEqual([{ endedAt: 10_000 + DAY_MS, cost: 2 }])
  expect(after(taskOf(), 1, 1)).toMatchObject({ status: "running", earlier: { usage: { cost: 1 } } })
  expect(transition(first, { type: "answered beside", generation: 1, at: 1, usage: usage(1) })).toBe(first)
})

test("a task remembers that its parent's user stopped it, until the user goes on", () => {
  for (const task of [taskOf(), taskOf({ status: "completed" })]) {
    const stopped = transition(task, { type: "parent stopped", at: 5000 })
    expect(stopped.run.parentStopped).toBe(5000)
    expect(transition(stopped, { type: "parent stopped", at: 6000 })).toBe(stopped)
    expect(transition(stopped, { type: "parent continued" })).toEqual(task)
    expect(transition(task, { type: "parent continued" })).toBe(task)
  }
})

describe("the admission of a run", () => {
  const queued = taskOf({ run: { startedAt: undefined } })

  test("an admission starts a queued run", () => {
    const task = transition(queued, { type: "admitted", generation: 0, at: 5000 })
    expect(task.run.startedAt).toBe(5000)
    expect(task.status).toBe("running")
  })

  test.each<[string, Task, number]>([
    ["a run that has its slot already", taskOf(), 0],
    ["another generation", queued, 1],
    ["an ended task", terminal("completed"), 0],
  ])("an admission changes nothing for %s", (_what, task, generation) => {
    expect(transition(task, { type: "admitted", generation, at: 5000 })).toBe(task)
  })
})

describe("the admission of a queued run", () => {
  test("a queued run is admitted only once, in its own generation and before its end", () => {
    const waiting = taskOf({ run: { startedAt: undefined } })
    const begun = transition(waiting, { type: "admitted", generation: 0, at: 5000 })
    expect(begun).toEqual(taskOf({ run: { startedAt: 5000 } }))
    expect(transition(begun, { type: "admitted", generation: 0, at: 6000 })).toBe(begun)
    expect(transition(waiting, { type: "admitted", generation: 1, at: 5000 })).toBe(waiting)
    const over = { ...terminal("completed"), run: waiting.run }
    expect(transition(over, { type: "admitted", generation: 0, at: 5000 })).toBe(over)
  })
})

describe("an end", () => {
  test("an end event ends a resumed run just like a first run", () => {
    const resumed = transition(terminal("completed"), { type: "resumed", run: runOf({ generation: 1 }) })
    expect(transition(resumed, { type: "completed", ...ended, generation: 1 }).status).toBe("completed")
  })

  test("an end event of another generation is dropped", () => {
    const task = taskOf({ run: { generation: 1 } })
    expect(transition(task, { type: "completed", ...ended })).toBe(task)
  })
})

describe("a resume", () => {
  const run = runOf({ generation: 1, promptID: "msg_again" })

  test.each(["completed", "error", "cancelled"] as const)(
    "a resume starts a new run of a task that is %s",
    (status) => {
      const before = transition(terminal(status), { type: "retrieved", at: 9500 })
      const task = transition(before, { type: "resumed", run })
      expect(task).toMatchObject({ status: "resumed", run, delivery: { state: "none" } })
      expect(task).not.toHaveProperty("outcome")
      expect(task).not.toHaveProperty("retrievedAt")
    },
  )

  test.each([0, 2])("a resume to generation %i of a task of generation 0 is dropped", (generation) => {
    const task = terminal("completed")
    expect(transition(task, { type: "resumed", run: runOf({ generation }) })).toBe(task)
  })
})

describe("a first retrieval", () => {
  test("the first retrieval of an ended task is recorded once", () => {
    const task = transition(terminal("error"), { type: "retrieved", at: 9500 })
    expect(task.retrievedAt).toBe(9500)
    expect(transition(task, { type: "retrieved", at: 9900 })).toBe(task)
    const active = taskOf({ status: "running" })
    expect(transition(active, { type: "retrieved", at: 9900 })).toBe(active)
  })
})

describe("the request for a last word", () => {
  const reason = { code: "timeout", text: "Stopped at its time limit." } as const
  const warned = (generation = 0) => ({ type: "warned", generation, at: 50, reason }) as const

  test("a last word is asked for once in a working run", () => {
    const task = transition(taskOf(), warned())
    expect(task.run).toMatchObject({ lastWordAt: 50, lastWordFor: reason })
    expect(transition(task, { ...warned(), at: 60 })).toBe(task)
  })

  test.each([
    ["another run's", taskOf(), 1],
    ["a queued run's", taskOf({ run: { startedAt: undefined } }), 0],
    ["an ended run's", taskOf({ status: "error" }), 0],
  ])("a request for a last word changes nothing when it is %s", (_whose, task, generation) => {
    expect(transition(task, warned(generation))).toBe(task)
  })
})

describe("an outcome found after the end", () => {
  const outcome = outcomeOf({ toolCalls: 9 })

  test("an outcome that is found after the end replaces the earlier outcome", () => {
    const task = transition(terminal("cancelled"), { type: "closed", generation: 0, outcome })
    expect(task).toEqual({ ...terminal("cancelled"), outcome })
  })

  test("a group that turns out to have failed has failed", () => {
    const task = transition(terminal("completed"), { type: "closed", generation: 0, outcome, failed: true })
    expect(task).toEqual({ ...terminal("completed"), status: "error", outcome })
  })
})

describe("a notification's state", () => {
  const notified = (state: "confirmed" | "abandoned", generation = 0): TaskEvent => ({
    type: "notified",
    generation,
    state,
  })

  test("a notification goes from pending to confirmed and keeps its figures", () => {
    const confirmed = transition(terminal("completed"), notified("confirmed"))
    expect(confirmed.delivery).toEqual(deliveryOf({ state: "confirmed" }))
  })

  test.each([
    ["confirmed", "confirmed"],
    ["confirmed", "abandoned"],
    ["abandoned", "confirmed"],
  ] as const)("a notification that is %s does not become %s", (from, to) => {
    const task = transition(terminal("completed"), notified(from))
    expect(transition(task, notified(to))).toBe(task)
  })

  test("a confirmation is dropped for another run or for a task that owes no notification", () => {
    const task = terminal("completed")
    expect(transition(task, notified("confirmed", 1))).toBe(task)
    const silent = transition(taskOf(), { type: "cancelled", ...ended, delivery: { state: "none" } })
    expect(transition(silent, notified("confirmed"))).toBe(silent)
  })
})

test("the winner of running tries is recorded once", () => {
  const team = { kind: "tries", prompt: "DO", count: 2, timeout: 0 } as const
  const running = taskOf({ group: team })
  const event = { type: "won", generation: 0, winner: "bg_b" } as const
  const won = transition(running, event)
  expect(won.group).toEqual({ ...team, winner: "bg_b" })
  expect(transition(won, { ...event, winner: "bg_c" })).toBe(won)
  for (const other of [
    taskOf(),
    taskOf({ group: team, status: "error" }),
    taskOf({ group: team, run: { generation: 1 } }),
  ])
    expect(transition(other, event)).toBe(other)
})

test("a resumed group of won tries continues with its winner, and other groups stay unchanged but for a new timeout", () => {
  const check = { command: "c", passed: true, runs: 1, how: "exit code 0" }
  const plan = { kind: "tries", prompt: "DO", count: 2, timeout: 0 } as const
  const won = transition(taskOf({ group: plan }), { type: "won", generation: 0, winner: "bg_b", passed: check })
  expect(won.group).toEqual({ ...plan, winner: "bg_b", passed: check })
  const resumed = (task: Task, timeout?: number) => {
    const { run } = taskOf({ run: { generation: 1 } })
    return transition({ ...task, status: "completed" }, { type: "resumed", run, timeout })
  }
  expect(resumed(won).group).toEqual({ ...plan, again: "bg_b" })
  expect(resumed(won, 5000).group).toEqual({ ...plan, again: "bg_b", timeout: 5000 })
  expect(resumed(taskOf({ group: plan })).group).toEqual(plan)
  const map = { kind: "each", prompt: "DO", total: 2, timeout: 0, file: "f" } as const
  expect(resumed(taskOf({ group: map })).group).toEqual(map)
  expect(resumed(taskOf({ group: map }), 5000).group).toEqual({ ...map, timeout: 5000 })
})

test("the first model that OpenCode chooses for a task that names none is recorded as the task's", () => {
  const model = { provider: "p", id: "m" }
  const event = { type: "asks", generation: 0, model } as const
  const asked = transition(taskOf(), event)
  expect(asked).toEqual(taskOf({ model }))
  const named = taskOf({ model: { provider: "p", id: "named" } })
  for (const other of [asked, named, taskOf({ run: { generation: 1 } }), terminal("completed")])
    expect(transition(other, event)).toBe(other)
})

test("each fallback model of a run is recorded in order while it runs", () => {
  const to = (id: string, step: number) =>
    ({ type: "switched", generation: 0, model: { provider: "p", id }, step, why: "limit" }) as const
  const task = transition(transition(taskOf(), to("two", 4)), to("three", 9))
  expect(task.run.model).toEqual({ provider: "p", id: "three" })
  expect(task.run.switches).toEqual([
    { model: "p/two", step: 4, why: "limit" },
    { model: "p/three", step: 9, why: "limit" },
  ])
  for (const other of [taskOf({ run: { generation: 1 } }), terminal("completed")])
    expect(transition(other, to("two", 4))).toBe(other)
})
