import { describe, expect, test } from "vitest"
import type { Message } from "../../src/core/ports.ts"
import { NO_USAGE } from "../../src/core/task.ts"
import {
  answerTold,
  deltaTold,
  emptiesIn,
  messagesTold,
  NOTHING_TOLD,
  type Told,
  textTold,
  toolTold,
} from "../../src/engine/run/told.ts"
import { answer, asked } from "../support/machine.ts"

/** What a run's events and messages have told of it, by itself. */

const USED = { ...NO_USAGE, input: 10, cost: 1 }
const MORE = { ...NO_USAGE, input: 30, cost: 3 }
const call = (more: object = {}) => ({ id: "call_1", tool: "read", ended: false, messageID: "msg_a", ...more })
const ended = (told: Told, id: string, more: object = {}) =>
  answerTold(told, { id, usage: USED, finish: "done", ...more })

describe("a call of a tool", () => {
  test("is open until it has ended, and is counted once however often it is told", () => {
    const begun = toolTold(NOTHING_TOLD, call())
    expect(begun).toMatchObject({ openCalls: 1, recentTools: ["read"] })
    expect([...begun.calls]).toEqual([["msg_a call_1", false]])
    expect(toolTold(begun, call())).toBe(begun)
    const over = toolTold(begun, call({ ended: true }))
    expect(over).toMatchObject({ openCalls: 0, recentTools: ["read"] })
    expect([...over.calls]).toEqual([["msg_a call_1", true]])
    expect(toolTold(over, call({ ended: true }))).toBe(over)
    // What comes late opens nothing again.
    expect(toolTold(over, call())).toBe(over)
  })

  test("that is told when it has ended was never open", () => {
    expect(toolTold(NOTHING_TOLD, call({ ended: true }))).toMatchObject({ openCalls: 0, recentTools: ["read"] })
  })

  test("is another one in another message, and another one beside it", () => {
    const one = toolTold(NOTHING_TOLD, call())
    const two = toolTold(toolTold(one, call({ messageID: "msg_b" })), call({ id: "call_2", tool: "bash" }))
    expect(two).toMatchObject({ openCalls: 3, recentTools: ["read", "read", "bash"] })
    expect(toolTold(two, call({ ended: true })).openCalls).toBe(2)
  })

  test("the last five are remembered", () => {
    const told = ["a", "b", "c", "d", "e", "f"].reduce(
      (all, tool) => toolTold(all, call({ id: tool, tool })),
      NOTHING_TOLD,
    )
    expect(told.recentTools).toEqual(["b", "c", "d", "e", "f"])
  })

  test("is a sign that its message has spoken, and has called", () => {
    const said = textTold(NOTHING_TOLD, "prt_1", "hm", "msg_a")
    expect(said.answers.get("msg_a")).toEqual({ spoke: true, called: false })
    expect(toolTold(said, call()).answers.get("msg_a")).toEqual({ spoke: true, called: true })
    const then = textTold(toolTold(said, call()), "prt_2", "more", "msg_a")
    expect(then.answers.get("msg_a")).toEqual({ spoke: true, called: true })
  })
})

describe("a text", () => {
  test("stands for the last one, cut at its beginning; an empty one is none", () => {
    const told = textTold(NOTHING_TOLD, "prt_1", "hello", "msg_a")
    expect(told).toMatchObject({ textPart: "prt_1", text: "hello" })
    expect(textTold(told, "prt_2", " \n", "msg_a")).toBe(told)
    expect(textTold(told, "prt_2", `x${"y".repeat(4000)}`, "msg_a").text).toBe("y".repeat(4000))
  })

  test("grows by what comes of the same part, and begins anew with another", () => {
    const one = deltaTold(NOTHING_TOLD, "prt_1", "hel", "msg_a")
    const two = deltaTold(one, "prt_1", "lo", "msg_a")
    expect(two).toMatchObject({ textPart: "prt_1", text: "hello" })
    expect(two.answers.get("msg_a")).toEqual({ spoke: true, called: false })
    expect(deltaTold(two, "prt_2", "new", "msg_a").text).toBe("new")
    expect(deltaTold(two, "prt_1", "y".repeat(4000), "msg_a").text).toBe("y".repeat(4000))
  })
})

