import fc from "fast-check"
import { describe, expect, test } from "vitest"
import type { Ask, Outcome, Progress, Task } from "../../../src/core/task.ts"
import { NO_FIGURES, NO_USAGE } from "../../../src/core/task.ts"
import {
  badgeOf,
  barOf,
  belowOf,
  cut,
  inOrder,
  MOST_ROWS,
  type ObservedTask,
  readable,
  rowOf,
  sectionOf,
  stateText,
  timeOf,
  withValues,
} from "../../../src/features/terminal/view-model.ts"
import { outcomeOf } from "../../support/tasks.ts"

const START = 1_000_000

type Given = Partial<Omit<Task, "run">> & { run?: Partial<Task["run"]> }

const columnsOf = (text: string) =>
  [...new Intl.Segmenter().segment(text)].reduce(
    (sum, { segment }) => sum + (/[　-鿿가-힣𠀀]|\p{Emoji_Presentation}/u.test(segment) ? 2 : 1),
    0,
  )

let made = 0
const task = ({ run, ...given }: Given = {}): Task => {
  const number = ++made
  return {
    id: `bg_${number}`,
    sessionID: `ses_${number}`,
    parentID: "ses_parent",
    parentMessageID: "msg_0",
    description: `task ${number}`,
    agent: "general",
    batch: "auto:bg_1",
    depth: 1,
    createdAt: 1,
    earlier: NO_FIGURES,
    fingerprint: "",
    status: "running",
    delivery: { state: "none" },
    ...given,
    run: {
      generation: 0,
      promptID: "msg_1",
      createdAt: START,
      startedAt: START,
      timeout: 0,
      ...run,
    },
  }
}

const progress = (given: Partial<Progress> = {}): Progress => ({
  toolCalls: 0,
  recentTools: [],
  lastText: "",
  lastSignAt: START,
  usage: NO_USAGE,
  asks: [],
  openCalls: 0,
  pendingCalls: 0,
  emptyAnswers: 0,
  ...given,
})

const ended = (given: Given = {}, ms = 12_345): Task =>
  task({
    status: "completed",
    outcome: {
      toolCalls: 7,
      recentTools: [],
      usage: { ...NO_USAGE, input: 12_000, output: 345, cost: 0.0123 },
      openTodos: 0,
      filesChanged: [],
      moreFiles: 0,
    },
    ...given,
    run: { endedAt: START + ms, ...given.run },
  })

const permission: Ask = {
  id: "per_1",
  sessionID: "ses_x",
  kind: "permission",
  what: "bash: rm -rf build",
  askedAt: START,
}

const seen = (one: Task, live?: Partial<Progress>): ObservedTask => ({ task: one, progress: live && progress(live) })
const row = (each: ObservedTask, now = START, all: readonly ObservedTask[] = [each]) => rowOf(each, all, now)

