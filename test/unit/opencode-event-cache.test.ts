import { describe, expect, test } from "vitest"
import { EventCache } from "../../src/opencode/cache.ts"

const heard = (...events: [type: string, properties: unknown][]) => {
  const known = new EventCache()
  for (const [type, properties] of events) known.handleEvent({ type, properties })
  return known
}
const spoken = (id: string, created: number, agent: string) => ({
  info: {
    id,
    role: "user",
    sessionID: "ses_1",
    agent,
    model: { providerID: "p", modelID: "m", variant: "high" },
    time: { created },
  },
})

describe("cached session rows from events", () => {
  test("the event cache has the newest row of a session until the session is deleted", () => {
    const known = heard(
      ["session.created", { info: { id: "ses_1", title: "old" } }],
      ["session.updated", { info: { id: "ses_1", title: "new" } }],
    )
    expect(known.row("ses_1")).toEqual({ id: "ses_1", title: "new" })
    expect(known.row("ses_2")).toBeUndefined()
    known.handleEvent({ type: "session.deleted", properties: { info: { id: "ses_1" } } })
    expect(known.row("ses_1")).toBeUndefined()
  })

  test("the event cache takes agent and model from the newest user message, whatever the order of events", () => {
    const known = heard(
      ["message.updated", spoken("msg_1", 10, "build")],
      ["message.updated", spoken("msg_2", 20, "plan")],
      ["message.updated", spoken("msg_1", 10, "build")],
      ["message.updated", { info: { id: "msg_3", role: "assistant", sessionID: "ses_1" } }],
    )
    expect(known.persona("ses_1")).toEqual({ agent: "plan", model: { provider: "p", id: "m", variant: "high" } })
    known.handleEvent({ type: "session.deleted", properties: { info: { id: "ses_1" } } })
    expect(known.persona("ses_1")).toBeUndefined()
  })

  test("the event cache counts each stored part of a user's message once", () => {
    const known = heard(
      ["message.part.updated", { part: { id: "prt_0", messageID: "msg_1" } }],
      ["message.updated", spoken("msg_1", 10, "build")],
      ["message.part.updated", { part: { id: "prt_1", messageID: "msg_1" } }],
      ["message.part.updated", { part: { id: "prt_1", messageID: "msg_1" } }],
      ["message.updated", spoken("msg_1", 10, "build")],
    )
    expect(known.partsOf("msg_1")).toBe(1)
    known.handleEvent({ type: "message.part.updated", properties: { part: { id: "prt_2", messageID: "msg_1" } } })
    expect(known.partsOf("msg_1")).toBe(2)
    expect(known.partsOf("msg_2")).toBe(-1)
    known.handleEvent({ type: "message.removed", properties: { sessionID: "ses_1", messageID: "msg_1" } })
    expect(known.partsOf("msg_1")).toBe(-1)
  })

  test("the event cache calls a waiter when the last part of its message is stored", () => {
    const known = new EventCache()
    let calls = 0
    const end = known.awaits("msg_1", 2, () => calls++)
    const part = (id: string, messageID = "msg_1") =>
      known.handleEvent({ type: "message.part.updated", properties: { part: { id, messageID } } })
    known.handleEvent({ type: "message.updated", properties: spoken("msg_1", 10, "build") })
    part("prt_0")
    part("prt_1", "msg_2")
    expect(calls).toBe(0)
    part("prt_1")
    expect(calls).toBe(1)
    end()
    part("prt_2")
    expect(calls).toBe(1)
  })

  test("the event cache drops its oldest sessions to limit its memory", () => {
    const known = new EventCache()
    for (let index = 0; index < 1000; index++)
      known.handleEvent({ type: "session.updated", properties: { info: { id: `ses_${index}` } } })
    expect(known.row("ses_999")).toBeDefined()
    expect(known.row("ses_0")).toBeUndefined()
  })

  test("the event cache accepts malformed events without an error", () => {
    for (const type of [
      "session.created",
      "session.updated",
      "session.deleted",
      "message.updated",
      "message.part.updated",
      "message.removed",
      "x",
    ])
      for (const properties of [undefined, null, {}, { info: null, part: null }]) heard([type, properties])
  })
})
