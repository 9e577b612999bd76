import type { Ending, Task } from "../core/task.ts"
import type { CostLedger } from "./budgets/ledger.ts"
import type { Dispatcher } from "./dispatcher.ts"
import type { Parts } from "./parts.ts"

const CLEARED: Ending = { type: "cancelled", reason: { code: "cancelled", text: "It was cleared." } }

type ForgettingPorts = {
  readonly dispatcher: Dispatcher
  readonly ledger: CostLedger
  /** Some may wait for what is forgotten. */
  readonly reschedule: () => void
}

/** Removes tasks from the list and their records from their sessions. */
export class TaskRemover {
  readonly #parts: Parts
  readonly #ports: ForgettingPorts

  constructor(parts: Parts, ports: ForgettingPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /** Clears a task and its descendants, which no session could ever see again. */
  async forget(task: Task): Promise<void> {
    const { store } = this.#parts
    const own = store.ofParent(task.sessionID).filter(({ id }) => !store.isForeign(id))
    await Promise.all([...own.map((each) => this.forget(each)), this.#forgetOne(task)])
  }

  async #forgetOne(task: Task): Promise<void> {
    const { store, journal } = this.#parts
    const { dispatcher, ledger } = this.#ports
    // The task may have been resumed while its end was closed.
    dispatcher.end(task.id, store.get(task.id)?.run.generation ?? 0, CLEARED, { silent: true })
    const remains = ledger.keep(store.get(task.id) ?? task)
    const handle = store.clear(task.id)
    // Senders of pending messages are told now: later results find no run.
    for (const { reply, taken } of handle?.run?.sentMessages ?? []) if (!taken) reply?.("ended")
    if (handle) handle.run = undefined
    handle?.releaseWaiters()
    handle?.notifyWatchers()
    dispatcher.announcing.inOrder(task.parentID)
    dispatcher.announcing.wakeAgainBeside(task)
    this.#ports.reschedule()
    if (handle) await journal.erase(handle, remains)
  }
}
