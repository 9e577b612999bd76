import { describe, expect, test } from "vitest"
import type { GroupStep } from "../../src/core/group.ts"
import { type ActiveRun, progressOf, type Stage } from "../../src/core/run/active-run.ts"
import { ANSWER_GRACE_MS } from "../../src/core/run/events.ts"
import { nextDue, TABLE } from "../../src/core/run/machine.ts"
import { NOTHING_OBSERVED, withTool } from "../../src/core/run/progress.ts"
import type { Input, Verdict } from "../../src/core/run/steps.ts"
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

const AT_WORK = ["preparing", "prompting", "working", "verifying"] as const
const SESSION = "ses_child"
const cancelled = { type: "cancelled", reason: { code: "cancelled", text: "x" } } as const
const end = { type: "end", ending: cancelled, options: {} } as const
const timeout = { code: "timeout", text: "Stopped." } as const
/** Its time is up. */
const LATE = { task: { run: { timeout: 500 } }, options: { lastWord: 0 } } as const
/** What it may spend is spent. */
const SPENT = { options: { maxTokensPerTask: 100, lastWord: 0 } } as const
const FULL = { observed: { calls: new Map(), answers: new Map(), usage: BILLED } } as unknown as Partial<ActiveRun>
const heard = (event: object): Input => ({ type: "event", event: { sessionID: SESSION, ...event } as never })

describe.each(AT_WORK)("a run in the stage %s", (stage) => {
  const scene = stage === "verifying" ? { task: { run: { check: "true" } } } : {}
  const here = (more: object = {}) => at(stage, { ...scene, ...more })

  test("a run ends by its time limit, by its own spending and by shared spending", () => {
    expect(here(LATE).takes({ type: "tick", doing: undefined }).stage).toBe("closing")
    expect(here({ ...SPENT, run: FULL }).takes({ type: "spending" }).stage).toBe("closing")
    expect(here(SPENT).takes({ type: "spending" }).stage).toBe(stage)
    const answered = heard({ type: "answered", messageID: "msg_a", usage: BILLED, finish: "called" })
    expect(here(SPENT).takes(answered).stage).toBe("closing")
    expect(here().takes(answered)).toMatchObject({ stage, does: ["check shared limits"] })
    const messages = [asked(), answer({ finish: "called", usage: BILLED })]
    expect(here(SPENT).takes({ type: "counted", messages }).stage).toBe("closing")
    expect(here().takes({ type: "counted", messages })).toMatchObject({ stage, does: ["check shared limits"] })
  })

  test("an exceeded silence limit does not end a run that OpenCode reports as alive", () => {
    const confirming = { run: { confirming: true } }
    const silence = { code: "silence", text: "Silent." } as const
    const found = { messages: [], asks: [] }
    const alive = { ...found, last: answer({ createdAt: NOW + 1 }) }
    expect(here(confirming).takes({ type: "confirmed", reason: silence, found })).toMatchObject({ stage: "closing" })
    const { run } = here(confirming).takes({ type: "confirmed", reason: silence, found: alive })
    expect(run).toMatchObject({ stage, confirming: false, lastSignAt: NOW })
    expect(here(confirming).takes({ type: "confirmed", reason: silence }).run).toMatchObject({
      stage,
      confirming: false,
    })
  })

  test("the time that the computer slept moves all waits", () => {
    const waits = {
      asks: [askOf({ askedAt: 5 })],
      hintAt: 6,
      lastSignAt: 7,
      stuckSince: 8,
      missingSince: 9,
      lookAt: 10,
    }
    const { run, commands } = here({ run: { ...waits, todosSince: 11 } }).takes({ type: "slept", ms: 1000 })
    expect(commands).toEqual([{ do: "record", event: { type: "slept", generation: 0, ms: 1000 }, write: false }])
    expect(run).toMatchObject({
      hintAt: 1006,
      lastSignAt: 1007,
      stuckSince: 1008,
      missingSince: 1009,
      lookAt: 1010,
      todosSince: 1011,
    })
    expect(run?.asks[0]?.askedAt).toBe(1005)
  })

  test("questions are announced once, refused after their timeout, and open again when the refusal fails", () => {
    const ask = askOf()
    const first = here().takes({ type: "questions", open: [ask], at: NOW })
    expect(first).toMatchObject({ stage, does: ["announce"], run: { asks: [ask] } })
    expect(here({ run: { asks: [ask] } }).takes({ type: "questions", open: [], at: NOW }).run?.asks).toEqual([])
    expect(here().takes({ type: "refuse failed", ask })).toMatchObject({ stage, run: { asks: [ask] } })
    const old = askOf({ askedAt: NOW - 16_000 })
    const hinting = here({ run: { asks: [old], hintAt: NOW } }).takes({ type: "tick", doing: undefined })
    expect(hinting).toMatchObject({ stage, does: ["hint"], run: { hintAt: Number.POSITIVE_INFINITY } })
    const later = here({ run: { hintAt: Number.POSITIVE_INFINITY } }).takes({ type: "hint dropped" })
    expect(later.run).toMatchObject({ stage, hintAt: undefined })
    const again = here({ run: { asks: [old], hintAt: Number.POSITIVE_INFINITY } }).takes({ type: "hint dropped" })
    expect(again.run).toMatchObject({ stage, hintAt: NOW + 10_000 })
    const refused = here({ run: { asks: [old] }, options: { permissionTimeout: 1000 } })
    expect(refused.takes({ type: "tick", doing: undefined })).toMatchObject({
      does: ["refuse"],
      run: { asks: [], unanswered: [old.what], refused: { after: 0, asks: [old] } },
    })
  })

  test("a last word begins with its request, and an idle run near its limit is asked for it", () => {
    const lastWord = { state: "requested", reason: timeout, at: 1000 } as const
    expect(here({ run: { lastWord } }).takes({ type: "request" }).run?.lastWord?.state).toBe("speaking")
    expect(here().takes({ type: "request" })).toMatchObject({ stage, does: [] })
    expect(here({ run: { lastWord } }).takes({ type: "idle" })).toMatchObject({ stage, does: ["send"] })
    expect(here().takes({ type: "idle" })).toMatchObject({ stage, does: [] })
  })

  test("a rejected request for the last word ends the run, while any other rejected message is only reported", () => {
    const lastWord = { state: "requested", reason: timeout, at: 1000 } as const
    const problem = "no"
    const message = wordOf({ kind: "last-word" })
    expect(here({ run: { lastWord, calls: 1 } }).takes({ type: "sent", message, problem }).stage).toBe("closing")
    const reply = () => {}
    const mine = wordOf({ reply })
    const failed = here({ run: { calls: 1, sentMessages: [mine] } }).takes({ type: "sent", message: mine, problem })
    expect(failed.run).toMatchObject({ stage, calls: 0, sentMessages: [] })
    expect(command(failed.commands, "answer")).toEqual({ do: "answer", reply, with: { problem } })
    const taken = here({ run: { calls: 1, sentMessages: [mine] } }).takes({ type: "sent", message: mine })
    expect(taken.run?.sentMessages).toEqual([{ ...mine, taken: true }])
    expect(command(taken.commands, "answer")?.with).toBe("accepted")
  })
})

