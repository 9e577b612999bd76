import { expect, test } from "vitest"
import type { ModelRequest } from "../support/model.ts"
import { Prefixes } from "../support/prefixes.ts"

/** The harness that stands behind every end-to-end test: what it finds, and what it lets pass. */

type Said = { readonly role: string; readonly content: string }

const SYSTEM: Said = { role: "system", content: "You are an agent." }
const user = (content: string): Said => ({ role: "user", content })
const agent = (content: string): Said => ({ role: "assistant", content })

const setUp = () => {
  const prefixes = new Prefixes()
  let number = 0
  const send = (messages: readonly Said[], tools: readonly string[] = ["bash", "read"], sessionID = "ses_1") => {
    const system = messages.find(({ role }) => role === "system")?.content ?? ""
    const asked = messages.findLastIndex(({ role }) => role === "user")
    prefixes.record({
      ...{ number: ++number, sessionID, system, tools, sinceUser: messages.slice(asked + 1) },
      userTexts: messages.filter(({ role }) => role === "user").map(({ content }) => content),
      body: { tools: tools.map((name) => ({ name })), messages },
    } as unknown as ModelRequest)
  }
  return { prefixes, send, broken: () => prefixes.take().length }
}

test("a request passes if it only adds to the last one or replaces its last message", () => {
  const { send, broken } = setUp()
  send([SYSTEM, user("go")])
  send([SYSTEM, user("go"), agent("I read"), user("say your last word")])
  send([SYSTEM, user("go"), agent("I read"), agent("done"), user("more")])
  // Another session has a beginning of its own.
  send([SYSTEM, user("other")], ["bash"], "ses_2")
  expect(broken()).toBe(0)
})

test("a changed tool list, system prompt or earlier message is found and reported once", () => {
  const { prefixes, send, broken } = setUp()
  const before = [SYSTEM, user("go"), agent("I read")]
  send(before)
  send([...before, user("more")], ["bash"])
  expect(prefixes.take()).toEqual([expect.stringMatching(/^#1 → #2 in ses_1: .*read.* became /)])
  expect(broken()).toBe(0)
  send([...before, user("more"), agent("yes")], ["bash", "edit"])
  expect(broken()).toBe(1)
  send(
    [{ role: "system", content: "You are an agent. Now." }, user("go"), agent("I read"), user("more")],
    ["bash", "edit"],
  )
  // Who speaks is its user's choice, and known by the beginning of the system prompt: another one is no breach.
  expect(broken()).toBe(0)
  const long = "x".repeat(300)
  send([{ role: "system", content: `${long} one` }, user("go"), agent("yes")])
  send([{ role: "system", content: `${long} two` }, user("go"), agent("yes"), user("more")])
  expect(broken()).toBe(1)
  send([{ role: "system", content: `${long} two` }, user("gone"), agent("yes"), user("more"), agent("yes")])
  expect(broken()).toBe(1)
})

test("the task block of a board thread may change between turns, but not within one turn", () => {
  const { send, broken } = setUp()
  const system = (status: string) => ({ role: "system", content: `${"x".repeat(300)}<Task id="1">${status}</Task>` })
  send([system("open"), user("wake")])
  send([system("open"), user("wake"), agent("done"), user("wake again")])
  send([system("closed"), user("wake"), agent("done"), user("wake again"), agent("ok"), user("third")])
  expect(broken()).toBe(0)
  send([system("open"), user("wake"), agent("done"), user("wake again"), agent("ok"), user("third"), agent("step")])
  expect(broken()).toBe(1)
})

test("a request may begin differently after a compaction or after a change by the test's user", () => {
  const { prefixes, send, broken } = setUp()
  send([SYSTEM, user("go"), agent("I read")])
  send([SYSTEM, user("<conversation-history>go, I read</conversation-history>")], [])
  send([SYSTEM, user("What was done: reading."), agent("on")])
  expect(broken()).toBe(0)
  prefixes.allow("ses_1")
  send([SYSTEM, user("undone"), agent("on")])
  expect(broken()).toBe(0)
})
