import { describe, expect, test } from "vitest"
import { withAnswers } from "../../../src/core/dependencies.ts"
import { nearest } from "../../../src/core/errors.ts"
import type { GroupAtWork, ResultFiles } from "../../../src/core/feature.ts"
import { countMembers, countsText, type MemberState, memberNames } from "../../../src/core/group.ts"
import { NO_USAGE, type Task } from "../../../src/core/task.ts"
import { itemsWork, previewOf } from "../../../src/features/maps/items.ts"
import { nextItems } from "../../../src/features/maps/next.ts"
import {
  failureText,
  type ItemRow,
  type ItemsPlan,
  itemLines,
  itemsResult,
  shownRows,
} from "../../../src/features/maps/results.ts"
import { stateText } from "../../../src/features/terminal/view-model.ts"
import { nextTries } from "../../../src/features/tries/next.ts"
import { triesResult } from "../../../src/features/tries/results.ts"
import { withDigest } from "../../../src/features/tries/work.ts"
import { summaryOf as summaryWith } from "../../../src/present/summary.ts"
import { groupKindOf } from "../../support/groups.ts"
import { outcomeOf, taskOf } from "../../support/tasks.ts"

const summaryOf = (task: Task) => summaryWith(task, groupKindOf(task))
/** What the terminal says of a group behind its agent and its state. */
const groupText = (task: Task, members: readonly MemberState[]) => {
  const said = stateText({ task, groupKind: groupKindOf(task) }, members, 0)
  return said.split(", ").slice(2).join(", ")
}

const PLAN: ItemsPlan = { kind: "each", prompt: "DO {{item}}", total: 4, timeout: 0, file: "/p/bg_map.jsonl" }
const COURSE = { coming: [], done: [], generation: 0, freeSlots: 9, now: 5000 }

type Given = { status?: Task["status"]; at?: number; closed?: boolean; began?: boolean; run?: number; started?: number }

function item(
  nth: number,
  { status = "running", at, closed, began = true, run = 0, started = 1000 }: Given = {},
): MemberState {
  const part = { kind: "each", of: "bg_map", nth, run, caller: "ses_parent", under: "ses_parent" } as const
  const task = taskOf({
    id: `bg_item000${nth}`,
    status,
    member: part,
    run: { endedAt: at, startedAt: started || undefined },
  })
  return { task, closed: closed ?? status !== "running", began }
}

describe("the next items of a map", () => {
  test("a map's first item runs alone until it begins to answer, ends, or its waiting time is over", () => {
    expect(nextItems(PLAN, [], COURSE)).toEqual({ begin: [0] })
    expect(nextItems(PLAN, [], { ...COURSE, freeSlots: 0 })).toEqual({ begin: [] })
    expect(nextItems(PLAN, [], { ...COURSE, coming: [0] })).toEqual({ begin: [] })
    expect(nextItems(PLAN, [item(0, { began: false })], COURSE)).toEqual({ begin: [], until: 11_000 })
    expect(nextItems(PLAN, [item(0, { began: false, started: 0 })], COURSE)).toEqual({ begin: [], until: 11_000 })
    expect(nextItems(PLAN, [item(0, { began: false })], { ...COURSE, now: 11_000 })).toEqual({ begin: [1, 2, 3] })
    expect(nextItems(PLAN, [item(0)], { ...COURSE, freeSlots: 2 })).toEqual({ begin: [1, 2] })
    expect(nextItems(PLAN, [item(0, { status: "error", began: false })], COURSE)).toEqual({ begin: [1, 2, 3] })
    expect(nextItems(PLAN, [item(0, { began: false })], { ...COURSE, coming: [1] })).toEqual({ begin: [] })
  })

  test("a resumed map does not run items again that earlier runs have settled", () => {
    const before = item(3, { status: "error", run: 0 })
    expect(nextItems(PLAN, [before], { ...COURSE, done: [0, 1], generation: 1 })).toEqual({ begin: [2] })
    const now = item(2, { status: "completed", run: 1 })
    expect(nextItems(PLAN, [before, now], { ...COURSE, done: [0, 1], generation: 1 })).toEqual({ begin: [3] })
  })

  test("a map is over when all items are closed, and it completes if all are valid", () => {
    const all = [0, 1, 2, 3].map((nth) => item(nth, { status: "completed" }))
    expect(nextItems(PLAN, all, COURSE).ending).toEqual({ type: "completed" })
    expect(nextItems(PLAN, [...all.slice(1), item(0, { status: "completed", closed: false })], COURSE)).toEqual({
      begin: [],
    })
    expect(nextItems(PLAN, all.slice(1), { ...COURSE, coming: [0] })).toEqual({ begin: [] })
    const { ending } = nextItems(PLAN, [...all.slice(1), item(0, { status: "cancelled" })], COURSE)
    expect(ending).toEqual({ type: "failed", reason: { code: "items", text: "1 of 4 items failed." } })
  })

  test("ten invalid items in a row, ordered by their end time, stop a map", () => {
    const plan = { ...PLAN, total: 40 }
    const bad = (from: number, at: number) =>
      Array.from({ length: 5 }, (_none, nth) => item(from + nth, { status: "error", at: at + nth }))
    const good = item(20, { status: "completed", at: 50 })
    expect(nextItems(plan, [...bad(0, 100), ...bad(5, 10), good], COURSE).ending).toBeUndefined()
    const early = item(20, { status: "completed", at: 5 })
    expect(nextItems(plan, [...bad(0, 100), early, ...bad(5, 10)], COURSE).ending?.reason?.text).toBe(
      "10 items in a row failed: it was stopped",
    )
    const untimed = Array.from({ length: 10 }, (_none, nth) => item(nth, { status: "error" }))
    expect(nextItems(plan, untimed, COURSE).ending?.type).toBe("failed")
  })
})

