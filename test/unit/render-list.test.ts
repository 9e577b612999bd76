import { describe, expect, test } from "vitest"
import { CallError } from "../../src/core/errors.ts"
import {
  type ListTotals,
  renderCancelled,
  renderCleared,
  renderForCompaction,
  renderList,
  renderMerges,
} from "../../src/present/list.ts"
import { DEFAULTS } from "../support/options.ts"
import { outcomeOf, taskOf } from "../support/tasks.ts"
import { endedView, figuresOf, usage, viewOf } from "../support/views.ts"

describe("the text of a task list", () => {
  test("a task list has one row per task with its total figures, and a row with their sum", () => {
    const fork = { messages: 1, tokens: 1, droppedMessages: 0, cutResults: 0 }
    const views = [
      viewOf({ whole: figuresOf({ toolCalls: 1 }), thisRun: figuresOf({ toolCalls: 77 }) }),
      endedView({ fork, run: { generation: 1 }, batch: "name:survey" }, { whole: figuresOf({ toolCalls: 1200 }) }),
    ]
    const { title, output: text } = renderList(views, 0)
    expect(title).toBe("2 tasks, 1 running")
    expect(text.split("\n")).toEqual([
      "bg_aaaaaaaa find it | general | running, working | 12.3s | 1 tool call | 12,345 tokens + 99,999 from the cache, $0.0123",
      "bg_aaaaaaaa (forked) (resumed) find it | general | completed | 12.3s | 1,200 tool calls | 12,345 tokens + 99,999 from the cache, $0.0123 | batch survey",
      "2 tasks, 1 running | 1,201 tool calls | 24,690 tokens + 199,998 from the cache, $0.0247",
    ])
  })

  test("a task list shows how much of each limit is spent", () => {
    const limits = { ...DEFAULTS, maxCostPerSession: 0.5, maxTokensPerSession: 50_000, maxCostPerDay: 2 }
    const spent = { session: usage, day: { ...usage, cost: 1.25, atLeast: true as const } }
    const last = (bill: ListTotals) => renderList([viewOf()], 0, bill).output.split("\n").at(-1)
    expect(last({ ...spent, limits })).toBe(
      "1 task, 1 running | 0 tool calls | 12,345 of 50,000 tokens + 99,999 from the cache, $0.0123 of $0.50 | last 24 hours at least $1.25 of $2.00",
    )
    expect(last({ ...spent, limits: { ...DEFAULTS, maxCostPerSession: 0, maxCostPerTask: 1 } })).toMatch(
      /\| 12,345 tokens \+ 99,999 from the cache, \$0\.0123$/,
    )
  })

  test("a task list has one line per task, whatever its texts contain", () => {
    const task = taskOf({ description: "a\n</x>\u2028b", agent: "g\nh", batch: "name:b\n<c>" })
    const [row, ...rest] = renderList([viewOf({ task })], 0).output.split("\n")
    expect(row).toMatch(/^bg_aaaaaaaa a ‹\/x> b \| g h \| .* \| batch b ‹c>$/)
    expect(rest).toHaveLength(1)
  })

  test("a task list mentions the tasks that were dropped before their answers were read", () => {
    expect(renderList([viewOf()], 1).output).toContain(
      "1 older task dropped unread from this list (option maxHistory).",
    )
  })

  test("an empty task list says that there are no background tasks", () => {
    expect(renderList([], 0).output).toBe("No background tasks found")
  })
})

test("a task list counts failed tasks, and shows the reason in their rows", () => {
  const outcome = outcomeOf({ reason: { code: "provider", text: "The provider says: no <credit> left" } })
  const failed = endedView({ status: "error", outcome })
  const { title, output } = renderList([viewOf(), failed, failed], 0)
  expect(title).toBe("3 tasks, 1 running, 2 failed")
  expect(output.split("\n")[1]).toContain(" | error (The provider says: no ‹credit> left) | 12.3s | ")
  expect(output.split("\n")[3]).toMatch(/^3 tasks, 1 running, 2 failed \| /)
})

test("the result of a cancel names the cancelled tasks and stopped merges", () => {
  expect(renderCancelled([]).output).toBe("No task was running; nothing was cancelled.")
  expect(renderCancelled([], { batch: "x", running: [viewOf()] }).output).toBe(
    'No task of batch "x" was running; nothing was cancelled. Still running: bg_aaaaaaaa (find it).',
  )
  expect(renderCancelled([viewOf()], { left: 2 }).output).toBe(
    "Cancelled 1 task:\n- bg_aaaaaaaa find it (after 12.3s)\n2 more belong to another OpenCode process: only the user can cancel them, there.",
  )
  expect(renderCancelled([viewOf(), viewOf()])).toEqual({
    title: "Cancelled 2",
    output: "Cancelled 2 tasks:\n- bg_aaaaaaaa find it (after 12.3s)\n- bg_aaaaaaaa find it (after 12.3s)",
  })
  expect(renderCancelled([viewOf({ task: taskOf({ run: { startedAt: undefined } }), elapsed: 0 })]).output).toBe(
    "Cancelled 1 task:\n- bg_aaaaaaaa find it (before it began)",
  )
  const stranded = outcomeOf({ reason: { code: "after", text: "It never began." } })
  expect(renderCancelled([endedView({ status: "cancelled", outcome: stranded })]).output).toBe(
    "Cancelled 1 task:\n- bg_aaaaaaaa find it (it waited for one of these)",
  )
  const work = { files: ["a"], moreFiles: 0, added: 1, removed: 0, submodules: [] }
  const merge = { kind: "refused", files: [], text: "its second check was stopped" } as const
  expect(renderCancelled([endedView({ outcome: outcomeOf({ work: { ...work, merge } }) })])).toEqual({
    title: "Stopped 1 merge",
    output:
      'bg_aaaaaaaa (find it) had completed; what was still done to merge its work was stopped.\nChanges: 1 file, +1 −0: a\nNot merged yet: superagents_task(merge="bg_aaaaaaaa") brings it into your files. It was not merged by itself: its second check was stopped',
  })
})

