/**
 * A task is work given to another agent; a run is one generation of it (0 for the launch, n for resume #n). Plain data:
 * a task changes only in `transition.ts`. Times are milliseconds since the epoch, durations milliseconds.
 */

import type { Group, GroupMember, GroupResult } from "./group.ts"
import { type PauseFields, pausedTime } from "./pause.ts"
import type { Receipt } from "./receipt.ts"

export const STATUSES = ["running", "completed", "error", "cancelled", "resumed"] as const

export type Status = (typeof STATUSES)[number]

/** Activity of a task that has not ended. Derived by `phaseOf`, never stored. */
export type Phase =
  | "queued"
  | "working"
  | "retrying"
  | "waiting for permission"
  | "waiting for an answer"
  | "waiting for its own tasks"
  | "saying its last word"
  | `held behind ${string}`
  | `parked${string}`
  | `waiting for ${string}`
  | `no contact with ${string}`
  | Preparing

/** Slow preparation before the agent is prompted. */
export type Preparing = `connecting to ${string}` | `sending files to ${string}`
export const PREPARING = /^(connecting|sending files) to /

/** Phase of an ended remote task until its changes are here. */
export const FETCHING_WORK = "fetching its work"

/** The task's machine cannot be reached. */
export type LostContact = {
  readonly host: string
  readonly since: number
  /** Longest time without contact, in ms; 0 for as long as the task may run. */
  readonly most: number
}

/** Reason of an end other than plain success. `code` is for programs, `text` for readers. */
export type Reason = { readonly code: ReasonCode; readonly text: string }

export const REASON_CODES = [
  "provider",
  "host",
  "empty",
  "timeout",
  "silence",
  "repeats",
  "tokens",
  "budget",
  "after",
  "interrupted",
  "cancelled",
  "refused",
  "aborted",
  "deleted",
  "parent-ended",
  "place",
  "check",
  "schema",
  "limit",
  "purse",
  "items",
] as const

export type ReasonCode = (typeof REASON_CODES)[number]

export type Model = { readonly provider: string; readonly id: string; readonly variant?: string }

/** Token counts, and cost in US dollars, as OpenCode reports them. */
export type Usage = {
  readonly input: number
  readonly output: number
  readonly reasoning: number
  readonly cacheRead: number
  readonly cacheWrite: number
  readonly cost: number
  /** True where a step was aborted, whose usage OpenCode does not know. */
  readonly atLeast?: true
}

export const NO_USAGE: Usage = Object.freeze({
  input: 0,
  output: 0,
  reasoning: 0,
  cacheRead: 0,
  cacheWrite: 0,
  cost: 0,
})

/** Content that a fork took from its parent, and what was cut. */
type ForkInfo = {
  readonly messages: number
  readonly tokens: number
  readonly droppedMessages: number
  readonly cutResults: number
  /** Newest cut results by name, oldest first. */
  readonly cuts?: readonly ForkCut[]
  /** The fork's requests begin with the parent's exact bytes, so that the provider's cache serves them. */
  readonly whole?: true
  /**
   * Session whose request prefix, and so the provider's cache, the fork shares; in a chain of forks, that of the first.
   */
  readonly rides?: string
  /** The system prompt includes the briefing that fresh agents get, as the shared session's does. */
  readonly briefed?: true
  /** Cost of the fork's first step with the cache and without, in US dollars. */
  readonly price?: { readonly cached: number; readonly anew: number }
  /** Sentence that says why the fork is not of the requested kind, or who decided that it is whole. */
  readonly why?: string
}

/**
 * A tool result that a fork holds only in part. `kept`, `of`: characters of the result; `call`: start of the call's
 * arguments.
 */
type ForkCut = { readonly tool: string; readonly call: string; readonly kept: number; readonly of: number }

export type Run = PauseFields & {
  /** 0 for the launch, n for resume #n. Inputs for an older generation are dropped. */
  readonly generation: number
  /** Id of the run's prompt; the run's answer follows this message. */
  readonly promptID: string
  readonly createdAt: number
  /** When the run got its slot; absent while queued. Durations count from here. */
  readonly startedAt?: number
  readonly endedAt?: number
  /** Time limit of this run; 0 for none. */
  readonly timeout: number
  /** Budget of the run including its children, and the task's cost at its start; in US dollars. */
  readonly budget?: { readonly max: number; readonly before: number }
  /**
   * End times and costs of earlier runs of the last day, and of answers between the runs that others asked the agent
   * for.
   */
  readonly recent?: readonly { readonly endedAt: number; readonly cost: number }[]
  /** Ids of tasks that must complete before this run begins. */
  readonly after?: readonly string[]
  /** Task with the same beginning whose first answer warms the provider's cache for this run. */
  readonly heldBehind?: string
  /** When the last word was requested, and for which limit. */
  readonly lastWordAt?: number
  readonly lastWordFor?: Reason
  /** Command that must pass before the run counts as completed. */
  readonly check?: string
  /** Files and folders that the prompt names as `@path`, sent with it. */
  readonly files?: readonly string[]
  /** Git glob pathspecs of files that must not change: a change fails the check. */
  readonly guard?: readonly string[]
  /** Schema for the last message, validated before the check runs. */
  readonly schema?: Schema
  /** All active children have been paused since then: the run's time does not count. */
  readonly stillSince?: number
  /** Total of earlier times that did not count for this reason, in ms. */
  readonly stillMs?: number
  /**
   * The user has stopped the session that gets the notification and has not continued it: the plugin must not wake it.
   */
  readonly parentStopped?: true
  /** Current fallback model. */
  readonly model?: Model
  /** Model changes: `provider/model`, first step with it, and reason. */
  readonly switches?: readonly { readonly model: string; readonly step: number; readonly why: string }[]
}

