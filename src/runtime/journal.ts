import { type Clock, type Host, HostError } from "../core/ports.ts"
import type { Task } from "../core/task.ts"
import { retry } from "../lib/clock.ts"
import type { TaskStore } from "./tasks/store.ts"
import type { TaskHandle } from "./tasks/task-handle.ts"

/** How long a write may wait that nobody depends on: what is written or asked meanwhile takes it along. */
export const LATER_MS = 10_000
/** How long the record of an end that its session's messages prove waits for more, and while its parent is told. */
const PROVEN_RECORD_MS = 1000

export type JournalPorts = {
  readonly host: Host
  readonly clock: Clock
  readonly stopped: AbortSignal
  readonly store: TaskStore
  /** The host takes a message to this parent. */
  readonly isTelling: (parentID: string) => boolean
  /** Another process has taken this task over. */
  readonly takenOver: (taskID: string) => void
}

/**
 * Writes tasks into their sessions' metadata: one write at a time for each session, always of the newest state, so
 * that a burst of transitions costs two writes at most. Never rejects: a record that cannot be written is logged.
 */
export class Journal {
  readonly #ports: JournalPorts

  constructor(ports: JournalPorts) {
    this.#ports = ports
    ports.stopped.addEventListener("abort", () => {
      for (const entry of ports.store.entries()) drop(entry)
    })
  }

  /** Resolves once a state at least as new as the present one is stored, or has been given up. */
  save(task: Task): Promise<void> {
    const entry = this.#ports.store.handle(task.id)
    if (!entry) return Promise.resolve()
    if (!entry.writing) return this.#start(entry)
    entry.writeAgain ??= entry.writing.then(() => this.#start(entry))
    return entry.writeAgain
  }

  /** Stores the present state, or a newer one, before long: with the next write or `flush`, or after `LATER_MS`. */
  saveLater(task: Task): void {
    const { stopped, clock, store } = this.#ports
    const entry = store.handle(task.id)
    if (!entry || stopped.aborted || entry.writeNow) return
    entry.writeNow = clock.after(LATER_MS, () => void this.save(task))
  }

  /** The same, once no task of this parent has ended and none was told of for a moment: then one write has both. */
  saveSoon(task: Task): void {
    this.saveLater(task)
    this.#recordSoon(task.parentID)
  }

  /** It was told of: that goes with what is written of its parent's tasks. */
  told(task: Task): void {
    this.saveLater(task)
    if (this.#ports.store.parentState(task.parentID).cancelRecordWrite) this.#recordSoon(task.parentID)
  }

  /** Writes now what waits: all of it, or what waits for the tasks of one parent. */
  flush(parentID?: string): void {
    for (const { task, writeNow: unwait } of [...this.#ports.store.entries()])
      if (unwait && (parentID === undefined || task.parentID === parentID)) void this.save(task)
  }

  /** Removes the record of a task that was forgotten, after what is being written; `remains` is written in its place. */
  async erase(entry: TaskHandle, remains?: Task): Promise<void> {
    drop(entry)
    await entry.writing
    const { sessionID } = entry.task
    await this.#write(entry.task, () => this.#ports.host.saveRecord(sessionID, remains))
  }

  #recordSoon(parentID: string): void {
    const { clock, store, isTelling } = this.#ports
    const household = store.parentState(parentID)
    household.cancelRecordWrite?.()
    household.cancelRecordWrite = clock.after(PROVEN_RECORD_MS, () => {
      household.cancelRecordWrite = undefined
      // A host that takes a second for a message has no time for records that are written anew with the next one told.
      if (isTelling(parentID)) this.#recordSoon(parentID)
      else this.flush(parentID)
    })
  }

  #start(entry: TaskHandle): Promise<void> {
    const { host, store } = this.#ports
    drop(entry)
    entry.writeAgain = undefined
    const writing = this.#write(entry.task, async () => {
      const { task, borrowed } = entry
      // Not one that was forgotten meanwhile, or is another process's.
      if (!borrowed && store.get(task.id)) await host.saveRecord(task.sessionID, task)
    }).finally(() => {
      if (entry.writing === writing) entry.writing = undefined
    })
    entry.writing = writing
    return writing
  }

  async #write({ id, sessionID }: Task, write: () => Promise<void>): Promise<void> {
    const { host, clock, stopped, takenOver } = this.#ports
    try {
      if (!stopped.aborted) await retry(clock, stopped, write)
    } catch (error) {
      if (stopped.aborted || (error instanceof HostError && error.notFound)) return
      if (error instanceof HostError && error.takenOver) return takenOver(id)
      host.log("error", "task record not written", { task: id, session: sessionID, error: String(error) })
    }
  }
}

function drop(entry: TaskHandle): void {
  entry.writeNow?.()
  entry.writeNow = undefined
}
