import { modelKey } from "../../core/limits.ts"
import { isMember, isQueued, type Task } from "../../core/task.ts"
import { PATIENT_MS, retry } from "../../lib/clock.ts"
import { launchToast } from "../../present/toasts.ts"
import type { Dispatcher } from "../dispatcher.ts"
import type { Scheduler } from "../scheduler.ts"
import type { Services } from "../services.ts"

export type QueuePorts = {
  readonly dispatcher: Dispatcher
  readonly scheduler: Scheduler
  /** Called when there are runs to supervise. */
  readonly watch: () => void
}

/**
 * Hands runs to the scheduler: runs of new tasks, further runs of known tasks, and runs that a user has already
 * started.
 */
export class Queue {
  readonly #services: Services
  readonly #ports: QueuePorts

  constructor(services: Services, ports: QueuePorts) {
    this.#services = services
    this.#ports = ports
  }

  /** Tasks that a session has launched and whose own sessions are still being created. */
  making(parentID: string): readonly Task[] {
    return this.#services.store.making().filter((task) => task.parentID === parentID)
  }

  /** Called when the session of a new task exists. The task's run starts in its reserved slot, or waits. */
  async begin(task: Task, prompt: string): Promise<boolean> {
    const { store, clock, journal, toaster } = this.#services
    store.add(task, clock.now())
    if (task.fork) await journal.save(task)
    if (!store.runs(task)) return false
    // Do not wait for the prompt: OpenCode only confirms it, and the caller does not need that.
    this.#ports.dispatcher.deliver(task.id, { type: "begin", prompt })
    if (!isMember(task)) toaster.add(launchToast(task))
    this.#logLaunch(task)
    this.#ports.watch()
    this.#ports.scheduler.reschedule()
    return true
  }

  /** Queues a run of a known task, which starts when a slot is free. Resolves when the run is recorded. */
  async enqueue(task: Task, prompt: string): Promise<void> {
    this.#ports.dispatcher.deliver(task.id, { type: "begin", prompt })
    this.#ports.scheduler.reschedule()
    await this.#services.journal.save(task)
    this.#logLaunch(task)
    this.#ports.watch()
  }

  /** Adopts a run that the session's user started. The run works already and takes a slot without waiting. */
  async adopt(task: Task): Promise<void> {
    this.#ports.dispatcher.deliver(task.id, { type: "begin" })
    await this.#services.journal.save(task)
    this.#logLaunch(task)
    this.#ports.watch()
  }

  #logLaunch(task: Task): void {
    const { id, sessionID: session, parentID: parent, description, agent, model, run } = task
    this.#services.opencode.log("info", run.generation > 0 ? "task resumed" : "task launched", {
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

/** Deletes a session that a failed creation may have left: OpenCode can have created the session without an answer. */
export const sweepUp = ({ opencode, clock, stopped }: Services, id: string, under: string): Promise<void> =>
  retry(
    clock,
    stopped,
    async () => {
      const left = (await opencode.recordsOf(under)).find(({ task }) => task.id === id)
      if (left) await opencode.deleteSession(left.task.sessionID)
    },
    PATIENT_MS,
  )
