import { oneLine } from "../lib/text.ts"
import type { Figures, Model, Reason, Task, Usage } from "./record.ts"

/**
 * A task is work given to another agent; a run is one generation of it (0 for the launch, n for resume #n). Plain data:
 * a task changes only in `transition.ts`. Times are milliseconds since the epoch, durations milliseconds.
 */

export type {
  Delivery,
  Figures,
  Merge,
  Model,
  Outcome,
  Reason,
  Run,
  Schema,
  Status,
  Task,
  TaskDraft,
  Usage,
  Value,
  Work,
} from "./record.ts"
export { STATUSES } from "./record.ts"

/** Activity of a task that has not ended. Derived by `phaseOf`, never stored. */
export type Phase =
  | "queued"
  | `queued for ${string}`
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

/** The task's machine cannot be reached. */
export type LostContact = {
  readonly host: string
  readonly since: number
  /** Longest time without contact, in ms; 0 for as long as the task may run. */
  readonly most: number
}

export const NO_USAGE: Usage = Object.freeze({
  input: 0,
  output: 0,
  reasoning: 0,
  cacheRead: 0,
  cacheWrite: 0,
  cost: 0,
})

export const NO_FIGURES: Figures = Object.freeze({ toolCalls: 0, usage: NO_USAGE })

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

/** Parent of a task with a session of its own: nobody is notified of its end. */
export const NOBODY = ""

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
  /** Task with the same beginning whose first answer warms the provider's cache for this run, which waits for it. */
  readonly heldBehind?: string
  /** Consecutive answers without a tool call, and without text or an end. */
  readonly emptyAnswers: number
  readonly lastWord?: LastWord
  readonly away?: LostContact
  readonly preparing?: Preparing
}

/**
 * State of the last word: `requested`, `speaking` during a request that asks for it, `done` after that step. Times are
 * those of the run (`elapsed`).
 */
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
 * True while changes in the task's place are not in the parent's files. `kind`: that of the member's group, whose work
 * may be merged as the group's.
 */
export const isUnmerged = ({ outcome, member }: Task, kind?: { readonly picksOne?: true }): boolean => {
  const { work } = member && kind?.picksOne ? {} : (outcome ?? {})
  if (!work || work.merge?.leftOut) return work !== undefined
  return work.files.length > 0 && work.merge?.kind !== "merged" && work.merge?.kind !== "nothing"
}

/** True while the task's work lies in a place that is not archived yet. */
export const holdsPlace = ({ place, outcome }: Pick<Task, "place" | "outcome">): boolean =>
  place !== undefined && outcome?.work === undefined

export const isQueued = (task: Task): boolean => isActive(task) && task.run.startedAt === undefined

/** True while the notification of the last run's end is still owed to the parent. */
export const hasPendingNotification = (task: Task): task is Task & { delivery: { state: "pending" } } =>
  task.delivery.state === "pending"

export const modelOf = ({ model, run }: Pick<Task, "model" | "run">): Model | undefined => run.model ?? model

/** True for a task that ended without an answer: its last message holds no text. */
export const endedUnanswered = ({ status, outcome }: Task): boolean =>
  status === "completed" && outcome?.thought !== undefined && outcome.value?.valid !== true

export const isPaused = (task: Task): boolean => isActive(task) && task.run.parked !== undefined

/**
 * Clock of the run, in which its time limit and its last word are kept: time since admission up to the end, without the
 * time that did not count; 0 while queued.
 */
export function elapsed({ run }: Pick<Task, "run">, now: number): number {
  const { startedAt, endedAt, stoppedSince, uncountedMs = 0 } = run
  if (startedAt === undefined) return 0
  return Math.max(0, (endedAt ?? stoppedSince ?? now) - startedAt - uncountedMs)
}

export function waited(task: Task, now: number): number {
  return Math.max(0, (task.run.startedAt ?? task.run.endedAt ?? now) - task.run.createdAt)
}