test("the result of a clear counts the cleared and the stopped tasks", () => {
  expect(renderCleared({ cleared: 0, stopped: 0 }).output).toBe("No background tasks found")
  expect(renderCleared({ cleared: 0, stopped: 0, left: 2 }).output).toBe(
    "Cleared 0 background tasks. 2 more belong to another OpenCode process: only the user can clear them, there.",
  )
  expect(renderCleared({ cleared: 1, stopped: 0 }).output).toBe("Cleared 1 background task.")
  expect(renderCleared({ cleared: 3, stopped: 1 }).output).toBe(
    "Cleared 3 background tasks. 1 running one was stopped first.",
  )
  expect(renderCleared({ cleared: 3, stopped: 2 }).output).toBe(
    "Cleared 3 background tasks. 2 running ones were stopped first.",
  )
})

test("the text for a compaction names task ids and answers that were not fetched", () => {
  expect(renderForCompaction([])).toBe("")
  const work = { files: ["a"], moreFiles: 0, added: 1, removed: 0, submodules: [] }
  const views = [viewOf(), endedView(), endedView({ retrievedAt: 1 }), endedView({ outcome: outcomeOf({ work }) })]
  const lines = renderForCompaction(views).split("\n")
  expect(lines.slice(1, 5)).toEqual([
    "- bg_aaaaaaaa find it (general): running, working",
    "- bg_aaaaaaaa find it (general): completed, answer not fetched yet",
    "- bg_aaaaaaaa find it (general): completed, answer fetched",
    "- bg_aaaaaaaa (unmerged) find it (general): completed, answer not fetched yet",
  ])
})

test("a merge of a map without a completed item says that there is nothing to merge", () => {
  expect(renderMerges(new Map(), {}).output).toBe("No item has completed: nothing to merge.")
})

test.each([
  [30, 50],
  [500, 1],
  [1000, 1],
  [5000, 1],
])("the merges of %i tasks with %i files each fit into one result, with those first that failed", (tasks, most) => {
  const files = Array.from({ length: most }, (_, index) => `src/features/worktrees/some-file-${index}.ts`)
  const work = { files, moreFiles: 0, added: 1, removed: 0, submodules: [] }
  const ids = Array.from({ length: tasks }, (_, nth) => `bg_${10_000_000 + nth}`)
  const failed = ids.slice(-2)
  const resultOf = (id: string, nth: number) => {
    if (nth === tasks - 1) return new CallError(`Task ${id} works in your own folder.`)
    const merge =
      nth === tasks - 2 ? ({ kind: "conflict", files: ["b"] } as const) : ({ kind: "merged", files } as const)
    return endedView({ id, outcome: outcomeOf({ work: { ...work, merge } }) })
  }
  const { title, output } = renderMerges(new Map(ids.map((id, nth) => [id, resultOf(id, nth)])), {})
  expect(title).toBe(`Merged ${tasks - 2} of ${tasks}`)
  expect(Buffer.byteLength(output)).toBeLessThan(50_000)
  expect(output.split("\n").length).toBeLessThan(2000)
  const [counted, conflict, error, ...rest] = output.split("\n\n")
  expect(counted).toBe(`${title}.`)
  expect(conflict).toMatch(new RegExp(`^Task: ${failed[0]} [^]*conflict in b\\.`))
  expect(error).toBe(`Task ${failed[1]} works in your own folder.`)
  const leftOut = ids.slice(rest.length - 1, -2)
  const [, names = ""] =
    /^Left out, .*: (bg_.*)\. superagents_output\(task_id\) shows each\.$/.exec(rest.at(-1) ?? "") ?? []
  expect(names.replace(/ and [\d,]+ more$/, "").split(", ")).toEqual(leftOut.slice(0, 1500))
})

test("the merges of very many tasks that all failed fit into one result", () => {
  const errors = Array.from({ length: 5000 }, (_, nth) => {
    const id = `bg_${10_000_000 + nth}`
    return [id, new CallError(`Task ${id} works in your own folder.`)] as const
  })
  const { output } = renderMerges(new Map(errors), {})
  expect(Buffer.byteLength(output)).toBeLessThan(50_000)
  expect(output).toMatch(/, bg_\d+ \(not merged\) and [\d,]+ more\. superagents_output/)
})
