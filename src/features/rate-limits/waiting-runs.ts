import type { Breaker } from "../../core/breaker.ts"
import { modelKeyOf } from "../../core/limits.ts"
import { isHeldUp } from "../../core/run/active-run.ts"
import { isActive, isParked, isQueued, isUnattended, slotsOf, type Task } from "../../core/task.ts"
import type { TaskStore } from "../../runtime/tasks/store.ts"

/** Who waits for a model that refused. Derived from the tasks at each look. */
export class WaitingRuns {
  readonly #store: TaskStore

  constructor(store: TaskStore) {
    this.#store = store
  }

  /**
   * The parked, the longest first, then those that have not begun. Who may go on and waits for a slot waits for the model
   * again where that has closed meanwhile.
   */
  at(key: string, breaker: Breaker | undefined): readonly Task[] {
    const own = this.#store.active().filter((task) => this.modelOf(task) === key)
    const gone = breaker?.recovery?.gone ?? []
    const goesOn = ({ id }: Task) =>
      breaker?.recovery !== undefined && (gone.includes(id) || this.#store.run(id)?.mayContinue === true)
    const parked = own.filter((task) => isParked(task) && !goesOn(task))
    parked.sort((a, b) => (a.run.parked?.at ?? 0) - (b.run.parked?.at ?? 0) || a.createdAt - b.createdAt)
    const queued = own.filter((task) => isQueued(task) && !gone.includes(task.id) && !this.#waitsForOthers(task))
    queued.sort((a, b) => a.run.createdAt - b.run.createdAt)
    return [...parked, ...queued]
  }

  /** Those that have not begun, and whose prompt is all that has to be kept of them. */
  notStarted(key: string, breaker: Breaker): readonly Task[] {
    return this.at(key, breaker).filter(
      (task) => isQueued(task) && !task.team && !task.part && !task.run.after && !isUnattended(task),
    )
  }

  /** The model for which a task waits, or would: its own, but for one that another model has refused, and that stands still. */
  modelOf(task: Task): string | undefined {
    const { parked } = task.run
    return parked && this.#store.run(task.id)?.mayContinue !== true ? parked.model : modelKeyOf(task)
  }

  /** Whether a run that went still asks a model before long: one whose place is made ready first does not. */
  has(id: string): boolean {
    const task = this.#store.get(id)
    const run = this.#store.run(id)
    return task !== undefined && isActive(task) && !this.#waitsForOthers(task) && !(run && isHeldUp(run))
  }

  #waitsForOthers({ id }: Task): boolean {
    return this.#store.run(id)?.stage === "waiting"
  }
}

/**
 * The first that could go at once: who has no slot may wait for one that waits itself, and is looked at when one is free.
 * Who waits for the same slot behind one that has none is not asked for.
 */
export function firstAdmissible(
  waiting: readonly Task[],
  many: number,
  hasSlot: (task: Task) => boolean,
): readonly Task[] {
  const full = new Set<string>()
  const going: Task[] = []
  for (const task of waiting) {
    if (going.length === many) break
    const slot = JSON.stringify([slotsOf(task), task.agent, task.place?.kind])
    if (full.has(slot)) continue
    if (hasSlot(task)) going.push(task)
    else full.add(slot)
  }
  return going
}
