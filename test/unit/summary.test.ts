import { describe, expect, test } from "vitest"
import { classify } from "../../src/core/outcome.ts"
import { NO_RECEIPT } from "../../src/core/receipt.ts"
import { spendingRules, spentText } from "../../src/core/spending.ts"
import { isUnmerged, NO_USAGE, type Reason, type Task, type Work } from "../../src/core/task.ts"
import { summaryOf as summaryWith } from "../../src/present/summary.ts"
import { groupKindOf } from "../support/groups.ts"
import { outcomeOf, taskOf } from "../support/tasks.ts"

const summaryOf = (task: Task, resumable?: readonly string[], allowModelOverride?: boolean) =>
  summaryWith(task, groupKindOf(task), { resumable, allowModelOverride })

const ended = (work: Partial<Work>) =>
  taskOf({
    status: "completed",
    outcome: outcomeOf({
      work: { files: ["a"], moreFiles: 0, added: 1200, removed: 7, submodules: [], ...work },
    }),
  })

const MODEL = " with another `model`"
const COST = " with a larger `max_cost`"
const TIMEOUT = " with a larger `timeout`"
const RESUME = 'To go on: superagents_task(resume="bg_aaaaaaaa", prompt) asks it again'
const RESUMED = `${RESUME}; it remembers its work.`
const MORE = `${RESUME} with a new \`max_cost\`; it remembers its work.`
const OR_MODEL = `${RESUME}; or launch it again${MODEL}.`
const NOT_YET = 'Not merged yet: superagents_task(merge="bg_aaaaaaaa") brings it into your files.'

/** Reason of a run that stopped at the limit of this option. */
const spent = (option: string): string => {
  const rule = spendingRules({}).find(({ source }) => source === `option ${option}`)
  return `Stopped: ${rule && spentText(rule, { ...NO_USAGE, input: 110, cost: 1.1 }, 1)}.`
}

test("a failed map names the resume that reruns invalid items, and a try names its group's merge", () => {
  const of = { of: "bg_map", nth: 0, run: 0, caller: "p", under: "p" }
  const team = { kind: "each", prompt: "", total: 2, timeout: 0, file: "/rows" } as const
  const said = (task: object) => {
    const reason = { code: "items", text: "1 of 2 items failed." } as const
    return summaryOf(taskOf({ status: "error", outcome: outcomeOf({ reason }), ...task })).at(-1)
  }
  const advice = (id: string) => `To go on: superagents_task(resume="${id}") runs the items that are not valid.`
  expect(said({ group: team })).toBe(advice("bg_aaaaaaaa"))
  // Its map may still be at work, and a resume is refused until then.
  expect(said({ member: { kind: "each", ...of } })).toBe(
    'Once bg_map has ended, superagents_task(resume="bg_map") runs the items that are not valid.',
  )
  const spent = { code: "budget", text: "It spent $0.95 of $1.00 (argument max_cost, or option agents)." } as const
  expect(said({ group: team, outcome: outcomeOf({ reason: spent }) })).toBe(
    'To go on: superagents_task(resume="bg_aaaaaaaa", max_cost) runs the items that are not valid.',
  )
  expect(said({ group: team, status: "cancelled" })).toBe("Reason: 1 of 2 items failed.")
  const part = { kind: "tries", ...of } as const
  expect(said({ member: part })).toBe("Reason: 1 of 2 items failed.")
  const aTry = { ...ended({}), member: part }
  expect(isUnmerged(aTry, groupKindOf(aTry))).toBe(false)
  expect(summaryOf(aTry).at(-1)).toBe(
    'Of several tries the one that passed is merged: superagents_task(merge="bg_map").',
  )
})

test("a resume that solves a conflict names what its work is judged by, and a merge only where it is to be asked for", () => {
  const said = (place: object, run: object) => {
    const task = ended({ merge: { kind: "conflict", files: ["a"] } })
    const changed = { ...task, place: { kind: "worktree", ...place }, run: { ...task.run, ...run } } as Task
    return summaryOf(changed, ["completed"]).at(-1)
  }
  const resume = 'Resume it with superagents_task(resume="bg_aaaaaaaa", prompt'
  expect(said({}, { check: "npm test", schema: "{}" })).toContain(`${resume}, schema, check): `)
  expect(said({}, {})).toMatch(/conflict marks to solve; then merge it\.$/)
  expect(said({ merge: true }, { check: "npm test" })).toContain(`${resume}): `)
  expect(said({ merge: true }, {})).toMatch(/conflict marks to solve\.$/)
})

