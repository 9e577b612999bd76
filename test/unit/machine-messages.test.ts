import { describe, expect, test } from "vitest"
import type { Message } from "../../src/core/ports.ts"
import type { ActiveRun } from "../../src/core/run/active-run.ts"
import { DELETED } from "../../src/core/run/events.ts"
import { NOTHING_OBSERVED } from "../../src/core/run/progress.ts"
import type { Verdict } from "../../src/core/run/steps.ts"
import { NOTHING_SPENT } from "../../src/core/spending.ts"
import { answer, asked, at, BILLED, command, NOW, passing, type Scene, wordOf } from "../support/machine.ts"

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
const seen = { observed: { ...NOTHING_OBSERVED, hasEvents: true } }

describe("a read of the messages", () => {
  test("a read of the messages that failed is repeated soon, or after contact returns", () => {
    expect(looked(undefined).run).toMatchObject({ lookAt: NOW + 2000 })
    const away = { host: "big", since: 1, most: 0 }
    expect(looked(undefined, { away, lookAgain: true })).toMatchObject({ does: [], run: { looking: false } })
    expect(looked(undefined, { away }).run?.lookAt).toBeUndefined()
    expect(looked(found, { away }).stage).toBe("closing")
  })
})

describe("an undone prompt", () => {
  const error = { message: "Aborted", aborted: true } as const
  const cut = (more: object = {}) => [asked(), answer({ finish: undefined, error, ...more })]

  test("a run that was stopped ends only if no undo follows for a while", () => {
    expect(looked({ messages: cut() })).toMatchObject({ stage: "working", does: [], run: { lookAt: NOW + 3000 } })
    for (const completedAt of [NOW - 3000, undefined]) {
      const { run } = looked({ messages: cut({ completedAt }) })
      expect(run?.closing?.ending).toMatchObject({ type: "cancelled", reason: { code: "aborted" } })
    }
  })

  test("a run waits while the user has undone its prompt", () => {
    const undone = { messages: cut({ completedAt: NOW - 60_000 }), undone: true }
    const { run, stage, does } = looked(undone, { error: { ...error, at: NOW - 60_000 } })
    expect([stage, does, run?.lookAt]).toEqual(["working", [], NOW + 2000])
    // Once its prompt has gone nothing says that it was stopped.
    expect(run?.error).toBeUndefined()
  })

  test("a run whose user undoes its prompt and writes no other was stopped by its user", () => {
    const undone = { messages: cut({ completedAt: NOW - 60_000 }), undone: true }
    const patience = { options: { stallTimeout: 60_000 } }
    expect(looked(undone, { lastSignAt: NOW - 50_000 }, patience).stage).toBe("working")
    const { run } = looked(undone, { lastSignAt: NOW - 57_000 }, patience)
    expect(run?.closing?.ending).toMatchObject({ type: "cancelled", reason: { code: "aborted" } })
    expect(looked(undone, { lastSignAt: 0 }, { options: { stallTimeout: 0 } }).stage).toBe("working")
  })

  test("a run follows a corrected prompt of the user and does not send the first one again", () => {
    const better = [asked("msg_better"), answer({ parentID: "msg_better" })]
    const replaced = { messages: better, replacementID: "msg_better" }
    const { run, commands } = looked(replaced, { stuckSince: NOW - 1000 })
    const event = { type: "prompt replaced", generation: 0, promptID: "msg_better" }
    expect(commands[0]).toEqual({ do: "record", event, write: true })
    expect(run?.closing).toMatchObject({ ending: { type: "completed" }, task: { run: { promptID: "msg_better" } } })
    const open = looked({ messages: [asked("msg_better")], replacementID: "msg_better", busy: true }, { stuckSince: 1 })
    expect(open).toMatchObject({ stage: "working", does: ["record"] })
    expect([open.run?.prompt, open.run?.stuckSince]).toEqual([undefined, undefined])
  })

  test("a run does not take what its user wrote before its prompt was stored for a replacement of the prompt", () => {
    const theirs = [asked("msg_theirs"), answer({ parentID: "msg_theirs" })]
    const { run, does } = looked({ messages: theirs, replacementID: "msg_theirs" })
    expect(does).toEqual([])
    expect(run).toMatchObject({ stage: "working", stuckSince: NOW, lookAt: NOW + 1000 })
  })
})

