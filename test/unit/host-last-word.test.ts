import { expect, test } from "vitest"
import { type Request, sessionOf, tellWith } from "../../src/host/opencode/last-word.ts"

const request = (...roles: ("user" | "assistant")[]): Request => ({
  messages: roles.map((role, index) => ({
    info: { id: `msg_00${index}`, sessionID: "ses_1", role, agent: "build" } as never,
    parts: [{ id: `prt_${index}`, type: "text", text: `${role} ${index}` } as never],
  })),
})

test("a request's session is that of its messages", () => {
  expect(sessionOf(request("user"))).toBe("ses_1")
  expect(sessionOf(request())).toBeUndefined()
})

test("what a model is told with one request comes last, as its user's", () => {
  const asked = request("user", "assistant", "user", "assistant")
  tellWith(asked, "stop now", false)
  const { info, parts } = asked.messages.at(-1) as Request["messages"][number]
  expect(asked.messages).toHaveLength(5)
  expect(info).toMatchObject({ role: "user", sessionID: "ses_1", agent: "build" })
  expect(info.id > "msg_003").toBe(true)
  expect(parts).toMatchObject([{ type: "text", text: "stop now", messageID: info.id }])
  expect(asked.messages.some((message) => "tools" in message.info)).toBe(false)
})

test("where a prompt has told it already, it is not told twice", () => {
  const asked = request("user", "assistant", "user")
  tellWith(asked, "user 2", true)
  expect(asked.messages).toHaveLength(3)
})

test("without tools, every tool is off, whatever its name, in the host's own object", () => {
  const asked = request("user")
  const newest = asked.messages[0]?.info
  tellWith(asked, "stop now", true)
  for (const { info } of asked.messages) {
    const { tools } = info as { tools?: { [name: string]: boolean } }
    expect(tools?.bash).toBe(false)
    expect("any_mcp_tool" in (tools as object)).toBe(true)
    expect(Object.getOwnPropertyDescriptor(tools, "read")?.value).toBe(false)
  }
  expect(asked.messages[0]?.info).toBe(newest)
})

test("a request without a user's message is left alone", () => {
  const asked = request("assistant")
  tellWith(asked, "stop now", true)
  expect(asked).toEqual(request("assistant"))
})
