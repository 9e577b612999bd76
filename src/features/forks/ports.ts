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
      /** Output of the call, or the text of its error. */
      readonly result: string
      /** Session that the call has started. */
      readonly childID?: string
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
  /**
   * True if the message has a system prompt or tool settings of its own. No other request then begins with the same
   * bytes.
   */
  readonly own: boolean
}

export type HistoryMessage = {
  readonly id: string
  readonly role: "user" | "assistant"
  /** For an assistant's message: the provider's token count of its request. Absent where not known. */
  readonly counted?: ProviderCount
  /** For a user's message: its settings. Absent where not known. */
  readonly asked?: MessageSettings
  /**
   * True for the compaction at which the model's view begins. The model sees the compaction before the kept tail, but
   * here it stands after the tail.
   */
  readonly opens?: boolean
  readonly parts: readonly HistoryPart[]
  readonly handle: unknown
}

/** Messages, oldest first, and their weight in tokens. */
export type WeighedMessages = { readonly messages: readonly HistoryMessage[]; readonly tokens: number }

/** `messages`: content of the fork; tool results and texts may be shortened. */
export type NewFork = TaskSession & WeighedMessages

/** A session of a task, which is stored as the session's record. */
export type TaskSession = NewSession & { readonly draft: TaskDraft }

/** Calls of OpenCode that only forks need. Methods reject with `OpencodeError` only. */
export interface ForkApi {
  /**
   * The messages before `messageID` as the model sees them. Rejects with `notFound` where the session or the message is
   * missing.
   */
  history(sessionID: string, messageID: string): Promise<readonly HistoryMessage[]>
  /**
   * Whether a new session's requests would begin like its parent's last request, with the changes that other plugins
   * make; undefined where not known. No model gets a request. `briefed`: the new session gets the briefing of fresh
   * agents.
   */
  beginsAlike?(session: TaskSession, history: WeighedMessages, briefed: boolean): Promise<boolean | undefined>
  /**
   * Creates a session with exactly these messages, this record and these rules, and without cost; returns its id. If
   * creation fails, the partial session is deleted before the promise rejects.
   */
  fork(input: NewFork): Promise<string>
}
