import { describe, expect, test } from "vitest"
import {
  answerText,
  classify,
  factsOf,
  isCutByCompaction,
  keptTodos,
  lastAnswerAt,
  mayGoOn,
  type SessionState,
} from "../../src/core/outcome.ts"
import type { Message, MessagePart } from "../../src/core/ports.ts"
import {
  mayHaveAnswered,
  NOTHING_OBSERVED,
  withAnswer,
  withMessages,
  withText,
  withTool,
} from "../../src/core/run/progress.ts"
import { type Ending, NO_USAGE } from "../../src/core/task.ts"

const text = (words: string, synthetic = false): MessagePart => ({ type: "text", text: words, synthetic })
const tool = (isRefused = false, callID = "c"): MessagePart => ({
  type: "tool",
  callID,
  tool: "bash",
  state: isRefused ? "error" : "completed",
  refused: isRefused && "permission",
})
const user = (id = "u"): Message => ({ id, role: "user", createdAt: 0, summary: false, parts: [text("do it")] })
const answer = (more: Partial<Message> = {}): Message => ({
  id: "a",
  role: "assistant",
  createdAt: 1,
  completedAt: 9,
  parentID: "u",
  finish: "done",
  summary: false,
  parts: [text("done")],
  ...more,
})
const aborted = { message: "Aborted", aborted: true } as const
const EVERY: readonly SessionState[] = ["working", "idle", "orphaned"]
const INTERRUPTED = { type: "failed", reason: { code: "interrupted" } }
const ABORTED: Ending = {
  type: "cancelled",
  reason: { code: "aborted", text: "It was stopped in its own session, most likely by the user." },
}

test("the answer of a provider that runs its tools itself is what stands behind its last call", () => {
  const search: MessagePart = {
    type: "tool",
    callID: "c",
    tool: "search",
    state: "completed",
    refused: false,
    final: true,
  }
  const texts = (...parts: MessagePart[]) => answerText([user(), answer({ parts })])
  const last = [text("It is"), text("42.")]
  expect(texts(text("Let me look."), search, text("Now the other."), search, ...last)).toBe("It is\n42.")
  expect(texts(text("All done."), search, text(" "))).toBe("All done.")
})

test("a call that the provider runs leaves an answer the run's last one, in events and in messages", () => {
  const ids = { messageID: "a", id: "c", tool: "search", state: "ended" } as const
  const ended = { id: "a", usage: NO_USAGE, finish: "done" } as const
  const observed = (byProvider: boolean) =>
    withAnswer(withText(withTool(NOTHING_OBSERVED, { ...ids, byProvider }), "p", "42.", "a"), ended)
  expect(mayHaveAnswered(observed(true))).toBe(true)
  expect(mayHaveAnswered(observed(false))).toBe(false)
  const read = (more: object) => {
    const parts = [{ ...tool(), ...more } as MessagePart, text("42.")]
    return mayHaveAnswered(withMessages(NOTHING_OBSERVED, [user(), answer({ parts, usage: NO_USAGE })]))
  }
  expect(read({ final: true, byProvider: true, state: "error" })).toBe(true)
  expect(read({})).toBe(false)
  // A stop has cut it off.
  expect(read({ final: true, state: "error" })).toBe(false)
})

describe("a run judged by its messages", () => {
  test.each<[string, readonly Message[]]>([
    ["its last answer ended well", [user(), answer()]],
    ["its answer ended well after other steps", [user(), answer({ finish: "called" }), answer()]],
    ["the answer to the latest word did", [user(), answer(), user("later"), answer({ parentID: "later" })]],
  ])("a run is completed where %s, at the time of that answer's end", (_what, messages) => {
    for (const state of EVERY) expect(classify(messages, state)).toEqual({ type: "completed", at: 9, proven: true })
  })

  test("a run is completed with a note when its answer was cut at the model's output limit", () => {
    const note = "The answer reached the model's output limit and may be cut short."
    const cut = [user(), answer({ finish: "cut short" })]
    for (const state of EVERY) expect(classify(cut, state)).toEqual({ type: "completed", note, at: 9, proven: true })
  })

  test("a run is failed with the error's text when its last answer has an error", () => {
    const error = { name: "APIError", message: "no such luck" }
    const reason = { code: "provider", text: "no such luck" }
    for (const state of EVERY)
      expect(classify([user(), answer({ error, finish: undefined })], state)).toEqual({
        type: "failed",
        reason,
        at: 9,
        proven: true,
      })
  })
})

