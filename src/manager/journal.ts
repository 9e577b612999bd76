import { type Clock, type Host, HostError } from "../core/ports.ts"
import type { Task } from "../core/task.ts"
import { persistently } from "./retry.ts"

/** How long a write may wait that nobody depends on: what is written meanwhile takes it along. */
export const LATER_MS = 10_000

type Entry = { readonly writing: Promise<void>; again?: Promise<void> }

/**
 * Writes tasks into their sessions' metadata: one write at a time for each session, always of the newest state, so
 * that a burst of transitions costs two writes at most. Never rejects: a record that cannot be written is logged.
 */
export class Journal {
  readonly #host: Host
  readonly #clock: Clock
  readonly #newest: (id: string) => Task | undefined
  readonly #entries = new Map<string, Entry>()
  /** Cancels the writes that wait, by task. */
  readonly #later = new Map<string, () => void>()

  constructor(host: Host, clock: Clock, newest: (id: string) => Task | undefined) {
    this.#host = host
    this.#clock = clock
    this.#newest = newest
  }

  /** Resolves once a state at least as new as the present one is stored, or has been given up. */
  save(task: Task): Promise<void> {
    const entry = this.#entries.get(task.id)
    if (!entry) return this.#start(task)
    entry.again ??= entry.writing.then(() => this.#start(task))
    return entry.again
  }

  /** Stores the present state, or a newer one, before long: with the next write, or when `LATER_MS` have passed. */
  saveLater(task: Task): void {
    if (this.#later.has(task.id)) return
    this.#later.set(
      task.id,
      this.#clock.after(LATER_MS, () => void this.save(task)),
    )
  }

  /** Drops the writes that wait. */
  stop(): void {
    for (const id of [...this.#later.keys()]) this.#dropLater(id)
  }

  /** Removes a task's record, after what is being written. */
  async erase(task: Task): Promise<void> {
    this.#dropLater(task.id)
    await this.#entries.get(task.id)?.writing
    await this.#write(task.sessionID, task.id, () => undefined)
  }

  #start(task: Task): Promise<void> {
    this.#dropLater(task.id)
    const writing = this.#write(task.sessionID, task.id, () => this.#newest(task.id)).finally(() => {
      if (this.#entries.get(task.id)?.writing === writing) this.#entries.delete(task.id)
    })
    this.#entries.set(task.id, { writing })
    return writing
  }

  #dropLater(taskID: string): void {
    this.#later.get(taskID)?.()
    this.#later.delete(taskID)
  }

  async #write(sessionID: string, taskID: string, state: () => Task | undefined): Promise<void> {
    try {
      await persistently(this.#clock, () => this.#host.saveRecord(sessionID, state()))
    } catch (error) {
      if (error instanceof HostError && error.notFound) return
      this.#host.log("error", "task record not written", { task: taskID, session: sessionID, error: String(error) })
    }
  }
}
