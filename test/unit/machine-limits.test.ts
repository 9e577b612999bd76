import { describe, expect, test } from "vitest"
import type { Message } from "../../src/core/ports.ts"
import type { ActiveRun } from "../../src/core/run/active-run.ts"
import { NOTHING_OBSERVED } from "../../src/core/run/progress.ts"
import type { Input } from "../../src/core/run/steps.ts"
import { NOTHING_SPENT } from "../../src/core/spending.ts"
import { NOBODY } from "../../src/core/task.ts"
import { lastWordRefusal } from "../../src/core/watchdog.ts"
import { answer, asked, at, BILLED, command, NOW, type Scene, wordOf } from "../support/machine.ts"
import { askOf, purseOf } from "../support/tasks.ts"

/** What the machine does at a limit: it warns, asks OpenCode, stops, or lets the run go on. */

const tick = (doing?: Extract<Input, { type: "tick" }>["doing"]): Input => ({ type: "tick", doing })
const busy = tick({ type: "busy" })
const timeout = { code: "timeout", text: "Stopped at its time limit of 1s (its timeout argument)." } as const
const silence = { code: "silence", text: "Silent." } as const
const empty = { code: "empty", text: "Empty." } as const
/** It has begun 1,000 ms ago. */
const lasting = (ms: number) => ({ run: { timeout: ms } })
const working = (run: Partial<ActiveRun> = {}, scene: Scene = {}) => at("working", { ...scene, run })
const silent = { lastSignAt: NOW - 600 }
const stall = { stallTimeout: 500 }
const emptyOnes = (count: number) => ({
  ...NOTHING_OBSERVED,
  answers: new Map(
    Array.from({ length: count }, (_none, nth) => [`msg_${nth}`, { hasOutput: false, called: false, usage: BILLED }]),
  ),
})

