import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Part, Message as SdkMessage } from "@opencode-ai/sdk/v2/types"
import { type Message, type MessagePart, OpencodeError } from "../core/ports.ts"
import type { MessageIDFactory, MessageKind } from "../core/task.ts"
import { addBounded } from "../lib/collections.ts"
import { CALL_MS, find, Pace } from "./client.ts"
import { toCoreMessage, toParts } from "./convert.ts"
import type { RawEvent } from "./events.ts"

/**
 * Makes message ids from task, run and kind, so that a repeated prompt or notification is stored only once. Like
 * OpenCode's ids they begin with a time in 12 hex digits, by which messages of one millisecond are sorted.
 */

const SUFFIX_LENGTH = 14
const SUFFIX_START = "msg_".length + 12
const MESSAGE_ID = /^msg_[0-9a-f]{12}([a-z0-9]{8})([A-Z])([0-9a-z]{5})$/

const KIND_LETTER: Record<MessageKind, string> = {
  prompt: "P",
  notification: "N",
  preamble: "F",
  hint: "H",
  word: "W",
  "last-word": "L",
  schema: "S",
  parked: "K",
  check: "C",
  merge: "M",
  report: "R",
  answer: "A",
}

export const messageID: MessageIDFactory = (kind, task, generation, at) =>
  `msg_${hex(BigInt(Math.trunc(at)) * MILLISECOND)}${suffix(kind, task, generation)}`

export function partID(message: string, index: number): string {
  if (!MESSAGE_ID.test(message)) return `prt_${message.slice("msg_".length)}${index}`
  const time = BigInt(`0x${message.slice("msg_".length, SUFFIX_START)}`)
  return `prt_${hex(time + BigInt(index) * MILLISECOND)}${message.slice(SUFFIX_START)}`
}

/** Task of a derived message id; undefined for other ids. */
export function taskOfMessage(id: string): string | undefined {
  const body = MESSAGE_ID.exec(id)?.[1]
  return body === undefined ? undefined : `bg_${body}`
}

/** Generation of the run whose prompt this is; undefined for any other message. */
export function promptedBy(id: string, task: string): number | undefined {
  const [, body, letter, generation = ""] = MESSAGE_ID.exec(id) ?? []
  return letter === KIND_LETTER.prompt && `bg_${body}` === task ? Number.parseInt(generation, 36) : undefined
}

/** OpenCode's ids count in steps of 1/4096 of a millisecond. */
const MILLISECOND = 4096n

const hex = (time: bigint): string => time.toString(16).padStart(12, "0").slice(-12)

function suffix(kind: MessageKind, task: string, generation: number): string {
  const body = task.slice("bg_".length)
  const number = generation.toString(36).padStart(SUFFIX_LENGTH - body.length - 1, "0")
  return `${body}${KIND_LETTER[kind]}${number}`
}

/** A message as OpenCode's API returns it. */
export type StoredMessage = { readonly info: SdkMessage; readonly parts: readonly Part[] }

/** Number of messages that one call reads, adapted to the time of a call. */
const PAGE = { first: 20, most: 200, targetMs: CALL_MS }

/** Pages of a session's messages from the newest on, each oldest first; empty where the session is gone. */
export async function* pagesOf(
  client: OpencodeClient,
  sessionID: string,
  mostPages = Number.POSITIVE_INFINITY,
): AsyncGenerator<{ page: readonly StoredMessage[]; isFirst: boolean }> {
  const pace = new Pace(PAGE)
  let before: string | undefined
  for (let pages = 0; pages < mostPages; pages++) {
    const begin = performance.now()
    const request = client.session.messages({ sessionID, limit: pace.size, before })
    const page = (await find("read messages", request)) ?? []
    pace.took(performance.now() - begin)
    before = (await request).response?.headers.get("x-next-cursor") ?? undefined
    yield { page, isFirst: before === undefined }
    if (before === undefined) return
  }
  throw new OpencodeError("read messages: there are more messages than can be read")
}

/**
 * Messages of a session, oldest first; empty where the session is gone. Pages are read from the newest on, until
 * `isEnough` accepts a page.
 */
