import { addFigures, type Figures } from "../core/figures.ts"
import { placeInQueue } from "../core/limits.ts"
import {
  type Ask,
  elapsed,
  isActive,
  isQueued,
  NO_USAGE,
  type Phase,
  type Progress,
  phaseOf,
  subtractUsage,
  type Task,
  waited,
} from "../core/task.ts"
import type { TaskStore } from "./store.ts"

/** What the outside sees of a task: a frozen copy with the figures of this moment. */
export type TaskView = {
  readonly task: Task
  readonly phase?: Phase
  /** Since admission, in ms. */
  readonly elapsed: number
  /** In the queue, in ms. */
  readonly waited: number
  /** From 1; only while queued. */
  readonly place?: number
  /** Of the task, of all its runs, and of the tasks that it launched. */
  readonly whole: Figures
  /** Of the last run alone, without the tasks that it launched. */
  readonly thisRun: Figures
  /** The last tools that the run called, oldest first. */
  readonly recentTools: readonly string[]
  readonly lastText: string
  /** How long ago the last sign of life was, in ms. */
  readonly signAge?: number
  readonly asks: readonly Ask[]
  readonly retry?: { readonly attempt: number; readonly message: string }
}

export function viewOf(task: Task, store: TaskStore, now: number): TaskView {
  const progress = progressOf(task, store)
  return Object.freeze({
    task: Object.freeze({ ...task }),
    phase: progress && phaseOf(task, progress, store.hasActive(task.sessionID)),
    elapsed: elapsed(task, now),
    waited: waited(task, now),
    place: isQueued(task) ? placeInQueue(task, store.active()) : undefined,
    whole: wholeOf(task, store),
    thisRun: thisRunOf(task, progress),
    recentTools: progress?.recentTools ?? task.outcome?.recentTools ?? [],
    lastText: progress?.lastText ?? "",
    signAge: progress && Math.max(0, now - progress.lastSignAt),
    asks: progress?.asks ?? [],
    retry: progress?.retry,
  })
}

/** None of a run that has ended, though the task may have been resumed since. */
const progressOf = (task: Task, store: TaskStore): Progress | undefined =>
  isActive(task) ? store.tracker(task.id)?.snapshot() : undefined

function wholeOf(task: Task, store: TaskStore): Figures {
  const progress = progressOf(task, store)
  const { toolCallsBefore = 0, atLeastBefore = false } = task.run
  const run = thisRunOf(task, progress)
  const own: Figures = {
    toolCalls: toolCallsBefore + run.toolCalls,
    usage: progress ? subtractUsage(progress.usage, task.usageBefore) : (task.outcome?.usage ?? NO_USAGE),
    atLeast: atLeastBefore || run.atLeast,
  }
  return store.ofParent(task.sessionID).reduce((sum, child) => addFigures(sum, wholeOf(child, store)), own)
}

function thisRunOf(task: Task, progress: Progress | undefined): Figures {
  const { outcome, usageBefore, run } = task
  const earlier = subtractUsage(run.usageBefore, usageBefore)
  return {
    toolCalls: progress?.toolCalls ?? outcome?.toolCalls ?? 0,
    usage: subtractUsage(progress ? subtractUsage(progress.usage, usageBefore) : (outcome?.usage ?? NO_USAGE), earlier),
    atLeast: outcome?.atLeast ?? false,
  }
}
