import type { Part } from "@opencode-ai/sdk/v2/types"
import { expect, test } from "vitest"
import { RequestPrefixes, shapeOf, shareMessages } from "../../../src/opencode/beginnings.ts"
import type { RequestMessages } from "../../../src/opencode/request.ts"

const part = (given: object): Part => ({ id: "prt_1", sessionID: "s", messageID: "m", ...given }) as Part
const text = (words: string, more = {}) => part({ type: "text", text: words, ...more })
const request = (...texts: string[]) =>
  ({
    messages: texts.map((words, at) => ({ info: { id: `m${at}` }, parts: [text(words)] })),
  }) as unknown as RequestMessages

test("the shape of a message lists the lengths of the parts that a model reads", () => {
  const state = { status: "completed", input: { path: "four", line: 3 }, output: "0123456789" }
  const parts = [
    part({ type: "step-start" }),
    text("abc"),
    text("hidden", { ignored: true }),
    part({ type: "reasoning", text: "ab" }),
    part({ type: "file", url: "data:x" }),
    part({ type: "tool", state }),
    part({ type: "tool", state: { status: "error", input: {}, error: "no" } }),
    part({ type: "tool" }),
    part({ type: "text" }),
  ]
  expect(shapeOf(parts)).toBe("3 2 6 14 2")
})

test("two requests share their messages if nine tenths come before the first difference", () => {
  expect(shareMessages(["90", "5 5"], ["90", "5 5", "7"])).toBe(true)
  expect(shareMessages(["90", "5 5"], ["90", "5"])).toBe(true)
  expect(shareMessages(["80", "10", "10"], ["80", "9", "10"])).toBe(false)
  expect(shareMessages(["80", "20"], ["80"])).toBe(false)
  expect(shareMessages([], [])).toBe(true)
})

test("changes by other plugins to prompt and messages are seen, and title requests are ignored", async () => {
  const beginnings = new RequestPrefixes()
  const [output, asked] = [{ system: ["one"] }, request("first", "second")]
  beginnings.asking("ses_1", asked)
  beginnings.making("ses_1", output)
  output.system.push("two")
  asked.messages = request("1st", "second").messages
  await beginnings.sending("ses_1", "title")
  expect(beginnings.of("ses_1")).toBeUndefined()
  beginnings.making("ses_1", output)
  await beginnings.sending("ses_1", { name: "build" })
  expect(beginnings.of("ses_1")).toEqual({
    system: "one\ntwo",
    shapes: new Map([
      ["m0", "3"],
      ["m1", "6"],
    ]),
  })
  beginnings.making("ses_1", output)
  beginnings.making("ses_1", { system: [] })
  await beginnings.sending("ses_1", "build")
  expect(beginnings.of("ses_1")?.system).toBe("one\ntwo")
})

test("a probe reports how its request would begin, and the request is never sent", async () => {
  const beginnings = new RequestPrefixes()
  let isSent = false
  const found = await beginnings.probed("ses_p", true, async () => {
    expect(beginnings.isBriefed("ses_p")).toBe(true)
    beginnings.asking("ses_p", request("x"))
    beginnings.making("ses_p", { system: ["s"] })
    void beginnings.sending("ses_p", "build").then(() => (isSent = true))
  })
  beginnings.forget("ses_p")
  expect(found).toEqual({ system: "s", shapes: new Map([["m0", "1"]]) })
  expect([isSent, beginnings.isBriefed("ses_p")]).toEqual([false, false])
})
