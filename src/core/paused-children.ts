import { newestOf, type Pause, pauseOf } from "./pause.ts"
import { isActive, isQueued, type Task } from "./task.ts"

/** Pause of an active task, with the newest knowledge of all `others` that share its cause. */
export function pauseAmong(task: Task, others: Iterable<Task>): Pause | undefined {
  const pause = isActive(task) ? pauseOf(task.run) : undefined
  if (!pause) return undefined
  return newestOf(
    pause,
    [...others].flatMap((other) => (isActive(other) ? (pauseOf(other.run) ?? []) : [])),
  )
}

/**
 * Time since when all active tasks are paused, or wait for paused children; undefined where one is not, or none is
 * active.
 */
export function allPausedSince(tasks: readonly Task[]): number | undefined {
  const times = tasks.flatMap((task) => {
    const { run } = task
    return isActive(task) && !isQueued(task) ? [pauseOf(run)?.at ?? run.stillSince ?? Number.POSITIVE_INFINITY] : []
  })
  const since = Math.max(...times)
  return Number.isFinite(since) ? since : undefined
}
