import type { Part, Message as SdkMessage } from "@opencode-ai/sdk/v2/types"
import type { Message, MessagePart } from "../core/ports.ts"
import { addBounded } from "../lib/bounded-set.ts"
import { messageOf, toParts } from "./convert.ts"
import type { RawEvent } from "./events.ts"

/** Sessions listened to at most; a prompt to one more makes the first of them be asked instead. */
const MOST_SESSIONS = 256

type Heard = {
  readonly promptID: string
  /** Messages from the prompt on, and their parts as the core reads them: a tool's output is not kept. */
  readonly messages: Map<string, { info: SdkMessage; readonly parts: Map<string, readonly MessagePart[]> }>
}

/**
 * What was said in sessions since our prompts to them, as the host's events told it: the end of a run needs no call.
 * Relied on only where it is beyond doubt; in all other cases the caller asks the host.
 */
export class Transcripts {
  readonly #sessions = new Map<string, Heard>()

  /** Listens to a session from this prompt on; what was heard since an earlier one is forgotten. */
  follow(sessionID: string, promptID: string): void {
    addBounded(this.#sessions, sessionID, { promptID, messages: new Map() }, MOST_SESSIONS)
  }

  /** What is heard of a session is not all of it: it is asked. */
  forget(sessionID: string): void {
    this.#sessions.delete(sessionID)
  }

  /** Takes in an event of the host; most cost a look at their type. */
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
   * The messages since this prompt, oldest first, if the newest of them is a complete answer to it or to a later one.
   * They are handed over once, and no longer kept.
   */
  take(sessionID: string, promptID: string): readonly Message[] | undefined {
    const heard = this.#sessions.get(sessionID)
    if (heard?.promptID !== promptID || !heard.messages.has(promptID)) return undefined
    const messages = [...heard.messages.values()].sort(byTime)
    const last = messages.at(-1)?.info
    const asked = messages.findLast(({ info }) => info.role === "user")?.info
    if (last?.role !== "assistant" || last.parentID !== asked?.id) return undefined
    if (last.error || last.time.completed === undefined) return undefined
    const told = messages.map(({ info, parts }) => messageOf(info, [...parts.values()].flat()))
    if (told.at(-1)?.finish !== "done" || !told.every(isWhole)) return undefined
    this.#sessions.delete(sessionID)
    return told
  }
}

/** An answer that lacks what it ended with was not heard in full. */
function isWhole({ role, finish, parts }: Message): boolean {
  if (role === "user") return true
  if (finish === "done") return parts.some((part) => part.type === "text" && part.text !== "")
  const calls = parts.flatMap((part) => (part.type === "tool" ? [part.state] : []))
  return calls.length > 0 && calls.every((state) => state === "completed" || state === "error")
}

/** The host's order: a message's time counts, and its id only between two of one moment. */
function byTime({ info: one }: { info: SdkMessage }, { info: other }: { info: SdkMessage }): number {
  return one.time.created - other.time.created || (one.id < other.id ? -1 : 1)
}
