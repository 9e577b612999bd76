import { afterEach, describe, expect, test } from "vitest"
import type { ActiveRun, Stage } from "../../src/core/run/active-run.ts"
import { isClosing, isFinished, isWithoutAgent, newRun, progressOf } from "../../src/core/run/active-run.ts"
import { type Edge, edges, step, TABLE } from "../../src/core/run/machine.ts"
import { NOTHING_OBSERVED } from "../../src/core/run/progress.ts"
import type { Input, InputType } from "../../src/core/run/steps.ts"
import { answer, asked, at, BILLED, NOW, QUEUED, type Scene, wordOf } from "../support/machine.ts"
import { askOf, taskOf } from "../support/tasks.ts"

/** What is known of a run, what is seen of it, and what becomes of it at any input. */

const STAGES = Object.keys(TABLE) as Stage[]
const reply = () => {}

describe("a new run", () => {
  const made = () => newRun(taskOf({ run: { generation: 2 } }), "creating", NOW)

  test("a new run starts without observations, sent messages or questions", () => {
    expect(made()).toEqual({
      taskID: "bg_aaaaaaaa",
      sessionID: "ses_child",
      generation: 2,
      stage: "creating",
      stageCount: 0,
      heldBy: "ours",
      observed: NOTHING_OBSERVED,
      lastSignAt: NOW,
      idle: false,
      endsText: false,
      preface: "",
      asks: [],
      unanswered: [],
      sentMessages: [],
      lastMessageAt: 0,
      looking: false,
      lookAgain: false,
      lookedAt: 0,
      confirming: false,
      calls: 0,
      creatingMembers: [],
      done: [],
    })
    expect(newRun(taskOf(), "working", NOW, "foreign").heldBy).toBe("foreign")
  })
})

describe("the progress of a run", () => {
  const seen = (run: Partial<ActiveRun> = {}, stage: Stage = "working") => progressOf(at(stage, { run }).run)

  test("the progress of a run contains what was observed and what it waits for", () => {
    const told = {
      ...NOTHING_OBSERVED,
      calls: new Map([["msg_a call_1", "running" as const]]),
      answers: new Map([["msg_a", { hasOutput: false, called: false, usage: BILLED, finish: "done" as const }]]),
      recentTools: ["read"],
      text: "looking",
      usage: BILLED,
    }
    const retry = { attempt: 2, message: "wait" }
    const lastWord = { state: "requested", reason: { code: "timeout", text: "x" }, at: 1000 } as const
    const asks = [askOf()]
    expect(seen({ observed: told, retry, lastWord, asks, idle: true })).toEqual({
      toolCalls: 1,
      recentTools: ["read"],
      lastText: "looking",
      lastSignAt: NOW - 1000,
      idle: true,
      usage: BILLED,
      retry,
      asks,
      openCalls: 1,
      pendingCalls: 0,
      lastWord,
      emptyAnswers: 1,
    })
  })

  test("the progress of a run shows a lost connection, or what prepares its place", () => {
    const away = { host: "big", since: NOW, most: 0 }
    expect(seen({ away })).toMatchObject({ away })
    expect(seen({ preparing: "connecting to big" as never })).toMatchObject({ preparing: "connecting to big" })
    expect(seen()).not.toHaveProperty("away")
    expect(seen()).not.toHaveProperty("preparing")
  })

  test("the progress of a run shows that its model fails or that its agent repeats a call", () => {
    const failing = { since: 5, attempt: 2, message: "529" }
    expect(seen({ failing })).toEqual({ ...seen(), failing })
    const repeated = { tool: "poll", digest: "same", times: 2 }
    expect(seen({ observed: { ...NOTHING_OBSERVED, repeated } })).toEqual({ ...seen(), repeated })
    expect(seen()).not.toHaveProperty("failing")
    expect(seen()).not.toHaveProperty("repeated")
  })

  test("a call whose arguments the model still writes is pending, not open", () => {
    const calls = new Map([["msg_a call_1", "pending" as const]])
    const observed = { ...NOTHING_OBSERVED, calls }
    expect(seen({ observed })).toMatchObject({ toolCalls: 1, openCalls: 0, pendingCalls: 1 })
  })

  test("the progress of another process's run does not say whether it is idle", () => {
    expect(seen({ heldBy: "foreign", idle: true })).not.toHaveProperty("idle")
    expect(seen({ heldBy: "orphan" })).not.toHaveProperty("idle")
  })

  test("a held, preparing or verifying run shows an open call, so it does not count as silent", () => {
    for (const stage of STAGES) {
      const held = ["held", "preparing", "verifying"].includes(stage)
      expect([stage, isWithoutAgent(at(stage).run)]).toEqual([stage, held])
      expect([stage, seen({}, stage).openCalls]).toEqual([stage, held ? 1 : 0])
      if (held) expect(seen({}, stage).held).toBe(true)
      else expect(seen({}, stage)).not.toHaveProperty("held")
    }
  })
})

