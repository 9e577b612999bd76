import { describe, expect, test } from "vitest"
import type { ActiveRun } from "../../src/core/run/active-run.ts"
import { nextDue } from "../../src/core/run/machine.ts"
import { NOTHING_OBSERVED } from "../../src/core/run/progress.ts"
import type { Input } from "../../src/core/run/steps.ts"
import { answer, asked, at, BILLED, command, NOW, type Scene, wordOf } from "../support/machine.ts"
import { askOf } from "../support/tasks.ts"

/** The machine hears the events of its session, and is asked when it has to be looked at. */

const SESSION = "ses_child"
const BELOW = "ses_below"
const heard = (event: object): Input => ({ type: "event", event: { sessionID: SESSION, ...event } as never })
const timeout = { code: "timeout", text: "Stopped." } as const
/** As a run is that waits for much. */
const WAITS: Partial<ActiveRun> = {
  stuckSince: 1,
  todosSince: 2,
  missingSince: 3,
  error: { message: "x", at: 4 } as never,
}
const working = (run: Partial<ActiveRun> = {}, more: Scene = {}) => at("working", { ...more, run })

describe("an event of the run's session", () => {
  test("an event of a run's own session is a sign of life and ends its waits", () => {
    const { run } = working({ ...WAITS, idle: true, endsText: true }).takes(heard({ type: "began" }))
    expect(run).toMatchObject({ lastSignAt: NOW, idle: false, endsText: false })
    expect(run?.observed).toMatchObject({ hasEvents: true, began: true })
    expect(run).toMatchObject({
      stuckSince: undefined,
      todosSince: undefined,
      missingSince: undefined,
      error: undefined,
    })
  })

  test("an update of the session is no sign of life, since the plugin may have caused it", () => {
    const { run } = working({ ...WAITS }).takes(heard({ type: "updated" }))
    expect(run).toMatchObject({ lastSignAt: NOW - 1000, stuckSince: 1, observed: { hasEvents: false } })
  })

  test("a failing model is recorded since its first attempt, until the model answers", () => {
    const trying = heard({ type: "active", activity: { type: "retry", attempt: 1, message: "503" } })
    const first = working().takes(trying).run
    expect(first?.failing).toEqual({ since: NOW, attempt: 1, message: "503" })
    const failing = { since: 5, attempt: 1, message: "503" }
    const again = heard({ type: "active", activity: { type: "retry", attempt: 2, message: "529" } })
    expect(working({ failing }).takes(again).run?.failing).toEqual({ since: 5, attempt: 2, message: "529" })
    const asked = heard({ type: "active", activity: { type: "busy" } })
    expect(working({ failing }).takes(asked).run).toMatchObject({ failing, retry: undefined })
    expect(working({ failing }).takes(heard({ type: "began", sessionID: BELOW })).run?.failing).toEqual(failing)
    expect(working({ failing }).takes(heard({ type: "began" })).run?.failing).toBeUndefined()
  })

  test("text events set the last text of a run, whole or piece by piece", () => {
    const said = working().takes(heard({ type: "text", partID: "prt_1", text: "hello", messageID: "msg_a" }))
    expect(said.run).toMatchObject({ observed: { text: "hello", textPart: "prt_1" }, endsText: true })
    const empty = working().takes(heard({ type: "text", partID: "prt_1", text: " ", messageID: "msg_a" }))
    expect(empty.run).toMatchObject({ observed: { text: "" }, endsText: false })
    const bit = working().takes(heard({ type: "text-delta", partID: "prt_1", delta: "he", messageID: "msg_a" }))
    expect(bit.run).toMatchObject({ observed: { text: "he", textPart: "prt_1" }, endsText: false })
  })

  test("an error event is kept and makes the run read its messages", () => {
    const { run, does } = working().takes(heard({ type: "error", error: { message: "no such luck" } }))
    expect(run?.error).toEqual({ message: "no such luck", at: NOW })
    expect(does).toEqual(["look"])
  })

  test("events of tool calls, questions and replies update the run", () => {
    const call = { type: "tool", callID: "call_1", tool: "read", state: "running", messageID: "msg_a" }
    expect(working().takes(heard(call)).run?.observed).toMatchObject({ recentTools: ["read"] })
    const [one, two] = [askOf({ id: "per_1", askedAt: NOW }), askOf({ id: "per_2", askedAt: NOW })]
    const first = working().takes(heard({ type: "asked", ask: one }))
    expect(first.run).toMatchObject({ asks: [one], hintAt: NOW + 15_000 })
    expect(command(first.commands, "announce")).toEqual({ do: "announce", ask: one })
    const second = working({ asks: [one], hintAt: 7 }).takes(heard({ type: "asked", ask: two }))
    expect(second.run).toMatchObject({ asks: [one, two], hintAt: 7 })
    const again = working({ asks: [one, two] }).takes(heard({ type: "asked", ask: { ...one, what: "more" } }))
    expect(again.run?.asks).toEqual([two, { ...one, what: "more" }])
    const replied = working({ asks: [one, two] }).takes(heard({ type: "replied", askID: "per_1" }))
    expect(replied.run?.asks).toEqual([two])
    expect(working({ asks: [one] }).takes(heard({ type: "replied", askID: "per_9" })).run?.asks).toEqual([one])
  })

  test("an answer that ends completes the last word only while the run was speaking it", () => {
    const answered = heard({ type: "answered", messageID: "msg_a", usage: BILLED, finish: "called" })
    const state = (lastWord: object | undefined, observed = NOTHING_OBSERVED) =>
      working({
        observed,
        ...(lastWord && { lastWord: { reason: timeout, at: 1000, ...lastWord } as never }),
      }).takes(answered).run?.lastWord?.state
    expect(state({ state: "speaking" })).toBe("done")
    expect(state({ state: "requested", againAt: 1000 })).toBe("done")
    expect(state({ state: "requested" })).toBe("requested")
    expect(state(undefined)).toBeUndefined()
    const usage = BILLED
    const known = {
      ...NOTHING_OBSERVED,
      ended: 1,
      answers: new Map([["msg_a", { hasOutput: true, called: true, usage, finish: "called" as const }]]),
    }
    expect(state({ state: "speaking" }, known)).toBe("speaking")
  })

  test("a summary of the conversation makes the last word come with the next request", () => {
    const summed = heard({ type: "answered", messageID: "msg_s", usage: BILLED, finish: "done", summary: true })
    const state = (lastWord: object | undefined) =>
      working({ ...(lastWord && { lastWord: { reason: timeout, at: 1000, ...lastWord } as never }) }).takes(summed).run
        ?.lastWord?.state
    expect([state({ state: "requested" }), state({ state: "done" }), state(undefined)]).toEqual([
      "speaking",
      "done",
      undefined,
    ])
  })
})

