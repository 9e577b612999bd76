import { expect, test } from "vitest"
import type { Task } from "../../src/core/task.ts"
import { agentRow } from "../../src/features/web/rows.ts"
import { hasRemaining } from "../../src/present/view.ts"
import { viewOf } from "../support/fake-agents.ts"
import { groupKindOf } from "../support/groups.ts"
import { outcomeOf, taskOf } from "../support/tasks.ts"

const COUNTS = { valid: 1, failed: 1, running: 0, notBegun: 0, total: 2 }
const PLAN = { kind: "each", prompt: "p", total: 2, timeout: 0, file: "/f" } as const
const mapOf = (valid: number, more: Parameters<typeof taskOf>[0] = {}): Task =>
  taskOf({
    status: valid === 2 ? "completed" : "error",
    group: PLAN,
    outcome: outcomeOf({
      group: { kind: "each", total: 2, valid, failed: 2 - valid, notBegun: 0, cost: 0, file: "/f", groups: [] },
    }),
    ...more,
  })
const triesOf = (code: "check" | "cancelled", more: object = {}): Task =>
  taskOf({
    status: "error",
    group: { kind: "tries", prompt: "p", count: 2, timeout: 0, ...more },
    outcome: outcomeOf({ reason: { code, text: "t" }, group: { kind: "tries", cost: 0, rows: [] } }),
  })

test.each<[string, Task, boolean]>([
  ["a map of which an item failed", mapOf(1), true],
  ["a map that was stopped before anything of it was written down", mapOf(1, { outcome: outcomeOf({}) }), true],
  ["a map of which nothing is known", taskOf({ status: "error", group: PLAN }), true],
  ["a map whose items are all valid", mapOf(2), false],
  ["a map at work", mapOf(1, { status: "resumed" }), false],
  ["tries that were stopped", triesOf("cancelled"), true],
  ["tries that all failed", triesOf("check"), false],
  ["tries of which one has won", triesOf("cancelled", { winner: "bg_a" }), false],
  ["a plain task", taskOf({ status: "error" }), false],
])("it is known whether members are left to run of %s: %#", (_what, task, left) => {
  expect(hasRemaining(task, groupKindOf(task))).toBe(left)
  expect(agentRow({ ...viewOf(), task, groupKind: groupKindOf(task) }, false, 0, []).left).toBe(left || undefined)
})

test("a row shows the winner of ended tries and the counts of ended items", () => {
  const countsOf = (task: Task) =>
    agentRow({ ...viewOf({ counts: COUNTS }), task, groupKind: groupKindOf(task) }, false, 0, []).counts
  const rows = [{ how: "won", ms: 0, cost: 0 }]
  const won = outcomeOf({ group: { kind: "tries", won: "mock/two", cost: 0, rows } })
  expect(countsOf({ ...triesOf("check"), outcome: won })).toBe("won by mock/two")
  expect(countsOf(triesOf("check"))).toBe("none passed")
  expect(countsOf(mapOf(1))).toBe("1 valid, 1 failed of 2")
  expect(countsOf(taskOf({ group: PLAN }))).toBe("1 valid, 1 failed of 2")
})
