import { batchProgress } from "../../core/dependencies.ts"
import type { EndOptions } from "../../core/run/active-run.ts"
import { type Delivery, hasPendingNotification, isActive, isMember, isUnattended, type Task } from "../../core/task.ts"
import type { Options } from "../../options/options.ts"
import type { NotificationFacts } from "../../present/notification.ts"
import type { Services } from "../services.ts"
import type { TaskStore } from "../tasks/store.ts"
import type { PendingNotification, TaskHandle } from "../tasks/task-handle.ts"
import { figuresOf } from "../tasks/view.ts"
import type { Outbox } from "./outbox.ts"
import { notificationID } from "./sender.ts"

/** Facts for the notification, without the answer. `task`: the task as it was when the run ended. */
export function notificationFacts(task: Task, store: TaskStore): NotificationFacts {
  const others = othersOf(task, store)
  return {
    task: withCurrentState(task, store),
    ...figuresOf(task, store),
    running: others.filter(isActive),
    pendingTasks: others.filter(hasPendingNotification),
    together: togetherWith(task, others),
    notFetched: others.filter((other) => !isPending(other) && isUnread(other)),
  }
}

/** Adds to the ended task what has changed since: whether its answer was read, and whether its work was merged. */
export function withCurrentState(task: Task, store: TaskStore): Task {
  const { retrievedAt, outcome } = inSameRun(task, store) ?? task
  return { ...task, retrievedAt, outcome }
}

/**
 * Number of tasks that "all tasks have ended" covers: tasks of this batch, and tasks of the session whose runs overlap,
 * directly or through others.
 */
function togetherWith(task: Task, others: readonly Task[]): number {
  let since = task.run.createdAt
  const left = new Set(others)
  for (let found = true; found; ) {
    found = false
    for (const other of left) {
      const ran = isActive(other) || (other.run.endedAt ?? 0) >= since
      if (other.batch !== task.batch && !ran) continue
      left.delete(other)
      if (ran) since = Math.min(since, other.run.createdAt)
      found = true
    }
  }
  return 1 + others.length - left.size
}

/** True if no other task of the session is active or still owes a notification. */
export const isLastNotification = (task: Task, store: TaskStore): boolean => !othersOf(task, store).some(isPending)

/**
 * How long a notification waits for other tasks that end at the same moment, in ms. The parent then has one turn for
 * all.
 */
export const gatherMs = (task: Task, store: TaskStore): number =>
  othersOf(task, store).some(({ id }) => store.run(id)?.endsText) ? ENDING_MS : GATHER_MS

const GATHER_MS = 250
/** Longer wait while another run seems to end: OpenCode closes a turn some time after its last text. */
const ENDING_MS = 1000

/**
 * Whether the notification may start the parent's model. Forbidden after a user stopped the parent, and where the
 * parent's own task had ended or was cleared before.
 */
export function mayWake(task: Task, store: TaskStore): boolean {
  const { id, parentID } = task
  if (store.parentState(parentID).isStopped) return false
  if (store.wasCleared(id) && store.wasCleared(parentID)) return false
  const parent = store.bySession(parentID)
  if (!parent || isActive(parent)) return true
  // Both runs were interrupted together, so this one began before the parent's end, whose time is only a guess.
  if (isInterrupted(parent) && isInterrupted(task)) return false
  return task.run.createdAt > (parent.run.endedAt ?? 0)
}

/**
 * With the option `wake: "last"`: the task whose notification wakes the parent where the last of the batch was cleared
 * or must not wake. Undefined where none is needed or left.
 */
export function deferredWakeOf(
  { id, parentID, batch: name }: Task,
  store: TaskStore,
  wake: Options["wake"],
): Task | undefined {
  if (wake !== "last") return undefined
  const batch = store.ofParent(parentID).filter((task) => task.batch === name)
  if (batch.some((task) => isActive(task) || (hasPendingNotification(task) && task.delivery.wake))) return undefined
  const inOrder = batch.toSorted((a, b) => endOf(a, store) - endOf(b, store))
  const last = inOrder.findLast((task) => task.id !== id && task.delivery.state !== "none" && !isQuiet(task))
  // A task that has woken the parent covers all that ended before it.
  return last && last.delivery.state !== "none" && last.delivery.wake ? undefined : last
}

const endOf = ({ id }: Task, store: TaskStore): number => store.handle(id)?.endIndex ?? 0

/**
 * With the option `wake: "last"`: whether this notification is the last of its batch although another run ended later,
 * because the merge of this one took longer. `isPosted`: the other notification is sent before this one.
 */
export function isNotifiedLast(
  task: Task,
  store: TaskStore,
  wake: Options["wake"],
  isPosted: (other: Task) => boolean,
): boolean {
  const { id, delivery, parentID, batch } = task
  if (wake !== "last" || delivery.state !== "pending" || !delivery.running || isQuiet(task)) return false
  if (store.get(id)?.retrievedAt !== undefined) return false
  const comes = (other: Task) => isActive(other) || (hasPendingNotification(other) && !isPosted(other))
  return !store.ofParent(parentID).some((other) => other.id !== id && other.batch === batch && comes(other))
}

const isInterrupted = ({ outcome }: Task): boolean => outcome?.reason?.code === "interrupted"

/**
 * True for a run that does not wake the parent by itself: it was cancelled, or a task that it waited for did not
 * complete.
 */
const isQuiet = ({ outcome }: Task): boolean =>
  outcome?.reason?.code === "cancelled" || outcome?.reason?.code === "after"

/** Other tasks of the session. The task itself is included if it has been resumed since. */
function othersOf(task: Task, store: TaskStore): readonly Task[] {
  const current = inSameRun(task, store)
  return store.ofParent(task.parentID).filter((other) => other.id !== current?.id)
}

/** Current state of the task; undefined where the task was resumed since. */
function inSameRun({ id, run }: Task, store: TaskStore): Task | undefined {
  const current = store.get(id)
  return current?.run.generation === run.generation ? current : undefined
}

/** True for a task that is active, or whose notification is still to be sent. */
const isPending = (task: Task): boolean => isActive(task) || hasPendingNotification(task)

/** True for a task whose answer the parent has not read. Cancelled tasks are left out. */
const isUnread = (task: Task): boolean => task.retrievedAt === undefined && task.outcome?.reason?.code !== "cancelled"

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
      if (!maybeDelivered && isNotifiedLast(task, store, options.wake, (other) => this.#outbox.holds(other)))
        this.#outbox.wakeAgain(task)
      if (hasPendingNotification(task)) this.#outbox.post(task, maybeDelivered)
      else this.#over(task)
    }
  }

  /**
   * Called when the task has ended or was cleared. The end of another task then wakes the parent, if no other task is
   * left to wake it. Does nothing for a run that ended in an earlier process (`maybeDelivered`), so that the decision of
   * that process to wake the parent is kept.
   */
  wakeAgainBeside(task: Task, maybeDelivered = false): void {
    const { store, options } = this.#services
    const deferredWake = maybeDelivered ? undefined : deferredWakeOf(task, store, options.wake)
    if (deferredWake) this.#outbox.wakeAgain(deferredWake)
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
