import type { Reply } from "../core/ports.ts"
import type { Ask } from "../core/task.ts"

export type { Reply } from "../core/ports.ts"

/** Options of an open question. */
export type AskOptions =
  | {
      readonly kind: "permission"
      readonly permission: string
      readonly patterns: readonly string[]
      /** Patterns that "always" allows from then on. */
      readonly always: readonly string[]
      /** Diff of a proposed edit. */
      readonly diff?: string
    }
  | {
      readonly kind: "question"
      readonly questions: readonly {
        readonly question: string
        readonly header: string
        readonly options: readonly { readonly label: string; readonly description: string }[]
        readonly multiple: boolean
        readonly custom: boolean
      }[]
    }

/** A user's actions on open questions. Promises may reject with a `OpencodeError`. */
export interface UserActions {
  /** Options of a question; undefined where the question is no longer open. */
  question(ask: Ask): Promise<AskOptions | undefined>
  /** Answers a question. False where the question was no longer open. */
  answer(ask: Ask, reply: Reply): Promise<boolean>
}
