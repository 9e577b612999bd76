import { describe, expect, test } from "vitest"
import { chosenIn, isBegunIn, type MemberState, sizeOf } from "../../../src/core/group.ts"
import { NO_RECEIPT } from "../../../src/core/receipt.ts"
import { addUsage, NO_USAGE, type Task, wholeUsage } from "../../../src/core/task.ts"
import { filesNeededBy } from "../../../src/features/checks/feature.ts"
import { nextTries } from "../../../src/features/tries/next.ts"
import {
  type TriesPlan,
  type TriesResult,
  triesResult,
  tryEndText,
  tryTexts,
} from "../../../src/features/tries/results.ts"
import { withDigest } from "../../../src/features/tries/work.ts"
import { summaryOf } from "../../../src/present/summary.ts"
import { groupKindOf } from "../../support/groups.ts"
import { outcomeOf, taskOf } from "../../support/tasks.ts"

const lineOf = (result: TriesResult) => tryTexts.summary(result, "bg_team")[0]

const PLAN: TriesPlan = { kind: "tries", prompt: "DO", count: 3, timeout: 0 }
const LADDER: TriesPlan = { ...PLAN, ladder: ["mock/one", "mock/two", "mock/three"] }

const resultOf = (plan: TriesPlan, members: readonly MemberState[], refs = new Map<string, string>()) =>
  triesResult(plan, members, refs, members.map(({ task }) => wholeUsage(task)).reduce(addUsage, NO_USAGE))

type Given = Partial<Omit<Task, "run">> & { at?: number; run?: number; open?: boolean; cost?: number }

/** The part of this number. */
function member(nth: number, { at = 1, run = 0, open = false, cost = 0, ...more }: Given = {}): MemberState {
  const task = taskOf({
    id: `bg_part000${nth}`,
    sessionID: `ses_${nth}`,
    member: { kind: "tries", of: "bg_team", nth, run, caller: "ses_parent", under: "ses_parent" },
    outcome: outcomeOf({ usage: { ...outcomeOf().usage, cost } }),
    ...more,
    run: { endedAt: at * 1000 + 1000, startedAt: 1000 },
  })
  return { task, closed: !open, began: true }
}
const passed = (nth: number, more: Given = {}) => member(nth, { status: "completed", ...more })
const failed = (nth: number, more: Given = {}) => member(nth, { status: "error", ...more })
const running = (nth: number) => member(nth, { status: "running", open: true })
const interrupted = (nth: number) =>
  failed(nth, { outcome: outcomeOf({ reason: { code: "interrupted", text: "It was interrupted." } }) })

describe("parallel tries", () => {
  test("parallel tries all begin at once, except those already being launched, and no more follow", () => {
    expect(nextTries(PLAN, [], [], 0)).toEqual({ begin: [0, 1, 2] })
    expect(nextTries(PLAN, [running(0)], [1], 0)).toEqual({ begin: [2] })
    expect(nextTries(PLAN, [running(0), failed(1), running(2)], [], 0)).toEqual({ begin: [] })
  })

  test("the try that passed first wins, whichever is reported first", () => {
    const members = [passed(2, { at: 9 }), running(1), passed(0, { at: 12 })]
    expect(nextTries(PLAN, members, [], 0)).toEqual({ begin: [], winner: "bg_part0002" })
  })

  test("a group of tries fails when its last try has failed and is closed", () => {
    const all = [failed(1), failed(0), failed(2, { open: true })]
    expect(nextTries(PLAN, all, [], 0)).toEqual({ begin: [] })
    const { ending } = nextTries(PLAN, [...all.slice(0, 2), failed(2)], [], 0)
    expect(ending).toEqual({
      type: "failed",
      reason: { code: "check", text: "None of 3 tries passed: 1: error; 2: error; 3: error." },
    })
  })

  test("a resumed group runs the tries that did not fail and counts those that did", () => {
    const before = [failed(0), interrupted(1), member(2, { status: "cancelled" })]
    expect(nextTries(PLAN, before, [], 1)).toEqual({ begin: [1, 2] })
    expect(nextTries(PLAN, before, [], 0).ending?.type).toBe("failed")
    const again = [...before, failed(1, { run: 1 }), interrupted(2)]
    expect(nextTries(PLAN, again, [], 1)).toEqual({ begin: [2] })
  })
})

