import {
  type BoardState,
  findTask,
  keeping,
  parentOf,
  runStateOf,
  type TaskRunState,
  trustedVersion,
  type WakeCause,
} from "../state.ts"
import type { ArchivedTask, BoardTask } from "../task.ts"
import { withUnverifiedParents } from "./verify.ts"

/** New state and archived tasks: the requested task first, then the subtasks that were canceled with it. */
export type StateAfterArchive = { readonly state: BoardState; readonly archived: readonly ArchivedTask[] }

export type TaskEnding = {
  readonly status: "done" | "canceled"
  readonly at: string
  readonly by: string
  readonly in?: string
}

/** Value of `archivedBy` for an edit outside OpenCode, whose author is unknown. */
export const OUTSIDE = "outside"

/** Archives a task and wakes the owner of the parent task. If the task is canceled, its subtasks are canceled, too. */
export const archive = (state: BoardState, task: BoardTask, end: TaskEnding): StateAfterArchive =>
  removeArchived(state, [endedAs(state, task, end)])

/**
 * Removes archived tasks from the board, with the subtasks that are canceled with them. Also called after a crash
 * between the writes of history and board, to complete the move.
 */
export function removeArchived(state: BoardState, ended: readonly ArchivedTask[]): StateAfterArchive {
  if (ended.length === 0) return { state, archived: [] }
  const own = new Map(ended.map((task) => [task.id, task]))
  const open = new Map(state.tasks.map((task) => [task.id, task]))
  const all = ended.flatMap((task) => [task, ...(task.status === "canceled" ? canceledWith(state, open, task) : [])])
  // A task's own end counts, not that of a task above it.
  const archived = new Map(all.map((task) => [task.id, own.get(task.id) ?? task]))
  return { state: withoutArchived(state, archived), archived: [...archived.values()] }
}

/** Subtasks at all depths of a canceled task, parents first. `open`: all tasks of the board, by id. */
function canceledWith(
  state: BoardState,
  open: ReadonlyMap<string, BoardTask>,
  ended: ArchivedTask,
): readonly ArchivedTask[] {
  const { archivedAt: at, archivedBy: by = "user", archivedIn } = ended
  const subtasksOf = ({ steps }: BoardTask) => steps.flatMap(({ taskId = "" }) => open.get(taskId) ?? []).toReversed()
  const found = new Map<string, ArchivedTask>()
  const next = subtasksOf(ended)
  for (let task = next.pop(); task; task = next.pop()) {
    if (task.id === ended.id || found.has(task.id)) continue
    found.set(task.id, endedAs(state, task, { status: "canceled", at, by, in: archivedIn }))
    next.push(...subtasksOf(task))
  }
  return [...found.values()]
}

/** Removes archived tasks. After an edit outside OpenCode their parents wait for a user; other parents are woken. */
function withoutArchived(state: BoardState, archived: ReadonlyMap<string, ArchivedTask>): BoardState {
  const isKept = (id: string) => !archived.has(id)
  const rest = {
    ...state,
    tasks: state.tasks.filter(({ id }) => isKept(id)),
    pulses: keeping(state.pulses, isKept),
    outside: keeping(state.outside, isKept),
  }
  const ended = [...archived.values()]
  const outside = new Set(ended.flatMap(({ id, archivedBy }) => (archivedBy === OUTSIDE ? id : [])))
  return ended.filter(({ id }) => !outside.has(id)).reduce(wakeParentOf, withUnverifiedParents(rest, outside))
}

/** Wakes the parent's owner, unless the parent's own thread canceled the subtask. */
function wakeParentOf(state: BoardState, { id, status, archivedAt, archivedIn }: ArchivedTask): BoardState {
  const parent = parentOf(state, id)
  if (!parent) return state
  const isOwnDoing = status === "canceled" && archivedIn !== undefined && archivedIn === parent.threadId
  return isOwnDoing ? state : wake(resetFailures(state, [parent.id]), parent.id, "subtask", archivedAt)
}

/** History, which models read, gets the trusted text of a task with an outside edit. */
export const endedAs = (
  state: BoardState,
  task: BoardTask,
  { status, at, by, in: session }: TaskEnding,
): ArchivedTask => ({
  ...task,
  ...trustedVersion(state, task),
  status,
  updatedAt: at,
  archivedAt: at,
  archivedBy: by,
  ...(session !== undefined && { archivedIn: session }),
})

/**
 * Schedules a wake of an active task's owner; one run serves all causes so far. The scheduler starts wakes by the clock
 * one at a time, after all other wakes.
 */
export function wake(state: BoardState, id: string, cause: WakeCause, at: string): BoardState {
  if (findTask(state, id)?.status !== "active") return state
  return setRunState(state, id, wokenAt(runStateOf(state, id), cause, at))
}

export const wokenAt = (runState: TaskRunState, cause: WakeCause, at: string): TaskRunState => ({
  ...runState,
  wake: { at, cause: cause === "clock" ? (runState.wake?.cause ?? cause) : cause },
})

/** Resets the failures and idle runs of these tasks, so that resting ones may run again. */
export function resetFailures(state: BoardState, ids: readonly string[]): BoardState {
  const reset = new Map(
    ids.flatMap((id) => {
      const { failures, failure: _failure, idle, ...runState } = runStateOf(state, id)
      return failures === undefined && idle === undefined ? [] : [[id, runState] as const]
    }),
  )
  if (reset.size === 0) return state
  const pulses = [...Object.entries(state.pulses).filter(([id]) => !reset.has(id)), ...reset]
  return { ...state, pulses: Object.fromEntries(pulses.filter(([, runState]) => Object.keys(runState).length > 0)) }
}

/** Sets a task's stored run state. An empty run state is removed from the board. */
export function setRunState(state: BoardState, id: string, runState: TaskRunState): BoardState {
  const { [id]: before, ...others } = state.pulses
  if (Object.keys(runState).length === 0) return before ? { ...state, pulses: others } : state
  return { ...state, pulses: { ...others, [id]: runState } }
}
