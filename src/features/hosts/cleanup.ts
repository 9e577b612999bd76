import { existsSync, rmSync } from "node:fs"
import { messageOf } from "../../core/errors.ts"
import type { Clock, LogFields } from "../../core/ports.ts"
import { jsonFile, jsonNames, readJson, writeJson } from "../../lib/atomic-file.ts"
import { SerialQueue } from "../../lib/promises.ts"
import type { HostConnection } from "./connection.ts"
import { newRemoteSession, type RemoteSession } from "./remote-session.ts"

/**
 * Delays in ms after cleanups that failed during contact. When all are used, the cleanups no longer keep the connection
 * open.
 */
const PAUSES_MS = [5000, 15_000, 45_000, 135_000, 405_000]

type QueueSettings = {
  /** Folder with a file for each cleanup; it exists only if there are some. */
  readonly folder: string
  /** Folder of the parents whose tasks are cleaned up here. */
  readonly parentFolder: string
  readonly clock: Clock
}

/** The hosts and their sessions. A connection is kept open for the cleanups that use it. */
export type CleanupHosts = {
  has(host: string): boolean
  remoteSessionOf(taskID: string): RemoteSession | undefined
  add(remote: RemoteSession): void
  drop(remote: RemoteSession): void
  performCleanup(remote: RemoteSession): Promise<unknown>
  log(text: string, fields: LogFields): void
  machine(name: string): { readonly link: Pick<HostConnection, "use" | "release"> & { readonly contact?: unknown } }
}

/**
 * Runs pending work on hosts, also after a restart: fetches the work of cleared tasks, and removes folders whose work
 * has been fetched.
 */
export class Cleanup {
  readonly #hosts: CleanupHosts
  readonly #settings: QueueSettings
  readonly #pending = new Set<RemoteSession>()
  /**
   * For each host on which cleanups failed during contact: number of failures, and a function that cancels the next
   * attempt.
   */
  readonly #failed = new Map<string, { times: number; cancel: (() => void) | undefined }>()
  /** Runs the cleanups of each host one after another. */
  readonly #queue = new SerialQueue()

  constructor(hosts: CleanupHosts, settings: QueueSettings) {
    this.#hosts = hosts
    this.#settings = settings
  }

  /** Stores a cleanup, which runs as soon as there is contact with the host. */
  async schedule(remote: RemoteSession): Promise<void> {
    this.#pending.add(remote)
    this.#use(remote)
    const { taskID, sessionID, host, title, agent, bare, home } = remote
    const { parentFolder } = this.#settings
    writeJson(this.#fileOf(remote), { taskID, sessionID, host, title, agent, bare, home, parentFolder })
    // Schedule an attempt: while contact lasts, no event starts the cleanup.
    this.#later(remote.host)
  }

  /** Drops a cleanup: the folder is used again, or is gone. */
  async cancel(remote: RemoteSession): Promise<void> {
    remote.home = undefined
    this.#pending.delete(remote)
    rmSync(this.#fileOf(remote), { force: true })
  }

  /** Loads cleanups that earlier processes have stored. */
  async takeUp(): Promise<void> {
    const { folder, parentFolder } = this.#settings
    for (const name of await jsonNames(folder).catch(() => [])) {
      const stored = readJson(jsonFile(folder, name)) as Stored | undefined
      if (stored?.parentFolder !== parentFolder || !this.#hosts.has(stored.host)) continue
      const debt = remoteSessionIn(stored)
      const remote = this.#hosts.remoteSessionOf(debt.taskID)
      if (remote && debt.home === undefined) continue
      if (remote) remote.home = debt.home
      else this.#hosts.add(debt)
      this.#pending.add(remote ?? debt)
      this.#use(remote ?? debt)
    }
  }

  /**
   * Runs a host's cleanups, also those that other processes have stored since. Never rejects: failures are retried later,
   * and with the next contact.
   */
  settle(name: string): Promise<void> {
    this.#failed.get(name)?.cancel?.()
    this.#failed.delete(name)
    return this.#queue.take(async () => {
      await this.takeUp()
      await this.#performAll(name)
    }, name)
  }

  close(): void {
    for (const { cancel } of this.#failed.values()) cancel?.()
    this.#failed.clear()
  }

  async #performAll(name: string): Promise<void> {
    for (const remote of this.#of(name)) if (this.#pending.has(remote)) await this.#performCleanup(remote)
    if (this.#of(name).length > 0) this.#later(name)
    else this.#failed.delete(name)
  }

  async #performCleanup(remote: RemoteSession): Promise<void> {
    const isHome = remote.home !== undefined
    try {
      // Clean up only if the entry is still stored: another process may have done the cleanup, and a later run may use
      // the folder again.
      if (existsSync(this.#fileOf(remote))) await this.#hosts.performCleanup(remote)
      if (this.#pending.has(remote)) this.#release(remote)
      await this.cancel(remote)
      // Only the session of a cleared task is forgotten. A task whose work was fetched before stays known.
      if (!isHome) this.#hosts.drop(remote)
    } catch (error) {
      const what = isHome ? "folder" : "work"
      this.#hosts.log(`the ${what} that a task left on ${remote.host} could not be taken away: ${messageOf(error)}`, {
        task: remote.taskID,
      })
    }
  }

  /**
   * Schedules the next attempt of a host's cleanups. Without contact nothing is scheduled: they run when contact is
   * back.
   */
  #later(name: string): void {
    const failed = this.#failed.get(name) ?? { times: 0, cancel: undefined }
    if (!this.#isReached(name) || failed.cancel) return
    const pause = PAUSES_MS[failed.times]
    if (pause === undefined) {
      this.#failed.delete(name)
      for (const remote of this.#of(name)) this.#release(remote)
      return
    }
    failed.times++
    failed.cancel = this.#settings.clock.after(pause, () => {
      failed.cancel = undefined
      if (this.#isReached(name)) void this.#queue.take(() => this.#performAll(name), name)
    })
    this.#failed.set(name, failed)
  }

  #use({ host, taskID }: RemoteSession): void {
    this.#hosts.machine(host).link.use(taskID, true)
  }

  #release({ host, taskID }: RemoteSession): void {
    this.#hosts.machine(host).link.release(taskID)
  }

  #isReached(host: string): boolean {
    return this.#hosts.machine(host).link.contact !== undefined
  }

  #fileOf({ taskID }: RemoteSession): string {
    return jsonFile(this.#settings.folder, taskID)
  }

  #of(name: string): readonly RemoteSession[] {
    return [...this.#pending].filter(({ host }) => host === name)
  }
}

type Stored = Pick<
  RemoteSession,
  "taskID" | "sessionID" | "host" | "title" | "agent" | "parentFolder" | "bare" | "home"
>

function remoteSessionIn(stored: Stored): RemoteSession {
  // If the work has been fetched already, messages are no longer read on the host.
  const live = stored.home === undefined
  return newRemoteSession({ ...stored, model: undefined, live, sent: true, promptSent: live, abortPending: live })
}
