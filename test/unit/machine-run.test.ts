import { afterEach, describe, expect, test } from "vitest"
import type { ActiveRun, Stage } from "../../src/core/run/active-run.ts"
import { expectsMessage, hasEnded, isFinished, isHeldUp, newRun, progressOf } from "../../src/core/run/active-run.ts"
import type { Input, InputType } from "../../src/core/run/inputs.ts"
import { NOTHING_OBSERVED } from "../../src/core/run/progress.ts"
import { edges, step } from "../../src/core/run/step.ts"
import { type Edge, TABLE } from "../../src/core/run/table.ts"
import { answer, asked, at, BILLED, command, NOW, QUEUED, type Scene, wordOf } from "../support/machine.ts"
import { askOf, taskOf } from "../support/tasks.ts"

/** What is known of a run, what is seen of it, and what becomes of it at any input. */

const STAGES = Object.keys(TABLE) as Stage[]
const reply = () => {}

describe("a run that is made", () => {
  const made = () => newRun(taskOf({ run: { generation: 2 } }), "creating", NOW)

  test("is its task's, and nothing was heard of it, said to it or asked by it", () => {
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
      hinting: false,
      sentMessages: [],
      lastMessageAt: 0,
      looking: false,
      lookAgain: false,
      lookedAt: 0,
      confirming: false,
      sleptMs: 0,
      calls: 0,
      creatingMembers: [],
      done: [],
    })
    expect(newRun(taskOf(), "working", NOW, "foreign").heldBy).toBe("foreign")
  })

  test("shows that nothing was done yet", () => {
    expect(progressOf(made())).toEqual({
      toolCalls: 0,
      recentTools: [],
      lastText: "",
      lastSignAt: NOW,
      idle: false,
      usage: NOTHING_OBSERVED.usage,
      retry: undefined,
      asks: [],
      openCalls: 0,
      pendingCalls: 0,
      lastWord: undefined,
      emptyAnswers: 0,
    })
  })
})

