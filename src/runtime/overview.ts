import type { PauseView } from "../core/pause.ts"
import { isActive, isMember, type Task } from "../core/task.ts"
import type { Answers } from "./answers.ts"
import type { Archive } from "./archive.ts"
import type { Dispatcher } from "./dispatcher.ts"
import type { Parts } from "./parts.ts"
import type { Recovery } from "./recovery/recovery.ts"
import { STOPPED_BY_USER } from "./requests.ts"
import { type TaskView, viewOf } from "./tasks/view.ts"

/** Tolerance for clocks of other processes and pending writes, in ms. */
const SLACK_MS = 5000

type OverviewPorts = {
  readonly dispatcher: Dispatcher
  readonly answers: Answers
  readonly recovery: Recovery
  readonly archive: Archive
  readonly limitOf: (task: Task) => PauseView | undefined
}

/**
 * Tasks of all sessions, for a user who looks at the whole project. Reading them here does not mark them as retrieved.
 */
export class Overview {
  readonly #parts: Parts
  readonly #ports: OverviewPorts
  #refreshedAt: number

  constructor(parts: Parts, ports: OverviewPorts) {
    this.#parts = parts
    this.#ports = ports
    this.#refreshedAt = parts.clock.now()
  }

  /** Reads tasks that other processes launched since the last call. Never rejects. */
  async refresh(): Promise<void> {
    const since = this.#refreshedAt - SLACK_MS
    this.#refreshedAt = this.#parts.clock.now()
    await this.#ports.recovery.discover(since)
    await this.#ports.recovery.look()
  }

  /** Oldest first, other processes' tasks included. */
  list(): readonly TaskView[] {
    const { store } = this.#parts
    const tasks = store
      .all()
      .filter((task) => !isMember(task))
      .sort((a, b) => a.createdAt - b.createdAt)
    return tasks.map((task) => this.#view(task))
  }

  get(id: string): TaskView | undefined {
    const task = this.#parts.store.get(id)
    return task && this.#view(task)
  }

  isForeign(id: string): boolean {
    return this.#parts.store.isForeign(id)
  }

  /** Text of the last run, or the latest text of a running one. Rejects with a `OpencodeError`. */
  async answer(id: string): Promise<string> {
    const view = this.get(id)
    if (!view) return ""
    return isActive(view.task) ? view.lastText : (await this.#ports.answers.of(view.task)).text
  }

  /** Diff of an ended task in its own place; undefined without one, or where it cannot be read. */
  async patch(id: string): Promise<string | undefined> {
    const task = this.#parts.store.get(id)
    return task && (await this.#ports.archive.shown(task))?.diff
  }

  /** Stops a running task for the user; its parent is told. False where there was nothing to stop. */
  async cancel(id: string): Promise<boolean> {
    const task = this.#parts.store.get(id)
    if (!task || this.isForeign(id)) return false
    const ended = this.#ports.dispatcher.end(id, task.run.generation, STOPPED_BY_USER)
    if (ended) await this.#ports.dispatcher.closed(id)
    return ended
  }

  /**
   * `listener` is called with the id of a task that may have changed; it must not throw. Returns the unsubscribe
   * function.
   */
  subscribe(listener: (id: string) => void): () => void {
    const { store } = this.#parts
    // A member's change is shown with its group.
    return store.subscribe((id) => listener(store.get(id)?.member?.of ?? id))
  }

  #view(task: Task): TaskView {
    const { store, clock, attendance } = this.#parts
    return viewOf(task, store, clock.now(), this.#ports.limitOf, (ask) => attendance.refusedAt(ask))
  }
}
