import { isActive, owesNotification, type Task } from "../../core/task.ts"
import type { Options } from "../../options/options.ts"
import type { NotificationFacts } from "../../present/notification.ts"
import type { TaskStore } from "../tasks/store.ts"
import { figuresOf } from "../tasks/view.ts"

/** Facts for the notification beside the answer. `task`: as it was when the run ended. */
export function notificationFacts(task: Task, store: TaskStore): NotificationFacts {
  const others = othersOf(task, store)
  return {
    task: withCurrentState(task, store),
    ...figuresOf(task, store),
    running: others.filter(isActive),
    untold: others.filter(owesNotification),
    together: togetherWith(task, others),
    notFetched: others.filter((other) => !isUntold(other) && isUnread(other)),
  }
}

/** The ended task with what has become of it since: its answer was fetched, its work merged. */
export function withCurrentState(task: Task, store: TaskStore): Task {
  const { retrievedAt, outcome } = inSameRun(task, store) ?? task
  return { ...task, retrievedAt, outcome }
}

/**
 * Number of tasks covered by "all tasks have ended": those of this batch, and those that the session has had since it
 * last had none running.
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

/** No other end of this session is still to come. */
export const isLastNotification = (task: Task, store: TaskStore): boolean => !othersOf(task, store).some(isUntold)

/** How long an end waits for others of the same moment, so that the parent has one turn for all. */
export const gatherMs = (task: Task, store: TaskStore): number =>
  othersOf(task, store).some(({ id }) => store.run(id)?.endsText) ? ENDING_MS : GATHER_MS

const GATHER_MS = 250
/** OpenCode closes a turn some time after its last text. */
const ENDING_MS = 1000

/**
 * Whether the notification may start the parent's model: not after its user stopped it, and not where the parent's own
 * task had ended or was cleared.
 */
export function mayWake(task: Task, store: TaskStore): boolean {
  const { id, parentID } = task
  if (store.parentState(parentID).isStopped) return false
  if (store.wasCleared(id) && store.wasCleared(parentID)) return false
  const parent = store.bySession(parentID)
  if (!parent || isActive(parent)) return true
  // Tasks interrupted together began before that; the parent's end time is only a guess.
  if (isInterrupted(parent) && isInterrupted(task)) return false
  return task.run.createdAt > (parent.run.endedAt ?? 0)
}

/**
 * Where only the last of a batch wakes the parent, and it was cleared or may not wake: the end that wakes instead,
 * unless it was read.
 */
export function deferredWakeOf(
  { id, parentID, batch: name }: Task,
  store: TaskStore,
  wake: Options["wake"],
): Task | undefined {
  if (wake !== "last") return undefined
  const batch = store.ofParent(parentID).filter((task) => task.batch === name)
  if (batch.some((task) => isActive(task) || (task.delivery.state !== "none" && task.delivery.wake))) return undefined
  // By the time of its end, so that the parent reads them in order.
  const inOrder = batch.toSorted((a, b) => endOf(a, store) - endOf(b, store))
  return inOrder.findLast((task) => task.id !== id && task.delivery.state !== "none" && !isQuiet(task))
}

const endOf = ({ id }: Task, store: TaskStore): number => store.handle(id)?.endIndex ?? 0

/**
 * Where only the last of a batch wakes the parent: this end is told last although another was later, because its merge
 * took longer. `isPosted`: another end is told before this one.
 */
export function isToldLast(
  task: Task,
  store: TaskStore,
  wake: Options["wake"],
  isPosted: (other: Task) => boolean,
): boolean {
  const { id, delivery, parentID, batch } = task
  if (wake !== "last" || delivery.state !== "pending" || !delivery.running || isQuiet(task)) return false
  if (store.get(id)?.retrievedAt !== undefined) return false
  const comes = (other: Task) => isActive(other) || (owesNotification(other) && !isPosted(other))
  return !store.ofParent(parentID).some((other) => other.id !== id && other.batch === batch && comes(other))
}

const isInterrupted = ({ outcome }: Task): boolean => outcome?.reason?.code === "interrupted"

/** Does not wake the parent by itself. */
const isQuiet = ({ outcome }: Task): boolean =>
  outcome?.reason?.code === "cancelled" || outcome?.reason?.code === "after"

/** Other tasks of the session, with the task itself if it has been resumed. */
function othersOf(task: Task, store: TaskStore): readonly Task[] {
  const current = inSameRun(task, store)
  return store.ofParent(task.parentID).filter((other) => other.id !== current?.id)
}

/** Undefined where the task was resumed since. */
function inSameRun({ id, run }: Task, store: TaskStore): Task | undefined {
  const current = store.get(id)
  return current?.run.generation === run.generation ? current : undefined
}

/** A task whose children's ends are still to be told counts as running for its parent. */
const isUntold = (task: Task): boolean => isActive(task) || owesNotification(task)

/** Tasks that the parent cancelled itself are not waited for. */
const isUnread = (task: Task): boolean => task.retrievedAt === undefined && task.outcome?.reason?.code !== "cancelled"
