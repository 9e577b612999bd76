/**
 * The words of the domain: a task is work handed to another agent, a run is one generation of it (the first prompt is
 * generation 0, resume #n is generation n). Everything here is plain data; a task changes only in `transition.ts`.
 * All times are milliseconds since the epoch, all durations milliseconds.
 */

import type { Group, GroupMember, GroupResult } from "./group.ts"
import { type PauseFields, type PauseKind, pausedTime, pauseOf } from "./pause.ts"
import type { Receipt } from "./receipt.ts"

export const STATUSES = ["running", "completed", "error", "cancelled", "resumed"] as const

export type Status = (typeof STATUSES)[number]

/** What a task that has not ended is doing. Derived by `phaseOf`, never stored. */
export type Phase =
  | "queued"
  | "working"
  | "retrying"
  | "waiting for permission"
  | "waiting for an answer"
  | "waiting for its own tasks"
  | "saying its last word"
  | `held behind ${string}`
  | `${PauseKind}${string}`
  | `waiting for ${string}`
  | `no contact with ${string}`
  | Preparing

/** What is done for a task before its agent is asked, where that takes its time. */
export type Preparing = `connecting to ${string}` | `sending files to ${string}`
export const PREPARING = /^(connecting|sending files) to /

/** What a task that has ended on another machine is doing until its work is here. */
export const BRINGING_HOME = "fetching its work"

/** The machine on which a task works cannot be reached. */
export type Away = {
  readonly host: string
  readonly since: number
  /** How long that may last, in ms; 0 for as long as the task may. */
  readonly most: number
}

/** Why a task ended in anything but a plain success. `code` is for programs, `text` for readers. */
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

