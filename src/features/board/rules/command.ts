import { listed, nearest } from "../../../core/errors.ts"
import type { Usage } from "../../../core/task.ts"
import { head } from "../../../lib/text.ts"
import type { StoredReport } from "../purse/report.ts"
import { type Actor, type Archived, BoardError } from "../service.ts"
import { type BoardState, findTask, frozen, isUnverified, keeping, type PurseEnd, subtasksOf } from "../state.ts"
import {
  type ArchivedTask,
  type BoardStatus,
  type BoardTask,
  type NewStep,
  type NewSubtask,
  type NewTask,
  type PlanStep,
  type Resource,
  type StepPatch,
  shownStatus,
  type TaskPatch,
} from "../task.ts"
import { resetFailures } from "./archive.ts"
import { textDigest } from "./verify.ts"

/** Id and thread of a new task. Both are created before the task is added to the board. */
type Prepared = { readonly as?: string; readonly threadId?: string }

/** `seen`: digests of the tasks' texts that the user was shown. Absent where the caller shows none. */
type Shown = { readonly seen?: readonly string[] }

type OnTask = { readonly id: string; readonly by: Actor }

/** Commands that change a board. */
export type BoardCommand =
  | ({ readonly type: "create"; readonly input: NewTask; readonly by: Actor } & Prepared)
  | ({ readonly type: "update"; readonly patch: TaskPatch } & OnTask & Shown)
  | ({ readonly type: "complete" } & OnTask)
  | ({ readonly type: "cancel" } & OnTask)
  | ({ readonly type: "update steps"; readonly steps: readonly NewStep[] } & OnTask)
  | ({ readonly type: "update step"; readonly index: number; readonly patch: StepPatch } & OnTask)
  | ({ readonly type: "create subtask"; readonly index: number; readonly input: NewSubtask } & OnTask & Prepared)
  | ({ readonly type: "add resource"; readonly resource: Resource } & OnTask)
  | ({ readonly type: "remove resource"; readonly index: number } & OnTask)
  | { readonly type: "notify"; readonly message: string; readonly by: Actor }
  /** A user wrote in the task's thread. */
  | { readonly type: "written"; readonly threadId: string }
  /** The plugin created a thread for a task that had no usable one. */
  | { readonly type: "thread"; readonly id: string; readonly threadId: string }
  /** A user starts the task and thereby trusts its present text. */
  | ({ readonly type: "run"; readonly id: string } & Shown)
  /** A user trusts the whole board as it is, including outside edits. */
  | ({ readonly type: "accept" } & Shown)
  /** A user restores the tasks of a missing file, or gives them up. */
  | { readonly type: "restore" }
  | { readonly type: "forget" }
  /** A run that began at `startedAt`, an ISO time, has ended. */
  | { readonly type: "ran"; readonly id: string; readonly startedAt: string; readonly result: RunResult }
  /** `reasons`: why a task may not run for lack of budget, by task id. Tasks without a reason may run. */
  | { readonly type: "refused"; readonly reasons: Readonly<Record<string, string>> }
  /** A round of the schedule begins. */
  | { readonly type: "tick" }
  /** `until`: a time of day, or an ISO time. `night`: start of the night for which the option opens the purse. */
  | {
      readonly type: "open purse"
      readonly max: number
      readonly until: string
      readonly by: Actor
      readonly night?: string
      /** Spending of a purse that is open already, for the text of the refusal. */
      readonly spent?: number
    }
  | { readonly type: "close purse"; readonly by: Actor }
  /**
   * The purse pays a session. `before`: the session's usage until then; `run`: the session's newest run, which the
   * purse pays where `counts` is set.
   */
  | {
      readonly type: "pay"
      readonly id: string
      readonly threadId: string
      readonly before: Usage
      readonly run?: { readonly began: string; readonly counts: boolean }
    }
  | { readonly type: "end purse"; readonly why: PurseEnd["why"]; readonly stopped: PurseEnd["stopped"] }
  | { readonly type: "purse ended"; readonly report: StoredReport }
  /** A report was delivered, or its session is gone. */
  | { readonly type: "purse told"; readonly report: string }
  /**
   * Removes tasks from the board that history contains already, and archives tasks that an edit of the file has ended.
   */
  | { readonly type: "settle"; readonly archived: readonly ArchivedTask[] }

/**
 * `needs`: question that nobody answered in time. `unbegun`: the task's own run has not reached the model, so it is
 * still due.
 */
export type RunResult = { readonly needs?: string } & (
  | { readonly kind: "completed" | "stopped" | "unbegun" }
  | { readonly kind: "failed"; readonly reason: string }
)

/** Facts that the rules need and that are not part of the board's state. */
export type BoardFacts = {
  /** ISO time. */
  readonly now: string
  /** Agents that may own tasks. */
  readonly agents: readonly string[]
  /** Whether a run of the task is active or queued. */
  readonly isRunning: (id: string) => boolean
  /** Status of an archived task; undefined for any other task. */
  readonly ended: (id: string) => BoardStatus | undefined
}

/**
 * Result of a command. `state` is the same object where nothing changed; `archived` is written to history first, in
 * order.
 */
export type BoardChange = {
  readonly state: BoardState
  /** The changed task. */
  readonly task?: BoardTask
  /** The new subtask. */
  readonly subtask?: BoardTask
  readonly archived: readonly ArchivedTask[]
}

