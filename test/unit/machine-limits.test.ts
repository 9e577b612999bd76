import { describe, expect, test } from "vitest"
import { lastWordRefusal, lastWordRequest } from "../../src/core/last-word.ts"
import type { ActiveRun } from "../../src/core/run/active-run.ts"
import type { Input } from "../../src/core/run/inputs.ts"
import { NOTHING_OBSERVED } from "../../src/core/run/progress.ts"
import { NOTHING_SPENT } from "../../src/core/spending.ts"
import { NOBODY } from "../../src/core/task.ts"
import { answer, asked, at, BILLED, command, NOW, type Scene, wordOf } from "../support/machine.ts"
import { askOf } from "../support/tasks.ts"

/** What the machine does at a limit: it warns, asks the host, stops, or lets the run go on. */

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
    Array.from({ length: count }, (_none, nth) => [`msg_${nth}`, { spoke: false, called: false, usage: BILLED }]),
  ),
})

describe("a limit that is passed", () => {
  test("ends it at once where it counts what is certain", () => {
    const { stage, run } = working({}, { task: lasting(1000), options: { lastWord: 0 } }).takes(tick())
    expect(stage).toBe("closing")
    expect(run?.outcome?.reason).toEqual(timeout)
    const purse = { max: 1, openedAt: NOW - 1000, until: NOW }
    expect(working({}, { world: { purse } }).takes(tick()).run?.outcome?.reason?.code).toBe("purse")
    expect(working({}, { world: { purse: { ...purse, until: NOW + 100_000 } } }).takes(tick()).stage).toBe("working")
  })

  test("is asked about at its host where that may deny it: whether it lives, or what it said", () => {
    const quiet = working(silent, { options: stall }).takes(tick())
    expect(quiet).toMatchObject({ stage: "working", run: { confirming: true } })
    expect(quiet.commands).toMatchObject([{ do: "confirm", reason: { code: "silence" }, by: "life" }])
    const nothing = working({ observed: emptyOnes(3) }).takes(tick())
    // However long its session is, it is read from the first of them on.
    const empties = { reason: { code: "empty" }, by: "messages", since: "msg_0" }
    expect(nothing.commands).toMatchObject([{ do: "confirm", ...empties }])
    expect(working({ observed: emptyOnes(2) }).takes(tick()).does).toEqual([])
    const lastWord = { state: "spoke", reason: timeout, at: NOW - 500 } as const
    const spoke = working({ lastWord }, { task: lasting(1000) }).takes(tick())
    expect(spoke.commands).toEqual([{ do: "confirm", reason: timeout, by: "messages" }])
    // It may have said its last word while nothing was heard of it.
    const both = working({ ...silent, lastWord: { ...lastWord, at: NOW } }, { options: stall }).takes(tick())
    expect(both.commands).toMatchObject([{ do: "confirm", reason: { code: "silence" }, by: "messages" }])
  })

  test("is asked about once at a time", () => {
    const { does, run } = working({ ...silent, confirming: true }, { options: stall }).takes(tick())
    expect(does).toEqual([])
    expect(run?.confirming).toBe(true)
  })

  test("has nothing added up where none asks for a sum", () => {
    const sums: string[] = []
    const spent = () => {
      sums.push("summed")
      return NOTHING_SPENT
    }
    const off = { maxCostPerTask: 0, maxCostPerSession: 0, maxTokensPerSession: 0, maxCostPerDay: 0 }
    working({}, { options: off, world: { spent } }).takes(tick())
    expect(sums).toEqual([])
    working({}, { options: { ...off, maxCostPerDay: 1 }, world: { spent } }).takes(tick())
    expect(sums).not.toEqual([])
  })

  test("does not count the time for which this process slept", () => {
    const scene = { task: lasting(1000), options: { lastWord: 0 } }
    expect(working({ sleptMs: 1 }, scene).takes(tick()).stage).toBe("working")
    expect(working({ sleptMs: 0 }, scene).takes(tick()).stage).toBe("closing")
  })
})