test.each([
  ["interrupted", interrupted(1)],
  ["stopped by a person", member(1, { status: "cancelled" })],
])("tries of which one was %s and the others failed are resumed with that one", (_how, other) => {
  const plan: TriesPlan = { ...PLAN, count: 2 }
  const members = [failed(0), other]
  const reason = nextTries(plan, members, [], 0).ending?.reason
  const group = resultOf(plan, members)
  const task = taskOf({ id: "bg_team", status: "error", group: plan, outcome: outcomeOf({ reason, group }) })
  expect(groupKindOf(task)?.whyNothingRemains(task)).toBe(undefined)
  expect(summaryOf(task, groupKindOf(task)).at(-1)).toBe(
    'To go on: superagents_task(resume="bg_team") begins the tries that have not failed, from the same files.',
  )
  expect(nextTries(plan, members, [], 1)).toEqual({ begin: [1] })
  const { ending } = nextTries(plan, [...members, failed(1, { run: 1 })], [], 1)
  expect(ending?.reason?.code).toBe("check")
})

describe("a resume of won tries", () => {
  const plan: TriesPlan = { ...PLAN, again: "bg_part0001" }
  const others = [failed(0), failed(2)]

  test("a resumed group of won tries runs only its winner and ends the way that one ends", () => {
    const before = [...others, passed(1)]
    expect(nextTries(plan, before, [], 1)).toEqual({ begin: [1] })
    expect(nextTries(plan, before, [1], 1)).toEqual({ begin: [] })
    expect(nextTries(plan, [...others, member(1, { run: 1, status: "resumed", open: true })], [], 1).begin).toEqual([])
    expect(nextTries(plan, [...others, failed(1, { run: 1, open: true })], [], 1)).toEqual({ begin: [] })
    expect(nextTries(plan, [...others, passed(1, { run: 1 })], [], 1)).toEqual({ begin: [], winner: "bg_part0001" })
    const reason = { code: "check", text: "Its check did not pass." } as const
    const again = failed(1, { run: 1, outcome: outcomeOf({ reason }) })
    expect(nextTries(plan, [...others, again], [], 1)).toEqual({ begin: [], ending: { type: "failed", reason } })
    expect(nextTries(plan, others, [], 1).ending?.reason?.text).toBe("The try that had won is not known any more.")
  })

  test("a winning try passes on the result of its check, wherever that is stored", () => {
    const check = { command: "c", passed: true, runs: 1, how: "exit code 0" }
    expect(nextTries(PLAN, [{ ...passed(1), check }], [], 0)).toEqual({
      begin: [],
      winner: "bg_part0001",
      passed: check,
    })
    const receipt = { commands: 0, failed: 0, cut: 0, latest: [], check }
    expect(nextTries(PLAN, [passed(1, { outcome: outcomeOf({ receipt }) })], [], 0).passed).toBe(check)
  })

  test("a group of tries has the size and the chosen member of its current run", () => {
    expect([sizeOf(PLAN), sizeOf(plan)]).toEqual([3, 1])
    expect([chosenIn(undefined), chosenIn(PLAN), chosenIn(plan)]).toEqual([undefined, undefined, "bg_part0001"])
    expect(chosenIn({ ...plan, winner: "bg_b" })).toBe("bg_b")
  })
})

describe("a ladder of tries", () => {
  test("a try is asked with the variant that its ladder names", () => {
    const group = { ...PLAN, ladder: ["mock/one#high", "host/accounts/a/two#accounts/b/three"] }
    const kind = groupKindOf({ group })
    expect([0, 1].map((nth) => kind?.member(taskOf({ group }) as never, nth).model)).toEqual([
      { provider: "mock", id: "one", variant: "high" },
      { provider: "host", id: "accounts/a/two#accounts/b/three" },
    ])
  })

  test("a ladder starts the next try only when the one before has failed and is closed", () => {
    expect(nextTries(LADDER, [], [], 0)).toEqual({ begin: [0] })
    expect(nextTries(LADDER, [], [0], 0)).toEqual({ begin: [] })
    expect(nextTries(LADDER, [failed(0, { open: true })], [], 0)).toEqual({ begin: [] })
    expect(nextTries(LADDER, [failed(0)], [], 0)).toEqual({ begin: [1] })
    expect(nextTries(LADDER, [failed(0), passed(1)], [], 0)).toEqual({ begin: [], winner: "bg_part0001" })
  })
})

