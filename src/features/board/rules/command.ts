import type { Usage } from "../../../core/task.ts"
import type { KeptReport } from "../purse/report.ts"
import type { Actor } from "../service.ts"
import type { BoardState, PurseEnd } from "../state.ts"
import type {
  ArchivedTask,
  BoardStatus,
  BoardTask,
  NewStep,
  NewSubtask,
  NewTask,
  Resource,
  StepPatch,
  TaskPatch,
} from "../task.ts"

/** Id and thread of a new task, created before it is added to the board. */
type Prepared = { readonly as?: string; readonly threadId?: string }

/** Changes of a board. */
export type BoardCommand =
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
  /** A user wrote in the task's thread. */
  | { readonly type: "written"; readonly threadId: string }
  /** A missing thread was created. */
  | { readonly type: "thread"; readonly id: string; readonly threadId: string }
  /** A user starts the task as it is. */
  | { readonly type: "run"; readonly id: string }
  /** A user trusts the whole board as it is, including outside edits. */
  | { readonly type: "accept" }
  /** A user restores the tasks of a missing file, or gives them up. */
  | { readonly type: "restore" | "forget" }
  /** A run that began at `startedAt`, an ISO time, has ended. */
  | { readonly type: "ran"; readonly id: string; readonly startedAt: string; readonly result: RunResult }
  /** Reasons for tasks that may not run for lack of budget; tasks without one may. */
  | { readonly type: "refused"; readonly reasons: Readonly<Record<string, string>> }
  /** A round of the schedule. */
  | { readonly type: "tick" }
  /** `until`: a time of day, or an ISO time. `night`: opened by the option, for the night that began then. */
  | {
      readonly type: "open purse"
      readonly max: number
      readonly until: string
      readonly by: Actor
      readonly night?: string
      /** Spending of the open purse, for the error text. */
      readonly spent?: number
    }
  | { readonly type: "close purse"; readonly by: Actor }
  /** The purse pays a session with earlier usage `before`. `run`: its newest run, and whether the purse pays it. */
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
  /** Completes interrupted moves: tasks that are archived, or have ended, and are still on the board. */
  | { readonly type: "settle"; readonly archived: readonly ArchivedTask[] }

/**
 * `needs`: question that was not answered in time. `unbegun`: interrupted before the model was called, so the run is
 * still due.
 */
export type RunResult = { readonly needs?: string } & (
  | { readonly kind: "completed" | "stopped" | "unbegun" }
  | { readonly kind: "failed"; readonly reason: string }
)

/** Facts beside the board that the rules need. */
export type BoardFacts = {
  /** ISO time. */
  readonly now: string
  /** Agents that may own tasks. */
  readonly agents: readonly string[]
  /** Whether a run of the task is active or queued. */
  readonly isRunning: (id: string) => boolean
  /** Status of an archived task. */
  readonly ended: (id: string) => BoardStatus | undefined
}

/** `state` is the same object where nothing changed. `archived` is written to history first, in order. */
export type BoardChange = {
  readonly state: BoardState
  /** The changed task. */
  readonly task?: BoardTask
  /** The new subtask. */
  readonly subtask?: BoardTask
  readonly archived: readonly ArchivedTask[]
}

export type CommandOf<Type extends BoardCommand["type"]> = Extract<BoardCommand, { type: Type }>