describe("an aborted answer", () => {
  const messages = [user(), answer({ error: aborted, finish: undefined })]

  test("an aborted answer counts as stopped by a user while OpenCode is alive", () => {
    for (const state of ["working", "idle"] as const)
      expect(classify(messages, state)).toEqual({ ...ABORTED, at: 9, proven: false })
  })

  test("an aborted answer counts as interrupted when its OpenCode process is dead", () => {
    expect(classify(messages, "orphaned")).toMatchObject(INTERRUPTED)
  })
})

describe("an intermediate answer", () => {
  const gap = [user(), answer({ finish: "called", parts: [tool()] })]

  test("an intermediate answer ends no run while OpenCode may be at work", () => {
    expect(classify(gap, "working")).toBeUndefined()
    expect(classify([user(), answer({ finish: "unknown" })], "working")).toBeUndefined()
  })

  test("an intermediate answer counts as interrupted when its OpenCode process is dead", () => {
    expect(classify(gap, "orphaned")).toMatchObject(INTERRUPTED)
    expect(classify([user(), answer({ finish: "unknown" })], "orphaned")).toMatchObject(INTERRUPTED)
  })

  test("an intermediate answer in an idle session counts as stopped, or failed with OpenCode's error", () => {
    expect(classify(gap, "idle")).toEqual(ABORTED)
    expect(classify(gap, "idle", aborted)).toEqual(ABORTED)
    const reason = { code: "provider", text: "no luck" }
    expect(classify(gap, "idle", { message: "no luck" })).toEqual({ type: "failed", reason })
  })

  test("a refused permission ends the run once the session is idle or its OpenCode process dead", () => {
    const note = "The agent stopped at a refused permission."
    const text = { type: "text", text: "this far", synthetic: false } as const
    const reason = { code: "refused", text: `${note} It had written nothing.` }
    for (const finish of ["called", "unknown"] as const) {
      const refused = [user(), answer({ finish, parts: [text, tool(true)] })]
      const mute = [user(), answer({ finish, parts: [tool(true)] })]
      expect(classify(refused, "working")).toBeUndefined()
      for (const state of ["idle", "orphaned"] as const) {
        expect(classify(refused, state)).toEqual({ type: "completed", note, at: 9, proven: true })
        expect(classify(mute, state)).toEqual({ type: "cancelled", reason, at: 9, proven: true })
      }
    }
  })

  test("an unknown finish reason of the provider fails the run and is shown without our prefix", () => {
    expect(classify([user(), answer({ finish: "other: MALFORMED_FUNCTION_CALL" })], "idle")).toMatchObject({
      type: "failed",
      reason: { text: 'The model\'s last answer ended with the finish reason "MALFORMED_FUNCTION_CALL".' },
    })
  })

  test("an answer without a finish reason fails the run when the session is idle", () => {
    expect(classify([user(), answer({ finish: "unknown", parts: [] })], "idle")).toEqual({
      type: "failed",
      reason: { code: "provider", text: "The model's last answer ended without a finish reason." },
    })
  })
})

describe("an unfinished answer", () => {
  const open = [user(), answer({ finish: undefined, completedAt: undefined })]

  test("an unfinished answer is no end during work, a failure in an idle session, interrupted after a crash", () => {
    expect(classify(open, "working")).toBeUndefined()
    const text = "The answer broke off: OpenCode stopped working on it without an error."
    expect(classify(open, "idle")).toEqual({ type: "failed", reason: { code: "host", text } })
    const reason = { text: "OpenCode stopped or was restarted while it ran: it was interrupted." }
    expect(classify(open, "orphaned")).toMatchObject({ ...INTERRUPTED, reason })
  })
})