describe("a passed limit", () => {
  test("a passed limit on known figures ends the run at once", () => {
    const { stage, run } = working({}, { task: lasting(1000), options: { lastWord: 0 } }).takes(tick())
    expect(stage).toBe("closing")
    expect(run?.outcome?.reason).toEqual(timeout)
    const purse = purseOf(NOW - 1000, NOW)
    expect(working({}, { context: { purse } }).takes(tick()).run?.outcome?.reason?.code).toBe("purse")
    expect(working({}, { context: { purse: { ...purse, until: NOW + 100_000 } } }).takes(tick()).stage).toBe("working")
  })

  test("a passed limit that OpenCode could disprove is verified there first", () => {
    const quiet = working(silent, { options: stall }).takes(tick())
    expect(quiet).toMatchObject({ stage: "working", run: { confirming: true } })
    expect(quiet.commands).toMatchObject([{ do: "confirm", reason: { code: "silence" }, by: "life" }])
    const nothing = working({ observed: emptyOnes(3) }).takes(tick())
    // However long its session is, it is read from the first of them on.
    const empties = { reason: { code: "empty" }, by: "messages", since: "msg_0" }
    expect(nothing.commands).toMatchObject([{ do: "confirm", ...empties }])
    expect(working({ observed: emptyOnes(2) }).takes(tick()).does).toEqual([])
    const lastWord = { state: "done", reason: timeout, at: 500 } as const
    const spoke = working({ lastWord }, { task: lasting(1000) }).takes(tick())
    expect(spoke.commands).toEqual([{ do: "confirm", reason: timeout, by: "messages" }])
    // It may have said its last word while nothing was heard of it.
    const both = working({ ...silent, lastWord: { ...lastWord, at: 1000 } }, { options: stall }).takes(tick())
    expect(both.commands).toMatchObject([{ do: "confirm", reason: { code: "silence" }, by: "messages" }])
  })

  test("a run whose last step may have been its final answer is read before a limit that it passed ends it", () => {
    const answers = (more: object = {}) => ({
      ...NOTHING_OBSERVED,
      ended: 1,
      answers: new Map([
        ["msg_answer", { hasOutput: true, called: false, usage: BILLED, finish: "done", ...more } as const],
      ]),
    })
    const over = { task: lasting(1000), options: { lastWord: 0 } }
    const does = (run: Partial<ActiveRun>, scene: Scene = {}) => working(run, { ...over, ...scene }).takes(tick()).does
    const doubted = working({ observed: answers() }, over).takes(tick())
    expect(doubted.commands).toEqual([{ do: "confirm", reason: timeout, by: "messages" }])
    // A read under way may be from before the answer, and may take long: the agent would spend on.
    expect(does({ observed: answers(), looking: true })).toEqual(["confirm"])
    // It calls tools, goes on for its children or its todos, or has still to read a message: that is no last step.
    for (const run of [
      { observed: answers({ called: true }) },
      { observed: answers({ finish: "called" }) },
      { observed: answers({ hasOutput: false }) },
      { observed: answers({ usage: undefined }) },
      { observed: answers(), todosSince: NOW },
      { observed: answers(), sentMessages: [wordOf()] },
    ])
      expect(does(run)).toContain("end")
    expect(does({ observed: answers() }, { context: { ownTasks: true } })).toContain("end")
    const takes = (messages: readonly Message[]) =>
      working({ observed: answers(), confirming: true }, over).takes({
        type: "confirmed",
        reason: timeout,
        found: { messages, asks: [] },
      })
    expect(takes([asked(), answer()]).does).toEqual(["look"])
    expect(takes([asked(), answer(), asked("msg_more")]).run?.outcome?.reason).toEqual(timeout)
    // Where nobody can be asked, the limit holds.
    const away = { host: "big", since: NOW, most: 0 }
    expect(does({ observed: answers(), away })).toContain("end")
    const unread = { type: "confirmed", reason: timeout, found: undefined } as const
    expect(working({ observed: answers(), confirming: true }, over).takes(unread).does).toContain("end")
  })

  test("silence is verified without the empty answers before it", () => {
    const { commands } = working({ ...silent, observed: emptyOnes(1) }, { options: stall }).takes(tick())
    expect(commands).toMatchObject([{ do: "confirm", by: "life" }])
    expect(commands[0]).not.toHaveProperty("since")
  })

  test("an idle run that waits for its own tasks or their results is not silent", () => {
    const does = (idle: boolean, context: Scene["context"]) =>
      working({ ...silent, idle }, { options: stall, context }).takes(tick()).does
    expect(does(true, {})).toEqual(["confirm"])
    expect(does(true, { ownTasks: true })).toEqual([])
    expect(does(false, { ownTasks: true })).toEqual([])
    expect(does(true, { hasPendingMessage: true })).toEqual([])
    // A run at work reads no result before its turn has ended.
    expect(does(false, { hasPendingMessage: true })).toEqual(["confirm"])
  })

  test("a passed limit is verified only once at a time", () => {
    const { does, run } = working({ ...silent, confirming: true }, { options: stall }).takes(tick())
    expect(does).toEqual([])
    expect(run?.confirming).toBe(true)
  })

  test("spending is added up only where an option limits a sum", () => {
    const sums: string[] = []
    const spent = () => {
      sums.push("summed")
      return NOTHING_SPENT
    }
    const off = { maxCostPerTask: 0, maxCostPerSession: 0, maxTokensPerSession: 0, maxCostPerDay: 0 }
    working({}, { options: off, context: { spent } }).takes(tick())
    expect(sums).toEqual([])
    working({}, { options: { ...off, maxCostPerDay: 1 }, context: { spent } }).takes(tick())
    expect(sums).not.toEqual([])
  })
})

describe("a run near a limit", () => {
  const near = { task: lasting(1200), options: { lastWord: 300 } }
  const reason = { code: "timeout", text: "Stopped at its time limit of 1.2s (its timeout argument)." } as const

  test("a run near a limit is asked for its last word, and that is recorded", () => {
    const { run, stage, commands } = working({}, near).takes(tick())
    expect(stage).toBe("working")
    expect(run?.lastWord).toEqual({ state: "requested", reason, at: 1000 })
    expect(commands).toEqual([
      { do: "record", event: { type: "warned", generation: 0, at: NOW, reason }, write: true },
      { do: "log", what: "task asked for its last word", fields: { generation: 0, reason: "timeout" } },
    ])
    expect(working({}, { ...near, task: lasting(1400) }).takes(tick()).does).toEqual([])
  })

  test("questions of a run near a limit are refused with that reason, also those of its descendants", () => {
    const permission = askOf({ id: "per_1" })
    const below = askOf({ id: "que_2", kind: "question", sessionID: "ses_below" })
    const { run, commands } = working({ asks: [permission, below] }, near).takes(tick())
    expect(commands.slice(2)).toEqual([
      { do: "refuse", ask: permission, text: lastWordRefusal(reason) },
      { do: "refuse", ask: below, text: lastWordRefusal(reason) },
    ])
    expect(run?.asks).toEqual([])
  })

  test("a run near a limit that waits for its own tasks is asked whether it is idle", () => {
    expect(working({}, { ...near, context: { ownTasks: true } }).takes(tick()).does).toEqual([
      "record",
      "log",
      "check idle",
    ])
  })
})

