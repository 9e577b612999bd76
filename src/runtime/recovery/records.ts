import type { TaskRecord } from "../../core/ports.ts"
import { isActive, owesNotification, type Task } from "../../core/task.ts"
import type { Ledger } from "../budgets/ledger.ts"
import type { Parts } from "../parts.ts"

/**
 * Takes in what other processes have written of tasks, and what an earlier one has left. Returns the orphans among
 * them, whose processes are gone: those are shown like another's until they are settled.
 */
export function takeIn(parts: Parts, ledger: Ledger, records: readonly TaskRecord[]): readonly TaskRecord[] {
  const { store, host } = parts
  return records.filter(({ task, owner }) => {
    if (task.forgotten) {
      ledger.keep(task)
      if (store.isForeign(task.id)) remove(parts, task.id)
      return false
    }
    if (store.wasCleared(task.id)) return false
    const ownership = host.ownership(owner)
    const isOrphan = ownership === "dead" || (ownership === "ours" && store.run(task.id)?.orphaned !== undefined)
    if ((ownership === "ours" && !isOrphan) || isKnown(parts, task, isOrphan)) return false
    show(parts, task, isOrphan)
    return isOrphan && store.isForeign(task.id)
  })
}

/** Parts before their teams. */
export const rank = ({ task }: TaskRecord): number => (task.team ? 1 : 0)

/** Drops a task whose session or record is gone. */
export function remove({ store }: Parts, taskID: string): void {
  store.remove(taskID)?.releaseWaiters()
}

/** True for a task that runs or ended here: this process knows more of it than the record does. */
function isKnown({ store }: Parts, task: Task, isOrphan: boolean): boolean {
  const shown = store.get(task.id)
  // Another process took it over before it knew of the end that was found here: it will find that, too.
  const isFound = shown && isActive(task) && !isActive(shown) && shown.run.generation >= task.run.generation
  if (isFound && (!isOrphan || shown.delivery.state === "confirmed")) return true
  const known = store.isForeign(task.id) ? undefined : shown
  // One that ended here may have been asked again elsewhere, and left by that process too.
  return known !== undefined && (isActive(known) || (isOrphan && known.run.generation >= task.run.generation))
}

function show({ store, clock }: Parts, task: Task, isOrphan: boolean): void {
  // What a dead process left stays another's until it is settled: what fails is looked at again.
  if (isOrphan && !isActive(task) && !owesNotification(task)) store.add(task, clock.now())
  else store.addForeign(task)
  if (!isOrphan && !isActive(task)) store.handle(task.id)?.releaseWaiters()
}