describe("a run before its prompt", () => {
  test("a queued run appends messages to its prompt, can be admitted, and can end without being stopped", () => {
    const reply = () => {}
    const { takes } = at("queued", { task: { run: QUEUED } })
    const told = takes({ type: "tell", text: "MORE", reply })
    expect(told).toMatchObject({ stage: "waiting", run: { prompt: "FIND\n\nMORE" } })
    const ended = takes(end)
    expect(ended).toMatchObject({ stage: "closing", run: { calls: 0 }, does: ["end", "close", "write", "ended"] })
    expect(command(ended.commands, "close")).toEqual({ do: "close", read: false })
    expect(takes({ type: "admitted" })).toMatchObject({ stage: "preparing", does: ["record", "prepare"] })
  })

  test("a run in creation starts with a slot, waits without one, and can be ended", () => {
    const begin = { type: "begin", prompt: "FIND" } as const
    expect(at("creating").takes(begin)).toMatchObject({ stage: "prompting", does: ["prompt"], run: { calls: 1 } })
    expect(at("creating", { task: { depth: 2 } }).takes(begin)).toMatchObject({ stage: "preparing", does: ["prepare"] })
    expect(at("creating", { task: { run: QUEUED } }).takes(begin)).toMatchObject({ stage: "waiting", does: [] })
    expect(at("queued", { task: { run: QUEUED } }).takes(begin)).toMatchObject({ stage: "waiting", does: [] })
    expect(at("creating").takes(end).stage).toBe("closing")
    // A person's word in its session has begun it.
    expect(at("creating").takes({ type: "begin" })).toMatchObject({ stage: "working", does: [] })
  })

  test("a prepared place starts the prompt, and a failed place ends the run", () => {
    const { takes } = at("preparing")
    const entered = takes({ type: "prepared", answers: [], preface: "a worktree" })
    expect(entered).toMatchObject({ stage: "prompting", run: { lastSignAt: NOW, preface: "a worktree" } })
    const shut = takes({ type: "prepare failed", code: "place", problem: "no git" })
    expect(shut.run?.closing?.task.outcome?.reason).toEqual({ code: "place", text: "no git" })
  })
})

