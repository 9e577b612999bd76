import { describe, expect, test } from "vitest"
import type { RunView } from "../../../src/features/board/runs.ts"
import { type BoardState, EMPTY, MOST_FAILURES, type TaskRunState } from "../../../src/features/board/state.ts"
import {
  beginOf,
  dueTasks,
  isUnrecorded,
  type StatusContext,
  stateOf,
  wantsRun,
} from "../../../src/features/board/status.ts"
import type { BoardTask } from "../../../src/features/board/task.ts"
import { boardTaskOf } from "../../support/board-state.ts"

/** What a task is doing, told from board, runs and clock alone. */

const NOW = "2026-03-02T08:00:00.000Z"
const LATER = "2026-03-02T09:00:00.000Z"

const taskOf = (id: string, more: Partial<BoardTask> = {}): BoardTask => boardTaskOf(id, NOW, more)

const runOf = (state: RunView["state"], more: Partial<RunView> = {}): RunView => ({
  createdAt: Date.parse(NOW),
  state,
  asks: [],
  ...more,
})

const boardOf = (tasks: readonly BoardTask[], pulses: Readonly<Record<string, TaskRunState>> = {}) => ({
  ...EMPTY,
  tasks,
  pulses,
})

const momentOf = (more: Partial<StatusContext> = {}): StatusContext => ({
  runOf: () => undefined,
  agents: ["build", "plan"],
  now: NOW,
  nextTick: "14:00",
  ...more,
})

const wake = (at = NOW, cause: "created" | "clock" = "created") => ({ wake: { at, cause } })

describe("the state of a board task", () => {
  const of = (
    task: BoardTask,
    pulse: TaskRunState = {},
    moment: Partial<StatusContext> = {},
    others: readonly BoardTask[] = [],
  ) => stateOf(boardOf([task, ...others], { [task.id]: pulse }), task, momentOf(moment))

  test("the state of an inactive board task is its status, even if a run works", () => {
    const runs = { runOf: () => runOf("running") }
    expect(of(taskOf("1", { status: "draft" }), {}, runs)).toEqual({ state: "draft", reason: "", text: "draft" })
  })

  test("the state of a working board task is its run's state, and an open question comes first", () => {
    expect(of(taskOf("1"), {}, { runOf: () => runOf("queued") })).toEqual({
      state: "queued",
      reason: "",
      text: "queued",
    })
    expect(of(taskOf("1"), {}, { runOf: () => runOf("running") })).toMatchObject({ state: "running", text: "running" })
    expect(of(taskOf("1"), {}, { runOf: () => runOf("running", { asks: ["may I\nrm?", "and?"] }) })).toEqual({
      state: "needs you",
      reason: "may I rm?",
      text: "needs you: may I rm?",
    })
  })

  test("a board task rests when its owner is unknown or its runs have failed too often", () => {
    expect(of(taskOf("1", { owner: "gone" }), wake())).toMatchObject({ text: 'rests: no agent "gone"' })
    const failed = { failures: MOST_FAILURES, ...wake() }
    expect(of(taskOf("1"), { ...failed, failure: "no key" })).toMatchObject({
      state: "rests",
      text: `rests: ${MOST_FAILURES} runs failed, the last one: no key`,
    })
    expect(of(taskOf("1"), failed).text).toContain("the last one: no reason given")
    expect(of(taskOf("1"), { failures: MOST_FAILURES - 1, ...wake() }).state).toBe("queued")
  })

  test("a board task with a pending wake is shown as queued even if it needs a person", () => {
    expect(of(taskOf("1"), { ...wake(), needs: "a key" }).state).toBe("queued")
    expect(of(taskOf("1"), { needs: "a key" })).toEqual({
      state: "needs you",
      reason: "a key",
      text: "needs you: a key",
    })
  })

  test("a board task that needs a person says so also where its purse would let it rest", () => {
    const task = taskOf("1")
    const purse = { max: 5, openedAt: NOW, until: LATER, threads: {} }
    for (const under of [{ purse }, { quiet: { until: LATER, spent: true } }]) {
      const text = (pulse: TaskRunState) =>
        stateOf({ ...boardOf([task], { 1: { idle: 2, ...pulse } }), ...under }, task, momentOf()).text
      expect(text({})).toMatch(/^rests: (no progress|the purse is used up)/)
      expect(text({ needs: "a key" })).toBe("needs you: a key")
    }
  })

  test("a board task whose next step is a subtask waits for that subtask", () => {
    const task = taskOf("1", { steps: [{ title: "Part", done: false, taskId: "2" }] })
    expect(of(task, {}, {}, [taskOf("2")])).toEqual({ state: "waits", reason: "#2", text: "waits for #2" })
    expect(of(task).state).toBe("next run")
  })

  test("an unblocked board task shows its next scheduled run, or rests if the schedule has none", () => {
    expect(of(taskOf("1"))).toEqual({ state: "next run", reason: "14:00", text: "next run 14:00" })
    expect(of(taskOf("1"), { failure: "no\nkey" })).toEqual({
      state: "next run",
      reason: "14:00 (the last run failed: no key)",
      text: "next run 14:00 (the last run failed: no key)",
    })
    expect(of(taskOf("1"), {}, { nextTick: "" })).toEqual({
      state: "rests",
      reason: "the schedule has no further time",
      text: "rests: the schedule has no further time",
    })
    expect(of(taskOf("1"), {}, { runOf: () => runOf("ended", { asks: ["refused"] }) }).state).toBe("next run")
  })
})

