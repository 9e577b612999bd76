import type { Message, Part, Session } from "@opencode-ai/sdk/v2/types"
import type { Persona } from "../core/ports.ts"
import { addBounded } from "../lib/collections.ts"
import type { RawEvent } from "./events.ts"

/**
 * A value that is kept and, when older than `ms`, read again in the background, so that only the first read makes
 * callers wait. After a failed read the old value stays.
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
/** How long a report about a session is good enough for what must not be wrong. */
const FRESH_MS = 1000

/**
 * Recent state of sessions, collected from events to save calls, each of which occupies OpenCode's only thread for
 * several milliseconds. Where the cache knows nothing, the caller asks OpenCode.
 */
export class EventCache {
  readonly #rows = new Map<string, Session>()
  /** When OpenCode last reported these rows, in ms of the monotonic clock. */
  readonly #rowsAt = new WeakMap<Session, number>()
  readonly #personas = new Map<string, { readonly at: number; readonly persona: Persona }>()
  /** Stored parts of user messages, as sets, because OpenCode reports a part several times. */
  readonly #messages = new Map<string, Set<string>>()

  /** Callbacks that wait until all parts of a message are stored. */
  readonly #awaited = new Map<string, { readonly parts: number; readonly then: () => void }>()

  handleEvent({ type, properties }: RawEvent): void {
    const { info, part, messageID } = (properties ?? {}) as {
      info?: Session | Message
      part?: Part
      messageID?: string
    }
    if (type === "session.created" || type === "session.updated") {
      if (info) this.read(info as Session)
    } else if (type === "session.deleted" && info) {
      this.#rows.delete(info.id)
      this.#personas.delete(info.id)
    } else if (type === "message.updated") {
      const message = info as Message | undefined
      if (message?.role === "user") this.#recordPersona(message)
    } else if (type === "message.part.updated" && part) {
      this.#messages.get(part.messageID)?.add(part.id)
      const awaited = this.#awaited.get(part.messageID)
      if (awaited && this.partsOf(part.messageID) >= awaited.parts) awaited.then()
    } else if (type === "message.removed" && messageID) {
      this.#messages.delete(messageID)
    }
  }

  /** Adds a session that OpenCode returned. */
  read(row: Session): void {
    addBounded(this.#rows, row.id, row, MOST_SESSIONS)
    this.#rowsAt.set(row, performance.now())
  }

  /** Adds a message that OpenCode returned as stored. */
  stored({ info, parts }: { info: Message; parts: readonly Part[] }): void {
    addBounded(this.#messages, info.id, new Set(parts.map(({ id }) => id)), MOST_MESSAGES)
  }

  /** Calls `then` once `parts` parts of the message are stored. The returned function ends the wait. */
  awaits(messageID: string, parts: number, then: () => void): () => void {
    this.#awaited.set(messageID, { parts, then })
    return () => void this.#awaited.delete(messageID)
  }

  /** Session as OpenCode last reported it. Parent, rules and metadata are current; the usage may be out of date. */
  row(sessionID: string): Session | undefined {
    return this.#rows.get(sessionID)
  }

  /** Session as OpenCode reported it a moment ago. No event tells what another process has changed since. */
  freshRow(sessionID: string): Session | undefined {
    const row = this.#rows.get(sessionID)
    return row && performance.now() - (this.#rowsAt.get(row) ?? -Infinity) < FRESH_MS ? row : undefined
  }

  /** Drops what is known of this session, because its events may no longer arrive. */
  forget(sessionID: string): void {
    this.#rows.delete(sessionID)
  }

  /** Agent and model of the newest user message. */
  persona(sessionID: string): Persona | undefined {
    return this.#personas.get(sessionID)?.persona
  }

  /** Number of stored parts of a user message; -1 for an unknown message. */
  partsOf(messageID: string): number {
    return this.#messages.get(messageID)?.size ?? -1
  }

  /**
   * Takes agent and model from a user message. OpenCode reports old messages again, too, so only a newer message
   * counts.
   */
  #recordPersona({ id, sessionID, agent, model, time }: Extract<Message, { role: "user" }>): void {
    addBounded(this.#messages, id, this.#messages.get(id) ?? new Set(), MOST_MESSAGES)
    if ((this.#personas.get(sessionID)?.at ?? 0) > time.created) return
    const persona = { agent, model: { provider: model.providerID, id: model.modelID, variant: model.variant } }
    addBounded(this.#personas, sessionID, { at: time.created, persona }, MOST_SESSIONS)
  }
}

/** Remembers the folders of sessions that are outside this instance's folder. */
export class SessionFolders {
  readonly #ownFolder: string
  readonly #folders = new Map<string, string>()
  /** Folder of each question, by its id: OpenCode accepts an answer only in the folder of the question. */
  readonly #askFolders = new Map<string, string>()

  constructor(ownFolder: string) {
    this.#ownFolder = ownFolder
  }

  folderOf(sessionID: string): string {
    return this.#folders.get(sessionID) ?? this.#ownFolder
  }

  /** Folders of these sessions; empty where no task has a place of its own. */
  folders(): readonly string[] {
    return [...new Set(this.#folders.values())]
  }

  /** Records a session's folder. Returns a folder that no session uses any more. */
  moved(sessionID: string, folder: string): string | undefined {
    const before = this.#folders.get(sessionID)
    if (folder === this.#ownFolder) this.#folders.delete(sessionID)
    else this.#folders.set(sessionID, folder)
    if (before === undefined || before === folder || this.folders().includes(before)) return undefined
    for (const [id, where] of this.#askFolders) if (where === before) this.#askFolders.delete(id)
    return before
  }

  recordAsk(id: string, folder: string): void {
    if (folder !== this.#ownFolder) this.#askFolders.set(id, folder)
  }

  /** Folder in which the question must be answered; undefined for the instance's own folder. */
  askedIn(id: string, sessionID: string): string | undefined {
    return this.#askFolders.get(id) ?? this.#folders.get(sessionID)
  }
}
