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

/** Error whose message tells the reader what happened, what was expected and what to do next. */
export class BoardError extends Error {
  override readonly name = "BoardError"
  readonly code: BoardErrorCode
  constructor(code: BoardErrorCode, message: string) {
    super(message)
    this.code = code
  }
}

/**
 * Result of a change that archived a task: the task, the subtasks canceled with it, and the subtasks that stay open.
 */
export type Archived = {
  readonly task: BoardTask
  /** Subtasks at any depth that were canceled with the task. */
  readonly canceled: readonly BoardTask[]
  /** Subtasks that stay open. */
  readonly open: readonly BoardTask[]
}

/** Returns the owner of a step's subtask, and the subtask's state or how it ended. */
export type Subtasks = (id: string) => { readonly owner: string; readonly text: string } | undefined

/** An agent that may own tasks. */
export type BoardAgent = { readonly name: string; readonly description: string }

/** State of a purse. Times are ISO, amounts US dollars. */
export type PurseView = {
  readonly max: number
  readonly spent: number
  readonly atLeast: boolean
  readonly openedAt: string
  readonly until: string
  /** Numbers of active runs that are not paused, and of paused runs. */
  readonly atWork: number
  readonly parked: number
  /** Example: `$1.20 of $5.00 until 07:00, 3 at work`. */
  readonly text: string
}

/** API of the board's purse. Promises may reject with a `BoardError`. */
export interface Purses {
  /** Returns the open purse; undefined without one. */
  view(): Promise<PurseView | undefined>
  /** Opens a purse. Returns undefined if the purse had nothing to do and has ended already. */
  open(given: PurseTerms, by: Actor): Promise<PurseView | undefined>
  /** Closes the purse. Shortly after, the scheduler stops the purse's runs and writes the report. */
  close(by: Actor): Promise<void>
  /** Reports of ended purses, newest first. */
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
  /** `seen`, here and below: digests of the texts that the user was shown (`textDigest`). No other text becomes trusted. */
  update(id: string, patch: TaskPatch, by: Actor, seen?: readonly string[]): Promise<Archived>
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
  /** Shows the user a message. Only an agent in a task's thread may call this. */
  notifyUser(message: string, by: Actor): Promise<BoardTask>

  /**
   * For users only: starts the task and thereby trusts its present text. Rejects with the reason where the task cannot
   * start.
   */
  run(id: string, seen?: readonly string[]): Promise<void>
  /** Marks the present state of all tasks as trusted, outside edits included. For users only. */
  accept(seen?: readonly string[]): Promise<void>
  /** Tasks of a missing file, oldest first, kept until a user restores them or gives them up. */
  lost(): readonly BoardTask[]
  /** Restores the tasks of a missing file, and the history. For users only. */
  restore(): Promise<void>
  /** Gives up the tasks of a missing file. For users only. */
  forget(): Promise<void>

  /** Budget and deadline for the board's work. */
  readonly purse: Purses

  /** State of a task, which the caller must have freshly read. Never throws. */
  state(task: BoardTask): TaskState
  /** Subtasks of a task's steps. */
  subtasksIn(task: BoardTask): Promise<Subtasks>
  /** Agents that may own tasks. */
  agents(): Promise<readonly BoardAgent[]>
  /** Ids of tasks with an active or queued run. */
  inFlight(): readonly string[]
  /**
   * Adds a listener, which is called without details whenever tasks or states may have changed. Returns the function
   * that removes the listener.
   */
  subscribe(listener: () => void): () => void
}
