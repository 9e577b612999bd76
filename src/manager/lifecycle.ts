import { batchProgress } from "../core/batch.ts"
import type { Clock, Host } from "../core/ports.ts"
import { type Delivery, elapsed, isActive, type Outcome, subtractUsage, type Task, type Usage } from "../core/task.ts"
import type { Outbox } from "../delivery/outbox.ts"
import type { Toaster } from "../delivery/toaster.ts"
import type { Options } from "../options.ts"
import type { Background } from "./background.ts"
import type { Journal } from "./journal.ts"
import type { TaskStore } from "./store.ts"

/** How a run ended, in the words of `transition`, and what is known of it beyond its progress. */
export type Ending = {
  readonly type: "completed" | "failed" | "cancelled"
  readonly reason?: Outcome["reason"]
  readonly note?: string
  readonly openTodos?: number
  readonly filesChanged?: readonly string[]
  /** As counted in its messages; without it, those heard of. */
  readonly toolCalls?: number
  /** The session's usage as just read; without it, the last one heard of. */
  readonly usage?: Usage
  /** False: the notification is stored, but does not start the parent's model. */
  readonly wake?: boolean
  /** True: nobody is told at all, since the task is being forgotten. */
  readonly silent?: boolean
}

export type LifecyclePorts = {
  readonly host: Host
  readonly clock: Clock
  readonly options: Options
  readonly store: TaskStore
  readonly journal: Journal
  readonly outbox: Outbox
  readonly toaster: Toaster
  readonly background: Background
  /** Called when a slot has become free, after the task's own end is recorded in memory. */
  readonly freed: () => void
  /** Called for each task that the ended one had launched and that still runs. */
  readonly orphaned: (task: Task) => void
}

/**
 * Ends runs: puts the end through the one door and does what follows from it, once. The order is the promise: memory
 * first, so that late events are absorbed; then the record; then the waiting call and the notification.
 */
export class Lifecycle {
  readonly #ports: LifecyclePorts
  readonly #waiters = new Map<string, Set<() => void>>()

  constructor(ports: LifecyclePorts) {
    this.#ports = ports
  }

  /** Ends the run `generation` of a task. False where it had ended already. */
  end(taskID: string, generation: number, ending: Ending): boolean {
    const { store, clock, background, journal, outbox, toaster, host } = this.#ports
    const task = store.get(taskID)
    if (!task || !isActive(task) || task.run.generation !== generation) return false
    const now = clock.now()
    const { type } = ending
    const outcome = this.#outcome(task, ending)
    const delivery = this.#delivery(task, ending)
    const change = store.apply(taskID, { type, generation, at: now, outcome, delivery }, now)
    if (!change) return false
    const { after } = change
    const saved = ending.silent ? Promise.resolve() : journal.save(after)
    // Queued now, so that news go out in the order in which the runs ended, however long their records take.
    outbox.post(after, saved)
    background.run("settle", async () => {
      await saved
      this.letGo(taskID)
    })
    if (!ending.silent) toaster.ended(after)
    host.log("info", "task ended", {
      task: taskID,
      session: after.sessionID,
      status: after.status,
      reason: outcome.reason?.code,
      duration: elapsed(after, now),
      tokens: outcome.usage.input + outcome.usage.output + outcome.usage.reasoning,
    })
    if (after.status !== "completed") this.#orphan(after)
    this.#ports.freed()
    return true
  }

  /**
   * Waits until the task's present run has ended, `ms` have passed or `signal` fires. While it waits, the end of the
   * run will not wake the parent: the waiting call hands the answer over itself.
   */
  async wait(task: Task, ms: number, signal?: AbortSignal): Promise<void> {
    if (!isActive(task) || signal?.aborted) return
    const waiters = this.#waiters.get(task.id) ?? new Set()
    this.#waiters.set(task.id, waiters)
    await new Promise<void>((resolve) => {
      const finish = () => {
        waiters.delete(finish)
        cancelTimer()
        signal?.removeEventListener("abort", finish)
        resolve()
      }
      const cancelTimer = this.#ports.clock.after(ms, finish)
      signal?.addEventListener("abort", finish)
      waiters.add(finish)
    })
    if (waiters.size === 0 && this.#waiters.get(task.id) === waiters) this.#waiters.delete(task.id)
  }

  /** Lets the calls go that wait for this task: its run has ended, here or in the process that runs it. */
  letGo(taskID: string): void {
    for (const finish of [...(this.#waiters.get(taskID) ?? [])]) finish()
  }

  /** Lets every waiting call go, at the plugin's own end. */
  releaseAll(): void {
    for (const id of [...this.#waiters.keys()]) this.letGo(id)
  }

  #outcome(task: Task, ending: Ending): Outcome {
    const progress = this.#ports.store.tracker(task.id)?.snapshot()
    const usage = ending.usage ?? progress?.usage ?? task.usageBefore
    return {
      reason: ending.reason,
      note: ending.note,
      toolCalls: ending.toolCalls ?? progress?.toolCalls ?? 0,
      usage: subtractUsage(usage, task.usageBefore),
      openTodos: ending.openTodos ?? 0,
      filesChanged: ending.filesChanged ?? [],
    }
  }

  #delivery(task: Task, ending: Ending): Delivery {
    if (ending.silent) return { state: "none" }
    const before = batchProgress(task.batch, this.#ports.store.ofParent(task.parentID))
    const running = before.running - 1
    const handedOver = (this.#waiters.get(task.id)?.size ?? 0) > 0
    const { wake } = this.#ports.options
    const wakes = wake === "each" || (wake === "last" && running === 0)
    return {
      state: "pending",
      wake: wakes && !handedOver && ending.wake !== false,
      done: before.done + 1,
      total: before.total,
      running,
    }
  }

  /** Whatever ends a task but completion stops the tasks that it launched. */
  #orphan(task: Task): void {
    for (const own of this.#ports.store.ofParent(task.sessionID)) if (isActive(own)) this.#ports.orphaned(own)
  }
}
