import { expect, test } from "vitest"
import { NOBODY, type Task } from "../../../src/core/task.ts"
import { EMPTY } from "../../../src/features/board/state.ts"
import { stateOf } from "../../../src/features/board/status.ts"
import { boardPart } from "../../../src/features/web/board/part.ts"
import type { TaskRow } from "../../../src/features/web/board/wire.ts"
import {
  BOARD_ROUTES,
  columnOf,
  isStuck,
  NEW_TASK,
  needsOf,
  taskLink,
  taskTone,
} from "../../../src/features/web/page/board/select.ts"
import { routeOf } from "../../../src/features/web/page/route.ts"
import { waitingFor } from "../../../src/features/web/page/select.ts"
import { agentRow } from "../../../src/features/web/rows.ts"
import { boardTaskOf } from "../../support/board-state.ts"
import { viewOf } from "../../support/fake-agents.ts"
import { askOf } from "../../support/tasks.ts"

test("each state of a board task has its column and tone", () => {
  const columns = (
    ["waiting for a person", "needs you", "running", "queued", "waits", "next run", "rests", "draft"] as const
  ).map((state) => columnOf({ state, reason: "x" }))
  expect(columns).toEqual(["needs you", "needs you", "working", "working", "waiting", "waiting", "needs you", "draft"])
  const tones = (["running", "needs you", "done", "rests"] as const).map((state) => taskTone({ state, reason: "x" }))
  expect(tones).toEqual(["run", "needs", "done", "fail"])
})

test("a board task that rests without a further round does not count as stuck", () => {
  const moment = { runOf: () => undefined, agents: ["build"], now: "2026-01-01T00:00:00.000Z", nextTick: "" }
  const { state, reason } = stateOf(EMPTY, boardTaskOf("5", "2026-01-01T00:00:00.000Z", { owner: "build" }), moment)
  expect([state, isStuck({ state, reason }), columnOf({ state, reason })]).toEqual(["rests", false, "waiting"])
  expect(isStuck({ state: "rests", reason: "3 runs failed" })).toBe(true)
})

test("each open question is counted once, also when it is that of a board task's run", () => {
  const asks = [askOf(), askOf({ id: "per_2" })]
  const agent = (id: string, task: Partial<Task>) =>
    agentRow(viewOf({ task: { id, ...task }, asks }), false, 1000, [boardPart])
  const unattended = { parentID: NOBODY, description: "#5 Grind" }
  const rows = [agent("b", {}), agent("a", unattended), agent("c", { status: "error" })]
  const tasks = (["needs you", "needs you", "running"] as const).map((state, index) => ({ id: `${5 + index}`, state }))
  const needs = (asked: typeof rows) => needsOf(tasks as unknown as TaskRow[], 0, asked)
  const { asking, count } = waitingFor(rows, [], [{ needs: (asked) => needs([...asked]) }])
  expect([asking.map(({ id }) => id), needs(asking).waiting.map(({ id }) => id), count]).toEqual([["a", "b"], ["6"], 5])
})

test("a failure is left out while the row of its board task shows it, and a lost board is one need", () => {
  const tasks = [{ id: "5", state: "rests", title: "Grind", reason: "3 runs failed" }] as unknown as TaskRow[]
  const { count, notices, shows } = needsOf(tasks, 7, [])
  const failed = (description: string, parentID: string) =>
    agentRow(viewOf({ task: { description, parentID, status: "error" } }), false, 1000, [boardPart])
  expect([count, notices.map(([key]) => key)]).toEqual([2, ["#5 3 runs failed"]])
  const others = [failed("#6 Sift", NOBODY), failed("#5 Grind", "ses_parent")]
  expect([failed("#5 Grind", NOBODY), ...others].map(shows)).toEqual([true, false, false])
})

test("the board's addresses are its view, a task by its number, and the form of a new task", () => {
  const read = (hash: string) => routeOf(hash, [{ routes: BOARD_ROUTES }])
  expect(read("#/board/task/5")).toEqual({ view: "board", filters: {}, shown: { kind: "task", id: "5" } })
  expect([read(taskLink("5")).shown, read(NEW_TASK).shown]).toEqual([{ kind: "task", id: "5" }, { kind: "new" }])
  expect(read("#/task/constructor").shown).toBeUndefined()
})