test("a run whose turn ended because of the question that its last word refused is asked for it again", () => {
  const asks = [askOf()]
  const near = { task: lasting(1100), options: { lastWord: 300, permissionTimeout: 300_000 } }
  const { run } = working({ asks }, near).takes(tick())
  expect(run).toMatchObject({ asks: [], refused: { after: 0, asks }, lastWord: { state: "requested" } })
  const error = { refused: true as const, message: "The user rejected permission to use this specific tool call." }
  const messages = [
    asked(),
    answer({ finish: undefined, error, parts: [{ type: "text", text: "Let me see", synthetic: false }] }),
  ]
  const found = { messages, openTodos: 0, gone: false, busy: false }
  const { does, stage } = working({ ...run, idle: true }, near).takes({ type: "looked", waited: false, found } as never)
  expect([does, stage]).toEqual([["send"], "working"])
})

describe("a requested last word", () => {
  const told = { state: "requested", reason: timeout, at: 700 } as const
  const over = { task: lasting(1000), options: { lastWord: 300 } }

  test("a run that cannot read the request for its last word in time is interrupted and asked again", () => {
    const asks = [askOf()]
    const { run, commands, stage } = working({ lastWord: told, asks }, over).takes(tick())
    expect(stage).toBe("working")
    expect(commands).toMatchObject([{ do: "send", message: { kind: "last-word" }, interrupts: asks }])
    expect(run?.lastWord).toEqual({ ...told, againAt: 1000 })
    const again = working({ lastWord: { ...told, againAt: 700 }, asks }, over)
    expect(again.takes(tick()).stage).toBe("closing")
  })

  test("an idle run is asked for its last word, unless it speaks or a message is under way", () => {
    const resting = (run: Partial<ActiveRun>) => working(run).takes({ type: "idle" }).does
    expect(resting({ lastWord: told })).toEqual(["send"])
    expect(resting({ lastWord: { ...told, state: "speaking" } })).toEqual([])
    expect(resting({ lastWord: told, sentMessages: [wordOf({ expected: true })] })).toEqual([])
    expect(resting({ lastWord: told, sentMessages: [wordOf({ expected: false })] })).toEqual(["send"])
  })

  test("a run speaks its last word from its next request on, and a second request is remembered", () => {
    const request = (lastWord: ActiveRun["lastWord"]) => working({ lastWord }).takes({ type: "request" })
    expect(request(told).run).toMatchObject({ requestedAt: NOW })
    expect(request(told).run?.lastWord).toEqual({ ...told, state: "speaking" })
    expect(request({ ...told, state: "done" }).run?.lastWord).toEqual({ ...told, state: "done" })
    const again = { ...told, againAt: 995 }
    expect(request(again).run?.lastWord).toEqual({ ...again, state: "speaking", askedAgain: true })
    expect(request(undefined).run).toMatchObject({ requestedAt: NOW, lastWord: undefined })
  })
})

