import type { AgentInfo, UserActions } from "../../core/ports.ts"
import type { Usage } from "../../core/task.ts"
import type { FileDiff } from "../../lib/repository.ts"
import type { Options } from "../../options/options.ts"
import type { Reports } from "../../runtime/reports.ts"
import type { HistoryRun, sessionsOf } from "./opencode/sessions.ts"

/** Interfaces through which the page uses tasks and OpenCode's sessions. */

/** Background tasks of all sessions. */
export interface Agents
  extends Pick<Reports, "ids" | "list" | "get" | "isForeign" | "refresh" | "answer" | "cancel" | "subscribe"> {
  /** Files that the task's last run has changed. Empty where they are not known. */
  diff(id: string): Promise<readonly FileDiff[]>
  /** Runs of the task, read from its session, oldest first. */
  history(id: string): Promise<readonly HistoryRun[]>
}

/** A user's actions on a task, each by the name of the argument that selects this mode of `superagents_task`. */
export const ACTS = ["tell", "resume", "unpark", "merge"] as const

export type Act = (typeof ACTS)[number]

/** Result of a call of `superagents_task`: the task and the tool's text. */
export type ToolCallResult = { readonly taskID: string; readonly text: string }

/** Options that the page needs to know. */
export type Limits = Pick<
  Options,
  "maxCostPerDay" | "maxCostPerTask" | "maxTokensPerTask" | "resumable" | "allowModelOverride"
>

/** With the checks and errors of the agents' tools. Promises may reject with a `CallError` or an `OpencodeError`. */
export interface PageUserActions
  extends UserActions,
    Pick<ReturnType<typeof sessionsOf>, "conversations" | "session" | "open" | "write"> {
  /** Calls `superagents_task` in a conversation. No permission is asked, because a user calls. */
  call(args: Readonly<Record<string, unknown>>, sessionID: string): Promise<ToolCallResult>
  /** Clears a conversation's tasks; returns the tool's text. */
  clear(sessionID: string): Promise<string>
  /** Removes a conversation that was opened for a launch, after the launch has failed. */
  discard(sessionID: string): Promise<void>
  agents(): Promise<readonly AgentInfo[]>
  /** Models that can be used, as `provider/model`. */
  models(): Promise<readonly string[]>
  readonly limits: Limits
  /** Spending as the daily limit counts it; undefined without such a limit. */
  spentToday(): Usage | undefined
}

export type Log = (level: "info" | "warn" | "error", message: string, fields?: Record<string, string>) => void

/** Data of one plugin instance. Features add theirs. */
export interface Source {
  /** Folder of the instance. */
  readonly folder?: string
  readonly agents: Agents
  readonly person?: PageUserActions
  /** Address of OpenCode's page, to be completed with a session id; undefined without a server. */
  readonly pages?: () => Promise<string | undefined>
}
