import { describe, expect, test } from "vitest"
import type { ActiveRun, Stage } from "../../src/core/run/active-run.ts"
import { isFinished, progressOf } from "../../src/core/run/active-run.ts"
import { nextDue } from "../../src/core/run/deadlines.ts"
import type { Input, Verdict } from "../../src/core/run/inputs.ts"
import { ANSWER_GRACE_MS } from "../../src/core/run/messages.ts"
import { NOTHING_OBSERVED, withTool } from "../../src/core/run/progress.ts"
import { TABLE } from "../../src/core/run/table.ts"
import { NOTHING_SPENT } from "../../src/core/spending.ts"
import {
  answer,
  asked,
  at,
  BILLED,
  command,
  failing,
  NOTHING_DONE,
  NOW,
  passing,
  QUEUED,
  type Scene,
  wordOf,
} from "../support/machine.ts"
import { askOf, taskOf } from "../support/tasks.ts"

/** The machine by itself: pure steps, stage by stage. What follows from them in lives is tested through the manager. */

const AT_WORK = ["entering", "prompting", "working", "checking"] as const
const SESSION = "ses_child"
const cancelled = { type: "cancelled", reason: { code: "cancelled", text: "x" } } as const
const end = { type: "end", ending: cancelled, how: {} } as const
const timeout = { code: "timeout", text: "Stopped." } as const
/** Its time is up. */
const LATE = { task: { run: { timeout: 500 } }, options: { lastWord: 0 } } as const
/** What it may spend is spent. */
const SPENT = { options: { maxTokensPerTask: 100, lastWord: 0 } } as const
const FULL = { observed: { calls: new Map(), answers: new Map(), usage: BILLED } } as unknown as Partial<ActiveRun>
const heard = (event: object): Input => ({ type: "heard", event: { sessionID: SESSION, ...event } as never })