test("tries that have all failed are followed by advice, since a resume has nothing to run", () => {
  const group = { kind: "tries", prompt: "", count: 2, timeout: 0 } as const
  const reason = { code: "check", text: "None of 2 tries passed." } as const
  const task = taskOf({ status: "error", group, outcome: outcomeOf({ reason }) })
  expect(summaryOf(task).at(-1)).toBe("To go on: launch a new task with another prompt, other models or higher limits.")
})

test("tries whose winner failed in a later run are followed by the resume that asks it again, whatever the reason", () => {
  const group = { kind: "tries", prompt: "", count: 2, timeout: 0, again: "bg_part0001" } as const
  for (const code of ["check", "provider", "timeout", "interrupted"] as const) {
    const task = taskOf({ status: "error", group, outcome: outcomeOf({ reason: { code, text: "no" } }) })
    expect(summaryOf(task).at(-1)).toBe(
      'To go on: superagents_task(resume="bg_aaaaaaaa", prompt) asks the try that had won again.',
    )
  }
})

test("a whole fork that its provider ended is launched again as another fork, since it takes no other model", () => {
  const fork = { tokens: 1, messages: 1, whole: true } as never
  const outcome = outcomeOf({ reason: { code: "provider", text: "no" } })
  const task = taskOf({ status: "error", fork, outcome, run: { startedAt: 1 } })
  const other = " with `fork: true` and another `model`"
  expect(summaryOf(task).at(-1)).toContain(`launch the task again${other}, and tell`)
  expect(summaryOf(task, ["error"]).at(-1)).toBe(`${RESUME}; or launch it again${other}.`)
  expect(summaryOf(task, ["error"], false).at(-1)).toBe(RESUMED)
})

test.each<[Reason["code"], string, string, string]>([
  ["timeout", "late", "To go on: launch the task again, and tell the agent what is done already.", RESUMED],
  [
    "timeout",
    "Stopped at its time limit of 15s (its timeout argument).",
    `To go on: launch the task again${TIMEOUT}, and tell the agent what is done already.`,
    `${RESUME} with a new \`timeout\`; it remembers its work.`,
  ],
  ["limit", "full", `To go on: launch the task again${MODEL}, and tell the agent what is done already.`, ""],
  ["provider", "no", `To go on: launch the task again${MODEL}, and tell the agent what is done already.`, OR_MODEL],
  [
    "budget",
    "(argument max_cost, or option agents)",
    `To go on: launch the task again${COST}, and tell the agent what is done already.`,
    MORE,
  ],
  ["budget", spent("maxCostPerTask"), "To go on: launch the task again, and tell the agent what is done already.", ""],
  [
    "tokens",
    spent("maxTokensPerTask"),
    "To go on: launch the task again, and tell the agent what is done already.",
    RESUMED,
  ],
  ["budget", spent("maxTokensPerSession"), "Only the user can raise this limit.", ""],
  ["budget", spent("maxCostPerSession"), "Only the user can raise this limit.", ""],
  ["budget", spent("maxCostPerDay"), "Only the user can raise this limit.", ""],
  ["purse", "over", "Only the user can raise this limit.", ""],
  ["place", "no git", "It did nothing. Correct that, then launch it again.", ""],
])("a run that failed by %s (%s) is given advice that can succeed", (code, text, anew, resumed) => {
  const task = taskOf({ status: "error", outcome: outcomeOf({ reason: { code, text } }), run: { startedAt: 1 } })
  expect(summaryOf(task).at(-1)).toBe(anew)
  expect(summaryOf(task, ["error"]).at(-1)).toBe(resumed || anew)
  const ownModel = summaryOf(task, ["error"], false).at(-1)
  expect(ownModel).toBe(resumed === OR_MODEL ? RESUMED : (resumed || anew).replace(MODEL, ""))
  expect(ownModel).not.toContain("model")
})

