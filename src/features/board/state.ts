import { DAY_MS } from "../../core/bill.ts"
import type { PauseKind } from "../../core/pause.ts"
import type { Usage } from "../../core/task.ts"
import type { KeptReport } from "./purse/report.ts"
import type { BoardTask } from "./task.ts"

/** Why a task's owner is to be woken. */
export type WakeCause = "created" | "activated" | "subtask" | "hand" | "clock"

/** A wake is kept, once, until a run has begun after it. `at` is an ISO time. */
type Wake = { readonly at: string; readonly cause: WakeCause }

/** What has to be remembered of a task beyond a restart. That it runs is not: the manager knows that. */
export type Pulse = {
  readonly wake?: Wake
  /** When the last run began whose end is known here, an ISO time. */
  readonly ran?: string
  /** Failed runs in a row, and what was said of the last one. */
  readonly failures?: number
  readonly failure?: string
  /** Why no run may begin although the task is to be woken: what may be spent is spent. */
  readonly budget?: string
  /** Runs of a purse in a row that changed nothing of the task. */
  readonly idle?: number
  /** What a person is needed for, until somebody writes in the thread. */
  readonly needs?: string
}

/** Money and a deadline in which the board is worked on. Times are ISO. */
export type Purse = {
  /** In US dollars. */
  readonly max: number
  readonly openedAt: string
  readonly until: string
  /** The session that opened it. */
  readonly by?: string
  /** It is to end. */
  readonly closed?: true
  readonly threads: Readonly<Record<string, PaidThread>>
  /** It has come to its end: its report is to be written. */
  readonly ending?: PurseEnd
}

/** A session that a purse pays. */
type PaidThread = {
  /** Of the task that is worked on there. */
  readonly id: string
  /** What the session had taken before. */
  readonly before: Usage
  /** The runs that were paid, and when the newest one began that has been looked at, an ISO time. */
  readonly runs: number
  readonly seen?: string
}

export type PurseEnd = {
  readonly at: string
  readonly why: "closed" | "time" | "money" | "nothing left"
  /** Of the report. */
  readonly name: string
  /** By task id, what was stopped that stood still, by the word for that, or waited for an answer; and what had not begun. */
  readonly stopped: Readonly<
    Record<string, { readonly [In in PauseKind]?: string } & { readonly ask?: string; readonly unbegun?: true }>
  >
}

/** The whole board. All of it changes in one write. */
export type BoardState = {
  readonly tasks: readonly BoardTask[]
  /** More than any id ever used. */
  readonly nextId: number
  /** The last round of the clock, an ISO time. */
  readonly tick?: string
  /** The one that is open. */
  readonly purse?: Purse
  /** After one has ended: until when the clock stays silent, and whether its money was used up. */
  readonly quiet?: { readonly until: string; readonly spent: boolean }
  /** Of the last purses, oldest first. */
  readonly purseReports?: readonly KeptReport[]
  /** A report that the session which opened the purse is still to be told. */
  readonly owed?: { readonly sessionID: string; readonly report: string }
  /** When the purse of the last night was opened by the option. */
  readonly night?: string
  /** By task id. */
  readonly pulses: Readonly<Record<string, Pulse>>
  /**
   * The tasks that another hand wrote or changed, by id, with what was believed of them before; null for one that is
   * new. They wait for a person: neither clock nor event nor agent starts them.
   */
  readonly outside: Readonly<Record<string, BoardTask | null>>
  /** The tasks of a board whose file has gone, until a person brings them back or lets them go. */
  readonly lost: readonly BoardTask[]
}

export const EMPTY: BoardState = Object.freeze({ tasks: [], nextId: 1, pulses: {}, outside: {}, lost: [] })

/** How far back another process's runs are looked for: one that goes on has its session written to every few minutes. */
export const LOOK_BACK_MS = DAY_MS

/** After so many runs in a row that changed nothing a task rests while a purse is open. */
export const MOST_IDLE = 2

/** After so many failed runs in a row a task rests until it is touched. */
export const MOST_FAILURES = 3

export const findTask = (state: BoardState, id: string): BoardTask | undefined =>
  state.tasks.find((task) => task.id === id)

/** What is remembered by task id, of some of the tasks alone. */
export const keeping = <Value>(record: Readonly<Record<string, Value>>, isKept: (id: string) => boolean) =>
  Object.fromEntries(Object.entries(record).filter(([id]) => isKept(id)))

export const pulseOf = (state: BoardState, id: string): Pulse => state.pulses[id] ?? {}

/** Whether a task waits for a person because another hand wrote or changed it. */
export const isUnverified = (state: BoardState, id: string): boolean => Object.hasOwn(state.outside, id)

/** A task as it is believed: before another hand changed it, where one did; undefined where nothing of it is. */
export const believed = (state: BoardState, task: BoardTask): BoardTask | undefined =>
  isUnverified(state, task.id) ? (state.outside[task.id] ?? undefined) : task

/** The task whose step this one does. A link that is believed comes before one that a hand has drawn. */
export function parentOf(state: BoardState, id: string): BoardTask | undefined {
  const links = ({ steps }: BoardTask) => steps.some((step) => step.taskId === id)
  return (
    state.tasks.find((task) => {
      const known = believed(state, task)
      return known !== undefined && links(known)
    }) ?? state.tasks.find(links)
  )
}

/** The subtasks of a task that are not archived. */
export const subtasksOf = (state: BoardState, task: BoardTask): readonly BoardTask[] =>
  task.steps.flatMap(({ taskId }) => (taskId === undefined ? [] : (findTask(state, taskId) ?? [])))

/** The subtask that the next open step waits for. */
export function waitsFor(state: BoardState, task: BoardTask): BoardTask | undefined {
  const next = task.steps.find(({ done }) => !done)
  return next?.taskId === undefined ? undefined : findTask(state, next.taskId)
}

/** Whether the clock passes this task by: it waits for somebody or something, or rests. */
export function isHeld(state: BoardState, task: BoardTask): boolean {
  const { needs, failures = 0 } = pulseOf(state, task.id)
  return (
    isUnverified(state, task.id) ||
    needs !== undefined ||
    failures >= MOST_FAILURES ||
    waitsFor(state, task) !== undefined
  )
}

/** What is on the board is never changed in place: it is frozen where it stands, once, when it is handed out. */
export function frozen(task: BoardTask): BoardTask {
  if (Object.isFrozen(task)) return task
  for (const part of [...task.steps, ...task.resources, task.steps, task.resources]) Object.freeze(part)
  return Object.freeze(task)
}
