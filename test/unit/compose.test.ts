import { encode } from "gpt-tokenizer/encoding/o200k_base"
import { describe, expect, test } from "vitest"
import type { Task } from "../../src/core/task.ts"
import { NO_FIGURES } from "../../src/core/task.ts"
import {
  compose,
  isNotice,
  type NotificationFacts,
  wantsAnswer,
  withoutRunning,
} from "../../src/present/notification.ts"
import { askToast, endToast, launchToast, summarize } from "../../src/present/toasts.ts"
import { groupKindOf } from "../support/groups.ts"
import { askOf, deliveryOf, outcomeOf, taskOf } from "../support/tasks.ts"

const ended = (status: "completed" | "error" | "cancelled", more: Parameters<typeof taskOf>[0] = {}) =>
  taskOf({
    status,
    outcome: outcomeOf(),
    delivery: deliveryOf({ done: 2, total: 3, running: 1 }),
    ...more,
    run: { startedAt: 1000, endedAt: 13_300, ...more.run },
  })

const other = taskOf({ id: "bg_bbbbbbbb", description: "Write findings" })
const third = taskOf({ id: "bg_cccccccc", description: "Read\n</b> docs" })
const newsOf = (
  task: Task,
  { answer, ...more }: Partial<Omit<NotificationFacts, "answer">> & { answer?: string } = {},
): NotificationFacts => ({
  task,
  groupKind: groupKindOf(task),
  answer: answer === undefined ? undefined : { text: answer, gone: false },
  whole: NO_FIGURES,
  thisRun: NO_FIGURES,
  running: [],
  pendingTasks: [],
  notFetched: [],
  together: 3,
  ...more,
})
const composed = (facts: NotificationFacts, notifyAnswerChars = 4000, development = false) =>
  compose(facts, { notifyAnswerChars, development })
const hiddenLines = (facts: NotificationFacts, notifyAnswerChars?: number) =>
  composed(facts, notifyAnswerChars).hidden.split("\n")

const AUTOMATIC = "Automatic message, not written by the user."
const USED = "Used: 0 tool calls, 0 tokens, $0.0000."
const WAITING_HINT = [
  'If you need results immediately, use superagents_output(task_id="bg_aaaaaaaa").',
  "You can continue working or just say 'waiting' and halt.",
  "WATCH OUT for leftovers, you will likely WANT to wait for all agents to complete.",
]
const DONE_HINT = ["All 3 tasks finished.", "Use superagents_output tools to see agent responses."]

test.each(["plain words of a reason, ", "無法讀取檔案，因為權限不足。", "Файл не читается: нет прав. "])(
  "the notification of a map stays under 3,000 tokens in any language: %s",
  (words) => {
    const why = words.repeat(200).slice(0, 160)
    const groups = Array.from({ length: 10 }, (_none, nth) => ({ why, count: 900 - nth, first: [0, 1, 2, 3, 999] }))
    const counts = { total: 10_000, valid: 1000, failed: 8000, notBegun: 1000 }
    const team = { kind: "each", ...counts, cost: 1, file: "/p/bg_aaaaaaaa.jsonl", groups } as const
    const row = `{"index":1,"item":"${words}","state":"failed","reason":"${words}"}\n`
    const task = ended("error", { outcome: outcomeOf({ group: team }) })
    for (const length of [900, 1300, 2000, 3999, 100_000]) {
      const { hidden } = composed(newsOf(task, { answer: row.repeat(length).slice(0, length) }))
      expect(hidden).toContain("Items: 1,000 valid, 8,000 failed, 0 running, 1,000 not begun, of 10,000.")
      expect(encode(hidden).length).toBeLessThan(3000)
    }
  },
)

describe("a notification's visible text", () => {
  test.each([
    ["completed", 0, '✓ **Agent "find it" finished in 12.3s.**\nTask Progress: 2/3'],
    ["error", 0, '✗ **Agent "find it" failed in 12.3s.**\nTask Progress: 2/3'],
    ["cancelled", 0, '⊘ **Agent "find it" cancelled after 12.3s.**\nTask Progress: 2/3'],
    ["completed", 1, "✓ **Resume #1 completed in 12.3s.**\nTask Progress: 2/3"],
    ["error", 2, "✗ **Resume #2 failed in 12.3s.**\nTask Progress: 2/3"],
    ["cancelled", 3, "⊘ **Resume #3 cancelled after 12.3s.**\nTask Progress: 2/3"],
  ] as const)(
    "the visible text of a notification is right for a run that is %s, generation %i",
    (status, generation, text) => {
      expect(composed(newsOf(ended(status, { run: { generation } }))).visible).toBe(text)
    },
  )

  test("the visible text of a notification ends with a mark in development", () => {
    expect(composed(newsOf(ended("completed")), 4000, true).visible).toBe(
      '✓ **Agent "find it" finished in 12.3s.**\nTask Progress: 2/3\n[hint attached]',
    )
  })
})

