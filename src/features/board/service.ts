import type { PauseKind } from "../../core/pause.ts"
import type { NamedReport, ReportHead } from "./purse/report.ts"
import type { BoardTask, NewStep, NewTask, Resource, TaskPatch, TaskState } from "./task.ts"

/** Who asks for a change: an agent, from its session, or a person, from screen, page or HTTP. */
export type Actor =
  | { readonly kind: "agent"; readonly agent: string; readonly sessionID: string; readonly messageID?: string }
  | { readonly kind: "user" }

export const USER: Actor = Object.freeze({ kind: "user" })

export type StepPatch = Partial<NewStep>

export type NewSubtask = Pick<NewTask, "title" | "description"> & { readonly owner: string }

/**
 * Why a call was refused. `invalid`: an argument is wrong. `not found`: no such task, step or resource. `conflict`: the
 * state forbids it. `unavailable`: the board's files cannot be read or written.
 */
export type BoardErrorCode = "invalid" | "not found" | "conflict" | "unavailable"

/** The text is for the reader: what happened, what was expected, what to do next. */
export class BoardError extends Error {
  override readonly name = "BoardError"
  readonly code: BoardErrorCode
  constructor(code: BoardErrorCode, message: string) {
    super(message)
    this.code = code
  }
}

/** A change that ended tasks: the one asked for, what went with it, and which of its subtasks still run. */
export type Archived = {
  readonly task: BoardTask
  /** Subtasks that were canceled with it, at any depth. */
  readonly canceled: readonly BoardTask[]
  /** Subtasks that go on although it is done. */
  readonly open: readonly BoardTask[]
}

/** A step's subtask: its owner and state, or how it ended. */
export type Subtasks = (id: string) => { readonly owner: string; readonly text: string } | undefined

/** An agent that may own tasks. */
export type BoardAgent = { readonly name: string; readonly description: string }

/** The most archived tasks that are read at once. */
export const MOST_HISTORY = 1000

/** A purse as it stands. Times are ISO, amounts US dollars. */
export type PurseView = Readonly<Record<PauseKind, number>> & {
  readonly max: number
  readonly spent: number
  readonly atLeast: boolean
  readonly openedAt: string
  readonly until: string
  /** Runs that go on; beside it stands, by the word for each way of standing still, how many stand so. */
  readonly atWork: number
  /** `$1.20 of $5.00 until 07:00, 3 at work`. */
  readonly text: string
}

/** What can be done with the board's purse. Every promise may reject with a `BoardError`. */
export interface Purses {
  /** The one that is open. */
  view(): Promise<PurseView | undefined>
  /** `until`: a time of day, or an ISO time; what is not of this form is told in an error. */
  open(given: { readonly max: unknown; readonly until: unknown }, by: Actor): Promise<PurseView>
  /** Its runs are stopped, and its report is written a moment later. */
  close(by: Actor): Promise<void>
  /** Newest first. */
  reports(): Promise<readonly ReportHead[]>
  report(name: string): Promise<NamedReport>
}

/**
 * Everything that can be done with the board, for tools, screen, page and HTTP alike. All that comes back is a frozen
 * snapshot; ids are taken with or without `#`. Every promise may reject with a `BoardError`, and with nothing else.
 */
export interface Board {
  /** The tasks that are not archived, oldest first. */
  list(): Promise<readonly BoardTask[]>
  /** A task, of history too (then with `archivedAt`). */
  get(id: string): Promise<BoardTask>
  /** Archived tasks, newest first; 20 unless said. */
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
  /** Reaches the person; only from a task's thread. */
  notifyUser(message: string, by: Actor): Promise<BoardTask>

  /** Has the owner work on it now, as it stands there; rejects with the reason why not. For a person alone. */
  run(id: string): Promise<void>
  /** Believes all tasks as they stand there, whoever wrote them. For a person alone. */
  accept(): Promise<void>
  /** The tasks of a board whose file has gone, oldest first. They are kept until a person wants them back or not. */
  lost(): readonly BoardTask[]
  /** Brings them back, with the history. For a person alone. */
  restore(): Promise<void>
  /** Lets them go. For a person alone. */
  forget(): Promise<void>

  /** Money and a deadline in which the board is worked on. */
  readonly purse: Purses

  /** Of a task as just read. Never throws. */
  state(task: BoardTask): TaskState
  /** What is known of the subtasks of a task's steps. */
  subtasksIn(task: BoardTask): Promise<Subtasks>
  /** The agents that may own tasks. */
  agents(): Promise<readonly BoardAgent[]>
  /** The ids of the tasks that run or are queued to run. */
  inFlight(): readonly string[]
  /** Called (without news: read again) whenever tasks or their states may have changed. Returns the end of it. */
  subscribe(listener: () => void): () => void
}

export type { BoardTask, NewStep, NewTask, Resource, TaskPatch, TaskState }
