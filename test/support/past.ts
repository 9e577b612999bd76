import type { Session } from "@opencode-ai/sdk/v2"
import { unwrap } from "./drive.ts"
import type { Opencode } from "./opencode.ts"

/** A message to be written into a session's past. */
export type PastMessage = {
  role: "user" | "assistant"
  text?: string
  calls?: { tool: string; input: Record<string, unknown>; output: string }[]
  /** What the provider is said to have counted for all up to here. Default: nothing. */
  counted?: number
  /** A compaction whose tail begins at the past's message of this index; the next message is its summary. */
  compacts?: number
  /** What a subtask was asked for. */
  subtask?: string
}

const EVENTS_AT_ONCE = 100
/** The past is so long ago that it is over before the test begins, in ms. */
const AGO_MS = 3_600_000

/**
 * A session with this past, written through the route by which OpenCode replays a session's events: no model is asked,
 * so that a long history takes seconds. The last message's id is what a fork would name as the calling message.
 */
export const openWithPast = async (
  opencode: Opencode,
  past: readonly PastMessage[],
): Promise<{ id: string; messageIDs: string[] }> => {
  const session = await unwrap(opencode.client.session.create({ title: "a long past" }))
  const { events, messageIDs } = eventsOf(session, past)
  for (let at = 0; at < events.length; at += EVENTS_AT_ONCE)
    await unwrap(
      opencode.client.sync.replay({
        body_directory: opencode.directory,
        events: events.slice(at, at + EVENTS_AT_ONCE),
      }),
    )
  return { id: session.id, messageIDs }
}

const eventsOf = ({ id: sessionID }: Session, past: readonly PastMessage[]) => {
  const start = Date.now() - AGO_MS
  let made = 0
  const newID = (kind: string) => {
    const time = (BigInt(start) * 4096n + BigInt(made++)).toString(16).padStart(12, "0").slice(-12)
    return `${kind}_${time}${Math.random().toString(36).slice(2, 10).padEnd(14, "0")}`
  }
  const changes: { type: string; data: { [key: string]: unknown } }[] = []
  const messageIDs: string[] = []
  let userID = ""
  for (const [index, message] of past.entries()) {
    const id = newID("msg")
    messageIDs.push(id)
    const created = start + index
    if (message.role === "user") userID = id
    const isSummary = past[index - 1]?.compacts !== undefined
    const info =
      message.role === "user"
        ? userInfo(created)
        : { ...assistantInfo(created, userID, message.counted ?? 0), summary: isSummary }
    changes.push({ type: "message.updated.1", data: { sessionID, info: { ...info, id, sessionID } } })
    for (const part of partsOf(message, created, messageIDs))
      changes.push({
        type: "message.part.updated.1",
        data: { sessionID, time: created, part: { ...part, id: newID("prt"), messageID: id, sessionID } },
      })
  }
  const events = changes.map((change, index) => ({
    id: newID("evt"),
    aggregateID: sessionID,
    seq: index + 1,
    ...change,
  }))
  return { events, messageIDs }
}

const MODEL = { providerID: "scripted", modelID: "alpha" }

const userInfo = (created: number) => ({ role: "user", time: { created }, agent: "build", model: MODEL })

const assistantInfo = (created: number, parentID: string, input: number) => ({
  role: "assistant",
  time: { created, completed: created },
  parentID,
  ...MODEL,
  mode: "build",
  agent: "build",
  path: { cwd: "/", root: "/" },
  cost: 0.001,
  tokens: { input, output: input > 0 ? 1 : 0, reasoning: 0, cache: { read: 0, write: 0 } },
  finish: "stop",
})

const partsOf = ({ role, text, calls = [], compacts, subtask }: PastMessage, at: number, ids: readonly string[]) => [
  ...(compacts === undefined ? [] : [{ type: "compaction", auto: true, tail_start_id: ids[compacts] }]),
  ...(subtask === undefined ? [] : [{ type: "subtask", prompt: subtask, description: "look", agent: "general" }]),
  ...(role === "assistant" ? [{ type: "step-start" }] : []),
  ...(text === undefined ? [] : [{ type: "text", text }]),
  ...calls.map(({ tool, input, output }, index) => ({
    type: "tool",
    callID: `call_${at}_${index}`,
    tool,
    state: { status: "completed", input, output, title: tool, metadata: {}, time: { start: at, end: at } },
  })),
  ...(role === "assistant"
    ? [
        {
          type: "step-finish",
          reason: "stop",
          cost: 0.001,
          tokens: { input: 0, output: 0, reasoning: 0, cache: { read: 0, write: 0 } },
        },
      ]
    : []),
]
