import type { Host } from "../core/ports.ts"
import { isActive, type Task } from "../core/task.ts"
import type { Options } from "../options.ts"
import type { TaskStore } from "./store.ts"

export type HistoryPorts = {
  readonly store: TaskStore
  readonly options: Options
  readonly host: Host
  readonly forget: (task: Task) => Promise<void>
}

/**
 * Keeps a session's ended tasks to `maxHistory`. Those that were read go first, the oldest before the others; one that
 * nobody has read goes only when unread ones alone are too many, and is counted.
 */
export class History {
  readonly #ports: HistoryPorts
  readonly #droppedUnread = new Map<string, number>()

  constructor(ports: HistoryPorts) {
    this.#ports = ports
  }

  prune(parentID: string): void {
    const { store, options, forget, host } = this.#ports
    if (options.maxHistory === 0) return
    const ended = store.ofParent(parentID).filter((task) => !isActive(task) && isTold(task))
    const surplus = ended.length - options.maxHistory
    if (surplus <= 0) return
    const oldestFirst = ended.toSorted((a, b) => (a.run.endedAt ?? 0) - (b.run.endedAt ?? 0))
    const read = oldestFirst.filter((task) => task.retrievedAt !== undefined)
    const unread = oldestFirst.filter((task) => task.retrievedAt === undefined)
    for (const task of [...read, ...unread].slice(0, surplus)) {
      if (task.retrievedAt === undefined) {
        this.#droppedUnread.set(parentID, this.droppedUnread(parentID) + 1)
        host.log("warn", "an ended task was dropped unread (option maxHistory)", { task: task.id, session: parentID })
      }
      void forget(task)
    }
  }

  droppedUnread(parentID: string): number {
    return this.#droppedUnread.get(parentID) ?? 0
  }

  forgetSession(parentID: string): void {
    this.#droppedUnread.delete(parentID)
  }
}

const isTold = (task: Task): boolean =>
  task.delivery.state === "none" || task.delivery.state === "confirmed" || task.delivery.state === "abandoned"