test("the resume of a run that was judged names the arguments without which its next run is not", () => {
  const reason = { code: "schema", text: "Its answer is not valid." } as const
  const said = (run: object, place?: object) =>
    summaryOf(taskOf({ status: "error", outcome: outcomeOf({ reason }), run: { startedAt: 1, ...run }, ...place }), [
      "error",
    ])
  const resume = (judged: string) =>
    `To go on: superagents_task(resume="bg_aaaaaaaa", prompt${judged}) asks it again; it remembers its work.`
  expect(said({ schema: {} }).at(-1)).toBe(resume(", schema"))
  expect(said({ check: "npm test", schema: {} }).at(-1)).toBe(resume(", schema, check"))
  // A check before an automatic merge is kept.
  const place = { kind: "worktree", folder: "/here", merge: true }
  expect(said({ check: "npm test" }, { place }).at(-1)).toBe(resume(""))
})

test.each([
  "The work of task bg_aaaaaaaa is no longer kept in this repository, so it cannot be resumed. Start a new superagents_task instead.",
  "The rows of its items in /rows are gone, or not whole: nobody knows what is missing. Launch a new task.",
])("a reason that says how to go on is followed by no other advice: %s", (text) => {
  const team = { kind: "each", prompt: "", total: 2, timeout: 0, file: "/rows" } as const
  const ends = { status: "error", outcome: outcomeOf({ reason: { code: "place", text } }) } as const
  for (const task of [taskOf({ ...ends, run: { generation: 1 } }), taskOf({ ...ends, group: team })])
    expect(summaryOf(task, ["error"])).toEqual([`Reason: ${text}`])
})

test("a map that used up the budget of its task cannot go on by a resume, which the budget would refuse", () => {
  const team = { kind: "each", prompt: "", total: 2, timeout: 0, file: "/rows" } as const
  const reason = { code: "budget", text: spent("maxCostPerTask") } as const
  const task = taskOf({ status: "error", group: team, outcome: outcomeOf({ reason }) })
  expect(summaryOf(task).at(-1)).toBe("Only the user can raise this limit.")
})

test("a run that never began has done nothing, and a later run without a place is resumed", () => {
  const reason = { code: "provider", text: "Not begun: no credit" } as const
  const unbegun = taskOf({ status: "error", outcome: outcomeOf({ reason }), run: { startedAt: undefined } })
  expect(summaryOf(unbegun, ["error"]).at(-1)).toBe(`It did nothing. To go on: launch it again${MODEL}.`)
  const place = { code: "place", text: "no git" } as const
  const later = taskOf({ status: "error", outcome: outcomeOf({ reason: place }), run: { generation: 1 } })
  expect(summaryOf(later, ["error"]).at(-1)).toBe(RESUMED.replace("To go on:", "Correct that, then"))
  expect(summaryOf(later).at(-1)).toBe("This run did nothing. Correct that, then launch it again.")
})

test("unmerged work of a failed task is not called good, and a new task is not told of it", () => {
  const { outcome } = ended({})
  const reason = { code: "check", text: "exit code 1" } as const
  const place = { kind: "worktree", folder: "/w", merge: true }
  expect(
    summaryOf(taskOf({ status: "error", place, outcome: { ...outcomeOf(), ...outcome, reason } })).slice(-2),
  ).toEqual([
    'Not merged, and it did not complete: superagents_task(merge="bg_aaaaaaaa") brings its changes into your files all the same.',
    "To go on: launch the task again.",
  ])
})

