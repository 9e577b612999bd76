import { describe, expect, test } from "vitest"
import type { Message, MessagePart } from "../../src/core/ports.ts"
import { NO_USAGE } from "../../src/core/task.ts"
import {
  answerText,
  changedFiles,
  isEmptyAnswer,
  judge,
  judgeLastAnswer,
  keptTodos,
  usageIn,
} from "../../src/core/verdict.ts"

const text = (words: string, synthetic = false): MessagePart => ({ type: "text", text: words, synthetic })
const tool = (refused = false): MessagePart => ({
  type: "tool",
  callID: "c",
  tool: "bash",
  state: refused ? "error" : "completed",
  refused,
})
const user = (id = "u"): Message => ({ id, role: "user", createdAt: 0, summary: false, parts: [text("do it")] })
const answer = (more: Partial<Message> = {}): Message => ({
  id: "a",
  role: "assistant",
  createdAt: 1,
  parentID: "u",
  finish: "stop",
  summary: false,
  parts: [text("done")],
  ...more,
})
const aborted = { name: "MessageAbortedError", message: "Aborted" }

describe("a run is", () => {
  test.each<[string, readonly Message[]]>([
    ["nothing is stored", []],
    ["only the prompt is", [user()]],
    ["a later user message has no answer yet", [user(), answer(), user("later")]],
    ["the answer is to another message", [user(), answer({ parentID: "other" })]],
    ["there is no user message", [answer()]],
  ])("unanswered while %s", (_when, messages) => {
    expect(judge(messages)).toEqual({ kind: "unanswered" })
  })

  test("unfinished while its answer is open", () => {
    expect(judge([user(), answer({ finish: undefined })])).toEqual({ kind: "unfinished" })
  })

  test("completed when its last answer ended well", () => {
    expect(judge([user(), answer()])).toEqual({ kind: "completed" })
    expect(judge([user(), answer({ finish: "tool-calls" }), answer()])).toEqual({ kind: "completed" })
    expect(judge([user(), answer(), user("later"), answer({ parentID: "later" })])).toEqual({ kind: "completed" })
  })

  test("failed, in the error's words, when its last answer has one", () => {
    const error = { name: "APIError", message: "no such luck" }
    expect(judge([user(), answer({ error, finish: undefined })])).toEqual({ kind: "failed", message: "no such luck" })
  })

  test("aborted when somebody stopped the answer", () => {
    expect(judge([user(), answer({ error: aborted })])).toEqual({ kind: "aborted" })
  })

  test("completed with a note when the answer was cut at the model's limit", () => {
    const verdict = judge([user(), answer({ finish: "length" })])
    expect(verdict).toEqual({
      kind: "completed",
      note: "The answer reached the model's output limit and may be cut short.",
    })
  })

  test("completed with a note when it ended at a refused permission, whatever the finish", () => {
    const note = "The agent stopped at a refused permission."
    for (const finish of ["tool-calls", "unknown"])
      expect(judge([user(), answer({ finish, parts: [tool(true)] })])).toEqual({ kind: "completed", note })
  })

  test("completed with a note when it stopped between two steps", () => {
    const verdict = judge([user(), answer({ finish: "tool-calls", parts: [tool()] })])
    expect(verdict).toEqual({ kind: "completed", note: "The agent stopped between two steps." })
  })

  test("failed when the last answer has no finish reason", () => {
    const verdict = judge([user(), answer({ finish: "unknown", parts: [] })])
    expect(verdict).toEqual({ kind: "failed", message: "The model's last answer ended without a finish reason." })
  })
})

test("where nobody will answer any more, the last answer counts, whatever was said since", () => {
  expect(judgeLastAnswer([user(), answer(), user("later")])).toEqual({ kind: "completed" })
  expect(judgeLastAnswer([user()])).toEqual({ kind: "unanswered" })
})

describe("the answer", () => {
  test("is the last text of the model, its parts joined and trimmed", () => {
    const last = answer({ parts: [text(" one "), tool(), text("two\n")] })
    expect(answerText([user(), answer({ parts: [text("earlier")] }), last])).toBe("one \ntwo")
  })

  test("is an earlier text when the last message has none", () => {
    expect(answerText([user(), answer(), answer({ parts: [tool(), text("  ")] })])).toBe("done")
  })

  test("is neither a compaction's summary nor synthetic nor the user's", () => {
    const messages = [
      answer(),
      answer({ summary: true, parts: [text("summary")] }),
      answer({ parts: [text("s", true)] }),
    ]
    expect(answerText([...messages, user("later")])).toBe("done")
  })

  test("is empty where there is none", () => {
    expect(answerText([user()])).toBe("")
  })
})

describe("an answer is empty", () => {
  test("when it ended with neither text nor tool call", () => {
    expect(isEmptyAnswer(answer({ parts: [] }))).toBe(true)
    expect(isEmptyAnswer(answer({ parts: [text(" \n")] }))).toBe(true)
  })

  test.each<[string, Message]>([
    ["a text", answer()],
    ["a tool call", answer({ parts: [tool()] })],
    ["an error", answer({ parts: [], error: aborted })],
    ["no end yet", answer({ parts: [], finish: undefined })],
  ])("not when it has %s", (_what, message) => {
    expect(isEmptyAnswer(message)).toBe(false)
  })

  test("never when it is the user's", () => {
    expect(isEmptyAnswer({ ...user(), finish: "stop", parts: [] })).toBe(false)
  })
})

describe("a run's messages tell", () => {
  test("which files were changed, each once, in the order of their first change", () => {
    const files = (...paths: string[]): MessagePart => ({ type: "files", paths })
    const messages = [user(), answer({ parts: [text("x"), files("b", "a")] }), answer({ parts: [files("a", "c")] })]
    expect(changedFiles(messages)).toEqual(["b", "a", "c"])
    expect(changedFiles([])).toEqual([])
  })

  test("what its answers have cost", () => {
    const usage = { ...NO_USAGE, input: 10, cost: 0.5 }
    expect(usageIn([user(), answer({ usage }), answer({ usage })])).toEqual({ ...NO_USAGE, input: 20, cost: 1 })
    expect(usageIn([user()])).toEqual(NO_USAGE)
  })

  test("whether the agent kept todos", () => {
    const todos: MessagePart = { type: "tool", callID: "c", tool: "todowrite", state: "completed", refused: false }
    expect(keptTodos([user(), answer({ parts: [tool(), todos] })])).toBe(true)
    expect(keptTodos([user(), answer({ parts: [tool()] })])).toBe(false)
  })
})
