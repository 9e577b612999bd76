import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import {
  addFigures,
  addUsage,
  agentName,
  billedTokens,
  elapsed,
  isActive,
  phaseOf,
  STATUSES,
  type Task,
  waited,
} from "../../src/core/task.ts"
import { askOf, progressOf, taskOf } from "../support/tasks.ts"

const queued = taskOf({ run: { startedAt: undefined } })

test("only running and resumed tasks are active", () => {
  expect(STATUSES.filter((status) => isActive(taskOf({ status })))).toEqual(["running", "resumed"])
})

test("a task's time runs from its admission to its end, or to now", () => {
  expect(elapsed(taskOf({ run: { startedAt: 2000 } }), 5000)).toBe(3000)
  expect(elapsed(taskOf({ run: { startedAt: 2000, endedAt: 2500 } }), 5000)).toBe(500)
  expect(elapsed(queued, 5000)).toBe(0)
  expect(elapsed(taskOf({ run: { startedAt: 2000 } }), 1000)).toBe(0)
})

test("a task's waiting time runs from its launch to its admission, to its end, or to now", () => {
  expect(waited(taskOf({ run: { createdAt: 1000, startedAt: 4000 } }), 9000)).toBe(3000)
  expect(waited(taskOf({ run: { createdAt: 1000, startedAt: undefined, endedAt: 2000 } }), 9000)).toBe(1000)
  expect(waited(queued, 9000)).toBe(8000)
  expect(waited(queued, 0)).toBe(0)
})

describe("a task's phase", () => {
  const retry = { attempt: 1, message: "busy" }
  const asks = [askOf({ kind: "question" })]

  test.each([
    ["working", taskOf(), progressOf(), false],
    ["queued", queued, progressOf({ asks }), true],
    ["waiting for its own tasks", taskOf(), progressOf(), true],
    ["retrying", taskOf(), progressOf({ retry }), true],
    ["waiting for an answer", taskOf(), progressOf({ asks, retry }), true],
    ["waiting for permission", taskOf(), progressOf({ asks: [askOf()], retry }), true],
    [undefined, taskOf({ status: "completed" }), progressOf(), false],
  ])("the phase of a task is shown as %s", (phase, task, progress, ownTasks) => {
    expect(phaseOf(task, progress, ownTasks)).toBe(phase)
  })
})

test("the phase names what a task waits for before it begins, and its last word", () => {
  expect(phaseOf(queued, progressOf(), false, "waiting for bg_a, bg_b")).toBe("waiting for bg_a, bg_b")
  expect(phaseOf(taskOf(), progressOf({ heldBehind: "bg_a" }), false)).toBe("held behind bg_a")
  const group = taskOf({ group: { kind: "each", prompt: "", total: 2, timeout: 0 } })
  expect(phaseOf(group, progressOf(), true, "waiting for bg_a")).toBe("waiting for bg_a")
  expect(phaseOf(group, progressOf({ asks: [askOf()] }), true, "waiting for bg_a")).toBe("waiting for permission")
  expect(phaseOf(taskOf({ run: { lastWordAt: 5 } }), progressOf({ asks: [askOf()] }), true)).toBe(
    "saying its last word",
  )
})

describe("usage", () => {
  const one = { input: 10, output: 5, reasoning: 1, cacheRead: 100, cacheWrite: 7, cost: 0.5 }

  const two = { input: 20, output: 10, reasoning: 2, cacheRead: 200, cacheWrite: 14, cost: 1 }

  test("usage is added up field by field, and is a lower bound when a part of it is", () => {
    expect(addUsage(one, one)).toEqual(two)
    expect(addUsage({ ...one, atLeast: true }, one)).toEqual({ ...two, atLeast: true })
    expect(addUsage(one, { ...one, atLeast: true })).toEqual({ ...two, atLeast: true })
    expect(addFigures({ toolCalls: 1, usage: one }, { toolCalls: 2, usage: one })).toEqual({ toolCalls: 3, usage: two })
  })

  test("usage bills input, output, reasoning and cache writes, but not cache reads", () => {
    expect(billedTokens(one)).toBe(23)
  })
})

test("an error from OpenCode says whether the requested thing is missing", () => {
  expect(new OpencodeError("no")).toMatchObject({ name: "OpencodeError", message: "no", notFound: false })
  expect(new OpencodeError("no", { notFound: true })).toMatchObject({ notFound: true })
})

test("an agent's name includes the machine that it works on when that is another machine", () => {
  const at = (kind: string) => agentName(taskOf({ agent: "build", place: { kind } } as Partial<Task>))
  expect([agentName(taskOf({ agent: "build" })), at("worktree"), at("big")]).toEqual(["build", "build", "build on big"])
})