describe("an answer that has ended", () => {
  test("is counted once, with what it used; a summary is used up and no answer", () => {
    const one = ended(NOTHING_TOLD, "msg_a")
    expect(one).toMatchObject({ ended: 1, usage: { input: 10, cost: 1 } })
    expect(one.answers.get("msg_a")).toEqual({ spoke: false, called: false, usage: USED, finish: "done" })
    expect(ended(one, "msg_a")).toBe(one)
    expect(ended(one, "msg_b")).toMatchObject({ ended: 2, usage: { input: 20, cost: 2 } })
    expect(ended(one, "msg_c", { summary: true })).toMatchObject({ ended: 1, usage: { input: 20, cost: 2 } })
  })

  test("that is told better later is counted as it is told last, with all the others", () => {
    const two = ended(ended(NOTHING_TOLD, "msg_a"), "msg_b")
    const better = ended(two, "msg_a", { usage: MORE })
    expect(better).toMatchObject({ ended: 2, usage: { input: 40, cost: 4 } })
    const other = ended(two, "msg_a", { finish: "called" })
    expect(other).toMatchObject({ ended: 2, usage: { input: 20, cost: 2 } })
    expect(other.answers.get("msg_a")?.finish).toBe("called")
  })

  test("keeps what was said and called in it", () => {
    const told = ended(toolTold(NOTHING_TOLD, call()), "msg_a")
    expect(told.answers.get("msg_a")).toEqual({ spoke: true, called: true, usage: USED, finish: "done" })
  })

  test("led nowhere where it called nothing and said nothing to its end", () => {
    expect(emptiesIn(NOTHING_TOLD)).toEqual([])
    const said = ended(textTold(NOTHING_TOLD, "prt_1", "hello", "msg_a"), "msg_a")
    expect(emptiesIn(said)).toEqual([])
    const two = ended(ended(said, "msg_b"), "msg_c")
    expect(emptiesIn(two)).toEqual(["msg_b", "msg_c"])
    expect(emptiesIn(ended(toolTold(two, call({ messageID: "msg_d" })), "msg_d", { finish: "called" }))).toEqual([])
    // It said something, and was not over with it.
    expect(emptiesIn(ended(textTold(two, "prt_2", "hm", "msg_d"), "msg_d", { finish: "untold" }))).toHaveLength(3)
    // One that is open is none yet.
    expect(emptiesIn(textTold(two, "prt_2", "hm", "msg_d"))).toHaveLength(2)
  })
})

describe("its messages", () => {
  const tool = (state: string) => ({ type: "tool", callID: "call_1", tool: "read", state }) as never
  const text = (said: string) => ({ type: "text", text: said, synthetic: false }) as const
  const of = (more: Partial<Message>) => messagesTold(NOTHING_TOLD, [asked(), answer({ usage: USED, ...more })])

  test("tell of the model's answers alone", () => {
    const question = { ...asked(), parts: [text("do it"), tool("running")] }
    expect(messagesTold(NOTHING_TOLD, [question])).toBe(NOTHING_TOLD)
    expect(of({})).toMatchObject({ ended: 1, usage: { input: 10 }, text: "found", recentTools: [] })
    expect(of({ usage: undefined })).toMatchObject({ ended: 1, usage: NO_USAGE })
    expect(of({ summary: true })).toMatchObject({ ended: 0, usage: { input: 10 } })
  })

  test("tell of calls as they stand", () => {
    for (const state of ["pending", "running"])
      expect(of({ parts: [tool(state)] })).toMatchObject({ openCalls: 1, recentTools: ["read"], text: "" })
    for (const state of ["completed", "error"]) expect(of({ parts: [tool(state)] })).toMatchObject({ openCalls: 0 })
    expect([...of({ parts: [tool("running")] }).calls]).toEqual([["msg_answer call_1", false]])
  })

  test("tell of no end where there is none, and of no text where it is empty", () => {
    expect(of({ finish: undefined })).toMatchObject({ ended: 0, usage: NO_USAGE, text: "found" })
    expect(of({ finish: undefined, parts: [text(" ")] }).answers.size).toBe(0)
  })

  test("do not take back a text that an event has told; that it spoke is known all the same", () => {
    const heard: Told = { ...NOTHING_TOLD, heard: true, textPart: "prt_9", text: "newer" }
    const told = messagesTold(heard, [answer({ finish: undefined })])
    expect(told).toMatchObject({ textPart: "prt_9", text: "newer" })
    expect(told.answers.get("msg_answer")).toEqual({ spoke: true, called: false })
    expect(messagesTold(heard, [answer({ finish: undefined, parts: [text(" ")] })]).answers.size).toBe(0)
    expect(
      messagesTold(heard, [answer({ finish: undefined, parts: [{ type: "files", own: true, paths: [] }] as never })]),
    ).toBe(heard)
  })
})