describe("the verification of a passed limit", () => {
  const found = { messages: [], asks: [] }
  const last = answer({ createdAt: NOW - 5000 })
  const verified = (run: Partial<ActiveRun>, reason: typeof silence | typeof empty, more: object = {}) =>
    working({ confirming: true, lastSignAt: NOW - 4000, ...run }).takes({
      type: "confirmed",
      reason,
      found: { ...found, ...more },
    })

  test("a newer message than the last sign of life disproves silence, and an older one does not", () => {
    const newer = verified({}, silence, { last: answer({ createdAt: NOW - 3999 }) })
    expect(newer).toMatchObject({ stage: "working", does: [], run: { lastSignAt: NOW, confirming: false } })
    expect(verified({}, silence, { last: answer({ createdAt: NOW - 4000 }) }).run?.outcome?.reason).toEqual(silence)
    expect(verified({}, silence).stage).toBe("closing")
  })

  test("a change since the last verification disproves silence, and an unchanged message does not", () => {
    const before = verified({}, silence, { last, asks: [askOf()] }).run
    expect(before?.stage).toBe("working")
    expect(verified({ lastLook: before?.lastLook }, silence, { last }).stage).toBe("closing")
    const more = { ...last, parts: [{ type: "text", text: "found more", synthetic: false }] }
    expect(verified({ lastLook: before?.lastLook }, silence, { last: more }).stage).toBe("working")
    expect(verified({ lastLook: before?.lastLook }, silence).stage).toBe("working")
  })

  test("a running tool disproves silence, and an ended tool does not", () => {
    const tool = (state: string) => ({ type: "tool", callID: "call_1", tool: "bash", state })
    const text = { type: "text", text: "I look", synthetic: false }
    expect(verified({}, silence, { last: { ...last, parts: [text, tool("running")] } }).stage).toBe("working")
    expect(verified({}, silence, { last: { ...last, parts: [text, tool("completed")] } }).stage).toBe("closing")
    expect(verified({}, silence, { last: { ...last, parts: [{ ...text, state: "running" }] } }).stage).toBe("closing")
  })

  test("a call that the model began to write unheard disproves silence, and one that was heard of does not", () => {
    const part = { type: "tool", callID: "call_1", tool: "write", state: "pending" }
    const writing = { last: { ...last, parts: [part] } }
    expect(verified({}, silence, writing)).toMatchObject({ stage: "working", run: { lastSignAt: NOW } })
    const calls = new Map([["msg_answer call_1", "pending" as const]])
    expect(verified({ observed: { ...NOTHING_OBSERVED, calls } }, silence, writing).stage).toBe("closing")
    const over = new Map([["msg_a call_1", "ended" as const]])
    expect(verified({ observed: { ...NOTHING_OBSERVED, calls: over } }, silence, writing).stage).toBe("working")
  })

  test("an open question disproves silence and is added to the run once", () => {
    const [one, two] = [askOf({ id: "per_1" }), askOf({ id: "per_2" })]
    const { stage, run } = verified({ asks: [one] }, silence, { last, asks: [{ ...one, what: "new" }, two] })
    expect(stage).toBe("working")
    expect(run?.asks).toEqual([{ ...one, what: "new" }, two])
    expect(verified({ asks: [two] }, silence, { last, asks: [one] }).run?.asks).toEqual([two, one])
  })

  test("a run ends when OpenCode confirms too many empty answers in a row", () => {
    const nothing = (id: string) => answer({ id, parts: [] })
    const three = [asked(), nothing("msg_1"), nothing("msg_2"), nothing("msg_3")]
    expect(verified({}, empty, { messages: three }).run?.outcome?.reason).toEqual(empty)
    expect(verified({}, empty, { messages: [...three.slice(0, 3), answer()] })).toMatchObject({
      stage: "working",
      does: [],
      run: { lastSignAt: NOW - 4000 },
    })
  })

  test("a run that spoke its last word ends at its limit unless its messages already end it", () => {
    const lastWord = { state: "done", reason: timeout, at: 1000 } as const
    const ended = verified({ lastWord }, silence, { messages: [asked(), answer()] })
    expect(ended).toMatchObject({ stage: "working", does: ["look"] })
    const open = [asked(), answer({ finish: "called", completedAt: undefined })]
    expect(verified({ lastWord }, silence, { messages: open }).run?.outcome?.reason).toEqual(silence)
    const speaking = { ...lastWord, state: "speaking" } as const
    expect(verified({ lastWord: speaking }, silence, { messages: [asked(), answer()] }).stage).toBe("closing")
  })
})

