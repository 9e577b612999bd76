import type { BoardAgent, PurseView } from "../../board/service.ts"
import type { BoardTask, TaskState } from "../../board/task.ts"

/** A board task with its current state. `seen`: digest of its text, which comes back with a start. */
export type TaskRow = BoardTask &
  Pick<TaskState, "state" | "reason"> & { readonly stateText: string; readonly seen: string }

/** State of the board's purse. */
export type PurseState = { readonly open: false } | ({ readonly open: true } & PurseView)

export type TaskList = {
  readonly tasks: readonly TaskRow[]
  readonly agents: readonly BoardAgent[]
  readonly inFlight: readonly string[]
  /** Number of board tasks in a file that is missing now. They are kept until a user decides. */
  readonly lost?: number
  readonly purse?: PurseView
}

/** Result of a change that ends tasks. */
export type Ended = TaskRow & { readonly canceled: readonly string[]; readonly open: readonly string[] }

declare module "../wire.ts" {
  interface AgentRow {
    /** Number of the board task in whose thread this run works. */
    readonly boardTask?: string
  }
  interface PageSnapshot {
    /** The board; absent while it is off. `problem`: why it cannot be read. */
    readonly board?: TaskList & { readonly problem?: string }
  }
  interface Delta {
    readonly tasks?: readonly TaskRow[]
    readonly tasksGone?: readonly string[]
    readonly owners?: readonly BoardAgent[]
    readonly inFlight?: readonly string[]
    readonly lost?: number
    /** Null if no purse is open any more. */
    readonly purse?: PurseView | null
    /** Value that changes whenever a board task was archived, even between two events. */
    readonly ended?: string
    /** Why the board cannot be read; empty once it can be read again. */
    readonly problem?: string
  }
}
