import { describe, expect, test } from "vitest"
import type { Message } from "../../src/core/ports.ts"
import {
  callsIn,
  emptiesIn,
  hasBegun,
  NOTHING_OBSERVED,
  type Observed,
  withAnswer,
  withDelta,
  withMessages,
  withoutOpenCalls,
  withRepeatedCall,
  withText,
  withTool,
} from "../../src/core/run/progress.ts"
import { NO_USAGE } from "../../src/core/task.ts"
import { answer, asked } from "../support/machine.ts"

/** What a run's events and messages have told of it, by itself. */

const USED = { ...NO_USAGE, input: 10, cost: 1 }
const MORE = { ...NO_USAGE, input: 30, cost: 3 }
const call = (more: Partial<Parameters<typeof withTool>[1]> = {}) => ({
  id: "call_1",
  tool: "read",
  state: "running" as const,
  messageID: "msg_a",
  ...more,
})
const ended = (observed: Observed, id: string, more: object = {}) =>
  withAnswer(observed, { id, usage: USED, finish: "done", ...more })

describe("a tool call", () => {
  test("a tool call is open until it ends, and is counted once however often it is reported", () => {
    const begun = withTool(NOTHING_OBSERVED, call())
    expect(begun.recentTools).toEqual(["read"])
    expect([...begun.calls]).toEqual([["msg_a call_1", "running"]])
    expect(withTool(begun, call())).toBe(begun)
    const over = withTool(begun, call({ state: "ended" }))
    expect(over.recentTools).toEqual(["read"])
    expect([...over.calls]).toEqual([["msg_a call_1", "ended"]])
    expect(withTool(over, call({ state: "ended" }))).toBe(over)
    // What comes late opens nothing again.
    expect(withTool(over, call())).toBe(over)
  })

  test("a tool call is pending until it runs, and ends when a stop cuts it off", () => {
    const pending = withTool(NOTHING_OBSERVED, call({ state: "pending" }))
    expect([...pending.calls.values()]).toEqual(["pending"])
    const running = withTool(pending, call())
    expect([[...running.calls.values()], running.recentTools]).toEqual([["running"], ["read"]])
    expect(withTool(running, call({ state: "pending" }))).toBe(running)
    const two = withoutOpenCalls(withTool(running, call({ id: "call_2", state: "pending" })))
    expect([...two.calls.values()]).toEqual(["ended", "ended"])
  })

  test("tool calls with the same id in different messages are counted separately", () => {
    const one = withTool(NOTHING_OBSERVED, call())
    const two = withTool(withTool(one, call({ messageID: "msg_b" })), call({ id: "call_2", tool: "bash" }))
    expect([callsIn(two, "running"), two.recentTools]).toEqual([3, ["read", "read", "bash"]])
    expect(callsIn(withTool(two, call({ state: "ended" })), "running")).toBe(2)
  })

  test("the last five tool calls of a run are remembered", () => {
    const observed = ["a", "b", "c", "d", "e", "f"].reduce(
      (all, tool) => withTool(all, call({ id: tool, tool })),
      NOTHING_OBSERVED,
    )
    expect(observed.recentTools).toEqual(["b", "c", "d", "e", "f"])
  })

  test("a tool call marks its message as having spoken and called", () => {
    const said = withText(NOTHING_OBSERVED, "prt_1", "hm", "msg_a")
    expect(said.answers.get("msg_a")).toEqual({ hasOutput: true, called: false })
    expect(withTool(said, call()).answers.get("msg_a")).toEqual({ hasOutput: true, called: true })
    const then = withText(withTool(said, call()), "prt_2", "more", "msg_a")
    expect(then.answers.get("msg_a")).toEqual({ hasOutput: true, called: true })
  })
})

describe("the beginning of an answer", () => {
  test("a model has begun once an event or a text shows it", () => {
    expect(hasBegun(NOTHING_OBSERVED)).toBe(false)
    expect(hasBegun({ ...NOTHING_OBSERVED, hasEvents: true })).toBe(false)
    expect(hasBegun({ ...NOTHING_OBSERVED, began: true })).toBe(true)
    expect(hasBegun(withText(NOTHING_OBSERVED, "prt_1", "hello", "msg_a"))).toBe(true)
  })
})