describe("a run's state", () => {
  test("a run is closing until its session and its folder are left", () => {
    expect(STAGES.filter((stage) => isClosing(at(stage).run))).toEqual(["closing", "finalizing"])
    expect(isClosing(undefined)).toBe(false)
  })

  test("a run is finished when it is posted and no call is pending", () => {
    expect(STAGES.filter((stage) => isFinished(at(stage).run))).toEqual(["notifying"])
    const { run } = at("notifying")
    expect(isFinished({ ...run, calls: 1 })).toBe(false)
    expect(isFinished({ ...run, closing: { ...run.closing, posted: false } as never })).toBe(false)
    expect(isFinished({ ...run, closing: undefined })).toBe(false)
    // That a place is being put away is no end of it, whatever was posted.
    expect(isFinished({ ...run, stage: "closing" })).toBe(false)
  })

  test("the clock looks at a run only while it waits for something, not because no event was heard", () => {
    const tick = { type: "tick", doing: undefined } as const
    for (const wait of ["stuckSince", "todosSince", "missingSince", "lookAt"] as const)
      expect([wait, at("working", { run: { [wait]: NOW } }).takes(tick).does]).toEqual([wait, ["look"]])
    expect(at("working").takes(tick).does).toEqual([])
  })
})

describe("contact with a host", () => {
  const place = { kind: "big", folder: "/here", merge: false }
  const there: Scene = { task: { place }, context: { mostAway: () => 60_000 }, options: { stallTimeout: 0 } }
  const away = { host: "big", since: NOW - 5000, most: 60_000 }
  const lost: Input = { type: "contact", lost: NOW - 2000 }
  const back: Input = { type: "contact", lost: undefined }

  test("losing contact to a host resets all idle deadlines of the run", () => {
    const retry = { attempt: 1, message: "x" }
    const run = { stuckSince: 1, todosSince: 2, missingSince: 3, lookAt: 4, retry, confirming: true }
    const { run: next, commands } = at("working", { ...there, run }).takes(lost)
    expect(next).toMatchObject({
      away: { host: "big", since: NOW - 2000, most: 60_000 },
      stuckSince: undefined,
      todosSince: undefined,
      missingSince: undefined,
      lookAt: undefined,
      retry: undefined,
      confirming: false,
    })
    expect(commands).toEqual([])
  })

  test("losing contact again does not change the time since when contact is lost", () => {
    const { run, takes } = at("working", { ...there, run: { away } })
    expect(takes(lost).run).toBe(run)
  })

  test("contact may be lost without a time limit at a place that has no such option", () => {
    expect(at("working", { task: { place } }).takes(lost).run?.away).toMatchObject({ host: "big", most: 0 })
    expect(at("working").takes(lost).run?.away).toEqual({ host: "", since: NOW - 2000, most: 0 })
  })

  test("regained contact counts as a sign of life, and a look that had started before is not awaited", () => {
    const run = { away, looking: true, lookAgain: true, stuckSince: 1 }
    const found = at("working", { ...there, run }).takes(back)
    expect(found).toMatchObject({ does: ["look"], run: { looking: true, lookAgain: false, lastSignAt: NOW } })
    expect(found.run?.away).toBeUndefined()
    expect(found.run?.stuckSince).toBeUndefined()
    // Its host is heard of at work: what was asked of it before is asked anew, when that is due.
    const busy = at("working", { ...there, run }).takes({ type: "tick", doing: { type: "busy" } })
    expect(busy).toMatchObject({ does: [], run: { looking: false, lookAgain: false, lastSignAt: NOW } })
  })
})

