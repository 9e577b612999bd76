import { describe, expect, test } from "vitest"
import type { Message } from "../../src/core/ports.ts"
import type { ActiveRun } from "../../src/core/run/active-run.ts"
import type { Verdict } from "../../src/core/run/inputs.ts"
import { DELETED } from "../../src/core/run/messages.ts"
import { NOTHING_OBSERVED } from "../../src/core/run/progress.ts"
import { NOTHING_SPENT } from "../../src/core/spending.ts"
import { answer, asked, at, BILLED, command, failing, NOW, passing, type Scene, wordOf } from "../support/machine.ts"

/** What the machine makes of a look at a run's messages, of its value and of its check. */

const found = { messages: [asked(), answer()] as readonly Message[], gone: false, busy: false, openTodos: 0 }
const unanswered = { ...found, messages: [asked()] }
const calling = answer({ finish: "called", parts: [] })
const refusedCall = answer({
  finish: "called",
  parts: [{ type: "tool", callID: "c", tool: "bash", state: "error", refused: "permission" } as never],
})
/** A look that came back with this. */
const looked = (more: object | undefined, run: Partial<ActiveRun> = {}, scene: Scene = {}, waited = false) =>
  at("working", { ...scene, run: { looking: true, ...run } }).takes({
    type: "looked",
    waited,
    ...(more && { found: { ...found, ...more } }),
  })
const seen = { observed: { ...NOTHING_OBSERVED, heard: true } }

describe("a look", () => {
  test("is over when it has come back; what asked for another meanwhile has one made, unless it ended", () => {
    const { run, does } = looked(unanswered, { lookAgain: false })
    expect(run).toMatchObject({ looking: false, lookAgain: false, lookedAt: NOW })
    expect(does).toEqual([])
    const again = looked(unanswered, { lookAgain: true })
    expect(again).toMatchObject({ does: ["look"], run: { looking: true, lookAgain: false } })
    expect(looked(found, { lookAgain: true }).does).not.toContain("look")
    expect(looked(undefined, { lookAgain: true })).toMatchObject({ does: ["look"] })
  })

  test("that failed is made again soon; without contact when that is back", () => {
    expect(looked(undefined).run).toMatchObject({ lookAt: NOW + 2000 })
    const away = { host: "big", since: 1, most: 0 }
    expect(looked(undefined, { away, lookAgain: true })).toMatchObject({ does: [], run: { looking: false } })
    expect(looked(undefined, { away }).run?.lookAt).toBeUndefined()
    expect(looked(found, { away }).stage).toBe("closing")
  })

  test("takes in what its messages tell of its work", () => {
    const messages = [asked(), answer({ usage: BILLED })]
    expect(looked({ messages }).run?.observed).toMatchObject({ ended: 1, usage: BILLED, text: "found" })
    const open = looked({ messages: [asked(), { ...calling, usage: BILLED }] })
    expect(open).toMatchObject({ stage: "working", run: { observed: { ended: 1, usage: BILLED } } })
  })
})

describe("a session whose user takes the prompt back", () => {
  const error = { message: "Aborted", aborted: true } as const
  const cut = (more: object = {}) => [asked(), answer({ finish: undefined, error, ...more })]

  test("is stopped first: that is the end once it was not undone for a while", () => {
    expect(looked({ messages: cut() })).toMatchObject({ stage: "working", does: [], run: { lookAt: NOW + 3000 } })
    for (const completedAt of [NOW - 3000, undefined]) {
      const { run } = looked({ messages: cut({ completedAt }) })
      expect(run?.closing?.ending).toMatchObject({ type: "cancelled", reason: { code: "aborted" } })
    }
  })

  test("is waited for while something is undone", () => {
    const undone = { messages: cut({ completedAt: NOW - 60_000 }), undone: true }
    const { run, stage, does } = looked(undone, { error: { ...error, at: NOW - 60_000 } })
    expect([stage, does, run?.lookAt]).toEqual(["working", [], NOW + 2000])
    // Once its prompt has gone nothing says that it was stopped.
    expect(run?.error).toBeUndefined()
  })

  test("is followed: the run's prompt is the new one from then on, and the first one is not sent again", () => {
    const better = [asked("msg_better"), answer({ parentID: "msg_better" })]
    const { run, commands } = looked({ messages: better, askedAnew: "msg_better" })
    expect(commands[0]).toMatchObject({ do: "record", event: { type: "asked anew", promptID: "msg_better" } })
    expect(run?.closing).toMatchObject({ ending: { type: "completed" }, task: { run: { promptID: "msg_better" } } })
    const open = looked({ messages: [asked("msg_better")], askedAnew: "msg_better", busy: true }, { stuckSince: 1 })
    expect(open).toMatchObject({ stage: "working", does: ["record"] })
    expect([open.run?.prompt, open.run?.stuckSince]).toEqual([undefined, undefined])
  })
})

