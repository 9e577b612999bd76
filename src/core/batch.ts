import { oneLine } from "../lib/text.ts"
import { isActive, type Task } from "./task.ts"

export type BatchProgress = { readonly done: number; readonly total: number; readonly running: number }

export const batchKeyOf = (name: string): string => `name:${name}`

export const batchName = (key: string): string | undefined =>
  key.startsWith("name:") ? key.slice("name:".length) : undefined

/** For a reader; undefined for one that nobody named, which is a count and nothing to a reader. */
export function batchText({ batch }: Pick<Task, "batch">): string | undefined {
  const name = batchName(batch)
  return name === undefined ? undefined : oneLine(name)
}

/**
 * The batch a new task joins: the named one, else the unnamed batch that its session still has running, else a new one.
 */
export function batchFor(name: string | undefined, taskID: string, siblings: Iterable<Task>): string {
  if (name !== undefined) return batchKeyOf(name)
  for (const task of siblings) if (isActive(task) && batchName(task.batch) === undefined) return task.batch
  return `auto:${taskID}`
}

export function batchProgress(key: string, tasks: Iterable<Task>): BatchProgress {
  let total = 0
  let running = 0
  for (const task of tasks) {
    if (task.batch !== key) continue
    total++
    if (isActive(task)) running++
  }
  return { done: total - running, total, running }
}