describe("what is seen of a run", () => {
  const seen = (run: Partial<ActiveRun> = {}, stage: Stage = "working") => progressOf(at(stage, { run }).run)

  test("is what was told of it, and what it waits for", () => {
    const told = {
      ...NOTHING_OBSERVED,
      calls: new Map([["msg_a call_1", "running" as const]]),
      answers: new Map([["msg_a", { spoke: false, called: false, usage: BILLED, finish: "done" as const }]]),
      recentTools: ["read"],
      text: "looking",
      usage: BILLED,
    }
    const retry = { attempt: 2, message: "wait" }
    const lastWord = { state: "told", reason: { code: "timeout", text: "x" }, at: NOW } as const
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

  test("is that it cannot be reached, or what makes its place ready, while that is so", () => {
    const away = { host: "big", since: NOW, most: 0 }
    expect(seen({ away })).toMatchObject({ away })
    expect(seen({ preparing: "connecting to big" as never })).toMatchObject({ preparing: "connecting to big" })
    expect(seen()).not.toHaveProperty("away")
    expect(seen()).not.toHaveProperty("preparing")
  })

  test("is not whether it is idle where another process looks after it", () => {
    expect(seen({ heldBy: "foreign", idle: true })).not.toHaveProperty("idle")
    expect(seen({ heldBy: "orphan" })).not.toHaveProperty("idle")
  })

  test("is a call that is open while it is not its agent's turn: that is no silence of its model's", () => {
    for (const stage of STAGES) {
      const held = ["held", "preparing", "verifying"].includes(stage)
      expect([stage, isHeldUp(at(stage).run)]).toEqual([stage, held])
      expect([stage, seen({}, stage).openCalls]).toEqual([stage, held ? 1 : 0])
      if (held) expect(seen({}, stage).held).toBe(true)
      else expect(seen({}, stage)).not.toHaveProperty("held")
    }
  })
})

describe("a run", () => {
  test("has ended from its end on", () => {
    expect(STAGES.filter((stage) => hasEnded(at(stage).run))).toEqual(["closing", "finalizing", "notifying"])
  })

  test("leaves its session to another when it is told of and nothing more is to come there", () => {
    expect(STAGES.filter((stage) => isFinished(at(stage).run))).toEqual(["notifying"])
    const { run } = at("notifying")
    expect(isFinished({ ...run, calls: 1 })).toBe(false)
    expect(isFinished({ ...run, closing: { ...run.closing, posted: false } as never })).toBe(false)
    expect(isFinished({ ...run, closing: undefined })).toBe(false)
    // That a place is being put away is no end of it, whatever was posted.
    expect(isFinished({ ...run, stage: "closing" })).toBe(false)
  })

  test("expects a word until it is seen among its messages", () => {
    const { run } = at("working")
    const [seen, due] = [wordOf({ expected: false }), wordOf()]
    expect([[], [seen], [due], [seen, due]].map((words) => expectsMessage({ ...run, sentMessages: words }))).toEqual([
      false,
      false,
      true,
      true,
    ])
  })

  test("is looked at by the clock while it waits for something, and not where it is only not heard of", () => {
    const tick = { type: "tick", doing: undefined } as const
    for (const wait of ["stuckSince", "todosSince", "missingSince", "lookAt"] as const)
      expect([wait, at("working", { run: { [wait]: NOW } }).takes(tick).does]).toEqual([wait, ["look"]])
    expect(at("working").takes(tick).does).toEqual([])
  })
})

describe("contact", () => {
  const place = { kind: "big", folder: "/here", merge: false }
  const there: Scene = { task: { place }, world: { mostAway: () => 60_000 }, options: { stallTimeout: 0 } }
  const away = { host: "big", since: NOW - 5000, most: 60_000 }
  const lost: Input = { type: "contact", lost: NOW - 2000 }
  const back: Input = { type: "contact", lost: undefined }

  test("lost is a phase of its own: nothing of its session's idleness counts any more", () => {
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

  test("that is lost already is lost since then", () => {
    const { run, takes } = at("working", { ...there, run: { away } })
    expect(takes(lost).run).toBe(run)
  })

  test("to a place that has no such option may be lost for as long as the task may take", () => {
    expect(at("working", { task: { place } }).takes(lost).run?.away).toMatchObject({ host: "big", most: 0 })
    expect(at("working").takes(lost).run?.away).toEqual({ host: "", since: NOW - 2000, most: 0 })
  })

  test("found again is a sign of life, and a look that was under way is not waited for", () => {
    const run = { away, looking: true, lookAgain: true, stuckSince: 1 }
    const found = at("working", { ...there, run }).takes(back)
    expect(found).toMatchObject({ does: ["look"], run: { looking: true, lookAgain: false, lastSignAt: NOW } })
    expect(found.run?.away).toBeUndefined()
    expect(found.run?.stuckSince).toBeUndefined()
    // Its host is heard of at work: what was asked of it before is asked anew, when that is due.
    const busy = at("working", { ...there, run }).takes({ type: "tick", doing: { type: "busy" } })
    expect(busy).toMatchObject({ does: [], run: { looking: false, lookAgain: false, lastSignAt: NOW } })
  })

  test("that was not lost is no sign of life: it is looked at, and no more", () => {
    const { run, takes } = at("working", { ...there, run: { stuckSince: 1 } })
    expect(takes(back).run).toEqual({ ...run, looking: true })
    expect(at("working", { ...there, run: { looking: true } }).takes(back)).toMatchObject({
      does: [],
      run: { lookAgain: true },
    })
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
  refused: { type: "refused", parked: { at: NOW, model: "mock/one", why: "its limit" } },
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
  hinted: { type: "hinted", done: true },
  counted: { type: "counted", messages: [asked(), answer()] },
  looked: { type: "looked", waited: false },
  confirmed: { type: "confirmed", reason: { code: "silence", text: "x" } },
  verified: { type: "verified", by: "checks" },
  closed: { type: "closed", messages: [asked(), answer()] },
  finalized: { type: "finalized" },
  written: { type: "written" },
  notified: { type: "notified" },
}

describe("a step", () => {
  const before = edges.taken
  afterEach(() => {
    edges.taken = before
  })

  test("is total: whatever comes at whatever stage, and however little is known of the run, it says what becomes of it", () => {
    // No such run comes to be: its edges count for nothing.
    edges.taken = undefined
    for (const stage of STAGES) {
      const isQueued = ["creating", "queued"].includes(stage)
      const { task, world } = at(stage, isQueued ? { task: { run: QUEUED } } : {})
      for (const input of Object.values(INPUTS)) {
        const { run } = step(newRun(task, stage, NOW), input, world)
        const targets = [stage, ...(TABLE[stage][input.type] ?? [])]
        expect([stage, input.type, targets.includes(run?.stage as never)]).toEqual([stage, input.type, true])
      }
    }
  })

  test("does nothing more for a run that stands at its end without one: nobody is told what nobody knows", () => {
    edges.taken = undefined
    const { task, world } = at("working")
    for (const stage of ["closing", "finalizing", "notifying"] as const)
      for (const type of ["closed", "finalized", "written", "notified"] as const) {
        const run = newRun(task, stage, NOW)
        if (TABLE[stage][type]) expect(step(run, INPUTS[type], world)).toMatchObject({ run: { stage }, commands: [] })
      }
  })

  test("changes nothing for another process's run, or for nobody's", () => {
    for (const heldBy of ["foreign", "orphan"] as const) {
      const { run, takes } = at("working", { run: { heldBy } })
      for (const input of Object.values(INPUTS)) expect(takes(input)).toMatchObject({ run, commands: [] })
    }
  })

  test("tells its edge to who wants to know, and none that the table does not have", () => {
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

  test("is the same for anybody where nobody wants to know", () => {
    edges.taken = undefined
    expect(command(at("notifying").takes(INPUTS.notified).commands, "notify")).toBeUndefined()
    expect(at("working").takes(INPUTS.end).stage).toBe("closing")
  })
})
