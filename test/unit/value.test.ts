import { expect, test } from "vitest"
import { withAnswers } from "../../src/core/dependencies.ts"
import { valueIn, withSchema } from "../../src/core/outcome.ts"
import { transition } from "../../src/core/transition.ts"
import { invalidReason } from "../../src/features/schemas/feature.ts"
import { summaryOf } from "../../src/present/summary.ts"
import { outcomeOf, taskOf } from "../support/tasks.ts"

const FILE = "/project/.opencode/superagents/bg_aaaaaaaa.json"
const long = taskOf({
  status: "completed",
  outcome: outcomeOf({ value: { valid: true, asked: 1, at: 2, length: 3, file: FILE } }),
})

const after = (asked: number, length: number, refused: number) =>
  taskOf({ outcome: outcomeOf({ value: { valid: true, asked, at: 0, length, refused } }) })

test("a summary of a value says whether it is valid, how often it was requested, and its file", () => {
  expect(summaryOf(long)).toEqual([`Schema: valid; the value is also in ${FILE}`])
  expect(summaryOf(after(3, 11, 3120))).toEqual([
    "Schema: valid, asked 3 times",
    "Note: the value has 11 characters, an answer that was refused before it 3,120: it may be a placeholder.",
  ])
  for (const other of [after(3, 700, 3120), after(2, 11, 300), after(1, 11, 0)])
    expect(summaryOf(other)).toHaveLength(1)
  const failed = taskOf({ status: "error", outcome: outcomeOf({ value: { valid: false, asked: 3 } }) })
  expect(summaryOf(failed)).toEqual(["Schema: not valid, asked 3 times"])
})

test("a task that waits for a value reads it, or for a long one its length and file", () => {
  expect(withAnswers("SUM UP", [{ task: long, text: "x".repeat(12_345) }])).toContain(
    `bg_aaaaaaaa (find it): 12,345 characters of JSON, in ${FILE}`,
  )
  expect(withAnswers("SUM UP", [{ task: long, text: '{"a":1}' }])).toContain('>\n{"a":1}\n<')
})

test("a task with a place of its own, which cannot read files of its parent, gets the beginning of a long value", () => {
  const told = withAnswers("SUM UP", [{ task: long, text: "x".repeat(12_345) }], true)
  expect(told).toContain('(the first 8000 of 12345 characters):\n<task_answer id="bg_aaaaaaaa">\nxxx')
  expect(told).not.toContain(FILE)
  const rows = `{"index":0}\n${"y".repeat(9000)}`
  const some = withAnswers("SUM UP", [{ task: long, text: rows, rows: FILE }], true)
  expect(some).toContain('(the first 8000 of 9012 characters):\n<task_answer id="bg_aaaaaaaa">\n{"index":0}\nyyy')
  expect(some).not.toContain(FILE)
  expect(withAnswers("SUM UP", [{ task: long, text: '{"a":1}', rows: FILE }], true)).not.toContain("the first")
})

test("the value is the recorded part of the answer, or the whole answer without a record", () => {
  expect(valueIn(long, "ab[1]cd")).toBe("[1]")
  expect(valueIn(taskOf(), "ab[1]cd")).toBe("ab[1]cd")
})

test("a prompt without a schema is unchanged, and a schema error counts the requests", () => {
  expect(withSchema("FIND", undefined)).toBe("FIND")
  expect(invalidReason(1, ["at /: no"]).text).toBe("Its answer did not match the schema (asked once: at /: no).")
})

test("a run is parked and unparked once each, only in its own generation and before its end", () => {
  const parking = { type: "parked", generation: 0, at: 2000, model: "mock/one", why: "limit" } as const
  const parked = transition(taskOf(), parking)
  expect(parked.run).toMatchObject({ parked: { at: 2000, model: "mock/one", why: "limit" }, parkedTimes: 1 })
  const ended = taskOf({ status: "completed" })
  for (const [task, event] of [
    [parked, parking],
    [ended, parking],
    [taskOf(), { ...parking, generation: 1 }],
    [taskOf(), { type: "unparked", generation: 0, at: 3000 }],
    [parked, { type: "unparked", generation: 1, at: 3000 }],
    [
      { ...parked, status: "completed" },
      { type: "unparked", generation: 0, at: 3000 },
    ],
  ] as const)
    expect(transition(task, event)).toBe(task)
  expect(transition(parked, { type: "unparked", generation: 0, at: 5000 }).run).toMatchObject({ parkedMs: 3000 })
})