describe("a held run", () => {
  const held = (more: object = {}) =>
    at("held", { ...more, run: { held: { behind: "bg_first", until: NOW + 1000 }, ...(more as Scene).run } })
  const spent = { ...SPENT, run: { ...FULL, held: { behind: "bg_first", until: NOW + 1000 } } }

  test("a held run obeys its limits, accepts messages and shifts its deadline after a sleep", () => {
    expect(held(spent).takes({ type: "admitted" }).stage).toBe("closing")
    expect(held(LATE).takes({ type: "tick", doing: undefined }).stage).toBe("closing")
    expect(held().takes({ type: "spending" }).stage).toBe("waiting")
    expect(held(spent).takes({ type: "spending" }).stage).toBe("closing")
    expect(held().takes({ type: "slept", ms: 500 }).run).toMatchObject({
      stage: "waiting",
      held: { until: NOW + 1500 },
    })
    const told = held().takes({ type: "tell", text: "MORE", reply: () => {} })
    expect(told.run).toMatchObject({ stage: "waiting", prompt: "FIND\n\nMORE" })
    expect(held().takes(end).stage).toBe("closing")
  })
})

describe("a run's prompt", () => {
  test("messages that arrive while the prompt is being sent follow it in their order", () => {
    const words = [wordOf({ id: "msg_1", held: true }), wordOf({ id: "msg_2", held: true })]
    const { run, commands } = at("prompting", { run: { calls: 1, sentMessages: words } }).takes({ type: "prompted" })
    expect(run).toMatchObject({ stage: "working", calls: 2, stageCount: 1 })
    expect(commands).toMatchObject([
      { do: "send", message: { id: "msg_1" } },
      { do: "send", message: { id: "msg_2" } },
    ])
    const unread = at("prompting", { run: { calls: 1, idle: true } }).takes({ type: "prompted" })
    expect(unread).toMatchObject({ stage: "working", does: ["look"] })
    const early = { calls: 1, looking: true, lookAgain: true, stuckSince: NOW - 5000 }
    expect(at("prompting", { run: early }).takes({ type: "prompted" })).toMatchObject({
      does: ["look"],
      run: { looking: true, lookAgain: false, stuckSince: undefined },
    })
    const reply = () => {}
    const told = at("prompting", { run: { calls: 1 } }).takes({ type: "tell", text: "MORE", reply })
    expect(told).toMatchObject({ does: [], run: { sentMessages: [{ held: true, expected: true }] } })
  })

  test("a rejected prompt ends the run as failed and answers the messages that waited for it", () => {
    const reply = () => {}
    const words = [wordOf({ held: true, reply })]
    const { stage, commands, run } = at("prompting", { run: { calls: 1, sentMessages: words } }).takes({
      type: "prompted",
      problem: "no",
    })
    expect(stage).toBe("closing")
    expect(command(commands, "answer")).toEqual({ do: "answer", reply, with: "ended" })
    expect(run?.outcome?.reason?.text).toBe("OpenCode did not take the prompt: no")
  })
})

