import type { TaskRecord } from "../../core/ports.ts"
import { isActive, owesNotification, type Task } from "../../core/task.ts"
import type { CostLedger } from "../budgets/ledger.ts"
import type { Parts } from "../parts.ts"

/**
 * Reads records of other processes and of earlier ones. Returns orphans, whose process is gone; they are treated as
 * foreign until settled.
 */
export function importRecords(parts: Parts, ledger: CostLedger, records: readonly TaskRecord[]): readonly TaskRecord[] {
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

/** Members before their groups. */
export const rank = ({ task }: TaskRecord): number => (task.group ? 1 : 0)

/** Drops a task whose session or record is gone. */
export function remove({ store }: Parts, taskID: string): void {
  store.remove(taskID)?.releaseWaiters()
}

/** The task runs or ended in this process, which knows more than the record. */
function isKnown({ store }: Parts, task: Task, isOrphan: boolean): boolean {
  const shown = store.get(task.id)
  // Read before a later run began.
  if (shown && shown.run.generation > task.run.generation) return true
  // The other process took it over without knowing the end found here; it will find the same end.
  const isFound = shown && isActive(task) && !isActive(shown) && shown.run.generation >= task.run.generation
  if (isFound && (!isOrphan || shown.delivery.state === "confirmed")) return true
  const known = store.isForeign(task.id) ? undefined : shown
  // A task that ended here may have been resumed by another process that is gone, too.
  return known !== undefined && (isActive(known) || (isOrphan && known.run.generation >= task.run.generation))
}

function show({ store, clock }: Parts, task: Task, isOrphan: boolean): void {
  // Foreign until settled, so that failures are retried.
  if (isOrphan && !isActive(task) && !owesNotification(task)) store.add(task, clock.now())
  else store.addForeign(task)
  if (!isOrphan && !isActive(task)) store.handle(task.id)?.releaseWaiters()
}