describe("near a limit", () => {
  const near = { task: lasting(1200), options: { lastWord: 300 } }
  const reason = { code: "timeout", text: "Stopped at its time limit of 1.2s (its timeout argument)." } as const

  test("it is told so, and that is written down", () => {
    const { run, stage, commands } = working({}, near).takes(tick())
    expect(stage).toBe("working")
    expect(run?.lastWord).toEqual({ state: "told", reason, at: NOW })
    expect(commands).toEqual([
      { do: "record", event: { type: "warned", generation: 0, at: NOW, reason }, write: true },
      { do: "log", what: "task asked for its last word", fields: { generation: 0, reason: "timeout" } },
    ])
    expect(working({}, { ...near, task: lasting(1400) }).takes(tick()).does).toEqual([])
  })

  test("what it asks is refused with the same words; the question of an agent below it, too", () => {
    const permission = askOf({ id: "per_1" })
    const below = askOf({ id: "que_2", kind: "question", sessionID: "ses_below" })
    const { run, commands } = working({ asks: [permission, below] }, near).takes(tick())
    expect(commands.slice(2)).toEqual([
      { do: "refuse", ask: permission, text: lastWordRefusal(reason) },
      { do: "refuse", ask: below, text: lastWordRefusal(reason) },
    ])
    expect(run?.asks).toEqual([])
  })

  test("a question of its own is dismissed, which ends its turn: it is asked for its last word at once", () => {
    const asks = [askOf({ id: "que_1", kind: "question" })]
    const { run, commands, does } = working({ asks }, near).takes(tick())
    expect(does).toEqual(["record", "log", "send"])
    expect(command(commands, "send")).toMatchObject({
      message: { kind: "last-word", text: lastWordRequest(reason) },
      interrupts: asks,
    })
    expect(run).toMatchObject({ calls: 1, lastWord: { state: "told", reason, at: NOW, againAt: NOW } })
  })

  test("one that waits for its own tasks is asked if it rests", () => {
    expect(working({}, { ...near, world: { ownTasks: true } }).takes(tick()).does).toEqual([
      "record",
      "log",
      "check idle",
    ])
  })
})

describe("a run that was told of its limit", () => {
  const told = { state: "told", reason: timeout, at: NOW - 300 } as const
  const over = { task: lasting(1000), options: { lastWord: 300 } }

  test("and cannot read that before its time is up is stopped in what it does, and asked once more", () => {
    const asks = [askOf()]
    const { run, commands, stage } = working({ lastWord: told, asks }, over).takes(tick())
    expect(stage).toBe("working")
    expect(commands).toMatchObject([{ do: "send", message: { kind: "last-word" }, interrupts: asks }])
    expect(run?.lastWord).toEqual({ ...told, againAt: NOW })
    const again = working({ lastWord: { ...told, againAt: NOW - 300 }, asks }, over)
    expect(again.takes(tick()).stage).toBe("closing")
  })

  test("is asked if it rests, unless it speaks already or something is on its way to it", () => {
    const resting = (run: Partial<ActiveRun>) => working(run).takes({ type: "idle" }).does
    expect(resting({ lastWord: told })).toEqual(["send"])
    expect(resting({ lastWord: { ...told, state: "speaking" } })).toEqual([])
    expect(resting({ lastWord: told, sentMessages: [wordOf({ expected: true })] })).toEqual([])
    expect(resting({ lastWord: told, sentMessages: [wordOf({ expected: false })] })).toEqual(["send"])
  })

  test("speaks from its next request on; that it was asked once more is kept", () => {
    const request = (lastWord: ActiveRun["lastWord"]) => working({ lastWord }).takes({ type: "request" })
    expect(request(told).run).toMatchObject({ requestedAt: NOW })
    expect(request(told).run?.lastWord).toEqual({ ...told, state: "speaking" })
    expect(request({ ...told, state: "spoke" }).run?.lastWord).toEqual({ ...told, state: "spoke" })
    const again = { ...told, againAt: NOW - 5 }
    expect(request(again).run?.lastWord).toEqual({ ...again, state: "speaking", askedAgain: true })
    expect(request(undefined).run).toMatchObject({ requestedAt: NOW, lastWord: undefined })
  })
})