describe.each(["prompting", "working"] as const)("a look in the stage %s", (stage) => {
  const found = { messages: [asked(), answer()], gone: false, busy: false, openTodos: 0 }
  const looking = (more: object = {}) => at(stage, { run: { looking: true, ...more } })

  test("only one look runs at a time, and a request meanwhile causes another look afterwards", () => {
    expect(at(stage).takes({ type: "look" })).toMatchObject({ does: ["look"], run: { looking: true } })
    const { run } = looking().takes({ type: "look" })
    expect(run).toMatchObject({ lookAgain: true })
    const busy = { ...found, messages: [asked()], busy: true }
    const again = looking({ lookAgain: true, stuckSince: 1 }).takes({ type: "looked", waited: false, found: busy })
    expect(again).toMatchObject({ stage, does: ["look"], run: { stuckSince: undefined } })
  })

  test("a look ends an answered run unless it waits for its own tasks or has a check", () => {
    expect(looking().takes({ type: "looked", waited: false, found }).stage).toBe("closing")
    expect(looking().takes({ type: "looked", waited: true, found }).stage).toBe(stage)
    const checked = at(stage, { run: { looking: true }, task: { run: { check: "true" } } })
    const { stage: next, does } = checked.takes({ type: "looked", waited: false, found })
    expect([next, does]).toEqual(["verifying", ["verify"]])
  })

  test("a look waits a grace period for unread messages before it ends the run", () => {
    const words = [wordOf({ taken: true })]
    const wait = looking({ sentMessages: words }).takes({ type: "looked", waited: false, found })
    expect(wait).toMatchObject({ stage, run: { missingSince: NOW } })
    const long = looking({ sentMessages: words, missingSince: NOW - ANSWER_GRACE_MS })
    expect(long.takes({ type: "looked", waited: false, found }).stage).toBe("closing")
  })
})

test("a run whose prompt is still being sent is not stuck, however long its session is idle", () => {
  const found = { messages: [asked()], gone: false, busy: false, openTodos: 0 }
  const looking = at("prompting", { run: { looking: true, idle: true, stuckSince: 0 } })
  const { stage, does, run } = looking.takes({ type: "looked", waited: false, found })
  expect({ stage, does, stuckSince: run?.stuckSince }).toEqual({ stage: "prompting", does: [], stuckSince: undefined })
})

describe("a run's verifiers", () => {
  const checking = (more: object = {}) =>
    at("verifying", {
      task: { run: { check: "npm test" } },
      run: {
        idle: true,
        pendingEnding: {
          ending: { type: "completed", proven: true },
          messages: [asked(), answer()],
          openTodos: 2,
          answers: 0,
        },
        ...more,
      },
    })
  const check = { command: "npm test", passed: false, runs: 1, how: "exit code 1" }
  const verdict = (given?: Verdict) => ({ type: "verified", by: "checks", verdict: given }) as const

  test("a run whose check passes ends with the answer that it gave", () => {
    const { stage, run } = checking().takes(verdict(passing({ check: { ...check, passed: true } })))
    expect(stage).toBe("closing")
    expect(run?.closing).toMatchObject({ ending: { type: "completed", proven: false }, options: { openTodos: 2 } })
  })

  test("a run whose check fails is asked again if allowed, or if it had received a message", () => {
    expect(checking().takes(verdict(failing({ check }, true)))).toMatchObject({ stage: "working", does: ["send"] })
    const failed = verdict(failing({ check }, false))
    expect(checking().takes(failed).run?.outcome?.reason?.code).toBe("check")
    expect(checking({ sentMessages: [wordOf()] }).takes(failed).stage).toBe("working")
  })

  test("a run whose check was stopped continues to work", () => {
    expect(checking().takes(verdict())).toMatchObject({ stage: "working", does: [] })
  })
})

