import { placeInQueue } from "../core/limits.ts"
import {
  type Ask,
  addUsage,
  elapsed,
  isQueued,
  NO_USAGE,
  type Phase,
  phaseOf,
  subtractUsage,
  type Task,
  type Usage,
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
  readonly toolCalls: number
  readonly recentTools: readonly string[]
  readonly lastText: string
  readonly lastSignAt?: number
  /** Of the task and of the tasks it launched. */
  readonly usage: Usage
  readonly asks: readonly Ask[]
  readonly retry?: { readonly attempt: number; readonly message: string }
}

export function viewOf(task: Task, store: TaskStore, now: number): TaskView {
  const progress = store.tracker(task.id)?.snapshot()
  return Object.freeze({
    task: Object.freeze({ ...task }),
    phase: progress && phaseOf(task, progress, store.hasActive(task.sessionID)),
    elapsed: elapsed(task, now),
    waited: waited(task, now),
    place: isQueued(task) ? placeInQueue(task, store.active()) : undefined,
    toolCalls: progress?.toolCalls ?? task.outcome?.toolCalls ?? 0,
    recentTools: progress?.recentTools ?? [],
    lastText: progress?.lastText ?? "",
    lastSignAt: progress?.lastSignAt,
    usage: usageOf(task, store),
    asks: progress?.asks ?? [],
    retry: progress?.retry,
  })
}

/** Tokens and cost of a task, of all its runs and of the tasks that it launched. */
function usageOf(task: Task, store: TaskStore): Usage {
  const total = store.tracker(task.id)?.snapshot().usage
  const own = total ? subtractUsage(total, task.usageBefore) : (task.outcome?.usage ?? NO_USAGE)
  return store.ofParent(task.sessionID).reduce((sum, child) => addUsage(sum, usageOf(child, store)), own)
}
