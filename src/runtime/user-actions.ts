import type { Reply } from "../core/ports.ts"
import type { Ask, Task } from "../core/task.ts"

/**
 * A user's actions on OpenCode's sessions and questions, for the page. Each version of OpenCode implements
 * `UserActions`.
 */

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

/** A session that a user opened. */
export type Conversation = { readonly id: string; readonly title: string; readonly updatedAt: number }

/** A tool call of a run. Times are milliseconds since the epoch. */
export type HistoryStep = {
  readonly tool: string
  /** Arguments on one line. */
  readonly what: string
  readonly state: "running" | "done" | "failed"
  readonly error?: string
  /** Start of the call; 0 while it has not begun. */
  readonly at: number
  readonly endedAt?: number
}

export type HistoryRun = {
  /** 0 for the launch, n for resume #n. */
  readonly generation: number
  readonly at: number
  readonly prompt: string
  /** Messages sent to the task during the run. */
  readonly told: readonly { readonly at: number; readonly text: string }[]
  /** Models in the order of their first answer. */
  readonly models: readonly string[]
  readonly cost: number
  /** Last tool calls, and number of those before them. */
  readonly steps: readonly HistoryStep[]
  readonly earlierSteps: number
  readonly text: string
}

/** A user's message to a session in `folder`. */
export type MessageToSession = {
  readonly sessionID: string
  readonly folder: string
  readonly text: string
  readonly agent: string
}

/** Promises may reject with a `OpencodeError`. */
export interface UserActions {
  /** Options of a question; undefined where the question is no longer open. */
  question(ask: Ask): Promise<AskOptions | undefined>
  /** Answers a question. False where the question was no longer open. */
  answer(ask: Ask, reply: Reply): Promise<boolean>
  /** Newest conversations of this folder, without the board's threads. */
  conversations(): Promise<readonly Conversation[]>
  /** Title and folder of a session; undefined where there is no such session. */
  session(sessionID: string): Promise<{ readonly title: string; readonly folder: string } | undefined>
  /** Creates a conversation and returns its id. */
  open(title: string): Promise<string>
  /** Sends a user's message, which starts a turn of this agent. Resolves when OpenCode has accepted it. */
  write(message: MessageToSession): Promise<void>
  /** Runs of a task, oldest first. */
  history(task: Task): Promise<readonly HistoryRun[]>
}
