import { pauseAmong, waitsFor } from "../core/dependencies.ts"
import { listed } from "../core/errors.ts"
import type { GroupKind } from "../core/feature.ts"
import { chosenIn, countsText, type MemberCounts, type MemberState } from "../core/group.ts"
import { type Block, SLOTS } from "../core/limits.ts"
import { type Pause, type PauseView, pauseText, waitsForText, whenOf } from "../core/pause.ts"
import {
  type Ask,
  type Failing,
  type Figures,
  isActive,
  isQueued,
  type Phase,
  type PhaseFacts,
  phaseOf,
  type Task,
  type Usage,
} from "../core/task.ts"
import { oneLine } from "../lib/text.ts"
import type { MayDo } from "./summary.ts"
import { slotText } from "./words.ts"

/** Facts of a task that every text about it is made from: for the model, the terminal and the page. */

/** Read-only snapshot of a task, with figures at `at`. */
export type TaskView = {
  readonly task: Task
  readonly phase?: Phase
  /** The task has completed, and its work is being checked again and merged. */
  readonly merging?: true
  /** The task has ended on another machine, and its changes are being fetched. */
  readonly fetching?: true
  /** Time since the run got its slot, in ms, without pauses. */
  readonly elapsed: number
  /** Time in the queue, in ms. */
  readonly waited: number
  /** Position in the queue, from 1. Only set while the task is queued. */
  readonly place?: number
  /** All runs of the task and its children. */
  readonly whole: Figures
  /** The last run alone, without children. */
  readonly thisRun: Figures
  /** Cost of a group's members in the last 24 hours, without tasks of their own. */
  readonly membersOfDay?: Usage
  /** The tools that the run called last, oldest first. */
  readonly recentTools: readonly string[]
  readonly lastText: string
  /** Time since the last sign of life, in ms. */
  readonly signAge?: number
  /** Open questions of the task, or of a group's members. `refusedAt`: when an unanswered question is refused. */
  readonly asks: readonly (Ask & { readonly refusedAt?: number })[]
  /** Counts of a group's members. */
  readonly counts?: MemberCounts
  /** Kind of a group, or of a member's group. */
  readonly groupKind?: GroupKind
  /** The run's pause, with the newest information about its cause. */
  readonly pause?: Pause
  /** Time of the snapshot. */
  readonly at: number
  readonly retry?: { readonly attempt: number; readonly message: string }
  /** Set if all requests to the task's model have failed for a while. */
  readonly failing?: Failing
}

/** Result of a clear. `unmerged`: tasks whose work was kept; `left`: number of tasks that belong to other processes. */
export type Cleared = {
  readonly cleared: number
  readonly stopped: number
  readonly unmerged?: readonly string[]
  readonly left?: number
}

/** Changes of a task in its own place. `command`: shows all of them; `cut`: the text does not. */
export type ShownDiff = { readonly diff: string; readonly cut: boolean; readonly command: string }

/**
 * A task with its answer, which is absent while the task runs. `gone`: the task's session was deleted; `error`: why there
 * is no report on this task of a batch.
 */
export type Report = {
  readonly view: TaskView
  readonly answer?: string
  readonly gone?: boolean
  readonly error?: string
  readonly may?: MayDo
  /** Time that the call waited in vain for a running task, in ms. */
  readonly waited?: number
  /** Changes that the task made in its own place. */
  readonly shown?: ShownDiff
  /** Known members of a group. */
  readonly members?: readonly MemberState[]
}

/**
 * Tasks around a task. `limitOf`: what keeps a task that has not begun from asking its model; `block`: why the waiting
 * task may not begin or go on, where that is known.
 */
export type Around = {
  readonly get: (id: string) => Task | undefined
  readonly active: readonly Task[]
  /** The task's own tasks have not ended. */
  readonly ownTasks: boolean
  readonly limitOf: (task: Task) => PauseView | undefined
  readonly block?: Block | undefined
  /** One of a group's members, where all that have begun are paused. */
  readonly pausedMember?: Task | undefined
}

/** Phase of an active task, with times for a reader at `now`. */
export function phaseAmong(task: Task, progress: PhaseFacts, around: Around, now: number): Phase | undefined {
  const pause = pauseAmong(around.pausedMember ?? task, around.active)
  return phaseOf(task, progress, around.ownTasks, queuedAs(task, around, now), pause && pausedAs(pause, around, now))
}

function queuedAs(task: Task, { get, limitOf, block }: Around, now: number): Phase | undefined {
  const others = waitsFor(task, get)
  if (others.length > 0) return `waiting for ${listed(others)}`
  const limit = isQueued(task) ? limitOf(task) : undefined
  if (limit) return `waiting for ${waitsForText(limit, now)}`
  if (!block || "ends" in block) return undefined
  const { by, behind } = block
  if (by !== SLOTS) return `waiting for ${oneLine(behind ?? by)}`
  return behind === undefined ? "queued" : `queued for ${slotText(behind)}`
}

/** A pause whose time has come may wait for something else. Example: `parked, waiting for a free slot`. */
function pausedAs(pause: Pause, { block }: Around, now: number): Phase {
  const text = pauseText(pause, now)
  if (whenOf(pause, now) || !block || "ends" in block) return text
  const { by, behind } = block
  if (by === SLOTS) return `${text}, waiting for ${slotText(behind)}`
  return `${text}, waiting for ${behind === pause.waitsFor ? waitsForText(pause, now) : oneLine(behind ?? by)}`
}

/** Result of an ended group in a few words, or counts of its members. */
export function groupText({ task, counts, groupKind: kind }: Pick<TaskView, "task" | "counts" | "groupKind">) {
  const result = task.outcome?.group
  return result ? kind?.texts.result(result) : counts && kind && countsText(counts, kind.ends)
}

/**
 * True for an ended group of this kind with unfinished members. A resume of the group needs no prompt, and is allowed
 * for every status.
 */
export const hasRemaining = (task: Task, kind: GroupKind | undefined): boolean =>
  !isActive(task) &&
  task.group !== undefined &&
  chosenIn(task.group) === undefined &&
  kind?.whyNothingRemains(task) === undefined
