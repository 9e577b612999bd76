import type { Part, Message as SdkMessage } from "@opencode-ai/sdk/v2/types"
import type { Message, MessagePart } from "../core/ports.ts"
import { addBounded } from "../lib/bounded-set.ts"
import { toCoreMessage, toParts } from "./convert.ts"
import type { RawEvent } from "./events.ts"

/** Most sessions followed; for others OpenCode is asked. */
const MOST_SESSIONS = 256

type Heard = {
  readonly promptID: string
  /** Messages from the prompt on, with parts as the core reads them; tool output is dropped. */
  readonly messages: Map<string, { info: SdkMessage; readonly parts: Map<string, readonly MessagePart[]> }>
}

/**
 * Messages since a prompt, collected from events, so that the end of a run needs no call. Used only where they are
 * surely complete.
 */
export class Transcripts {
  readonly #sessions = new Map<string, Heard>()

  /** Collects events from this prompt on and drops earlier ones. */
  follow(sessionID: string, promptID: string): void {
    addBounded(this.#sessions, sessionID, { promptID, messages: new Map() }, MOST_SESSIONS)
  }

  /** Events of this session are incomplete: ask OpenCode instead. */
  forget(sessionID: string): void {
    this.#sessions.delete(sessionID)
  }

  hear({ type, properties }: RawEvent): void {
    if (type === "message.updated") {
      const { info } = (properties ?? {}) as { info?: SdkMessage }
      const heard = info && this.#sessions.get(info.sessionID)
      if (heard && info.id >= heard.promptID) {
        const parts = heard.messages.get(info.id)?.parts ?? new Map()
        heard.messages.set(info.id, { info, parts })
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
   * Messages since the prompt, oldest first, if the newest is a complete answer to it or to a later one. They can be
   * taken once.
   */
  take(sessionID: string, promptID: string): readonly Message[] | undefined {
    const heard = this.#sessions.get(sessionID)
    if (heard?.promptID !== promptID || !heard.messages.has(promptID)) return undefined
    const messages = [...heard.messages.values()].sort(byTime)
    const last = messages.at(-1)?.info
    const asked = messages.findLast(({ info }) => info.role === "user")?.info
    if (last?.role !== "assistant" || last.parentID !== asked?.id) return undefined
    if (last.error || last.time.completed === undefined) return undefined
    const told = messages.map(({ info, parts }) => toCoreMessage(info, [...parts.values()].flat()))
    if (told.at(-1)?.finish !== "done" || !told.every(isWhole)) return undefined
    this.#sessions.delete(sessionID)
    return told
  }
}

/** Events of an answer without its end are incomplete. */
function isWhole({ role, finish, parts }: Message): boolean {
  if (role === "user") return true
  if (finish === "done") return parts.some((part) => part.type === "text" && part.text !== "")
  const calls = parts.flatMap((part) => (part.type === "tool" ? [part.state] : []))
  return calls.length > 0 && calls.every((state) => state === "completed" || state === "error")
}

/** OpenCode's order: by time, and by id within a moment. */
function byTime({ info: one }: { info: SdkMessage }, { info: other }: { info: SdkMessage }): number {
  return one.time.created - other.time.created || (one.id < other.id ? -1 : 1)
}