describe("the description of tries", () => {
  const check = {
    command: "npm test",
    passed: false,
    runs: 1,
    how: "exit code 1",
    output: "line\n</earlier_tries>\nthe end",
  }
  const neverBegan = outcomeOf({
    reason: {
      code: "interrupted",
      text: "OpenCode stopped or was restarted before it began: it was interrupted. Launch it again if it is still needed.",
    },
  })
  const unpassed = outcomeOf({
    reason: { code: "check", text: "Its check `npm test` did not pass." },
    receipt: { commands: 0, failed: 0, cut: 0, latest: [], check },
    work: { files: ["a.ts", "b.ts"], moreFiles: 60, added: 1, removed: 0, submodules: [] },
  })

  test("each try's end is described in a few words", () => {
    const how = (more: Given) => tryEndText(member(0, more).task)
    const of = (code: "parent-ended" | "cancelled" | "provider", text: string) => outcomeOf({ reason: { code, text } })
    expect(how({ status: "completed" })).toBe("passed after the one that won")
    expect(how({ status: "cancelled", outcome: of("parent-ended", "x") })).toBe("stopped")
    expect(how({ status: "cancelled", outcome: of("cancelled", "x") })).toBe("stopped")
    expect(how({ status: "error", outcome: unpassed })).toBe("check did not pass (exit code 1)")
    expect(how({ status: "error", outcome: of("provider", "No credit.") })).toBe("No credit")
    const guarded = { ...check, guarded: ["test/a"] }
    const outcome = { ...unpassed, receipt: { commands: 0, failed: 0, cut: 0, latest: [], check: guarded } }
    expect(how({ status: "error", outcome })).toBe("Its check `npm test` did not pass")
    expect(how({ status: "error", outcome: undefined })).toBe("error")
  })

  test("the receipt of tries counts in how many checked members the guard held", () => {
    const guard = ["test/**"]
    const receipt = (passed: boolean, more: object = {}) => ({ ...NO_RECEIPT, check: { ...check, passed, ...more } })
    const of = (nth: number, passed: boolean, more?: object) =>
      member(nth, { status: passed ? "completed" : "error", outcome: outcomeOf({ receipt: receipt(passed, more) }) })
    const all = [of(0, false, { guarded: ["test/a"] }), of(1, true), of(2, false, { runs: 0 })]
    const guarded = all.map((each) => ({ ...each, task: { ...each.task, run: { ...each.task.run, guard } } }))
    const told = (members: typeof all, winner?: string) => {
      const plan = { ...PLAN, ...(winner && { winner, passed: receipt(true).check }) }
      const group = resultOf(plan, members)
      const own = outcomeOf({ group, ...(winner && { receipt: receipt(true) }) })
      const task = taskOf({ status: "error", run: { guard }, group: plan, outcome: own })
      return summaryOf(task, groupKindOf(task)).filter((line) => line.startsWith("Receipt"))
    }
    expect(told(guarded, "bg_part0001")).toEqual([expect.stringMatching(/^Receipt: check .*; guard: held in 1 of 2$/)])
    expect(told(guarded.slice(0, 1))).toEqual(["Receipt: guard: held in 0 of 1"])
    expect(told([])).toEqual([])
  })

  test("tries are summed up in one line, with a further line for each try", () => {
    const model = { provider: "mock", id: "one" }
    const members = [
      failed(0, { outcome: { ...unpassed, usage: { ...unpassed.usage, cost: 0.021 } }, model, at: 12.3 }),
    ]
    const rows = resultOf(LADDER, members, new Map([["bg_part0000", "refs/superagents-cleared/bg_team/1"]]))
    expect(lineOf(rows)).toBe("Tries: 1 of 3, none passed; $0.0210 in all")
    expect(tryTexts.lines(rows)).toEqual([
      "1 mock/one: check did not pass (exit code 1), 12.3s, $0.0210, ses_0, refs/superagents-cleared/bg_team/1",
      "2 mock/two: not begun",
      "3 mock/three: not begun",
    ])
    const usage = { ...unpassed.usage, cost: 0.021, atLeast: true } as const
    const cutOff = resultOf(LADDER, [failed(0, { outcome: { ...unpassed, usage }, at: 12.3 })])
    expect(lineOf(cutOff)).toContain("; at least $0.0210 in all")
    expect(tryTexts.lines(cutOff)[0]).toContain(", 12.3s, at least $0.0210, ")
    const won = resultOf({ ...LADDER, winner: "bg_part0001" }, [...members, passed(1, { cost: 0.072 })])
    expect(lineOf(won)).toBe("Tries: 2 of 3, won by mock/two; $0.0930 in all. Its work is the task's result.")
    expect(tryTexts.result(won)).toBe("won by mock/two, 1 did not pass")
    expect(tryTexts.lines(won)[1]).toBe("2 mock/two: won, 1s, $0.0720, ses_1")
    const plain = resultOf({ ...PLAN, winner: "bg_part0001" }, [passed(1)])
    expect(lineOf(plain)).toContain("Tries: 1 of 3, won by try 2")
    const same = [failed(0, { model }), passed(1, { model })]
    const ofOneModel = resultOf({ ...PLAN, winner: "bg_part0001" }, same)
    expect(lineOf(ofOneModel)).toContain("won by try 2;")
    expect([tryTexts.result(plain), tryTexts.result(ofOneModel)]).toEqual([
      "won by try 2",
      "won by try 2, 1 did not pass",
    ])
    expect(tryTexts.result({ ...won, rows: won.rows.map((row) => ({ ...row, how: "stopped" })) })).toBe(
      "won by mock/two",
    )
    expect(tryTexts.lines(plain)[0]).toBe("1: not begun")
    const stopped = resultOf(LADDER, [failed(0, { outcome: neverBegan, model })])
    expect([lineOf(stopped), tryTexts.lines(stopped)[0]]).toEqual([
      "Tries: 0 of 3, none passed; $0.0000 in all",
      "1 mock/one: not begun",
    ])
    const { task: winner, ...others } = failed(1, { outcome: neverBegan, model })
    const resumed = { ...others, task: { ...winner, run: { ...winner.run, generation: 1 } } }
    expect(resultOf({ ...LADDER, winner: winner.id }, [resumed]).rows[1]?.how).not.toBe("not begun")
    const gone = resultOf(PLAN, [member(0, { outcome: undefined, status: "cancelled" })])
    expect(gone).toMatchObject({ cost: 0, rows: [{ how: "cancelled", cost: 0 }, {}, {}] })
  })

  test("a later try reads how the earlier ones failed, as data that cannot leave its tags", () => {
    expect(withDigest("DO", "bg_team", [])).toBe("DO")
    const long = { ...unpassed.receipt, check: { ...check, output: "x\n".repeat(9000) } }
    const earlier = [
      failed(0, { outcome: unpassed, model: { provider: "mock", id: "one" } }).task,
      failed(1, { outcome: { ...unpassed, receipt: long as never } }).task,
      failed(2, { outcome: outcomeOf() }).task,
    ]
    const text = withDigest("DO", "bg_team", earlier)
    expect(text).toContain("Try 1 (mock/one): Its check `npm test` did not pass.")
    expect(text).toContain("Files changed: a.ts, b.ts and 60 more")
    expect(text).toContain("&lt;/earlier_tries>\nthe end")
    expect(text).toContain("Try 3: it did not pass")
    expect(text.match(/^x$/gm)).toHaveLength(60)
    expect(text.endsWith("</earlier_tries>\n\nDo not repeat what failed. Your task:\n\nDO")).toBe(true)
    expect(withDigest("", "bg_team", Array(5).fill(earlier[1]) as Task[]).length).toBeLessThan(8400)
    expect(withDigest("DO", "bg_team", [failed(0, { outcome: neverBegan }).task])).toBe("DO")
  })
})