describe("an agent that repeats a call", () => {
  const scene = (more: Scene = {}): Scene => ({ ...more, options: { maxRepeats: 3, lastWord: 0, ...more.options } })
  /** The end of the call with this number, as an event reports it. */
  const ends = (nth: number, more: object = {}) => {
    const part = { callID: `call_${nth}`, tool: "poll", state: "ended", messageID: "msg_a" }
    return heard({ type: "tool", ...part, call: { digest: "same", ms: 5 }, ...more })
  }
  /** The last step of a run that takes these inputs one after the other. */
  const calling = (inputs: readonly Input[], more: Scene = {}) => {
    const takes = (run: Partial<ActiveRun> | undefined, input: Input) => working(run, scene(more)).takes(input)
    return inputs.reduce((step, input) => takes(step.run, input), takes(more.run, heard({ type: "updated" })))
  }
  const repeated = (times: number, digest = "same") => ({
    observed: { ...NOTHING_OBSERVED, repeated: { tool: "poll", digest, times } },
  })
  const counts = (times: number): Input => {
    const part = {
      type: "tool",
      tool: "poll",
      state: "completed",
      refused: false,
      call: { digest: "same", ms: 5 },
    } as const
    const parts = Array.from({ length: times }, (_none, nth) => ({ ...part, callID: `call_${nth}` }))
    return { type: "counted", messages: [asked(), answer({ finish: "called", parts })] }
  }

  test("an agent is warned once when it has made a call maxRepeats times", () => {
    expect(calling([ends(1), ends(2)])).toMatchObject({ does: [], run: { observed: { repeated: { times: 2 } } } })
    const warned = calling([ends(1), ends(2), ends(3)])
    expect(warned).toMatchObject({ does: ["send"], run: { calls: 1, observed: { repeated: { times: 3 } } } })
    expect(command(warned.commands, "send")?.message).toMatchObject({
      kind: "word",
      text: "Automatic message, not written by the user. You made the same call of poll 3 times in a row, and its result was the same each time. It will not change. Do something else, or finish: say in your answer what you could not do. After 6 such calls your work is ended.",
    })
    expect(calling([ends(1), ends(2), ends(3), ends(4)]).does).toEqual([])
    expect(calling([1, 2, 3, 4, 5, 6].map((nth) => ends(nth))).run?.outcome?.reason?.code).toBe("repeats")
  })

  test("a call counts once however often its end is reported, and only when it has ended", () => {
    expect(calling([ends(1), ends(1), ends(1), ends(1)]).run?.observed.repeated?.times).toBe(1)
    const running = calling([ends(1, { state: "running" })])
    expect(running.run?.observed).not.toHaveProperty("repeated")
  })

  test("a call whose result is not known is not counted, nor is one of a descendant session", () => {
    const unknown = calling([ends(1), ends(2, { call: undefined })])
    expect(unknown.run?.observed).toMatchObject({ recentTools: ["poll", "poll"], repeated: { times: 1 } })
    const below = calling([ends(1), ends(2, { sessionID: BELOW })])
    expect(below.run?.observed).toMatchObject({ recentTools: ["poll", "poll"], repeated: { times: 1 } })
  })

  test("a read that finds several equal calls warns the agent once, unless it was warned of them before", () => {
    expect(calling([counts(2)]).does).toEqual(["check shared limits"])
    expect(calling([counts(3)]).does).toEqual(["send", "check shared limits"])
    expect(calling([counts(1)], { run: repeated(3) }).does).toEqual(["check shared limits"])
    expect(calling([counts(2)], { run: repeated(2) }).does).toEqual(["send", "check shared limits"])
    // It was warned of another call.
    expect(calling([counts(3)], { run: repeated(4, "other") }).does).toEqual(["send", "check shared limits"])
    // It makes no calls at all.
    expect(calling([counts(0)]).does).toEqual(["check shared limits"])
  })

  test("an agent that is asked for its last word is not warned too", () => {
    const lastWord = { state: "requested", reason: timeout, at: 1000 } as const
    expect(calling([ends(3)], { run: { ...repeated(2), lastWord } }).does).toEqual([])
  })

  test("where the limit is off, an agent may repeat a call, and the end of a call checks no limit", () => {
    const off = { options: { maxRepeats: 0 }, run: repeated(500) }
    const late = { task: { run: { timeout: 500 } } }
    expect(calling([ends(1)], { ...off, ...late })).toMatchObject({ stage: "working", does: [] })
    expect(calling([ends(1)], { ...late, run: repeated(2) }).run?.outcome?.reason?.code).toBe("timeout")
  })
})