/** Place of a task that does not work in its parent's folder. */
type Place = {
  readonly kind: string
  /** The parent's folder: source of the worktree and target of its merge. */
  readonly folder: string
  /** Merge the changes of a completed run at once. */
  readonly merge: boolean
}

/** Changes of a task's runs in its own place, and whether they are merged. */
export type Work = {
  /** Paths of the first changed files. */
  readonly files: readonly string[]
  readonly moreFiles: number
  readonly added: number
  readonly removed: number
  /** Changed submodules: they are never merged. */
  readonly submodules: readonly string[]
  /** Folder of the task that could not be removed, and the content that only this folder holds. */
  readonly held?: { readonly folder: string; readonly because: readonly string[] }
  /** Further sentences for the parent on how the work was archived. */
  readonly notes?: readonly string[]
  /** Result of the last merge; absent where there was none since the run ended. */
  readonly merge?: Merge
}

export type Merge = {
  readonly kind: "merged" | "nothing" | "conflict" | "refused"
  readonly files: readonly string[]
  /** Changed submodules and the refs that keep their commits: they are never merged. */
  readonly leftOut?: readonly string[]
  /** Why the merge was refused; for a conflict, advice where solving it in the worktree is not enough. */
  readonly text?: string
}

export type Figures = { readonly toolCalls: number; readonly usage: Usage }

export const NO_FIGURES: Figures = Object.freeze({ toolCalls: 0, usage: NO_USAGE })

/** Result of an ended run. The figures are this run's alone. */
export type Outcome = Figures & {
  readonly reason?: Reason
  /** Warning for readers of a successful answer. */
  readonly note?: string
  /** Last called tools, oldest first. */
  readonly recentTools: readonly string[]
  readonly openTodos: number
  /** First files that the run's own calls edited or wrote, in the order of their first change. */
  readonly filesChanged: readonly string[]
  readonly moreFiles: number
  /** Other changes in the run's folder meanwhile: by the run's commands, other agents, the user. Absent for none. */
  readonly meanwhile?: { readonly files: readonly string[]; readonly more: number }
  /** The answer is a last word, requested near a limit. */
  readonly saidLastWord?: boolean
  /** End of the reasoning in a last message without text; empty where the provider hides it. */
  readonly thought?: string
  /** Questions that nobody answered in time. */
  readonly unanswered?: readonly string[]
  /** With a schema: number of attempts, and the position of the valid value in the text. */
  readonly value?: Value
  /** Executed commands and the check; absent where there were none. */
  readonly receipt?: Receipt
  /** Changes that the run made in the task's own place. */
  readonly work?: Work
  /** Result of a group. */
  readonly group?: GroupResult
  /**
   * `of`: tokens of the run's first request; `read`: how many of them the provider's cache served. Absent where the
   * provider reports no cache.
   */
  readonly first?: { readonly read: number; readonly of: number }
}

export type Schema = Readonly<Record<string, unknown>>

/**
 * `at`, `length`: position in the text, in UTF-16 units. `file`: copy of the value. `refused`: length of the longest
 * invalid answer.
 */
export type Value =
  | {
      readonly valid: true
      readonly asked: number
      readonly at: number
      readonly length: number
      readonly file?: string
      readonly refused?: number
    }
  | { readonly valid: false; readonly asked: number; readonly refused?: number }

/** How a run ended, in the terms of `transition`. `proven`: any reader finds the same end in the session's messages. */
export type Ending = {
  readonly type: "completed" | "failed" | "cancelled"
  readonly reason?: Reason
  readonly note?: string
  readonly at?: number
  readonly proven?: boolean
  /** The answer is a last word, asked for near a limit. */
  readonly saidLastWord?: boolean
  /** End of the reasoning in a last message without text; empty where the provider hides it. */
  readonly thought?: string
}

