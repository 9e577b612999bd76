import type { Usage } from "../../core/task.ts"
import { DAY_MS } from "../../lib/format.ts"
import type { StoredReport } from "./purse/report.ts"
import type { BoardTask } from "./task.ts"

export type WakeCause = "created" | "activated" | "subtask" | "hand" | "clock"

/** A pending wake, until a run has begun after it. `at`: ISO time. */
type Wake = { readonly at: string; readonly cause: WakeCause }

/** Stored run state of a task. Whether a run is active is not stored, because the task manager knows that. */
export type TaskRunState = {
  readonly wake?: Wake
  /** Start of the last run whose end is recorded, an ISO time. */
  readonly ran?: string
  /** `failures`: number of consecutive failed runs. `failure`: reason of the last failure. */
  readonly failures?: number
  readonly failure?: string
  /** Why no run may begin for lack of budget, although one is due. */
  readonly budget?: string
  /** Number of consecutive runs in a purse that changed nothing. */
  readonly idle?: number
  /** Why a user is needed, until somebody writes in the thread. */
  readonly needs?: string
}

/** Budget and deadline for the board's work. Times are ISO. */
export type Purse = {
  /** Most money that the purse may spend, in US dollars. */
  readonly max: number
  readonly openedAt: string
  readonly until: string
  /** Session whose agent opened the purse; absent where a user or the option opened it. */
  readonly by?: string
  /** Set once a user or an agent has closed the purse, which then ends soon. */
  readonly closed?: true
  readonly threads: Readonly<Record<string, PaidThread>>
  /** Set while the purse is over and its report is not written yet. */
  readonly ending?: PurseEnd
}

/** A session that a purse pays. */
type PaidThread = {
  /** Id of the board task whose thread the session is. */
  readonly id: string
  /** Usage of the session before the purse paid for it. */
  readonly before: Usage
  /** `runs`: number of runs that the purse paid. `seen`: start of the newest run considered, an ISO time. */
  readonly runs: number
  readonly seen?: string
}

export type PurseEnd = {
  readonly at: string
  readonly why: StoredReport["why"]
  /** Name of the report. */
  readonly name: string
  /** By task id: whether the task's run was paused, waited for an answer or had not begun when the purse ended. */
  readonly stopped: Readonly<
    Record<string, { readonly parked?: string; readonly ask?: string; readonly unbegun?: true }>
  >
}

type OwedReport = { readonly sessionID: string; readonly report: string }

/** State of the board, changed in a single write. */
export type BoardState = {
  readonly tasks: readonly BoardTask[]
  /** Id for the next task, greater than every id used so far. */
  readonly nextId: number
  /** Last round of the schedule, an ISO time. */
  readonly tick?: string
  /** The open purse. */
  readonly purse?: Purse
  /** Set after a purse. `until`: time until which rounds are off; `spent`: whether the purse's budget was used up. */
  readonly quiet?: { readonly until: string; readonly spent: boolean }
  /** Reports of the last purses, oldest first. */
  readonly purseReports?: readonly StoredReport[]
  /** Reports not yet delivered to the sessions that opened the purses, oldest first. */
  readonly owed?: readonly OwedReport[]
  /** Start of the night for which the option last opened a purse, an ISO time. */
  readonly night?: string
  /** Stored run states of tasks, by task id. */
  readonly pulses: Readonly<Record<string, TaskRunState>>
  /**
   * Tasks with outside edits, which only a user can start. By id: the task's trusted version, or null for a new task.
   */
  readonly outside: Readonly<Record<string, BoardTask | null>>
  /** Tasks of a missing file, until a user restores them or gives them up. */
  readonly lost: readonly BoardTask[]
}

export const EMPTY: BoardState = Object.freeze({ tasks: [], nextId: 1, pulses: {}, outside: {}, lost: [] })

/**
 * Runs of other processes are searched only in sessions that changed within this time. The session of an active run is
 * written every few minutes.
 */
export const LOOK_BACK_MS = DAY_MS

/** A task rests after this many runs of a purse in a row without a change. */
export const MOST_IDLE = 2

/**
 * A task rests after this many failed runs in a row. A user's message, a user's start or a change that its run did not
 * make ends the rest.
 */
export const MOST_FAILURES = 3

export const findTask = (state: BoardState, id: string): BoardTask | undefined =>
  state.tasks.find((task) => task.id === id)

/** Filters a record by task id. */
export const keeping = <Value>(record: Readonly<Record<string, Value>>, isKept: (id: string) => boolean) =>
  Object.fromEntries(Object.entries(record).filter(([id]) => isKept(id)))

export const runStateOf = (state: BoardState, id: string): TaskRunState => state.pulses[id] ?? {}

/** Whether a task has an outside edit and waits for a user. */
export const isUnverified = (state: BoardState, id: string): boolean => Object.hasOwn(state.outside, id)

/** Trusted version of a task, before an outside edit; undefined for a new one. */
export const trustedVersion = (state: BoardState, task: BoardTask): BoardTask | undefined =>
  isUnverified(state, task.id) ? (state.outside[task.id] ?? undefined) : task

/**
 * Parent of a subtask. A task whose trusted steps name the subtask is preferred to a task that an outside edit has
 * linked.
 */
export function parentOf(state: BoardState, id: string): BoardTask | undefined {
  const links = ({ steps }: BoardTask) => steps.some((step) => step.taskId === id)
  return (
    state.tasks.find((task) => {
      const known = trustedVersion(state, task)
      return known !== undefined && links(known)
    }) ?? state.tasks.find(links)
  )
}

/** Open subtasks of a task. */
export const subtasksOf = (state: BoardState, task: BoardTask): readonly BoardTask[] =>
  task.steps.flatMap(({ taskId }) => (taskId === undefined ? [] : (findTask(state, taskId) ?? [])))

/** Open subtask of the task's next open step; undefined for none. The task waits for this subtask. */
export function waitsFor(state: BoardState, task: BoardTask): BoardTask | undefined {
  const next = task.steps.find(({ done }) => !done)
  return next?.taskId === undefined ? undefined : findTask(state, next.taskId)
}

/** Whether rounds skip a task because it waits for a user or a subtask, or rests after failures. */
export function isSkippedByRounds(state: BoardState, task: BoardTask): boolean {
  const { needs, failures = 0 } = runStateOf(state, task.id)
  return (
    isUnverified(state, task.id) ||
    needs !== undefined ||
    failures >= MOST_FAILURES ||
    waitsFor(state, task) !== undefined
  )
}

/** Freezes a task before a caller gets it, because board objects must not be changed in place. */
export function frozen(task: BoardTask): BoardTask {
  if (Object.isFrozen(task)) return task
  for (const part of [...task.steps, ...task.resources, task.steps, task.resources]) Object.freeze(part)
  return Object.freeze(task)
}
