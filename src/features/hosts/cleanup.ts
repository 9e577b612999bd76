import { messageOf } from "../../core/errors.ts"
import type { Clock, LogFields } from "../../core/ports.ts"
import { Turn } from "../../lib/turn.ts"
import type { CleanupQueue } from "./cleanup-queue.ts"
import type { RemoteSession } from "./remote-session.ts"

/** Waits before what failed with contact is tried again, in ms; after the last one its host is kept no longer for it. */
const PAUSES_MS = [5000, 15_000, 45_000, 135_000, 405_000]

export type CleanupPorts = {
  readonly cleanupQueue: CleanupQueue
  readonly clock: Clock
  /** The stub that is known of a task. */
  readonly known: (taskID: string) => RemoteSession | undefined
  readonly has: (host: string) => boolean
  readonly add: (remote: RemoteSession) => void
  readonly drop: (remote: RemoteSession) => void
  /** Its host is to be reached for it. */
  readonly wanted: (remote: RemoteSession) => void
  readonly isReached: (host: string) => boolean
  /** Its host is not kept for it any more. */
  readonly unwanted: (remote: RemoteSession) => void
  /** Does what is owed of it. */
  readonly pay: (remote: RemoteSession) => Promise<unknown>
  readonly log: (text: string, fields: LogFields) => void
}

/**
 * What is still to be done on hosts when they answer, be it after a restart: what cleared tasks have left is fetched, and
 * the folders are removed of those whose work is here.
 */
export class Cleanup {
  readonly #ports: CleanupPorts
  readonly #owed = new Set<RemoteSession>()
  /** Of each host with something that failed with contact: how often, and what ends the wait for the next time. */
  readonly #failed = new Map<string, { times: number; cancel: (() => void) | undefined }>()
  /** By host. */
  readonly #paying = new Turn()

  constructor(ports: CleanupPorts) {
    this.#ports = ports
  }

  /** It is written down, and done as soon as its host answers. */
  async owe(remote: RemoteSession): Promise<void> {
    this.#owed.add(remote)
    this.#ports.wanted(remote)
    await this.#ports.cleanupQueue.write(remote)
    // With contact nobody comes to tell that there is some.
    this.#later(remote.host)
  }

  /** Its folder is there for a run again, or removed: nothing is owed of it. */
  async forgive(remote: RemoteSession): Promise<void> {
    remote.home = undefined
    this.#owed.delete(remote)
    await this.#ports.cleanupQueue.drop(remote)
  }

  /** Takes up what earlier processes owed. */
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

  /** A host answers. Never rejects: what fails is tried again after a while, and when it answers again. */
  settle(name: string): Promise<void> {
    this.#failed.get(name)?.cancel?.()
    this.#failed.delete(name)
    return this.#paying.take(() => this.#payAll(name), name)
  }

  /** Nothing is tried any more. */
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
      // What another process has done may be undone by now: a later run may work there.
      if (await cleanupQueue.has(remote)) await pay(remote)
      if (this.#owed.has(remote)) unwanted(remote)
      await this.forgive(remote)
      // A task whose work is here is known as before.
      if (!isHome) drop(remote)
    } catch (error) {
      const what = isHome ? "folder" : "work"
      log(`the ${what} that a task left on ${remote.host} could not be taken away: ${messageOf(error)}`, {
        task: remote.taskID,
      })
    }
  }

  /** Without contact it is done when that is back. */
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
      if (isReached(name)) void this.#paying.take(() => this.#payAll(name), name)
    })
    this.#failed.set(name, failed)
  }

  #of(name: string): readonly RemoteSession[] {
    return [...this.#owed].filter(({ host }) => host === name)
  }
}