describe("what the host says of a limit that seemed to be passed", () => {
  const found = { messages: [], asks: [] }
  const last = answer({ createdAt: NOW - 5000 })
  const verified = (run: Partial<ActiveRun>, reason: typeof silence | typeof empty, more: object = {}) =>
    working({ confirming: true, lastSignAt: NOW - 4000, ...run }).takes({
      type: "confirmed",
      reason,
      found: { ...found, ...more },
    })

  test("of silence: a newer message is a sign of life, an older one is none", () => {
    const newer = verified({}, silence, { last: answer({ createdAt: NOW - 3999 }) })
    expect(newer).toMatchObject({ stage: "working", does: [], run: { lastSignAt: NOW, confirming: false } })
    expect(verified({}, silence, { last: answer({ createdAt: NOW - 4000 }) }).run?.outcome?.reason).toEqual(silence)
    expect(verified({}, silence).stage).toBe("closing")
  })

  test("of silence: what has changed since it was last asked is a sign of life, what has not is none", () => {
    const before = verified({}, silence, { last, asks: [askOf()] }).run
    expect(before?.stage).toBe("working")
    expect(verified({ lastLook: before?.lastLook }, silence, { last }).stage).toBe("closing")
    const more = { ...last, parts: [{ type: "text", text: "found more", synthetic: false }] }
    expect(verified({ lastLook: before?.lastLook }, silence, { last: more }).stage).toBe("working")
    expect(verified({ lastLook: before?.lastLook }, silence).stage).toBe("working")
  })

  test("of silence: a tool that runs is a sign of life, one that has ended is none", () => {
    const tool = (state: string) => ({ type: "tool", callID: "call_1", tool: "bash", state })
    const text = { type: "text", text: "I look", synthetic: false }
    expect(verified({}, silence, { last: { ...last, parts: [text, tool("running")] } }).stage).toBe("working")
    expect(verified({}, silence, { last: { ...last, parts: [text, tool("completed")] } }).stage).toBe("closing")
    expect(verified({}, silence, { last: { ...last, parts: [{ ...text, state: "running" }] } }).stage).toBe("closing")
  })

  test("of silence: an open question is a sign of life, and is known from then on, once", () => {
    const [one, two] = [askOf({ id: "per_1" }), askOf({ id: "per_2" })]
    const { stage, run } = verified({ asks: [one] }, silence, { last, asks: [{ ...one, what: "new" }, two] })
    expect(stage).toBe("working")
    expect(run?.asks).toEqual([{ ...one, what: "new" }, two])
    expect(verified({ asks: [two] }, silence, { last, asks: [one] }).run?.asks).toEqual([two, one])
  })

  test("of empty answers: as many in a row as may be end it", () => {
    const nothing = (id: string) => answer({ id, parts: [] })
    const three = [asked(), nothing("msg_1"), nothing("msg_2"), nothing("msg_3")]
    expect(verified({}, empty, { messages: three }).run?.outcome?.reason).toEqual(empty)
    expect(verified({}, empty, { messages: [...three.slice(0, 3), answer()] })).toMatchObject({
      stage: "working",
      does: [],
      run: { lastSignAt: NOW - 4000 },
    })
  })

  test("of one that has spoken its last word: where its messages end it they are looked at, else its limit has", () => {
    const lastWord = { state: "spoke", reason: timeout, at: NOW } as const
    const ended = verified({ lastWord }, silence, { messages: [asked(), answer()] })
    expect(ended).toMatchObject({ stage: "working", does: ["look"] })
    const open = [asked(), answer({ finish: "called", completedAt: undefined })]
    expect(verified({ lastWord }, silence, { messages: open }).run?.outcome?.reason).toEqual(silence)
    const speaking = { ...lastWord, state: "speaking" } as const
    expect(verified({ lastWord: speaking }, silence, { messages: [asked(), answer()] }).stage).toBe("closing")
  })
})