describe("a run that goes on after a pause", () => {
  const error = { message: "Aborted", aborted: true } as const
  const call = { type: "tool", callID: "c", tool: "bash", state: "error", refused: false, final: true } as const
  const cut = (completedAt: number) => [asked(), answer({ finish: undefined, error, completedAt, parts: [call] })]
  const parked = { at: NOW - 60_000, model: "mock/one", why: "its limit" }
  const admitted = at("parked", { task: { run: { parked } } }).takes({ type: "admitted" })
  const reads = (messages: readonly Message[], more: object = {}) =>
    at("working", { run: { ...admitted.run, looking: true, stage: "working" } }).takes({
      type: "looked",
      waited: false,
      found: { ...found, messages, ...more },
    })

  test("the step that its pause has cut off does not end the run, and a later stop does", () => {
    expect(reads(cut(NOW - 60_000))).toMatchObject({ stage: "working", run: { stuckSince: NOW } })
    expect(reads(cut(NOW - 60_000), { busy: true })).toMatchObject({
      stage: "working",
      run: { stuckSince: undefined },
    })
    expect(reads(cut(NOW + 1)).run?.lookAt).toBe(NOW + 3001)
  })

  test("the error for which it was paused does not end the run, and a later error does", () => {
    const failed = (completedAt: number) => [asked(), answer({ error: { message: "overloaded" }, completedAt })]
    expect(reads(failed(NOW - 1))).toMatchObject({ stage: "working", run: { stuckSince: NOW } })
    expect(reads(failed(NOW - 1), { busy: true })).toMatchObject({ stage: "working", run: { stuckSince: undefined } })
    expect(reads(failed(NOW + 1)).run?.closing?.ending.type).toBe("failed")
    expect(reads([asked(), answer({ completedAt: NOW - 1 })]).run?.closing?.ending.type).toBe("completed")
  })
})

describe("a deleted session", () => {
  test("a run whose session is gone was deleted, unless it had ended before", () => {
    const gone = looked({ ...unanswered, gone: true })
    expect(gone.run?.closing).toMatchObject({ ending: DELETED, task: { status: "cancelled" } })
    expect(gone.run?.closing?.options).toEqual({})
    expect(looked({ gone: true }).run?.closing?.ending.type).toBe("completed")
  })
})

describe("a busy session", () => {
  test("a run whose answer is complete has ended although its session is busy with something else", () => {
    expect(looked({ busy: true }).run?.closing?.ending.type).toBe("completed")
    const failed = { messages: [asked(), answer({ error: { message: "no" } })], busy: true }
    expect(looked(failed).run?.closing?.ending.type).toBe("failed")
  })
})

describe("an idle run without an answer", () => {
  test("an idle run in its own worktree gets more time while no event has arrived", () => {
    const place = { kind: "worktree", folder: "/", merge: false } as const
    const scene = { task: { place } }
    const stuck = { stuckSince: NOW - 10_000 }
    expect(looked(unanswered, stuck, scene).stage).toBe("working")
    expect(looked(unanswered, { stuckSince: NOW - 60_000 }, scene).stage).toBe("closing")
    expect(looked(unanswered, { ...stuck, ...seen, urgedAfter: "msg_prompt" }, scene).stage).toBe("closing")
  })

  test("an idle run with an error event fails after one more second", () => {
    const error = (since: number) => ({ stuckSince: 1, error: { message: "no luck", at: since } })
    expect(looked(unanswered, error(NOW - 999)).stage).toBe("working")
    expect(looked(unanswered, error(NOW - 1000)).run?.outcome?.reason).toEqual({ code: "provider", text: "no luck" })
  })

  test("a run records since when an expected message is missing, until none is missing", () => {
    const words = [wordOf({ id: "msg_other" })]
    expect(looked(unanswered, { sentMessages: words }).run?.missingSince).toBe(NOW)
    expect(looked(unanswered, { sentMessages: words, missingSince: NOW - 5 }).run?.missingSince).toBe(NOW - 5)
    expect(looked(unanswered, { missingSince: NOW - 5 }).run?.missingSince).toBeUndefined()
    const arrived = looked({ messages: [asked(), asked("msg_other")] }, { sentMessages: words, missingSince: NOW - 5 })
    expect(arrived.run).toMatchObject({ missingSince: undefined, sentMessages: [{ expected: false }] })
  })
})