describe("a session that is gone", () => {
  test("was deleted, unless its run had ended before", () => {
    const gone = looked({ ...unanswered, gone: true })
    expect(gone.run?.closing).toMatchObject({ ending: DELETED, task: { status: "cancelled" } })
    expect(gone.run?.closing?.options).toEqual({})
    expect(looked({ gone: true }).run?.closing?.ending.type).toBe("completed")
  })
})

describe("a session at work", () => {
  test("has not ended, whatever it was thought to wait for", () => {
    const { run, stage } = looked({ ...unanswered, busy: true }, { stuckSince: 1, todosSince: 2 })
    expect(stage).toBe("working")
    expect(run).toMatchObject({ stuckSince: undefined, todosSince: undefined })
  })
})

describe("an idle session without an answer", () => {
  test("is believed to have ended when its time for an answer is over", () => {
    const first = looked(unanswered, seen)
    expect(first).toMatchObject({ stage: "working", does: [], run: { stuckSince: NOW } })
    expect(looked(unanswered, { ...seen, stuckSince: NOW - 9999 }).run?.stuckSince).toBe(NOW - 9999)
    const over = looked(unanswered, { ...seen, stuckSince: NOW - 10_000 })
    expect(over.run?.outcome?.reason).toMatchObject({ code: "host" })
  })

  test("has longer in a folder of its own, while nothing was heard of it", () => {
    const place = { kind: "worktree", folder: "/", merge: false } as const
    const scene = { task: { place } }
    const stuck = { stuckSince: NOW - 10_000 }
    expect(looked(unanswered, stuck, scene).stage).toBe("working")
    expect(looked(unanswered, { stuckSince: NOW - 60_000 }, scene).stage).toBe("closing")
    expect(looked(unanswered, { ...stuck, ...seen }, scene).stage).toBe("closing")
  })

  test("has a moment more after an error that its host told of", () => {
    const error = (since: number) => ({ stuckSince: 1, error: { message: "no luck", at: since } })
    expect(looked(unanswered, error(NOW - 999)).stage).toBe("working")
    expect(looked(unanswered, error(NOW - 1000)).run?.outcome?.reason).toEqual({ code: "provider", text: "no luck" })
  })

  test("says since when a word is missing that is to come, and no more once none is", () => {
    const words = [wordOf({ id: "msg_other" })]
    expect(looked(unanswered, { sentMessages: words }).run?.missingSince).toBe(NOW)
    expect(looked(unanswered, { sentMessages: words, missingSince: NOW - 5 }).run?.missingSince).toBe(NOW - 5)
    expect(looked(unanswered, { missingSince: NOW - 5 }).run?.missingSince).toBeUndefined()
    const arrived = looked({ messages: [asked(), asked("msg_other")] }, { sentMessages: words, missingSince: NOW - 5 })
    expect(arrived.run).toMatchObject({ missingSince: undefined, sentMessages: [{ expected: false }] })
  })
})

