import { randomBytes } from "node:crypto"
import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Message, Part } from "@opencode-ai/sdk/v2/types"
import { OpencodeError } from "../../../core/ports.ts"
import { yieldToEventLoop } from "../../../lib/clock.ts"
import { CALL_MS, call, Pace } from "../../../opencode/client.ts"
import type { StoredMessage } from "../../../opencode/messages.ts"
import type { HistoryMessage } from "../ports.ts"
import { fromHistoryPart, isAnswered, keepsTail } from "./history.ts"

const SLICE = { first: 8, most: 100, targetMs: CALL_MS }

/**
 * Writes messages of `tokens` tokens into a new session by OpenCode's replay route. Rejects with `notFound` where there
 * is no such route.
 */
export async function replay(
  client: OpencodeClient,
  { sessionID, directory }: { sessionID: string; directory: string },
  messages: readonly HistoryMessage[],
  tokens: number,
): Promise<void> {
  const events = forkEvents(sessionID, messages, tokens)
  const pace = new Pace(SLICE)
  for (let at = 0; at < events.length; ) {
    const slice = events.slice(at, at + pace.size)
    const begin = performance.now()
    const answer = await call("write the history", client.sync.replay({ body_directory: directory, events: slice }))
    // For an unknown route, OpenCode answers with its web page.
    if (answer?.sessionID !== sessionID)
      throw new OpencodeError("write the history: OpenCode has no such route", { notFound: true })
    pace.took(performance.now() - begin)
    at += slice.length
    await yieldToEventLoop()
  }
}

/** Stored change of a session that OpenCode can replay. `seq` counts from 0, the session's creation. */
export type StoredEvent = {
  readonly id: string
  readonly aggregateID: string
  readonly seq: number
  readonly type: string
  readonly data: { [key: string]: unknown }
}

/**
 * Events that write `messages` into a new session. The copies get new ids that keep the original times, so that they
 * sort in order and before the prompt.
 */
export function forkEvents(
  sessionID: string,
  messages: readonly HistoryMessage[],
  tokens: number,
): readonly StoredEvent[] {
  const newID = idMaker()
  const now = Date.now()
  const events: StoredEvent[] = []
  const write = (type: string, data: StoredEvent["data"]) =>
    events.push({ id: newID("evt", now), aggregateID: sessionID, seq: events.length + 1, type, data })
  const copies = new Map<string, string>()
  const firstID = newID("msg", createdAt(messages[0]))
  const lastAnswer = messages.findLast(({ role }) => role === "assistant")
  let lastUserID = ""
  for (const message of messages) {
    const id = copies.size === 0 ? firstID : newID("msg", createdAt(message))
    copies.set(message.id, id)
    if (message.role === "user") lastUserID = id
    const place = { id, sessionID, parentID: parentOf(message, copies, lastUserID) }
    const info = copyInfo(message, place, message === lastAnswer ? tokens : 0)
    write("message.updated.1", { sessionID, info })
    const shared = {
      messageID: id,
      sessionID,
      tailID: firstID,
      answered: isAnswered(message, messages),
    }
    for (const part of copyParts(message, { ...shared, newPartID: () => newID("prt", createdAt(message)) }))
      write("message.part.updated.1", { sessionID, part, time: now })
  }
  return events
}

const storedOf = (message: HistoryMessage): StoredMessage => message.handle as StoredMessage

const createdAt = (message: HistoryMessage | undefined): number => (message ? storedOf(message).info.time.created : 0)

/**
 * Id of the message that a copied answer belongs to. If the answer's question is not copied, the last user message
 * before the answer is used; a tail that begins within a turn may have none.
 */
function parentOf(message: HistoryMessage, copies: ReadonlyMap<string, string>, lastUserID: string): string {
  const { info } = storedOf(message)
  if (info.role === "user") return lastUserID
  return copies.get(info.parentID) ?? (lastUserID || info.parentID)
}

/**
 * Info of a copied message, without cost. `weight`: token count of the last answer, from which OpenCode decides on a
 * compaction.
 */
function copyInfo(
  message: HistoryMessage,
  ids: { id: string; sessionID: string; parentID: string },
  weight: number,
): Message {
  const { info } = storedOf(message)
  const { parentID, ...own } = ids
  if (info.role === "user") return { ...info, ...own, summary: undefined }
  const tokens = { input: Math.round(weight), output: 0, reasoning: 0, cache: { read: 0, write: 0 } }
  return { ...info, ...own, parentID, cost: 0, tokens }
}

type Place = {
  readonly messageID: string
  readonly sessionID: string
  /** First message of the copy. A compaction's tail begins there. */
  readonly tailID: string
  readonly answered: boolean
  readonly newPartID: () => string
}

function copyParts(
  message: HistoryMessage,
  { messageID, sessionID, tailID, answered, newPartID }: Place,
): readonly Part[] {
  return message.parts.flatMap((part) => {
    const copy = fromHistoryPart(part, answered)
    if (!copy) return []
    const placed = { ...copy, id: newPartID(), messageID, sessionID }
    return [keepsTail(placed) ? { ...placed, tail_start_id: tailID } : placed]
  })
}

/** OpenCode's id format: kind, 12 ascending hex digits (ms × 4096), random suffix. */
function idMaker(): (kind: "msg" | "prt" | "evt", at: number) => string {
  const last = new Map<string, bigint>()
  return (kind, at) => {
    const time = BigInt(Math.trunc(at)) * 4096n
    const before = last.get(kind)
    const next = before !== undefined && before >= time ? before + 1n : time
    last.set(kind, next)
    return `${kind}_${next.toString(16).padStart(12, "0").slice(-12)}${randomBytes(7).toString("hex")}`
  }
}
