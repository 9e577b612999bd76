import type { Message, Part, Session } from "@opencode-ai/sdk/v2/types"
import type { Persona } from "../core/ports.ts"
import { addBounded } from "../lib/bounded-set.ts"
import type { RawEvent } from "./events.ts"

/**
 * Cached value, refreshed in the background when older than `ms`: callers only wait for the first read. A failed
 * refresh keeps the old value.
 */
export class Cached<Value> {
  readonly #ms: number
  readonly #read: () => Promise<Value>
  #value: Promise<Value> | undefined
  #readAt = 0

  constructor(ms: number, read: () => Promise<Value>) {
    this.#ms = ms
    this.#read = read
  }

  /** Rejects where the first read fails. */
  get(): Promise<Value> {
    const now = performance.now()
    const current = this.#value
    if (current && now - this.#readAt < this.#ms) return current
    this.#readAt = now
    const fresh = this.#read()
    if (!current) this.#value = fresh
    fresh.then(
      () => {
        this.#value = fresh
      },
      () => {
        if (this.#value === fresh) this.#value = undefined
      },
    )
    return current ?? fresh
  }
}

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

/** Folders of sessions outside this instance's folder. */
export class SessionFolders {
  readonly #home: string
  readonly #folders = new Map<string, string>()
  /** Folders by question id: OpenCode accepts an answer only there. */
  readonly #asked = new Map<string, string>()

  constructor(home: string) {
    this.#home = home
  }

  folderOf(sessionID: string): string {
    return this.#folders.get(sessionID) ?? this.#home
  }

  /** Other folders in use; empty where no task has a place of its own. */
  folders(): readonly string[] {
    return [...new Set(this.#folders.values())]
  }

  /** Records a session's folder. Returns a folder that no session uses any more. */
  moved(sessionID: string, folder: string): string | undefined {
    const before = this.#folders.get(sessionID)
    if (folder === this.#home) this.#folders.delete(sessionID)
    else this.#folders.set(sessionID, folder)
    if (before === undefined || before === folder || this.folders().includes(before)) return undefined
    for (const [id, where] of this.#asked) if (where === before) this.#asked.delete(id)
    return before
  }

  asked(id: string, folder: string): void {
    if (folder !== this.#home) this.#asked.set(id, folder)
  }

  /** Folder in which to answer a question; undefined for the instance's own. */
  askedIn(id: string, sessionID: string): string | undefined {
    return this.#asked.get(id) ?? this.#folders.get(sessionID)
  }
}
