import { batchKeyOf, batchName } from "../../core/batch.ts"
import { CallError, candidatesText, listed, UnknownTaskError } from "../../core/errors.ts"
import { memberNames } from "../../core/group.ts"
import { nameOf } from "../../core/summary.ts"
import { isActive, type Task } from "../../core/task.ts"
import { oneLine } from "../../lib/text.ts"

/** The task with this id, session id, or unique prefix of either. Throws a `CallError` with the candidates. */
export function findTask(reference: string, own: readonly Task[]): Task {
  const wanted = reference.trim()
  const exact = own.find((task) => task.id === wanted || task.sessionID === wanted)
  if (exact) return exact
  const fitting =
    wanted === "" ? [] : own.filter(({ id, sessionID }) => id.startsWith(wanted) || sessionID.startsWith(wanted))
  if (fitting.length === 1 && fitting[0]) return fitting[0]
  if (fitting.length > 1) throw new CallError(`"${wanted}" fits several tasks: ${named(fitting)}. Give more of the id.`)
  throw new UnknownTaskError(
    own.length === 0
      ? `No task "${wanted}": this session has no background tasks. Launch one with superagents_task.`
      : `No task "${wanted}" in this session. ${candidatesText(own.map(namesOf))}`,
  )
}

const namesOf = (task: Task): string =>
  task.group ? `${nameOf(task)}, of ${memberNames(task.id, task.group)}` : nameOf(task)

/** Tasks of the named batch; empty for a task's id or an unknown name. */
export function findNamedBatch(reference: string, own: readonly Task[]): readonly Task[] {
  const wanted = reference.trim()
  const isTask = own.some(({ id, sessionID }) => id === wanted || sessionID === wanted)
  return isTask ? [] : own.filter((task) => task.batch === batchKeyOf(oneLine(wanted)))
}

/** The key of the batch among `own` of this name; undefined where there is none. */
export function findBatch(name: string, own: readonly Task[]): string | undefined {
  const key = batchKeyOf(oneLine(name.trim()))
  return own.some((task) => task.batch === key) ? key : undefined
}

export type CancelSelector =
  | { readonly type: "task"; readonly reference: string }
  | { readonly type: "batch"; readonly name: string }
  | { readonly type: "all" }

/** Tasks that a cancel ends. Throws a `CallError` for a task that cannot be ended, or an unknown batch. */
export function selectRunning(selector: CancelSelector, own: readonly Task[], runs: Runs): readonly Task[] {
  if (selector.type === "task") return [endable(findTask(selector.reference, own), runs)]
  const key = selector.type === "batch" ? findBatch(selector.name, own) : undefined
  if (selector.type === "batch" && key === undefined) throw noBatch(selector.name, own)
  const isRunning = (task: Task) => isActive(task) || runs.isMerging(task.id)
  const running = own.filter((task) => isRunning(task) && (key === undefined || task.batch === key))
  const endables = running.filter(({ id }) => !runs.isForeign(id))
  return endables.length > 0 ? endables : running.map((task) => endable(task, runs))
}

/** Whether another process owns a task, and whether its merge is pending. */
type Runs = { isForeign(id: string): boolean; isMerging(id: string): boolean }

function noBatch(name: string, own: readonly Task[]): CallError {
  if (own.length === 0) return new UnknownTaskError(`No batch "${name}": this session has no background tasks.`)
  return new UnknownTaskError(`No batch "${name}" in this session. ${knownBatches(own)}`)
}

/** Names of existing batches, for an error. */
export function knownBatches(own: readonly Task[]): string {
  const names = [...new Set(own.flatMap((task) => batchName(task.batch) ?? []))].map((each) => oneLine(each))
  return names.length > 0 ? candidatesText(names) : "No task has a batch name."
}

function endable(task: Task, runs: Runs): Task {
  if (!isActive(task) && !runs.isMerging(task.id))
    throw new CallError(`Task ${task.id} is not running: it is ${task.status}. Nothing was cancelled.`)
  if (runs.isForeign(task.id))
    throw new CallError(`Task ${task.id} is run by another OpenCode process. Cancel it there.`)
  return task
}

const named = (tasks: readonly Task[]): string => listed(tasks.map(nameOf))
