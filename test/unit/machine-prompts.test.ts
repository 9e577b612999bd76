import { describe, expect, test } from "vitest"
import type { Message } from "../../src/core/ports.ts"
import type { ActiveRun, SentMessage } from "../../src/core/run/active-run.ts"
import type { Input, MachineCommand, SessionRead } from "../../src/core/run/steps.ts"
import type { Reason } from "../../src/core/task.ts"
import { messageID } from "../../src/opencode/messages.ts"
import { answer, asked, at, command, failing, NOW, type Scene, wordOf } from "../support/machine.ts"
import { askOf } from "../support/tasks.ts"

/** What is said to a run: when it is sent, what whoever said it hears, and what is said once more. */

const reply = () => {}
const tell = (text = "MORE"): Input => ({ type: "tell", text, reply })
const timeout: Reason = { code: "timeout", text: "Stopped at its time limit." }
const lastWord = { state: "requested", reason: timeout, at: 1000 } as const
const found: SessionRead = { messages: [], gone: false, busy: false, openTodos: 0 }
const working = (run: Partial<ActiveRun> = {}, more: Scene = {}) => at("working", { ...more, run })
const saidTo = (commands: readonly MachineCommand[]) => command(commands, "send")?.message
/** A word as it is first said. */
const FRESH = { expected: true, held: false, taken: false }
const idOf = (kind: SentMessage["kind"], time = NOW) => messageID(kind, "bg_aaaaaaaa", 0, time)

describe("a message to a run", () => {
  test("a user message for a run that is not prompted yet is appended to its prompt", () => {
    for (const stage of ["creating", "queued", "held", "preparing"] as const) {
      const { run, commands } = at(stage).takes(tell())
      expect([stage, run?.prompt]).toEqual([stage, "FIND\n\nMORE"])
      expect(commands).toEqual([{ do: "answer", reply, with: "queued" }])
    }
    expect(at("creating", { run: { prompt: undefined } }).takes(tell()).run?.prompt).toBe("\n\nMORE")
  })

  test("a user message for a working run is sent at once, and the run waits for its answer", () => {
    for (const stage of ["working", "verifying"] as const) {
      const { run, commands } = at(stage, { run: { calls: 1 } }).takes(tell())
      const word = { id: idOf("word"), kind: "word", text: "MORE", at: NOW, ...FRESH, reply }
      expect([stage, commands]).toEqual([stage, [{ do: "send", message: word }]])
      expect(run).toMatchObject({ stage, sentMessages: [word], lastMessageAt: NOW, calls: 2 })
    }
  })

  test("two messages never share an id, even within one millisecond or after the clock is set back", () => {
    const one = working().takes(tell("ONE")).run
    const two = working(one).takes(tell("TWO"))
    expect(two.run?.sentMessages.map(({ id, text }) => [id, text])).toEqual([
      [idOf("word"), "ONE"],
      [idOf("word", NOW + 1), "TWO"],
    ])
    expect(two.run?.lastMessageAt).toBe(NOW + 1)
    expect(working({ lastMessageAt: NOW + 70 }).takes(tell()).run?.lastMessageAt).toBe(NOW + 71)
  })

  test("a user message is held while the prompt is being sent, and sent once afterwards", () => {
    const held = at("prompting", { run: { calls: 1 } }).takes(tell())
    expect(held.commands).toEqual([])
    const word = { id: idOf("word"), kind: "word", text: "MORE", at: NOW, ...FRESH, reply }
    expect(held.run).toMatchObject({ calls: 1, sentMessages: [{ ...word, held: true }] })
    const before = wordOf({ id: "msg_before" })
    const words = [before, ...(held.run?.sentMessages ?? [])]
    const { run, commands } = at("prompting", { run: { ...held.run, sentMessages: words } }).takes({ type: "prompted" })
    expect(commands).toEqual([{ do: "send", message: word }])
    expect(run).toMatchObject({ stage: "working", calls: 1, sentMessages: [before, word] })
  })

  test("a user message is refused with a reason during a last word or while the host is unreachable", () => {
    const near = working({ lastWord })
    expect(near.takes(tell())).toMatchObject({ run: near.run, commands: [{ with: "at its last word" }] })
    expect(near.takes(tell()).commands).toEqual([{ do: "answer", reply, with: "at its last word" }])
    const gone = working({ away: { host: "big", since: NOW, most: 0 } })
    expect(gone.takes(tell()).commands).toEqual([{ do: "answer", reply, with: { away: "big" } }])
    expect(gone.takes(tell()).run).toBe(gone.run)
  })
})

