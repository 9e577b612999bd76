import type { Message, Part } from "@opencode-ai/sdk/v2"
import { describe, expect, test } from "vitest"
import { rewrites } from "../../../src/features/forks/opencode/copy.ts"
import { toHistoryMessage } from "../../../src/features/forks/opencode/history.ts"
import type { HistoryMessage } from "../../../src/features/forks/ports.ts"
import type { StoredMessage } from "../../../src/opencode/messages.ts"

const stored = (
  id: string,
  role: "user" | "assistant",
  parts: readonly object[],
  more: object = {},
): StoredMessage => ({
  info: { id, role, time: { created: 1 }, parentID: "u1", ...more } as never as Message,
  parts: parts.map((part, index) => ({ id: `${id}-p${index}`, messageID: id, sessionID: "s", ...part })) as Part[],
})
/** As OpenCode copies them: the same with other ids. */
const copyOf = (source: StoredMessage): StoredMessage => ({
  info: { ...source.info, id: `c-${source.info.id}` } as Message,
  parts: source.parts.map((part) => ({
    ...part,
    id: `c-${part.id}`,
    messageID: `c-${source.info.id}`,
    sessionID: "c",
  })),
})
const text = (content: string) => ({ type: "text", text: content })
const result = {
  type: "tool",
  callID: "k",
  tool: "read",
  state: { status: "completed", input: {}, time: {}, output: "long" },
}

const SOURCES = [
  stored("u0", "user", [text("old")]),
  stored("u1", "user", [text("hi"), { type: "subtask", prompt: "p" }]),
  stored("a1", "assistant", [{ type: "step-start" }, text("yes"), result, { type: "step-finish", cost: 1 }]),
]
const COPIES = SOURCES.map(copyOf)
const KEPT = SOURCES.slice(1).map((each) => toHistoryMessage(each))

describe("a copy by session.fork", () => {
  test("a copy by session.fork loses the messages and parts that do not belong in the fork", () => {
    expect(rewrites(SOURCES, COPIES, KEPT)).toEqual([
      { type: "delete message", messageID: "c-u0" },
      {
        type: "update part",
        part: {
          id: "c-u1-p1",
          messageID: "c-u1",
          sessionID: "c",
          type: "text",
          text: "The following tool was executed by the user",
          synthetic: true,
        },
      },
      { type: "delete part", messageID: "c-a1", partID: "c-a1-p0" },
      { type: "delete part", messageID: "c-a1", partID: "c-a1-p3" },
    ])
  })

  test("a copy by session.fork gets the cut results and loses the files that were left out", () => {
    const [asked, answer] = KEPT as [HistoryMessage, HistoryMessage]
    const cut = {
      ...answer,
      parts: answer.parts.map((part) => (part.type === "tool" ? { ...part, result: "lo" } : part)),
    }
    const opening = { ...asked, parts: [] }
    const changes = rewrites(SOURCES, COPIES, [opening, cut])
    expect(changes).toContainEqual({ type: "delete part", messageID: "c-u1", partID: "c-u1-p0" })
    expect(changes).toContainEqual({
      type: "update part",
      part: expect.objectContaining({
        id: "c-a1-p2",
        sessionID: "c",
        state: expect.objectContaining({ output: "lo" }),
      }),
    })
  })

  test("a copy by session.fork keeps the tail of a finished compaction and loses an unfinished compaction", () => {
    const compaction = stored("u2", "user", [{ type: "compaction", auto: true, tail_start_id: "u0" }])
    const summary = stored("a2", "assistant", [text("sum")], { parentID: "u2", summary: true, finish: "stop" })
    const sources = [...SOURCES, compaction, summary]
    const kept = sources.slice(2).map((each) => toHistoryMessage(each))
    const changes = rewrites(sources, sources.map(copyOf), kept)
    expect(changes).toContainEqual({
      type: "update part",
      part: expect.objectContaining({ id: "c-u2-p0", tail_start_id: "c-a1" }),
    })
    const open = rewrites(sources.slice(0, 4), sources.slice(0, 4).map(copyOf), kept.slice(0, 2))
    expect(open).toContainEqual({ type: "delete part", messageID: "c-u2", partID: "c-u2-p0" })
  })

  test("a copy by session.fork that does not match its source is not rewritten", () => {
    expect(rewrites(SOURCES, COPIES.slice(1), KEPT)).toBeUndefined()
    expect(rewrites(SOURCES, COPIES.toReversed(), KEPT)).toBeUndefined()
    const fewer = COPIES.map((copy) => ({ ...copy, parts: copy.parts.slice(1) }))
    expect(rewrites(SOURCES, fewer, KEPT)).toBeUndefined()
  })
})
