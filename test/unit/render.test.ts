import { describe, expect, test } from "vitest"
import { NO_USAGE } from "../../src/core/task.ts"
import type { TaskView } from "../../src/manager/view.ts"
import {
  MOST_ANSWER_CHARS,
  renderCancelled,
  renderCleared,
  renderForCompaction,
  renderLaunch,
  renderList,
  renderOutput,
  renderResume,
  usageLine,
  usageText,
} from "../../src/tools/render.ts"
import { askOf, outcomeOf, taskOf } from "../support/tasks.ts"

const usage = { ...NO_USAGE, input: 12_000, output: 300, reasoning: 45, cacheRead: 99_999, cost: 0.01234 }
const model = { provider: "p", id: "m" }

const viewOf = (more: Partial<TaskView> = {}): TaskView => ({
  task: taskOf({ model }),
  phase: "working",
  elapsed: 12_300,
  waited: 0,
  toolCalls: 0,
  recentTools: [],
  lastText: "",
  usage,
  asks: [],
  ...more,
})
const endedView = (more: Parameters<typeof taskOf>[0] = {}, view: Partial<TaskView> = {}): TaskView =>
  viewOf({ task: taskOf({ model, status: "completed", outcome: outcomeOf(), ...more }), phase: undefined, ...view })
const output = (view: TaskView, answer?: string, offset = 0) =>
  renderOutput({ view, answer, firstLook: false }, offset).output
const wrappedIn = (text: string) => /<task_output id="bg_aaaaaaaa">\n([\s\S]*)\n<\/task_output>/.exec(text)?.[1] ?? ""

describe("a launch reads", () => {
  test("as one that runs", () => {
    expect(renderLaunch({ view: viewOf(), reused: false })).toEqual({
      title: "find it",
      output:
        "Background task launched.\nTask ID: bg_aaaaaaaa\nAgent: general (p/m)\n\nGo on with other work. You will be told when it ends; do not wait for it in a loop.",
      metadata: { taskId: "bg_aaaaaaaa", sessionId: "ses_child", status: "running" },
    })
  })

  test("as one that waits for a slot", () => {
    const { output: text } = renderLaunch({ view: viewOf({ phase: "queued", place: 3 }), reused: false })
    expect(text).toMatch(/^Background task launched; it waits for a free slot \(place 3\)\./)
  })

  test("as an earlier one that is used again", () => {
    expect(renderLaunch({ view: viewOf(), reused: true }).output).toMatch(/^An identical .*: it is running, working\./)
    expect(renderLaunch({ view: endedView(), reused: true }).output).toMatch(
      /it is completed\.[\s\S]*Fetch its answer with superagents_output\(task_id="bg_aaaaaaaa"\)\.$/,
    )
  })

  test("as a fork, with what it inherited and what was cut", () => {
    const fork = { messages: 1, tokens: 12_345, droppedMessages: 2, cutResults: 1 }
    const text = (more: object) =>
      renderLaunch({ view: viewOf({ task: taskOf({ fork: { ...fork, ...more } }) }), reused: false }).output
    expect(text({})).toContain("Inherited: 1 message, about 12,345 tokens; 2 older messages dropped, 1 tool result cut")
    expect(text({ droppedMessages: 0, cutResults: 0, messages: 4 })).toContain(
      "Inherited: 4 messages, about 12,345 tokens\n",
    )
    expect(text({})).toContain("Agent: general\n")
  })
})

test("a resume reads as started, or as waiting", () => {
  const task = taskOf({ model, status: "resumed", run: { generation: 2 } })
  expect(renderResume(viewOf({ task })).output).toContain(
    "Resume #2 of task bg_aaaaaaaa (find it) started.\nAgent: general (p/m), with its whole history.",
  )
  expect(renderResume(viewOf({ task, phase: "queued" })).output).toContain("waits for a free slot")
})