describe("the sidebar section", () => {
  test("the sidebar section is hidden when there is nothing to show", () => {
    expect(sectionOf([], START)).toBeUndefined()
  })

  test("the sidebar section says how many tasks run, or how many are done when none runs", () => {
    expect(sectionOf([seen(task(), {}), seen(ended())], START)?.summary).toBe("1 running")
    expect(sectionOf([seen(ended()), seen(ended())], START)?.summary).toBe("2 done")
    const failed = seen(ended({ status: "error" }))
    expect(sectionOf([seen(ended()), failed, failed], START)?.summary).toBe("1 done, 2 failed")
    expect(sectionOf([failed], START)?.summary).toBe("1 failed")
    const cancelled = seen(task({ status: "cancelled", run: { endedAt: START } }))
    expect(sectionOf([seen(ended()), cancelled, failed], START)?.summary).toBe("1 done, 1 failed, 1 cancelled")
  })

  test("the sidebar section lists running tasks by launch and then ended ones, the latest first", () => {
    const names = ["late", "early", "ended long ago", "just ended"]
    const given = [
      seen(ended({ description: "ended long ago" }, 1)),
      seen(task({ description: "late", run: { createdAt: START + 5 } }), {}),
      seen(ended({ description: "just ended" }, 500)),
      seen(task({ description: "early" }), {}),
    ]
    expect(inOrder(given).map((each) => each.task.description)).toEqual([names[1], names[0], names[3], names[2]])
  })

  test("the sidebar section says how many tasks do not fit", () => {
    const many = Array.from({ length: MOST_ROWS + 3 }, () => seen(ended()))
    const section = sectionOf(many, START)
    expect(section?.rows).toHaveLength(MOST_ROWS)
    expect(section?.more).toBe(3)
  })

  test("the sidebar section sums tokens and cost of ended and running tasks, including earlier runs", () => {
    const earlier = { toolCalls: 1, usage: { ...NO_USAGE, input: 600, cost: 0.007 } }
    const rows = [seen(ended({ earlier })), seen(task(), { usage: { ...NO_USAGE, input: 55, cost: 0.0007 } })]
    const section = sectionOf(rows, START)
    expect(section?.totals).toEqual(["13.0K tokens · $0.0200"])
  })

  test("the sidebar section shows totals against their limits, in lines that fit the sidebar", () => {
    const rows = [seen(task(), { usage: { ...NO_USAGE, input: 13_000, cost: 0.02 } })]
    const totals = (tokens: number, cost: number) => sectionOf(rows, START, { tokens, cost })?.totals
    expect(totals(0, 0.5)).toEqual(["13.0K tokens · $0.0200 of $0.50"])
    expect(totals(50_000, 0)).toEqual(["13.0K of 50.0K tokens · $0.0200"])
    expect(totals(50_000, 0.5)).toEqual(["13.0K of 50.0K tokens", "$0.0200 of $0.50"])
  })

  test("the sidebar totals include tasks below a session's own tasks, but not those of other sessions", () => {
    const cent = { usage: { ...NO_USAGE, cost: 0.01 } }
    const [top, other] = [task({ parentID: "ses_top" }), task({ parentID: "ses_other" })]
    const middle = task({ parentID: top.sessionID })
    const all = [top, other, middle, task({ parentID: middle.sessionID })].map((each) => seen(each, cent))
    expect(belowOf("ses_top", all)).toHaveLength(2)
    expect(belowOf(top.sessionID, all)).toHaveLength(1)
    expect(sectionOf(all.slice(0, 1), START, { tokens: 0, cost: 0 }, belowOf("ses_top", all))?.totals).toEqual([
      "0 tokens · $0.0300",
    ])
  })

  test("the sidebar totals include tasks that were cleared while a budget is on, and tasks below them", () => {
    const spent = (cost: number) =>
      ({ status: "completed", outcome: outcomeOf({ usage: { ...NO_USAGE, cost } }) }) as const
    const gone = seen(task({ ...spent(0.25), forgotten: true }))
    const below = seen(task({ ...spent(0.1), parentID: gone.task.sessionID }))
    const elsewhere = seen(task({ ...spent(4), forgotten: true, parentID: "ses_other" }))
    const here = seen(task(spent(0.01)))
    const others = belowOf("ses_parent", [here, below], [gone, elsewhere])
    expect(sectionOf([here], START, { tokens: 0, cost: 0.5 }, others)?.totals).toEqual(["0 tokens · $0.3600 of $0.50"])
  })

  test("the sidebar totals keep what a task on a host has cost before, at least, since its session here costs nothing", () => {
    const earlier = { toolCalls: 1, usage: { ...NO_USAGE, input: 600, cost: 2 } }
    const place = { kind: "big", folder: "/big", merge: false }
    const totals = (given: Given) => sectionOf([seen(task({ place, ...given }), {})], START)?.totals
    expect(totals({ earlier, status: "resumed" })).toEqual(["≥ 600 tokens · ≥ $2.00"])
    expect(totals({})).toEqual(["≥ 0 tokens · ≥ $0.0000"])
    expect(totals({ place: { ...place, kind: "worktree" } })).toEqual(["0 tokens · $0.0000"])
  })

  test("the sidebar totals are marked as lower bounds when OpenCode does not know the whole usage", () => {
    const usage = { ...NO_USAGE, input: 13_000, cost: 0.02, atLeast: true } as const
    const rows = [seen(task({ status: "error", outcome: outcomeOf({ usage }) }))]
    expect(sectionOf(rows, START, { tokens: 0, cost: 0.5 })?.totals).toEqual(["≥ 13.0K tokens · ≥ $0.0200 of $0.50"])
  })
})

