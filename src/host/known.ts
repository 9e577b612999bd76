import type { Message, Part, Session } from "@opencode-ai/sdk/v2/types"
import type { Persona } from "../core/ports.ts"
import type { RawEvent } from "./events.ts"

/** Sessions and messages remembered at most: those in use now, however many there are. */
const MOST_SESSIONS = 256
const MOST_MESSAGES = 256

/**
 * What the host has told by itself of late. A call to the host costs several milliseconds of its one thread, so what an
 * event brought is not asked for again. Where nothing is known, the caller asks the host.
 */
export class Known {
  readonly #rows = new Map<string, Session>()
  readonly #speakers = new Map<string, { readonly at: number; readonly persona: Persona }>()
  /** How many parts of a user's message are stored. */
  readonly #messages = new Map<string, number>()

  /** Takes in an event of the host; most tell nothing that is kept. */
  hear({ type, properties }: RawEvent): void {
    if (type === "session.created" || type === "session.updated") {
      const { info } = properties as { info: Session }
      remember(this.#rows, info.id, info, MOST_SESSIONS)
    } else if (type === "session.deleted") {
      const { info } = properties as { info: Session }
      this.#rows.delete(info.id)
      this.#speakers.delete(info.id)
    } else if (type === "message.updated") {
      const { info } = properties as { info: Message }
      if (info.role === "user") this.#spoke(info)
    } else if (type === "message.part.updated") {
      const { part } = properties as { part: Part }
      const parts = this.#messages.get(part.messageID)
      if (parts !== undefined) this.#messages.set(part.messageID, parts + 1)
    }
  }

  /** The session as last told of: what changes seldom (its parent, rules, metadata) may be relied on, its usage not. */
  row(sessionID: string): Session | undefined {
    return this.#rows.get(sessionID)
  }

  /** Agent and model of the newest user message. */
  persona(sessionID: string): Persona | undefined {
    return this.#speakers.get(sessionID)?.persona
  }

  /** How many parts of this user message are known to be stored; -1 where the message is not known. */
  partsOf(messageID: string): number {
    return this.#messages.get(messageID) ?? -1
  }

  /** The host tells of older messages again: only a newer one says who speaks now. */
  #spoke({ id, sessionID, agent, model, time }: Extract<Message, { role: "user" }>): void {
    remember(this.#messages, id, this.#messages.get(id) ?? 0, MOST_MESSAGES)
    if ((this.#speakers.get(sessionID)?.at ?? 0) > time.created) return
    const persona = { agent, model: { provider: model.providerID, id: model.modelID, variant: model.variant } }
    remember(this.#speakers, sessionID, { at: time.created, persona }, MOST_SESSIONS)
  }
}

/** Puts an entry last and lets the oldest go. */
function remember<Value>(map: Map<string, Value>, key: string, value: Value, most: number): void {
  map.delete(key)
  map.set(key, value)
  const oldest = map.size > most ? map.keys().next().value : undefined
  if (oldest !== undefined) map.delete(oldest)
}