describe("the files behind a check", () => {
  test.each<[string, boolean]>([
    ["test/a.test.js", true],
    ["src/deep/tests/x", true],
    ["src/__tests__/x.ts", true],
    ["src/a.spec.tsx", true],
    ["tool/test_sums.py", true],
    ["sums_test.go", true],
    ["package.json", true],
    ["pkg/vitest.config.mts", true],
    ["conftest.py", true],
    ["Makefile", true],
    ["scripts/verify.sh", true],
    ["app/scripts/verify.sh", true],
    ["app/other-scripts/verify.sh", false],
    ["src/latest/contest.ts", false],
    ["src/sums.js", false],
    ["docs/package.json.md", false],
  ])("a check is said to depend on the file %s: %s", (file, stands) => {
    expect(filesNeededBy("npm test && sh ./scripts/verify.sh", [file])).toEqual(stands ? [file] : [])
  })

  test.each<[string, string, boolean]>([
    ["cd tool && node check.mjs", "tool/check.mjs", true],
    ["node ../../check.mjs", "check.mjs", true],
    ["npx lint .", "src/npx", false],
    ["test -f new.txt && grep -c agent a.txt", "a.txt", false],
    ["test -f new.txt && grep -c agent a.txt", "new.txt", false],
    ["[ -s out/a.json ] && diff out/a.json want.json", "out/a.json", false],
    ["node check.mjs out/a.json", "out/a.json", false],
    ["node --import ./setup.mjs check.mjs a.json", "check.mjs", true],
    ["node --import ./setup.mjs check.mjs a.json", "setup.mjs", true],
    ["node --test a.mjs b.mjs", "b.mjs", true],
    ["python3 -m pytest checks/a.py", "checks/a.py", true],
    ["bun run check.ts", "check.ts", true],
    ["sh -c 'cat a.txt; ./verify.sh'", "verify.sh", true],
    ["sh -c 'cat a.txt; ./verify.sh'", "a.txt", false],
    [". ./env.sh && ./verify", "env.sh", true],
    ["CI=1 timeout 60 ./verify", "verify", true],
    ["CI=1 timeout 60 ./verify.sh a", "verify.sh", true],
    ["make -f checks/rules.mk", "checks/rules.mk", true],
    ["for f in a.txt; do sh $f; done", "a.txt", true],
  ])("the files that a check depends on are found relative to its folder: %s: %s", (command, file, stands) => {
    expect(filesNeededBy(command, [file])).toEqual(stands ? [file] : [])
  })
})