describe("a task's row", () => {
  test("a task's row says which tasks it waits for, and that it is saying its last word", () => {
    const first = seen(task({ id: "bg_first" }), {})
    const waiting = seen(task({ run: { startedAt: undefined, after: ["bg_first", "bg_gone"] } }), {})
    expect(row(waiting, START, [first, waiting])).toMatchObject({ tone: "queued", icon: "○" })
    expect(row(waiting, START, [first, waiting]).detail).toContain("waiting for bg_first, bg_gone")
    const last = row(seen(task({ run: { lastWordAt: START } }), {}))
    expect(last).toMatchObject({ tone: "working" })
    expect(last.detail).toContain("saying its last word")
  })

  test("a queued task shows that its model is at a limit when another task is parked for it", () => {
    const model = { provider: "mock", id: "one" }
    const limit = { at: START, model: "mock/one", why: "429" }
    const parked = (given: object) => seen(task({ model, run: { parked: { ...limit, ...given } } }), {})
    const queued = (id: string) => seen(task({ model: { provider: "mock", id }, run: { startedAt: undefined } }), {})
    const detail = (id: string, given: object) => row(queued(id), START, [parked(given), queued(id)]).detail
    expect(detail("one", { until: START + 60_000 })).toMatch(
      /^waiting for mock\/one, which is at its limit \(until .+\)$/,
    )
    expect(detail("one", {})).toBe("waiting for mock/one (another task tests it first)")
    expect(detail("two", { until: START + 60_000 })).toBe("queued for a free slot")
    const dialog = stateText(queued("two"), [], START)
    expect(dialog).toBe("general, queued for a free slot")
  })

  test("hundreds of tasks at a provider's limit are looked at a few times for each row", () => {
    let looks = 0
    const counted = ({ run, ...given }: Task): ObservedTask =>
      seen(
        {
          ...given,
          get run() {
            looks++
            return run
          },
        },
        {},
      )
    const model = { provider: "mock", id: "one" }
    const limit = { at: START, model: "mock/one", why: "429" }
    const parked = (_: unknown, nth: number) => counted(task({ model, run: { parked: { ...limit, at: START + nth } } }))
    const queued = () => counted(task({ model, run: { startedAt: undefined } }))
    const all = [...Array.from({ length: 100 }, parked), ...Array.from({ length: 200 }, queued)]
    badgeOf(all, all)
    expect(looks).toBeLessThan(20 * all.length)
    looks = 0
    for (const each of all) row(each, START, all)
    expect(looks).toBeLessThan(40 * all.length)
  })

  test("a working task's row has a spinner, its time, calls, phase and last tool", () => {
    const each = seen(task({ description: "Look\n around" }), { toolCalls: 2, recentTools: ["glob", "grep"] })
    expect(row(each, START + 2900)).toMatchObject({
      tone: "working",
      icon: undefined,
      title: "Look around",
      facts: "2s",
      detail: "working · 2 calls · grep",
    })
  })

  test("the row of a task that asks something shows the question", () => {
    const each = seen(task(), { asks: [permission], recentTools: ["bash"] })
    expect(row(each)).toMatchObject({
      tone: "waiting",
      icon: "?",
      detail: "waiting for permission: bash: rm -rf build",
    })
  })

  test("a retrying task's row says the number of the attempt and the reason", () => {
    const each = seen(task(), { retry: { attempt: 3, message: "overloaded" } })
    expect(row(each).detail).toBe("retrying (3): overloaded")
  })

  test("a task's row contains no terminal control characters, whatever the agent and its provider say", () => {
    const description = "Look\u001b[2J around\u0007"
    const retry = { attempt: 1, message: "slow\u001b]0;x\u0007down" }
    const asks = [{ ...permission, what: "bash: ls\u001b[2J" }]
    expect(row(seen(task({ description }), { retry }))).toMatchObject({
      title: "Look [2J around",
      detail: "retrying (1): slow ]0;x down",
    })
    expect(row(seen(task(), { asks })).detail).toBe("waiting for permission: bash: ls [2J")
    const recentTools = ["look\u001b[2J\u0007"]
    expect(row(seen(task(), { recentTools })).detail).toBe("working · look [2J")
    const batch = "name:sweep\u001b[2J"
    const section = sectionOf([seen(task({ batch })), seen(task({ batch }))], START)
    expect(section?.batches).toEqual([{ label: "sweep [2J", done: 0, total: 2 }])
  })

  test("the state of a task with any agent's name contains no terminal control characters", () => {
    const each = seen(task({ agent: "gene\u001b]0;x\u0007ral" }))
    expect(stateText(each, [each], START)).toBe("gene ]0;x ral, working")
  })

  test("a task's row says when the task waits for its own tasks", () => {
    const parent = seen(task({ sessionID: "ses_p" }), {})
    const child = seen(task({ parentID: "ses_p" }), {})
    expect(row(parent, START, [parent, child]).detail).toBe("waiting for its own tasks")
    expect(sectionOf([parent], START, undefined, [child])?.rows[0]?.detail).toBe("waiting for its own tasks")
  })

  test("the row of a task that launched a thousand tasks reads each of them a few times", () => {
    let reads = 0
    const counted = (each: ObservedTask): ObservedTask => ({
      ...each,
      get task() {
        reads++
        return each.task
      },
    })
    const map = seen(ended({ sessionID: "ses_map" }))
    const items = Array.from({ length: 1000 }, () => counted(seen(ended({ parentID: "ses_map" }))))
    row(map, START, [map, ...items])
    expect(reads).toBeLessThan(10 * items.length)
  })

  test("a task's row counts the calls of the tasks that it launched, as superagents_list does", () => {
    const top = seen(ended({ sessionID: "ses_p" }))
    const middle = seen(ended({ parentID: "ses_p" }))
    const low = seen(task({ parentID: middle.task.sessionID }), { toolCalls: 3 })
    expect(row(top, START, [top, middle, low, seen(ended())]).facts).toBe("12.3s · 17 calls")
    expect(row(middle, START, [top, middle, low]).facts).toBe("12.3s · 10 calls")
  })

  test("forged records of tasks that are each other's parent are counted once each", () => {
    const one = seen(task({ sessionID: "ses_one", parentID: "ses_two" }), { toolCalls: 1 })
    const two = seen(task({ sessionID: "ses_two", parentID: "ses_one" }), { toolCalls: 2 })
    expect(row(one, START, [one, two]).detail).toContain("3 calls")
  })

  test.each([
    ["completed", "✓"],
    ["error", "✗"],
    ["cancelled", "⊘"],
  ] as const)("the row of a task that ended %s has a fixed icon and time", (status, icon) => {
    const each = seen(ended({ status }))
    expect(row(each, START + 999_999)).toMatchObject({ icon, facts: "12.3s · 7 calls", detail: undefined })
  })

  test("a run without an answer and one that stopped at a refusal have an icon of their own", () => {
    const { outcome } = ended()
    const reason = { code: "refused", text: "No." } as const
    const silent = seen(ended({ outcome: { ...(outcome as Outcome), thought: "" } }))
    const refused = seen(ended({ status: "cancelled", outcome: { ...(outcome as Outcome), reason } }))
    expect([silent, refused].map((each) => row(each).icon)).toEqual(["⊖", "⊖"])
    expect([silent, refused].map((each) => stateText(each, [], 0))).toEqual([
      "general, ended without an answer",
      "general, stopped at a refusal",
    ])
  })

  test("a task's row shows no count of calls when there were none", () => {
    expect(row(seen(task(), {})).detail).toBe("working")
    expect(row(seen(task(), { toolCalls: 1 })).detail).toBe("working · 1 call")
  })
})