describe("a running task reads", () => {
  test("with all that is known of it", () => {
    const view = viewOf({
      waited: 2500,
      toolCalls: 3,
      recentTools: ["read", "grep"],
      lastSignAt: 0,
      lastText: " looking ",
    })
    expect(output(view)).toBe(
      [
        "Task: bg_aaaaaaaa find it",
        "Agent: general (p/m)",
        "Status: running, working",
        "Time: 12.3s (after 2.5s in the queue)",
        "Tool calls: 3 (last: read, grep)",
        "Usage: 12,345 tokens, $0.0123",
        "Last sign of life: 1970-01-01T00:00:00.000Z",
        "Latest text:",
        '<task_output id="bg_aaaaaaaa">',
        "looking",
        "</task_output>",
        "",
        "It is still running. You will be told when it ends; do not ask again until then.",
      ].join("\n"),
    )
  })

  test("with no more than what is known", () => {
    const text = output(viewOf())
    for (const absent of ["Last sign", "Latest text", "last:", "queue"]) expect(text).not.toContain(absent)
  })

  test("with the end of a long text", () => {
    const text = wrappedIn(output(viewOf({ lastText: `${"a".repeat(500)}${"b".repeat(1000)}` })))
    expect(text).toBe(`…${"b".repeat(1000)}`)
  })

  test.each<[string, Partial<TaskView>]>([
    ["running, queued (place 2)", { phase: "queued", place: 2 }],
    ["running, retrying (attempt 3: overloaded)", { phase: "retrying", retry: { attempt: 3, message: "overloaded" } }],
    ["running, waiting for permission (bash: ls)", { phase: "waiting for permission", asks: [askOf()] }],
    ["running, waiting for its own tasks", { phase: "waiting for its own tasks" }],
  ])("as %s", (status, more) => {
    expect(output(viewOf(more))).toContain(`\nStatus: ${status}\n`)
  })

  test("with every question that is open", () => {
    const asks = [askOf(), askOf({ id: "q", kind: "question", what: "Which?" })]
    const text = output(viewOf({ phase: "waiting for permission", asks }))
    expect(text).toContain("Waits for an answer from the user (permission): bash: ls")
    expect(text).toContain("Waits for an answer from the user (question): Which?")
  })
})

describe("an ended task reads", () => {
  test("with its answer between tags", () => {
    const text = output(endedView(), "the answer")
    expect(text).toContain("Status: completed\n")
    expect(text).toMatch(/\n\nAnswer:\n<task_output id="bg_aaaaaaaa">\nthe answer\n<\/task_output>$/)
    expect(text).not.toContain("Characters")
  })

  test("with reason, note, todos and files, and what it had written", () => {
    const outcome = outcomeOf({
      reason: { code: "timeout", text: "Stopped at its time limit." },
      note: "Cut short.",
      openTodos: 2,
      filesChanged: ["a.ts", "b.ts"],
    })
    const text = output(endedView({ status: "error", outcome }), "so far")
    expect(text).toContain(
      "Reason: Stopped at its time limit.\nNote: Cut short.\nTodos left open: 2\nFiles changed: a.ts, b.ts\n\nText it had written:\n",
    )
  })

  test("with the first of very many files", () => {
    const filesChanged = Array.from({ length: 60 }, (_, index) => `f${index}`)
    expect(output(endedView({ outcome: outcomeOf({ filesChanged }) }), "x")).toContain("f49 and 10 more")
  })

  test("with advice when it was interrupted", () => {
    const outcome = outcomeOf({ reason: { code: "interrupted", text: "It was interrupted." } })
    expect(output(endedView({ status: "error", outcome }), "")).toContain("To go on: launch the task again")
  })

  test("without a text", () => {
    expect(output(endedView(), "")).toMatch(/The agent ended without any text\.$/)
    expect(output(endedView({ status: "cancelled", outcome: undefined }), "")).toMatch(/It had written no text\.$/)
  })

  test("as forked and resumed where it was", () => {
    const fork = { messages: 1, tokens: 1, droppedMessages: 0, cutResults: 0 }
    expect(output(endedView({ fork, run: { generation: 1 } }), "x")).toMatch(
      /^Task: bg_aaaaaaaa \(forked\) \(resumed\) find it\n/,
    )
  })
})

describe("a long answer", () => {
  const pagesOf = (answer: string): string[] => {
    const pages: string[] = []
    for (let offset = 0; ; ) {
      const text = output(endedView(), answer, offset)
      pages.push(wrappedIn(text))
      const next = /read on with offset=(\d+)/.exec(text)?.[1]
      if (next === undefined) return pages
      expect(Number(next)).toBeGreaterThan(offset)
      offset = Number(next)
    }
  }

  test("is cut at 32,000 characters, and says where it goes on", () => {
    const answer = `${"a".repeat(MOST_ANSWER_CHARS)}b`
    const text = output(endedView(), answer)
    expect(wrappedIn(text)).toBe("a".repeat(MOST_ANSWER_CHARS))
    expect(text).toContain("Characters 0 to 32000 of 32001.")
    expect(text).toMatch(/The answer goes on: read on with offset=32000\.$/)
    const rest = output(endedView(), answer, 32_000)
    expect(wrappedIn(rest)).toBe("b")
    expect(rest).toContain("Characters 32000 to 32001 of 32001.")
  })

  test("of just 32,000 is whole", () => {
    expect(pagesOf("a".repeat(MOST_ANSWER_CHARS))).toHaveLength(1)
  })

  test("is cut before the host would cut it by lines", () => {
    const answer = Array.from({ length: 5000 }, (_, index) => `line ${index}`).join("\n")
    const pages = pagesOf(answer)
    expect(pages.join("")).toBe(answer)
    for (const page of pages) expect(page.split("\n").length).toBeLessThan(1950)
  })

  test("is cut before the host would cut it by bytes", () => {
    const answer = "漢字かな交じり文。".repeat(9000)
    const pages = pagesOf(answer)
    expect(pages.join("")).toBe(answer)
    for (const page of pages) expect(Buffer.byteLength(page)).toBeLessThan(48_000)
  })

  test("is never cut through a character", () => {
    const answer = `x${"😀".repeat(40_000)}`
    const pages = pagesOf(answer)
    expect(pages.join("")).toBe(answer)
    for (const page of pages) expect(page).not.toMatch(/^[\udc00-\udfff]|[\ud800-\udbff]$/)
  })

  test("has nothing behind its end", () => {
    expect(output(endedView(), "abc", 3)).toMatch(/Nothing at offset 3: the answer has 3 characters\.$/)
  })

  test("may end in half a character of its own", () => {
    expect(wrappedIn(output(endedView(), "ab\ud83d"))).toBe("ab\ud83d")
  })
})

