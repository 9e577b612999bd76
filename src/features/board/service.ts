import type { PauseKind } from "../../core/pause.ts"
import type { NamedReport, ReportHead } from "./purse/report.ts"
import type {
  BoardTask,
  NewStep,
  NewSubtask,
  NewTask,
  PurseTerms,
  Resource,
  StepPatch,
  TaskPatch,
  TaskState,
} from "./task.ts"

/** Author of a change: an agent in a session, or a user. */
export type Actor =
  | { readonly kind: "agent"; readonly agent: string; readonly sessionID: string; readonly messageID?: string }
  | { readonly kind: "user" }

export const USER: Actor = Object.freeze({ kind: "user" })

/**
 * `invalid`: wrong argument. `not found`: no such task, step or resource. `conflict`: forbidden in this state.
 * `unavailable`: the files cannot be read or written.
 */
export type BoardErrorCode = "invalid" | "not found" | "conflict" | "unavailable"

/** An error for the reader: what happened, what was expected, what to do next. */
export class BoardError extends Error {
  override readonly name = "BoardError"
  readonly code: BoardErrorCode
  constructor(code: BoardErrorCode, message: string) {
    super(message)
    this.code = code
  }
}

/** Result of a change that archived tasks: the requested one, those canceled with it, and open subtasks. */
export type Archived = {
  readonly task: BoardTask
  /** Subtasks at any depth that were canceled with it. */
  readonly canceled: readonly BoardTask[]
  /** Subtasks that stay open. */
  readonly open: readonly BoardTask[]
}

/** Owner and state of a step's subtask, or how it ended. */
export type Subtasks = (id: string) => { readonly owner: string; readonly text: string } | undefined

/** An agent that may own tasks. */
export type BoardAgent = { readonly name: string; readonly description: string }

/** State of a purse. Times are ISO, amounts US dollars. */
export type PurseView = Readonly<Record<PauseKind, number>> & {
  readonly max: number
  readonly spent: number
  readonly atLeast: boolean
  readonly openedAt: string
  readonly until: string
  /** Active runs; numbers of paused ones stand beside it, by kind. */
  readonly atWork: number
  /** Example: `$1.20 of $5.00 until 07:00, 3 at work`. */
  readonly text: string
}

/** API of the board's purse. Promises may reject with a `BoardError`. */
export interface Purses {
  /** The open purse. */
  view(): Promise<PurseView | undefined>
  open(given: PurseTerms, by: Actor): Promise<PurseView>
  /** Closes the purse: its runs are stopped, and the report is written shortly after. */
  close(by: Actor): Promise<void>
  /** Newest first. */
  reports(): Promise<readonly ReportHead[]>
  report(name: string): Promise<NamedReport>
}

/**
 * API of the board for tools, terminal, page and HTTP. Input has the form that the schemas in `task.ts` give it.
 * Results are frozen, and promises reject with `BoardError` only.
 */
export interface Board {
  /** Tasks that are not archived, oldest first. */
  list(): Promise<readonly BoardTask[]>
  /** An open or archived task (with `archivedAt`). */
  get(id: string): Promise<BoardTask>
  /** Archived tasks, newest first; default 20. */
  history(limit?: number): Promise<readonly BoardTask[]>

  create(input: NewTask, by: Actor): Promise<BoardTask>
  update(id: string, patch: TaskPatch, by: Actor): Promise<Archived>
  complete(id: string, by: Actor): Promise<Archived>
  cancel(id: string, by: Actor): Promise<Archived>

  /** Replaces the plan. */
  updateSteps(id: string, steps: readonly NewStep[], by: Actor): Promise<BoardTask>
  updateStep(id: string, index: number, patch: StepPatch, by: Actor): Promise<BoardTask>
  createSubtask(
    id: string,
    index: number,
    input: NewSubtask,
    by: Actor,
  ): Promise<{ readonly parent: BoardTask; readonly subtask: BoardTask }>
  addResource(id: string, resource: Resource, by: Actor): Promise<BoardTask>
  removeResource(id: string, index: number, by: Actor): Promise<BoardTask>
  /** Shows the user a message; only from a task's thread. */
  notifyUser(message: string, by: Actor): Promise<BoardTask>

  /** Starts the task as it is; rejects with the reason. For users only. */
  run(id: string): Promise<void>
  /** Marks the present state of all tasks as trusted, outside edits included. For users only. */
  accept(): Promise<void>
  /** Tasks of a missing file, oldest first, kept until a user restores them or gives them up. */
  lost(): readonly BoardTask[]
  /** Restores tasks and history. For users only. */
  restore(): Promise<void>
  /** Gives up the tasks of a missing file. For users only. */
  forget(): Promise<void>

  /** Budget and deadline for the board's work. */
  readonly purse: Purses

  /** `task` must be freshly read. Never throws. */
  state(task: BoardTask): TaskState
  /** Subtasks of a task's steps. */
  subtasksIn(task: BoardTask): Promise<Subtasks>
  /** Agents that may own tasks. */
  agents(): Promise<readonly BoardAgent[]>
  /** Ids of tasks with an active or queued run. */
  inFlight(): readonly string[]
  /** Called without details whenever tasks or states may have changed. Returns the unsubscribe function. */
  subscribe(listener: () => void): () => void
}