/**
 * Delivery of a run's end to its parent: nothing to tell, pending, seen in the parent, or abandoned because the parent
 * is gone. Figures are those of the run's end.
 */
export type Delivery =
  | { readonly state: "none" }
  | {
      readonly state: "pending" | "confirmed" | "abandoned"
      readonly wake: boolean
      readonly done: number
      readonly total: number
      readonly running: number
    }

/** Parent of a task with a session of its own: nobody is notified of its end. */
export const NOBODY = ""

export type Task = {
  readonly id: string
  readonly sessionID: string
  /** Session that launched the task, or `NOBODY`. */
  readonly parentID: string
  /** Message of the parent whose tool call launched the task. */
  readonly parentMessageID: string
  readonly description: string
  readonly agent: string
  readonly model?: Model
  /** Batch key: `name:<batch argument>`, or `auto:<task id>` of the first task of an unnamed batch. */
  readonly batch: string
  /** 1 for a child of a session that is not a task's, 0 for a task that nobody launched. */
  readonly depth: number
  readonly fork?: ForkInfo
  /** Absent for a task that works in its parent's folder. */
  readonly place?: Place
  /** Set for a group, whose own session is never prompted. */
  readonly group?: Group
  /** Set for a member of a group. */
  readonly member?: GroupMember
  /** Launch time; times of the run are in `run`. */
  readonly createdAt: number
  /** Total of all runs before the present one, and of answers between the runs that others asked the agent for. */
  readonly earlier: Figures
  /** Digest of agent, model and prompt, to find an identical earlier task; "" where other inputs matter. */
  readonly fingerprint: string
  readonly status: Status
  readonly run: Run
  readonly outcome?: Outcome
  readonly delivery: Delivery
  readonly retrievedAt?: number
  /** The task is removed from its session's list; its cost still counts. */
  readonly forgotten?: true
}

/** Task before its session is created. */
export type TaskDraft = Omit<Task, "sessionID">

/** An open question of a child. `what`: one line for a reader; `doing`: purpose of a permission. */
export type Ask = {
  readonly id: string
  readonly sessionID: string
  readonly kind: "permission" | "question"
  readonly what: string
  readonly doing?: string
  readonly askedAt: number
}

/** All requests to the model have failed since then while OpenCode retries: number and error of the last attempt. */
export type Failing = { readonly since: number; readonly attempt: number; readonly message: string }

/** Consecutive equal calls of a tool with equal results, at the end of a run. */
export type Repeated = { readonly tool: string; readonly times: number }

/** Live observations of a run. Kept in memory only, never persisted. */
export type Progress = {
  readonly toolCalls: number
  readonly recentTools: readonly string[]
  readonly lastText: string
  readonly lastSignAt: number
  /** Usage of this run's completed answers. */
  readonly usage: Usage
  readonly retry?: { readonly attempt: number; readonly message: string }
  readonly failing?: Failing
  readonly repeated?: Repeated
  readonly asks: readonly Ask[]
  /** Tool calls that are running: with one, the run counts as alive. */
  readonly openCalls: number
  /** Tool calls whose arguments are being written. */
  readonly pendingCalls: number
  /** The plugin prepares the task's place or runs its check, which counts as an open call. */
  readonly held?: boolean
  /** The session does nothing; absent where not known. */
  readonly idle?: boolean
  /** The session works although its record says it is held for a warm cache. */
  readonly begun?: boolean
  /** Consecutive answers without a tool call, and without text or an end. */
  readonly emptyAnswers: number
  readonly lastWord?: LastWord
  readonly away?: LostContact
  readonly preparing?: Preparing
}

/** State of the last word: `requested`, `speaking` during a request that asks for it, `done` after that step. */
export type LastWord = {
  readonly state: "requested" | "speaking" | "done"
  readonly reason: Reason
  readonly at: number
  /** When the run was interrupted and asked again. */
  readonly againAt?: number
  /** A request has asked for the last word again and still offered tools. Later requests offer none. */
  readonly askedAgain?: true
}

export const isActive = (task: Task): boolean => task.status === "running" || task.status === "resumed"

/** True for a task that nobody launched: nobody gets a notification of it. */
export const isUnattended = (task: Task): boolean => task.parentID === NOBODY

/** True for a member of a group. The member's launcher gets notifications of the group only. */
export const isMember = ({ member }: Pick<Task, "member">): boolean => member !== undefined

/** OpenCode's parent session of the task's session. */
export const parentSessionOf = ({ member, parentID }: Pick<Task, "member" | "parentID">): string =>
  member?.under ?? parentID

export const slotSessionOf = ({ member, parentID }: Task): string => member?.caller ?? parentID

/**
 * True while changes in the task's place are not in the parent's files. The work of a try is merged as its group's
 * work.
 */
