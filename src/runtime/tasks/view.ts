import { batchKeyOf, batchName, pauseAmong, waitsFor } from "../../core/dependencies.ts"
import { CallError, candidatesText, listed, UnknownTaskError } from "../../core/errors.ts"
import { countMembers, type MemberCounts, memberNames, sizeOf } from "../../core/group.ts"
import { type Block, placeInQueue } from "../../core/limits.ts"
import { progressOf as seenOf } from "../../core/run/active-run.ts"
import { costOfDay } from "../../core/spending.ts"
import {
  type Ask,
  addFigures,
  addUsage,
  elapsed,
  type Figures,
  isActive,
  isPaused,
  isQueued,
  machineOf,
  NO_FIGURES,
  NO_USAGE,
  nameOf,
  type Progress,
  type Task,
  type Usage,
  waited,
} from "../../core/task.ts"
import { oneLine } from "../../lib/text.ts"
import { type Around, phaseAmong, type TaskView } from "../../present/view.ts"
import type { Services } from "../services.ts"
import type { TaskStore } from "./store.ts"

/** Reasons that keep a task, or the next member of a group, from beginning or going on. */
export type Waits = Pick<Around, "limitOf"> & { readonly blockOf: (task: Task) => Block | undefined }

/** Creates the view of a task as it is now. */
export function viewOf(
  given: Task,
  { store, clock, presence, groupKindOf }: Pick<Services, "store" | "clock" | "presence" | "groupKindOf">,
  waits: Waits,
): TaskView {
  const task = store.get(given.id) ?? given
  const now = clock.now()
  const until = (ask: Ask) => presence.refusedAt(ask)
  const seen = progressOf(task, store)
  const members = task.group ? store.membersOf(task).map(({ task: member }) => member) : undefined
  const asks = asksOf(seen, members, store)
  const progress = seen && { ...seen, asks }
  const pause = isPaused(task) ? pauseAmong(task, store.active()) : undefined
  const counts = countsOf(task, members, store)
  return Object.freeze({
    task: Object.freeze({ ...task }),
    phase: progress && phaseAmong(task, progress, aroundOf(task, store, waits, counts, members), now),
    ...(store.isMerging(task.id) && { merging: true }),
    ...(machineOf(task) !== undefined && store.run(task.id)?.stage === "closing" && { fetching: true }),
    elapsed: elapsed(task, now),
    waited: waited(task, now),
    place: isQueued(task)
      ? placeInQueue(task, store.active(), (each) => waitsForIn(each, store).length > 0)
      : undefined,
    ...figuresOf(task, store),
    ...(members && { membersOfDay: costOfMembers(members, store, now) }),
    recentTools: progress?.recentTools ?? task.outcome?.recentTools ?? [],
    lastText: progress?.lastText ?? "",
    signAge: progress && Math.max(0, now - progress.lastSignAt),
    asks: asks.map((ask) => (Number.isFinite(until(ask)) ? { ...ask, refusedAt: until(ask) } : ask)),
    counts,
    groupKind: groupKindOf(task),
    ...(pause && { pause }),
    at: now,
    retry: progress?.retry,
    ...(progress?.failing && { failing: progress.failing }),
  })
}

/** A group's members, of all its runs; undefined for a task that is no group. */
type Members = readonly Task[] | undefined

function asksOf(seen: Progress | undefined, members: Members, store: TaskStore): readonly Ask[] {
  if (!members || !seen) return seen?.asks ?? []
  return members.flatMap((member) => progressOf(member, store)?.asks ?? [])
}

function countsOf({ id, group, run }: Task, members: Members, store: TaskStore): MemberCounts | undefined {
  if (!group || !members) return undefined
  const own = members.filter(({ member }) => member?.run === run.generation)
  return countMembers(sizeOf(group), own, store.run(id)?.done.length ?? 0)
}

function aroundOf(
  task: Task,
  store: TaskStore,
  { limitOf, blockOf }: Waits,
  counts: MemberCounts | undefined,
  members: Members,
): Around {
  const isStalled = counts?.running === 0 && counts.notBegun > 0
  const begun = members?.filter((member) => isActive(member) && !isQueued(member))
  const isWaiting = (isQueued(task) || isPaused(task) || isStalled) && !store.isForeign(task.id)
  const { membersBehind: behind } = store.run(task.id) ?? {}
  const block = isWaiting && behind === undefined ? blockOf(task) : undefined
  return {
    get: (id) => store.get(id),
    active: store.active(),
    ownTasks: store.hasOpen(task.sessionID),
    limitOf,
    block: behind === undefined ? block : { by: "place", behind },
    pausedMember: begun?.every(isPaused) ? begun[0] : undefined,
  }
}

const waitsForIn = (task: Task, store: TaskStore): readonly string[] => waitsFor(task, (id) => store.get(id))

/** Progress of the task's run. Undefined for an ended run, even if the task was resumed since. */
const progressOf = (task: Task, store: TaskStore): Progress | undefined => {
  const run = isActive(task) ? store.run(task.id) : undefined
  return run && seenOf(run)
}

