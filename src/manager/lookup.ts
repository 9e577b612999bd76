import { CallError, listed } from "../core/errors.ts"
import type { Task } from "../core/task.ts"

/**
 * The one task among `own` that `reference` names: a task id, a child session's id, or a prefix of either that fits
 * only one. Throws a `CallError` that names the candidates.
 */
export function findTask(reference: string, own: readonly Task[]): Task {
  const wanted = reference.trim()
  const exact = own.find((task) => task.id === wanted || task.sessionID === wanted)
  if (exact) return exact
  const fitting =
    wanted === "" ? [] : own.filter(({ id, sessionID }) => id.startsWith(wanted) || sessionID.startsWith(wanted))
  if (fitting.length === 1 && fitting[0]) return fitting[0]
  if (fitting.length > 1) throw new CallError(`"${wanted}" fits several tasks: ${named(fitting)}. Give more of the id.`)
  throw new CallError(
    own.length === 0
      ? `No task "${wanted}": this session has no background tasks. Launch one with superagents_task.`
      : `No task "${wanted}" in this session. There are: ${named(own)}.`,
  )
}

const named = (tasks: readonly Task[]): string => listed(tasks.map((task) => `${task.id} (${task.description})`))