describe.each(AT_WORK)("at %s", (stage) => {
  const scene = stage === "checking" ? { task: { run: { check: "true" } } } : {}
  const here = (more: object = {}) => at(stage, { ...scene, ...more })

  test("an end ends it at once: it is stopped, written, told of later", () => {
    const { stage: next, does, run } = here().takes(end)
    expect(next).toBe("leaving")
    const held = stage === "entering" || stage === "checking"
    expect(does).toEqual(["end", ...(held ? ["halt"] : []), "close", "write", "ended"])
    expect(run).toMatchObject({ calls: 1, closing: { writes: 1, write: "now", task: { status: "cancelled" } } })
  })

  test("its limit ends it by the clock, and by what it spends itself or with others", () => {
    expect(here(LATE).takes({ type: "tick", doing: undefined }).stage).toBe("leaving")
    expect(here({ ...SPENT, run: FULL }).takes({ type: "spent" }).stage).toBe("leaving")
    expect(here(SPENT).takes({ type: "spent" }).stage).toBe(stage)
    const answered = heard({ type: "answered", messageID: "msg_a", usage: BILLED, finish: "called" })
    expect(here(SPENT).takes(answered).stage).toBe("leaving")
    expect(here().takes(answered)).toMatchObject({ stage, does: ["share"] })
    const messages = [asked(), answer({ finish: "called", usage: BILLED })]
    expect(here(SPENT).takes({ type: "counted", messages }).stage).toBe("leaving")
    expect(here().takes({ type: "counted", messages })).toMatchObject({ stage, does: ["share"] })
  })

  test("a passed limit that the host itself denies ends nothing", () => {
    const confirming = { run: { confirming: true } }
    const silence = { code: "silence", text: "Silent." } as const
    const found = { messages: [], asks: [] }
    const alive = { ...found, last: answer({ createdAt: NOW + 1 }) }
    expect(here(confirming).takes({ type: "confirmed", reason: silence, found })).toMatchObject({ stage: "leaving" })
    const { run } = here(confirming).takes({ type: "confirmed", reason: silence, found: alive })
    expect(run).toMatchObject({ stage, confirming: false, lastSignAt: NOW })
    expect(here(confirming).takes({ type: "confirmed", reason: silence }).run).toMatchObject({
      stage,
      confirming: false,
    })
  })

  test("a sleep shifts all of its waits, and no limit counts it", () => {
    const waits = {
      asks: [askOf({ askedAt: 5 })],
      hintAt: 6,
      lastSignAt: 7,
      stuckSince: 8,
      missingSince: 9,
      lookAt: 10,
    }
    const lastWord = { state: "told", reason: timeout, at: 1, againAt: 2 } as const
    const { run } = here({ run: { ...waits, todosSince: 11, lastWord } }).takes({ type: "slept", ms: 1000 })
    expect(run).toMatchObject({
      sleptMs: 1000,
      hintAt: 1006,
      lastSignAt: 1007,
      stuckSince: 1008,
      missingSince: 1009,
      lookAt: 1010,
      todosSince: 1011,
      lastWord: { at: 1001, againAt: 1002 },
    })
    expect(run?.asks[0]?.askedAt).toBe(1005)
    expect(here(LATE).takes({ type: "slept", ms: 800 }).run).toMatchObject({ stage, sleptMs: 800 })
  })

  test("questions are known, announced once, and known to be open again where their refusal failed", () => {
    const ask = askOf()
    const first = here().takes({ type: "questions", open: [ask], at: NOW })
    expect(first).toMatchObject({ stage, does: ["announce"], run: { asks: [ask] } })
    expect(here({ run: { asks: [ask] } }).takes({ type: "questions", open: [], at: NOW }).run?.asks).toEqual([])
    expect(here().takes({ type: "unrefused", ask })).toMatchObject({ stage, run: { asks: [ask] } })
    const old = askOf({ askedAt: NOW - 16_000 })
    const hinting = here({ run: { asks: [old], hintAt: NOW } }).takes({ type: "tick", doing: undefined })
    expect(hinting).toMatchObject({ stage, does: ["hint"], run: { hinting: true } })
    expect(here().takes({ type: "hinted", done: false }).run).toMatchObject({ stage, hintAt: NOW + 10_000 })
    expect(here().takes({ type: "hinted", done: true }).run?.hintAt).toBe(Number.POSITIVE_INFINITY)
    const refused = here({ run: { asks: [old] }, options: { permissionTimeout: 1000 } })
    expect(refused.takes({ type: "tick", doing: undefined })).toMatchObject({
      does: ["refuse"],
      run: { asks: [], unanswered: [old.what], refused: { after: 0, asks: [old] } },
    })
  })

  test("a last word is spoken from the request on, and asked of one that rests", () => {
    const lastWord = { state: "told", reason: timeout, at: NOW } as const
    expect(here({ run: { lastWord } }).takes({ type: "request" }).run?.lastWord?.state).toBe("speaking")
    expect(here().takes({ type: "request" })).toMatchObject({ stage, does: [] })
    expect(here({ run: { lastWord } }).takes({ type: "resting" })).toMatchObject({ stage, does: ["say"] })
    expect(here().takes({ type: "resting" })).toMatchObject({ stage, does: [] })
  })

  test("a last word that was not taken ends it, any other word that was not taken is answered so", () => {
    const lastWord = { state: "told", reason: timeout, at: NOW } as const
    const problem = "no"
    const word = wordOf({ kind: "last-word" })
    expect(here({ run: { lastWord, calls: 1 } }).takes({ type: "said", word, problem }).stage).toBe("leaving")
    const reply = () => {}
    const mine = wordOf({ reply })
    const failed = here({ run: { calls: 1, sentMessages: [mine] } }).takes({ type: "said", word: mine, problem })
    expect(failed.run).toMatchObject({ stage, calls: 0, sentMessages: [] })
    expect(command(failed.commands, "answer")).toEqual({ do: "answer", reply, with: { problem } })
    const taken = here({ run: { calls: 1, sentMessages: [mine] } }).takes({ type: "said", word: mine })
    expect(taken.run?.sentMessages).toEqual([{ ...mine, taken: true }])
    expect(command(taken.commands, "answer")?.with).toBe("told")
  })
})