describe("time that does not count", () => {
  const since = NOW - 800
  const childrenPausedSince = (parked: number | undefined) => ({ ownTasks: true, childrenPausedSince: () => parked })
  const recorded = ({ commands }: ReturnType<ReturnType<typeof at>["takes"]>) => command(commands, "record")

  test("is that in which all it waits for is parked, from then on, or from its own last sign", () => {
    const still = working({ idle: true, lastSignAt: NOW - 900 }, { world: childrenPausedSince(since) }).takes({
      type: "spending",
    })
    expect(still.commands).toEqual([{ do: "record", event: { type: "still", generation: 0, at: since }, write: true }])
    const later = working({ idle: true, lastSignAt: NOW - 300 }, { world: childrenPausedSince(since) }).takes(tick())
    expect(recorded(later)?.event).toMatchObject({ type: "still", at: NOW - 300 })
    const ahead = working({ idle: true }, { world: childrenPausedSince(NOW + 50) }).takes({ type: "spending" })
    expect(recorded(ahead)?.event).toMatchObject({ at: NOW })
  })

  test("is only that of a run that rests, or leads", () => {
    expect(working({ idle: false }, { world: childrenPausedSince(since) }).takes({ type: "spending" }).does).toEqual([])
    const leading = at("supervising", { world: childrenPausedSince(since) }).takes({ type: "spending" })
    expect(recorded(leading)?.event).toMatchObject({ type: "still" })
  })

  test("ends when one of them goes on, or it does itself", () => {
    const scene = { task: { run: { stillSince: since } } }
    const goesOn = working({ idle: true }, { ...scene, world: childrenPausedSince(undefined) }).takes({
      type: "spending",
    })
    expect(goesOn.commands).toEqual([
      { do: "record", event: { type: "counting", generation: 0, at: NOW }, write: true },
    ])
    const itself = working({ idle: false }, { ...scene, world: childrenPausedSince(since) }).takes({ type: "spending" })
    expect(recorded(itself)?.event).toMatchObject({ type: "counting", at: NOW })
    expect(
      working({ idle: true }, { ...scene, world: childrenPausedSince(since) }).takes({ type: "spending" }).does,
    ).toEqual([])
  })

  test("is out of its limits at once", () => {
    const scene = { task: lasting(500), options: { lastWord: 0 }, world: childrenPausedSince(since) }
    const still = working({ idle: true, lastSignAt: since }, scene).takes({ type: "spending" })
    expect(still).toMatchObject({ stage: "working", does: ["record"] })
    expect(working({ idle: false }, scene).takes({ type: "spending" }).stage).toBe("closing")
  })

  test("is out of what it has for its last word, asked once or once more", () => {
    const lastWord = { state: "told", reason: timeout, at: NOW - 900, againAt: NOW - 850 } as const
    const scene = { options: { lastWord: 100 }, task: { run: { stillSince: since } } }
    const { stage, run } = working({ lastWord }, scene).takes({ type: "spending" })
    expect(stage).toBe("working")
    expect(run?.lastWord).toEqual({ ...lastWord, at: NOW - 100, againAt: NOW - 50 })
    const begins = working({ idle: true, lastWord }, { options: { lastWord: 100 }, world: childrenPausedSince(NOW) })
    expect(begins.takes({ type: "spending" }).run?.lastWord).toEqual(lastWord)
    const parked = { at: since, model: "mock/one", why: "its limit" }
    const on = at("parked", { task: { run: { parked } }, run: { lastWord } }).takes({
      type: "admitted",
    })
    expect(on.run?.lastWord).toEqual({ ...lastWord, at: NOW - 100, againAt: NOW - 50 })
  })

  test("is that of a sleep, but where none counts", () => {
    const slept = (scene: Scene) => working({ sleptMs: 5 }, scene).takes({ type: "slept", ms: 100 }).run
    expect(slept({})).toMatchObject({ sleptMs: 105, lastSignAt: NOW - 900 })
    expect(slept({ task: { run: { stillSince: since } } })?.sleptMs).toBe(5)
    expect(slept({})).toMatchObject({ stuckSince: undefined, lookAt: undefined, hintAt: undefined })
  })
})

describe("held behind another", () => {
  test("it is admitted as it would begin: what held it is forgotten, and written with its next record", () => {
    const { run, commands } = at("held", { run: { warmUpUntil: NOW + 5 } }).takes({ type: "admitted" })
    expect(commands[0]).toEqual({ do: "record", event: { type: "admitted", generation: 0, at: NOW }, write: false })
    expect(run).toMatchObject({ stage: "prompting", warmUpUntil: undefined, lastSignAt: NOW })
    const placed = at("held", { task: { depth: 2 } }).takes({ type: "admitted" })
    expect(command(placed.commands, "prepare")).toEqual({ do: "prepare", save: false })
  })
})

