import {
  type BoardState,
  findTask,
  keeping,
  parentOf,
  runStateOf,
  subtasksOf,
  type TaskRunState,
  type WakeCause,
} from "../state.ts"
import type { ArchivedTask, BoardTask } from "../task.ts"
import { withUnverifiedParent } from "./verify.ts"

/** New state and archived tasks, the requested one first. */
export type StateAfterArchive = { readonly state: BoardState; readonly archived: readonly ArchivedTask[] }

export type TaskEnding = {
  readonly status: "done" | "canceled"
  readonly at: string
  readonly by: string
  readonly in?: string
}

/** Author of edits outside OpenCode. */
export const OUTSIDE = "outside"

/** Archives a task, cancels its subtasks where it is canceled, and wakes its parent's owner. */
export const archive = (state: BoardState, task: BoardTask, end: TaskEnding): StateAfterArchive =>
  removeArchived(state, endedAs(task, end))

/**
 * Completes the end of an archived task: removes it from the board. Also used where a crash came between the writes of
 * the two files.
 */
export function removeArchived(state: BoardState, ended: ArchivedTask): StateAfterArchive {
  const archived = ended.status === "canceled" ? [ended, ...canceledWith(state, ended)] : [ended]
  const rest = without(state, new Set(archived.map(({ id }) => id)))
  return { state: archived.reduce(wakeParentOf, rest), archived }
}

/** Subtasks at all depths of a canceled task, parents first. */
function canceledWith(state: BoardState, ended: ArchivedTask): readonly ArchivedTask[] {
  const { archivedAt: at, archivedBy: by = "user", archivedIn } = ended
  const found = new Map<string, ArchivedTask>()
  const open = subtasksOf(state, ended).toReversed()
  for (let task = open.pop(); task; task = open.pop()) {
    if (task.id === ended.id || found.has(task.id)) continue
    found.set(task.id, endedAs(task, { status: "canceled", at, by, in: archivedIn }))
    open.push(...subtasksOf(state, task).toReversed())
  }
  return [...found.values()]
}

/**
 * A parent's owner is woken by ends that it did not cause. Edits outside OpenCode wake nobody: the parent then waits
 * for a user.
 */
function wakeParentOf(state: BoardState, { id, status, archivedAt, archivedBy, archivedIn }: ArchivedTask): BoardState {
  if (archivedBy === OUTSIDE) return withUnverifiedParent(state, id)
  const parent = parentOf(state, id)
  if (!parent) return state
  const isOwnDoing = status === "canceled" && archivedIn !== undefined && archivedIn === parent.threadId
  return isOwnDoing ? state : wake(resetFailures(state, parent.id), parent.id, "subtask", archivedAt)
}

const endedAs = (task: BoardTask, { status, at, by, in: session }: TaskEnding): ArchivedTask => ({
  ...task,
  status,
  updatedAt: at,
  archivedAt: at,
  archivedBy: by,
  ...(session !== undefined && { archivedIn: session }),
})

/**
 * Schedules a wake of an active task's owner, once for all causes so far. Wakes by the clock run one at a time, after
 * all others.
 */
export function wake(state: BoardState, id: string, cause: WakeCause, at: string): BoardState {
  if (findTask(state, id)?.status !== "active") return state
  return setRunState(state, id, wokenAt(runStateOf(state, id), cause, at))
}

export const wokenAt = (pulse: TaskRunState, cause: WakeCause, at: string): TaskRunState => ({
  ...pulse,
  wake: { at, cause: cause === "clock" ? (pulse.wake?.cause ?? cause) : cause },
})

/** Lets a task run again that rested after failures. */
export function resetFailures(state: BoardState, id: string): BoardState {
  const { failures: _failures, failure: _failure, idle: _idle, ...pulse } = runStateOf(state, id)
  return setRunState(state, id, pulse)
}

/** Sets a task's stored run state; an empty one is removed. */
export function setRunState(state: BoardState, id: string, pulse: TaskRunState): BoardState {
  const { [id]: before, ...others } = state.pulses
  if (Object.keys(pulse).length === 0) return before ? { ...state, pulses: others } : state
  return { ...state, pulses: { ...others, [id]: pulse } }
}

function without(state: BoardState, ids: ReadonlySet<string>): BoardState {
  const isKept = (id: string) => !ids.has(id)
  return {
    ...state,
    tasks: state.tasks.filter(({ id }) => isKept(id)),
    pulses: keeping(state.pulses, isKept),
    outside: keeping(state.outside, isKept),
  }
}