describe("before it begins", () => {
  test("it is told what stands behind its prompt, is admitted, or ends without being stopped", () => {
    const reply = () => {}
    const { takes } = at("queued", { task: { run: QUEUED } })
    const told = takes({ type: "tell", text: "MORE", reply })
    expect(told).toMatchObject({ stage: "queued", run: { prompt: "FIND\n\nMORE" } })
    const ended = takes(end)
    expect(ended).toMatchObject({ stage: "leaving", run: { calls: 0 }, does: ["end", "close", "write", "ended"] })
    expect(command(ended.commands, "close")).toEqual({ do: "close", read: false })
    expect(takes({ type: "admitted" })).toMatchObject({ stage: "entering", does: ["record", "enter"] })
  })

  test("one that is being made begins where it has its slot, waits where it has none, and may end already", () => {
    const begin = { type: "begin", prompt: "FIND" } as const
    expect(at("making").takes(begin)).toMatchObject({ stage: "prompting", does: ["prompt"], run: { calls: 1 } })
    expect(at("making", { task: { depth: 2 } }).takes(begin)).toMatchObject({ stage: "entering", does: ["enter"] })
    expect(at("making", { task: { run: QUEUED } }).takes(begin)).toMatchObject({ stage: "queued", does: [] })
    expect(at("queued", { task: { run: QUEUED } }).takes(begin)).toMatchObject({ stage: "queued", does: [] })
    expect(at("making").takes(end).stage).toBe("leaving")
    // A person's word in its session has begun it.
    expect(at("making").takes({ type: "begin" })).toMatchObject({ stage: "working", does: [] })
  })

  test("its place is made ready, or shuts it out", () => {
    const { takes } = at("entering")
    const entered = takes({ type: "entered", answers: [], preface: "a worktree" })
    expect(entered).toMatchObject({ stage: "prompting", run: { lastSignAt: NOW, preface: "a worktree" } })
    const shut = takes({ type: "shut out", code: "place", problem: "no git" })
    expect(shut.run?.closing?.task.outcome?.reason).toEqual({ code: "place", text: "no git" })
  })
})

describe("held behind the first of several alike", () => {
  const held = (more: object = {}) => at("held", { ...more, run: { warmUpUntil: NOW + 1000, ...(more as Scene).run } })
  const spent = { ...SPENT, run: { ...FULL, warmUpUntil: NOW + 1000 } }

  test("it begins when it is admitted, and never by the clock alone", () => {
    expect(held().takes({ type: "admitted" })).toMatchObject({ stage: "prompting", does: ["record", "prompt"] })
    expect(held({ task: { depth: 2 } }).takes({ type: "admitted" }).stage).toBe("entering")
    const tick = { type: "tick", doing: undefined } as const
    expect(held().takes(tick)).toMatchObject({ stage: "held", does: [] })
    expect(held({ run: { warmUpUntil: NOW } }).takes(tick)).toMatchObject({ stage: "held", does: [] })
  })

  test("its limits hold, and it is told and slept through as any that has not begun", () => {
    expect(held(spent).takes({ type: "admitted" }).stage).toBe("leaving")
    expect(held(LATE).takes({ type: "tick", doing: undefined }).stage).toBe("leaving")
    expect(held().takes({ type: "spent" }).stage).toBe("held")
    expect(held(spent).takes({ type: "spent" }).stage).toBe("leaving")
    expect(held().takes({ type: "slept", ms: 500 }).run).toMatchObject({ stage: "held", warmUpUntil: NOW + 1500 })
    const told = held().takes({ type: "tell", text: "MORE", reply: () => {} })
    expect(told.run).toMatchObject({ stage: "held", prompt: "FIND\n\nMORE" })
    expect(held().takes(end).stage).toBe("leaving")
  })
})

describe("its prompt", () => {
  test("is with the host: what was said meanwhile follows, in its order", () => {
    const words = [wordOf({ id: "msg_1", held: true }), wordOf({ id: "msg_2", held: true })]
    const { run, commands } = at("prompting", { run: { calls: 1, sentMessages: words } }).takes({ type: "prompted" })
    expect(run).toMatchObject({ stage: "working", calls: 2, stageCount: 0 })
    expect(commands).toMatchObject([
      { do: "say", word: { id: "msg_1" } },
      { do: "say", word: { id: "msg_2" } },
    ])
    const reply = () => {}
    const told = at("prompting", { run: { calls: 1 } }).takes({ type: "tell", text: "MORE", reply })
    expect(told).toMatchObject({ does: [], run: { sentMessages: [{ held: true, expected: true }] } })
  })

  test("was not taken: it has failed, and what was to follow is answered so", () => {
    const reply = () => {}
    const words = [wordOf({ held: true, reply })]
    const { stage, commands, run } = at("prompting", { run: { calls: 1, sentMessages: words } }).takes({
      type: "prompted",
      problem: "no",
    })
    expect(stage).toBe("leaving")
    expect(command(commands, "answer")).toEqual({ do: "answer", reply, with: "ended" })
    expect(run?.outcome?.reason?.text).toBe("OpenCode did not take the prompt: no")
  })
})