describe("a notification's hidden text", () => {
  test("a notification lists the tasks of the session that still run, with the exact waiting hint", () => {
    const facts = newsOf(ended("completed"), { answer: "found", running: [other, third], notFetched: [other] })
    expect(hiddenLines(facts)).toEqual([
      `${AUTOMATIC} Task bg_aaaaaaaa: completed. ${USED}`,
      "Its whole answer:",
      "<task_output>",
      "found",
      "</task_output>",
      "Still running: bg_bbbbbbbb (Write findings), bg_cccccccc (Read ‹/b> docs)",
      ...WAITING_HINT,
    ])
  })

  test("a notification after all tasks have ended lists the answers that were not fetched", () => {
    const delivery = deliveryOf({ done: 3, total: 3, running: 0 })
    const facts = newsOf(ended("completed", { delivery }), { answer: "found", notFetched: [other, third] })
    expect(hiddenLines(facts).slice(-3)).toEqual([
      "Not fetched yet: bg_bbbbbbbb (Write findings), bg_cccccccc (Read ‹/b> docs)",
      ...DONE_HINT,
    ])
  })

  test("a notification after all tasks have ended, with every answer fetched, ends with the hint alone", () => {
    expect(hiddenLines(newsOf(ended("completed"), { answer: "found" })).slice(-3)).toEqual([
      "</task_output>",
      ...DONE_HINT,
    ])
  })

  test("the notification of a resume names the task and the figures of this run and of all runs", () => {
    const task = ended("completed", { run: { generation: 2 } })
    const facts = newsOf(task, { answer: "x", whole: { ...NO_FIGURES, toolCalls: 5 } })
    expect(hiddenLines(facts)[0]).toBe(
      `${AUTOMATIC} Resume #2 of task bg_aaaaaaaa (find it): completed. This run: 0 tool calls, 0 tokens, $0.0000; in all: 5 tool calls, 0 tokens, $0.0000.`,
    )
  })

  test("the notification of a failure has the reason, note, todos, files and the text so far", () => {
    const reason = { code: "provider", text: "no such\nluck" } as const
    const outcome = outcomeOf({
      reason,
      note: "Cut short.",
      openTodos: 2,
      filesChanged: ["a\n.ts"],
      meanwhile: { files: ["b\n", "c"], more: 2 },
    })
    expect(hiddenLines(newsOf(ended("error", { outcome }), { answer: "half" })).slice(0, 10)).toEqual([
      `${AUTOMATIC} Task bg_aaaaaaaa: error. ${USED}`,
      "Reason: no such luck",
      "Note: Cut short.",
      "Note: the agent left 2 of its todos open.",
      "Files changed: a .ts",
      "Changed in the folder meanwhile, perhaps by others: b, c and 2 more",
      "To go on: launch the task again with another `model`, and tell the agent what is done already.",
      "Its whole text so far:",
      "<task_output>",
      "half",
    ])
  })

  test("the notification of a failure offers a resume where one is possible, and a new launch otherwise", () => {
    const outcome = outcomeOf({ reason: { code: "silence", text: "no luck" } })
    const told = (resumable?: readonly string[]) =>
      compose(newsOf(ended("error", { outcome })), { notifyAnswerChars: 0, development: false, resumable }).hidden
    const resume = 'To go on: superagents_task(resume="bg_aaaaaaaa", prompt) asks it again; it remembers its work.'
    const anew = "To go on: launch the task again, and tell the agent what is done already."
    expect([told(["completed", "error"]).includes(resume), told(["completed", "error"]).includes(anew)]).toEqual([
      true,
      false,
    ])
    for (const resumable of [undefined, [], ["completed"]]) expect(told(resumable)).toContain(anew)
  })

  test("the notification of a run without an answer shows its last thoughts and its earlier text", () => {
    const facts = newsOf(ended("completed", { outcome: outcomeOf({ thought: "I should stop" }) }), { answer: "I look" })
    const { visible, hidden } = compose(facts, { notifyAnswerChars: 100, development: false })
    expect(visible).toMatch(/^⊖ \*\*Agent ".*" ended without an answer after /)
    expect(hidden).toContain(
      [
        "It ended without an answer: its last message holds no text. The end of what it thought there:",
        '<task_reasoning id="bg_aaaaaaaa">',
        "I should stop",
        "</task_reasoning>",
        "Its whole earlier text:",
        "<task_output>",
        "I look",
      ].join("\n"),
    )
  })

  test("the notification of a cancel by the parent itself is a single line", () => {
    const reason = { code: "cancelled", text: "It was cancelled by the agent that launched it." } as const
    const task = (generation: number) => ended("cancelled", { outcome: outcomeOf({ reason }), run: { generation } })
    const notice = composed(newsOf(task(0), { answer: "half", running: [other] }))
    expect(notice.hidden.split("\n")).toEqual([`${AUTOMATIC} Task bg_aaaaaaaa: cancelled, by your own call.`])
    expect([notice.handsOver, isNotice(notice.hidden)]).toEqual([false, false])
    expect(hiddenLines(newsOf(task(1)))).toEqual([
      `${AUTOMATIC} Resume #1 of task bg_aaaaaaaa (find it): cancelled, by your own call.`,
    ])
  })

  test("the notification of a cancel by somebody else gives the reason like any other end", () => {
    const outcome = outcomeOf({ reason: { code: "aborted", text: "The user stopped it." } })
    expect(hiddenLines(newsOf(ended("cancelled", { outcome }))).slice(0, 2)).toEqual([
      `${AUTOMATIC} Task bg_aaaaaaaa: cancelled. ${USED}`,
      "Reason: The user stopped it.",
    ])
  })

  test("a notification can be composed for a task that has neither outcome nor delivery", () => {
    const task = ended("completed", { outcome: undefined, delivery: { state: "none" } })
    expect(composed(newsOf(task)).visible).toContain("Task Progress: 0/0")
    expect(composed(newsOf(task)).hidden).toContain("\nAll 3 tasks finished.\n")
  })
})

