import { describe, expect, test } from "vitest"
import { addRequestText, leaveOutStale, type RequestMessages, sessionOf, turnOf } from "../../src/opencode/request.ts"

const request = (...roles: ("user" | "assistant")[]): RequestMessages => ({
  messages: roles.map((role, index) => ({
    info: { id: `msg_00${index}`, sessionID: "ses_1", role, agent: "build" } as never,
    parts: [{ id: `prt_${index}`, type: "text", text: `${role} ${index}` } as never],
  })),
})

test("the session of a request is the session of its messages", () => {
  expect(sessionOf(request("user"))).toBe("ses_1")
  expect(sessionOf(request())).toBeUndefined()
})

test("a text added to a request comes last, as a message of the user", () => {
  const asked = request("user", "assistant", "user", "assistant")
  addRequestText(asked, ["stop now"])
  const { info, parts } = asked.messages.at(-1) as RequestMessages["messages"][number]
  expect(asked.messages).toHaveLength(5)
  expect(info).toMatchObject({ role: "user", sessionID: "ses_1", agent: "build" })
  expect(info.id > "msg_003").toBe(true)
  expect(parts).toMatchObject([{ type: "text", text: "stop now", messageID: info.id }])
  expect(asked.messages.some((message) => "tools" in message.info)).toBe(false)
})

test("a text that a prompt already contains is not added to the request again", () => {
  const asked = request("user", "assistant", "user")
  addRequestText(asked, ["user 2"], true)
  expect(asked.messages).toHaveLength(3)
})

test("a request without tools turns off every tool name in OpenCode's own message object", () => {
  const asked = request("user")
  const newest = asked.messages[0]?.info
  addRequestText(asked, ["stop now"], true)
  for (const { info } of asked.messages) {
    const { tools } = info as { tools?: { [name: string]: boolean } }
    expect(tools?.bash).toBe(false)
    expect("any_mcp_tool" in (tools as object)).toBe(true)
    expect(Object.getOwnPropertyDescriptor(tools, "read")?.value).toBe(false)
  }
  expect(asked.messages[0]?.info).toBe(newest)
})

test("a request without a user's message is left unchanged", () => {
  const asked = request("assistant")
  addRequestText(asked, ["stop now"], true)
  expect(asked).toEqual(request("assistant"))
})

test("several added texts become parts of one message, and no text adds no message", () => {
  const asked = request("user", "assistant")
  addRequestText(asked, ["one", "user 0", "two"])
  expect(asked.messages.at(-1)?.parts).toMatchObject([{ text: "one" }, { text: "two" }])
  expect(new Set(asked.messages.at(-1)?.parts.map(({ id }) => id)).size).toBe(2)
  const quiet = request("user")
  addRequestText(quiet, [])
  expect(quiet).toEqual(request("user"))
})

describe("a request's turn", () => {
  const turn = (...messages: [role: "user" | "assistant", more?: object][]) =>
    turnOf({
      messages: messages.map(([role, more], index) => ({
        info: { id: `m${index}`, role, ...more } as never,
        parts: [],
      })),
    })
  const goesOn = { finish: "tool-calls" }
  const ended = { finish: "stop" }

  test("the turn of a request begins with the first message after the last final answer", () => {
    expect(turn(["user"])).toBe("m0")
    expect(turn(["user"], ["assistant", goesOn], ["assistant"])).toBe("m0")
    expect(turn(["user"], ["assistant", ended], ["user"])).toBe("m2")
    expect(turn(["user"], ["assistant", ended], ["user"], ["user"], ["assistant", goesOn])).toBe("m2")
    expect(turn(["user"], ["assistant", { error: { name: "x" } }], ["user"], ["assistant", goesOn])).toBe("m2")
  })

  test("the turn of a request does not change when messages arrive in its middle", () => {
    expect(turn(["user"], ["assistant", goesOn], ["user"], ["assistant", goesOn], ["user"])).toBe("m0")
  })

  test("the turn of a request is that of the newest message where no user message follows", () => {
    expect(turn(["user"], ["assistant", ended])).toBe("m1")
    expect(turn()).toBe("")
  })
})

describe("a notification in a request", () => {
  const AUTOMATIC = "Automatic message, not written by the user."
  const STALE =
    "\nStill running: bg_b (other)\nIf you need results immediately, use superagents_output(task_id=\"bg_a\").\nYou can continue working or just say 'waiting' and halt.\nWATCH OUT for leftovers, you will likely WANT to wait for all agents to complete."
  const HEAD = `${AUTOMATIC} Task bg_a: completed. Used: nothing.`
  const notice = (text: string): RequestMessages["messages"][number] => ({
    info: { id: "msg_n", role: "user" } as never,
    parts: [{ type: "text", text: "visible" } as never, { type: "text", text, synthetic: true } as never],
  })
  const answer = { info: { role: "assistant" } as never, parts: [] }
  const texts = ({ messages }: RequestMessages) =>
    messages.map(({ parts }) => parts.flatMap((part) => (part.type === "text" ? [part.text] : [])))

  test("an earlier notification is shortened in a request when the next notification follows directly", () => {
    const first = notice(HEAD + STALE)
    const [, stored] = first.parts
    const asked = { messages: [first, notice(HEAD + STALE), notice(`${HEAD}\nAll 3 tasks finished.`)] }
    leaveOutStale(asked)
    expect(texts(asked)).toEqual([
      ["visible", HEAD],
      ["visible", HEAD],
      ["visible", `${HEAD}\nAll 3 tasks finished.`],
    ])
    expect(stored).toMatchObject({ text: HEAD + STALE })
  })

  test("a notification stays whole in a request unless another notification follows directly", () => {
    const said = { info: { role: "user" } as never, parts: [{ type: "text", text: HEAD } as never] }
    const asked = {
      messages: [notice(HEAD + STALE), answer, notice(HEAD + STALE), said, notice(HEAD + STALE)],
    }
    const before = texts(asked)
    leaveOutStale(asked)
    expect(texts(asked)).toEqual(before)
  })
})
