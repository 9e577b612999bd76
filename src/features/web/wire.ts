import type { AgentInfo } from "../../core/ports.ts"
import type { Ask, Merge, Phase, ReasonCode, Status } from "../../core/task.ts"
import type { Hit } from "../../lib/find.ts"
import type { FileDiff } from "../../lib/repository.ts"
import type { Conversation, HistoryRun } from "../../runtime/user-actions.ts"
import type { Limits } from "./ports.ts"

/** Data that the server sends to the page. Times are in ms since 1970. */

/** A background task in lists. */
export type AgentRow = {
  readonly id: string
  readonly sessionID: string
  readonly parentID: string
  readonly description: string
  readonly agent: string
  readonly model?: string
  /** Name of the task's batch; absent where the batch has no name. */
  readonly batch?: string
  readonly status: Status
  readonly phase?: Phase
  /** Kind of the task's pause; absent while the task is not paused. */
  readonly stands?: "parked"
  /** Results of a group in a few words. */
  readonly counts?: string
  /** Set if a resume without a prompt continues unfinished members of the group. */
  readonly left?: true
  /** Set if the task is completed and its work is being checked again and merged. A user can stop this. */
  readonly merging?: true
  /** Set if the task has ended on another machine and its changes are still being fetched. */
  readonly fetching?: true
  readonly forked: boolean
  /** Generation of the run: 0 for the launch, n for resume #n. */
  readonly generation: number
  /** Name of the task's place, if it is not the project's folder. */
  readonly place?: string
  /** Set if changes in the task's own place are not in the project's folder yet. */
  readonly unmerged: boolean
  /** Number of the board task in whose thread this run works. */
  readonly boardTask?: string
  /** Whether another process runs the task. */
  readonly foreign: boolean
  readonly createdAt: number
  readonly startedAt?: number
  readonly endedAt?: number
  readonly toolCalls: number
  readonly recentTools: readonly string[]
  /** End of the latest text of a running task. */
  readonly lastText: string
  readonly lastSignAt?: number
  readonly tokens: number
  /** Tokens that the provider's cache served. No limit counts these tokens. */
  readonly cachedTokens: number
  /** Cost of all runs of the task and of its children, in US dollars. */
  readonly cost: number
  /** Set if a step was aborted whose cost is unknown, so that the real cost is higher. */
  readonly atLeast: boolean
  /** Cost of the last 24 hours as the daily limit counts it, without children. */
  readonly dayCost: number
  readonly dayAtLeast: boolean
  /** Open questions. `refusedAt`: when a question is refused if nobody answers. */
  readonly asks: readonly (Ask & { readonly refusedAt?: number })[]
  readonly retry?: string
  /** Reason why the run ended, unless it simply succeeded. */
  readonly reason?: string
  readonly reasonCode?: ReasonCode
  /** Limits of the run, in ms and in US dollars; absent where there is no limit. */
  readonly timeLimit?: number
  readonly costLimit?: number
}

/** Facts about a task that lists do not need. */
export type AgentFacts = {
  readonly note?: string
  readonly filesChanged: readonly string[]
  /** Files in the task's folder that somebody else may have changed during the run. */
  readonly filesMeanwhile: readonly string[]
  /** Result of the last merge. */
  readonly merge?: Merge
  /** Receipt: commands, test results, check. */
  readonly receipt?: readonly string[]
  /** Results of a group: a line for each try, or for each reason of failed items. */
  readonly parts?: readonly string[]
  /** Command of the check, and the tail of its output if it failed. */
  readonly check?: string
  readonly checkOutput?: string
  readonly openTodos: number
}

export type AgentDetail = AgentRow &
  AgentFacts & {
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