describe("a summary of worktree work", () => {
  test("a worktree task's summary has no changes that were made in the parent's folder meanwhile", () => {
    const meanwhile = { files: ["b"], more: 0 }
    expect(summaryOf(taskOf({ status: "completed", outcome: outcomeOf({ meanwhile }) }))).toEqual([
      "Changed in the folder meanwhile, perhaps by others: b",
    ])
    const { outcome } = ended({})
    expect(summaryOf(taskOf({ outcome: outcomeOf({ ...outcome, meanwhile }) })).join()).not.toContain("meanwhile")
  })

  test.each<[string, Partial<Work>, string[], unmerged: boolean]>([
    ["none", { files: [] }, ["Changes: none."], false],
    ["not merged", {}, ["Changes: 1 file, +1,200 −7: a", NOT_YET], true],
    ["much of it", { files: ["a", "b <x>"], moreFiles: 3 }, ["Changes: 5 files, +1,200 −7: a, b ‹x>", NOT_YET], true],
    [
      "merged, but for submodules, and held",
      {
        merge: { kind: "merged", files: ["a"] },
        submodules: ["vendor/lib"],
        held: { folder: "/w/bg_aaaaaaaa", because: ["vendor/lib"] },
      },
      [
        "Changes: 1 file, +1,200 −7: a",
        "Note: submodules are not merged; it changed vendor/lib.",
        "Note: its folder is kept, because git cannot store vendor/lib: /w/bg_aaaaaaaa",
        "Merged into your files, uncommitted.",
      ],
      false,
    ],
    [
      "merged, but for what it did around submodules, which stays unmerged",
      { merge: { kind: "merged", files: ["a"], leftOut: [".gitmodules", "vendor/lib"] } },
      [
        "Changes: 1 file, +1,200 −7: a",
        "Merged into your files, uncommitted, but for what it did around submodules and git folders (.gitmodules, vendor/lib): that is kept, and stays out.",
      ],
      true,
    ],
    [
      "kept in a way that has to be known",
      { notes: ["Its folder could not\nbe removed."] },
      ["Changes: 1 file, +1,200 −7: a", "Note: Its folder could not be removed.", NOT_YET],
      true,
    ],
    [
      "a conflict that a resume does not end",
      { merge: { kind: "conflict", files: ["a"], text: "Git is told not to look at a." } },
      [
        "Changes: 1 file, +1,200 −7: a",
        "Not merged, and nothing was touched: conflict in a. Git is told not to look at a.",
      ],
      true,
    ],
    [
      "a conflict of a merge that had been cut off",
      { merge: { kind: "conflict", files: ["a"], text: "Move it.", cutOff: true } },
      [
        "Changes: 1 file, +1,200 −7: a",
        "Its merge was cut off, and the rest of it conflicts in a: each file is as it was, or as it was merged. Move it.",
      ],
      true,
    ],
    [
      "there already",
      { merge: { kind: "nothing", files: [] } },
      [
        "Changes: 1 file, +1,200 −7: a",
        'Your files have all of it already, or had it until they were changed. superagents_output(task_id="bg_aaaaaaaa") shows it.',
      ],
      false,
    ],
    [
      "a conflict",
      { merge: { kind: "conflict", files: ["a"] } },
      ["Changes: 1 file, +1,200 −7: a", expect.stringMatching(/^Not merged, .*conflict in a\. Resume it with/)],
      true,
    ],
    [
      "refused",
      { merge: { kind: "refused", files: [], text: "in the middle\nof a rebase" } },
      ["Changes: 1 file, +1,200 −7: a", `${NOT_YET} It was not merged by itself: in the middle of a rebase`],
      true,
    ],
    [
      "refused without a word",
      { merge: { kind: "refused", files: [] } },
      ["Changes: 1 file, +1,200 −7: a", `${NOT_YET} It was not merged by itself: `],
      true,
    ],
  ])("a summary describes a worktree's work correctly when it is: %s", (_what, work, lines, unmerged) => {
    expect(summaryOf(ended(work), ["completed"])).toEqual(lines)
    expect(isUnmerged(ended(work))).toBe(unmerged)
  })

  test("a conflict in a task that may not be resumed is solved by hand", () => {
    const merge = { kind: "conflict", files: ["a"] } as const
    const failed = { ...ended({ merge }), status: "error" } as const
    const byHand =
      'Not merged, and nothing was touched: conflict in a. Bring its changes in by hand, as superagents_output(task_id="bg_aaaaaaaa") shows them.'
    expect(summaryOf(failed, ["completed"])[1]).toBe(byHand)
    expect(summaryOf(failed, ["error"])[1]).toContain('Resume it with superagents_task(resume="bg_aaaaaaaa", prompt):')
    const member = { kind: "each", of: "bg_map", nth: 0, run: 0, caller: "p", under: "p" } as const
    expect(summaryOf({ ...ended({ merge }), member }, ["completed"])[1]).toBe(byHand)
  })

  test("a summary lists open todos together with the receipt", () => {
    const receipt = { commands: 2, failed: 1, cut: 0, latest: [] }
    const task = taskOf({ outcome: outcomeOf({ receipt, openTodos: 2 }) })
    expect(summaryOf(task)).toEqual(["Note: the agent left 2 of its todos open.", "Receipt: 2 commands (1 failed)"])
  })

  test("a task whose worktree setup failed shows the end of the setup's output", () => {
    const text = `The option worktree.setup ended with exit code 1. The end of its output:\n${"line\n".repeat(200)}cause`
    const told = (code: "place" | "host") => summaryOf(taskOf({ outcome: outcomeOf({ reason: { code, text } }) }))[0]
    expect(told("place")).toMatch(/^Reason: The option .* cause$/)
    expect(told("host")).toHaveLength("Reason: ".length + 500)
  })

  test("a task that never began shows only the advice for that case", () => {
    const ending = classify([], "orphaned")
    const [line, ...more] = summaryOf(taskOf({ status: "error", outcome: outcomeOf({ reason: ending?.reason }) }))
    expect(line).toContain("before it began: it was interrupted. Launch it again if it is still needed.")
    expect(more).toEqual([])
  })
})

