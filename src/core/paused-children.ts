import { newestOf, type Pause, pauseOf } from "./pause.ts"
import { isActive, isQueued, type Task } from "./task.ts"

/** Tasks that stand still, beside others. What each way of standing still is, and how it is told, is in `standstill`. */

/** How a task at work stands still, by the newest that is known among all `others`; undefined where it does not. */
export function pauseAmong(task: Task, others: Iterable<Task>): Pause | undefined {
  const stand = isActive(task) ? pauseOf(task.run) : undefined
  if (!stand) return undefined
  return newestOf(
    stand,
    [...others].flatMap((other) => (isActive(other) ? (pauseOf(other.run) ?? []) : [])),
  )
}

/** Since when all tasks at work of these stand still, or wait for theirs that do; undefined where one does not, or none is. */
export function allPausedSince(tasks: readonly Task[]): number | undefined {
  const times = tasks.flatMap((task) => {
    const { run } = task
    return isActive(task) && !isQueued(task) ? [pauseOf(run)?.at ?? run.stillSince ?? Number.POSITIVE_INFINITY] : []
  })
  const since = Math.max(...times)
  return Number.isFinite(since) ? since : undefined
}
