import type { BoardAgent, PurseView } from "../../board/service.ts"
import type { BoardTask, TaskState } from "../../board/task.ts"

/** A board task with its current state. */
export type TaskRow = BoardTask & Pick<TaskState, "state" | "reason"> & { readonly stateText: string }

/** State of the board's purse. */
export type PurseState = { readonly open: false } | ({ readonly open: true } & PurseView)

export type TaskList = {
  readonly tasks: readonly TaskRow[]
  readonly agents: readonly BoardAgent[]
  readonly inFlight: readonly string[]
  /** Number of tasks of a missing file, kept until a user decides. */
  readonly lost?: number
  /** The open purse. */
  readonly purse?: PurseView
}

/** Result of a change that ends tasks. */
export type Ended = TaskRow & { readonly canceled: readonly string[]; readonly open: readonly string[] }

declare module "../wire.ts" {
  interface PageSnapshot {
    /** Absent where the board is off; `problem` where it cannot be read. */
    readonly board?: TaskList & { readonly problem?: string }
  }
  interface Delta {
    readonly tasks?: readonly TaskRow[]
    readonly tasksGone?: readonly string[]
    readonly owners?: readonly BoardAgent[]
    readonly inFlight?: readonly string[]
    readonly lost?: number
    /** Null: no purse is open any more. */
    readonly purse?: PurseView | null
    /** Changes whenever a task was archived, also between two events. */
    readonly ended?: string
    /** Empty: the board can be read again. */
    readonly problem?: string
  }
}
