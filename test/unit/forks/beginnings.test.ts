import type { Part } from "@opencode-ai/sdk/v2/types"
import { expect, test } from "vitest"
import type { TaskDraft } from "../../../src/core/task.ts"
import { RequestPrefixes, shapeOf, shareMessages } from "../../../src/features/forks/opencode/beginnings.ts"
import { type ForkParts, OpencodeForks } from "../../../src/features/forks/opencode/forks.ts"
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
  const prefixes = new RequestPrefixes()
  const [output, asked] = [{ system: ["one"] }, request("first", "second")]
  prefixes.asking("ses_1", asked)
  prefixes.making("ses_1", output)
  output.system.push("two")
  asked.messages = request("1st", "second").messages
  await prefixes.sending("ses_1", "title")
  expect(prefixes.of("ses_1")).toBeUndefined()
  prefixes.making("ses_1", output)
  await prefixes.sending("ses_1", { name: "build" })
  expect(prefixes.of("ses_1")).toEqual({
    system: "one\ntwo",
    shapes: new Map([
      ["m0", "3"],
      ["m1", "6"],
    ]),
  })
  prefixes.making("ses_1", output)
  prefixes.making("ses_1", { system: [] })
  await prefixes.sending("ses_1", "build")
  expect(prefixes.of("ses_1")?.system).toBe("one\ntwo")
})

test("a probe reports how its request would begin, and the request is never sent", async () => {
  const prefixes = new RequestPrefixes()
  let isSent = false
  const found = await prefixes.probed("ses_p", true, async () => {
    expect(prefixes.isBriefed("ses_p")).toBe(true)
    prefixes.asking("ses_p", request("x"))
    prefixes.making("ses_p", { system: ["s"] })
    void prefixes.sending("ses_p", "build").then(() => (isSent = true))
  })
  prefixes.forget("ses_p")
  expect(found).toEqual({ system: "s", shapes: new Map([["m0", "1"]]) })
  expect([isSent, prefixes.isBriefed("ses_p")]).toEqual([false, false])
})

test("a probe's session holds the record of its task, by which a restart finds it", async () => {
  const prefixes = new RequestPrefixes()
  const build = async (sessionID: string) => {
    prefixes.making(sessionID, { system: ["one"] })
    await prefixes.sending(sessionID, "build")
  }
  await build("ses_parent")
  const records: unknown[] = []
  const sessions = {
    createSession: async (_session: unknown, record: unknown) => {
      records.push(record)
      return "ses_probe"
    },
    deleteSession: async () => {},
  }
  const client = {
    session: {
      create: async () => ({ data: { id: "ses_probe" } }),
      promptAsync: async ({ sessionID }: { sessionID: string }) => {
        void build(sessionID)
        return { data: {} }
      },
    },
  }
  const forks = new OpencodeForks({ client, sessions, prefixes } as unknown as ForkParts)
  const draft = { id: "bg_abcdefgh", parentID: "ses_parent" } as TaskDraft
  const session = { parentID: "ses_parent", title: "t", agent: "build", rules: [], draft }
  expect(await forks.beginsAlike(session, { messages: [], tokens: 0 }, false)).toBe(true)
  expect(records).toEqual([draft])
})
