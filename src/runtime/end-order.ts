import { batchProgress } from "../core/dependencies.ts"
import type { EndOptions } from "../core/run/active-run.ts"
import { type Delivery, hasPendingNotification, isMember, isUnattended, type Task } from "../core/task.ts"
import { deferredWakeOf, isNotifiedLast } from "./mailbox/notification-items.ts"
import type { Outbox } from "./mailbox/outbox.ts"
import { notificationID } from "./mailbox/sender.ts"
import type { Services } from "./services.ts"
import type { PendingNotification, TaskHandle } from "./tasks/task-handle.ts"

/**
 * Queues notifications for each parent in the order in which its tasks ended. An end waits for earlier ends that are
 * still being closed, but never for the merge of another task.
 */
export class EndAnnouncer {
  readonly #services: Services
  readonly #outbox: Outbox
  readonly #over: (task: Task) => void

  /** `over`: called when nobody has to be told anything more about this run. */
  constructor(services: Services, outbox: Outbox, over: (task: Task) => void) {
    this.#services = services
    this.#outbox = outbox
    this.#over = over
  }

  /** Notification of a run, decided when it ends. */
  deliveryOf(task: Task, { silent, wake }: EndOptions): Delivery {
    const { store, options } = this.#services
    if (silent || isUnattended(task) || isMember(task)) return { state: "none" }
    const before = batchProgress(task.batch, store.ofParent(task.parentID))
    const running = before.running - 1
    const handedOver = (store.handle(task.id)?.waiters.size ?? 0) > 0
    const wakes = options.wake === "each" || (options.wake === "last" && running === 0)
    const progress = { done: before.done + 1, total: before.total, running }
    return { state: "pending", wake: wakes && !handedOver && wake !== false, ...progress }
  }

  /** Adds an end, whose notification is queued when its turn comes. */
  note({ endIndex }: TaskHandle, { task, maybeDelivered }: Omit<PendingNotification, "endIndex">): void {
    const parentState = this.#services.store.parentState(task.parentID)
    parentState.pendingNotifications = [...parentState.pendingNotifications, { task, maybeDelivered, endIndex }]
  }

  /** Queues the notifications of ends that need not wait for an earlier end of this parent's tasks any more. */
  inOrder(parentID: string): void {
    const { store, options } = this.#services
    const parentState = store.parentState(parentID)
    if (parentState.pendingNotifications.length === 0) return
    const entries = store.ofParent(parentID).flatMap(({ id }) => store.handle(id) ?? [])
    const awaited = entries.filter(({ run }) => run?.closing && !run.closing.posted && run.stage !== "finalizing")
    const first = Math.min(...awaited.map(({ endIndex }) => endIndex))
    const due = parentState.pendingNotifications.filter(({ endIndex }) => endIndex < first)
    parentState.pendingNotifications = parentState.pendingNotifications.filter((news) => !due.includes(news))
    for (const { task, maybeDelivered } of due.toSorted((a, b) => a.endIndex - b.endIndex)) {
      if (isNotifiedLast(task, store, options.wake, (other) => this.#outbox.holds(other)))
        this.#wakeAgain(task, maybeDelivered)
      if (hasPendingNotification(task)) this.#outbox.post(task, maybeDelivered)
      else this.#over(task)
    }
  }

  /**
   * Called when the task has ended or was cleared. The end of another task then wakes the parent, if no other task is
   * left to wake it.
   */
  wakeAgainBeside(task: Task, maybeDelivered = false): void {
    const deferredWake = deferredWakeOf(task, this.#services.store, this.#services.options.wake)
    if (deferredWake) this.#wakeAgain(deferredWake, maybeDelivered)
  }

  /**
   * Does nothing for a run that ended in an earlier process (`maybeDelivered`), so that the decision of that process to
   * wake the parent is kept.
   */
  #wakeAgain(task: Task, maybeDelivered: boolean): void {
    if (!maybeDelivered) this.#outbox.wakeAgain(task)
  }

  /** Records the delivery state. `handedOver`: the parent has the whole answer. */
  recordDelivery(task: Task, state: "confirmed" | "abandoned", handedOver: boolean): Promise<void> {
    const { store, clock, journal, opencode } = this.#services
    const { generation } = task.run
    const now = clock.now()
    if (handedOver && state === "confirmed" && store.get(task.id)?.run.generation === generation)
      store.apply(task.id, { type: "retrieved", at: now }, now)
    const change = store.apply(task.id, { type: "notified", generation, state }, now)
    this.#over(task)
    if (!change) return Promise.resolve()
    opencode.log("info", "task notified", {
      task: task.id,
      session: task.parentID,
      message: notificationID(opencode.messageID, task),
      state,
      handedOver,
    })
    // A confirmed delivery may be written later: after a crash, the parent's messages show what the parent was told.
    if (state !== "confirmed") return journal.save(change.after)
    journal.saveDelivery(change.after)
    return Promise.resolve()
  }
}