/** Observations that decide the phase. */
export type PhaseFacts = Pick<Progress, "asks" | "heldBehind" | "away" | "preparing" | "retry" | "idle">

/**
 * Phase of an active task. `ownTasks`: its children are active; `queuedAs`: what it, or the next member of a group, waits
 * for before it begins; `pausedAs`: text of its pause.
 */
export function phaseOf(
  task: Task,
  progress: PhaseFacts,
  ownTasks: boolean,
  queuedAs?: Phase,
  pausedAs?: Phase,
): Phase | undefined {
  if (!isActive(task)) return undefined
  if (isQueued(task)) return queuedAs ?? "queued"
  // Its members may be at work: their questions come first.
  if (task.group && queuedAs && progress.asks.length === 0) return queuedAs
  if (pausedAs) return pausedAs
  if (progress.heldBehind !== undefined) return `held behind ${progress.heldBehind}`
  if (progress.away) return `no contact with ${progress.away.host}`
  if (progress.preparing) return progress.preparing
  if (task.run.lastWordAt !== undefined) return "saying its last word"
  const ask = progress.asks[0]
  if (ask) return ask.kind === "permission" ? "waiting for permission" : "waiting for an answer"
  if (progress.retry) return "retrying"
  return ownTasks && progress.idle !== false ? "waiting for its own tasks" : "working"
}

export const addUsage = (a: Usage, b: Usage): Usage => ({
  input: a.input + b.input,
  output: a.output + b.output,
  reasoning: a.reasoning + b.reasoning,
  cacheRead: a.cacheRead + b.cacheRead,
  cacheWrite: a.cacheWrite + b.cacheWrite,
  cost: a.cost + b.cost,
  ...((a.atLeast || b.atLeast) && { atLeast: true }),
})

const lessUsage = (usage: Usage, before: Usage): Usage => ({
  ...usage,
  input: usage.input - before.input,
  output: usage.output - before.output,
  reasoning: usage.reasoning - before.reasoning,
  cacheRead: usage.cacheRead - before.cacheRead,
  cacheWrite: usage.cacheWrite - before.cacheWrite,
  cost: usage.cost - before.cost,
})

/** Usage since `before`; none where more than that was forgotten since, as with a deleted session. */
export const usageSince = (usage: Usage, before: Usage): Usage =>
  usage.cost < before.cost ? NO_USAGE : lessUsage(usage, before)

/** Usage of all runs of an ended task, without the tasks that it launched. */
export const wholeUsage = ({ earlier, outcome }: Pick<Task, "earlier" | "outcome">): Usage =>
  addUsage(earlier.usage, outcome?.usage ?? NO_USAGE)

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

/** Example: `bg_k3x9f2q1 (find it)`. */
export const nameOf = ({ id, description }: Pick<Task, "id" | "description">): string =>
  `${id} (${oneLine(description)})`

export const agentName = (task: Pick<Task, "agent" | "place">): string => {
  const machine = machineOf(task)
  return machine === undefined ? task.agent : `${task.agent} on ${machine}`
}

/** Tokens as `maxTokensPerTask` counts them: without cache reads, which cost next to nothing. */
export const billedTokens = ({ input, output, reasoning, cacheWrite }: Usage): number =>
  input + output + reasoning + cacheWrite

export const newTaskID = (random: () => string): string => `bg_${random()}`

/** Kind of message that the plugin sends for a task, to the task's session or the parent's. */
export type MessageKind =
  | "prompt"
  | "notification"
  | "preamble"
  | "hint"
  | "word"
  | "last-word"
  | "check"
  | "schema"
  | "parked"
  | "merge"
  | "report"
  | "answer"

/**
 * Derives the id of a message, so that a prompt or notification sent twice is stored once. `at` decides only the order
 * among other messages.
 */
export type MessageIDFactory = (kind: MessageKind, task: string, generation: number, at: number) => string