describe("the counts of a map", () => {
  test("the counts of a map add up to its total and fit into one short text", () => {
    const own = [item(0), item(1, { status: "completed" }), item(2, { status: "error" })]
    const counts = countMembers(
      9,
      own.map(({ task }) => task),
      2,
    )
    expect(counts).toEqual({ valid: 3, failed: 1, running: 1, notBegun: 4, total: 9 })
    expect(countsText(counts, ["valid", "failed"])).toBe("3 valid, 1 failed, 1 running, 4 not begun of 9")
  })

  test("the counts of a group describe its present run, or its outcome once it has ended", () => {
    const map = taskOf({ id: "bg_map", group: PLAN })
    expect(groupText(taskOf(), [])).toBe("")
    expect(groupText(map, [item(0), item(1, { run: 1 }), { ...item(2), task: taskOf() }])).toBe(
      "1 running, 3 not begun of 4",
    )
    const resumed = { ...map, run: { ...map.run, generation: 1 } }
    const before = [item(0, { status: "completed" }), item(1, { status: "error" })]
    expect(groupText(resumed, [...before, item(1, { run: 1 })])).toBe("1 valid, 1 running, 2 not begun of 4")
    const team = itemsResult(PLAN, [], 0)
    expect(groupText({ ...map, outcome: outcomeOf({ group: team }) }, [])).toBe("4 not begun of 4")
    const plan = { kind: "tries", prompt: "DO", count: 2, timeout: 0 } as const
    const tries = taskOf({ id: "bg_map", group: plan })
    expect(groupText(tries, [item(0)])).toBe("1 running, 1 not begun of 2")
    const closed = [item(0, { status: "completed" }), item(1, { status: "error" })]
    expect(groupText(tries, closed)).toBe("1 passed, 1 did not pass of 2")
    const none = { kind: "tries", cost: 0, rows: [] } as const
    expect(groupText({ ...tries, outcome: outcomeOf({ group: none }) }, [])).toBe("none passed")
    expect(groupText({ ...tries, outcome: outcomeOf({ group: { ...none, won: "a/b" } }) }, [])).toBe("won by a/b")
  })
})

