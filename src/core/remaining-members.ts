import { chosenIn } from "./group.ts"
import { isActive, type Task } from "./task.ts"

/** Why a resume of an ended group without a winner would have nothing to continue. */
export function whyNothingRemains({ id, group, outcome }: Task): string | undefined {
  const { group: result, reason } = outcome ?? {}
  if (result?.kind === "each" && result.valid === result.total)
    return `All ${result.total} items of task ${id} are valid: there is nothing to go on with. superagents_output(task_id="${id}") shows the rows; for other items or another prompt, launch a new task.`
  if (result?.kind === "tries" && reason?.code === "check" && chosenIn(group) === undefined)
    return `All ${result.rows.length} tries of task ${id} have failed: there is nothing to go on with. Launch a new task with another prompt or other models.`
  return undefined
}

/** Unfinished members remain: a resume needs no prompt, and is allowed for every status. */
export const hasRemaining = (task: Task): boolean =>
  !isActive(task) &&
  task.group !== undefined &&
  chosenIn(task.group) === undefined &&
  whyNothingRemains(task) === undefined