describe.each(["prompting", "working"] as const)("a look at %s", (stage) => {
  const found = { messages: [asked(), answer()], gone: false, busy: false, openTodos: 0 }
  const looking = (more: object = {}) => at(stage, { run: { looking: true, ...more } })

  test("is one at a time; what asks for one meanwhile has another made after it", () => {
    expect(at(stage).takes({ type: "look" })).toMatchObject({ does: ["look"], run: { looking: true } })
    const { run } = looking().takes({ type: "look" })
    expect(run).toMatchObject({ lookAgain: true })
    const busy = { ...found, messages: [asked()], busy: true }
    const again = looking({ lookAgain: true, stuckSince: 1 }).takes({ type: "looked", waited: false, found: busy })
    expect(again).toMatchObject({ stage, does: ["look"], run: { stuckSince: undefined } })
  })

  test("that failed is due again soon, by the run's own deadline", () => {
    const { run, world } = { ...looking(), ...looking().takes({ type: "looked", waited: false }) }
    expect(run?.lookAt).toBe(NOW + 2000)
    expect(run && nextDue(run, world)).toBe(NOW + 2000)
    expect(run && nextDue({ ...run, looking: true }, world)).toBeGreaterThan(NOW + 2000)
  })

  test("ends it well where it has answered, not while it waits for its own, and through its check where it has one", () => {
    expect(looking().takes({ type: "looked", waited: false, found }).stage).toBe("leaving")
    expect(looking().takes({ type: "looked", waited: true, found }).stage).toBe(stage)
    const checked = at(stage, { run: { looking: true }, task: { run: { check: "true" } } })
    const { stage: next, does } = checked.takes({ type: "looked", waited: false, found })
    expect([next, does]).toEqual(["checking", ["verify"]])
  })

  test("ends it not before it has read what it is told, but waits for that no longer than its grace", () => {
    const words = [wordOf({ taken: true })]
    const wait = looking({ sentMessages: words }).takes({ type: "looked", waited: false, found })
    expect(wait).toMatchObject({ stage, run: { missingSince: NOW } })
    const long = looking({ sentMessages: words, missingSince: NOW - ANSWER_GRACE_MS })
    expect(long.takes({ type: "looked", waited: false, found }).stage).toBe("leaving")
  })

  test("says a word again that was passed over, and asks on where our refusal ended its turn", () => {
    const passed = [asked(), asked("msg_word"), answer({ finish: "done" })]
    const word = wordOf({ taken: true, expected: false })
    const said = looking({ sentMessages: [word] }).takes({
      type: "looked",
      waited: false,
      found: { ...found, messages: passed },
    })
    expect(said).toMatchObject({ does: ["say"], run: { calls: 1, sentMessages: [{ text: "MORE" }] } })
    const part = { type: "tool", callID: "c", tool: "bash", state: "error", refused: "permission" } as const
    const refused = [asked(), answer({ finish: "called", parts: [part] })]
    const ours = looking({ refused: { after: 0, asks: [] } }).takes({
      type: "looked",
      waited: false,
      found: { ...found, messages: refused },
    })
    expect(command(ours.commands, "say")?.word.text).toContain("The refusal ended your turn, but not your task.")
    const theirs = looking().takes({ type: "looked", waited: false, found: { ...found, messages: refused } })
    expect(theirs.run?.closing?.ending).toMatchObject({ type: "cancelled", reason: { code: "refused" } })
  })
})

