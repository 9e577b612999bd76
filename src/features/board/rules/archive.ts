import {
  type BoardState,
  findTask,
  keeping,
  type Pulse,
  parentOf,
  pulseOf,
  subtasksOf,
  type WakeCause,
} from "../state.ts"
import type { BoardTask } from "../task.ts"
import { withUnverifiedParent } from "./verify.ts"

/**
 * A task as it stands in history. `archivedBy` is an agent, `user`, or `outside` for a hand in the file; `archivedIn` is
 * the session in which an agent did it, and decides whether a parent is woken.
 */
export type ArchivedTask = BoardTask & {
  readonly archivedAt: string
  readonly archivedBy?: string
  readonly archivedIn?: string
}

/** A state and what has just left it for history, the task asked for first. */
export type Leaving = { readonly state: BoardState; readonly archived: readonly ArchivedTask[] }

export type End = {
  readonly status: "done" | "canceled"
  readonly at: string
  readonly by: string
  readonly in?: string
}

/** Who a hand in the file is: nobody knows. */
export const OUTSIDE = "outside"

/** Ends a task: it leaves the board, its subtasks go with it where it is canceled, and its parent's owner is woken. */
export const archive = (state: BoardState, task: BoardTask, end: End): Leaving => follow(state, endedAs(task, end))

/**
 * What follows from an end that stands in history: the task leaves the board if it is still there. The same for an end
 * that happens now and for one whose process was killed between the two files.
 */
export function follow(state: BoardState, ended: ArchivedTask): Leaving {
  const archived = ended.status === "canceled" ? [ended, ...canceledWith(state, ended)] : [ended]
  const rest = without(state, new Set(archived.map(({ id }) => id)))
  return { state: archived.reduce(wakeParentOf, rest), archived }
}

/** All that lies below a canceled task, however deep, each before what lies below it. */
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
 * The owner of a parent is woken by what it has not done itself, in its own thread. What a hand in the file has ended
 * starts nobody: the parent waits for a person instead.
 */
function wakeParentOf(state: BoardState, { id, status, archivedAt, archivedBy, archivedIn }: ArchivedTask): BoardState {
  if (archivedBy === OUTSIDE) return withUnverifiedParent(state, id)
  const parent = parentOf(state, id)
  if (!parent) return state
  const isOwnDoing = status === "canceled" && archivedIn !== undefined && archivedIn === parent.threadId
  return isOwnDoing ? state : wake(touch(state, parent.id), parent.id, "subtask", archivedAt)
}

const endedAs = (task: BoardTask, { status, at, by, in: session }: End): ArchivedTask => ({
  ...task,
  status,
  updatedAt: at,
  archivedAt: at,
  archivedBy: by,
  ...(session !== undefined && { archivedIn: session }),
})

/**
 * Has the owner of an active task woken, once for all that has happened until then. What the clock brings goes one
 * after the other: whatever else happens comes before that.
 */
export function wake(state: BoardState, id: string, cause: WakeCause, at: string): BoardState {
  if (findTask(state, id)?.status !== "active") return state
  return setPulse(state, id, wokenAt(pulseOf(state, id), cause, at))
}

export const wokenAt = (pulse: Pulse, cause: WakeCause, at: string): Pulse => ({
  ...pulse,
  wake: { at, cause: cause === "clock" ? (pulse.wake?.cause ?? cause) : cause },
})

/** A task that rested after failures may run again. */
export function touch(state: BoardState, id: string): BoardState {
  const { failures: _failures, failure: _failure, idle: _idle, ...pulse } = pulseOf(state, id)
  return setPulse(state, id, pulse)
}

/** Sets what is remembered of a task; nothing to remember leaves nothing behind. */
export function setPulse(state: BoardState, id: string, pulse: Pulse): BoardState {
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