describe("a summary of models and groups", () => {
  test("a summary lists each fallback model with the step and the reason of the change", () => {
    const switches = [{ model: "p/two", step: 4, why: "limit until 07:12" }]
    const told = (model?: { provider: string; id: string }) =>
      summaryOf(taskOf({ model, status: "completed", run: { switches }, outcome: outcomeOf() } as object))
    expect(told({ provider: "p", id: "one" })).toContain("Model: p/one, then p/two from step 4 (limit until 07:12).")
    expect(told()).toContain("Model: its own, then p/two from step 4 (limit until 07:12).")
  })

  test("a summary of a run that went round its models names the first changes and the last", () => {
    const change = (_: unknown, at: number) => ({ model: `p/${at + 1}`, step: 1, why: "limit" })
    const told = (length: number) => {
      const run = { switches: Array.from({ length }, change) }
      return summaryOf(taskOf({ status: "completed", run, outcome: outcomeOf() } as object))
    }
    const then = (at: number) => `then p/${at} from step 1 (limit)`
    const first = ["Model: its own", then(1), then(2), then(3)]
    expect(told(4)).toContain(`${[...first, then(4)].join(", ")}.`)
    expect(told(9)).toContain(`${[...first, "5 more changes", then(9)].join(", ")}.`)
  })

  test("a summary describes the result of tries in one line", () => {
    const rows = [
      { how: "check did not pass (exit code 1)", ms: 9, cost: 0.01 },
      { model: "p/two", how: "won", ms: 9, cost: 0.02 },
    ]
    const team = { kind: "tries", cost: 0.03, won: "p/two", rows } as const
    expect(summaryOf(taskOf({ status: "completed", outcome: outcomeOf({ group: team }) }))).toEqual([
      expect.stringContaining("won by p/two"),
    ])
  })
})

test("the receipt of a check with a guard says whether the guard held", () => {
  const check = { command: "npm test", passed: true, runs: 1, how: "exit code 0" }
  const told = (more: object, guard: readonly string[] | undefined = ["test/**"]) =>
    summaryOf(
      taskOf({ run: { guard }, outcome: outcomeOf({ receipt: { ...NO_RECEIPT, check: { ...check, ...more } } }) }),
    )
  expect(told({})).toEqual(["Receipt: check `npm test` passed (exit code 0); guard: held"])
  expect(told({ passed: false, guarded: ["test/a"] })[0]).toMatch(/; guard: broken$/)
  expect(told({ runs: 0 })[0]).not.toContain("guard")
  expect(summaryOf(taskOf({ outcome: outcomeOf({ receipt: { ...NO_RECEIPT, check } }) }))[0]).not.toContain("guard")
})
