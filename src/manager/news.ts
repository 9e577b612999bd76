import { isActive, isOwed, type Task } from "../core/task.ts"
import type { News } from "../delivery/compose.ts"
import type { TaskStore } from "./store.ts"
import { viewOf } from "./view.ts"

/**
 * What there is to tell of a run's end beside its answer. `task` is the task as it was when the run ended: a resume
 * meanwhile does not change that.
 */
export function newsOf(task: Task, store: TaskStore, now: number): News {
  const { whole, thisRun } = viewOf(task, store, now)
  const current = store.get(task.id)
  const sameRun = current?.run.generation === task.run.generation
  const others = store.ofParent(task.parentID).filter((other) => other.id !== task.id || !sameRun)
  return {
    task: sameRun ? { ...task, retrievedAt: current.retrievedAt } : task,
    whole,
    thisRun,
    running: others.filter(isUntold),
    notFetched: others.filter((other) => !isUntold(other) && isUnread(other)),
  }
}

/** News go out in the order in which the runs ended: a task whose own are still to come runs, as far as its parent knows. */
const isUntold = (task: Task): boolean => isActive(task) || isOwed(task)

/** What its parent cancelled itself is not waited for. */
const isUnread = (task: Task): boolean => task.retrievedAt === undefined && task.outcome?.reason?.code !== "cancelled"