/** One of each. */
const INPUTS: { readonly [Type in InputType]: Extract<Input, { type: Type }> } = {
  begin: { type: "begin", prompt: "FIND" },
  admitted: { type: "admitted" },
  tell: { type: "tell", text: "MORE", reply },
  request: { type: "request" },
  end: { type: "end", ending: { type: "completed" }, options: {} },
  event: { type: "event", event: { type: "idle", sessionID: "ses_child" } },
  questions: { type: "questions", open: [askOf()], at: NOW },
  look: { type: "look" },
  tick: { type: "tick", doing: "nothing" },
  spending: { type: "spending" },
  slept: { type: "slept", ms: 5 },
  pause: { type: "pause", parked: { at: NOW, model: "mock/one", why: "its limit" } },
  members: { type: "members" },
  contact: { type: "contact", lost: NOW },
  preparing: { type: "preparing", what: undefined },
  prepared: { type: "prepared", answers: [], preface: "" },
  "member created": { type: "member created", nth: 0 },
  "prepare failed": { type: "prepare failed", code: "host", problem: "x" },
  prompted: { type: "prompted" },
  sent: { type: "sent", message: wordOf() },
  stopped: { type: "stopped" },
  idle: { type: "idle" },
  "refuse failed": { type: "refuse failed", ask: askOf() },
  "hint dropped": { type: "hint dropped" },
  counted: { type: "counted", messages: [asked(), answer()] },
  looked: { type: "looked", waited: false },
  confirmed: { type: "confirmed", reason: { code: "silence", text: "x" } },
  verified: { type: "verified", by: "checks" },
  closed: { type: "closed", messages: [asked(), answer()] },
  finalized: { type: "finalized" },
  written: { type: "written" },
  notified: { type: "notified" },
}

describe("the transitions of a run", () => {
  const before = edges.taken
  afterEach(() => {
    edges.taken = before
  })

  test("every input at every stage leads to an allowed stage, even for a run without data", () => {
    // No such run comes to be: its edges count for nothing.
    edges.taken = undefined
    for (const stage of STAGES) {
      const isQueued = ["creating", "queued"].includes(stage)
      const { task, context } = at(stage, isQueued ? { task: { run: QUEUED } } : {})
      for (const input of Object.values(INPUTS)) {
        const { run } = step(newRun(task, stage, NOW), input, context)
        const targets = [stage, ...(TABLE[stage][input.type] ?? [])]
        expect([stage, input.type, targets.includes(run?.stage as never)]).toEqual([stage, input.type, true])
      }
    }
  })

  test("a run in an end stage whose ending is unknown produces no commands", () => {
    edges.taken = undefined
    const { task, context } = at("working")
    for (const stage of ["closing", "finalizing", "notifying"] as const)
      for (const type of ["closed", "finalized", "written", "notified"] as const) {
        const run = newRun(task, stage, NOW)
        if (TABLE[stage][type]) expect(step(run, INPUTS[type], context)).toMatchObject({ run: { stage }, commands: [] })
      }
  })

  test("no input changes the run of another process or an orphan", () => {
    for (const heldBy of ["foreign", "orphan"] as const) {
      const { run, takes } = at("working", { run: { heldBy } })
      for (const input of Object.values(INPUTS)) expect(takes(input)).toMatchObject({ run, commands: [] })
    }
  })

  test("a step reports its transition to an observer only if the table has that transition", () => {
    const taken: Edge[] = []
    edges.taken = (edge) => {
      taken.push(edge)
      before?.(edge)
    }
    at("working").takes(INPUTS.end)
    at("working").takes(INPUTS.notified)
    at("notifying").takes(INPUTS.notified)
    expect(taken).toEqual(["working --end--> closing", "notifying --notified--> gone"])
  })
})
