import { type Ending, isActive, type Task } from "../core/task.ts"
import type { Archive } from "./archive.ts"
import type { Dispatcher } from "./dispatcher.ts"
import type { Parts } from "./parts.ts"
import { type CancelSelector, selectRunning } from "./tasks/lookup.ts"
import type { Retention } from "./tasks/retention.ts"
import type { Cleared } from "./tasks/view.ts"

const CANCELLED: Ending = {
  type: "cancelled",
  reason: { code: "cancelled", text: "It was cancelled by the agent that launched it." },
}

type CancellingPorts = {
  readonly dispatcher: Dispatcher
  readonly kept: Archive
  readonly retention: Retention
  readonly forget: (task: Task) => Promise<void>
  /** Its work is still on another machine. */
  readonly isAway: (task: Task) => boolean
}

/** Ends tasks, and forgets them, because the session that launched them asks for it. */
export class Cancelling {
  readonly #parts: Parts
  readonly #ports: CancellingPorts

  constructor(parts: Parts, ports: CancellingPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /**
   * Ends the selected tasks that run, and really stops them; of those that have completed, what is still done to merge
   * their work. Returns those that ended or were stopped by it, with those that waited for them.
   */
  async cancel(selector: CancelSelector, sessionID: string): Promise<readonly Task[]> {
    const { store } = this.#parts
    const own = store.ofParent(sessionID)
    const selected = selectRunning(selector, own, store)
    const merging = selected.filter(({ id }) => store.isMerging(id))
    // The newest first: those that wait for others come after them, and are ended for what they are.
    for (const { id, run } of selected.toReversed())
      this.#ports.dispatcher.end(id, run.generation, CANCELLED, { wake: false })
    const cancelled = own.filter((task) => isActive(task) && store.get(task.id)?.status === "cancelled")
    const ended = own.filter((task) => cancelled.includes(task) || merging.includes(task))
    await Promise.all(ended.map(({ id }) => this.#ports.dispatcher.closed(id)))
    return ended.flatMap(({ id }) => store.get(id) ?? [])
  }

  /** Forgets the session's tasks; what runs is stopped first and nobody is told. Their sessions stay. */
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

  /** Forgets tasks that have ended, with what is kept of their work. Returns those whose work stays, since it is not merged. */
  async forget(tasks: readonly Task[]): Promise<readonly string[]> {
    const { store } = this.#parts
    const all = tasks.flatMap((task) => [store.get(task.id) ?? task, ...store.below(task)])
    const unmerged = await this.#ports.kept.clear(all)
    await Promise.all(tasks.map((task) => this.#ports.forget(task)))
    return unmerged
  }

  /** Forgets a task whose parent's session was deleted: what is kept of its work here stays, what lies elsewhere goes. */
  async forgetLost(task: Task): Promise<void> {
    const { kept, isAway, forget } = this.#ports
    await kept.clear([task, ...this.#parts.store.below(task)].filter(isAway))
    await forget(task)
  }
}