describe("a word that its session has let lie", () => {
  const words = [wordOf({ taken: true, expected: false })]
  const last = [asked(), calling, asked("msg_word")]

  test("is said again once that has answered something else behind it", () => {
    const passed = looked({ messages: [asked(), asked("msg_word"), calling] }, { sentMessages: words })
    expect(command(passed.commands, "send")?.message).toMatchObject({ kind: "word", text: "MORE" })
  })

  test("and is being said again is waited for, however long the host takes it: whoever told it was told so", () => {
    const again = wordOf({ id: "msg_again" })
    const late = (word: Partial<typeof again>) =>
      looked({ messages: [asked(), answer()] }, { sentMessages: [{ ...again, ...word }], missingSince: NOW - 60_000 })
        .stage
    expect(late({})).toBe("working")
    expect(late({ taken: true })).toBe("closing")
    // Who is told for the first time hears that it has ended.
    expect(late({ reply: () => undefined })).toBe("closing")
    expect(late({ expected: false })).toBe("closing")
  })

  test("and that stands last is left for a second to be read, then said again", () => {
    const first = looked({ messages: last }, { sentMessages: words })
    expect(first).toMatchObject({ does: [], run: { stuckSince: NOW, lookAt: NOW + 1000 } })
    const waits = looked({ messages: last }, { sentMessages: words, stuckSince: NOW - 999 })
    expect(waits).toMatchObject({ does: [], run: { stuckSince: NOW - 999, lookAt: NOW + 1 } })
    expect(looked({ messages: last }, { sentMessages: words, stuckSince: NOW - 1000 }).does).toEqual(["send"])
    // Where nothing lies there, no look is due for it.
    expect(looked(unanswered).run?.lookAt).toBeUndefined()
  })
})

describe("a turn that ended at a refusal", () => {
  const messages = [asked(), refusedCall]

  test("of what nobody had answered goes on", () => {
    const { run, commands } = looked({ messages }, { refused: { after: 0, asks: [] } })
    expect(command(commands, "send")?.message).toMatchObject({ kind: "word" })
    expect(run).toMatchObject({ stage: "working", refused: undefined, observed: { ended: 1 } })
    const four = { observed: { ...NOTHING_OBSERVED, ended: 4 } }
    expect(looked({ messages }, { ...four, refused: { after: 3, asks: [] } }).does).toEqual(["send"])
  })

  test("with an error, since the host had asked about the turn itself, goes on where nobody had answered that", () => {
    const error = { message: "The user rejected permission", refused: true } as const
    const refusal = [asked(), answer({ finish: undefined, error })]
    const ours = { refused: { after: 0, asks: [] }, error: { ...error, at: NOW } }
    const { run, does } = looked({ messages: refusal }, ours)
    expect({ run, does }).toMatchObject({ run: { stage: "working", error: undefined }, does: ["send"] })
    const note = "The agent stopped at a refused permission."
    expect(looked({ messages: refusal }).run?.closing?.ending).toMatchObject({ type: "completed", note })
    const one = { observed: { ...NOTHING_OBSERVED, ended: 1 } }
    expect(looked({ messages: refusal }, { ...ours, ...one }).stage).toBe("closing")
    const failed = [asked(), answer({ finish: undefined, error: { message: "no luck" } })]
    expect(looked({ messages: failed }, ours).stage).toBe("closing")
  })

  test("of what nobody had answered goes on with its last word where it was asked for that", () => {
    const lastWord = { state: "told", reason: { code: "timeout", text: "x" }, at: NOW } as const
    const { commands } = looked({ messages }, { refused: { after: 0, asks: [] }, lastWord })
    expect(command(commands, "send")?.message.kind).toBe("last-word")
  })

  test("that a person gave is its end", () => {
    expect(looked({ messages }).run?.closing?.ending).toMatchObject({ type: "cancelled", reason: { code: "refused" } })
    const five = { observed: { ...NOTHING_OBSERVED, ended: 5 } }
    expect(looked({ messages }, { ...five, refused: { after: 3, asks: [] } }).stage).toBe("closing")
  })

  test("is not asked to go on while something else stands last, or nothing does", () => {
    const behind = looked({ messages: [...messages, asked("msg_notice")] }, { refused: { after: 0, asks: [] } })
    expect(behind).toMatchObject({ stage: "working", does: [] })
    expect(looked({ messages: [] }, { refused: { after: 0, asks: [] } })).toMatchObject({ stage: "working", does: [] })
  })
})

