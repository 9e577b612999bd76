import type { NewSession } from "../../core/ports.ts"
import type { Model, TaskDraft } from "../../core/task.ts"

/**
 * A part of a message as its model sees it. `handle` is the host folder's own and is handed back untouched.
 */
export type HistoryPart =
  | { readonly type: "text"; readonly text: string; readonly handle: unknown }
  | { readonly type: "reasoning"; readonly text: string; readonly handle: unknown }
  | {
      readonly type: "tool"
      readonly callID: string
      readonly tool: string
      readonly input: unknown
      readonly state: "pending" | "running" | "completed" | "error"
      /** The output, or the error's text. */
      readonly result: string
      /** Images and documents that came with the result. */
      readonly media: readonly Media[]
      readonly handle: unknown
    }
  | { readonly type: "file"; readonly name: string; readonly media: Media; readonly handle: unknown }
  /** What weighs nothing in the model's view. */
  | { readonly type: "other"; readonly handle: unknown }

/** `bytes` as it is stored, base64 and all. */
export type Media = { readonly mime: string; readonly bytes: number }

export type ToolHistoryPart = Extract<HistoryPart, { type: "tool" }>

/** What a provider counted for a request, in tokens: system prompt, tools and all that came before the answer. */
export type ProviderCount = {
  readonly model: Model
  readonly tokens: number
  /** How many of them it read from its cache, or wrote there. */
  readonly cached: number
}

/** What a user's message says of the requests that it asks for. */
export type Asked = {
  readonly agent: string
  readonly model: Model
  /** It has a system prompt, or tools on or off, of its own: no other message's request is like its own. */
  readonly own: boolean
}

export type HistoryMessage = {
  readonly id: string
  readonly role: "user" | "assistant"
  /** Of an assistant's message: what the provider counted for the request that it answers. Absent where unknown. */
  readonly counted?: ProviderCount
  /** Of a user's message. Absent where nothing is known. */
  readonly asked?: Asked
  /** The compaction by which the model's view begins: it is shown before the tail that was kept, and the tail here before it. */
  readonly opens?: boolean
  readonly parts: readonly HistoryPart[]
  readonly handle: unknown
}

export type NewFork = NewSession & {
  /** What the fork is to hold, oldest first, out of the parent's history; tool results and texts may differ. */
  readonly messages: readonly HistoryMessage[]
  /** What the messages weigh, in tokens. */
  readonly tokens: number
  /** Stored as the session's record. */
  readonly draft: TaskDraft
}

/** In US dollars a token. */
export type Prices = { readonly cached: number; readonly anew: number }

/** What a fork needs of the host beside `Host`. Every method may reject with a `HostError` and no other. */
export interface ForkHost {
  /**
   * What the model sees of the session before `messageID`. Rejects with `notFound` where the session or the message is
   * not there.
   */
  history(sessionID: string, messageID: string): Promise<readonly HistoryMessage[]>
  /** Tokens that the model can read in one request; undefined where nobody knows. */
  contextLimit(model: Model): Promise<number | undefined>
  /** Tokens that a model's request may have before the host compacts its session; undefined where nobody knows. */
  room(model: Model): Promise<number | undefined>
  /** What a token costs in US dollars that is read from the cache, and one that is new; undefined where not known. */
  prices(model: Model): Promise<Prices | undefined>
  /** What a token of a request costs in US dollars where nothing of it is in the cache; undefined where not known. */
  inputPrice(model: Model): Promise<number | undefined>
  /**
   * Whether the requests of a new session would begin as its parent's last one did, with all that other plugins make of
   * them; undefined where nobody can tell. Nothing is sent to a model for that. `briefed`: it is told what a fresh agent is.
   */
  beginsAlike?(session: NewSession, briefed: boolean): Promise<boolean | undefined>
  /** How many tokens each text is, without holding the host's thread; undefined where nobody here can count. */
  countTokens(texts: readonly string[]): Promise<readonly number[] | undefined>
  /**
   * Makes a session that holds exactly `messages`, the record and the rules, and has cost nothing; returns its id. One
   * that was made halfway is deleted before this rejects.
   */
  fork(input: NewFork): Promise<string>
}