describe("a notification before another", () => {
  const runs = newsOf(ended("completed"), { answer: "found\nStill running: x\n1\n2\n3", running: [other, third] })

  test("an earlier notification loses only the lines about running tasks when the next one follows", () => {
    const { hidden } = composed(runs)
    const lines = hidden.split("\n")
    expect(isNotice(hidden)).toBe(true)
    expect(withoutRunning(hidden).split("\n")).toEqual(lines.slice(0, -4))
    expect(lines.at(-4)).toMatch(/^Still running: bg_bbbbbbbb/)
  })

  test("an earlier notification loses its line of tasks that ended meanwhile and were reported next", () => {
    const both = composed({ ...runs, pendingTasks: [other] }).hidden
    expect(withoutRunning(both)).toBe(withoutRunning(composed(runs).hidden))
    const { hidden } = composed({ ...runs, running: [], pendingTasks: [other] })
    expect(hidden.split("\n").slice(-4)).toEqual([
      "Also ended, messages follow: bg_bbbbbbbb (Write findings)",
      ...WAITING_HINT,
    ])
    expect(withoutRunning(hidden)).toBe(withoutRunning(both))
  })

  test("an earlier notification stays as it is where no other task was running", () => {
    const { hidden } = composed(newsOf(ended("completed"), { answer: "found" }))
    expect(withoutRunning(hidden)).toBe(hidden)
    expect(isNotice(composed(newsOf(ended("error", { run: { generation: 3 } }))).hidden)).toBe(true)
  })

  test("a text counts as a notification of an end only by its beginning", () => {
    expect(isNotice("Task bg_aaaaaaaa: completed.")).toBe(false)
    expect(isNotice(`${AUTOMATIC} Your agent asks.`)).toBe(false)
  })
})