describe("an answer", () => {
  test("is proven by its message, but not where more than that is to be known of it", () => {
    const place = { kind: "worktree", folder: "/", merge: false } as const
    expect(looked({}).run?.closing).toMatchObject({ ending: { type: "completed", proven: true }, write: "soon" })
    expect(looked({}, {}, { task: { place } }).run?.closing?.ending.proven).toBe(false)
    const failed = { messages: [asked(), answer({ finish: "cut short", error: { message: "no" } })] }
    expect(looked(failed).run?.closing?.ending).toMatchObject({ type: "failed", proven: true })
    expect(looked(failed, {}, { task: { run: { check: "true" } } }).run?.closing?.ending.proven).toBe(false)
    expect(looked(failed, {}, { task: { run: { schema: {} } } }).run?.closing?.ending.proven).toBe(false)
  })

  test("is told with its messages and its open todos", () => {
    const { run } = looked({ openTodos: 2 }, { todosSince: NOW - 5000 })
    expect(run?.closing?.options).toEqual({ messages: found.messages, openTodos: 2 })
    expect(run?.outcome?.openTodos).toBe(2)
  })

  test("is no end while its own tasks run, or what they told is not read; one that failed is", () => {
    expect(looked({}, {}, {}, true)).toMatchObject({ stage: "working", does: [] })
    expect(looked({}, {}, { world: { ownTasks: true } }).stage).toBe("working")
    expect(looked({}, {}, { world: { owed: true } }).stage).toBe("working")
    const failed = { messages: [asked(), answer({ error: { message: "no" } })] }
    expect(looked(failed, {}, {}, true).run?.closing?.ending.type).toBe("failed")
    expect(looked({}, {}, {}, true).run?.todosSince).toBeUndefined()
  })

  test("is no end while somebody may go on with its todos", () => {
    const grace = { options: { todoGrace: 3000 } }
    const first = looked({ openTodos: 1 }, {}, grace)
    expect(first).toMatchObject({ stage: "working", does: [], run: { todosSince: NOW } })
    const waits = looked({ openTodos: 1 }, { todosSince: NOW - 2999 }, grace)
    expect(waits).toMatchObject({ stage: "working", run: { todosSince: NOW - 2999 } })
    expect(looked({ openTodos: 1 }, { todosSince: NOW - 3000 }, grace).stage).toBe("closing")
    expect(looked({ openTodos: 0 }, { todosSince: NOW - 1 }, grace).stage).toBe("closing")
  })

  test("is no end before it has read what it is told, for as long as that may take to be seen", () => {
    const words = [wordOf({ taken: true })]
    expect(looked({}, { sentMessages: words })).toMatchObject({
      stage: "working",
      does: [],
      run: { missingSince: NOW },
    })
    expect(looked({}, { sentMessages: words, missingSince: NOW - 9999 }).stage).toBe("working")
    expect(looked({}, { sentMessages: words, missingSince: NOW - 10_000 }).stage).toBe("closing")
    const there = { messages: [asked(), asked("msg_word"), answer({ parentID: "msg_word" })] }
    expect(looked(there, { sentMessages: words }).stage).toBe("closing")
  })
})

describe("a run that was asked for its last word", () => {
  const options = { maxCostPerSession: 1 }
  const text = "Stopped at the session's budget: the session's tasks spent $0.95 of $1.00 (option maxCostPerSession)."
  const reason = { code: "budget", text } as const
  const spent = () => ({ ...NOTHING_SPENT, session: { ...BILLED, cost: 1.2 } })
  const scene = { options, world: { spent } }

  test("and spoke has ended at its limit, with what was spent by then", () => {
    const lastWord = { state: "spoke", reason, at: NOW } as const
    const { run } = looked({}, { lastWord }, scene)
    expect(run?.closing?.ending).toMatchObject({ type: "failed", saidLastWord: true })
    expect(run?.outcome?.reason).toEqual({
      code: "budget",
      text: `${text.slice(0, -1)} when it was asked for its last word, and $1.20 by its end; its last word is below.`,
    })
  })

  test("and ended before it could read that has ended by itself", () => {
    const lastWord = { state: "told", reason, at: NOW } as const
    expect(looked({}, { lastWord }, scene).run?.closing?.ending).toMatchObject({ type: "completed" })
  })

  test("and waits for its own tasks is asked if it rests", () => {
    const lastWord = { state: "told", reason, at: NOW } as const
    expect(looked({}, { lastWord }, scene, true).does).toEqual(["check idle"])
  })
})

