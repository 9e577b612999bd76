import type { Message, Part, Session } from "@opencode-ai/sdk/v2/types"
import type { Persona } from "../core/ports.ts"
import { addBounded } from "../lib/bounded-set.ts"
import type { RawEvent } from "./events.ts"

/** Sessions and messages remembered at most: those in use now, however many there are. */
const MOST_SESSIONS = 256
const MOST_MESSAGES = 256

/**
 * What the host has told by itself of late. A call to the host costs several milliseconds of its one thread, so what an
 * event brought is not asked for again. Where nothing is known, the caller asks the host.
 */
export class EventCache {
  readonly #rows = new Map<string, Session>()
  readonly #speakers = new Map<string, { readonly at: number; readonly persona: Persona }>()
  /** The parts of users' messages that are stored; the host tells of one part several times. */
  readonly #messages = new Map<string, Set<string>>()

  /** What is to be done once so many parts of a message are known to be stored. */
  readonly #awaited = new Map<string, { readonly parts: number; readonly then: () => void }>()

  /** Takes in an event of the host; most tell nothing that is kept. */
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

  /** Takes in a message that the host has just stored for us. */
  stored({ info, parts }: { info: Message; parts: readonly Part[] }): void {
    addBounded(this.#messages, info.id, new Set(parts.map(({ id }) => id)), MOST_MESSAGES)
  }

  /** Calls `then` when so many parts of this message are heard of, until the function that is returned is called. */
  awaits(messageID: string, parts: number, then: () => void): () => void {
    this.#awaited.set(messageID, { parts, then })
    return () => void this.#awaited.delete(messageID)
  }

  /** The session as last told of: what changes seldom (its parent, rules, metadata) may be relied on, its usage not. */
  row(sessionID: string): Session | undefined {
    return this.#rows.get(sessionID)
  }

  /** What is told of a session may not be heard any more. */
  forget(sessionID: string): void {
    this.#rows.delete(sessionID)
  }

  /** Agent and model of the newest user message. */
  persona(sessionID: string): Persona | undefined {
    return this.#speakers.get(sessionID)?.persona
  }

  /** How many parts of this user message are known to be stored; -1 where the message is not known. */
  partsOf(messageID: string): number {
    return this.#messages.get(messageID)?.size ?? -1
  }

  /** The host tells of older messages again: only a newer one says who speaks now. */
  #spoke({ id, sessionID, agent, model, time }: Extract<Message, { role: "user" }>): void {
    addBounded(this.#messages, id, this.#messages.get(id) ?? new Set(), MOST_MESSAGES)
    if ((this.#speakers.get(sessionID)?.at ?? 0) > time.created) return
    const persona = { agent, model: { provider: model.providerID, id: model.modelID, variant: model.variant } }
    addBounded(this.#speakers, sessionID, { at: time.created, persona }, MOST_SESSIONS)
  }
}
