import { lastAnswerAt } from "../../core/outcome.ts"
import type { Message } from "../../core/ports.ts"
import { type ActiveRun, newRun } from "../../core/run/active-run.ts"
import { withMessages } from "../../core/run/progress.ts"
import { hasPendingNotification, isActive, type Task } from "../../core/task.ts"

/**
 * Run of another process's task, as this process knows it. Undefined if the task has ended and its notification is
 * settled.
 */
export function foreignRun(task: Task, known: ActiveRun | undefined): ActiveRun | undefined {
  if (!isActive(task) && !hasPendingNotification(task)) return undefined
  if (known && known.heldBy !== "ours" && known.generation === task.run.generation) return known
  return newRun(task, isActive(task) ? "working" : "notifying", task.run.createdAt, "foreign")
}

/** Run of a task that another process has just taken over. */
export const takenRun = (task: Task): ActiveRun => newRun(task, "working", task.run.createdAt, "foreign")

/** The run updated from its session's messages. */
export function readRun(task: Task, known: ActiveRun | undefined, messages: readonly Message[]): ActiveRun {
  const run = known ?? newRun(task, "working", 0, "foreign")
  const fresh = newRun(task, run.stage, Math.max(task.run.createdAt, lastAnswerAt(messages)), run.heldBy)
  return { ...fresh, orphaned: run.orphaned, observed: withMessages(fresh.observed, messages) }
}
