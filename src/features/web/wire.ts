import type { AgentInfo } from "../../core/ports.ts"
import type { FileDiff } from "../../lib/repository.ts"
import type { Hit } from "../../lib/text.ts"
import type { Conversation, HistoryRun } from "../../runtime/user-actions.ts"
import type { Limits } from "./ports.ts"
import type { agentFacts, agentRow } from "./rows.ts"

/** Data that the server sends to the page. Times are in ms since 1970. */

/** A background task in lists. Features add their fields. */
export interface AgentRow extends Readonly<ReturnType<typeof agentRow>> {}

export type AgentDetail = AgentRow &
  Readonly<ReturnType<typeof agentFacts>> & {
    readonly answer: string
    readonly diff: readonly FileDiff[]
    /** Conversation that launched the task; absent where it does not exist any more. */
    readonly parent?: { readonly id: string; readonly title: string }
    /** Its runs, oldest first. */
    readonly runs: readonly HistoryRun[]
  }

/** Result of an action: the task, and the tool's text. */
export type ActionResult = { readonly agent: AgentRow; readonly text: string }

/** Choices for a launch. */
export type Choices = {
  readonly agents: readonly Pick<AgentInfo, "name" | "description">[]
  readonly models: readonly string[]
  readonly sessions: readonly Conversation[]
}

/** Spending as the daily limit counts it, including cleared tasks and other processes. Absent without a daily limit. */
type Spent = { readonly cost: number; readonly atLeast: boolean }

/** Whole state of the page: first event of a stream. Features add their fields. */
export interface PageSnapshot {
  readonly project: string
  /** The server's clock. */
  readonly now: number
  readonly agents: readonly AgentRow[]
  /** Address of OpenCode's page without the session id; absent where the page cannot be reached. */
  readonly threadBase?: string
  readonly limits?: Limits
  readonly spent?: Spent
}

/** Changes since the last event. Features add their fields. */
export interface Delta {
  readonly now: number
  readonly agents?: readonly AgentRow[]
  readonly agentsGone?: readonly string[]
  readonly spent?: Spent
}

/** Matches in answers; `next`: where to continue. */
export type AnswersFound = {
  readonly found: readonly ({ readonly id: string } & Hit)[]
  readonly next?: number
}
