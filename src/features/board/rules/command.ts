import type { Usage } from "../../../core/task.ts"
import type { KeptReport } from "../purse/report.ts"
import type { Actor, BoardErrorCode, NewStep, NewSubtask, NewTask, StepPatch, TaskPatch } from "../service.ts"
import type { BoardState, PurseEnd } from "../state.ts"
import type { BoardStatus, BoardTask, Resource } from "../task.ts"
import type { ArchivedTask } from "./archive.ts"

/** A new task's id, and the session that was made for it, both before it stands on the board. */
type Prepared = { readonly as?: string; readonly threadId?: string }

/** What may be done with a board. */
export type Command =
  | ({ readonly type: "create"; readonly input: NewTask; readonly by: Actor } & Prepared)
  | { readonly type: "update"; readonly id: string; readonly patch: TaskPatch; readonly by: Actor }
  | { readonly type: "complete"; readonly id: string; readonly by: Actor }
  | { readonly type: "cancel"; readonly id: string; readonly by: Actor }
  | { readonly type: "update steps"; readonly id: string; readonly steps: readonly NewStep[]; readonly by: Actor }
  | {
      readonly type: "update step"
      readonly id: string
      readonly index: number
      readonly patch: StepPatch
      readonly by: Actor
    }
  | ({
      readonly type: "create subtask"
      readonly id: string
      readonly index: number
      readonly input: NewSubtask
      readonly by: Actor
    } & Prepared)
  | { readonly type: "add resource"; readonly id: string; readonly resource: Resource; readonly by: Actor }
  | { readonly type: "remove resource"; readonly id: string; readonly index: number; readonly by: Actor }
  | { readonly type: "notify"; readonly message: string; readonly by: Actor }
  /** Somebody wrote in a task's thread. */
  | { readonly type: "written"; readonly threadId: string }
  /** A thread that was missing has been made. */
  | { readonly type: "thread"; readonly id: string; readonly threadId: string }
  /** A person wants the task worked on now, as it stands there. */
  | { readonly type: "run"; readonly id: string }
  /** A person has looked at the board and believes all of it, whoever wrote it. */
  | { readonly type: "accept" }
  /** A person wants the tasks back whose file has gone, or lets them go. */
  | { readonly type: "restore" | "forget" }
  /** A run has ended that began at `startedAt`, an ISO time. */
  | { readonly type: "ran"; readonly id: string; readonly startedAt: string; readonly result: RunResult }
  /** Why runs of tasks may not begin now, by task id, by the limits on what is spent; none of all others. */
  | { readonly type: "refused"; readonly reasons: Readonly<Record<string, string>> }
  /** A round of the clock. */
  | { readonly type: "tick" }
  /** `until`: a time of day, or an ISO time. `night`: it is the option that opens it, for the night that began then. */
  | {
      readonly type: "open purse"
      readonly max: number
      readonly until: string
      readonly by: Actor
      readonly night?: string
      /** Of the one that is open, for the refusal. */
      readonly spent?: number
    }
  | { readonly type: "close purse"; readonly by: Actor }
  /** A session is paid from the purse, which had taken `before`. `run`: the newest one there, and whether it is the purse's. */
  | {
      readonly type: "pay"
      readonly id: string
      readonly threadId: string
      readonly before: Usage
      readonly run?: { readonly began: string; readonly counts: boolean }
    }
  | { readonly type: "end purse"; readonly why: PurseEnd["why"]; readonly stopped: PurseEnd["stopped"] }
  | { readonly type: "purse ended"; readonly report: KeptReport }
  | { readonly type: "purse told" }
  /** Finishes what a killed process or a hand has left: tasks that stand in history, or have ended, and are still here. */
  | { readonly type: "settle"; readonly archived: readonly ArchivedTask[] }

/** `needs`: what nobody answered in time. `unbegun`: interrupted before the model was asked; it is owed still. */
export type RunResult = { readonly needs?: string } & (
  | { readonly kind: "completed" | "stopped" | "unbegun" }
  | { readonly kind: "failed"; readonly reason: string }
)

/** What the rules have to know of the world beside the board. */
export type Facts = {
  /** An ISO time. */
  readonly now: string
  /** The agents that may own tasks. */
  readonly agents: readonly string[]
  /** Whether a run of the task is under way or queued. */
  readonly isRunning: (id: string) => boolean
  /** How a task ended that stands in history. */
  readonly ended: (id: string) => BoardStatus | undefined
}

/** `state` is the very same where nothing has changed. `archived` goes to history first, in this order. */
export type Change = {
  readonly ok: true
  readonly state: BoardState
  /** The task that the command was about, as it is now. */
  readonly task?: BoardTask
  /** The subtask that was made. */
  readonly subtask?: BoardTask
  readonly archived: readonly ArchivedTask[]
}

export type Refusal = { readonly ok: false; readonly code: BoardErrorCode; readonly message: string }

/** The command of this type. */
export type Of<Type extends Command["type"]> = Extract<Command, { type: Type }>
