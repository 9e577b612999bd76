import { messageOf } from "../../core/errors.ts"
import type { Clock, LogFields } from "../../core/ports.ts"
import type { Debts } from "./debts.ts"
import type { Stub } from "./stub.ts"

/** Waits before what failed with contact is tried again, in ms; after the last one its host is kept no longer for it. */
const PAUSES_MS = [5000, 15_000, 45_000, 135_000, 405_000]

export type OwingPorts = {
  readonly debts: Debts
  readonly clock: Clock
  /** The stub that is known of a task. */
  readonly known: (taskID: string) => Stub | undefined
  readonly has: (host: string) => boolean
  readonly add: (stub: Stub) => void
  readonly drop: (stub: Stub) => void
  /** Its host is to be reached for it. */
  readonly wanted: (stub: Stub) => void
  readonly isReached: (host: string) => boolean
  /** Its host is not kept for it any more. */
  readonly unwanted: (stub: Stub) => void
  /** Does what is owed of it. */
  readonly pay: (stub: Stub) => Promise<unknown>
  readonly log: (text: string, fields: LogFields) => void
}

/**
 * What is still to be done on hosts when they answer, be it after a restart: what cleared tasks have left is fetched, and
 * the folders are removed of those whose work is here.
 */
export class Owing {
  readonly #ports: OwingPorts
  readonly #owed = new Set<Stub>()
  /** Of each host with something that failed with contact: how often, and what ends the wait for the next time. */
  readonly #failed = new Map<string, { times: number; cancel: (() => void) | undefined }>()
  /** One after the other, for each host. */
  readonly #paying = new Map<string, Promise<void>>()

  constructor(ports: OwingPorts) {
    this.#ports = ports
  }

  /** It is written down, and done as soon as its host answers. */
  async owe(stub: Stub): Promise<void> {
    this.#owed.add(stub)
    this.#ports.wanted(stub)
    await this.#ports.debts.write(stub)
    // With contact nobody comes to tell that there is some.
    this.#later(stub.host)
  }

  /** Its folder is there for a run again, or removed: nothing is owed of it. */
  async forgive(stub: Stub): Promise<void> {
    stub.home = undefined
    this.#owed.delete(stub)
    await this.#ports.debts.drop(stub)
  }

  /** Takes up what earlier processes owed. */
  async takeUp(): Promise<void> {
    const { debts, known, has, add, wanted } = this.#ports
    for (const debt of await debts.read()) {
      const stub = known(debt.taskID)
      if (!has(debt.host) || (stub && debt.home === undefined)) continue
      if (stub) stub.home = debt.home
      else add(debt)
      this.#owed.add(stub ?? debt)
      wanted(stub ?? debt)
    }
  }

  /** A host answers. Never rejects: what fails is tried again after a while, and when it answers again. */
  settle(name: string): Promise<void> {
    this.#failed.get(name)?.cancel?.()
    this.#failed.delete(name)
    return this.#inTurn(name)
  }

  /** Nothing is tried any more. */
  close(): void {
    for (const { cancel } of this.#failed.values()) cancel?.()
    this.#failed.clear()
  }

  #inTurn(name: string): Promise<void> {
    const done = (this.#paying.get(name) ?? Promise.resolve()).then(() => this.#payAll(name))
    this.#paying.set(name, done)
    return done
  }

  async #payAll(name: string): Promise<void> {
    for (const stub of this.#of(name)) if (this.#owed.has(stub)) await this.#pay(stub)
    if (this.#of(name).length > 0) this.#later(name)
    else this.#failed.delete(name)
  }

  async #pay(stub: Stub): Promise<void> {
    const { debts, pay, drop, unwanted, log } = this.#ports
    const isHome = stub.home !== undefined
    try {
      // What another process has done may be undone by now: a later run may work there.
      if (await debts.has(stub)) await pay(stub)
      if (this.#owed.has(stub)) unwanted(stub)
      await this.forgive(stub)
      // A task whose work is here is known as before.
      if (!isHome) drop(stub)
    } catch (error) {
      const what = isHome ? "folder" : "work"
      log(`the ${what} that a task left on ${stub.host} could not be taken away: ${messageOf(error)}`, {
        task: stub.taskID,
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
      for (const stub of this.#of(name)) unwanted(stub)
      return
    }
    failed.times++
    failed.cancel = clock.after(pause, () => {
      failed.cancel = undefined
      if (isReached(name)) void this.#inTurn(name)
    })
    this.#failed.set(name, failed)
  }

  #of(name: string): readonly Stub[] {
    return [...this.#owed].filter(({ host }) => host === name)
  }
}
