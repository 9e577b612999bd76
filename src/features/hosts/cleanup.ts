import { access, mkdir, rm } from "node:fs/promises"
import { messageOf } from "../../core/errors.ts"
import type { Clock, LogFields } from "../../core/ports.ts"
import { jsonFile, jsonNames, readJson, replaceFile } from "../../lib/atomic-file.ts"
import { SerialQueue, succeeds } from "../../lib/promises.ts"
import type { RemoteSession } from "./remote-session.ts"

/** Delays after failures during contact, in ms; after the last one the connection is not kept for it. */
const PAUSES_MS = [5000, 15_000, 45_000, 135_000, 405_000]

type CleanupPorts = {
  readonly cleanupQueue: CleanupQueue
  readonly clock: Clock
  /** Known remote session of a task. */
  readonly known: (taskID: string) => RemoteSession | undefined
  readonly has: (host: string) => boolean
  readonly add: (remote: RemoteSession) => void
  readonly drop: (remote: RemoteSession) => void
  /** Keeps the host's connection for it. */
  readonly wanted: (remote: RemoteSession) => void
  readonly isReached: (host: string) => boolean
  /** No longer keeps the connection for it. */
  readonly unwanted: (remote: RemoteSession) => void
  /** Performs the cleanup of a session. */
  readonly pay: (remote: RemoteSession) => Promise<unknown>
  readonly log: (text: string, fields: LogFields) => void
}

/**
 * Pending work on hosts, also after a restart: fetching the work of cleared tasks, and removing folders whose work is
 * here.
 */
export class Cleanup {
  readonly #ports: CleanupPorts
  readonly #owed = new Set<RemoteSession>()
  /** By host with failures during contact: their number, and a function that cancels the next attempt. */
  readonly #failed = new Map<string, { times: number; cancel: (() => void) | undefined }>()
  /** By host. */
  readonly #payQueue = new SerialQueue()

  constructor(ports: CleanupPorts) {
    this.#ports = ports
  }

  /** Stores a cleanup, to run as soon as its host is in contact. */
  async owe(remote: RemoteSession): Promise<void> {
    this.#owed.add(remote)
    this.#ports.wanted(remote)
    await this.#ports.cleanupQueue.write(remote)
    // While contact lasts, no event starts another attempt.
    this.#later(remote.host)
  }

  /** Drops a cleanup: the folder is used again, or is gone. */
  async forgive(remote: RemoteSession): Promise<void> {
    remote.home = undefined
    this.#owed.delete(remote)
    await this.#ports.cleanupQueue.drop(remote)
  }

  /** Loads entries of earlier processes. */
  async takeUp(): Promise<void> {
    const { cleanupQueue, known, has, add, wanted } = this.#ports
    for (const debt of await cleanupQueue.read()) {
      const remote = known(debt.taskID)
      if (!has(debt.host) || (remote && debt.home === undefined)) continue
      if (remote) remote.home = debt.home
      else add(debt)
      this.#owed.add(remote ?? debt)
      wanted(remote ?? debt)
    }
  }

  /** Runs a host's cleanups. Never rejects: failures are retried later, and with the next contact. */
  settle(name: string): Promise<void> {
    this.#failed.get(name)?.cancel?.()
    this.#failed.delete(name)
    return this.#payQueue.take(() => this.#payAll(name), name)
  }

  /** Stops all attempts. */
  close(): void {
    for (const { cancel } of this.#failed.values()) cancel?.()
    this.#failed.clear()
  }

  async #payAll(name: string): Promise<void> {
    for (const remote of this.#of(name)) if (this.#owed.has(remote)) await this.#pay(remote)
    if (this.#of(name).length > 0) this.#later(name)
    else this.#failed.delete(name)
  }

  async #pay(remote: RemoteSession): Promise<void> {
    const { cleanupQueue, pay, drop, unwanted, log } = this.#ports
    const isHome = remote.home !== undefined
    try {
      // Another process may have done it, and a later run may use the folder again.
      if (await cleanupQueue.has(remote)) await pay(remote)
      if (this.#owed.has(remote)) unwanted(remote)
      await this.forgive(remote)
      // A task whose work is fetched stays known.
      if (!isHome) drop(remote)
    } catch (error) {
      const what = isHome ? "folder" : "work"
      log(`the ${what} that a task left on ${remote.host} could not be taken away: ${messageOf(error)}`, {
        task: remote.taskID,
      })
    }
  }

  /** Without contact it runs when contact is back. */
  #later(name: string): void {
    const { clock, isReached, unwanted } = this.#ports
    const failed = this.#failed.get(name) ?? { times: 0, cancel: undefined }
    if (!isReached(name) || failed.cancel) return
    const pause = PAUSES_MS[failed.times]
    if (pause === undefined) {
      this.#failed.delete(name)
      for (const remote of this.#of(name)) unwanted(remote)
      return
    }
    failed.times++
    failed.cancel = clock.after(pause, () => {
      failed.cancel = undefined
      if (isReached(name)) void this.#payQueue.take(() => this.#payAll(name), name)
    })
    this.#failed.set(name, failed)
  }

  #of(name: string): readonly RemoteSession[] {
    return [...this.#owed].filter(({ host }) => host === name)
  }
}

/**
 * Stored entries for remote tasks that were cleared while their host was out of reach, and for folders that could not
 * be removed.
 */
export type CleanupQueue = {
  write(remote: RemoteSession): Promise<void>
  drop(remote: RemoteSession): Promise<void>
  /** False where another process has done the cleanup. */
  has(remote: RemoteSession): Promise<boolean>
  /** Entries of this folder's tasks. */
  read(): Promise<readonly RemoteSession[]>
}

/** One file for each entry; the folder exists only if there are entries. */
export const cleanupQueueIn = (folder: string, parentFolder: string): CleanupQueue => {
  const fileOf = ({ taskID }: Pick<RemoteSession, "taskID">) => jsonFile(folder, taskID)
  return {
    async write({ taskID, sessionID, host, title, agent, bare, home }) {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      const text = JSON.stringify({ taskID, sessionID, host, title, agent, bare, home, parentFolder })
      await replaceFile(fileOf({ taskID }), text)
    },
    has: (remote) => succeeds(access(fileOf(remote))),
    drop: (remote) => rm(fileOf(remote), { force: true }),
    async read() {
      const found = (await jsonNames(folder).catch(() => [])).map((name) => readJson(jsonFile(folder, name)))
      return found.flatMap((value) => remoteSessionIn(value as Written | undefined, parentFolder))
    },
  }
}

type Written = Pick<
  RemoteSession,
  "taskID" | "sessionID" | "host" | "title" | "agent" | "parentFolder" | "bare" | "home"
>

function remoteSessionIn(known: Written | undefined, parentFolder: string): readonly RemoteSession[] {
  if (known?.parentFolder !== parentFolder) return []
  // A fetched session is not read any more.
  const live = known.home === undefined
  return [{ ...known, model: undefined, live, sent: true, asked: live, asks: [], owesAbort: live }]
}
