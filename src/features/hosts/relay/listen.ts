import { eventReader } from "../../../lib/event-stream.ts"
import { bytesOf } from "../frames.ts"
import type { CallEnd, CallHead, Hint } from "../orders.ts"
import type { Call } from "./call.ts"
import type { Server } from "./server.ts"

/** OpenCode sends a heartbeat every ten seconds: a stream without one for this long is dead, in ms. */
const SILENT_MS = 30_000
/** Longest event that is read: longer ones are parts with output, never an end. */
const MOST_EVENT_CHARS = 1_048_576
/** Path that marks folders of tasks; events of others are ignored. */
const OURS = "/opencode-superagents/"

/** Events that may be an end or a question. */
const URGENT = new Set([
  "session.idle",
  "session.status",
  "session.error",
  "permission.asked",
  "permission.replied",
  "question.asked",
  "question.replied",
  "question.rejected",
])
/** Counts when an answer has ended, not while it is written. */
const ANSWER = "message.updated"

type Told = {
  readonly directory?: string
  readonly payload?: {
    readonly type?: string
    readonly properties?: {
      readonly sessionID?: string
      readonly status?: { readonly type?: string }
      readonly info?: { readonly sessionID?: string; readonly finish?: string }
    }
  }
}

/**
 * Sends hints for events of tasks' sessions until the stream ends or is silent. The head is sent once events arrive.
 */
export async function listen(call: Call, server: Server, silentFor = SILENT_MS): Promise<CallEnd> {
  const stop = new AbortController()
  const signal = AbortSignal.any([call.signal, stop.signal])
  const answer = await server.fetch("/global/event", { method: "GET", headers: {}, signal })
  const head: CallHead = { status: answer.status, headers: {} }
  if (!answer.ok || !answer.body) return { problem: `OpenCode there tells no events (${answer.status})` }
  await call.send("head", bytesOf(JSON.stringify(head)))
  let heardAt = Date.now()
  const watch = setInterval(() => {
    if (Date.now() - heardAt >= silentFor) stop.abort()
  }, silentFor / 3)
  try {
    const decoder = new TextDecoder()
    const read = eventReader(MOST_EVENT_CHARS)
    for await (const chunk of answer.body as AsyncIterable<Uint8Array>) {
      heardAt = Date.now()
      const hints = read(decoder.decode(chunk, { stream: true })).flatMap(({ data }) => hintOf(data) ?? [])
      for (const hint of hints) await call.send("data", bytesOf(JSON.stringify(hint)))
    }
    return {}
  } finally {
    clearInterval(watch)
    stop.abort()
  }
}

/** Hint for an event; undefined where it is irrelevant. */
export function hintOf(text: string): Hint | undefined {
  if (!text.includes(OURS)) return undefined
  const { directory, payload } = readTold(text)
  const { type = "", properties = {} } = payload ?? {}
  if (!directory?.includes(OURS)) return undefined
  const { sessionID, status, info } = properties
  if (type === ANSWER) return info?.finish && info.sessionID ? { session: info.sessionID, urgent: false } : undefined
  // A session that goes on working needs no hint.
  if (!URGENT.has(type) || !sessionID || status?.type === "busy") return undefined
  return { session: sessionID, urgent: true }
}

function readTold(text: string): Told {
  try {
    return (JSON.parse(text) ?? {}) as Told
  } catch {
    return {}
  }
}