test("a running time is shown in whole seconds, and a final time exactly", () => {
  expect(timeOf(task(), START + 59_999)).toBe("59s")
  expect(timeOf(task(), START + 150_000)).toBe("2m 30s")
  expect(timeOf(ended({}, 850), START)).toBe("850ms")
})

test("a task's state is its phase while it runs and its status afterwards", () => {
  expect(stateText(seen(task(), {}), [], 0)).toBe("general, working")
  expect(stateText(seen(ended({ status: "cancelled" })), [], 0)).toBe("general, cancelled")
})

describe("the shown batches", () => {
  const batches = (...tasks: Task[]) =>
    sectionOf(
      tasks.map((each) => seen(each, {})),
      START,
    )?.batches

  test("a batch of one task is shown without a progress bar", () => {
    expect(batches(task())).toEqual([])
  })

  test("the batches with running tasks are shown under the names that they were given", () => {
    const tasks = [
      task({ batch: "name:survey" }),
      ended({ batch: "name:survey" }),
      ended({ batch: "name:old" }),
      ended({ batch: "name:old" }),
    ]
    expect(batches(...tasks)).toEqual([{ label: "survey", done: 1, total: 2 }])
  })

  test("the latest batch is shown when no batch has running tasks", () => {
    const tasks = [
      ended({ batch: "name:old" }),
      ended({ batch: "name:old" }),
      ended({ batch: "auto:x", run: { createdAt: START + 9 } }),
      ended({ batch: "auto:x" }),
    ]
    expect(batches(...tasks)).toEqual([{ label: "", done: 2, total: 2 }])
  })

  test("a batch's progress bar fills the line whatever its name, and is full only at the end", () => {
    const names = fc.string({ unit: fc.constantFrom("a", " ", "日", "𠀀", "🙂"), maxLength: 20 })
    fc.assert(
      fc.property(names, fc.nat(50), fc.nat(50), fc.integer({ min: 20, max: 80 }), (label, a, b, columns) => {
        const [done, total] = [Math.min(a, b), Math.max(a, b)]
        const { before, filled, rest, after } = barOf({ label, done, total }, columns)
        expect(columnsOf(before) + filled.length + rest.length + after.length).toBe(columns)
        if (total > 0) expect(rest === "").toBe(done === total)
      }),
    )
    expect(barOf({ label: "survey", done: 1, total: 2 }, -3)).toMatchObject({ filled: "", rest: "" })
  })
})

