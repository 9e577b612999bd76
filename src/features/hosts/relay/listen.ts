import { eventReader } from "../../../lib/event-stream.ts"
import { bytesOf } from "../frames.ts"
import type { CallEnd, CallHead, Hint } from "../orders.ts"
import type { Call } from "./call.ts"
import type { Server } from "./server.ts"

/** OpenCode says that it is there every ten seconds: a stream that is silent for so long is none any more, in ms. */
const SILENT_MS = 30_000
/** The longest event that is read: what is longer is a part with its whole output, and tells nothing of an end. */
const MOST_EVENT_CHARS = 1_048_576
/** Folders of tasks of ours: what happens elsewhere in that OpenCode is nobody's business. */
const OURS = "/opencode-superagents/"

/** What may be an end, or a question: it is looked at at once. */
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
/** An answer that has ended is a change; what is still being written is none. */
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
 * Tells what OpenCode's server here says of our tasks' sessions, in hints of a line each, until its stream ends or is
 * silent for too long. The head comes once something can be heard.
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

/** The hint that an event is worth, if it is worth one. */
export function hintOf(text: string): Hint | undefined {
  if (!text.includes(OURS)) return undefined
  const { directory, payload } = readTold(text)
  const { type = "", properties = {} } = payload ?? {}
  if (!directory?.includes(OURS)) return undefined
  const { sessionID, status, info } = properties
  if (type === ANSWER) return info?.finish && info.sessionID ? { session: info.sessionID, urgent: false } : undefined
  // One that works on is no news.
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