export type CommandOf<Type extends BoardCommand["type"]> = Extract<BoardCommand, { type: Type }>

/** A rule for each command: pure, and a forbidden change throws a `BoardError` with its reason. */
export type Rules = {
  readonly [Type in BoardCommand["type"]]: (
    state: BoardState,
    command: CommandOf<Type>,
    facts: BoardFacts,
  ) => BoardChange
}

/** Returns the open task with this id. Otherwise throws an error that says how the task ended. */
export function openTask(state: BoardState, id: string, { ended }: BoardFacts): BoardTask {
  const task = findTask(state, id)
  if (task) return task
  const status = ended(id)
  if (status === undefined) throw noSuchTask(id)
  throw new BoardError(
    "conflict",
    `Task #${id} is ${shownStatus(status)} and stands in history, which does not change. Make a new task instead.`,
  )
}

export const noSuchTask = (id: string): BoardError =>
  new BoardError(
    "not found",
    `There is no task #${head(id, 40)}, neither open nor in history. Ids are numbers such as 5, as the lists of tasks show them.`,
  )

/** Returns `name` if this agent may own tasks; otherwise throws. */
export function ownerNamed(name: string, agents: readonly string[]): string {
  if (agents.includes(name)) return name
  const close = nearest(name, agents)
  const hint = close.length > 0 ? ` Did you mean: ${listed(close)}?` : ""
  throw new BoardError(
    "invalid",
    `"${name}" is not an agent that may own tasks.${hint} There are: ${listed(agents, 20)}.`,
  )
}

/** Returns the entry at an index, counted from 0. Throws where there is none. */
export function entryAt<Item>(what: string, entries: readonly Item[], index: number): Item {
  const entry = entries[index]
  if (entry !== undefined) return entry
  const there = entries.length === 0 ? `it has no ${what}s` : `its ${what}s are numbered 0 to ${entries.length - 1}`
  throw new BoardError("not found", `There is no ${what} ${index}: ${there}.`)
}

export const threadTask = (state: BoardState, threadId: string): BoardTask | undefined =>
  state.tasks.find((task) => task.threadId === threadId)

export const planStep = ({ title, details, done = false }: NewStep): PlanStep => ({
  title,
  ...(details && { details }),
  done,
})

export const changed = (state: BoardState, task: BoardTask, by: Actor, { now }: BoardFacts): BoardChange => {
  const next = { ...task, updatedAt: now }
  return changeTo(resetUnlessOwnRun(replaceTask(state, next), next, by), next)
}

/** Resets a task's failures after a change. Changes by the task's own run are its normal work and reset nothing. */
export const resetUnlessOwnRun = (state: BoardState, task: BoardTask, by: Actor): BoardState =>
  by.kind === "agent" && by.sessionID === task.threadId ? state : resetFailures(state, [task.id])

export const replaceTask = (state: BoardState, task: BoardTask): BoardState => ({
  ...state,
  tasks: state.tasks.map((each) => (each.id === task.id ? task : each)),
})

export const changeTo = (state: BoardState, task?: BoardTask): BoardChange => ({ archived: [], state, task })

export const nameOf = (by: Actor): string => (by.kind === "user" ? "user" : by.agent)

/** The changed task, frozen for callers. */
export const taskOf = ({ task }: BoardChange): BoardTask => frozen(task as BoardTask)

/** Result of a change that archived tasks. */
export function archivedBy(change: BoardChange): Archived {
  const [, ...canceled] = change.archived
  const task = taskOf(change)
  return Object.freeze({
    task,
    canceled: canceled.map(frozen),
    open: task.status === "done" ? subtasksOf(change.state, task).map(frozen) : [],
  })
}

/** The functions below make outside edits trusted, which only users may do. */

/** Makes the present text of tasks trusted. Throws where the file has another text by now than the user was shown. */
export function trustTasks(state: BoardState, tasks: readonly BoardTask[], { seen }: Shown): BoardState {
  const edited = new Set(tasks.filter(({ id }) => isUnverified(state, id)).map(({ id }) => id))
  if (edited.size === 0) return state
  const shown = seen && new Set(seen)
  const changed = tasks.find((task) => edited.has(task.id) && shown?.has(textDigest(task)) === false)
  if (changed) throw new BoardError("conflict", `Task #${changed.id} has changed since you saw it. Look at it again.`)
  return { ...state, outside: keeping(state.outside, (id) => !edited.has(id)) }
}

/** Makes all open tasks trusted as they are. No owner is woken: the tasks wait for the next round or a purse. */
export function accept(state: BoardState, shown: Shown): BoardChange {
  const edited = state.tasks.filter(({ id }) => isUnverified(state, id))
  const ids = edited.map(({ id }) => id)
  return changeTo(resetFailures(trustTasks(state, edited, shown), ids))
}

export function restore(state: BoardState): BoardChange {
  if (state.lost.length === 0) throw new BoardError("conflict", "No task of this board has gone.")
  return changeTo({ ...state, tasks: [...state.lost, ...state.tasks], lost: [] })
}

export function forget(state: BoardState): BoardChange {
  const isKept = (id: string) => findTask(state, id) !== undefined
  return changeTo({
    ...state,
    lost: [],
    pulses: keeping(state.pulses, isKept),
    outside: keeping(state.outside, isKept),
  })
}
