import { describe, expect, test } from "vitest"
import { compose } from "../../src/delivery/compose.ts"
import { askToast, endToast, launchToast, summarize } from "../../src/delivery/toast.ts"
import { askOf, deliveryOf, outcomeOf, taskOf } from "../support/tasks.ts"

const ended = (status: "completed" | "error" | "cancelled", more: Parameters<typeof taskOf>[0] = {}) =>
  taskOf({
    status,
    outcome: outcomeOf(),
    delivery: deliveryOf({ done: 2, total: 3, running: 1 }),
    ...more,
    run: { startedAt: 1000, endedAt: 13_300, ...more.run },
  })

describe("what the user reads", () => {
  test.each([
    ["completed", 0, '✓ **Agent "find it" finished in 12.3s.**\nTask Progress: 2/3'],
    ["error", 0, '✗ **Agent "find it" failed in 12.3s.**\nTask Progress: 2/3'],
    ["cancelled", 0, '⊘ **Agent "find it" cancelled after 12.3s.**\nTask Progress: 2/3'],
    ["completed", 1, "✓ **Resume #1 completed in 12.3s.**\nTask Progress: 2/3"],
    ["error", 2, "✗ **Resume #2 failed in 12.3s.**\nTask Progress: 2/3"],
    ["cancelled", 3, "⊘ **Resume #3 cancelled after 12.3s.**\nTask Progress: 2/3"],
  ] as const)("of a run that is %s, generation %i", (status, generation, text) => {
    expect(compose(ended(status, { run: { generation } }), "", false).visible).toBe(text)
  })

  test("ends with a mark in development", () => {
    expect(compose(ended("completed"), "", true).visible).toBe(
      '✓ **Agent "find it" finished in 12.3s.**\nTask Progress: 2/3\n[hint attached]',
    )
  })
})

describe("what only the model reads", () => {
  test("while other tasks run, to the letter", () => {
    expect(compose(ended("completed"), "It used 2 tool calls.", false).hidden).toBe(
      [
        "Task bg_aaaaaaaa: completed.",
        "It used 2 tool calls.",
        'If you need results immediately, use superagents_output(task_id="bg_aaaaaaaa").',
        "You can continue working or just say 'waiting' and halt.",
        "WATCH OUT for leftovers, you will likely WANT to wait for all agents to complete.",
      ].join("\n"),
    )
  })

  test("when all have ended, to the letter", () => {
    const delivery = deliveryOf({ done: 3, total: 3, running: 0 })
    expect(compose(ended("completed", { delivery }), "", false).hidden).toBe(
      [
        "Task bg_aaaaaaaa: completed.",
        "All 3 tasks finished.",
        "Use superagents_output tools to see agent responses.",
      ].join("\n"),
    )
  })

  test("has reason, note and open todos", () => {
    const reason = { code: "provider", text: "no such luck" } as const
    const outcome = outcomeOf({ reason, note: "Cut short.", openTodos: 2 })
    expect(compose(ended("error", { outcome }), "", false).hidden.split("\n").slice(0, 4)).toEqual([
      "Task bg_aaaaaaaa: error.",
      "Reason: no such luck",
      "Note: Cut short.",
      "Note: the agent left 2 of its todos open.",
    ])
  })

  test("holds up where there is nothing to go by", () => {
    const task = ended("completed", { outcome: undefined, delivery: { state: "none" } })
    expect(compose(task, "", false).visible).toContain("Task Progress: 0/0")
    expect(compose(task, "", false).hidden).toContain("Task bg_aaaaaaaa: completed.\nAll 0 tasks finished.")
  })
})

describe("a toast", () => {
  test("tells of a launch and of a resume", () => {
    expect(launchToast(taskOf())).toEqual({
      title: "Background agent launched",
      message: "find it (general)",
      variant: "info",
    })
    expect(launchToast(taskOf({ run: { generation: 2 } })).title).toBe("Resume #2 started")
  })

  test("tells of an end, with its reason", () => {
    const reason = { code: "aborted", text: "It was stopped." } as const
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

  test("tells of several at once, each kind apart", () => {
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

  test("tells of a question", () => {
    expect(askToast(taskOf(), askOf()).title).toBe("A background agent asks for permission")
    expect(askToast(taskOf(), askOf({ kind: "question", what: "Which?" }))).toEqual({
      title: "A background agent asks a question",
      message: "find it: Which?",
      variant: "warning",
    })
  })
})