describe("the badge", () => {
  test("the badge is shown only while a task runs", () => {
    expect(badgeOf([seen(ended())], [])).toBeUndefined()
    expect(badgeOf([seen(task(), {}), seen(ended())], [])).toEqual({ text: "1 agent", waiting: false })
  })

  test("the badge says how many tasks wait for the user", () => {
    const tasks = [seen(task(), { asks: [permission] }), seen(task(), {})]
    expect(badgeOf(tasks, [])).toEqual({ text: "2 agents, 1 waiting", waiting: true })
  })
})

describe("a cut text", () => {
  test.each([
    ["short", 10, "short"],
    ["exactly so", 10, "exactly so"],
    ["one too long", 10, "one too l…"],
    ["日本語のテキスト", 7, "日本語…"],
    ["𠀀𠀀𠀀", 5, "𠀀𠀀…"],
    ["👩‍👩‍👧 family", 5, "👩‍👩‍👧 f…"],
    ["anything", 0, ""],
    ["anything", -4, ""],
  ])("the text %j cut to %i columns is %j", (text, columns, result) => {
    expect(cut(text, columns)).toBe(result)
  })

  test("a cut text never takes more columns than allowed", () => {
    const texts = fc.string({ unit: fc.constantFrom("a", " ", "é", "日", "𠀀", "글", "🙂"), maxLength: 60 })
    fc.assert(
      fc.property(texts, fc.nat(40), (text, columns) => {
        expect(columnsOf(cut(text, columns))).toBeLessThanOrEqual(columns)
      }),
    )
  })
})

test("each row of a menu has a value of its own, which stays the same when other rows come and go", () => {
  const rows = ["Answer", "Look", "Answer", "Answer"].map((title) => ({ title }))
  const valued = withValues(rows)
  expect(valued.map(({ row }) => row)).toEqual(rows)
  expect(new Set(valued.map(({ value }) => value)).size).toBe(4)
  expect(withValues(rows.slice(0, 1).concat(rows.slice(2)))).toEqual(valued.filter(({ row }) => row !== rows[1]))
})

test("a readable text keeps its lines and loses terminal control characters", () => {
  expect(readable("one\r\n\ttwo\rthree\u001b[2J\u001b]0;x\u0007 \u009b1m日本語\n")).toBe(
    "one\n\ttwo\nthree[2J]0;x 1m日本語\n",
  )
})

test("totals of tokens and cost are shortened", () => {
  const totals = (usage: Partial<Progress["usage"]>) =>
    sectionOf([seen(task(), { usage: { ...NO_USAGE, ...usage } })], START)?.totals
  expect(totals({})).toEqual(["0 tokens · $0.0000"])
  expect(totals({ input: 999_960, cacheRead: 5, cost: 12.5 })).toEqual(["1.0M tokens + 5 from the cache · $12.50"])
})
