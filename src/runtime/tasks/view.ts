import { waitsFor } from "../../core/dependencies.ts"
import { type Group, sizeOf } from "../../core/group.ts"
import { countItems, type ItemCounts } from "../../core/items.ts"
import { placeInQueue } from "../../core/limits.ts"
import { type Pause, type PauseView, pauseText, waitsForText } from "../../core/pause.ts"
import { pauseAmong } from "../../core/paused-children.ts"
import { progressOf as seenOf } from "../../core/run/active-run.ts"
import {
  type Ask,
  addFigures,
  elapsed,
  type Failing,
  type Figures,
  isActive,
  isQueued,
  machineOf,
  NO_FIGURES,
  type Phase,
  type Progress,
  phaseOf,
  type Task,
  waited,
} from "../../core/task.ts"
import { membersOf } from "../groups/members-of.ts"
import type { TaskStore } from "./store.ts"

/** Read-only snapshot of a task, with figures at `at`. */
export type TaskView = {
  readonly task: Task
  readonly phase?: Phase
  /** Completed; its work is being checked again and merged. */
  readonly merging?: true
  /** Ended on another machine; its changes are being fetched. */
  readonly fetching?: true
  /** Since admission, in ms. */
  readonly elapsed: number
  /** Time in the queue, in ms. */
  readonly waited: number
  /** Position from 1; only while queued. */
  readonly place?: number
  /** All runs of the task and its children. */
  readonly whole: Figures
  /** The last run alone, without children. */
  readonly thisRun: Figures
  /** Oldest first. */
  readonly recentTools: readonly string[]
  readonly lastText: string
  /** Time since the last sign of life, in ms. */
  readonly signAge?: number
  /** Includes its members' questions; `refusedAt`: when an unanswered one is refused. */
  readonly asks: readonly (Ask & { readonly refusedAt?: number })[]
  /** Item counts of a map. */
  readonly counts?: ItemCounts
  /** Its pause, with the newest knowledge of the cause. */
  readonly pause?: Pause
  /** Time of the snapshot. */
  readonly at: number
  readonly retry?: { readonly attempt: number; readonly message: string }
  /** All requests to its model have failed for a while. */
  readonly failing?: Failing
}

/** Result of a clear. `unmerged`: tasks whose work stays; `left`: number of other processes' tasks. */
export type Cleared = {
  readonly cleared: number
  readonly stopped: number
  readonly unmerged?: readonly string[]
  readonly left?: number
}

/** `limitOf`: what keeps a task from asking its model; `until`: when a question is refused. */
export function viewOf(
  task: Task,
  store: TaskStore,
  now: number,
  limitOf: (task: Task) => PauseView | undefined = () => undefined,
  until: (ask: Ask) => number = forEver,
): TaskView {
  const seen = progressOf(task, store)
  const asks = asksOf(task, seen, store)
  const progress = seen && { ...seen, asks }
  const pause = pauseAmong(task, store.active())
  return Object.freeze({
    task: Object.freeze({ ...task }),
    phase:
      progress &&
      phaseOf(
        task,
        progress,
        store.hasOpen(task.sessionID),
        waitedFor(task, store, now, limitOf),
        pause && pauseText(pause, now),
      ),
    ...(store.isMerging(task.id) && { merging: true }),
    ...(machineOf(task) !== undefined && store.run(task.id)?.stage === "closing" && { fetching: true }),
    elapsed: elapsed(task, now),
    waited: waited(task, now),
    place: isQueued(task)
      ? placeInQueue(task, store.active(), (each) => waitsForIn(each, store).length > 0)
      : undefined,
    ...figuresOf(task, store),
    recentTools: progress?.recentTools ?? task.outcome?.recentTools ?? [],
    lastText: progress?.lastText ?? "",
    signAge: progress && Math.max(0, now - progress.lastSignAt),
    asks: asks.map((ask) => (Number.isFinite(until(ask)) ? { ...ask, refusedAt: until(ask) } : ask)),
    ...(task.group && { counts: countsOf(task, task.group, store) }),
    ...(pause && { pause }),
    at: now,
    retry: progress?.retry,
    ...(progress?.failing && { failing: progress.failing }),
  })
}

const forEver = (): number => Number.POSITIVE_INFINITY

function asksOf(task: Task, seen: Progress | undefined, store: TaskStore): readonly Ask[] {
  if (!task.group || !seen) return seen?.asks ?? []
  return membersOf(store, task).flatMap(({ task: member }) => progressOf(member, store)?.asks ?? [])
}

function countsOf(task: Task, group: Group, store: TaskStore): ItemCounts {
  const { group: result } = task.outcome ?? {}
  if (!isActive(task) && result?.kind === "each") return { ...result, running: 0 }
  const own = membersOf(store, task).filter(({ task: member }) => member.member?.run === task.run.generation)
  return countItems(sizeOf(group), own, store.run(task.id)?.done ?? [])
}

function waitedFor(
  task: Task,
  store: TaskStore,
  now: number,
  limitOf: (task: Task) => PauseView | undefined,
): readonly string[] {
  const others = waitsForIn(task, store)
  const limit = isQueued(task) && others.length === 0 ? limitOf(task) : undefined
  return limit === undefined ? others : [waitsForText(limit, now)]
}

const waitsForIn = (task: Task, store: TaskStore): readonly string[] => waitsFor(task, (id) => store.get(id))

/** None for an ended run, even if the task was resumed since. */
const progressOf = (task: Task, store: TaskStore): Progress | undefined => {
  const run = isActive(task) ? store.run(task.id) : undefined
  return run && seenOf(run)
}

export const figuresOf = (task: Task, store: TaskStore): Pick<TaskView, "whole" | "thisRun"> => ({
  whole: wholeOf(task, store),
  thisRun: task.group ? membersRunOf(task, store) : thisRunOf(task, progressOf(task, store)),
})

/** Figures of a group's present run: its own session is never prompted. */
const membersRunOf = (task: Task, store: TaskStore): Figures =>
  membersOf(store, task)
    .filter(({ task: { member } }) => member?.run === task.run.generation)
    .reduce((sum, { task: member }) => addFigures(sum, thisRunOf(member, progressOf(member, store))), NO_FIGURES)

const thisRunOf = (task: Task, progress: Progress | undefined): Figures => {
  const { toolCalls, usage } = progress ?? task.outcome ?? NO_FIGURES
  return { toolCalls, usage }
}

/** Usage of all runs of a task and its children. */
function wholeOf(task: Task, store: TaskStore): Figures {
  const run = thisRunOf(task, progressOf(task, store))
  const own = addFigures(addFigures(task.earlier, run), store.left(task.sessionID))
  return store.ofParent(task.sessionID).reduce((sum, child) => addFigures(sum, wholeOf(child, store)), own)
}