export async function storedMessages(
  client: OpencodeClient,
  sessionID: string,
  isEnough: (page: readonly StoredMessage[]) => Promise<boolean> = async () => false,
  mostPages?: number,
): Promise<readonly StoredMessage[]> {
  const pages: (readonly StoredMessage[])[] = []
  for await (const { page, isFirst } of pagesOf(client, sessionID, mostPages)) {
    pages.push(page)
    if (isFirst || (await isEnough(page))) break
  }
  return pages.reverse().flat()
}

/** The newest message that `isWanted` accepts; undefined where no message is accepted. */
export async function lastWanted<Read>(
  pages: ReturnType<typeof pagesOf>,
  read: (stored: StoredMessage) => Read,
  isWanted: (message: Read) => boolean,
): Promise<Read | undefined> {
  for await (const { page } of pages) {
    const found = page.map(read).findLast(isWanted)
    if (found) return found
  }
  return undefined
}

/** Most sessions whose messages are collected. For any other session OpenCode is asked. */
const MOST_SESSIONS = 256

type Transcript = {
  readonly promptID: string
  /** Messages from the prompt on, with parts as the core reads them; tool output is dropped. */
  readonly messages: Map<string, { info: SdkMessage; readonly parts: Map<string, readonly MessagePart[]> }>
}

/**
 * Collects a session's messages since a prompt from events, so that the end of a run needs no call. They are used only
 * where they are surely complete.
 */
export class Transcripts {
  readonly #sessions = new Map<string, Transcript>()

  /** Collects events from this prompt on and drops earlier ones. */
  follow(sessionID: string, promptID: string): void {
    addBounded(this.#sessions, sessionID, { promptID, messages: new Map() }, MOST_SESSIONS)
  }

  /** Drops the session's messages, because its events are incomplete. OpenCode is asked instead. */
  forget(sessionID: string): void {
    this.#sessions.delete(sessionID)
  }

  handleEvent({ type, properties }: RawEvent): void {
    if (type === "message.updated") {
      const { info } = (properties ?? {}) as { info?: SdkMessage }
      const transcript = info && this.#sessions.get(info.sessionID)
      if (transcript && info.id >= transcript.promptID) {
        const parts = transcript.messages.get(info.id)?.parts ?? new Map()
        transcript.messages.set(info.id, { info, parts })
      }
    } else if (type === "message.part.updated") {
      const { part } = (properties ?? {}) as { part?: Part }
      const message = part && this.#sessions.get(part.sessionID)?.messages.get(part.messageID)
      if (message) message.parts.set(part.id, toParts(part, message.info))
    } else if (type === "message.removed" || type === "message.part.removed" || type === "session.deleted") {
      const { sessionID, info } = (properties ?? {}) as { sessionID?: string; info?: { id?: string } }
      this.#sessions.delete(sessionID ?? info?.id ?? "")
    }
  }

  /**
   * Messages since the prompt, oldest first; undefined unless the newest is a complete answer to this or a later
   * prompt. A second call returns nothing.
   */
  take(sessionID: string, promptID: string): readonly Message[] | undefined {
    const transcript = this.#sessions.get(sessionID)
    if (transcript?.promptID !== promptID || !transcript.messages.has(promptID)) return undefined
    const messages = [...transcript.messages.values()].sort(byTime)
    const last = messages.at(-1)?.info
    const asked = messages.findLast(({ info }) => info.role === "user")?.info
    if (last?.role !== "assistant" || last.parentID !== asked?.id) return undefined
    if (last.error || last.time.completed === undefined) return undefined
    const converted = messages.map(({ info, parts }) => toCoreMessage(info, [...parts.values()].flat()))
    if (converted.at(-1)?.finish !== "done" || !converted.every(isWhole)) return undefined
    this.#sessions.delete(sessionID)
    return converted
  }
}

/** Whether the events of a message were complete. For an answer whose end is missing they were not. */
function isWhole({ role, finish, parts }: Message): boolean {
  if (role === "user") return true
  if (finish === "done") return parts.some((part) => part.type === "text" && part.text !== "")
  const calls = parts.flatMap((part) => (part.type === "tool" ? [part.state] : []))
  return calls.length > 0 && calls.every((state) => state === "completed" || state === "error")
}

/** Sorts messages as OpenCode does: by time, and by id where the times are equal. */
function byTime({ info: one }: { info: SdkMessage }, { info: other }: { info: SdkMessage }): number {
  return one.time.created - other.time.created || (one.id < other.id ? -1 : 1)
}
