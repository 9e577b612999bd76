import { randomBytes } from "node:crypto"
import type { Message, Part } from "@opencode-ai/sdk/v2/types"
import type { HistoryMessage } from "../fork/ports.ts"
import { fromHistoryPart, type Stored } from "./history.ts"

/** A change to a session as OpenCode stores and replays it. `seq` counts them from 0, the session's creation. */
export type StoredEvent = {
  readonly id: string
  readonly aggregateID: string
  readonly seq: number
  readonly type: string
  readonly data: { [key: string]: unknown }
}

type Change = { readonly type: string; readonly data: { [key: string]: unknown } }

/**
 * The events that write `messages` into a session just made. Copies get ids of their own, by the time the original was
 * written: so they sort as the originals do, and before the prompt.
 */
export function forkEvents(sessionID: string, messages: readonly HistoryMessage[]): readonly StoredEvent[] {
  const newID = idMaker()
  const now = Date.now()
  const changes: Change[] = []
  const copies = new Map<string, string>()
  const firstID = newID("msg", createdAt(messages[0]))
  let lastUserID = ""
  for (const message of messages) {
    const id = copies.size === 0 ? firstID : newID("msg", createdAt(message))
    copies.set(message.id, id)
    if (message.role === "user") lastUserID = id
    const info = copyInfo(message, { id, sessionID, parentID: parentOf(message, copies) ?? lastUserID })
    changes.push({ type: "message.updated.1", data: { sessionID, info } })
    const shared = {
      messageID: id,
      sessionID,
      tailID: firstID,
      answered: isAnswered(message, messages),
    }
    for (const part of copyParts(message, { ...shared, newPartID: () => newID("prt", createdAt(message)) }))
      changes.push({ type: "message.part.updated.1", data: { sessionID, part, time: now } })
  }
  return changes.map((change, index) => ({
    id: newID("evt", now),
    aggregateID: sessionID,
    seq: index + 1,
    ...change,
  }))
}

const storedOf = (message: HistoryMessage): Stored => message.handle as Stored

const createdAt = (message: HistoryMessage | undefined): number => (message ? storedOf(message).info.time.created : 0)

function parentOf(message: HistoryMessage, copies: ReadonlyMap<string, string>): string | undefined {
  const { info } = storedOf(message)
  return info.role === "assistant" ? copies.get(info.parentID) : undefined
}

/** Whether a compaction that this message asked for has its summary in the copy. */
const isAnswered = (message: HistoryMessage, messages: readonly HistoryMessage[]): boolean =>
  message.parts.some((part) => part.type === "other" && (part.handle as Part).type === "compaction") &&
  messages.some((other) => {
    const { info } = storedOf(other)
    return info.role === "assistant" && info.parentID === message.id && info.summary === true
  })

/** The copy costs nothing, and what its last answer says it weighs is what the fork weighs. */
function copyInfo(message: HistoryMessage, ids: { id: string; sessionID: string; parentID: string }): Message {
  const { info } = storedOf(message)
  const { parentID, ...own } = ids
  if (info.role === "user") return { ...info, ...own, summary: undefined }
  const tokens = { input: Math.round(message.counted ?? 0), output: 0, reasoning: 0, cache: { read: 0, write: 0 } }
  return { ...info, ...own, parentID, cost: 0, tokens }
}

type Place = {
  readonly messageID: string
  readonly sessionID: string
  /** The copy's first message: where the tail of a compaction begins. */
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
    return [placed.type === "compaction" && placed.tail_start_id ? { ...placed, tail_start_id: tailID } : placed]
  })
}

/** Ids as the host makes them: a kind, 12 hex digits of ms × 4096 that ascend with every id of the kind, and noise. */
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
