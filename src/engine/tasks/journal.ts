import { type Clock, type Host, HostError } from "../../core/ports.ts"
import type { Task } from "../../core/task.ts"
import { persistently } from "../../lib/retry.ts"

/** How long a write may wait that nobody depends on: what is written or asked meanwhile takes it along. */
export const LATER_MS = 10_000

type Entry = { readonly writing: Promise<void>; again?: Promise<void> }
type Waiting = { readonly task: Task; readonly cancel: () => void }

export type JournalPorts = {
  /** The task as it is now; undefined for one that is forgotten, or another process's. */
  readonly newest: (taskID: string) => Task | undefined
  /** Another process has taken this task over. */
  readonly takenOver: (taskID: string) => void
}

/**
 * Writes tasks into their sessions' metadata: one write at a time for each session, always of the newest state, so
 * that a burst of transitions costs two writes at most. Never rejects: a record that cannot be written is logged.
 */
export class Journal {
  readonly #host: Host
  readonly #clock: Clock
  readonly #ports: JournalPorts
  readonly #stopped: AbortSignal
  readonly #entries = new Map<string, Entry>()
  /** The writes that wait, by task. */
  readonly #waiting = new Map<string, Waiting>()

  constructor(host: Host, clock: Clock, stopped: AbortSignal, ports: JournalPorts) {
    this.#host = host
    this.#clock = clock
    this.#stopped = stopped
    this.#ports = ports
    stopped.addEventListener("abort", () => {
      for (const id of [...this.#waiting.keys()]) this.#drop(id)
    })
  }

  /** Resolves once a state at least as new as the present one is stored, or has been given up. */
  save(task: Task): Promise<void> {
    const entry = this.#entries.get(task.id)
    if (!entry) return this.#start(task)
    entry.again ??= entry.writing.then(() => this.#start(task))
    return entry.again
  }

  /** Stores the present state, or a newer one, before long: with the next write or `flush`, or after `LATER_MS`. */
  saveLater(task: Task): void {
    if (this.#stopped.aborted || this.#waiting.has(task.id)) return
    const cancel = this.#clock.after(LATER_MS, () => void this.save(task))
    this.#waiting.set(task.id, { task, cancel })
  }

  /** Writes now what waits: all of it, or what waits for the tasks of one parent. */
  flush(parentID?: string): void {
    for (const { task } of [...this.#waiting.values()])
      if (parentID === undefined || task.parentID === parentID) void this.save(task)
  }

  /** Removes a task's record, after what is being written; `remains` is written in its place. */
  async erase(task: Task, remains?: Task): Promise<void> {
    this.#drop(task.id)
    await this.#entries.get(task.id)?.writing
    await this.#write(task.sessionID, task.id, () => this.#host.saveRecord(task.sessionID, remains))
  }

  #start(task: Task): Promise<void> {
    this.#drop(task.id)
    const writing = this.#write(task.sessionID, task.id, async () => {
      const newest = this.#ports.newest(task.id)
      if (newest) await this.#host.saveRecord(task.sessionID, newest)
    }).finally(() => {
      if (this.#entries.get(task.id)?.writing === writing) this.#entries.delete(task.id)
    })
    this.#entries.set(task.id, { writing })
    return writing
  }

  #drop(taskID: string): void {
    this.#waiting.get(taskID)?.cancel()
    this.#waiting.delete(taskID)
  }

  async #write(sessionID: string, taskID: string, write: () => Promise<void>): Promise<void> {
    try {
      if (!this.#stopped.aborted) await persistently(this.#clock, this.#stopped, write)
    } catch (error) {
      if (this.#stopped.aborted || (error instanceof HostError && error.notFound)) return
      if (error instanceof HostError && error.takenOver) return this.#ports.takenOver(taskID)
      this.#host.log("error", "task record not written", { task: taskID, session: sessionID, error: String(error) })
    }
  }
}
