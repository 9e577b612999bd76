import { hasPendingNotification, isActive, type Task } from "../../core/task.ts"
import type { TaskDependencies } from "../launch/dependencies.ts"
import type { Services } from "../parts.ts"
import type { Places } from "../places/places.ts"

type RetentionPorts = {
  readonly dependencies: TaskDependencies
  readonly forget: (task: Task) => Promise<void>
  readonly places: Pick<Places, "isAway">
}

/**
 * Limits a session's ended tasks to `maxHistory`. Read tasks are dropped first, oldest first; dropped unread tasks are
 * counted. Tasks with work on another machine stay, because their record is needed to fetch it.
 */
export class Retention {
  readonly #services: Services
  readonly #dependencies: TaskDependencies
  readonly #forget: (task: Task) => Promise<void>
  readonly #places: Pick<Places, "isAway">

  constructor(services: Services, { dependencies, forget, places }: RetentionPorts) {
    this.#services = services
    this.#dependencies = dependencies
    this.#forget = forget
    this.#places = places
  }

  prune(parentID: string): void {
    const { store, options, opencode, background } = this.#services
    if (options.maxHistory === 0) return
    const ended = store
      .ofParent(parentID)
      .filter((task) => !isActive(task) && !hasPendingNotification(task) && !this.#dependencies.isWaitedFor(task.id))
      .filter((task) => !this.#places.isAway(task))
    const surplus = ended.length - options.maxHistory
    if (surplus <= 0) return
    const oldestFirst = ended.toSorted((a, b) => (a.run.endedAt ?? 0) - (b.run.endedAt ?? 0))
    const read = oldestFirst.filter((task) => task.retrievedAt !== undefined)
    const unread = oldestFirst.filter((task) => task.retrievedAt === undefined)
    for (const task of [...read, ...unread].slice(0, surplus)) {
      if (task.retrievedAt === undefined) {
        store.parentState(parentID).droppedUnread++
        opencode.log("warn", "an ended task was dropped unread (option maxHistory)", {
          task: task.id,
          session: parentID,
        })
      }
      const forgotten = this.#forget(task)
      background.run("drop an ended task", () => forgotten)
    }
  }

  droppedUnread(parentID: string): number {
    return this.#services.store.parentState(parentID).droppedUnread
  }

  forgetSession(parentID: string): void {
    this.#services.store.parentState(parentID).droppedUnread = 0
  }
}