describe("a stopped clock", () => {
  const since = NOW - 800
  const pausedSince = (parked: number | undefined) => ({ ownTasks: true, pausedSince: () => parked })
  const recorded = ({ commands }: ReturnType<ReturnType<typeof at>["takes"]>) => command(commands, "record")

  test("a run's clock stops while all tasks it waits for are parked, after its last sign of life", () => {
    const still = working({ idle: true, lastSignAt: NOW - 900 }, { context: pausedSince(since) }).takes({
      type: "spending",
    })
    expect(still.commands).toEqual([
      { do: "record", event: { type: "clock stopped", generation: 0, at: since }, write: true },
    ])
    const later = working({ idle: true, lastSignAt: NOW - 300 }, { context: pausedSince(since) }).takes(tick())
    expect(recorded(later)?.event).toMatchObject({ type: "clock stopped", at: NOW - 300 })
    const ahead = working({ idle: true }, { context: pausedSince(NOW + 50) }).takes({ type: "spending" })
    expect(recorded(ahead)?.event).toMatchObject({ at: NOW })
  })

  test("the clock stops only for a run that is idle or leads a group", () => {
    expect(working({ idle: false }, { context: pausedSince(since) }).takes({ type: "spending" }).does).toEqual([])
    const leading = at("supervising", { context: pausedSince(since) }).takes({ type: "spending" })
    expect(recorded(leading)?.event).toMatchObject({ type: "clock stopped" })
  })

  test("an open question stops the clock since it was asked, where questions have no time limit of their own", () => {
    const asks = [askOf({ id: "per_1", askedAt: NOW - 300 }), askOf({ id: "per_2", askedAt: NOW - 200 })]
    const stops = (run: Partial<ActiveRun>, scene: Scene = {}) =>
      recorded(
        working({ lastSignAt: NOW - 900, ...run }, { options: { permissionTimeout: null }, ...scene }).takes({
          type: "spending",
        }),
      )?.event
    expect(stops({ asks })).toMatchObject({ type: "clock stopped", at: NOW - 300 })
    expect(stops({ asks: [] })).toBeUndefined()
    expect(stops({ asks }, { options: { permissionTimeout: 300_000 } })).toBeUndefined()
    // The tasks it waits for were parked before.
    expect(
      stops({ asks, idle: true }, { context: pausedSince(since), options: { permissionTimeout: null } }),
    ).toMatchObject({ type: "clock stopped", at: since })
  })

  test("the clock of a run continues when one of its tasks or the run itself goes on", () => {
    const scene = { task: { run: { stoppedSince: since } } }
    const goesOn = working({ idle: true }, { ...scene, context: pausedSince(undefined) }).takes({
      type: "spending",
    })
    expect(goesOn.commands).toEqual([
      { do: "record", event: { type: "clock running", generation: 0, at: NOW }, write: true },
    ])
    const itself = working({ idle: false }, { ...scene, context: pausedSince(since) }).takes({
      type: "spending",
    })
    expect(recorded(itself)?.event).toMatchObject({ type: "clock running", at: NOW })
    expect(working({ idle: true }, { ...scene, context: pausedSince(since) }).takes({ type: "spending" }).does).toEqual(
      [],
    )
  })
})

describe("a held run", () => {
  test("a held run is admitted like a new one, and its hold is cleared", () => {
    const { run, commands } = at("held", { run: { held: { behind: "bg_first", until: NOW + 5 } } }).takes({
      type: "admitted",
    })
    expect(commands.map(({ do: what }) => what)).toEqual(["prompt"])
    expect(run).toMatchObject({ stage: "prompting", held: undefined, lastSignAt: NOW })
    const placed = at("held", { task: { depth: 2 } }).takes({ type: "admitted" })
    expect(command(placed.commands, "prepare")).toEqual({ do: "prepare", save: false })
  })
})

describe("a poll of a held run", () => {
  test("a poll of a held run checks its limits alone, because its session has no prompt yet", () => {
    expect(at("held").takes(tick("nothing"))).toMatchObject({ does: [], run: { idle: false, looking: false } })
    expect(at("held", { task: lasting(500), options: { lastWord: 0 } }).takes(tick("nothing")).stage).toBe("closing")
  })
})