describe("an idle event", () => {
  test("an idle event of a run's session starts a read of its messages and ends the retry", () => {
    const retry = { type: "retry", attempt: 2, message: "wait" } as never
    const { run, does } = working({ retry }).takes(heard({ type: "idle" }))
    expect(run).toMatchObject({ idle: true, looking: true, retry: undefined, lastSignAt: NOW - 1000 })
    expect(does).toEqual(["look"])
  })

  test("an idle event frees the slot once while the run's own tasks are active", () => {
    const context = { ownTasks: true }
    expect(working({}, { context }).takes(heard({ type: "idle" })).does).toEqual(["free slot", "look"])
    expect(working({ idle: true }, { context }).takes(heard({ type: "idle" })).does).toEqual(["look"])
    expect(
      working({}, { context })
        .takes(heard({ type: "idle" }))
        .commands.at(-1),
    ).toMatchObject({ waited: true })
    const pending = working({}, { context: { hasPendingMessage: true } }).takes(heard({ type: "idle" }))
    expect(pending.commands.at(-1)).toMatchObject({ waited: true })
    expect(working().takes(heard({ type: "idle" })).commands).toMatchObject([{ waited: false }])
  })

  test("an idle event of a descendant session does not make the run idle", () => {
    const { run, does } = working().takes(heard({ type: "idle", sessionID: BELOW }))
    expect(run).toMatchObject({ idle: false, looking: false, observed: { hasEvents: true } })
    expect(does).toEqual([])
  })
})

describe("an event of a descendant session", () => {
  test("texts, errors and retries of a descendant session do not count for the run", () => {
    const below = (event: object) => working().takes(heard({ ...event, sessionID: BELOW })).run
    expect(below({ type: "text", partID: "prt_1", text: "hello", messageID: "msg_a" })?.observed.text).toBe("")
    expect(below({ type: "error", error: { message: "x" } })).toMatchObject({ error: undefined, looking: false })
    expect(below({ type: "active", activity: { type: "retry", attempt: 1, message: "x" } })?.retry).toBeUndefined()
  })
})

