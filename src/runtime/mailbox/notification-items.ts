import { isActive, owesNotification, type Task } from "../../core/task.ts"
import type { Options } from "../../options/options.ts"
import type { News } from "../../present/notification.ts"
import type { TaskStore } from "../tasks/store.ts"
import { figuresOf } from "../tasks/view.ts"

/**
 * What there is to tell of a run's end beside its answer. `task` is the task as it was when the run ended: a resume
 * meanwhile does not change that.
 */
export function newsOf(task: Task, store: TaskStore): News {
  const others = othersOf(task, store)
  return {
    task: asItIs(task, store),
    ...figuresOf(task, store),
    running: others.filter(isActive),
    untold: others.filter(owesNotification),
    together: togetherWith(task, others),
    notFetched: others.filter((other) => !isUntold(other) && isUnread(other)),
  }
}

/** The ended task with what has become of it since: its answer was fetched, its work merged. */
export function asItIs(task: Task, store: TaskStore): Task {
  const { retrievedAt, outcome } = inSameRun(task, store) ?? task
  return { ...task, retrievedAt, outcome }
}

/**
 * How many tasks there are that the hint on the end of them all speaks of: this one's batch, and those that ran since
 * none of the session's did.
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

/** True where nothing else of the session's is still to come: then this news is the last for now. */
export const isLastNews = (task: Task, store: TaskStore): boolean => !othersOf(task, store).some(isUntold)

/** How long one end waits for others that may come in the same moment, so that they cost their parent one turn. */
export const gatherMs = (task: Task, store: TaskStore): number =>
  othersOf(task, store).some(({ id }) => store.run(id)?.endsText) ? ENDING_MS : GATHER_MS

const GATHER_MS = 250
/** The host closes a turn some time after its last text. */
const ENDING_MS = 1000

/**
 * Whether this news may start its parent's model: not after the parent's user has stopped it, until they write again;
 * nor where the parent is a task that was ended, unless the run was begun after that; nor where that was cleared with all that it had launched.
 */
export function mayWake(task: Task, store: TaskStore): boolean {
  const { id, parentID } = task
  if (store.parentState(parentID).isStopped) return false
  if (store.wasCleared(id) && store.wasCleared(parentID)) return false
  const parent = store.bySession(parentID)
  if (!parent || isActive(parent)) return true
  // What was interrupted together was begun before: when the parent's end was is only guessed.
  if (isInterrupted(parent) && isInterrupted(task)) return false
  return task.run.createdAt > (parent.run.endedAt ?? 0)
}

/**
 * Where only the last of a batch wakes the parent, and this one is gone or ended without waking it: what is to wake it of
 * a batch that is over, unless that was read.
 */
export function deferredWakeOf(
  { id, parentID, batch: name }: Task,
  store: TaskStore,
  wake: Options["wake"],
): Task | undefined {
  if (wake !== "last") return undefined
  const batch = store.ofParent(parentID).filter((task) => task.batch === name)
  if (batch.some((task) => isActive(task) || (task.delivery.state !== "none" && task.delivery.wake))) return undefined
  // The one that is told last: its parent reads by it what it was told before.
  const inOrder = batch.toSorted((a, b) => endOf(a, store) - endOf(b, store))
  return inOrder.findLast((task) => task.id !== id && task.delivery.state !== "none" && !isQuiet(task))
}

const endOf = ({ id }: Task, store: TaskStore): number => store.handle(id)?.endIndex ?? 0

/**
 * Where only the last of a batch wakes the parent: this one did not end last, and yet is told last, since its work was
 * long in coming home. What was to wake the parent for it came before it, or is on its way. `isPosted`: this end of another
 * is told before.
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

/** Its end alone is no reason to wake anybody. */
const isQuiet = ({ outcome }: Task): boolean =>
  outcome?.reason?.code === "cancelled" || outcome?.reason?.code === "after"

/** The session's other tasks; with the task itself where it works on a later run by now. */
function othersOf(task: Task, store: TaskStore): readonly Task[] {
  const current = inSameRun(task, store)
  return store.ofParent(task.parentID).filter((other) => other.id !== current?.id)
}

/** The task as it is now; undefined where it was resumed since. */
function inSameRun({ id, run }: Task, store: TaskStore): Task | undefined {
  const current = store.get(id)
  return current?.run.generation === run.generation ? current : undefined
}

/** News go out in the order in which the runs ended: a task whose own are still to come runs, as far as its parent knows. */
const isUntold = (task: Task): boolean => isActive(task) || owesNotification(task)

/** What its parent cancelled itself is not waited for. */
const isUnread = (task: Task): boolean => task.retrievedAt === undefined && task.outcome?.reason?.code !== "cancelled"