describe("a prompt without an answer", () => {
  test.each<[string, readonly Message[]]>([
    ["nothing is stored", []],
    ["only the prompt is", [user()]],
    ["a later user message has no answer yet", [user(), answer(), user("later")]],
    ["the answer is to another message", [user(), answer({ parentID: "other" })]],
    ["there is no user message", [answer()]],
  ])("a prompt without an answer is still open while OpenCode is at work: %s", (_when, messages) => {
    expect(classify(messages, "working")).toBeUndefined()
    expect(classify(messages, "orphaned")).toMatchObject(INTERRUPTED)
  })

  test("an unanswered later message in an idle session leaves the run completed, but not for certain", () => {
    const ending = classify([user(), answer(), user("later")], "idle")
    expect(ending).toMatchObject({ type: "completed", proven: false })
  })
})

describe("the answer", () => {
  test("the answer is the model's last text with its parts joined and trimmed", () => {
    const last = answer({ parts: [text(" one "), tool(), text("two\n")] })
    expect(answerText([user(), answer({ parts: [text("earlier")] }), last])).toBe("one \ntwo")
  })

  test("the answer is an earlier text when the last message has none", () => {
    expect(answerText([user(), answer(), answer({ parts: [tool(), text("  ")] })])).toBe("done")
  })

  test("the answer is never a compaction's summary, a synthetic text or a user's message", () => {
    const messages = [
      answer(),
      answer({ summary: true, parts: [text("summary")] }),
      answer({ parts: [text("s", true)] }),
    ]
    expect(answerText([...messages, user("later")])).toBe("done")
  })
})

describe("a compaction", () => {
  const request = (id = "c"): Message => ({ ...user(id), parts: [{ type: "compaction" }] })
  const summary = (more: Partial<Message> = {}) =>
    answer({ parentID: "c", summary: true, parts: [text("1 of 2")], ...more })
  const goOn = (id = "g"): Message => ({
    ...user(id),
    parts: [{ type: "text", text: "Continue", synthetic: true, continues: true }],
  })
  const step = answer({ finish: "called", parts: [text("I look"), tool()] })
  const compacted = [user(), answer({ parts: [text("the answer")] }), request(), summary()]
  const after = answer({ parentID: "g", parts: [text("nothing left")], completedAt: 20 })

  test("a user's compaction in the middle of the work ends no run, and its summary is no answer", () => {
    const cut = [user(), step, request(), summary()]
    expect(classify(cut, "working")).toBeUndefined()
    expect(classify(cut, "idle").proven).toBeUndefined()
    expect(classify(cut, "orphaned")).toMatchObject(INTERRUPTED)
    expect([isCutByCompaction(cut), answerText(cut)]).toEqual([true, "I look"])
    expect(isCutByCompaction([user(), request(), summary()])).toBe(true)
  })

  test("a failed compaction ends the run with its error", () => {
    const failed = [user(), step, request(), summary({ error: { message: "too large" } })]
    expect(classify(failed, "working")).toMatchObject({ type: "failed", reason: { text: "too large" } })
    expect(isCutByCompaction(failed)).toBe(false)
  })

  test("a compaction that a user asked for and that failed ends no run", () => {
    const asked: Message = { ...user("c"), parts: [{ type: "compaction", byUser: true }] }
    const failed = [user(), step, asked, summary({ error: { message: "too large" } })]
    expect(classify(failed, "working")).toBeUndefined()
    expect(classify(failed, "idle").proven).toBeUndefined()
    expect(isCutByCompaction(failed)).toBe(true)
    const stopped = [user(), step, asked, summary({ error: { message: "stopped", aborted: true } })]
    expect(classify(stopped, "working")).toMatchObject({ type: "cancelled" })
    expect(isCutByCompaction(stopped)).toBe(false)
  })

  test("a compaction after the final answer delays the end only while OpenCode works on it", () => {
    const open = [
      compacted.slice(0, 3),
      compacted,
      [...compacted, goOn()],
      [...compacted, goOn(), { ...after, finish: "called" as const }],
    ]
    for (const messages of open) {
      expect(classify(messages, "working")).toBeUndefined()
      for (const state of ["idle", "orphaned"] as const)
        expect(classify(messages, state)).toEqual({ type: "completed", at: 9, proven: true })
      expect(isCutByCompaction(messages)).toBe(false)
    }
  })

  test("a compaction does not change the answer to a later message", () => {
    const later = [...compacted, user("later"), answer({ parentID: "later", parts: [text("more")] })]
    expect([classify(later, "working")?.type, answerText(later)]).toEqual(["completed", "more"])
  })

  test("the text after a compaction is the answer when the earlier one was empty or to another message", () => {
    const other = [user(), user("later"), answer(), request(), summary(), goOn(), after]
    const empty = [user(), answer({ parts: [] }), request(), summary(), goOn(), after]
    for (const messages of [other, empty]) expect(answerText(messages)).toBe("nothing left")
  })
})