describe("its verifiers", () => {
  const checking = (more: object = {}) =>
    at("checking", {
      task: { run: { check: "npm test" } },
      run: {
        answered: { ending: { type: "completed", proven: true }, messages: [asked(), answer()], openTodos: 2 },
        ...more,
      },
    })
  const check = { command: "npm test", passed: false, runs: 1, how: "exit code 1" }
  const verdict = (given?: Verdict) => ({ type: "verified", by: "checks", verdict: given }) as const

  test("pass: it ends as it had answered", () => {
    const { stage, run } = checking().takes(verdict(passing({ check: { ...check, passed: true } })))
    expect(stage).toBe("leaving")
    expect(run?.closing).toMatchObject({ ending: { type: "completed", proven: false }, how: { openTodos: 2 } })
  })

  test("fail: it is asked again where it may be, and once more where it was told something", () => {
    expect(checking().takes(verdict(failing({ check }, true)))).toMatchObject({ stage: "working", does: ["say"] })
    const failed = verdict(failing({ check }, false))
    expect(checking().takes(failed).run?.outcome?.reason?.code).toBe("check")
    expect(checking({ sentMessages: [wordOf()] }).takes(failed).stage).toBe("working")
  })

  test("were stopped: it goes on", () => {
    expect(checking().takes(verdict())).toMatchObject({ stage: "working", does: [] })
  })

  test("a word meanwhile is said, and its end waits for that", () => {
    const said = checking().takes({ type: "tell", text: "MORE", reply: () => {} })
    expect(said).toMatchObject({ stage: "checking", does: ["say"] })
  })

  test("judge one after the other", () => {
    const answered = { ending: { type: "completed" }, messages: [asked(), answer()], openTodos: 0 } as const
    const both = at("checking", { task: { run: { schema: {}, check: "true" } }, run: { answered } })
    const value = { valid: true, asked: 1, at: 0, length: 1 } as const
    const next = both.takes({ type: "verified", by: "schemas", verdict: passing({ value }) })
    expect(next).toMatchObject({ stage: "checking", does: ["verify"], run: { value } })
  })
})

describe("parked", () => {
  const parked = { at: NOW - 5000, model: "mock/one", why: "its limit" }
  const scene = { task: { run: { parked } } }

  test.each(["prompting", "working"] as const)("from %s it holds nothing, and is written down so", (stage) => {
    const call = { id: "call_1", tool: "bash", state: "running", messageID: "msg_a" } as const
    const observed = withTool(NOTHING_OBSERVED, call)
    const run = { asks: [askOf()], looking: true, calls: stage === "prompting" ? 1 : 0, observed }
    const { run: next, does } = at(stage, { run }).takes({ type: "refused", parked })
    expect(does).toEqual(["record", "park", "freed"])
    // What its user has asked is not said again by us.
    expect(at(stage, { run: { prompt: undefined } }).takes({ type: "refused", parked })).toMatchObject({
      stage,
      does: [],
    })
    expect(next).toMatchObject({ stage: "parked", asks: [], looking: false, calls: run.calls + 1 })
    expect([...(next?.observed.calls.values() ?? [])]).toEqual(["ended"])
  })

  test("no clock, no event and no limit touches it; words are stored for when it goes on", () => {
    const { takes, run, world } = at("parked", { ...scene, ...LATE })
    for (const input of [{ type: "tick", doing: "nothing" }, { type: "spent" }, heard({ type: "idle" })] as Input[])
      expect(takes(input).run).toBe(run)
    expect(nextDue(run, world)).toBe(Number.POSITIVE_INFINITY)
    // The time for which it is parked is left out of its limits as a whole.
    expect(takes({ type: "slept", ms: 1000 }).run).toBe(run)
    const told = takes({ type: "tell", text: "MORE", reply: () => {} })
    expect(told).toMatchObject({ stage: "parked", does: ["store"] })
    expect(told.run && at("parked", { run: told.run }).takes({ type: "said", word: wordOf() }).stage).toBe("parked")
    expect(takes({ type: "stopped" }).run).toMatchObject({ stage: "parked", calls: -1 })
    expect(takes({ type: "prompted" }).run).toMatchObject({ stage: "parked", calls: -1 })
  })

  test("it goes on by the same prompt when there is a slot, and a last word has as long as before", () => {
    const lastWord = { state: "told", reason: timeout, at: NOW - 6000 } as const
    const { takes } = at("parked", { ...scene, run: { lastWord } })
    const on = takes({ type: "admitted" })
    expect(on).toMatchObject({
      stage: "prompting",
      does: ["record", "prompt"],
      run: { lastSignAt: NOW },
    })
    expect(on.run?.lastWord?.at).toBe(NOW - 1000)
    expect(command(on.commands, "record")?.event).toMatchObject({ type: "unparked", at: NOW })
  })

  test("it goes on when what stops it has come back", () => {
    const { takes } = at("parked", { ...scene, run: { calls: 1 } })
    expect(takes({ type: "admitted" })).toMatchObject({ stage: "parked", does: [] })
    for (const input of [{ type: "stopped" }, { type: "prompted" }, { type: "said", word: wordOf() }] as Input[])
      expect(takes(input)).toMatchObject({ stage: "parked", run: { calls: 0 }, does: ["freed"] })
    const more = at("parked", { ...scene, run: { calls: 2 } })
    expect(more.takes({ type: "stopped" })).toMatchObject({ run: { calls: 1 }, does: [] })
  })

  test("what its user asks of it meanwhile is stopped, too", () => {
    const { takes } = at("parked", scene)
    const { stage, run, does } = takes({ type: "refused", parked })
    expect({ stage, does }).toEqual({ stage: "parked", does: ["park"] })
    expect(run).toMatchObject({ calls: 1 })
  })

  test("a question for its last word that is not taken ends it", () => {
    const lastWord = { state: "told", reason: timeout, at: NOW - 6000 } as const
    const { takes } = at("parked", { ...scene, run: { lastWord, calls: 1 } })
    const word = { ...wordOf(), kind: "last-word" } as const
    expect(takes({ type: "said", word, problem: "no" }).stage).toBe("leaving")
  })

  test("whose place went with an earlier process, it has that made again first, and says what it said", () => {
    const { takes } = at("parked", { ...scene, run: { prompt: "WORK", preface: "in /place", preparesAgain: true } })
    const on = takes({ type: "admitted" })
    expect(on).toMatchObject({ stage: "entering", does: ["record", "enter"] })
    expect(command(on.commands, "enter")).toMatchObject({ save: false, again: true })
    const ready =
      on.run && at("entering", { run: on.run }).takes({ type: "entered", answers: [], preface: "elsewhere" })
    expect(ready?.commands).toEqual([{ do: "prompt", text: "WORK", preface: "in /place" }])
    expect(ready?.run).not.toHaveProperty("reenters")
  })

  test("it ends as any run does", () => {
    expect(at("parked", scene).takes(end).run?.closing?.task.run).toMatchObject({ parkedMs: 5000, endedAt: NOW })
  })
})