describe("a message that the session ignored", () => {
  const words = [wordOf({ taken: true, expected: false })]
  const last = [asked(), calling, asked("msg_word")]

  test("a run waits for a message that is being sent again, however long OpenCode takes", () => {
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

  test("an unread message at the end of a session is sent again after a second", () => {
    const first = looked({ messages: last }, { sentMessages: words })
    expect(first).toMatchObject({ does: [], run: { stuckSince: NOW, lookAt: NOW + 1000 } })
    const waits = looked({ messages: last }, { sentMessages: words, stuckSince: NOW - 999 })
    expect(waits).toMatchObject({ does: [], run: { stuckSince: NOW - 999, lookAt: NOW + 1 } })
    expect(looked({ messages: last }, { sentMessages: words, stuckSince: NOW - 1000 }).does).toEqual(["send"])
    // Where nothing lies there, no look is due for it.
    expect(looked({ messages: [asked(), calling] }).run?.lookAt).toBeUndefined()
  })

  test("a message that stays unread for as long as a prompt may is not sent again", () => {
    const over = looked({ messages: last }, { ...seen, sentMessages: words, stuckSince: NOW - 10_000 })
    expect(over).toMatchObject({ stage: "closing" })
    expect(over.does).not.toContain("send")
  })

  test("an agent whose session is idle with its prompt unread is asked to begin, once", () => {
    const first = looked(unanswered, seen)
    expect(first).toMatchObject({ does: [], run: { stuckSince: NOW, lookAt: NOW + 1000 } })
    const again = looked(unanswered, { ...seen, stuckSince: NOW - 1000 })
    expect(command(again.commands, "send")?.message.text).toMatch(/^Automatic message.* your task, .* Begin now\.$/)
    expect(looked(unanswered, { ...seen, stuckSince: NOW - 1000, urgedAfter: "msg_prompt" }).does).toEqual([])
    expect(
      at("prompting", { run: { looking: true, ...seen, stuckSince: NOW - 1000 } }).takes({
        type: "looked",
        waited: false,
        found: unanswered,
      }).does,
    ).toEqual([])
    const elsewhere = { task: { place: { kind: "worktree", folder: "/", merge: false } as const } }
    expect(looked(unanswered, { stuckSince: NOW - 1000 }, elsewhere).does).toEqual([])
    expect(looked(unanswered, { ...seen, stuckSince: NOW - 1000 }, elsewhere).does).toEqual(["send"])
    expect(looked(unanswered, { stuckSince: NOW - 1000 }).does).toEqual(["send"])
  })

  test("an agent whose prompt is not in its session is not asked to begin it", () => {
    const theirs = { ...found, messages: [asked("msg_user")] }
    expect(looked(theirs, { ...seen, stuckSince: NOW - 1000 }).does).toEqual([])
  })
})

describe("a turn ended by a compaction", () => {
  const request: Message = { ...asked("msg_compact"), parts: [{ type: "compaction" }] }
  const summary = answer({ id: "msg_summary", parentID: "msg_compact", summary: true })
  const messages = [asked(), calling, request, summary]
  const look = { type: "looked", waited: false, found: { ...found, messages } } as const

  test("an agent is asked to go on once after a compaction, however often its session is read until then", () => {
    const first = looked({ messages })
    expect(command(first.commands, "send")?.message.text).toMatch(/ A compaction of the conversation .* Go on/)
    expect(first.run?.stuckSince).toBe(NOW)
    const idle = looked({ messages }, { stuckSince: NOW - 500 })
    expect(idle).toMatchObject({ does: ["send"], run: { stuckSince: NOW - 500 } })
    const second = at("working", { run: first.run }).takes(look)
    expect(second).toMatchObject({ stage: "working", does: [] })
    const later = [...messages, asked(first.run?.sentMessages[0]?.id), { ...calling, id: "msg_2" }]
    const again = [request, summary].map((each) => ({
      ...each,
      id: `${each.id}_2`,
      ...(each.parentID && { parentID: "msg_compact_2" }),
    }))
    const third = looked({ messages: [...later, ...again] }, { ...second.run, looking: true })
    expect(third.does).toEqual(["send"])
  })

  test("an agent that was asked to go on waits when its user undoes all of its messages", () => {
    expect(looked({ messages: [] }, { urgedAfter: "msg_summary" })).toMatchObject({ stage: "working", does: [] })
  })

  test("an agent is asked again to go on where OpenCode does not take the message", () => {
    const { run } = looked({ messages })
    const [message] = run?.sentMessages ?? []
    if (!message) throw new Error("it was not asked")
    const refused = at("working", { run }).takes({ type: "sent", message, problem: "no" })
    expect(refused.does).toEqual(["look"])
    expect(at("working", { run: refused.run }).takes(look).does).toEqual(["send"])
  })
})

describe("a turn ended by a refusal", () => {
  const messages = [asked(), refusedCall]

  test("a turn that ended at the plugin's own refusal of a question is continued", () => {
    const { run, commands } = looked({ messages }, { refused: { after: 0, asks: [] } })
    expect(command(commands, "send")?.message).toMatchObject({ kind: "word" })
    expect(run).toMatchObject({ stage: "working", refused: undefined, observed: { ended: 1 } })
    const four = { observed: { ...NOTHING_OBSERVED, ended: 4 } }
    expect(looked({ messages }, { ...four, refused: { after: 3, asks: [] } }).does).toEqual(["send"])
  })

  test("a turn that ended with a refusal as its error continues only if the plugin refused the question", () => {
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

  test("a turn that ended at a refusal by a person ends the run", () => {
    expect(looked({ messages }).run?.closing?.ending).toMatchObject({ type: "cancelled", reason: { code: "refused" } })
    const five = { observed: { ...NOTHING_OBSERVED, ended: 5 } }
    expect(looked({ messages }, { ...five, refused: { after: 3, asks: [] } }).stage).toBe("closing")
  })

  test("a refused turn is not continued while another message stands last or there is none", () => {
    const behind = looked({ messages: [...messages, asked("msg_notice")] }, { refused: { after: 0, asks: [] } })
    expect(behind).toMatchObject({ stage: "working", does: [] })
    expect(looked({ messages: [] }, { refused: { after: 0, asks: [] } })).toMatchObject({ stage: "working", does: [] })
  })
})

describe("an answer", () => {
  test("an answer proves the end of a run, except with a place, a check or a schema", () => {
    const place = { kind: "worktree", folder: "/", merge: false } as const
    expect(looked({}).run?.closing).toMatchObject({ ending: { type: "completed", proven: true }, write: "soon" })
    expect(looked({}, {}, { task: { place } }).run?.closing?.ending.proven).toBe(false)
    const failed = { messages: [asked(), answer({ finish: "cut short", error: { message: "no" } })] }
    expect(looked(failed).run?.closing?.ending).toMatchObject({ type: "failed", proven: true })
    expect(looked(failed, {}, { task: { run: { check: "true" } } }).run?.closing?.ending.proven).toBe(false)
    expect(looked(failed, {}, { task: { run: { schema: {} } } }).run?.closing?.ending.proven).toBe(false)
  })

  test("an answer ends no run whose own tasks are active or unread, but a failed answer does", () => {
    expect(looked({}, {}, {}, true)).toMatchObject({ stage: "working", does: [] })
    expect(looked({}, {}, { context: { ownTasks: true } }).stage).toBe("working")
    expect(looked({}, {}, { context: { hasPendingMessage: true } }).stage).toBe("working")
    const failed = { messages: [asked(), answer({ error: { message: "no" } })] }
    expect(looked(failed, {}, {}, true).run?.closing?.ending.type).toBe("failed")
    expect(looked({}, {}, {}, true).run?.todosSince).toBeUndefined()
  })

  test("an answer does not end the run before the grace time for open todos is over", () => {
    const grace = { options: { todoGrace: 3000 } }
    const first = looked({ openTodos: 1 }, {}, grace)
    expect(first).toMatchObject({ stage: "working", does: [], run: { todosSince: NOW } })
    const waits = looked({ openTodos: 1 }, { todosSince: NOW - 2999 }, grace)
    expect(waits).toMatchObject({ stage: "working", run: { todosSince: NOW - 2999 } })
    expect(looked({ openTodos: 1 }, { todosSince: NOW - 3000 }, grace).stage).toBe("closing")
    expect(looked({ openTodos: 0 }, { todosSince: NOW - 1 }, grace).stage).toBe("closing")
  })
})

describe("a requested last word", () => {
  const options = { maxCostPerSession: 1 }
  const text = "Stopped at the session's budget: the session's tasks spent $0.95 of $1.00 (option maxCostPerSession)."
  const reason = { code: "budget", text } as const
  const spent = () => ({ ...NOTHING_SPENT, session: { ...BILLED, cost: 1.2 } })
  const scene = { options, context: { spent } }

  test("a run that spoke its last word ends at its limit, with what was spent by then", () => {
    const lastWord = { state: "done", reason, at: 1000 } as const
    const { run } = looked({}, { lastWord }, scene)
    expect(run?.closing?.ending).toMatchObject({ type: "failed", saidLastWord: true })
    expect(run?.outcome?.reason).toEqual({
      code: "budget",
      text: `${text.slice(0, -1)} when it was asked for its last word, and $1.20 by its end.`,
    })
  })

  test("a run that ended before it read the request for its last word has completed", () => {
    const lastWord = { state: "requested", reason, at: 1000 } as const
    expect(looked({}, { lastWord }, scene).run?.closing?.ending).toMatchObject({ type: "completed" })
  })

  test("a run that spoke its last word is read again where its tasks ended during the read", () => {
    const lastWord = { state: "done", reason, at: 1000 } as const
    expect(looked({}, { lastWord }, scene, true).stage).toBe("working")
    expect(looked({}, { lastWord }, { ...scene, context: { ...scene.context, ownTasks: true } }, true).stage).toBe(
      "closing",
    )
    const failed = { messages: [asked(), answer({ error: { message: "no" } })] }
    expect(looked(failed, { lastWord }, scene, true).stage).toBe("closing")
  })

  test("a run asked for its last word while its own tasks run is asked whether it is idle", () => {
    const lastWord = { state: "requested", reason, at: 1000 } as const
    expect(looked({}, { lastWord }, scene, true).does).toEqual(["check idle"])
  })
})

describe("an answer to be verified", () => {
  const schema = { type: "object" }
  const ending = { type: "completed", proven: true } as const
  const answered = { ending, messages: found.messages, openTodos: 3, answers: 0 }
  const value = { valid: true, at: 4, length: 2, asked: 1 } as const
  const check = { command: "npm test", passed: false, runs: 1, how: "exit code 1" }
  const task = { run: { schema, check: "npm test" } }
  const checking = (run: Partial<ActiveRun> = {}) =>
    at("verifying", { task, run: { idle: true, pendingEnding: answered, ...run } })
  const by = (name: string, verdict?: Verdict) => ({ type: "verified", by: name, verdict }) as const

  test("an answer that has to be verified goes to the first verifier and is kept meanwhile", () => {
    const { stage, run, commands } = looked({ openTodos: 3 }, { todosSince: 0 }, { task })
    expect(stage).toBe("verifying")
    expect(commands).toEqual([{ do: "verify", by: "schemas", text: "found", earlier: {} }])
    expect(run?.idle).toBe(true)
    expect(run?.pendingEnding).toEqual({ ...answered, ending: { ...ending, at: NOW }, answers: 1 })
  })

  test("a verified answer goes to the next verifier with the earlier findings", () => {
    const { run, commands, stage } = checking({ check }).takes(by("schemas", passing({ value })))
    expect(stage).toBe("verifying")
    expect(commands).toEqual([{ do: "verify", by: "checks", text: "found", earlier: { check, value } }])
    expect(run).toMatchObject({ pendingEnding: answered, value })
  })

  test("a verified answer does not end the run before it has read messages sent meanwhile", () => {
    const waits = checking({ sentMessages: [wordOf()] }).takes(by("checks", passing({ check })))
    expect(waits).toMatchObject({
      stage: "working",
      does: [],
      run: { missingSince: NOW, check, pendingEnding: undefined },
    })
  })

  test("an answer is read again before the next verifier if its session went on meanwhile", () => {
    const { stage, does, run } = checking({ idle: false }).takes(by("schemas", passing({ value })))
    expect([stage, does]).toEqual(["working", ["look"]])
    expect(run).toMatchObject({ pendingEnding: undefined, lastSignAt: NOW })
    expect(run?.value).toEqual({ valid: false, asked: 0 })
  })

  test("an answer is read again after its check if its user had another turn meanwhile, however short", () => {
    const observed = { ...NOTHING_OBSERVED, ended: 1 }
    const { stage, does } = checking({ observed }).takes(by("checks", passing({ check })))
    expect([stage, does]).toEqual(["working", ["look"]])
  })
})