describe("a poll of the session", () => {
  const waits = { idle: true, stuckSince: 1, todosSince: 2, lookAt: NOW + 50 }

  test("a poll that finds the session busy ends the run's waits", () => {
    const { run, does } = working(waits).takes(busy)
    expect(run).toMatchObject({
      idle: false,
      stuckSince: undefined,
      todosSince: undefined,
      lookAt: undefined,
      lookedAt: NOW,
      retry: undefined,
    })
    expect(does).toEqual([])
    const retry = { type: "retry", attempt: 2, message: "wait" } as const
    expect(working().takes(tick(retry)).run?.retry).toEqual(retry)
    expect(working({ retry }).takes(busy).run?.retry).toBeUndefined()
  })

  test("a poll of a busy session counts its spending if a limit needs it and no event came", () => {
    const does = (scene: Scene, heard = false) =>
      working({ observed: { ...NOTHING_OBSERVED, hasEvents: heard } }, scene).takes(busy).does
    const purse = purseOf(NOW, NOW + 100_000_000)
    expect(does({})).toEqual([])
    expect(does({ options: { maxTokensPerTask: 1 } })).toEqual(["count"])
    expect(does({ options: { maxRepeats: 1 } })).toEqual(["count"])
    expect(does({ options: { maxCostPerSession: 1 } })).toEqual(["count"])
    expect(does({ context: { purse } })).toEqual(["count"])
    expect(does({ task: { run: { budget: { max: 1, before: 0 } } } })).toEqual(["count"])
    expect(does({ options: { maxTokensPerTask: 1 } }, true)).toEqual([])
  })

  test("a poll of an idle session reads its messages and frees the slot while its own tasks run", () => {
    expect(working().takes(tick("nothing"))).toMatchObject({ does: ["look"], run: { idle: true } })
    expect(working({}, { context: { ownTasks: true } }).takes(tick("nothing")).does).toEqual(["free slot", "look"])
  })

  test("a poll without an answer reads the messages only if one of the run's waits is open", () => {
    expect(working().takes(tick()).does).toEqual([])
    for (const wait of [{ stuckSince: NOW }, { todosSince: NOW }, { missingSince: NOW }, { lookAt: NOW }])
      expect([wait, working(wait).takes(tick()).does]).toEqual([wait, ["look"]])
  })

  test("a poll that cannot reach the host marks the run as without contact", () => {
    const { run, does } = working({ stuckSince: NOW }).takes(tick({ type: "unreachable" }))
    expect(run).toMatchObject({ away: { since: NOW }, stuckSince: undefined })
    expect(does).toEqual([])
    const away = { host: "big", since: NOW, most: 0 }
    // Whether its host can be reached is not known.
    expect(working({ away }).takes(tick()).run?.away).toEqual(away)
    expect(working({ away }).takes(tick("nothing")).run?.away).toBeUndefined()
  })
})

describe("a run's open questions", () => {
  const old = askOf({ id: "per_1", what: "bash: ls", askedAt: NOW - 1000 })
  const young = askOf({ id: "per_2", askedAt: NOW - 999 })
  const asking = (run: Partial<ActiveRun>, scene: Scene = {}) =>
    working({ asks: [old], ...run }, { options: { permissionTimeout: 0 }, ...scene }).takes(tick())

  test("an open question is refused when nobody answers in time, and the outcome names it", () => {
    const told = { ...NOTHING_OBSERVED, ended: 4 }
    const options = { permissionTimeout: 1000 }
    const { run, commands } = asking({ asks: [old, young], unanswered: ["edit: a"], observed: told }, { options })
    expect(commands).toEqual([
      {
        do: "refuse",
        ask: old,
        text: 'Nobody allowed "bash: ls" in time. Go on without it; the rest of that call can be made again without it. Say in your answer what you could not do.',
      },
    ])
    expect(run).toMatchObject({
      asks: [young],
      unanswered: ["edit: a", "bash: ls"],
      refused: { after: 4, asks: [old] },
    })
    const both = asking({ asks: [old, { ...young, askedAt: 0 }] }, { options })
    expect(both).toMatchObject({ does: ["refuse", "refuse"], run: { asks: [], refused: { after: 0 } } })
    expect(both.run?.refused?.asks.map(({ id }) => id)).toEqual(["per_1", "per_2"])
    expect(asking({}, { options: { permissionTimeout: 0 } }).does).toEqual([])
  })

  test("a parent gets one hint about an open question when it is due", () => {
    expect(asking({ hintAt: NOW })).toMatchObject({
      does: ["hint"],
      run: { hintAt: Number.POSITIVE_INFINITY, asks: [old] },
    })
    expect(asking({ hintAt: NOW }).commands).toEqual([{ do: "hint" }])
    expect(asking({ hintAt: NOW + 1 }).does).toEqual([])
    expect(asking({ hintAt: undefined }).does).toEqual([])
    expect(asking({ hintAt: Number.POSITIVE_INFINITY }).does).toEqual([])
    const unattended = asking({ hintAt: NOW }, { task: { parentID: NOBODY } })
    expect(unattended).toMatchObject({ does: [], run: { hintAt: Number.POSITIVE_INFINITY } })
    expect(asking({ hintAt: NOW, asks: [old, young] }).does).toEqual(["hint"])
  })
})