describe("once it has ended", () => {
  const quiet = { type: "quiet", messages: [asked(), answer()] } as const

  test("a silent one is gone with its session quiet; any other is told", () => {
    const silent = at("leaving", { run: { closing: { how: { silent: true }, write: "never" } as never } })
    expect(silent.takes(quiet)).toMatchObject({ stage: undefined, does: ["record", "freed", "post"] })
    expect(at("leaving").takes(quiet)).toMatchObject({
      stage: "telling",
      does: ["record", "freed", "write", "post"],
      run: { closing: { posted: true } },
    })
  })

  test("its place is left first, and its work brought home where it completed and was to be merged", () => {
    const place = { kind: "worktree", folder: "/", merge: false } as const
    expect(at("leaving", { task: { place } }).takes(quiet)).toMatchObject({ stage: "leaving", does: ["leave"] })
    const merging = at("leaving", { task: { place: { ...place, merge: true } } }).takes(quiet)
    expect(merging).toMatchObject({ stage: "merging", commands: [{ do: "leave", merge: true }] })
    const check = { command: "true", passed: true, runs: 2, how: "exit code 0", output: "x" }
    const left = at("merging").takes({ type: "left", found: { note: "kept" }, check })
    expect(left).toMatchObject({
      stage: "telling",
      run: { outcome: { note: "kept", receipt: { check: { runs: 2 } } } },
    })
  })

  test.each(["leaving", "merging"] as const)("what fails at %s is told as far as it is known", (stage) => {
    const silent = { run: { closing: { how: { silent: true }, write: "never" } as never } }
    expect(at(stage).takes({ type: "left" }).stage).toBe("telling")
    expect(at(stage, silent).takes({ type: "left" }).stage).toBeUndefined()
  })

  test("a check on the way home is stopped by an end; the end stays what it was", () => {
    expect(at("merging").takes(end)).toMatchObject({ stage: "merging", does: ["halt"] })
  })

  test.each(["leaving", "merging", "telling"] as const)("at %s what comes late is counted, and answered", (stage) => {
    const reply = () => {}
    const word = wordOf({ reply })
    const { takes } = at(stage, { run: { calls: 2 } })
    expect(takes({ type: "prompted", problem: "no" }).run).toMatchObject({ stage, calls: 1 })
    expect(takes({ type: "stopped" }).run).toMatchObject({ stage, calls: 1 })
    // What it asks between its end and its stop nobody is to answer.
    const asked = takes(heard({ type: "asked", ask: askOf() }))
    expect(asked).toMatchObject({ stage, does: ["refuse"] })
    const said = takes({ type: "said", word })
    expect(said).toMatchObject({ run: { stage, calls: 1 }, commands: [{ do: "answer", reply, with: "ended" }] })
    expect(takes(heard({ type: "idle" })).run).toMatchObject({ stage, calls: 2 })
  })

  test("it is told once its end is written, and forgotten once that is known and nothing is on its way", () => {
    const writing = { closing: { write: "now", writes: 1, posted: false } as never }
    for (const stage of ["leaving", "merging"] as const) {
      const written = at(stage, { run: writing }).takes({ type: "written" })
      expect(written).toMatchObject({ stage, does: [], run: { closing: { writes: 0 } } })
    }
    const posting = at("telling", { run: writing }).takes({ type: "written" })
    expect(posting).toMatchObject({ stage: "telling", does: ["post"] })
    const silent = { closing: { writes: 1, posted: false, how: { silent: true } } as never }
    expect(at("telling", { run: silent }).takes({ type: "written" }).stage).toBeUndefined()
    expect(at("telling").takes({ type: "told" }).stage).toBeUndefined()
    const busy = at("telling", { run: { calls: 1 } }).takes({ type: "told" }).run
    expect(busy).toMatchObject({ stage: "telling", closing: { delivered: true } })
    for (const last of [{ type: "stopped" }, { type: "prompted" }, { type: "said", word: wordOf() }] as Input[])
      expect(at("telling", { run: busy }).takes(last).stage).toBeUndefined()
  })

  test("another run may begin once it is posted and nothing is on its way", () => {
    const { run } = at("telling")
    expect([isFinished(run), isFinished({ ...run, calls: 1 }), isFinished({ ...run, stage: "leaving" })]).toEqual([
      true,
      false,
      false,
    ])
  })
})

