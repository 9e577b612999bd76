import { messageOf } from "../../core/errors.ts"
import type { LogFields } from "../../core/ports.ts"
import type { Debts } from "./debts.ts"
import type { Stub } from "./stub.ts"

export type OwingPorts = {
  readonly debts: Debts
  /** The stub that is known of a task. */
  readonly known: (taskID: string) => Stub | undefined
  readonly has: (host: string) => boolean
  readonly add: (stub: Stub) => void
  readonly drop: (stub: Stub) => void
  /** Its host is to be reached for it. */
  readonly wanted: (stub: Stub) => void
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

  constructor(ports: OwingPorts) {
    this.#ports = ports
  }

  /** It is written down, and done as soon as its host answers. */
  async owe(stub: Stub): Promise<void> {
    this.#owed.add(stub)
    this.#ports.wanted(stub)
    await this.#ports.debts.write(stub)
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

  /** A host answers. Never rejects: what fails is tried when it answers again. */
  async settle(name: string): Promise<void> {
    const { debts, pay, drop, log } = this.#ports
    for (const stub of [...this.#owed].filter(({ host }) => host === name)) {
      if (!this.#owed.has(stub)) continue
      const isHome = stub.home !== undefined
      try {
        // What another process has done may be undone by now: a later run may work there.
        if (await debts.has(stub)) await pay(stub)
        await this.forgive(stub)
        // A task whose work is here is known as before.
        if (!isHome) drop(stub)
      } catch (error) {
        const what = isHome ? "folder" : "work"
        log(`the ${what} that a task left on ${name} could not be taken away: ${messageOf(error)}`, {
          task: stub.taskID,
        })
      }
    }
  }
}