describe("the result of a message", () => {
  const [one, two] = [wordOf({ id: "msg_1", reply }), wordOf({ id: "msg_2" })]
  const said = (message: SentMessage, problem?: string): Input => ({ type: "sent", message, problem })

  test("the sender is notified when OpenCode accepts a message, and only that message is marked as taken", () => {
    const { run, commands } = working({ sentMessages: [one, two], calls: 1 }).takes(said(one))
    expect(run).toMatchObject({ calls: 0, sentMessages: [{ ...one, taken: true }, two] })
    expect(commands).toEqual([{ do: "answer", reply, with: "accepted" }])
    expect(working({ sentMessages: [two], calls: 1 }).takes(said(two)).commands).toEqual([])
  })

  test("the sender is notified why OpenCode rejected a message, and the run looks for its end", () => {
    const { run, commands } = working({ sentMessages: [one, two], calls: 1 }).takes(said(one, "no"))
    expect(run).toMatchObject({ stage: "working", sentMessages: [two], calls: 0, looking: true })
    expect(commands).toEqual([
      { do: "answer", reply, with: { problem: "no" } },
      { do: "look", waited: false },
    ])
  })

  test("a parked run may continue after its last pending message was handled", () => {
    const more = at("parked", { run: { calls: 2, sentMessages: [one] } })
    expect(more.takes(said(one)).commands).toEqual([{ do: "answer", reply, with: "accepted" }])
    const { takes } = at("parked", { run: { calls: 1, sentMessages: [one] } })
    expect(takes(said(one)).commands).toEqual([{ do: "answer", reply, with: "accepted" }, { do: "free slot" }])
    expect(takes(said(one, "no")).commands).toEqual([
      { do: "answer", reply, with: { problem: "no" } },
      { do: "free slot" },
    ])
  })

  test("a message that is accepted late gets the full waiting time to appear in the session", () => {
    expect(working({ calls: 1, sentMessages: [one], missingSince: 5 }).takes(said(one)).run?.missingSince).toBe(NOW)
    expect(working({ calls: 1, sentMessages: [one] }).takes(said(one)).run?.missingSince).toBeUndefined()
  })

  test("a limit ends the run when OpenCode rejects the request for the last word", () => {
    const message = wordOf({ kind: "last-word" })
    const ended = working({ lastWord, calls: 1, sentMessages: [message] }).takes(said(message, "no"))
    expect(ended.run?.closing?.ending).toEqual({ type: "failed", reason: timeout })
    // Only that question: another word leaves it its time.
    expect(working({ lastWord, calls: 1, sentMessages: [one] }).takes(said(one, "no")).stage).toBe("working")
    expect(working({ calls: 1, sentMessages: [message] }).takes(said(message, "no")).stage).toBe("working")
  })

  test("a run fails when OpenCode rejects the result of its check or its schema validation", () => {
    const reason = (kind: SentMessage["kind"]) => {
      const message = wordOf({ kind })
      return working({ calls: 1, sentMessages: [message] }).takes(said(message, "no")).run?.closing?.ending
    }
    expect(reason("check")).toEqual({
      type: "failed",
      reason: { code: "host", text: "OpenCode did not take the check's result: no" },
    })
    expect(reason("schema")).toEqual({
      type: "failed",
      reason: { code: "host", text: "OpenCode did not take the question for a valid answer: no" },
    })
    const taken = wordOf({ kind: "check" })
    expect(working({ calls: 1, sentMessages: [taken] }).takes(said(taken)).stage).toBe("working")
  })
})