describe("due board tasks", () => {
  const due = (
    pulses: Readonly<Record<string, TaskRunState>>,
    { free = 9, clockBusy = false, tasks = Object.keys(pulses).map((id) => taskOf(id)), ...moment } = {} as Partial<
      StatusContext & { free: number; clockBusy: boolean; tasks: readonly BoardTask[] }
    >,
  ) => dueTasks(boardOf(tasks, pulses), momentOf(moment), { free, clockBusy }).map(({ id }) => id)

  test("due board tasks are ordered by wake and then id, with one scheduled task at the end", () => {
    const tick = wake(NOW, "clock")
    const pulses = { 9: tick, 8: tick, 10: wake(), 3: wake(LATER), 7: wake(), 2: {} }
    expect(due(pulses)).toEqual(["7", "10", "3", "8"])
    expect(due(pulses, { clockBusy: true })).toEqual(["7", "10", "3"])
    expect(due(pulses, { free: 2 })).toEqual(["7", "10"])
    expect(due(pulses, { free: -1 })).toEqual([])
  })

  test("a wake by the clock makes no task due in a purse's time: the purse starts those that wait for nobody", () => {
    const tasks = [taskOf("1"), taskOf("2")]
    const of = (more: Partial<BoardState>) => {
      const clock = wake(NOW, "clock")
      const state = { ...boardOf(tasks, { 1: { ...clock, needs: "a key" }, 2: clock }), ...more }
      const due = dueTasks(state, momentOf(), { free: 9, clockBusy: false }).map(({ id }) => id)
      return [tasks.map((task) => wantsRun(state, task, momentOf())), due]
    }
    expect(of({ purse: { max: 1, openedAt: NOW, until: LATER, threads: {} } })).toEqual([[false, true], ["2"]])
    expect(of({ quiet: { until: LATER, spent: false } })).toEqual([[false, false], []])
    for (const over of [{}, { quiet: { until: NOW, spent: false } }]) expect(of(over)).toEqual([[true, true], ["1"]])
  })

  test("a board task is due only if active, owned, not failing and without a run to record", () => {
    expect(due({ 1: wake() }, { tasks: [taskOf("1", { status: "draft" })] })).toEqual([])
    expect(due({ 1: wake() }, { agents: ["plan"] })).toEqual([])
    expect(due({ 1: { ...wake(), failures: MOST_FAILURES } })).toEqual([])
    expect(due({ 1: { ...wake(), failures: MOST_FAILURES - 1 } })).toEqual(["1"])
    expect(due({ 1: wake() }, { runOf: () => runOf("queued") })).toEqual([])
    expect(due({ 1: wake() }, { runOf: () => runOf("ended") })).toEqual([])
    expect(due({ 1: { ...wake(), ran: NOW } }, { runOf: () => runOf("ended") })).toEqual(["1"])
  })
})

describe("a board task's run", () => {
  test("an ended run is unrecorded until the board has recorded that run or a later one", () => {
    const run = runOf("ended")
    expect(beginOf(run)).toBe(NOW)
    expect(isUnrecorded(undefined, {}, NOW)).toBe(false)
    expect(isUnrecorded(runOf("running"), {}, NOW)).toBe(false)
    expect(isUnrecorded(run, {}, NOW)).toBe(true)
    expect(isUnrecorded(run, { ran: NOW }, NOW)).toBe(false)
    expect(isUnrecorded(run, { ran: LATER }, LATER)).toBe(false)
    expect(isUnrecorded(run, { ran: LATER }, NOW)).toBe(true)
    const before = new Date(Date.parse(NOW) - 1).toISOString()
    expect(isUnrecorded(run, { ran: NOW }, before)).toBe(false)
  })
})
