import { expect, test } from "vitest"
import { NO_FIGURES, NO_USAGE, type Task } from "../../src/core/task.ts"
import { agentRow } from "../../src/features/web/rows.ts"
import { DAY_MS } from "../../src/lib/format.ts"
import { PresenceTracker } from "../../src/runtime/services.ts"
import { TaskStore } from "../../src/runtime/tasks/store.ts"
import { viewOf as viewAmong } from "../../src/runtime/tasks/view.ts"
import { groupKindOf } from "../support/groups.ts"
import { outcomeOf, taskOf } from "../support/tasks.ts"

const viewOf = (task: Task, store: TaskStore, now: number) => {
  const clock = { now: () => now, after: () => () => {} }
  const waits = { limitOf: () => undefined, blockOf: () => undefined }
  return viewAmong(task, { store, clock, presence: new PresenceTracker(clock, null), groupKindOf }, waits)
}

const tokens = (output: number) => ({ ...NO_USAGE, output, cost: output / 1000 })
const earlier = { toolCalls: 5, usage: tokens(100) }

test("an ended task keeps its figures and last tools, and a cut-off run makes them lower bounds", () => {
  const store = new TaskStore()
  const outcome = outcomeOf({ toolCalls: 1, usage: { ...tokens(30), atLeast: true }, recentTools: ["read"] })
  const task = taskOf({ status: "cancelled", outcome, earlier, run: { generation: 1 } })
  store.add(task, 0)
  const view = viewOf(task, store, 0)
  expect(view.recentTools).toEqual(["read"])
  expect(view.thisRun).toEqual({ toolCalls: 1, usage: { ...tokens(30), atLeast: true } })
  expect(view.whole).toEqual({ toolCalls: 6, usage: { ...tokens(130), atLeast: true } })
  const again = taskOf({ status: "resumed", earlier: view.whole, run: { generation: 2 } })
  const { whole, thisRun } = viewOf(again, new TaskStore(), 0)
  expect([whole.usage.atLeast, thisRun.usage.atLeast]).toEqual([true, undefined])
})

test("the usage of a task's own tasks counts for the whole task, not for its run", () => {
  const store = new TaskStore()
  const outcome = outcomeOf({ toolCalls: 2, usage: tokens(10) })
  const task = taskOf({ status: "completed", outcome })
  const own = taskOf({ id: "bg_own", sessionID: "ses_own", parentID: task.sessionID, status: "completed", outcome })
  const deeper = { ...own, id: "bg_deep", sessionID: "ses_deep", parentID: "ses_own" }
  for (const each of [task, own, deeper]) store.add(each, 0)
  expect(viewOf(task, store, 0)).toMatchObject({
    whole: { toolCalls: 6, usage: tokens(30) },
    thisRun: { toolCalls: 2, usage: tokens(10) },
  })
})

test("a group's figures for this run are those of the members that this run began", () => {
  const store = new TaskStore()
  const team = { kind: "each", prompt: "", total: 2, timeout: 0, file: "" } as const
  const group = taskOf({ status: "completed", group: team, run: { generation: 1 }, outcome: outcomeOf() })
  const member = (nth: number, run: number) =>
    taskOf({
      ...{ id: `bg_${nth}`, sessionID: `ses_${nth}`, parentID: group.sessionID, status: "completed" },
      member: { kind: "each", of: group.id, nth, run, caller: "p", under: "p" },
      outcome: outcomeOf({ toolCalls: 2, usage: tokens(10) }),
    })
  for (const each of [group, member(0, 0), member(1, 1)]) store.add(each, 0)
  expect(viewOf(group, store, 0)).toMatchObject({
    whole: { toolCalls: 4, usage: tokens(20) },
    thisRun: { toolCalls: 2, usage: tokens(10) },
  })
})

test("a group's cost of the last day is that of the members that ended in it, each without its own tasks", () => {
  const store = new TaskStore()
  const team = { kind: "each", prompt: "", total: 3, timeout: 0, file: "" } as const
  const now = 10 * DAY_MS
  const group = taskOf({ status: "completed", group: team, run: { generation: 1, endedAt: now }, outcome: outcomeOf() })
  const ended = (id: string, parentID: string, endedAt: number, cost: number) =>
    taskOf({
      ...{ id: `bg_${id}`, sessionID: `ses_${id}`, parentID, status: "completed", run: { endedAt } },
      outcome: outcomeOf({ usage: { ...NO_USAGE, cost } }),
    })
  const member = (nth: number, endedAt: number, cost: number) => ({
    ...ended(String(nth), group.sessionID, endedAt, cost),
    member: { kind: "each", of: group.id, nth, run: nth, caller: "p", under: "p" } as const,
  })
  const members = [member(0, now - DAY_MS - 1, 30), member(1, now - 1, 2)]
  for (const each of [group, ...members, ended("own", "ses_1", now, 4)]) store.add(each, 0)
  const view = viewOf(group, store, now)
  expect(view.whole.usage.cost).toBe(36)
  expect(agentRow(view, false, now, [])).toMatchObject({ cost: 36, dayCost: 2 })
})

test("the last sign of life has an age only while the task runs", () => {
  const store = new TaskStore()
  const task = taskOf()
  store.add(task, 1000)
  expect(viewOf(task, store, 4000).signAge).toBe(3000)
  expect(viewOf(task, store, 500).signAge).toBe(0)
  expect(viewOf(taskOf({ status: "completed" }), new TaskStore(), 4000).signAge).toBeUndefined()
})

test("the usage of a task's own tasks stays in the whole after they are forgotten", () => {
  const store = new TaskStore()
  const outcome = outcomeOf({ toolCalls: 2, usage: tokens(10) })
  const task = taskOf({ status: "completed", outcome })
  const own = taskOf({ id: "bg_own", sessionID: "ses_own", parentID: task.sessionID, status: "completed", outcome })
  const deeper = { ...own, id: "bg_deep", sessionID: "ses_deep", parentID: "ses_own" }
  const other = { ...own, id: "bg_other", sessionID: "ses_other" }
  for (const each of [task, own, deeper, other]) store.add(each, 0)
  const before = viewOf(task, store, 0).whole
  for (const each of [deeper, own, other]) {
    store.remove(each.id)
    expect(viewOf(task, store, 0).whole).toEqual(before)
  }
  store.remove(task.id)
  expect(store.left(task.sessionID)).toEqual(NO_FIGURES)
})
