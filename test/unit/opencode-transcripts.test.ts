import { describe, expect, test } from "vitest"
import { Transcripts } from "../../src/opencode/messages.ts"

type Told = [type: string, properties: unknown]

const SESSION = "ses_1"
const user = (id: string): Told => [
  "message.updated",
  { info: { id, role: "user", sessionID: SESSION, time: { created: 1 } } },
]
const assistant = (id: string, parentID: string, more: object = {}): Told => [
  "message.updated",
  {
    info: {
      id,
      role: "assistant",
      sessionID: SESSION,
      parentID,
      time: { created: 2, completed: 3 },
      path: { cwd: "/here" },
      ...more,
    },
  },
]
const part = (messageID: string, id: string, more: object): Told => [
  "message.part.updated",
  { part: { id, messageID, sessionID: SESSION, ...more } },
]
const text = (messageID: string, id: string, words: string) => part(messageID, id, { type: "text", text: words })

const said = text("msg_3", "prt_9", "done")

/** A session that was asked with msg_2, and what it was heard to say then. */
const heard = (...events: Told[]) => {
  const transcripts = new Transcripts()
  transcripts.follow(SESSION, "msg_2")
  for (const [type, properties] of events) transcripts.handleEvent({ type, properties })
  return transcripts
}

describe("a run's transcript from events", () => {
  test.each<[string, Told[]]>([
    ["the text of the last answer", [assistant("msg_3", "msg_2", { finish: "stop" })]],
    [
      "a tool call",
      [
        assistant("msg_3", "msg_2", { finish: "tool-calls" }),
        assistant("msg_4", "msg_2", { finish: "stop" }),
        text("msg_4", "prt_3", "done"),
      ],
    ],
    [
      "the end of a tool call",
      [
        assistant("msg_3", "msg_2", { finish: "tool-calls" }),
        part("msg_3", "prt_2", { type: "tool", callID: "c", tool: "read", state: { status: "running" } }),
        assistant("msg_4", "msg_2", { finish: "stop" }),
        text("msg_4", "prt_3", "done"),
      ],
    ],
  ])("the events of a run are not used as its transcript where %s was missed", (_what, told) => {
    expect(heard(user("msg_2"), text("msg_2", "prt_1", "do it"), ...told).take(SESSION, "msg_2")).toBeUndefined()
  })

  test("the events of a run give its transcript once, when they end with a complete answer", () => {
    const write = { type: "tool", callID: "c", tool: "write" }
    const transcripts = heard(
      user("msg_1"),
      user("msg_2"),
      text("msg_2", "prt_1", "do it"),
      assistant("msg_3", "msg_2", { finish: "tool-calls" }),
      part("msg_3", "prt_2", { ...write, state: { status: "running" } }),
      part("msg_3", "prt_2", { ...write, state: { status: "completed", input: { filePath: "/here/a.ts" } } }),
      assistant("msg_4", "msg_2"),
      text("msg_4", "prt_3", ""),
      text("msg_4", "prt_3", "done"),
      assistant("msg_4", "msg_2", { finish: "stop", cost: 2 }),
    )
    expect(transcripts.take(SESSION, "msg_2")).toMatchObject([
      { id: "msg_2", role: "user", parts: [{ type: "text", text: "do it" }] },
      {
        id: "msg_3",
        finish: "called",
        parts: [
          { type: "tool", callID: "c", state: "completed" },
          { type: "files", own: true, paths: ["a.ts"] },
        ],
      },
      { id: "msg_4", parentID: "msg_2", finish: "done", usage: { cost: 2 }, parts: [{ type: "text", text: "done" }] },
    ])
    expect(transcripts.take(SESSION, "msg_2")).toBeUndefined()
  })

  test("a transcript from events is in the order of storage, whatever the order of the events", () => {
    const transcripts = heard(assistant("msg_3", "msg_2", { finish: "stop" }), said, user("msg_2"))
    expect(transcripts.take(SESSION, "msg_2")?.map(({ id }) => id)).toEqual(["msg_2", "msg_3"])
  })

  const ended = [assistant("msg_3", "msg_2", { finish: "stop" }), said]
  test.each<[string, Told[]]>([
    ["nothing was heard", []],
    ["the prompt itself was not heard", [...ended]],
    ["there is no answer yet", [user("msg_2")]],
    ["the answer is still open", [user("msg_2"), assistant("msg_3", "msg_2")]],
    ["OpenCode goes on", [user("msg_2"), assistant("msg_3", "msg_2", { finish: "tool-calls" })]],
    ["the answer was cut short", [user("msg_2"), assistant("msg_3", "msg_2", { finish: "length" }), said]],
    ["it failed", [user("msg_2"), assistant("msg_3", "msg_2", { finish: "stop", error: { name: "APIError" } }), said]],
    ["it is not stored to the end", [user("msg_2"), assistant("msg_3", "msg_2", { finish: "stop", time: {} }), said]],
    ["somebody has asked again", [user("msg_2"), ...ended, user("msg_4")]],
    ["it answers something else", [user("msg_2"), assistant("msg_3", "msg_1", { finish: "stop" }), said]],
    [
      "a message was removed",
      [user("msg_2"), ...ended, ["message.removed", { sessionID: SESSION, messageID: "msg_3" }]],
    ],
    ["a part was removed", [user("msg_2"), ...ended, ["message.part.removed", { sessionID: SESSION }]]],
    ["the session was deleted", [user("msg_2"), ...ended, ["session.deleted", { info: { id: SESSION } }]]],
    ["an event has no content", [user("msg_2"), ["message.updated", undefined], ["message.part.updated", {}]]],
  ])("the events of a run are not used as its transcript where %s", (_where, events) => {
    expect(heard(...events).take(SESSION, "msg_2")).toBeUndefined()
  })

  test("a transcript from events is dropped at the next prompt and exists only for followed sessions", () => {
    const transcripts = heard(user("msg_2"), ...ended)
    transcripts.follow(SESSION, "msg_5")
    expect(transcripts.take(SESSION, "msg_2")).toBeUndefined()
    expect(transcripts.take("ses_2", "msg_2")).toBeUndefined()
  })

  test("transcripts from events are kept for a limited number of sessions", () => {
    const transcripts = heard(user("msg_2"), ...ended)
    for (let index = 0; index < 255; index++) transcripts.follow(`ses_other_${index}`, "msg_1")
    expect(transcripts.take(SESSION, "msg_2")).toBeDefined()
    const full = heard(user("msg_2"), ...ended)
    for (let index = 0; index < 256; index++) full.follow(`ses_other_${index}`, "msg_1")
    expect(full.take(SESSION, "msg_2")).toBeUndefined()
  })
})

test("a turn that continues after a stop has no transcript, since its first part was missed", () => {
  const transcripts = heard(user("msg_2"), assistant("msg_3", "msg_2", { finish: "stop" }), said)
  transcripts.forget(SESSION)
  expect(transcripts.take(SESSION, "msg_2")).toBeUndefined()
})
