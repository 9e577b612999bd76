import type { Message, Part, Session } from "@opencode-ai/sdk/v2/types"
import type { Persona } from "../core/ports.ts"
import { addBounded } from "../lib/bounded-set.ts"
import type { RawEvent } from "./events.ts"

/** Most sessions and messages kept. */
const MOST_SESSIONS = 256
const MOST_MESSAGES = 256

/**
 * Recent state from events, which saves calls: each costs OpenCode's one thread several milliseconds. Where nothing is
 * known, the caller asks OpenCode.
 */
export class EventCache {
  readonly #rows = new Map<string, Session>()
  readonly #speakers = new Map<string, { readonly at: number; readonly persona: Persona }>()
  /** Stored parts of user messages; OpenCode reports one part several times. */
  readonly #messages = new Map<string, Set<string>>()

  /** Callbacks for messages whose parts are awaited. */
  readonly #awaited = new Map<string, { readonly parts: number; readonly then: () => void }>()

  hear({ type, properties }: RawEvent): void {
    const { info, part, messageID } = (properties ?? {}) as {
      info?: Session | Message
      part?: Part
      messageID?: string
    }
    if (type === "session.created" || type === "session.updated") {
      if (info) addBounded(this.#rows, info.id, info as Session, MOST_SESSIONS)
    } else if (type === "session.deleted" && info) {
      this.#rows.delete(info.id)
      this.#speakers.delete(info.id)
    } else if (type === "message.updated") {
      const message = info as Message | undefined
      if (message?.role === "user") this.#spoke(message)
    } else if (type === "message.part.updated" && part) {
      this.#messages.get(part.messageID)?.add(part.id)
      const awaited = this.#awaited.get(part.messageID)
      if (awaited && this.partsOf(part.messageID) >= awaited.parts) awaited.then()
    } else if (type === "message.removed" && messageID) {
      this.#messages.delete(messageID)
    }
  }

  /** Adds a message that OpenCode returned as stored. */
  stored({ info, parts }: { info: Message; parts: readonly Part[] }): void {
    addBounded(this.#messages, info.id, new Set(parts.map(({ id }) => id)), MOST_MESSAGES)
  }

  /** Calls `then` once that many parts of the message are stored. The returned function cancels it. */
  awaits(messageID: string, parts: number, then: () => void): () => void {
    this.#awaited.set(messageID, { parts, then })
    return () => void this.#awaited.delete(messageID)
  }

  /** Session as last reported. Its parent, rules and metadata may be relied on, its usage may not. */
  row(sessionID: string): Session | undefined {
    return this.#rows.get(sessionID)
  }

  /** Events for this session may no longer arrive. */
  forget(sessionID: string): void {
    this.#rows.delete(sessionID)
  }

  /** Agent and model of the newest user message. */
  persona(sessionID: string): Persona | undefined {
    return this.#speakers.get(sessionID)?.persona
  }

  /** Number of stored parts of a user message; -1 for an unknown message. */
  partsOf(messageID: string): number {
    return this.#messages.get(messageID)?.size ?? -1
  }

  /** Old messages are updated too: only a newer one changes agent and model. */
  #spoke({ id, sessionID, agent, model, time }: Extract<Message, { role: "user" }>): void {
    addBounded(this.#messages, id, this.#messages.get(id) ?? new Set(), MOST_MESSAGES)
    if ((this.#speakers.get(sessionID)?.at ?? 0) > time.created) return
    const persona = { agent, model: { provider: model.providerID, id: model.modelID, variant: model.variant } }
    addBounded(this.#speakers, sessionID, { at: time.created, persona }, MOST_SESSIONS)
  }
}
