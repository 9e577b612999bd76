import type { PauseKind } from "../../core/pause.ts"
import type { AgentInfo } from "../../core/ports.ts"
import type { Ask, Merge, Phase, ReasonCode, Status } from "../../core/task.ts"
import type { Hit } from "../../lib/find.ts"
import type { FileDiff } from "../../lib/repository.ts"
import type { Conversation, HistoryRun } from "../../runtime/user-actions.ts"
import type { Limits } from "./ports.ts"

/** Data sent to the page; times are milliseconds since the epoch. */

/** A background task in lists. */
export type AgentRow = {
  readonly id: string
  readonly sessionID: string
  readonly parentID: string
  readonly description: string
  readonly agent: string
  readonly model?: string
  /** Batch name; absent for an unnamed one. */
  readonly batch?: string
  readonly status: Status
  readonly phase?: Phase
  /** Kind of pause; absent for none. */
  readonly stands?: PauseKind
  /** Results of a group in a few words. */
  readonly counts?: string
  /** A resume without a prompt continues unfinished members. */
  readonly left?: true
  /** Completed; its work is being checked again and merged, which can be stopped. */
  readonly merging?: true
  /** Ended on another machine; its changes are being fetched. */
  readonly fetching?: true
  readonly forked: boolean
  /** 0 for the launch, n for resume #n. */
  readonly generation: number
  /** Name of a place other than the project's folder. */
  readonly place?: string
  /** Changes in its own place are not in the project's folder yet. */
  readonly unmerged: boolean
  /** Board task whose thread this run is in. */
  readonly boardTask?: string
  /** Run by another process. */
  readonly foreign: boolean
  readonly createdAt: number
  readonly startedAt?: number
  readonly endedAt?: number
  readonly toolCalls: number
  readonly recentTools: readonly string[]
  /** Tail of its latest text while it runs. */
  readonly lastText: string
  readonly lastSignAt?: number
  readonly tokens: number
  /** Tokens from the provider's cache; no limit counts them. */
  readonly cachedTokens: number
  /** Cost in US dollars of all its runs and its children. */
  readonly cost: number
  /** A step of unknown cost was aborted. */
  readonly atLeast: boolean
  /** Own cost of the last 24 hours, as the daily limit counts it. */
  readonly dayCost: number
  readonly dayAtLeast: boolean
  /** `refusedAt`: when an unanswered question is refused. */
  readonly asks: readonly (Ask & { readonly refusedAt?: number })[]
  readonly retry?: string
  /** Reason of an end other than plain success. */
  readonly reason?: string
  readonly reasonCode?: ReasonCode
  /** Limits of its run, in ms and US dollars; absent for none. */
  readonly timeLimit?: number
  readonly costLimit?: number
}

/** Facts for a single task. */
export type AgentFacts = {
  readonly note?: string
  readonly filesChanged: readonly string[]
  /** Other changes in its folder during the run, perhaps by others. */
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
    /** Launching conversation, if it still exists. */
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

/** Spending by the daily limit, with cleared tasks and other processes; only with such a limit. */
type Spent = { readonly cost: number; readonly atLeast: boolean }

/** Whole state of the page: first event of a stream. Features add their fields. */
export interface PageSnapshot {
  readonly project: string
  /** The server's clock. */
  readonly now: number
  readonly agents: readonly AgentRow[]
  /** Prefix of OpenCode's page for a session id, where it can be reached. */
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
