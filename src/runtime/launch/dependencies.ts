import { namedBatch } from "../../core/batch.ts"
import { fateOf, stranded, waitsFor } from "../../core/dependencies.ts"
import { CallError } from "../../core/errors.ts"
import { nameOf } from "../../core/summary.ts"
import { isQueued, type Task } from "../../core/task.ts"
import { oneLine } from "../../lib/text.ts"
import type { Dispatcher } from "../dispatcher.ts"
import type { Parts } from "../parts.ts"
import { findTask, knownBatches } from "../tasks/lookup.ts"

/** The ids of the tasks among `own` that a launch is to wait for. Throws where one of them can no longer complete. */
export function resolveAfter(after: readonly string[] | string, own: readonly Task[]): readonly string[] {
  const tasks = typeof after === "string" ? ofBatch(after, own) : after.map((reference) => findTask(reference, own))
  for (const task of tasks) {
    const fate = fateOf(task)
    if (fate)
      throw new CallError(
        `Nothing was launched: it would wait for ${nameOf(task)}, which ${fate}. Launch it again first, or launch this without it.`,
      )
  }
  return [...new Set(tasks.map(({ id }) => id))]
}

/** One id by itself is that task, not the batch that it is in. */
function ofBatch(name: string, own: readonly Task[]): readonly Task[] {
  const wanted = name.trim()
  const found = own.filter(({ batch }) => batch === namedBatch(wanted))
  if (found.length > 0) return found
  if (own.some(({ id, sessionID }) => id.startsWith(wanted) || sessionID.startsWith(wanted)))
    return [findTask(wanted, own)]
  throw new CallError(
    `No batch "${oneLine(wanted)}" in this session. ${knownBatches(own)} To wait for tasks, give their ids as an array.`,
  )
}

/**
 * Ends the tasks that wait for what will never complete, each after what it waited for; only the last of them wakes its
 * parent, and none where the parent brought it about itself.
 */
export class Waiting {
  readonly #parts: Parts
  readonly #dispatcher: Dispatcher
  #ending = false

  constructor(parts: Parts, dispatcher: Dispatcher) {
    this.#parts = parts
    this.#dispatcher = dispatcher
  }

  /** To be called when a task has ended or was forgotten. */
  endStranded(): void {
    if (this.#ending) return
    this.#ending = true
    try {
      // Once more where it ended any: that may have freed a slot for one that may not begin any more.
      while (this.#endFound());
    } finally {
      this.#ending = false
    }
  }

  /** False where it ended none. */
  #endFound(): boolean {
    const { store, options } = this.#parts
    const found = stranded(store.active().filter(isQueued), (id) => store.get(id))
    const ended = found.filter(({ task, reason, wakes }, index) => {
      const shares = ({ parentID, batch }: Task) =>
        parentID === task.parentID && (options.wake !== "last" || batch === task.batch)
      const last = !found.slice(index + 1).some((other) => other.wakes && shares(other.task))
      return this.#dispatcher.end(task.id, task.run.generation, { type: "cancelled", reason }, { wake: wakes && last })
    })
    return ended.length > 0
  }

  /**
   * The tasks that this one still waits for; one that has ended until it is closed, its work merged where it is to be. Of
   * another process's that is known when it is told.
   */
  waitsFor(task: Task): readonly string[] {
    const { store } = this.#parts
    return waitsFor(task, (id) => (this.#dispatcher.isClosing(id) || store.isForeign(id) ? undefined : store.get(id)))
  }

  /** True where a task that has not begun waits for this one: it is not forgotten. */
  isWaitedFor(id: string): boolean {
    return this.#parts.store.active().some((task) => isQueued(task) && task.run.after?.includes(id))
  }
}