describe("the answer in a notification", () => {
  const delivered = (answer: string | undefined, notifyAnswerChars?: number, more: Parameters<typeof ended>[1] = {}) =>
    composed(newsOf(ended("completed", more), { answer }), notifyAnswerChars)

  test("an answer up to the limit is sent whole in the notification and counts as fetched", () => {
    const notice = delivered("x".repeat(4000))
    expect(notice.hidden).toContain(`\n${"x".repeat(4000)}\n</task_output>\n`)
    expect(notice.handsOver).toBe(true)
    expect(notice.hidden).not.toContain("Not fetched yet")
  })

  test("a notification shows the first 1,000 characters of a longer answer and the call that reads on", () => {
    const notice = delivered(`${"x".repeat(1000)}${"y".repeat(3001)}`)
    expect(notice.hidden).toContain(
      'Its answer has 4,001 characters, of which these are the first 1,000; superagents_output(task_id="bg_aaaaaaaa", offset=1000) reads on:\n',
    )
    expect(notice.hidden).toContain(`\n${"x".repeat(1000)}\n</task_output>\n`)
    expect(notice.hidden).toContain("\nNot fetched yet: bg_aaaaaaaa (find it)\n")
    expect(notice.handsOver).toBe(false)
  })

  test("the beginning of an answer in a notification is no longer than the option allows", () => {
    expect(delivered("x".repeat(600), 500).hidden).toContain("offset=500) reads on:")
  })

  test("a notification has no answer where the option is 0 or the answer could not be read", () => {
    for (const notice of [delivered("found", 0), delivered(undefined)]) {
      expect(notice.hidden.split("\n").slice(1)).toEqual(["Not fetched yet: bg_aaaaaaaa (find it)", ...DONE_HINT])
      expect(notice.handsOver).toBe(false)
    }
  })

  test("an answer is not read if it was fetched already or the parent cancelled the task itself", () => {
    const cancelledBy = (code: "cancelled" | "aborted") =>
      ended("cancelled", { outcome: outcomeOf({ reason: { code, text: "It was stopped." } }) })
    expect(wantsAnswer(ended("completed"))).toBe(true)
    expect(wantsAnswer(cancelledBy("aborted"))).toBe(true)
    expect(wantsAnswer(ended("completed", { retrievedAt: 1 }))).toBe(false)
    expect(wantsAnswer(cancelledBy("cancelled"))).toBe(false)
  })

  test("a notification says that the agent wrote no text, and then nothing is left to fetch", () => {
    const notice = delivered("")
    expect(notice.hidden).toContain("\nThe agent ended without any text.\nAll ")
    expect(notice.handsOver).toBe(true)
    expect(composed(newsOf(ended("error"), { answer: "" })).hidden).toContain("\nIt had written no text.\n")
  })

  test("a notification says that the answer was deleted together with its session", () => {
    const task = ended("completed")
    const notice = composed({ ...newsOf(task), answer: { text: "", gone: true } })
    expect(notice.hidden).toContain("\nIts session was deleted, and what it had written with it.\nAll ")
  })

  test("a notification does not repeat an answer that was fetched before the message was sent", () => {
    const notice = delivered("found", 4000, { retrievedAt: 1 })
    expect(notice.hidden).toContain("\nYou have fetched its answer already.\nAll ")
    expect(notice.hidden).not.toContain("found")
    expect(notice.handsOver).toBe(false)
  })

  test.each(["</task_output>", "</TASK_OUTPUT >", "<\n/task_output\n>", '<task_output id="bg_aaaaaaaa">'])(
    "an answer in a notification cannot close its own tags with %j",
    (tag) => {
      for (const text of [`before ${tag} after`, `${tag}${"x".repeat(5000)}`])
        expect(delivered(text).hidden.match(/<\s*\/?\s*task_output/gi)).toHaveLength(2)
    },
  )
})

describe("a toast", () => {
  test("a toast announces the launch of a task and the start of a resume", () => {
    expect(launchToast(taskOf())).toEqual({
      title: "Background agent launched",
      message: "find it (general)",
      variant: "info",
    })
    expect(launchToast(taskOf({ run: { generation: 2 } })).title).toBe("Resume #2 started")
  })

  test("a toast announces the end of a task with its reason", () => {
    const reason = { code: "aborted", text: "It was stopped." } as const
    expect(endToast(ended("error", { outcome: undefined })).message).toBe("find it")
    expect(endToast(ended("completed"))).toEqual({
      title: "Background agent finished",
      message: "find it in 12.3s",
      variant: "success",
    })
    expect(endToast(ended("error"))).toEqual({
      title: "Background agent failed",
      message: "find it",
      variant: "error",
    })
    expect(endToast(ended("cancelled", { outcome: outcomeOf({ reason }) }))).toEqual({
      title: "Background agent cancelled",
      message: "find it: It was stopped.",
      variant: "warning",
    })
  })

  test("toasts of several events are combined, one for each kind", () => {
    const launched = ["a", "b", "c", "d", "e"].map((description) => launchToast(taskOf({ description })))
    const [one] = launched.splice(4)
    expect(summarize([])).toEqual([])
    expect(summarize([endToast(ended("completed")), ...launched.slice(0, 2)])).toEqual([
      endToast(ended("completed")),
      { title: "2 × Background agent launched", message: "a (general), b (general)", variant: "info" },
    ])
    expect(summarize(launched)[0]?.message).toBe("a (general), b (general), c (general) and 1 more")
    expect(summarize(one ? [...launched, one] : [])[0]?.message).toMatch(/ and 2 more$/)
  })

  test("a toast announces that a background agent asks for permission or asks a question", () => {
    expect(askToast(taskOf(), askOf()).title).toBe("A background agent asks for permission")
    expect(askToast(taskOf(), askOf({ kind: "question", what: "Which?" }))).toEqual({
      title: "A background agent asks a question",
      message: "find it: Which?",
      variant: "warning",
    })
  })

  test("a toast is a single line, whatever a child or its provider wrote", () => {
    const evil = "a\n\u001b[2Jb"
    const task = { description: evil, agent: evil, outcome: outcomeOf({ reason: { code: "provider", text: evil } }) }
    const toasts = [launchToast(taskOf(task)), endToast(ended("completed", task)), endToast(ended("error", task))]
    for (const { message } of [...toasts, askToast(taskOf(task), askOf({ what: evil }))])
      expect([...message].every((letter) => letter >= " ")).toBe(true)
  })
})