describe("a parked run", () => {
  const parked = { at: NOW - 5000, model: "mock/one", why: "its limit" }
  const scene = { task: { run: { parked } } }

  test.each(["prompting", "working"] as const)(
    "a run parked from %s frees its slot and is recorded as parked",
    (stage) => {
      const call = { id: "call_1", tool: "bash", state: "running", messageID: "msg_a" } as const
      const observed = withTool(NOTHING_OBSERVED, call)
      const run = { asks: [askOf()], looking: true, calls: stage === "prompting" ? 1 : 0, observed }
      const { run: next, does, commands } = at(stage, { run }).takes({ type: "pause", parked })
      expect(does).toEqual(["record", "park", "free slot"])
      const event = { type: "parked", generation: 0, ...parked, found: { unanswered: [] } }
      expect(command(commands, "record")).toEqual({ do: "record", event, write: true })
      // What its user has asked is not said again by us.
      expect(at(stage, { run: { prompt: undefined } }).takes({ type: "pause", parked })).toMatchObject({
        stage,
        does: [],
      })
      expect(next).toMatchObject({ stage: "waiting", asks: [], looking: false, calls: run.calls + 1 })
      expect([...(next?.observed.calls.values() ?? [])]).toEqual(["ended"])
    },
  )

  test("a parked run ignores the clock, events and limits, and stores messages for later", () => {
    const { takes, run, context } = at("parked", { ...scene, ...LATE })
    for (const input of [{ type: "tick", doing: "nothing" }, { type: "spending" }, heard({ type: "idle" })] as Input[])
      expect(takes(input).run).toBe(run)
    expect(nextDue(run, context)).toBe(Number.POSITIVE_INFINITY)
    // The time for which it is parked is left out of its limits as a whole.
    expect(takes({ type: "slept", ms: 1000 }).run).toBe(run)
    const told = takes({ type: "tell", text: "MORE", reply: () => {} })
    expect(told).toMatchObject({ stage: "waiting", does: ["store"] })
    const hinted = at("parked", { ...scene, run: { hintAt: Number.POSITIVE_INFINITY } }).takes({ type: "hint dropped" })
    expect(hinted.run).toMatchObject({ stage: "waiting", hintAt: undefined })
    expect(told.run && at("parked", { run: told.run }).takes({ type: "sent", message: wordOf() }).stage).toBe("waiting")
    expect(takes({ type: "stopped" }).run).toMatchObject({ stage: "waiting", calls: -1 })
    expect(takes({ type: "prompted" }).run).toMatchObject({ stage: "waiting", calls: -1 })
  })

  test("a parked run continues only after its stop and all other pending calls have returned", () => {
    const { takes } = at("parked", { ...scene, run: { calls: 1 } })
    expect(takes({ type: "admitted" })).toMatchObject({ stage: "waiting", does: [] })
    for (const input of [{ type: "stopped" }, { type: "prompted" }, { type: "sent", message: wordOf() }] as Input[])
      expect(takes(input)).toMatchObject({ stage: "waiting", run: { calls: 0 }, does: ["free slot"] })
    const more = at("parked", { ...scene, run: { calls: 2 } })
    expect(more.takes({ type: "stopped" })).toMatchObject({ run: { calls: 1 }, does: [] })
  })

  test("a turn that a user starts in a parked run is stopped too", () => {
    const asks = [askOf()]
    const { stage, run, commands } = at("parked", { ...scene, run: { asks } }).takes({ type: "pause", parked })
    expect({ stage, commands }).toEqual({ stage: "waiting", commands: [{ do: "park", asks }] })
    expect(run).toMatchObject({ calls: 1, asks: [] })
  })

  test("a queued run is parked without a stop, and its prompt is stored until it begins", () => {
    const { stage, run, commands } = at("queued", { task: { run: QUEUED } }).takes({ type: "pause", parked })
    expect(commands).toEqual([
      { do: "record", event: { type: "admitted", generation: 0, at: NOW }, write: false },
      { do: "record", event: { type: "parked", generation: 0, ...parked }, write: false },
      { do: "store prompt", text: "FIND" },
    ])
    expect({ stage, notStarted: run?.notStarted, calls: run?.calls }).toEqual({
      stage: "waiting",
      notStarted: true,
      calls: 1,
    })
  })

  test("a run that was parked before its start begins like a new one when it is admitted", () => {
    const begins = (task: object = {}) =>
      at("parked", { task: { ...scene.task, ...task }, run: { notStarted: true } }).takes({ type: "admitted" })
    const record = { do: "record", event: { type: "unparked", generation: 0, at: NOW }, write: true }
    const first = begins()
    expect(first.stage).toBe("prompting")
    expect(first.commands).toEqual([record, { do: "prompt", text: "FIND", preface: "" }])
    expect(first.run).not.toHaveProperty("notStarted")
    expect(begins({ depth: 2 }).commands).toEqual([record, { do: "prepare", save: false }])
  })

  test("a parked run ends when OpenCode rejects the request for its last word", () => {
    const lastWord = { state: "requested", reason: timeout, at: 1000 } as const
    const { takes } = at("parked", { ...scene, run: { lastWord, calls: 1 } })
    const word = { ...wordOf(), kind: "last-word" } as const
    expect(takes({ type: "sent", message: word, problem: "no" }).stage).toBe("closing")
  })

  test("a parked run of an earlier process prepares its place again before it sends its old prompt", () => {
    const { takes } = at("parked", { ...scene, run: { prompt: "WORK", preface: "in /place", preparesAgain: true } })
    const on = takes({ type: "admitted" })
    expect(on).toMatchObject({ stage: "preparing", does: ["record", "prepare"] })
    expect(command(on.commands, "prepare")).toMatchObject({ save: false, again: true })
    const ready =
      on.run && at("preparing", { run: on.run }).takes({ type: "prepared", answers: [], preface: "elsewhere" })
    expect(ready?.stage).toBe("prompting")
    expect(ready?.commands).toEqual([{ do: "prompt", text: "WORK", preface: "in /place" }])
    expect(ready?.run).not.toHaveProperty("reenters")
  })

  test("a run that an earlier process parked before its start prepares its place anew, and is told of it", () => {
    const run = { prompt: "WORK", preface: "", notStarted: true, preparesAgain: true } as const
    const on = at("parked", { ...scene, run }).takes({ type: "admitted" })
    expect(command(on.commands, "prepare")).toEqual({ do: "prepare", save: false })
    expect(on.run).not.toHaveProperty("notStarted")
    const answers = [{ task: taskOf(), text: "in the prompt already", gone: false }]
    const ready = on.run && at("preparing", { run: on.run }).takes({ type: "prepared", answers, preface: "there" })
    expect(ready?.commands).toEqual([{ do: "prompt", text: "WORK", preface: "there" }])
  })
})

