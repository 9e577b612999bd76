import type { Spent } from "../../core/spending.ts"
import { type Ending, isUnattended, NO_USAGE, type Task, type Usage } from "../../core/task.ts"
import type { Recovery } from "../conductor/recovery.ts"
import type { Timekeeper } from "../conductor/timekeeper.ts"
import type { Ledger, Purse } from "../limits/ledger.ts"
import type { Parts } from "../parts.ts"
import { type TaskView, viewOf } from "../tasks/view.ts"
import type { Unattended, UnattendedRequest } from "./unattended.ts"

const PURSE_ENDED: Ending = {
  type: "cancelled",
  reason: { code: "purse", text: "It was stopped: the board's purse has ended." },
}
const STOPPED: Ending = { type: "cancelled", reason: { code: "cancelled", text: "It was stopped." } }

type StandingPorts = {
  readonly unattended: Unattended
  readonly ledger: Ledger
  readonly timekeeper: Timekeeper
  readonly recovery: Recovery
}

/** The runs of sessions that stand by themselves, for whoever begins, pays and stops them: the board. */
export class Standing {
  readonly #parts: Parts
  readonly #ports: StandingPorts

  constructor(parts: Parts, ports: StandingPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /** Begins a run in a session that stands by itself, of which nobody is told. */
  async run(request: UnattendedRequest): Promise<TaskView> {
    return this.#view(await this.#ports.unattended.run(request))
  }

  /** A person has written in such a session: that is a run, too. Undefined where it is not, or joins one. */
  async adopt(request: Omit<UnattendedRequest, "prompt">, messageID: string): Promise<TaskView | undefined> {
    const task = await this.#ports.unattended.adopt(request, messageID)
    return task && this.#view(task)
  }

  /** Why no run may begin in such sessions now, by the limits on what is spent: undefined of one where it may. */
  refusals(): Promise<(sessionID: string | undefined) => string | undefined> {
    return this.#ports.unattended.refusals()
  }

  /** Stops such a run, for the person who wants that, or for the purse that ends. False where there is none. */
  stop(sessionID: string, why?: "purse"): Promise<boolean> {
    return this.#ports.unattended.stop(sessionID, why === "purse" ? PURSE_ENDED : STOPPED)
  }

  /** Sessions that stand by themselves are paid from this purse; undefined where there is none (any more). */
  usePurse(purse: Purse | undefined): void {
    this.#ports.ledger.usePurse(purse)
    this.#ports.timekeeper.wake()
  }

  /** What all runs took of the task whose own session this is, and the tasks below it. */
  took(sessionID: string): Usage {
    const task = this.#parts.store.bySession(sessionID)
    return task ? this.#ports.ledger.ofTask(task.id) : NO_USAGE
  }

  /** What the purse's runs took since it was opened, and what those at work may need for their last words. */
  ofPurse(): NonNullable<Spent["purse"]> {
    return this.#ports.ledger.ofPurse()
  }

  /** The session of a task that nobody launched; undefined for any other. */
  sessionOf(taskID: string): string | undefined {
    const task = this.#parts.store.get(taskID)
    return task && isUnattended(task) ? task.sessionID : undefined
  }

  /** Whether a message is one that was written by or for a task. */
  wrote(messageID: string): boolean {
    const id = this.#parts.host.taskOf(messageID)
    return id !== undefined && this.#parts.store.get(id) !== undefined
  }

  /** Looks at what other processes have made of their tasks since `since`. Never rejects. */
  async refresh(since: number): Promise<void> {
    await this.#ports.recovery.discover(since)
    await this.#ports.recovery.refreshForeign()
  }

  #view(task: Task): TaskView {
    const { store, clock } = this.#parts
    return viewOf(store.get(task.id) ?? task, store, clock.now())
  }
}