describe("a map's result", () => {
  const row = (index: number, state: ItemRow["state"], reason?: string): ItemRow => ({
    index,
    item: index,
    state,
    ...(reason && { reason }),
  })

  test("a map lists its failures by reason, most frequent first, with ten reasons and five items each", async () => {
    const rows = [
      ...Array.from({ length: 7 }, (_none, at) => row(at, "failed", "often")),
      ...Array.from({ length: 12 }, (_none, at) => row(10 + at, "failed", `once ${at}`)),
      row(30, "failed"),
      row(31, "valid"),
    ]
    const result = itemsResult({ ...PLAN, total: 40 }, rows, 1.5)
    expect(result).toMatchObject({ valid: 1, failed: 20, notBegun: 19 })
    const lines = itemLines(result)
    expect(lines[0]).toBe("Items: 1 valid, 20 failed, 0 running, 19 not begun, of 40. $1.50 in all.")
    expect(lines[1]).toBe("- 7 failed (item 1, 2, 3, 4, 5 and 2 more): often")
    expect(lines[2]).toBe("- 1 failed (item 11): once 0")
    expect(lines.at(-2)).toBe("- 4 failed for other reasons")
    expect(lines.at(-1)).toBe("Rows, one per item, of which the first has index 0: /p/bg_map.jsonl")
    expect(summaryOf(taskOf({ group: PLAN, outcome: outcomeOf({ group: result }) }))).toEqual(lines)
    expect(
      summaryOf(taskOf({ id: "bg_map", group: PLAN, outcome: outcomeOf({ group: itemsResult(PLAN, rows, 0, 2) }) })),
    ).toContain('Changes of 2 items were not merged: superagents_task(merge="bg_map") brings them into your files.')
    expect((await shownRows(rows)).split("\n").at(-1)).toBe('{"index":31,"item":31,"state":"valid"}')
  })

  test("the rows of a long ledger are read and shown in slices, between which other work runs", async () => {
    const value = 'a line with "quotes"\n'.repeat(1000)
    const rows = Array.from({ length: 1000 }, (_, index): ItemRow => ({ index, item: "a", state: "valid", value }))
    const lines = rows.map((row) => JSON.stringify({ ...row, signature: "mine" }))
    const signer = { isSigned: (_signed: unknown, signature: unknown) => signature === "mine" }
    const read = async () => lines.join("\n\n")
    let turns = 0
    const timer = setInterval(() => void turns++, 0)
    const { text } = (await itemsWork.rows?.(PLAN, { signer, read } as unknown as ResultFiles)) ?? {}
    clearInterval(timer)
    expect(text).toBe(rows.map((row) => JSON.stringify(row)).join("\n"))
    expect(turns).toBeGreaterThan(4)
  })

  test.each([
    ["line breaks", "\n".repeat(200_000)],
    ["broken lines of one character", "{\n".repeat(100_000)],
  ])("a ledger of %s costs no turn for each line", async (_what, text) => {
    let [turns, isOver] = [0, false]
    const reading = itemsWork.rows?.(PLAN, { read: async () => text } as unknown as ResultFiles)
    void reading?.then(() => {
      isOver = true
    })
    for (; !isOver && turns < 1000; turns++) await undefined
    expect(turns).toBeLessThan(1000)
    expect(await reading).toEqual({ text: "", members: [] })
  })

  test("many short rows are verified, and signed, in slices, too", async () => {
    let [turns, verified] = [0, 0]
    const timer = setInterval(() => void turns++, 0)
    const signer = { isSigned: () => ++verified === 0, sign: () => "mine" }
    const read = async () => '{"index":0,"signature":"no"}\n'.repeat(5000)
    const files = { signer, read, write: async () => {} } as unknown as ResultFiles
    await itemsWork.rows?.(PLAN, files)
    expect(verified).toBe(5000)
    expect(turns).toBeGreaterThan(4)
    turns = 0
    const memory = { groupState: { items: Array.from({ length: 5000 }, (_none, index) => index) } }
    await itemsWork.open?.({ plan: PLAN, files, memory } as unknown as GroupAtWork<ItemsPlan>)
    clearInterval(timer)
    expect(turns).toBeGreaterThan(4)
  })

  test("a map states why an item failed and what its items are likely to cost", () => {
    expect(failureText(undefined)).toBe("it was stopped")
    expect(failureText(taskOf({ outcome: outcomeOf({ reason: { code: "schema", text: "Bad\nanswer." } }) }))).toBe(
      "Bad answer.",
    )
    expect(previewOf(1000, "explore", "mock/one", { about: 12.4 })).toBe(
      "1,000 items for explore (mock/one), about $12.40",
    )
    expect(previewOf(1000, "explore", "mock/one", { atLeast: 0.5 })).toBe(
      "1,000 items for explore (mock/one), at least $0.5000",
    )
    expect(previewOf(1, "explore", undefined, {})).toBe("1 item for explore, cost not known")
  })

  test("a task that waits for a map reads whole rows, and the path only if some are missing", () => {
    const team = itemsResult(PLAN, [row(0, "valid")], 0)
    const map = taskOf({ id: "bg_map", outcome: outcomeOf({ group: team }) })
    const few = withAnswers("NEXT", [{ task: map, text: '{"index":0}', rows: PLAN.file }])
    expect(few).not.toContain("Items: ")
    expect(few).not.toContain("These are not all rows")
    const many = withAnswers("NEXT", [{ task: map, text: `${"x".repeat(7000)}\n${"y".repeat(7000)}`, rows: PLAN.file }])
    expect(many).toContain(`${"x".repeat(7000)}\n</task_answer>`)
    expect(many).toContain(`These are not all rows; all are in ${PLAN.file}.`)
  })
})

