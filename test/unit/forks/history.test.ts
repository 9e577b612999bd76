import type { Message, Part } from "@opencode-ai/sdk/v2"
import { describe, expect, test } from "vitest"
import { fromHistoryPart, history, toHistoryMessage } from "../../../src/features/forks/opencode/history.ts"
import { forkEvents } from "../../../src/features/forks/opencode/replay.ts"
import type { HistoryPart } from "../../../src/features/forks/ports.ts"
import type { StoredMessage } from "../../../src/opencode/messages.ts"

const stored = (id: string, role: "user" | "assistant", parts: unknown[], more: object = {}): StoredMessage => ({
  info: { id, role, time: { created: 1000 }, parentID: "u1", ...more } as never as Message,
  parts: parts.map((part, index) => ({ id: `p${index}`, ...(part as object) })) as Part[],
})
const text = (content: string, more: object = {}) => ({ type: "text", text: content, ...more })
const tool = (state: object) => ({ type: "tool", callID: "c1", tool: "read", state: { input: {}, time: {}, ...state } })
const idsOf = (messages: readonly StoredMessage[]) => history(messages).map(({ id }) => id)
const SUMMARY = { summary: true, finish: "stop", parentID: "u2" }

describe("a session's history", () => {
  const tail = (tail_start_id?: string) => [
    stored("u0", "user", [text("old")]),
    stored("u1", "user", [text("tail")]),
    stored("u2", "user", [{ type: "compaction", auto: true, tail_start_id }]),
    stored("a2", "assistant", [text("summary")], SUMMARY),
    stored("u3", "user", [text("new")]),
  ]

  test("a session's history begins at the last compaction or at the tail that it kept", () => {
    expect(idsOf(tail())).toEqual(["u2", "a2", "u3"])
    expect(idsOf(tail("u1"))).toEqual(["u1", "u2", "a2", "u3"])
    expect(idsOf(tail("gone"))).toEqual(["u2", "a2", "u3"])
    expect(history(tail("u1")).map(({ opens }) => opens)).toEqual([undefined, true, undefined, undefined])
  })

  test("a session's history has no token counts from before the compaction ended", () => {
    const tokens = { input: 10, output: 5, reasoning: 1, cache: { read: 100, write: 20 } }
    const answer = (id: string) => stored(id, "assistant", [text("yes")], { tokens, providerID: "p", modelID: "m" })
    const [compaction, summary] = tail("a1").slice(2)
    const all = [
      answer("a1"),
      compaction,
      { ...summary, info: { ...summary?.info, tokens } },
      answer("a3"),
    ] as StoredMessage[]
    expect(history(all).flatMap(({ id, counted }) => (counted ? [id] : []))).toEqual(["a3"])
  })

  test("a session's history is complete where no compaction came to an end", () => {
    const open = tail().filter(({ info }) => info.id !== "a2")
    expect(history(open)).toEqual(open.map((each) => toHistoryMessage(each)))
  })

  test("a session's history omits failed answers, unless they were stopped after some text", () => {
    const answer = (name: string, part: object) => stored("a1", "assistant", [part], { error: { name }, tokens: {} })
    expect(toHistoryMessage(answer("APIError", text("half"))).parts).toEqual([])
    expect(toHistoryMessage(answer("MessageAbortedError", text("half"))).parts).toHaveLength(1)
    expect(toHistoryMessage(answer("MessageAbortedError", { type: "reasoning", text: "hm" })).parts).toEqual([])
  })

  test("a history message has the provider's token count of its request if there is one", () => {
    const tokens = { input: 10, output: 5, reasoning: 1, cache: { read: 100, write: 20 } }
    const countOf = (more: object) =>
      toHistoryMessage(stored("a1", "assistant", [], { providerID: "p", modelID: "m", ...more })).counted
    expect(countOf({ tokens })).toEqual({ model: { provider: "p", id: "m" }, tokens: 130, cached: 120 })
    expect([countOf({}), countOf({ tokens: { ...tokens, output: 0 } })]).toEqual([undefined, undefined])
  })

  test("a user message has tools of its own only where the message itself sets them", () => {
    const model = { providerID: "p", modelID: "m" }
    const own = (part: object, more: object = {}) =>
      toHistoryMessage(stored("u1", "user", [part], { agent: "build", model, ...more }), { task: false }).asked?.own
    expect(own(text("Continue", { metadata: { compaction_continue: true } }))).toBe(false)
    expect(own(text("hello"), { tools: { task: false } })).toBe(false)
    expect(own(text("hello"))).toBe(true)
  })

  test("a subtask appears in the history with the text that OpenCode shows for it", () => {
    const [part] = toHistoryMessage(stored("u1", "user", [{ type: "subtask", prompt: "p" }])).parts
    expect(part).toMatchObject({ type: "text", text: "The following tool was executed by the user" })
    expect(fromHistoryPart(part as HistoryPart, false)).toEqual({
      id: "p0",
      type: "text",
      text: "The following tool was executed by the user",
      synthetic: true,
    })
  })

  test.each<[string, object, Partial<HistoryPart>]>([
    [
      "a result",
      { status: "completed", output: "out", attachments: [{ mime: "image/png", url: "data:x" }] },
      { result: "out", media: [{ mime: "image/png", bytes: 6 }] } as never,
    ],
    [
      "a pruned result",
      { status: "completed", output: "out", time: { compacted: 1 }, metadata: { sessionId: "ses_child" } },
      { result: "[Old tool result content cleared]", childID: "ses_child" } as never,
    ],
    ["an error", { status: "error", error: "bad" }, { result: "bad" } as never],
    [
      "an interrupted call",
      { status: "error", error: "bad", metadata: { interrupted: true, output: "some" } },
      { result: "some" } as never,
    ],
    ["a call that never ended", { status: "running" }, { result: "[Tool execution was interrupted]" } as never],
  ])("a session's history has %s as the model reads it", (_, state, expected) => {
    expect(toHistoryMessage(stored("a1", "assistant", [tool(state)])).parts[0]).toMatchObject({
      type: "tool",
      ...expected,
    })
  })

  test("a session's history has neither ignored texts nor text files", () => {
    const parts = [text("no", { ignored: true }), { type: "file", mime: "text/plain", url: "data:" }]
    expect(toHistoryMessage(stored("u1", "user", parts)).parts.map(({ type }) => type)).toEqual(["other", "other"])
  })
})