describe("events after the end", () => {
  test("an event after the end changes nothing, and a new question is refused without a text", () => {
    const ended = at("closing")
    const ask = askOf()
    const { run, commands } = ended.takes({ type: "event", event: { type: "asked", ask } as never })
    expect(commands).toEqual([{ do: "refuse", ask, text: "" }])
    expect(run).toBe(ended.run)
    expect(ended.takes(heard({ type: "began" }))).toMatchObject({ commands: [], run: ended.run })
  })

  test("a question in the session of a stopped run is its user's, and is not refused", () => {
    const event = { type: "event", event: { type: "asked", ask: askOf() } } as never
    expect(at("notifying", { run: { calls: 0 } }).takes(event).commands).toEqual([])
    expect(at("notifying", { run: { calls: 1 } }).takes(event).does).toEqual(["refuse"])
  })

  test("a question of a parked run is refused until its session is stopped", () => {
    const event = { type: "event", event: { type: "asked", ask: askOf() } } as never
    expect(at("parked", { run: { calls: 1 } }).takes(event).does).toEqual(["refuse"])
    expect(at("parked", { run: { calls: 0 } }).takes(event).does).toEqual([])
  })
})

describe("unreported open questions", () => {
  const [one, two] = [askOf({ id: "per_1" }), askOf({ id: "per_2" })]

  test("OpenCode's list of open questions announces new ones and removes those that are gone", () => {
    const { run, commands } = working({ asks: [one] }).takes({ type: "questions", open: [one, two], at: NOW })
    expect(run?.asks).toEqual([one, two])
    expect(commands).toEqual([{ do: "announce", ask: two }])
    expect(working({ asks: [one, two] }).takes({ type: "questions", open: [two], at: NOW }).run?.asks).toEqual([two])
  })

  test("OpenCode's list of open questions is ignored if an event arrived after it was requested", () => {
    const told = { ...NOTHING_OBSERVED, hasEvents: true }
    const asked = (lastSignAt: number) =>
      working({ observed: told, asks: [one], lastSignAt }).takes({ type: "questions", open: [two], at: NOW })
    expect(asked(NOW - 1)).toMatchObject({ commands: [{ do: "announce", ask: two }], run: { asks: [two] } })
    expect(asked(NOW)).toMatchObject({ commands: [], run: { asks: [one] } })
  })
})

