import type { AgentInfo } from "../../core/ports.ts"
import type { Usage } from "../../core/task.ts"
import type { FileDiff } from "../../lib/patch.ts"
import type { Overview } from "../../runtime/overview.ts"
import type { HistoryRun, UserActions } from "../../runtime/user-actions.ts"
import type { Board } from "../board/service.ts"

/**
 * What the web needs of the rest, whatever gives it: the background tasks, the board where there is one, and where the
 * sessions can be looked at.
 */

/** The background tasks of all sessions. */
export interface Agents
  extends Pick<Overview, "list" | "get" | "isForeign" | "refresh" | "answer" | "cancel" | "subscribe"> {
  /** What its last run changed, file by file; empty where that is not known. */
  diff(id: string): Promise<readonly FileDiff[]>
  /** Its runs, oldest first, as its session tells them. */
  history(id: string): Promise<readonly HistoryRun[]>
}

/** What a person does with a task: modes of `superagents_task`, each asked for by the argument of its name. */
export const ACTS = ["tell", "resume", "unpark", "merge"] as const

export type Act = (typeof ACTS)[number]

/** What a call of `superagents_task` came to: the task, and what the tool says. */
export type Called = { readonly taskID: string; readonly text: string }

/** What may be used, by the options; 0 for any. */
export type Limits = {
  readonly dayCost: number
  readonly sessionCost: number
  readonly taskCost: number
  readonly taskTokens: number
  /** The longest duration of a run, in ms. */
  readonly taskTime: number
  /** The statuses that can be resumed. */
  readonly resumable: readonly string[]
  /** Whether a launch may name a model. */
  readonly models: boolean
}

/**
 * A person's hand at the page: answers, words and launches, by the doors that agents use, with their checks and errors.
 * Every promise may reject with a `CallError` or a `HostError`.
 */
export interface Person extends Omit<UserActions, "history"> {
  /** Calls `superagents_task` in a conversation's name. Nobody is asked for a permission: a person calls. */
  call(args: Readonly<Record<string, unknown>>, sessionID: string): Promise<Called>
  /** Forgets a conversation's tasks; returns what the tool says. */
  clear(sessionID: string): Promise<string>
  /** Takes back a conversation in which nothing was begun. */
  discard(sessionID: string): Promise<void>
  agents(): Promise<readonly AgentInfo[]>
  /** As `provider/model`. */
  models(): Promise<readonly string[]>
  readonly limits: Limits
  /** What the day's budget counts; undefined where there is none. */
  spentToday(): Usage | undefined
}

export type Log = (level: "info" | "warn" | "error", message: string, fields?: Record<string, string>) => void

/** What one instance of the plugin has to show. */
export type Source = {
  /** The folder that it serves. */
  readonly folder?: string
  readonly agents: Agents
  readonly person?: Person
  readonly board?: Board
  /** The address of OpenCode's own page that a session's id completes; undefined where no server of it listens. */
  readonly pages?: () => Promise<string | undefined>
}