describe("equal calls in a row", () => {
  const repeats = (...calls: [digest: string, ms?: number][]) =>
    calls.reduce((all, [digest, ms = 5]) => withRepeatedCall(all, "read", { digest, ms }), NOTHING_OBSERVED)

  test("a call that took more than 10 s waited on purpose, so the count starts again after it", () => {
    const before = withTool(NOTHING_OBSERVED, call({ state: "ended" }))
    const waited = withRepeatedCall(before, "read", { digest: "same", ms: 10_001 })
    expect(waited).toEqual({ ...before, repeated: undefined })
    expect(repeats(["same", 10_000], ["same", 10_000]).repeated?.times).toBe(2)
    expect(repeats(["same"], ["same", 10_001]).repeated).toBeUndefined()
    expect(repeats(["same"], ["same", 10_001], ["same"]).repeated?.times).toBe(1)
  })
})

describe("a run's text", () => {
  test("the last text of a run replaces earlier ones, keeps its end, and ignores empty texts", () => {
    const observed = withText(NOTHING_OBSERVED, "prt_1", "hello", "msg_a")
    expect(observed).toMatchObject({ textPart: "prt_1", text: "hello" })
    expect(withText(observed, "prt_2", " \n", "msg_a")).toBe(observed)
    expect(withText(observed, "prt_2", `x${"y".repeat(4000)}`, "msg_a").text).toBe("y".repeat(4000))
  })

  test("a text grows by the deltas of its part and starts over with another part", () => {
    const one = withDelta(NOTHING_OBSERVED, "prt_1", "hel", "msg_a")
    const two = withDelta(one, "prt_1", "lo", "msg_a")
    expect(two).toMatchObject({ textPart: "prt_1", text: "hello" })
    expect(two.answers.get("msg_a")).toEqual({ hasOutput: true, called: false })
    expect(withDelta(two, "prt_2", "new", "msg_a").text).toBe("new")
    expect(withDelta(two, "prt_1", "y".repeat(4000), "msg_a").text).toBe("y".repeat(4000))
  })
})

describe("an ended answer", () => {
  test("an ended answer is counted once with its usage, and a summary counts as usage only", () => {
    const one = ended(NOTHING_OBSERVED, "msg_a")
    expect(one).toMatchObject({ ended: 1, usage: { input: 10, cost: 1 } })
    expect(one.answers.get("msg_a")).toEqual({ hasOutput: false, called: false, usage: USED, finish: "done" })
    expect(ended(one, "msg_a")).toBe(one)
    expect(ended(one, "msg_b")).toMatchObject({ ended: 2, usage: { input: 20, cost: 2 } })
    expect(ended(one, "msg_c", { summary: true })).toMatchObject({ ended: 1, usage: { input: 20, cost: 2 } })
  })

  test("a corrected report of an ended answer replaces the earlier figures", () => {
    const two = ended(ended(NOTHING_OBSERVED, "msg_a"), "msg_b")
    const better = ended(two, "msg_a", { usage: MORE })
    expect(better).toMatchObject({ ended: 2, usage: { input: 40, cost: 4 } })
    const other = ended(two, "msg_a", { finish: "called" })
    expect(other).toMatchObject({ ended: 2, usage: { input: 20, cost: 2 } })
    expect(other.answers.get("msg_a")?.finish).toBe("called")
  })

  test("an ended answer counts as empty when it contains no tool call and no final text", () => {
    expect(emptiesIn(NOTHING_OBSERVED)).toEqual([])
    const said = ended(withText(NOTHING_OBSERVED, "prt_1", "hello", "msg_a"), "msg_a")
    expect(emptiesIn(said)).toEqual([])
    const two = ended(ended(said, "msg_b"), "msg_c")
    expect(emptiesIn(two)).toEqual(["msg_b", "msg_c"])
    expect(emptiesIn(ended(withTool(two, call({ messageID: "msg_d" })), "msg_d", { finish: "called" }))).toEqual([])
    // It said something, and was not over with it.
    expect(emptiesIn(ended(withText(two, "prt_2", "hm", "msg_d"), "msg_d", { finish: "unknown" }))).toHaveLength(3)
    // One that is open is none yet.
    expect(emptiesIn(withText(two, "prt_2", "hm", "msg_d"))).toHaveLength(2)
  })
})

