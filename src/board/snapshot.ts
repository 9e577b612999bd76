import type { Change } from "./rules/command.ts"
import type { Archived } from "./service.ts"
import { subtasksOf } from "./state.ts"
import type { BoardTask } from "./task.ts"

/** The task that a change was about, as it is handed out. */
export const taskOf = ({ task }: Change): BoardTask => frozen(task as BoardTask)

export function archivedBy(change: Change): Archived {
  const [, ...canceled] = change.archived
  const task = taskOf(change)
  return Object.freeze({
    task,
    canceled: canceled.map(frozen),
    open: task.status === "done" ? subtasksOf(change.state, task).map(frozen) : [],
  })
}

/** What is on the board is never changed in place: it is frozen where it stands, once. */
export const frozen = (task: BoardTask): BoardTask => (Object.isFrozen(task) ? task : freeze(task))

function freeze(task: BoardTask): BoardTask {
  for (const part of [...task.steps, ...task.resources, task.steps, task.resources]) Object.freeze(part)
  return Object.freeze(task)
}
