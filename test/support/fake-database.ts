import type { EndedCall, Rule, TaskRecord, Undone } from "../../src/core/ports.ts"
import type { Model, Usage } from "../../src/core/task.ts"
import type { Signer } from "../../src/runtime/record/identity.ts"
import { decodeRecord } from "./groups.ts"
import { SIGNER } from "./records.ts"

export type StoredPart =
  | { type: "text"; id: string; text: string; synthetic: boolean; continues?: true; shell?: true }
  | { type: "reasoning"; text: string }
  | { type: "compaction"; auto: boolean }
  | {
      type: "tool"
      callID: string
      tool: string
      args: unknown
      state: "pending" | "running" | "completed" | "error"
      refused: boolean
      /** A stop cut it off. */
      interrupted?: true
      result?: string
      call?: EndedCall
    }

export type StoredMessage = {
  id: string
  role: "user" | "assistant"
  createdAt: number
  completedAt?: number
  agent: string
  model?: Model
  parentID?: string
  finish?: string
  error?: { name: string; message: string }
  summary?: boolean
  usage?: Usage
  parts: StoredPart[]
}

export type StoredSession = {
  id: string
  parentID?: string
  title: string
  agent: string
  model?: Model
  rules: Rule[]
  metadata: Record<string, unknown>
  files: string[]
  /** From this message on, its user has undone them: the next prompt deletes them. */
  undoneFrom?: string
  /** As its events tell of that. */
  undone?: Undone
  todos: { content: string; status: string }[]
  messages: StoredMessage[]
  updatedAt: number
}

/** What an OpenCode keeps on disk: it survives the process. */
export class FakeDatabase {
  readonly sessions = new Map<string, StoredSession>()
  /** Instances of the plugin whose process lives. */
  readonly living = new Set<string>()
  /** Its processes are of different machines: none can see whether another one lives, but by what it writes. */
  strangers = false
  /** Signs the records of all its processes. */
  signer: Signer = SIGNER
  /** What a session's metadata hold, as they were read before: whoever writes them puts others in their place. */
  readonly #records = new WeakMap<object, TaskRecord | undefined>()
  #count = 0

  /** Ascending, as OpenCode's own ids are. */
  nextID(prefix: string): string {
    return `${prefix}_${String(++this.#count).padStart(6, "0")}`
  }

  add(session: Partial<StoredSession>): StoredSession {
    const stored = {
      id: this.nextID("ses"),
      title: "untitled",
      agent: "build",
      rules: [],
      metadata: {},
      files: [],
      todos: [],
      messages: [],
      updatedAt: 0,
      ...session,
    }
    this.sessions.set(stored.id, stored)
    return stored
  }

  /** The record in a session that its signature proves. */
  recordIn({ id, parentID, metadata }: StoredSession): TaskRecord | undefined {
    if (!this.#records.has(metadata)) this.#records.set(metadata, decodeRecord({ id, parentID, metadata }, this.signer))
    return this.#records.get(metadata)
  }

  children(id: string): StoredSession[] {
    return [...this.sessions.values()].filter((session) => session.parentID === id)
  }
}

/** What OpenCode's JSON makes of a value. */
export const jsonCopy = <Value>(value: Value): Value => JSON.parse(JSON.stringify(value))