export const figuresOf = (task: Task, store: TaskStore): Pick<TaskView, "whole" | "thisRun"> => ({
  whole: wholeOf(task, store),
  thisRun: task.group ? membersRunOf(task, store) : thisRunOf(task, progressOf(task, store)),
})

/** Figures of a group's present run: the sum of its members, because the group's own session is never prompted. */
const membersRunOf = (task: Task, store: TaskStore): Figures =>
  store
    .membersOf(task)
    .filter(({ task: { member } }) => member?.run === task.run.generation)
    .reduce((sum, { task: member }) => addFigures(sum, thisRunOf(member, progressOf(member, store))), NO_FIGURES)

/** Cost of the last 24 hours as the day's budget counts it: of each member by its own end. */
const costOfMembers = (members: readonly Task[], store: TaskStore, now: number): Usage =>
  members
    .map((member) => costOfDay(member, thisRunOf(member, progressOf(member, store)).usage, now))
    .reduce(addUsage, NO_USAGE)

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

/** The task with this id, session id, or unique prefix of either. Throws a `CallError` with the candidates. */
export function findTask(reference: string, own: readonly Task[]): Task {
  const wanted = reference.trim()
  const exact = own.find((task) => task.id === wanted || task.sessionID === wanted)
  const { id } = own.find((task) => task.group && /^\/\d+$/.test(wanted.replace(task.id, ""))) ?? {}
  if (id !== undefined)
    throw new CallError(
      `You can read ${wanted} alone, but not cancel, resume, unpark or tell it, nor wait for it with after: nothing was done. Use ${id}, of which it is part, for all of these except a message.`,
    )
  if (exact) return exact
  const fitting =
    wanted === "" ? [] : own.filter(({ id, sessionID }) => id.startsWith(wanted) || sessionID.startsWith(wanted))
  if (fitting.length === 1 && fitting[0]) return fitting[0]
  if (fitting.length > 1) throw new CallError(`"${wanted}" fits several tasks: ${named(fitting)}. Give more of the id.`)
  throw new UnknownTaskError(
    own.length === 0
      ? `No task "${wanted}": this session has no background tasks. Launch one with superagents_task.`
      : `No task "${wanted}" in this session. ${candidatesText(own.map(namesOf))}`,
  )
}

const namesOf = (task: Task): string =>
  task.group ? `${nameOf(task)}, of ${memberNames(task.id, task.group)}` : nameOf(task)

/** Tasks of the named batch; empty for a task's id or an unknown name. */
export function findNamedBatch(reference: string, own: readonly Task[]): readonly Task[] {
  const wanted = reference.trim()
  const isTask = own.some(({ id, sessionID }) => id === wanted || sessionID === wanted)
  return isTask ? [] : own.filter((task) => task.batch === batchKeyOf(oneLine(wanted)))
}

/** Finds the key of the batch with this name among the tasks `own`; undefined where there is none. */
export function findBatch(name: string, own: readonly Task[]): string | undefined {
  const key = batchKeyOf(oneLine(name.trim()))
  return own.some((task) => task.batch === key) ? key : undefined
}

export type CancelSelector =
  | { readonly type: "task"; readonly reference: string }
  | { readonly type: "batch"; readonly name: string }
  | { readonly type: "all" }

/** Tasks that a cancel ends. Throws a `CallError` for a task that cannot be ended, or an unknown batch. */
export function selectRunning(selector: CancelSelector, own: readonly Task[], runs: Runs): readonly Task[] {
  if (selector.type === "task") return [endable(findTask(selector.reference, own), runs)]
  const key = selector.type === "batch" ? findBatch(selector.name, own) : undefined
  if (selector.type === "batch" && key === undefined) throw noBatch(selector.name, own)
  const isRunning = (task: Task) => isActive(task) || runs.isMerging(task.id)
  const running = own.filter((task) => isRunning(task) && (key === undefined || task.batch === key))
  const endables = running.filter(({ id }) => !runs.isForeign(id))
  return endables.length > 0 ? endables : running.map((task) => endable(task, runs))
}

/** Says whether another process owns a task, and whether the task's work is being merged. */
type Runs = { isForeign(id: string): boolean; isMerging(id: string): boolean }

function noBatch(name: string, own: readonly Task[]): CallError {
  if (own.length === 0) return new UnknownTaskError(`No batch "${name}": this session has no background tasks.`)
  return new UnknownTaskError(`No batch "${name}" in this session. ${knownBatches(own)}`)
}

/** Names of existing batches, for an error. */
export function knownBatches(own: readonly Task[]): string {
  const names = [...new Set(own.flatMap((task) => batchName(task.batch) ?? []))].map((each) => oneLine(each))
  return names.length > 0 ? candidatesText(names) : "No task has a batch name."
}

function endable(task: Task, runs: Runs): Task {
  if (!isActive(task) && !runs.isMerging(task.id))
    throw new CallError(`Task ${task.id} is not running: it is ${task.status}. Nothing was cancelled.`)
  if (runs.isForeign(task.id))
    throw new CallError(`Task ${task.id} is run by another OpenCode process. Only the user can cancel it, there.`)
  return task
}

const named = (tasks: readonly Task[]): string => listed(tasks.map(nameOf))