describe("an ended run", () => {
  test.each(["closing", "finalizing"] as const)("a failure at %s does not prevent the notification", (stage) => {
    const silent = { run: { closing: { options: { silent: true }, write: "never" } as never } }
    expect(at(stage).takes({ type: "finalized" }).stage).toBe("notifying")
    expect(at(stage, silent).takes({ type: "finalized" }).stage).toBeUndefined()
  })

  test.each(["closing", "finalizing", "notifying"] as const)(
    "at stage %s, late replies are still counted and late messages are answered",
    (stage) => {
      const reply = () => {}
      const message = wordOf({ reply })
      const { takes } = at(stage, { run: { calls: 2 } })
      expect(takes({ type: "prompted", problem: "no" }).run).toMatchObject({ stage, calls: 1 })
      expect(takes({ type: "stopped" }).run).toMatchObject({ stage, calls: 1 })
      // What it asks between its end and its stop nobody is to answer.
      const asked = takes(heard({ type: "asked", ask: askOf() }))
      expect(asked).toMatchObject({ stage, does: ["refuse"] })
      const said = takes({ type: "sent", message })
      expect(said).toMatchObject({ run: { stage, calls: 1 }, commands: [{ do: "answer", reply, with: "ended" }] })
      expect(takes(heard({ type: "idle" })).run).toMatchObject({ stage, calls: 2 })
    },
  )

  test("an ended run notifies once its end is written, and is dropped after the confirmation and all calls", () => {
    const writing = { closing: { write: "now", writes: 1, posted: false } as never }
    for (const stage of ["closing", "finalizing"] as const) {
      const written = at(stage, { run: writing }).takes({ type: "written" })
      expect(written).toMatchObject({ stage, does: [], run: { closing: { writes: 0 } } })
    }
    const posting = at("notifying", { run: writing }).takes({ type: "written" })
    expect(posting).toMatchObject({ stage: "notifying", does: ["notify"] })
    const silent = { closing: { writes: 1, posted: false, options: { silent: true } } as never }
    expect(at("notifying", { run: silent }).takes({ type: "written" }).stage).toBeUndefined()
    expect(at("notifying").takes({ type: "notified" }).stage).toBeUndefined()
    const busy = at("notifying", { run: { calls: 1 } }).takes({ type: "notified" }).run
    expect(busy).toMatchObject({ stage: "notifying", closing: { delivered: true } })
    for (const last of [{ type: "stopped" }, { type: "prompted" }, { type: "sent", message: wordOf() }] as Input[])
      expect(at("notifying", { run: busy }).takes(last).stage).toBeUndefined()
  })
})

test("an input that the table lacks changes nothing, and neither does one for another process's run", () => {
  for (const stage of Object.keys(TABLE) as Stage[]) {
    const { run, takes } = at(stage)
    for (const type of ["begin", "admitted", "prepared", "closed", "finalized", "notified"] as const)
      if (!TABLE[stage][type]) expect(takes({ type } as Input)).toMatchObject({ run, commands: [] })
  }
  const { run, takes } = at("working", { run: { heldBy: "foreign" } })
  expect(takes(end)).toMatchObject({ run, commands: [] })
  expect(progressOf(run).idle).toBeUndefined()
  expect(NOTHING_DONE.toolCalls).toBe(0)
})