describe("a message that the session ignored", () => {
  const message = wordOf({ id: "msg_word", taken: true, reply })
  const other = wordOf({ id: "msg_other", text: "OTHER", taken: true, expected: false })
  /** It began to answer something else when the word came, which then stood before that answer. */
  const passed = [asked(), asked("msg_word"), answer()]
  const looked = (messages: readonly Message[], words: readonly SentMessage[], more: Partial<ActiveRun> = {}) =>
    working({ looking: true, sentMessages: words, ...more }).takes({
      type: "looked",
      waited: false,
      found: { ...found, messages },
    })

  test("an unanswered user message is sent again as a new message, without a waiting sender", () => {
    const { run, commands } = looked(passed, [message, other], { calls: 1 })
    const again = { id: idOf("word"), kind: "word", text: "MORE", at: NOW, ...FRESH, reply: undefined }
    expect(commands).toEqual([{ do: "send", message: again }])
    expect(run).toMatchObject({ sentMessages: [other, again], calls: 2 })
  })

  test("a user message counts as ignored only if it was accepted and no answer covers it", () => {
    expect(saidTo(looked(passed, [{ ...message, taken: false }]).commands)).toBeUndefined()
    expect(saidTo(looked(passed, [other]).commands)).toBeUndefined()
    expect(saidTo(looked([...passed, asked("msg_user")], [message]).commands)).toBeUndefined()
    const read = [asked(), asked("msg_word"), answer({ parentID: "msg_word", finish: "called" })]
    expect(saidTo(looked(read, [message]).commands)).toBeUndefined()
    const behind = [asked(), asked("msg_word"), asked("msg_news"), answer({ parentID: "msg_news", finish: "called" })]
    expect(saidTo(looked(behind, [message]).commands)).toBeUndefined()
    const unread = [asked(), asked("msg_word"), asked("msg_news"), answer()]
    expect(saidTo(looked(unread, [message]).commands)).toMatchObject({ kind: "word", text: "MORE" })
    expect(saidTo(looked([], [message]).commands)).toBeUndefined()
    expect(saidTo(looked([answer({ finish: "called" })], [message]).commands)).toBeUndefined()
  })

  test("a verifier's question is sent again like a user's message, and a request for a last word is not", () => {
    for (const kind of ["check", "schema"] as const)
      expect(saidTo(looked(passed, [{ ...message, kind }]).commands)).toMatchObject({ kind, text: "MORE" })
    expect(saidTo(looked(passed, [{ ...message, kind: "last-word" }]).commands)).toBeUndefined()
  })

  test("an answer is not judged again while the question after it is unread", () => {
    const behind = [
      asked(),
      answer(),
      asked("msg_user"),
      asked("msg_word"),
      answer({ id: "msg_2", parentID: "msg_user" }),
    ]
    const { does, stage } = looked(behind, [{ ...message, kind: "check" }], { stuckSince: NOW - 5000 })
    expect([does, stage]).toEqual([["send"], "working"])
  })
})

describe("an agent that is asked again", () => {
  test("an agent is asked again with its verifier's text when its answer does not pass", () => {
    const answered = { ending: { type: "completed" }, messages: [asked(), answer()], openTodos: 0, answers: 0 } as const
    const { takes } = at("verifying", { task: { run: { check: "npm test" } }, run: { pendingEnding: answered } })
    const message = saidTo(takes({ type: "verified", by: "checks", verdict: failing({}, true) }).commands)
    expect(message).toMatchObject({ kind: "check", text: "AGAIN", ...FRESH, id: idOf("check") })
  })

  test("an agent is asked to continue without permission when our refusal of a question ended its turn", () => {
    const part = { type: "tool", callID: "c", tool: "bash", state: "error", refused: "permission" } as const
    const messages = [asked(), answer({ finish: "called", parts: [part] })]
    const look = { type: "looked", waited: false, found: { ...found, messages } } as const
    const reading = askOf({ what: "external_directory: /x/*", doing: "using /x/*" })
    const asks = [reading, askOf({ kind: "question", what: "Which?" })]
    const message = saidTo(working({ looking: true, refused: { after: 0, asks } }).takes(look).commands)
    expect(message).toMatchObject({
      kind: "word",
      text: 'Automatic message, not written by the user. Nobody allowed using /x/* in time. Nobody answered "Which?" in time. The refusal ended your turn, but not your task. Go on without it, and say in your answer what you could not do.',
    })
    const near = saidTo(working({ looking: true, refused: { after: 0, asks: [] }, lastWord }).takes(look).commands)
    expect(near?.kind).toBe("last-word")
  })

  test("asking for the last word during an open question refuses that question when the session is stopped", () => {
    const asks = [askOf({ kind: "question", askedAt: NOW })]
    const { commands } = working(
      { asks },
      { task: { run: { timeout: 1500 } }, options: { lastWord: 1000, permissionTimeout: 0 } },
    ).takes({ type: "tick", doing: undefined })
    expect(command(commands, "send")).toMatchObject({ message: { kind: "last-word" }, interrupts: asks })
  })
})