describe("a group's result", () => {
  const part = { kind: "tries", of: "bg_t", nth: 0, run: 0, caller: "p", under: "p" } as const
  const plan = { kind: "tries", prompt: "DO", count: 1, timeout: 0 } as const

  test("an interrupted group says how to continue, and a passed one names the check files it changed", () => {
    const reason = { code: "interrupted", text: "OpenCode stopped." } as const
    const outcome = outcomeOf({ reason })
    const said = (group: Task["group"]) => summaryOf(taskOf({ id: "bg_t", group, status: "error", outcome })).at(-1)
    expect(said(plan)).toBe(
      'To go on: superagents_task(resume="bg_t") begins the tries that have not failed, from the same files.',
    )
    expect(said(PLAN)).toContain("runs the items that are not valid.")
    expect(said({ ...plan, again: "bg_a" })).toBe(
      'To go on: superagents_task(resume="bg_t", prompt) asks the try that had won again.',
    )
    const check = { command: "c", passed: true, runs: 1, how: "exit code 0", touched: ["test/a"] }
    const receipt = { commands: 0, failed: 0, cut: 0, latest: [], check }
    const touched = (more: object) =>
      summaryOf(taskOf({ ...more, status: "completed", outcome: outcomeOf({ receipt }) }))
    expect(touched({ group: plan })).toContain("The try changed the check's own files: test/a")
    expect(touched({})).toContain("It changed the check's own files: test/a")
    const work = { files: ["a"], moreFiles: 0, added: 1, removed: 0, submodules: [] }
    expect(summaryOf(taskOf({ group: plan, outcome: outcomeOf({ work }) }))).toEqual([])
  })

  test("missing details of a group's member are left out of the group's result", () => {
    const lone = { task: taskOf({ status: "completed", run: { endedAt: undefined } }), closed: true, began: true }
    expect(
      nextTries(plan, [lone, { ...lone, task: { ...lone.task, id: "bg_b", member: { ...part, nth: 1 } } }], [], 0)
        .winner,
    ).toBe("bg_aaaaaaaa")
    expect(withDigest("DO", "bg_t", [taskOf()])).toContain("Try 1: it did not pass")
    const outcome = outcomeOf({ work: { files: ["a"], moreFiles: 0, added: 1, removed: 0, submodules: [] } })
    expect(withDigest("DO", "bg_t", [taskOf({ member: part, outcome })])).toContain("Files changed: a\n")
    expect(triesResult(plan, [lone], new Map(), NO_USAGE).rows[0]?.cost).toBe(0)
  })
})

test("the names of a group's members run from the first to the last", () => {
  expect(memberNames("bg_map", PLAN)).toBe("bg_map/1 to bg_map/4")
  expect(memberNames("bg_map", { ...PLAN, total: 1 })).toBe("bg_map/1")
  expect(memberNames("bg_try", { kind: "tries", prompt: "", count: 2, timeout: 0 })).toBe("bg_try/1 to bg_try/2")
})

test("no suggestion is made for an empty name", () => {
  expect(nearest("", ["general", "explore"])).toEqual([])
})