/** Tokens as counts, cost in the provider's currency (US dollars), as the host reports them. */
export type Usage = {
  readonly input: number
  readonly output: number
  readonly reasoning: number
  readonly cacheRead: number
  readonly cacheWrite: number
  readonly cost: number
  /** Something was used that the host does not know of: a step that was stopped in its middle. */
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

/** What a fork took over from its parent, and what was cut from it. */
export type ForkInfo = {
  readonly messages: number
  readonly tokens: number
  readonly droppedMessages: number
  readonly cutResults: number
  /** The cut results by name, the newest of them, oldest first. */
  readonly cuts?: readonly ForkCut[]
  /** Its requests begin with its parent's own bytes: it rides on what the provider has in its cache of them. */
  readonly whole?: true
  /** Of a whole one: the session whose requests' beginning it shares; of a rider's rider, the first one's. */
  readonly rides?: string
  /** That session's system prompt has what a fresh agent is told, and so has this one's. */
  readonly briefed?: true
  /** What its first step costs from the cache, and what it would cost without, in US dollars. */
  readonly price?: { readonly cached: number; readonly anew: number }
  /** Why it was not made as it was asked for, or who chose that it is whole: a sentence. */
  readonly why?: string
}

/** A tool result that a fork has not whole: how many of its characters it has, and the beginning of the call's arguments. */
type ForkCut = { readonly tool: string; readonly call: string; readonly kept: number; readonly of: number }

export type Run = PauseFields & {
  /** 0 for the launch, n for resume #n. What arrives for an older generation is dropped. */
  readonly generation: number
  /** Id of the message that asks; the answer is what follows it. */
  readonly promptID: string
  readonly createdAt: number
  /** When the run got its slot; absent while it is queued. Durations count from here. */
  readonly startedAt?: number
  readonly endedAt?: number
  /** Longest duration of this run; 0 means no limit. */
  readonly timeout: number
  /** What this run may cost, its own tasks included, and what the task had cost when it began; in US dollars. */
  readonly budget?: { readonly max: number; readonly before: number }
  /** Of earlier runs that ended within a day before this one began: when, and what they had cost. */
  readonly recent?: readonly { readonly endedAt: number; readonly cost: number }[]
  /** Ids of the tasks that have to complete before this run begins. */
  readonly after?: readonly string[]
  /** The task whose answer is to begin before this run is asked: they begin alike, and the provider has it cached then. */
  readonly heldBehind?: string
  /** When it was asked for its last word, and the limit that it was near. */
  readonly lastWordAt?: number
  readonly lastWordFor?: Reason
  /** The command that has to pass before the run counts as completed. */
  readonly check?: string
  /** Files and folders that its prompt names as `@path`: they go with it. */
  readonly files?: readonly string[]
  /** Files that it may not change, as git's glob pathspecs: one that has does not pass its check. */
  readonly guard?: readonly string[]
  /** What its last message has to be valid against, before its check runs. */
  readonly schema?: Schema
  /** It waits for tasks of its own, and all of those at work stand still, since then: no time of it counts either. */
  readonly stillSince?: number
  /** How long that was before, in all. */
  readonly stillMs?: number
  /** The model that it goes on with in place of its task's, since that was at its limit. */
  readonly model?: Model
  /** Each time that it was given another: as `provider/model`, from which of its steps on, and why. */
  readonly switches?: readonly { readonly model: string; readonly step: number; readonly why: string }[]
}

/** Where a task works that does not work in its parent's folder. */
type Place = {
  /** The name by which it was asked for. */
  readonly kind: string
  /** Where its parent works: what the worktree is made from, and merged into. */
  readonly folder: string
  /** What a completed run changed is merged at once. */
  readonly merge: boolean
}

/** What the runs of a task changed in its own place, and whether it has come home. */
export type Work = {
  /** The first of them. */
  readonly files: readonly string[]
  readonly moreFiles: number
  readonly added: number
  readonly removed: number
  /** Submodules that it changed: they are never merged. */
  readonly submodules: readonly string[]
  /** Its folder, where that had to stay, and what is in that folder alone. */
  readonly held?: { readonly folder: string; readonly because: readonly string[] }
  /** What else its parent has to know of how it was kept, a sentence or two each. */
  readonly notes?: readonly string[]
  /** How the last merge came out; absent where there was none since the run ended. */
  readonly merge?: Merge
}

export type Merge = {
  readonly kind: "merged" | "nothing" | "conflict" | "refused"
  readonly files: readonly string[]
  /** Submodules that it changed, and what names them: they are never merged, and stay with what is kept. */
  readonly leftOut?: readonly string[]
  /** Why it was refused; of a conflict, what to do where to solve it in the worktree would be no end to it. */
  readonly text?: string
}

/** What work took. */
export type Figures = { readonly toolCalls: number; readonly usage: Usage }

export const NO_FIGURES: Figures = Object.freeze({ toolCalls: 0, usage: NO_USAGE })

/** What is known of a run once it has ended. The figures are this run's alone. */
export type Outcome = Figures & {
  readonly reason?: Reason
  /** Something a reader of the answer has to know although the run succeeded. */
  readonly note?: string
  /** The last tools that were called, oldest first. */
  readonly recentTools: readonly string[]
  readonly openTodos: number
  /** The first of those that its own calls edited or wrote, in the order of their first change. */
  readonly filesChanged: readonly string[]
  /** How many more there were. */
  readonly moreFiles: number
  /** What else changed in its folder while it worked: by its commands, by another agent, by the user. Absent for none. */
  readonly meanwhile?: { readonly files: readonly string[]; readonly more: number }
  /** What it wrote is its last word, asked for near a limit. */
  readonly saidLastWord?: boolean
  /** The end of the reasoning of a last message that holds nothing else; empty where the provider hides it. */
  readonly thought?: string
  /** What it asked and nobody answered in time. */
  readonly unanswered?: readonly string[]
  /** Of a run with a schema: how often it was asked, and where in its text the value stands, if there is a valid one. */
  readonly value?: Value
  /** The commands that ran, and the check; absent where there were none. */
  readonly receipt?: Receipt
  /** What it changed in its own place. */
  readonly work?: Work
  /** Of a team: what its parts have come to. */
  readonly team?: GroupResult
  /** How many tokens of its first request the provider read from its cache; absent where none told of one. */
  readonly first?: { readonly read: number; readonly of: number }
}

/** A JSON Schema. */
export type Schema = Readonly<Record<string, unknown>>

/**
 * `at`, `length`: in its text, in UTF-16 units. `file`: where it lies, too. `refused`: how long the longest answer was
 * that was not valid.
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

/**
 * How a run ended, in the words of `transition`.
 *
 * - `at`: when, if its messages tell.
 * - `proven`: the session's messages say so by themselves, to whoever reads them, however often.
 */
export type Ending = {
  readonly type: "completed" | "failed" | "cancelled"
  readonly reason?: Reason
  readonly note?: string
  readonly at?: number
  readonly proven?: boolean
  /** It was asked for its last word near a limit, and said it. */
  readonly saidLastWord?: boolean
  /** The end of the reasoning of a last message that holds nothing else; empty where the provider hides it. */
  readonly thought?: string
}

/**
 * The notification of a run, as a state beside the task's own: nothing to tell yet, to be told, seen in the parent, or
 * given up because the parent is gone. The figures are those of the moment the run ended.
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

/** The parent of a task that works in a session of its own account: nobody is told how it ends. */
export const NOBODY = ""

export type Task = {
  readonly id: string
  readonly sessionID: string
  /** The session that launched it, or `NOBODY`. */
  readonly parentID: string
  /** The parent's message whose tool call launched the task. */
  readonly parentMessageID: string
  readonly description: string
  readonly agent: string
  readonly model?: Model
  /** Key of the batch: `name:<batch argument>`, or `auto:<task id>` of the first task of an unnamed one. */
  readonly batch: string
  /** 1 for a child of a session that is nobody's task, 0 for a task that nobody launched. */
  readonly depth: number
  readonly fork?: ForkInfo
  /** Absent where it works in its parent's folder. */
  readonly place?: Place
  /** Its work is that of several, and its own session is never prompted. */
  readonly team?: Group
  /** It is one of several that stand as another task. */
  readonly part?: GroupMember
  /** When it was launched; a run's own time is in `run`. */
  readonly createdAt: number
  /** What the runs before the present one took together. */
  readonly earlier: Figures
  /** Digest of agent, model and prompt, to find an identical earlier task; "" where more goes with it. */
  readonly fingerprint: string
  readonly status: Status
  readonly run: Run
  readonly outcome?: Outcome
  readonly delivery: Delivery
  readonly retrievedAt?: number
  /** It has left its session's list; what it cost is still to be counted. */
  readonly forgotten?: true
}

/** A task before its session is made. */
export type TaskDraft = Omit<Task, "sessionID">

/** A question that a child waits on. `what` is one line for a reader; `doing` is what a permission is asked for. */
export type Ask = {
  readonly id: string
  readonly sessionID: string
  readonly kind: "permission" | "question"
  readonly what: string
  readonly doing?: string
  readonly askedAt: number
}

/** All requests to a run's model have failed since then, and the host tries on: its last attempt, and what came of it. */
export type Failing = { readonly since: number; readonly attempt: number; readonly message: string }

/** The newest calls of a run were equal, with equal results: so many in a row, of this tool. */
export type Repeated = { readonly tool: string; readonly times: number }

/** What is seen of a run while it goes on. Lives in memory alone: transitions are persisted, progress is not. */
export type Progress = {
  readonly toolCalls: number
  readonly recentTools: readonly string[]
  readonly lastText: string
  readonly lastSignAt: number
  /** Of this run, as far as its answers have ended. */
  readonly usage: Usage
  readonly retry?: { readonly attempt: number; readonly message: string }
  readonly failing?: Failing
  readonly repeated?: Repeated
  readonly asks: readonly Ask[]
  /** Tool calls that run: they count as life. */
  readonly openCalls: number
  /** Tool calls whose arguments are being written. */
  readonly pendingCalls: number
  /** It is not the agent's turn: its place is made ready, or its check runs. That is one of the open calls. */
  readonly held?: boolean
  /** Its session does nothing; absent where that is not known. */
  readonly idle?: boolean
  /** Its session works, whatever its record says of being held. */
  readonly begun?: boolean
  /** Answers that led nowhere, in a row: without a call of a tool, and without text or an end. */
  readonly emptyAnswers: number
  /** How far its last word has come, once it was asked for it. */
  readonly lastWord?: LastWord
  readonly away?: Away
  readonly preparing?: Preparing
}

/**
 * The last word of a run, at or near a limit: `told` from when it is asked for, `speaking` while a request that asks
 * for it is under way, `spoke` when that step has ended.
 */
export type LastWord = {
  readonly state: "told" | "speaking" | "spoke"
  readonly reason: Reason
  readonly at: number
  /** When it was stopped in what it did and asked once more. */
  readonly againAt?: number
  /** A request has asked it once more, with its tools on offer: one that comes after that has none. */
  readonly askedAgain?: true
}

export const isActive = (task: Task): boolean => task.status === "running" || task.status === "resumed"

/** True where nobody launched the task, and nobody is told of it. */
export const isUnattended = (task: Task): boolean => task.parentID === NOBODY

/** True where nobody is told how it ends: who launched it is told of the team that it is a part of. */
export const isMember = ({ part }: Pick<Task, "part">): boolean => part !== undefined

/** The session whose child the host has its session as. */
export const parentSessionOf = ({ part, parentID }: Pick<Task, "part" | "parentID">): string => part?.under ?? parentID

/** The session whose slots it takes. */
export const slotsOf = ({ part, parentID }: Task): string => part?.caller ?? parentID

/** True while what a task changed in its own place is not in its parent's files. */
export const isUnmerged = ({ outcome }: Task): boolean => {
  const { work } = outcome ?? {}
  if (!work || work.merge?.leftOut) return work !== undefined
  return work.files.length > 0 && work.merge?.kind !== "merged" && work.merge?.kind !== "nothing"
}

export const isQueued = (task: Task): boolean => isActive(task) && task.run.startedAt === undefined

/** True while the parent is still to be told how the last run ended. */
export const owesNotification = (task: Task): task is Task & { delivery: { state: "pending" } } =>
  task.delivery.state === "pending"

/** The model that is asked now. */
export const modelOf = ({ model, run }: Pick<Task, "model" | "run">): Model | undefined => run.model ?? model

/** True while it holds nothing, and goes on later (`core/pause`). */
export const isPaused = (task: Task): boolean => isActive(task) && pauseOf(task.run) !== undefined

/** True while it stands still at its provider's limit. */
export const isParked = (task: Task): boolean => isActive(task) && task.run.parked !== undefined

/** Time since admission, up to the end if there is one, without that which does not count. 0 while queued. */
export function elapsed({ run }: Pick<Task, "run">, now: number): number {
  const { startedAt, endedAt, stillSince } = run
  if (startedAt === undefined) return 0
  return Math.max(0, (endedAt ?? pauseOf(run)?.at ?? stillSince ?? now) - startedAt - uncounted(run))
}

/** For how long no time of a run counted before: it stood still, or all that it waited for did. */
export const uncounted = (run: Run): number => pausedTime(run) + (run.stillMs ?? 0)

/** Time spent waiting for a slot. */
export function waited(task: Task, now: number): number {
  return Math.max(0, (task.run.startedAt ?? task.run.endedAt ?? now) - task.run.createdAt)
}

/**
 * The phase of a task that has not ended; `ownTasks` tells whether tasks that it launched are still active, `waitsFor`
 * names those that must complete before it begins, `standsAs` is what to say where it stands still (`core/pause`).
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

/** What was used since `before`. */
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

/** Whether the system prompt of a task's session has what a fresh agent is told. */
export const isBriefed = (task: Task): boolean =>
  !isUnattended(task) && (task.fork === undefined || task.fork.briefed === true)

/** The machine that a task works on where that is another one: all places of other names are such. */
export const machineOf = ({ place }: Pick<Task, "place">): string | undefined =>
  place === undefined || place.kind === "worktree" ? undefined : place.kind

/** Agent, and the machine that it works on where that is another one. */
export const agentName = (task: Pick<Task, "agent" | "place">): string => {
  const machine = machineOf(task)
  return machine === undefined ? task.agent : `${task.agent} on ${machine}`
}

/** Tokens as `maxTokensPerTask` counts them: cache reads left out, which cost next to nothing. */
export const billedTokens = ({ input, output, reasoning, cacheWrite }: Usage): number =>
  input + output + reasoning + cacheWrite