test("what the table does not have changes nothing, nor what comes to another process's run", () => {
  for (const stage of Object.keys(TABLE) as Stage[]) {
    const { run, takes } = at(stage)
    for (const type of ["begin", "admitted", "entered", "quiet", "left", "told"] as const)
      if (!TABLE[stage][type]) expect(takes({ type } as Input)).toMatchObject({ run, commands: [] })
  }
  const { run, takes } = at("working", { run: { heldBy: "foreign" } })
  expect(takes(end)).toMatchObject({ run, commands: [] })
  expect(progressOf(run).idle).toBeUndefined()
  expect(NOTHING_DONE.toolCalls).toBe(0)
})

describe("leading a team", () => {
  const team = { kind: "tries", prompt: "FIND", count: 2, timeout: 0 } as const
  const part = (nth: number, status: "completed" | "error" | "running") => ({
    task: taskOf({
      id: `bg_part000${nth}`,
      status,
      part: { kind: "tries", of: "bg_aaaaaaaa", nth, run: 0, caller: "ses_parent", under: "ses_parent" },
    }),
    closed: status !== "running",
    began: true,
  })
  const leading = (members: ReturnType<typeof part>[] = [], more: Scene = {}) =>
    at("leading", { ...more, task: { team, ...more.task }, world: { members: () => members, ...more.world } })
  const won = { task: { team: { ...team, winner: "bg_part0001" } } }

  test("its parts begin when what comes before is there, each with what the team is asked", () => {
    const { stage, commands, run } = at("entering", { task: { team } }).takes({
      type: "entered",
      answers: [],
      preface: "",
    })
    expect(stage).toBe("leading")
    expect(commands).toEqual([0, 1].map((nth) => ({ do: "field", nth, text: "FIND" })))
    expect(run?.creatingMembers).toEqual([0, 1])
    const over = at("entering", { task: { team }, world: { members: () => [part(0, "error"), part(1, "error")] } })
    expect(over.takes({ type: "entered", answers: [], preface: "" }).stage).toBe("leaving")
  })

  test("what passes first is written down, and only then follows the rest", () => {
    const { stage, commands } = leading([part(1, "completed"), part(0, "running")]).takes({ type: "parts" })
    expect(stage).toBe("leading")
    expect(commands).toEqual([
      { do: "record", event: { type: "won", generation: 0, winner: "bg_part0001" }, write: false },
      { do: "write", later: false },
    ])
    expect(leading([], won).takes({ type: "parts" }).does).toEqual([])
    expect(leading([], won).takes(end)).toMatchObject({ stage: "leading", does: [] })
    expect(leading([], won).takes({ type: "written" })).toMatchObject({
      stage: "leaving",
      does: ["end", "close", "write", "ended"],
      run: { closing: { ending: { type: "completed" } } },
    })
    expect(leading([]).takes({ type: "written" })).toMatchObject({ stage: "leading", does: [] })
  })

  test("what has passed and is being written down has won, whatever it has cost", () => {
    const options = { maxCostPerTask: 0, maxCostPerSession: 1 }
    const spent = () => ({ ...NOTHING_SPENT, session: { ...BILLED, cost: 2 } })
    const scene = { options, world: { spent } }
    expect(leading([], scene).takes({ type: "spent" }).stage).toBe("leaving")
    const passed = leading([], { ...scene, ...won })
    expect(passed.takes({ type: "spent" })).toMatchObject({ stage: "leading", does: [] })
    expect(passed.takes({ type: "tick", doing: "nothing" })).toMatchObject({ stage: "leading", does: [] })
    expect(passed.takes({ type: "written" }).run?.closing?.ending.type).toBe("completed")
  })

  test("none that passes is an end, and so is a part that cannot be made", () => {
    const none = [part(0, "error"), part(1, "error")]
    expect(leading(none).takes({ type: "parts" }).run?.closing?.ending.reason?.code).toBe("check")
    const { stage, run } = leading([part(0, "running")], { run: { creatingMembers: [0, 1] } }).takes({
      type: "fielded",
      nth: 0,
    })
    expect({ stage, creatingMembers: run?.creatingMembers }).toEqual({ stage: "leading", creatingMembers: [1] })
    const shut = leading([], { run: { creatingMembers: [0] } }).takes({ type: "fielded", nth: 0, problem: "no host." })
    expect(shut.run?.closing?.ending.reason).toEqual({ code: "host", text: "Part 1 could not be begun: no host." })
    expect(
      leading([part(0, "error")], { run: { creatingMembers: [1] } }).takes({ type: "fielded", nth: 1 }).stage,
    ).toBe("leading")
    expect(leading(none, { run: { creatingMembers: [1] } }).takes({ type: "fielded", nth: 1 }).stage).toBe("leaving")
  })

  test("the clock, what others spend and a sleep reach it; nothing of it is silence", () => {
    const busy = [part(0, "running"), part(1, "running")]
    const idle = { type: "tick", doing: "nothing" } as const
    const late = { run: { lastSignAt: 0 }, options: { stallTimeout: 1000 } }
    expect(leading(busy, late).takes(idle)).toMatchObject({ stage: "leading", does: [], run: { lastSignAt: NOW } })
    expect(leading([part(0, "error"), part(1, "error")]).takes(idle).stage).toBe("leaving")
    expect(leading(busy).takes({ type: "spent" })).toMatchObject({ stage: "leading", does: [] })
    const bought = { maxCostPerTask: 0, maxCostPerSession: 1 }
    const spent = () => ({ ...NOTHING_SPENT, session: { ...BILLED, cost: 2 } })
    expect(leading(busy, { options: bought, world: { spent } }).takes({ type: "spent" }).stage).toBe("leaving")
    expect(leading(busy).takes({ type: "slept", ms: 7 }).run).toMatchObject({ stage: "leading", sleptMs: 7 })
    const ended = leading(busy).takes(end)
    expect(ended).toMatchObject({ stage: "leaving", does: ["end", "close", "write", "ended"] })
    expect(command(ended.commands, "close")).toEqual({ do: "close", read: false })
  })

  test("its end waits for what its parts leave, whether it has a place or not", () => {
    const { takes } = at("leaving", { task: { team } })
    expect(takes({ type: "quiet", messages: [] }).does).toContain("leave")
  })
})