describe("supervising a group", () => {
  const team = { kind: "tries", prompt: "FIND", count: 2, timeout: 0 } as const
  const failed = { ending: { type: "failed", reason: { code: "check", text: "None passed." } } } as const
  const leading = (move: Partial<GroupStep> = {}, more: Scene = {}) => {
    const context = { nextMembers: () => ({ begin: [], ...move }), ...more.context }
    return at("supervising", { ...more, task: { group: team, ...more.task }, context })
  }
  const won = { task: { group: { ...team, winner: "bg_part0001" } } }

  test("a group starts its members with the group's prompt once its dependencies are ready", () => {
    const prepared = { type: "prepared", answers: [], preface: "" } as const
    const ready = (move: GroupStep) =>
      at("preparing", { task: { group: team }, context: { nextMembers: () => move } }).takes(prepared)
    const { stage, commands, run } = ready({ begin: [0, 1] })
    expect(stage).toBe("supervising")
    expect(commands).toEqual([0, 1].map((nth) => ({ do: "create member", nth, text: "FIND", preface: "" })))
    expect(run).toMatchObject({ creatingMembers: [0, 1], done: [] })
    expect(ready({ begin: [], ...failed }).stage).toBe("closing")
  })

  test("a group records the first member that passes before it ends the others", () => {
    const { stage, commands } = leading({ winner: "bg_part0001" }).takes({ type: "members" })
    expect(stage).toBe("supervising")
    expect(commands).toEqual([
      { do: "record", event: { type: "won", generation: 0, winner: "bg_part0001" }, write: false },
      { do: "write", later: false },
    ])
    expect(leading({}, won).takes({ type: "members" }).does).toEqual([])
    expect(leading({}, won).takes(end)).toMatchObject({ stage: "supervising", does: [] })
    expect(leading({}, won).takes({ type: "written" })).toMatchObject({
      stage: "closing",
      does: ["end", "close", "write", "ended"],
      run: { closing: { ending: { type: "completed" } } },
    })
    expect(leading().takes({ type: "written" })).toMatchObject({ stage: "supervising", does: [] })
  })

  test("a member that is recorded as winner wins even if a budget is exceeded meanwhile", () => {
    const options = { maxCostPerTask: 0, maxCostPerSession: 1 }
    const spent = () => ({ ...NOTHING_SPENT, session: { ...BILLED, cost: 2 } })
    const scene = { options, context: { spent } }
    expect(leading({}, scene).takes({ type: "spending" }).stage).toBe("closing")
    const passed = leading({}, { ...scene, ...won })
    expect(passed.takes({ type: "spending" })).toMatchObject({ stage: "supervising", does: [] })
    expect(passed.takes({ type: "tick", doing: "nothing" })).toMatchObject({ stage: "supervising", does: [] })
    expect(passed.takes({ type: "written" }).run?.closing?.ending.type).toBe("completed")
  })

  test("a group reacts to the clock, shared spending and sleep, but never counts as silent", () => {
    const idle = { type: "tick", doing: "nothing" } as const
    const late = { run: { lastSignAt: 0 }, options: { stallTimeout: 1000 } }
    expect(leading({}, late).takes(idle)).toMatchObject({ stage: "supervising", does: [], run: { lastSignAt: NOW } })
    expect(leading(failed).takes(idle).stage).toBe("closing")
    expect(leading().takes({ type: "spending" })).toMatchObject({ stage: "supervising", does: [] })
    const bought = { maxCostPerTask: 0, maxCostPerSession: 1 }
    const spent = () => ({ ...NOTHING_SPENT, session: { ...BILLED, cost: 2 } })
    expect(leading({}, { options: bought, context: { spent } }).takes({ type: "spending" }).stage).toBe("closing")
    expect(leading().takes({ type: "slept", ms: 7 })).toMatchObject({ stage: "supervising", does: ["record"] })
    const ended = leading().takes(end)
    expect(ended).toMatchObject({ stage: "closing", does: ["end", "close", "write", "ended"] })
    expect(command(ended.commands, "close")).toEqual({ do: "close", read: false })
  })
})