describe("stored messages", () => {
  const tool = (state: string) => ({ type: "tool", callID: "call_1", tool: "read", state }) as never
  const text = (said: string) => ({ type: "text", text: said, synthetic: false }) as const
  const of = (more: Partial<Message>) => withMessages(NOTHING_OBSERVED, [asked(), answer({ usage: USED, ...more })])

  test("stored messages report only the model's answers, not the prompts", () => {
    const question = { ...asked(), parts: [text("do it"), tool("running")] }
    expect(withMessages(NOTHING_OBSERVED, [question])).toBe(NOTHING_OBSERVED)
    expect(of({})).toMatchObject({ ended: 1, usage: { input: 10 }, text: "found", recentTools: [] })
    expect(of({ usage: undefined })).toMatchObject({ ended: 1, usage: NO_USAGE })
    expect(of({ summary: true })).toMatchObject({ ended: 0, usage: { input: 10 } })
  })

  test("stored messages report each tool call with its current state", () => {
    for (const [stored, state] of [
      ["pending", "pending"],
      ["running", "running"],
      ["completed", "ended"],
      ["error", "ended"],
    ] as const) {
      const observed = of({ parts: [tool(stored)] })
      expect(observed).toMatchObject({ recentTools: ["read"], text: "" })
      expect([...observed.calls]).toEqual([["msg_answer call_1", state]])
    }
  })

  test("a tool call left open in an earlier message counts as ended, because its turn was cut off", () => {
    const observed = withMessages(NOTHING_OBSERVED, [
      answer({ id: "msg_1", parts: [tool("running")] }),
      answer({ id: "msg_2", parts: [tool("running")] }),
    ])
    expect([...observed.calls.values()]).toEqual(["ended", "running"])
  })

  test("equal calls are counted from stored messages, each call once however often it is read", () => {
    const done = (callID: string, more: object = {}) =>
      ({ type: "tool", callID, tool: "read", state: "completed", call: { digest: "same", ms: 5 }, ...more }) as never
    const messages = [
      answer({ id: "msg_1", parts: [done("call_1"), done("call_2")] }),
      answer({ id: "msg_2", parts: [done("call_1")] }),
    ]
    const once = withMessages(NOTHING_OBSERVED, messages)
    expect(once.repeated).toEqual({ tool: "read", digest: "same", times: 3 })
    expect(withMessages(once, messages).repeated?.times).toBe(3)
    expect(of({ parts: [done("call_1", { call: undefined })] })).not.toHaveProperty("repeated")
    const running = withTool(NOTHING_OBSERVED, call({ messageID: "msg_answer" }))
    expect(withMessages(running, [answer({ parts: [done("call_1")] })]).repeated?.times).toBe(1)
  })

  test("a stored message does not replace newer text from an event, but still shows that the model spoke", () => {
    const heard: Observed = { ...NOTHING_OBSERVED, hasEvents: true, textPart: "prt_9", text: "newer" }
    const observed = withMessages(heard, [answer({ finish: undefined })])
    expect(observed).toMatchObject({ textPart: "prt_9", text: "newer" })
    expect(observed.answers.get("msg_answer")).toEqual({ hasOutput: true, called: false })
    expect(withMessages(heard, [answer({ finish: undefined, parts: [text(" ")] })]).answers.size).toBe(0)
    expect(
      withMessages(heard, [answer({ finish: undefined, parts: [{ type: "files", own: true, paths: [] }] as never })]),
    ).toBe(heard)
  })
})
