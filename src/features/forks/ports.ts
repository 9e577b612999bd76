import type { NewSession } from "../../core/ports.ts"
import type { Model, TaskDraft } from "../../core/task.ts"

/** A part of a message as the model sees it. `handle` is opaque data of the adapter. */
export type HistoryPart =
  | { readonly type: "text"; readonly text: string; readonly handle: unknown }
  | { readonly type: "reasoning"; readonly text: string; readonly handle: unknown }
  | {
      readonly type: "tool"
      readonly callID: string
      readonly tool: string
      readonly input: unknown
      readonly state: "pending" | "running" | "completed" | "error"
      /** Output, or text of the error. */
      readonly result: string
      /** Images and documents of the result. */
      readonly media: readonly Media[]
      readonly handle: unknown
    }
  | { readonly type: "file"; readonly name: string; readonly media: Media; readonly handle: unknown }
  /** A part that the model does not see. */
  | { readonly type: "other"; readonly handle: unknown }

/** `bytes`: stored size, with base64 encoding. */
export type Media = { readonly mime: string; readonly bytes: number }

export type ToolHistoryPart = Extract<HistoryPart, { type: "tool" }>

/** A provider's token count of a request: everything before the answer. */
export type ProviderCount = {
  readonly model: Model
  readonly tokens: number
  /** Tokens read from or written to the cache. */
  readonly cached: number
}

/** Settings of a user's message for its requests. */
export type MessageSettings = {
  readonly agent: string
  readonly model: Model
  /** Has its own system prompt or tool settings, so no other request begins alike. */
  readonly own: boolean
}

export type HistoryMessage = {
  readonly id: string
  readonly role: "user" | "assistant"
  /** For an assistant's message: count of its request. Absent where not known. */
  readonly counted?: ProviderCount
  /** For a user's message. Absent where not known. */
  readonly asked?: MessageSettings
  /** Compaction that begins the model's view: shown before the kept tail, which stands before it here. */
  readonly opens?: boolean
  readonly parts: readonly HistoryPart[]
  readonly handle: unknown
}

/** Messages, oldest first, and their weight in tokens. */
export type WeighedMessages = { readonly messages: readonly HistoryMessage[]; readonly tokens: number }

/** `messages`: content of the fork; tool results and texts may be shortened. */
export type NewFork = NewSession &
  WeighedMessages & {
    /** Stored as the session's record. */
    readonly draft: TaskDraft
  }

/** Calls of OpenCode that only forks need. Methods reject with `OpencodeError` only. */
export interface ForkHost {
  /** Model's view of the session before `messageID`. Rejects with `notFound` where either is missing. */
  history(sessionID: string, messageID: string): Promise<readonly HistoryMessage[]>
  /**
   * Whether a new session's requests would begin as its parent's last one, other plugins' changes included; undefined
   * where not known. Sends nothing to a model. `briefed`: with the briefing of fresh agents.
   */
  beginsAlike?(session: NewSession, history: WeighedMessages, briefed: boolean): Promise<boolean | undefined>
  /**
   * Creates a session with exactly `messages`, record and rules, and no cost; returns its id. A partial session is
   * deleted before this rejects.
   */
  fork(input: NewFork): Promise<string>
}