describe("a shell command of the user", () => {
  const asked: Message = { ...user("s"), parts: [{ type: "text", text: "by the user", synthetic: true, shell: true }] }
  const command: MessagePart = { type: "command", command: "npm test", shows: true }
  const ran = answer({ parentID: "s", finish: undefined, parts: [tool(), command] })
  const open = { ...ran, completedAt: undefined, parts: [tool()] }

  test("a shell command of the user, at work or done, does not change a run's end, answer or facts", () => {
    const step = answer({ finish: "called", parts: [text("I look"), tool()] })
    const cut = answer({ finish: undefined, error: aborted })
    for (const said of [answer(), step, cut])
      for (const shell of [ran, open]) {
        const [before, after] = [
          [user(), said],
          [user(), said, asked, shell],
        ]
        for (const state of EVERY) expect(classify(after, state)).toEqual(classify(before, state))
        expect([answerText(after), factsOf(after)]).toEqual([answerText(before), factsOf(before)])
      }
  })

  test("a shell command of the user leaves a message unanswered that came before it", () => {
    const messages = [user(), answer(), user("later"), asked, ran]
    expect(classify(messages, "working")).toBeUndefined()
    expect(classify(messages, "idle")).toMatchObject({ type: "completed", proven: false })
  })

  test("what a model answers to the shell command of a user counts", () => {
    const messages = [user(), answer(), asked, ran, answer({ parentID: "s", parts: [text("I saw it")] })]
    expect(answerText(messages)).toBe("I saw it")
    expect(factsOf(messages).toolCalls).toBe(0)
  })
})

describe("a last message without a text", () => {
  const thinking: MessagePart = { type: "reasoning", text: "I should stop" }
  const step = answer({ finish: "called", parts: [text("I look"), tool()] })

  test("a last message with only thoughts completes the run without an answer but with those thoughts", () => {
    expect(classify([user(), step, answer({ parts: [thinking] })], "working")).toEqual({
      type: "completed",
      at: 9,
      proven: true,
      thought: "I should stop",
    })
    const long: MessagePart = { type: "reasoning", text: `${"x".repeat(900)} the end` }
    const { thought = "" } = classify([user(), answer({ parts: [long] })], "idle")
    expect([thought.length, thought.endsWith(" the end")]).toEqual([500, true])
  })

  test("a last message that is cut short in its thoughts has no answer either", () => {
    const cut = answer({ finish: "cut short", parts: [thinking] })
    const note = "The model reached its output limit before it wrote an answer."
    expect(classify([user(), step, cut], "working")).toMatchObject({
      type: "completed",
      thought: "I should stop",
      note,
    })
    const unseen = answer({ finish: "cut short", parts: [] })
    expect(classify([user(), step, unseen], "working")).toMatchObject({ type: "completed", thought: "", note })
    expect(classify([user(), step, answer({ finish: "cut short" })], "working")).not.toHaveProperty("thought")
  })

  test("hidden thoughts count as a last message without text, but an empty message after an answer does not", () => {
    const hidden: MessagePart = { type: "reasoning", text: "" }
    const ending = classify([user(), step, answer({ parts: [hidden] })], "working")
    expect(ending).toMatchObject({ type: "completed", thought: "" })
    expect(classify([user(), step, answer({ parts: [] })], "working")).not.toHaveProperty("thought")
    expect(classify([user(), step, answer()], "working")).not.toHaveProperty("thought")
  })
})