describe("the clock, and what its session does by then", () => {
  const waits = { idle: true, stuckSince: 1, todosSince: 2, lookAt: NOW + 50 }

  test("at work: what was waited for is over, and it was looked at", () => {
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

  test("at work: what it spends is counted where a limit asks for it and no event tells it", () => {
    const does = (scene: Scene, heard = false) =>
      working({ observed: { ...NOTHING_OBSERVED, heard } }, scene).takes(busy).does
    const purse = { max: 1, openedAt: NOW, until: NOW + 100_000_000 }
    expect(does({})).toEqual([])
    expect(does({ options: { maxTokensPerTask: 1 } })).toEqual(["count"])
    expect(does({ options: { maxCostPerSession: 1 } })).toEqual(["count"])
    expect(does({ world: { purse } })).toEqual(["count"])
    expect(does({ task: { run: { budget: { max: 1, before: 0 } } } })).toEqual(["count"])
    expect(does({ options: { maxTokensPerTask: 1 } }, true)).toEqual([])
  })

  test("at rest: its messages are looked at, and its slot is free while its own tasks run", () => {
    expect(working().takes(tick("nothing"))).toMatchObject({ does: ["look"], run: { idle: true } })
    expect(working({}, { world: { ownTasks: true } }).takes(tick("nothing")).does).toEqual(["free slot", "look"])
  })

  test("not known: it is looked at where one of its waits is open", () => {
    expect(working().takes(tick()).does).toEqual([])
    for (const wait of [{ stuckSince: NOW }, { todosSince: NOW }, { missingSince: NOW }, { lookAt: NOW }])
      expect([wait, working(wait).takes(tick()).does]).toEqual([wait, ["look"]])
  })

  test("without contact: it is away from then on, and is no more looked at", () => {
    const { run, does } = working({ stuckSince: NOW }).takes(tick({ type: "unreachable" }))
    expect(run).toMatchObject({ away: { since: NOW }, stuckSince: undefined })
    expect(does).toEqual([])
    const away = { host: "big", since: NOW, most: 0 }
    // Whether its host can be reached is not known.
    expect(working({ away }).takes(tick()).run?.away).toEqual(away)
    expect(working({ away }).takes(tick("nothing")).run?.away).toBeUndefined()
  })
})

describe("its open questions", () => {
  const old = askOf({ id: "per_1", what: "bash: ls", askedAt: NOW - 1000 })
  const young = askOf({ id: "per_2", askedAt: NOW - 999 })
  const asking = (run: Partial<ActiveRun>, scene: Scene = {}) =>
    working({ asks: [old], ...run }, { options: { permissionTimeout: 0 }, ...scene }).takes(tick())

  test("are refused one by one when nobody has answered in time, and kept for its report", () => {
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

  test("are hinted at to its parent when it is time for that, once, where it has one", () => {
    expect(asking({ hintAt: NOW })).toMatchObject({ does: ["hint"], run: { hinting: true, asks: [old] } })
    expect(asking({ hintAt: NOW }).commands).toEqual([{ do: "hint", ask: old }])
    expect(asking({ hintAt: NOW + 1 }).does).toEqual([])
    expect(asking({ hintAt: undefined }).does).toEqual([])
    expect(asking({ hintAt: NOW, hinting: true }).does).toEqual([])
    expect(asking({ hintAt: NOW }, { task: { parentID: NOBODY } }).does).toEqual([])
    expect(asking({ hintAt: NOW, asks: [old, young] }).does).toEqual(["hint"])
  })

  test("that could not be refused, or told of, stay open beside the others", () => {
    expect(working({ asks: [old] }).takes({ type: "refuse failed", ask: young }).run?.asks).toEqual([old, young])
    expect(working({ hinting: true }).takes({ type: "hinted", done: true }).run?.hinting).toBe(false)
  })
})
