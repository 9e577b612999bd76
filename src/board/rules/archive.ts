import { type BoardState, findTask, type Pulse, parentOf, pulseOf, subtasksOf, type WakeCause } from "../state.ts"
import type { BoardTask } from "../task.ts"

/** A task as it stands in history. `archivedBy` is an agent or `user`: it decides whether a parent is woken. */
export type ArchivedTask = BoardTask & { readonly archivedAt: string; readonly archivedBy?: string }

/** A state and what has just left it for history, the task asked for first. */
export type Leaving = { readonly state: BoardState; readonly archived: readonly ArchivedTask[] }

/** Ends a task: it leaves the board, its subtasks go with it where it is canceled, and its parent's owner is woken. */
export function archive(
  state: BoardState,
  task: BoardTask,
  end: { status: "done" | "canceled"; by: string; at: string },
): Leaving {
  const { status, by, at } = end
  return follow(state, { ...task, status, updatedAt: at, archivedAt: at, archivedBy: by })
}

/**
 * What follows from an end that stands in history: the task leaves the board if it is still there. The same for an end
 * that happens now and for one whose process was killed between the two files.
 */
export function follow(state: BoardState, ended: ArchivedTask): Leaving {
  const { status, archivedAt: at, archivedBy: by = "user" } = ended
  const without = remove(state, ended.id)
  const parent = parentOf(without, ended.id)
  const wakes = parent !== undefined && (status === "done" || by !== parent.owner)
  let leaving: Leaving = {
    state: wakes ? wake(touch(without, parent.id), parent.id, "subtask", at) : without,
    archived: [ended],
  }
  if (status !== "canceled") return leaving
  for (const { id } of subtasksOf(without, ended)) {
    const subtask = findTask(leaving.state, id)
    if (!subtask) continue
    const { state, archived } = archive(leaving.state, subtask, { status, by, at })
    leaving = { state, archived: [...leaving.archived, ...archived] }
  }
  return leaving
}

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
  const { failures: _failures, failure: _failure, ...pulse } = pulseOf(state, id)
  return setPulse(state, id, pulse)
}

/** Sets what is remembered of a task; nothing to remember leaves nothing behind. */
export function setPulse(state: BoardState, id: string, pulse: Pulse): BoardState {
  const { [id]: before, ...others } = state.pulses
  if (Object.keys(pulse).length === 0) return before ? { ...state, pulses: others } : state
  return { ...state, pulses: { ...others, [id]: pulse } }
}

function remove(state: BoardState, id: string): BoardState {
  const { [id]: _pulse, ...pulses } = state.pulses
  return { ...state, tasks: state.tasks.filter((task) => task.id !== id), pulses }
}