describe("a run's facts", () => {
  const files = (...paths: string[]): MessagePart => ({ type: "files", own: true, paths })
  const snapshot = (...paths: string[]): MessagePart => ({ type: "files", own: false, paths })

  test("a run's facts include which commands ran and how they ended", () => {
    const command: MessagePart = { type: "command", command: "npm test", exitCode: 1 }
    expect(factsOf([user(), answer({ parts: [command] })]).receipt).toMatchObject({ commands: 1, failed: 1 })
    expect(factsOf([user(), answer()])).not.toHaveProperty("receipt")
  })

  test("a run's facts list files that others may have changed in the folder separately", () => {
    const messages = [answer({ parts: [snapshot("NOTES.md", "a")] }), answer({ parts: [files("a"), snapshot("a")] })]
    expect(factsOf(messages)).toMatchObject({ filesChanged: ["a"], meanwhile: { files: ["NOTES.md"], more: 0 } })
    expect(factsOf([answer({ parts: [files("a"), snapshot("a")] })])).not.toHaveProperty("meanwhile")
    const many = Array.from({ length: 150 }, (_, index) => `src/${index}`)
    expect(factsOf([answer({ parts: [snapshot(...many)] })])).toMatchObject({
      filesChanged: [],
      meanwhile: { files: many.slice(0, 100), more: 50 },
    })
  })

  test("a run's facts name at most a hundred changed files and count the others", () => {
    const paths = Array.from({ length: 20_000 }, (_, index) => `src/${index}`)
    const { filesChanged, moreFiles } = factsOf([answer({ parts: [files(...paths)] })])
    expect([filesChanged.length, filesChanged[99], moreFiles]).toEqual([100, "src/99", 19_900])
  })

  test("a run's facts count each tool call once in its message", () => {
    const twice = answer({ id: "one", parts: [tool(), tool(), tool(false, "d")] })
    const facts = factsOf([user(), twice, answer({ id: "two", parts: [tool()] })])
    expect(facts).toMatchObject({ toolCalls: 3, recentTools: ["bash", "bash", "bash"] })
  })

  test("the usage of a run with a cut-off answer is marked as a lower bound", () => {
    const usage = { ...NO_USAGE, input: 10 }
    const cut = answer({ finish: undefined, error: aborted, usage: NO_USAGE })
    expect(factsOf([user(), answer({ usage }), cut]).usage).toEqual({ ...usage, atLeast: true })
    expect(factsOf([user(), { ...cut, parts: [] }]).usage, "asked, and cut off before a word").toEqual({
      ...NO_USAGE,
      atLeast: true,
    })
    expect(factsOf([user(), { ...cut, parts: [], error: undefined }]).usage.atLeast).toBe(true)
    const refused = { message: "no credit" }
    expect(factsOf([user(), { ...cut, parts: [], error: refused }]).usage, "refused at once").toEqual(NO_USAGE)
    expect(factsOf([user(), { ...cut, error: refused }]).usage.atLeast).toBe(true)
  })

  test("a run's messages show whether the agent kept a todo list", () => {
    const todos: MessagePart = {
      type: "tool",
      callID: "c",
      tool: "plan",
      state: "completed",
      refused: false,
      keepsTodos: true,
    }
    expect(keptTodos([user(), answer({ parts: [tool(), todos] })])).toBe(true)
    expect(keptTodos([user(), answer({ parts: [tool()] })])).toBe(false)
  })

  test("the last sign of life is the time of the latest message", () => {
    expect(lastAnswerAt([])).toBe(0)
    expect(lastAnswerAt([answer(), answer({ createdAt: 20, completedAt: undefined }), user()])).toBe(20)
  })
})

test("a turn may go on for a moment after a message or a step, and for minutes while an answer is open", () => {
  const at = (message: Partial<Message>, ms: number) =>
    mayGoOn(answer({ finish: undefined, completedAt: undefined, createdAt: 1000, ...message }), 1000 + ms)
  expect([at({ role: "user" }, 1999), at({ role: "user" }, 2000)]).toEqual([true, false])
  expect([at({}, 299_999), at({}, 300_000)]).toEqual([true, false])
  const called = { finish: "called", completedAt: 9000 } as const
  expect([at(called, 9999), at(called, 10_000)]).toEqual([true, false])
  expect([at({ finish: "called" }, 1999), at({ finish: "called" }, 2000)]).toEqual([true, false])
  const over: Partial<Message>[] = [{ finish: "done" }, { completedAt: 1000 }, { error: { message: "no" } }]
  expect(over.map((message) => at(message, 1))).toEqual([false, false, false])
})