describe("the deadlines of a run", () => {
  const due = (stage: Parameters<typeof at>[0], scene: Scene = {}) => {
    const { run, context } = at(stage, {
      ...scene,
      options: { stallTimeout: 0, permissionTimeout: 0, lastWord: 0, ...scene.options },
    })
    return nextDue(run, context)
  }
  const hour = { task: { run: { timeout: 3_600_000 } } }
  const NEVER = Number.POSITIVE_INFINITY

  test("the limits of a run are due only while it has its slot in this process", () => {
    for (const stage of ["held", "preparing", "prompting", "working", "supervising", "verifying"] as const)
      expect([stage, due(stage, hour)]).toEqual([stage, NOW - 1000 + 3_600_000])
    for (const stage of ["creating", "queued", "parked", "closing", "finalizing", "notifying"] as const)
      expect([stage, due(stage, hour)]).toEqual([stage, NEVER])
    expect(due("working", { ...hour, run: { heldBy: "foreign" } })).toBe(NEVER)
    // What is passed is being dealt with.
    expect(due("working", { task: { run: { timeout: 500 } } })).toBe(NOW + 100)
  })

  test("a passed limit that is being verified is not due again, while later deadlines are", () => {
    const confirming = { run: { confirming: true, lastSignAt: NOW - 1000 } }
    const limits = (timeout: number, stallTimeout: number) => ({
      ...confirming,
      task: { run: { timeout } },
      options: { stallTimeout },
    })
    // It has begun a second ago.
    expect(due("working", limits(0, 500))).toBe(NEVER)
    expect(due("working", limits(0, 1000))).toBe(NEVER)
    expect(due("working", limits(0, 1200))).toBe(NOW + 200)
    expect(due("working", limits(6000, 500))).toBe(NOW + 5000)
    expect(due("working", { ...limits(0, 500), run: { ...confirming.run, confirming: false } })).toBe(NOW + 100)
    const lastWord = { state: "done", reason: { code: "tokens", text: "" }, at: 0 } as const
    const spoke = { ...limits(0, 0), run: { ...confirming.run, lastWord } }
    expect(due("working", { ...spoke, options: { lastWord: 500 } })).toBe(NEVER)
    expect(due("working", { ...spoke, options: { lastWord: 1500 } })).toBe(NOW + 500)
    // A question is refused whatever its limits are at.
    const asks = [askOf({ askedAt: NOW - 1000 })]
    const open = { ...limits(0, 500), run: { ...confirming.run, asks } }
    expect(due("working", { ...open, options: { stallTimeout: 0, permissionTimeout: 500 } })).toBe(NOW + 100)
  })

  test("each wait of a run has its own deadline, unless it was already handled", () => {
    const none = { task: { run: { timeout: 0 } } }
    expect(due("working", none)).toBe(NEVER)
    expect(due("working", { ...none, run: { stuckSince: NOW } })).toBe(NOW + 10_000)
    expect(due("working", { ...none, run: { todosSince: NOW }, options: { todoGrace: 3000 } })).toBe(NOW + 3000)
    expect(due("working", { ...none, run: { missingSince: NOW } })).toBe(NOW + 10_000)
    expect(due("working", { ...none, run: { lookAt: NOW + 5 } })).toBe(NOW + 5)
    expect(due("working", { ...none, run: { lookAt: NOW } })).toBe(NOW + 100)
    expect(due("working", { ...none, run: { lookAt: NOW, lookedAt: NOW } })).toBe(NEVER)
    expect(due("working", { ...none, run: { lookAt: NOW + 5, looking: true } })).toBe(NEVER)
    expect(due("held", { ...none, run: { held: { behind: "bg_first", until: NOW + 7 } } })).toBe(NOW + 7)
  })

  test("the hint about an open question is due once, while the question can be answered", () => {
    const none = { task: { run: { timeout: 0 } } }
    const open = { asks: [askOf({ askedAt: NOW })], hintAt: NOW + 500 }
    expect(due("working", { ...none, run: open })).toBe(NOW + 500)
    expect(due("working", { ...none, run: { ...open, hintAt: NOW - 500 } })).toBe(NOW + 100)
    expect(due("working", { ...none, run: { ...open, asks: [] } })).toBe(NEVER)
    expect(due("working", { ...none, run: { ...open, hintAt: NEVER } })).toBe(NEVER)
    expect(due("working", { ...none, run: { ...open, away: { host: "x", since: 1, most: 0 } } })).toBe(NEVER)
  })
})

describe("a new stage", () => {
  test("a new stage of a run drops the pending requests of the stage before", () => {
    const before = { looking: true, lookAgain: true, confirming: true, preparing: "x", stageCount: 4 }
    const { run } = working(before as never).takes({ type: "end", ending: { type: "completed" }, options: {} })
    expect(run).toMatchObject({
      stageCount: 5,
      looking: false,
      lookAgain: false,
      confirming: false,
      preparing: undefined,
    })
  })

  test("a run without contact does not read its messages", () => {
    const away = { host: "x", since: 1, most: 0 }
    expect(working({ away }).takes({ type: "look" })).toMatchObject({ does: [], run: { looking: false } })
    const seen = working().takes({ type: "look" })
    expect(seen.run).toMatchObject({ looking: true, lookAgain: false, lookAt: undefined })
  })
})

describe("a run before its prompt", () => {
  test("a message that arrived while the session was made is added to the prompt", () => {
    const { run } = at("creating", { run: { prompt: "\n\nMORE" } }).takes({ type: "begin", prompt: "FIND" })
    expect(run?.prompt).toBe("FIND\n\nMORE")
    expect(at("creating", { run: { prompt: undefined } }).takes({ type: "begin", prompt: "FIND" }).run?.prompt).toBe(
      "FIND",
    )
  })

  test("a run that is held for the provider's cache waits until the first sibling has begun", () => {
    const held = { behind: "bg_first", until: NOW + 700 }
    const { run, does } = at("creating", { run: { held } }).takes({ type: "begin", prompt: "FIND" })
    expect({ stage: run?.stage, held: run?.held, does }).toEqual({ stage: "waiting", held, does: [] })
  })

  test("a message that waits for a prompt that failed is answered, and the run ends with the reason", () => {
    const words = [wordOf({ held: true, reply: () => {} })]
    const { run } = at("prompting", { run: { calls: 1, sentMessages: words } }).takes({
      type: "prompted",
      problem: "no",
    })
    expect(run?.closing?.ending).toMatchObject({ type: "failed", reason: { code: "host" } })
  })
})
