import { type Ending, hasPendingNotification, isActive, type Task } from "../core/task.ts"
import type { Cleared } from "../present/view.ts"
import type { Archive } from "./archive.ts"
import type { Engine } from "./engine.ts"
import { answersBefore } from "./launch/resuming.ts"
import { type CancelSelector, selectRunning } from "./tasks/view.ts"

const CANCELLED: Ending = {
  type: "cancelled",
  reason: { code: "cancelled", text: "It was cancelled by the agent that launched it." },
}

const CLEARED: Ending = { type: "cancelled", reason: { code: "cancelled", text: "It was cleared." } }

/** Cancels, clears and drops tasks of the session that launched them. */
export class TaskCanceller {
  readonly #engine: Engine
  readonly #archive: Archive

  constructor(engine: Engine, archive: Archive) {
    this.#engine = engine
    this.#archive = archive
  }

  /**
   * Stops the selected runs, and pending merges of completed ones. Returns the tasks that the call ended or stopped,
   * and the tasks that waited for one of these.
   */
  async cancel(selector: CancelSelector, sessionID: string): Promise<readonly Task[]> {
    const { store } = this.#engine
    const own = store.ofParent(sessionID)
    const selected = selectRunning(selector, own, store)
    const merging = selected.filter(({ id }) => store.isMerging(id))
    // Newest tasks first: a task that waits for another comes later in the list and must end as cancelled, not as
    // stranded.
    for (const { id, run } of selected.toReversed())
      this.#engine.dispatcher.end(id, run.generation, CANCELLED, { wake: false })
    const cancelled = own.filter((task) => isActive(task) && store.get(task.id)?.status === "cancelled")
    const ended = own.filter((task) => cancelled.includes(task) || merging.includes(task))
    await Promise.all(ended.map(({ id }) => this.#engine.dispatcher.closed(id)))
    return ended.flatMap(({ id }) => store.get(id) ?? [])
  }

  /** Clears the session's tasks. Running tasks are stopped without a notification, and all tasks' sessions stay. */
  async clear(sessionID: string): Promise<Cleared> {
    const { store } = this.#engine
    const own = store.ofParent(sessionID)
    const tasks = own.filter((task) => !store.isForeign(task.id))
    const left = own.length - tasks.length
    const newestFirst = tasks.toReversed()
    this.#markCleared(tasks)
    const stopped = newestFirst.filter(({ id, run }) =>
      this.#engine.dispatcher.end(id, run.generation, CANCELLED, { silent: true }),
    )
    await Promise.all(tasks.map(({ id }) => this.#engine.dispatcher.closed(id)))
    const unmerged = await this.forget(tasks)
    store.parentState(sessionID).droppedUnread = 0
    return {
      cleared: tasks.length,
      stopped: stopped.length,
      ...(unmerged.length > 0 && { unmerged }),
      ...(left > 0 && { left }),
    }
  }

  /** Clears ended tasks with their archived work. Returns ids of tasks whose work stays because it is not merged. */
  async forget(tasks: readonly Task[]): Promise<readonly string[]> {
    const all = this.#markCleared(tasks)
    const unmerged = await this.#archive.clear(all)
    await Promise.all(tasks.map((task) => this.#drop(task)))
    return unmerged
  }

  /** Marks the tasks, and those below them, as cleared: their ends and archives may take long. Returns them all. */
  #markCleared(tasks: readonly Task[]): readonly Task[] {
    const { store } = this.#engine
    const all = tasks.flatMap((task) => [store.get(task.id) ?? task, ...store.below(task)])
    for (const { id } of all) if (!store.isForeign(id)) store.markCleared(id)
    return all
  }

  /** Clears a task whose parent session was deleted: archived work here stays, remote files are removed. */
  async forgetLost(task: Task): Promise<void> {
    const { places, store } = this.#engine
    await this.#archive.clear([task, ...store.below(task)].filter((each) => places.isAway(each)))
    await this.#drop(task)
  }

  /**
   * Limits a session's ended tasks to `maxHistory`. Read tasks are dropped first, oldest first; dropped unread tasks are
   * counted. Tasks with work on another machine stay, because their record is needed to fetch it.
   */
  prune(parentID: string): void {
    const { store, options, opencode, background, dependencies, places } = this.#engine
    if (options.maxHistory === 0) return
    const own = store.ofParent(parentID)
    // A resume of a group needs the answers that it waited for.
    const answers = new Set(own.flatMap((task) => answersBefore(task) ?? []))
    const ended = own
      .filter((task) => !isActive(task) && !hasPendingNotification(task) && !dependencies.isWaitedFor(task.id))
      .filter((task) => !places.isAway(task) && !answers.has(task.id))
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
      const forgotten = this.#drop(task)
      background.run("drop an ended task", () => forgotten)
    }
  }

  /** Removes a task and its descendants, because no session could see the descendants without the task. */
  async #drop(task: Task): Promise<void> {
    const { store } = this.#engine
    const own = store.ofParent(task.sessionID).filter(({ id }) => !store.isForeign(id))
    await Promise.all([...own.map((each) => this.#drop(each)), this.#dropOne(task)])
  }

  async #dropOne(task: Task): Promise<void> {
    const { store, journal, dispatcher, ledger, scheduler } = this.#engine
    // If the task was resumed while its end was closed, a run is active again and must end.
    dispatcher.end(task.id, store.get(task.id)?.run.generation ?? 0, CLEARED, { silent: true })
    const remains = ledger.keep(store.get(task.id) ?? task)
    const handle = store.clear(task.id)
    // Tell the senders of pending messages now: without a run, later results reach nobody.
    for (const { reply, taken } of handle?.run?.sentMessages ?? []) if (!taken) reply?.("ended")
    if (handle) handle.run = undefined
    handle?.releaseWaiters()
    handle?.notifyWatchers()
    dispatcher.announcing.inOrder(task.parentID)
    dispatcher.announcing.wakeAgainBeside(task)
    scheduler.reschedule()
    if (handle) await journal.erase(handle, remains)
  }
}