export const isUnmerged = ({ outcome, member }: Task): boolean => {
  const { work } = member?.kind === "tries" ? {} : (outcome ?? {})
  if (!work || work.merge?.leftOut) return work !== undefined
  return work.files.length > 0 && work.merge?.kind !== "merged" && work.merge?.kind !== "nothing"
}

/** True while the task's work lies in a place that is not archived yet. */
export const holdsPlace = ({ place, outcome }: Pick<Task, "place" | "outcome">): boolean =>
  place !== undefined && outcome?.work === undefined

export const isQueued = (task: Task): boolean => isActive(task) && task.run.startedAt === undefined

/** True while the notification of the last run's end is still owed to the parent. */
export const owesNotification = (task: Task): task is Task & { delivery: { state: "pending" } } =>
  task.delivery.state === "pending"

export const modelOf = ({ model, run }: Pick<Task, "model" | "run">): Model | undefined => run.model ?? model

export const isPaused = (task: Task): boolean => isActive(task) && task.run.parked !== undefined

/** Time since admission up to the end, without pauses; 0 while queued. */
export function elapsed({ run }: Pick<Task, "run">, now: number): number {
  const { startedAt, endedAt, parked, stillSince } = run
  if (startedAt === undefined) return 0
  return Math.max(0, (endedAt ?? parked?.at ?? stillSince ?? now) - startedAt - uncounted(run))
}

/** Total time that did not count, because the run or all that it waited for was paused. */
export const uncounted = (run: Run): number => pausedTime(run) + (run.stillMs ?? 0)

export function waited(task: Task, now: number): number {
  return Math.max(0, (task.run.startedAt ?? task.run.endedAt ?? now) - task.run.createdAt)
}

/**
 * Phase of an active task. `ownTasks`: its children are active; `waitsFor`: tasks that must complete first; `pausedAs`:
 * text of its pause.
 */
export function phaseOf(
  task: Task,
  progress: Progress,
  ownTasks: boolean,
  waitsFor: readonly string[] = [],
  pausedAs?: Phase,
): Phase | undefined {
  if (!isActive(task)) return undefined
  if (isQueued(task)) return waitsFor.length > 0 ? `waiting for ${waitsFor.join(", ")}` : "queued"
  if (pausedAs) return pausedAs
  if (task.run.heldBehind !== undefined && !progress.begun) return `held behind ${task.run.heldBehind}`
  if (progress.away) return `no contact with ${progress.away.host}`
  if (progress.preparing) return progress.preparing
  if (task.run.lastWordAt !== undefined) return "saying its last word"
  const ask = progress.asks[0]
  if (ask) return ask.kind === "permission" ? "waiting for permission" : "waiting for an answer"
  if (progress.retry) return "retrying"
  return ownTasks && progress.idle !== false ? "waiting for its own tasks" : "working"
}

/** The phase in words that say what a task waits for. */
export const phaseText = (phase: Phase): string => (phase === "queued" ? "queued for a free slot" : phase)

export const addUsage = (a: Usage, b: Usage): Usage => ({
  input: a.input + b.input,
  output: a.output + b.output,
  reasoning: a.reasoning + b.reasoning,
  cacheRead: a.cacheRead + b.cacheRead,
  cacheWrite: a.cacheWrite + b.cacheWrite,
  cost: a.cost + b.cost,
  ...((a.atLeast || b.atLeast) && { atLeast: true }),
})

export const lessUsage = (usage: Usage, before: Usage): Usage => ({
  ...usage,
  input: usage.input - before.input,
  output: usage.output - before.output,
  reasoning: usage.reasoning - before.reasoning,
  cacheRead: usage.cacheRead - before.cacheRead,
  cacheWrite: usage.cacheWrite - before.cacheWrite,
  cost: usage.cost - before.cost,
})

export const addFigures = (a: Figures, b: Figures): Figures => ({
  toolCalls: a.toolCalls + b.toolCalls,
  usage: addUsage(a.usage, b.usage),
})

/** Whether the session's system prompt includes the briefing for fresh agents. */
export const isBriefed = (task: Task): boolean =>
  !isUnattended(task) && (task.fork === undefined || task.fork.briefed === true)

/** Name of the remote host the task works on: every place other than a local kind is a host. */
export const machineOf = ({ place }: Pick<Task, "place">): string | undefined =>
  place === undefined || place.kind === "worktree" ? undefined : place.kind

export const agentName = (task: Pick<Task, "agent" | "place">): string => {
  const machine = machineOf(task)
  return machine === undefined ? task.agent : `${task.agent} on ${machine}`
}

/** Tokens as `maxTokensPerTask` counts them: without cache reads, which cost next to nothing. */
export const billedTokens = ({ input, output, reasoning, cacheWrite }: Usage): number =>
  input + output + reasoning + cacheWrite