describe("a rewritten part", () => {
  const rewritten = (state: object) => {
    const [part] = toHistoryMessage(stored("a1", "assistant", [tool(state)])).parts
    return fromHistoryPart({ ...(part as Extract<HistoryPart, { type: "tool" }>), result: "CUT" }, false)
  }

  test("a rewritten tool call has its new result in the field that the model reads", () => {
    expect(rewritten({ status: "completed", output: "out" })).toMatchObject({ state: { output: "CUT" } })
    expect(rewritten({ status: "error", error: "bad" })).toMatchObject({ state: { error: "CUT" } })
    const metadata = { interrupted: true, output: "some", other: 1 }
    expect(rewritten({ status: "error", error: "bad", metadata })).toMatchObject({
      state: { error: "bad", metadata: { interrupted: true, output: "CUT", other: 1 } },
    })
    expect(rewritten({ status: "running" })).toMatchObject({ state: { status: "running" } })
  })

  test("a part that would have an effect or a cost in the copy is left out", () => {
    const copy = (type: string, answered = false) => fromHistoryPart({ type: "other", handle: { type } }, answered)
    const gone = ["step-start", "step-finish", "patch", "snapshot", "compaction"]
    expect(gone.flatMap((type) => copy(type) ?? [])).toEqual([])
    expect([copy("compaction", true), copy("retry")]).toEqual([{ type: "compaction" }, { type: "retry" }])
  })
})

describe("the events of a fork", () => {
  const messages = [
    stored("u1", "user", [text("tail")]),
    stored("u2", "user", [{ type: "compaction", tail_start_id: "u1" }]),
    stored("a2", "assistant", [text("summary"), { type: "step-finish", cost: 1 }], { ...SUMMARY, cost: 1 }),
  ].map((each) => toHistoryMessage(each))
  const events = forkEvents("ses_1", messages, 4321)
  const dataOf = (type: string) => events.filter((event) => event.type === type).map(({ data }) => data as never)

  test("the events of a fork are numbered from 1, since the session's creation is 0", () => {
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1))
    expect(events[0]).toMatchObject({ aggregateID: "ses_1", type: "message.updated.1" })
  })

  test("an answer from the middle of a turn keeps its question's id in a fork", () => {
    const answer = stored("a1", "assistant", [text("step")], { parentID: "msg_old" })
    const [event] = forkEvents("ses_1", [toHistoryMessage(answer)], 1)
    expect(event?.data).toMatchObject({ info: { parentID: "msg_old" } })
  })

  test("the events of a fork have ascending ids and keep the times and links of the messages", () => {
    const infos = dataOf("message.updated.1").map(({ info }: { info: { id: string } }) => info)
    const ids = infos.map(({ id }) => id)
    expect([...ids].sort()).toEqual(ids)
    expect(infos[2]).toMatchObject({ parentID: ids[1], sessionID: "ses_1", cost: 0, time: { created: 1000 } })
    expect(infos[2]).toMatchObject({ tokens: { input: 4321, output: 0 } })
    const parts = dataOf("message.part.updated.1").map(({ part }: { part: { messageID: string } }) => part)
    expect(parts.map(({ messageID }) => messageID)).toEqual(ids)
    expect(parts[1]).toMatchObject({ type: "compaction", tail_start_id: ids[0] })
  })
})