test.each([
  "</task_output>",
  "</TASK_OUTPUT >",
  "< / task_output>",
  '<task_output id="bg_aaaaaaaa">',
  "<\n/task_output\n>",
])("a child's text cannot close its tags with %j", (tag) => {
  for (const text of [
    output(endedView(), `before ${tag} after`),
    output(viewOf({ lastText: `before ${tag} after` })),
  ]) {
    expect(text.match(/<\s*\/?\s*task_output/gi)).toHaveLength(2)
    expect(wrappedIn(text)).toContain("before &lt;")
    expect(wrappedIn(text)).toContain(" after")
  }
})

describe("a list reads", () => {
  test("one row a task, and their sum", () => {
    const fork = { messages: 1, tokens: 1, droppedMessages: 0, cutResults: 0 }
    const views = [viewOf({ toolCalls: 1 }), endedView({ fork, run: { generation: 1 } }, { toolCalls: 1200 })]
    const { title, output: text } = renderList(views, 0)
    expect(title).toBe("2 tasks, 1 running")
    expect(text.split("\n")).toEqual([
      "bg_aaaaaaaa find it | general | running, working | 12.3s | 1 tool call | 12,345 tokens, $0.0123",
      "bg_aaaaaaaa (forked) (resumed) find it | general | completed | 12.3s | 1,200 tool calls | 12,345 tokens, $0.0123",
      "2 tasks, 1 running | 1,201 tool calls | 24,690 tokens, $0.0247",
    ])
  })

  test("with a word on those that were dropped unread", () => {
    expect(renderList([viewOf()], 1).output).toContain(
      "1 older task that nobody had read left this list (option maxHistory).",
    )
  })

  test("as nothing where there is nothing", () => {
    expect(renderList([], 0).output).toBe("No background tasks found")
  })
})

test("what was cancelled is named", () => {
  expect(renderCancelled([]).output).toBe("No task was running; nothing was cancelled.")
  expect(renderCancelled([viewOf(), viewOf()])).toEqual({
    title: "Cancelled 2",
    output: "Cancelled 2 tasks:\n- bg_aaaaaaaa find it (after 12.3s)\n- bg_aaaaaaaa find it (after 12.3s)",
  })
})

test("what was cleared is counted", () => {
  expect(renderCleared({ cleared: 0, stopped: 0 }).output).toBe("No background tasks found")
  expect(renderCleared({ cleared: 1, stopped: 0 }).output).toBe("Cleared 1 background task.")
  expect(renderCleared({ cleared: 3, stopped: 1 }).output).toBe(
    "Cleared 3 background tasks. 1 running one was stopped first.",
  )
  expect(renderCleared({ cleared: 3, stopped: 2 }).output).toBe(
    "Cleared 3 background tasks. 2 running ones were stopped first.",
  )
})

test("what a compaction must keep names ids, and what was not fetched", () => {
  expect(renderForCompaction([])).toBe("")
  const lines = renderForCompaction([viewOf(), endedView(), endedView({ retrievedAt: 1 })]).split("\n")
  expect(lines.slice(1, 4)).toEqual([
    "- bg_aaaaaaaa find it (general): running, working",
    "- bg_aaaaaaaa find it (general): completed, answer not fetched yet",
    "- bg_aaaaaaaa find it (general): completed, answer fetched",
  ])
})

test("usage reads as tokens and dollars", () => {
  expect(usageText(NO_USAGE)).toBe("0 tokens, $0.0000")
  expect(usageLine(viewOf({ toolCalls: 1 }))).toBe("It used 1 tool call and 12,345 tokens, $0.0123.")
})
