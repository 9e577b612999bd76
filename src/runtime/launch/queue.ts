import { modelKey } from "../../core/limits.ts"
import { isMember, isQueued, type Task } from "../../core/task.ts"
import type { Dispatcher } from "../dispatcher.ts"
import type { Parts } from "../parts.ts"
import type { Scheduler } from "../scheduler.ts"

export type QueuePorts = {
  readonly dispatcher: Dispatcher
  readonly scheduler: Scheduler
  /** Tasks run: look after them. */
  readonly watch: () => void
}

/** Hands runs to the scheduler: those of new tasks, those that are asked again, and those that are at work already. */
export class Queue {
  readonly #parts: Parts
  readonly #ports: QueuePorts

  constructor(parts: Parts, ports: QueuePorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /** The tasks of a session whose own sessions are being made. */
  making(parentID: string): readonly Task[] {
    return this.#parts.store.making().filter((task) => task.parentID === parentID)
  }

  /** The session of a task is made, in the slot that was reserved for it: its run begins, or waits for its turn. */
  async begin(task: Task, prompt: string): Promise<boolean> {
    const { store, clock, journal, toaster } = this.#parts
    store.add(task, clock.now())
    if (task.fork) await journal.save(task)
    if (!store.runs(task)) return false
    // Not waited for: the host says nothing of a prompt but that it came, and the caller goes on all the sooner.
    this.#ports.dispatcher.deliver(task.id, { type: "begin", prompt })
    if (!isMember(task)) toaster.launched(task)
    this.#logLaunch(task)
    this.#ports.watch()
    this.#ports.scheduler.reschedule()
    return true
  }

  /** Has a run begin that is in the store already, as soon as there is a slot; resolves when it is written down. */
  async enqueue(task: Task, prompt: string): Promise<void> {
    this.#ports.dispatcher.deliver(task.id, { type: "begin", prompt })
    this.#ports.scheduler.reschedule()
    await this.#parts.journal.save(task)
    this.#logLaunch(task)
    this.#ports.watch()
  }

  /** A run in the store is at work already. It asked nobody for its slot; others do not get one while it has it. */
  async adopt(task: Task): Promise<void> {
    this.#ports.dispatcher.deliver(task.id, { type: "begin" })
    await this.#parts.journal.save(task)
    this.#logLaunch(task)
    this.#ports.watch()
  }

  #logLaunch(task: Task): void {
    const { id, sessionID: session, parentID: parent, description, agent, model, run } = task
    this.#parts.host.log("info", run.generation > 0 ? "task resumed" : "task launched", {
      task: id,
      session,
      parent,
      description,
      agent,
      model: model && modelKey(model),
      queued: isQueued(task),
    })
  }
}