describe("an answer that is to be judged", () => {
  const schema = { type: "object" }
  const ending = { type: "completed", proven: true } as const
  const answered = { ending, messages: found.messages, openTodos: 3 }
  const value = { valid: true, at: 4, length: 2, asked: 1 } as const
  const check = { command: "npm test", passed: false, runs: 1, how: "exit code 1" }
  const task = { run: { schema, check: "npm test" } }
  const checking = (run: Partial<ActiveRun> = {}) => at("verifying", { task, run: { answered, ...run } })
  const by = (name: string, verdict?: Verdict) => ({ type: "verified", by: name, verdict }) as const

  test("is given to the first verifier, and kept as what it would end with", () => {
    const { stage, run, commands } = looked({ openTodos: 3 }, { todosSince: 0 }, { task })
    expect(stage).toBe("verifying")
    expect(commands).toEqual([{ do: "verify", by: "schemas", text: "found", earlier: {} }])
    expect(run?.answered).toEqual({ ending: { ...ending, at: NOW }, messages: found.messages, openTodos: 3 })
  })

  test("and passes goes on to the next, with what was found of earlier ones", () => {
    const { run, commands, stage } = checking({ check }).takes(by("schemas", passing({ value })))
    expect(stage).toBe("verifying")
    expect(commands).toEqual([{ do: "verify", by: "checks", text: "found", earlier: { check, value } }])
    expect(run).toMatchObject({ answered, value })
  })

  test("and passes the last ends the run", () => {
    const { stage, run } = checking({ value }).takes(by("checks", passing({ check: { ...check, passed: true } })))
    expect(stage).toBe("closing")
    expect(run).toMatchObject({ value, check: { passed: true }, answered: undefined })
    expect(run?.closing).toMatchObject({ ending: { type: "completed", proven: false }, options: { openTodos: 3 } })
  })

  test("and passes is no end before it has read what it was told meanwhile", () => {
    const waits = checking({ sentMessages: [wordOf()] }).takes(by("checks", passing({ check })))
    expect(waits).toMatchObject({ stage: "working", does: [], run: { missingSince: NOW, check, answered: undefined } })
  })

  test("and does not pass is asked for again where it may be, and once more where it was told something", () => {
    const again = checking().takes(by("schemas", failing({ value: { valid: false, asked: 1 } }, true, "schema")))
    expect(again).toMatchObject({
      stage: "working",
      does: ["send"],
      run: { value: { valid: false, asked: 1 }, answered: undefined, lastSignAt: NOW },
    })
    expect(command(again.commands, "send")?.message).toMatchObject({ kind: "schema", text: "AGAIN" })
    const last = by("checks", failing({ check }, false))
    expect(checking().takes(last).run?.outcome?.reason).toEqual({ code: "check", text: "FAILED" })
    expect(checking({ sentMessages: [wordOf()] }).takes(last)).toMatchObject({ stage: "working", does: ["send"] })
  })

  test("and whose verifier was stopped, or that is not known any more, goes on without a new look", () => {
    const stopped = checking({ check }).takes(by("checks"))
    expect(stopped).toMatchObject({ stage: "working", does: [], run: { check, answered: undefined, lastSignAt: NOW } })
    const lost = checking({ answered: undefined }).takes(by("checks", passing({ check })))
    expect(lost).toMatchObject({ stage: "working", does: [] })
  })
})
