import { type Ending, isActive, type Task } from "../core/task.ts"
import type { Archive } from "./archive.ts"
import type { Dispatcher } from "./dispatcher.ts"
import type { Parts } from "./parts.ts"
import type { Places } from "./places/places.ts"
import { type CancelSelector, selectRunning } from "./tasks/lookup.ts"
import type { Retention } from "./tasks/retention.ts"
import type { Cleared } from "./tasks/view.ts"

const CANCELLED: Ending = {
  type: "cancelled",
  reason: { code: "cancelled", text: "It was cancelled by the agent that launched it." },
}

type CancellingPorts = {
  readonly dispatcher: Dispatcher
  readonly archive: Archive
  readonly retention: Retention
  readonly forget: (task: Task) => Promise<void>
  readonly places: Pick<Places, "isAway">
}

/** Cancels and clears tasks for the session that launched them. */
export class Cancelling {
  readonly #parts: Parts
  readonly #ports: CancellingPorts

  constructor(parts: Parts, ports: CancellingPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /**
   * Stops the selected runs, and pending merges of completed ones. Returns the tasks that this ended or stopped, and
   * those that waited for them.
   */
  async cancel(selector: CancelSelector, sessionID: string): Promise<readonly Task[]> {
    const { store } = this.#parts
    const own = store.ofParent(sessionID)
    const selected = selectRunning(selector, own, store)
    const merging = selected.filter(({ id }) => store.isMerging(id))
    // Newest first: tasks that wait for others come later and must end as cancelled, not as stranded.
    for (const { id, run } of selected.toReversed())
      this.#ports.dispatcher.end(id, run.generation, CANCELLED, { wake: false })
    const cancelled = own.filter((task) => isActive(task) && store.get(task.id)?.status === "cancelled")
    const ended = own.filter((task) => cancelled.includes(task) || merging.includes(task))
    await Promise.all(ended.map(({ id }) => this.#ports.dispatcher.closed(id)))
    return ended.flatMap(({ id }) => store.get(id) ?? [])
  }

  /** Clears the session's tasks. Running ones are stopped and nobody is told; their sessions stay. */
  async clear(sessionID: string): Promise<Cleared> {
    const { store } = this.#parts
    const own = store.ofParent(sessionID)
    const tasks = own.filter((task) => !store.isForeign(task.id))
    const left = own.length - tasks.length
    const newestFirst = tasks.toReversed()
    const stopped = newestFirst.filter(({ id, run }) =>
      this.#ports.dispatcher.end(id, run.generation, CANCELLED, { silent: true }),
    )
    await Promise.all(tasks.map(({ id }) => this.#ports.dispatcher.closed(id)))
    const unmerged = await this.forget(tasks)
    this.#ports.retention.forgetSession(sessionID)
    return {
      cleared: tasks.length,
      stopped: stopped.length,
      ...(unmerged.length > 0 && { unmerged }),
      ...(left > 0 && { left }),
    }
  }

  /** Clears ended tasks with their archived work. Returns ids of tasks whose work stays because it is not merged. */
  async forget(tasks: readonly Task[]): Promise<readonly string[]> {
    const { store } = this.#parts
    const all = tasks.flatMap((task) => [store.get(task.id) ?? task, ...store.below(task)])
    const unmerged = await this.#ports.archive.clear(all)
    await Promise.all(tasks.map((task) => this.#ports.forget(task)))
    return unmerged
  }

  /** Clears a task whose parent session was deleted: archived work here stays, remote files are removed. */
  async forgetLost(task: Task): Promise<void> {
    const { archive, places, forget } = this.#ports
    await archive.clear([task, ...this.#parts.store.below(task)].filter((each) => places.isAway(each)))
    await forget(task)
  }
}
