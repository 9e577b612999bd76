import type { Reply } from "../core/ports.ts"
import type { Ask, Task } from "../core/task.ts"

/**
 * What a person does with a host's own sessions and questions, and reads of them. Each host implements `Hand`; the page
 * uses it.
 */

export type { Reply } from "../core/ports.ts"

/** What an open question offers. */
export type Question =
  | {
      readonly kind: "permission"
      readonly permission: string
      readonly patterns: readonly string[]
      /** What "always" allows from then on. */
      readonly always: readonly string[]
      /** Of an edit: what it would change. */
      readonly diff?: string
    }
  | {
      readonly kind: "question"
      readonly questions: readonly {
        readonly question: string
        readonly header: string
        readonly options: readonly { readonly label: string; readonly description: string }[]
        /** Several options may be chosen. */
        readonly multiple: boolean
        /** An answer of one's own may be given. */
        readonly custom: boolean
      }[]
    }

/** A session that a person opened. */
export type Conversation = { readonly id: string; readonly title: string; readonly updatedAt: number }

/** A call of a tool in a run. Times are milliseconds since the epoch. */
export type HistoryStep = {
  readonly tool: string
  /** What it was called with, on one line. */
  readonly what: string
  readonly state: "running" | "done" | "failed"
  /** Why it failed. */
  readonly error?: string
  /** 0 before it began. */
  readonly at: number
  readonly endedAt?: number
}

/** One run of a task as its session tells it. */
export type HistoryRun = {
  /** 0 for the launch, n for resume #n. */
  readonly generation: number
  readonly at: number
  readonly prompt: string
  /** What it was told while it ran, by whomever. */
  readonly told: readonly { readonly at: number; readonly text: string }[]
  /** The models that answered, in the order of their first answer. */
  readonly models: readonly string[]
  readonly cost: number
  /** The last of its steps, and how many came before them. */
  readonly steps: readonly HistoryStep[]
  readonly earlierSteps: number
  /** The last text that it wrote. */
  readonly text: string
}

/** What a person says in a session: `folder` is the session's. */
export type Word = {
  readonly sessionID: string
  readonly folder: string
  readonly text: string
  readonly agent: string
}

/** Every promise may reject with a `HostError`. */
export interface UserActions {
  /** What the question offers; undefined where it is not open any more. */
  question(ask: Ask): Promise<Question | undefined>
  /** False where the question was not open any more. */
  answer(ask: Ask, reply: Reply): Promise<boolean>
  /** The newest conversations of this folder; the board's threads are none. */
  conversations(): Promise<readonly Conversation[]>
  /** Undefined where there is no such session. */
  session(sessionID: string): Promise<{ readonly title: string; readonly folder: string } | undefined>
  /** Begins a conversation; returns its id. */
  open(title: string): Promise<string>
  /** Says in a session what the person says; this agent begins a turn with it. Resolves when the host has taken it. */
  write(word: Word): Promise<void>
  /** A task's runs, oldest first. */
  history(task: Task): Promise<readonly HistoryRun[]>
}