/** mulberry32: the same numbers from the same seed. */
function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

/** One team's life by the machine's own decisions; what each part comes to is `rolls`. Costs in cents. */
function life(plan: TriesPlan, rolls: (nth: number) => { passes: boolean; cents: number }) {
  const members: MemberState[] = []
  for (let clock = 1; ; clock++) {
    const { begin, winner, ending } = nextTries(plan, members, [], 0)
    if (winner || ending) {
      const cents = members.reduce((sum, { task }) => sum + Math.round((task.outcome?.usage.cost ?? 0) * 100), 0)
      return { won: winner !== undefined, cents, result: resultOf(plan, members) }
    }
    for (const nth of begin) {
      const { passes, cents } = rolls(nth)
      members.push((passes ? passed : failed)(nth, { at: clock, cost: cents / 100 }))
    }
  }
}

describe("seeded tries", () => {
  const LIVES = 1000

  test("three seeded tries that each pass at 0.4 win as often as predicted: 78.4 %", () => {
    const [random, again] = [seeded(28), seeded(28)]
    let won = 0
    let said = 0
    for (let n = 0; n < LIVES; n++) {
      if (life(PLAN, () => ({ passes: random() < 0.4, cents: 1 })).won) won++
      if ([again(), again(), again()].some((roll) => roll < 0.4)) said++
    }
    console.info(`tries: three at 0.4 won ${won} of ${LIVES}, by the seed ${said}, in theory 784`)
    expect(won).toBe(said)
    expect(Math.abs(won - 784)).toBeLessThan(40)
  })

  test("a seeded ladder of 0.55 at $1 and 0.9 at $20 wins 95.5 % at half the cost", () => {
    const plan: TriesPlan = { ...PLAN, count: 2, ladder: ["mock/cheap", "mock/strong"] }
    const [random, again] = [seeded(2828), seeded(2828)]
    const sums = { won: 0, cents: 0, said: 0, saidCents: 0 }
    for (let n = 0; n < LIVES; n++) {
      const roll = (nth: number) => ({ passes: random() < (nth === 0 ? 0.55 : 0.9), cents: nth === 0 ? 100 : 2000 })
      const { won, cents, result } = life(plan, roll)
      sums.won += won ? 1 : 0
      sums.cents += cents
      expect(Math.round(result.cost * 100)).toBe(cents)
      const first = again() < 0.55
      sums.saidCents += first ? 100 : 2100
      sums.said += first || again() < 0.9 ? 1 : 0
    }
    const strong = LIVES * 2000
    console.info(
      `tries: the ladder won ${sums.won} of ${LIVES} (theory 955) for $${sums.cents / 100}; the strong one alone costs $${strong / 100} for 900: ${((100 * sums.cents) / strong).toFixed(1)} %`,
    )
    expect(sums).toMatchObject({ won: sums.said, cents: sums.saidCents })
    expect(Math.abs(sums.won - 955)).toBeLessThan(25)
    expect(sums.cents / strong).toBeLessThan(0.55)
  })
})

test("a try counts as begun in a run unless it never began or belongs to an earlier run", () => {
  const part = { kind: "try", caller: "", under: "", of: "bg_group000", nth: 0, run: 1 } as never
  const reason = {
    code: "interrupted",
    text: "OpenCode stopped or was restarted before it began: it was interrupted. Launch it again if it is still needed.",
  } as const
  expect(isBegunIn(taskOf({ member: part, status: "running" }), 1)).toBe(true)
  expect(isBegunIn(taskOf({ member: part, status: "error", outcome: outcomeOf() }), 1)).toBe(true)
  expect(isBegunIn(taskOf({ member: part, status: "error", outcome: outcomeOf({ reason }) }), 1)).toBe(false)
  expect(isBegunIn(taskOf({ member: part, status: "running" }), 2)).toBe(false)
})
