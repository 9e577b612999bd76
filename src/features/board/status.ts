import { type PauseView, pauseText, whenOf } from "../../core/pause.ts"
import { cut, oneLine } from "../../lib/text.ts"
import { isIdle, isReady, isUsedUp, quietUntil, untilText } from "./rules/purse.ts"
import type { RunView } from "./runs.ts"
import { type BoardState, isUnverified, MOST_FAILURES, runStateOf, type TaskRunState, waitsFor } from "./state.ts"
import { type BoardTask, CHANGED_OUTSIDE, shownStatus, type TaskState } from "./task.ts"

/** Facts at one time that decide about the states of tasks and are not stored on the board. */
export type StatusContext = {
  /** Newest run in the task's thread. */
  readonly runOf: (task: BoardTask) => RunView | undefined
  /** Agents that may own tasks. */
  readonly agents: readonly string[]
  /** ISO time. */
  readonly now: string
  /** Text of the next round; empty for none. */
  readonly nextTick: string
}

const MOST_REASON_CHARS = 160

/** Whether a run is active or queued. */
export const isInFlight = (run: RunView | undefined): boolean => run !== undefined && run.state !== "ended"

/**
 * Whether a run's end is not recorded on the board yet, so that the task must not start again. A recorded start in the
 * future is from before the clock was set back: then any other run counts as unrecorded.
 */
export const isUnrecorded = (run: RunView | undefined, { ran = "" }: TaskRunState, now: string): boolean =>
  run?.state === "ended" && (beginOf(run) > ran || (ran > now && beginOf(run) !== ran))

/** Start of a run as an ISO time, as the board stores it. */
export const beginOf = (run: RunView): string => new Date(run.createdAt).toISOString()

/** State and reason of a task. Pure; the same for tool, terminal, page and HTTP. */
export function stateOf(state: BoardState, task: BoardTask, context: StatusContext): TaskState {
  const waits = isUnverified(state, task.id)
  if (task.status !== "active") {
    const reason = waits ? CHANGED_OUTSIDE : ""
    return { state: task.status, reason, text: [shownStatus(task.status), reason].filter(Boolean).join(": ") }
  }
  const run = context.runOf(task)
  const [ask] = run?.asks ?? []
  if (run && isInFlight(run)) {
    if (ask !== undefined) return withReason("needs you", ask)
    if (run.pause) return pausedAs(run.pause, Date.parse(context.now))
    return plain(run.state === "queued" ? "queued" : "running")
  }
  if (waits) return withReason("waiting for a person", CHANGED_OUTSIDE)
  const { wake, needs, failures = 0, failure, budget } = runStateOf(state, task.id)
  if (!context.agents.includes(task.owner)) return withReason("rests", `no agent "${task.owner}"`)
  if (failures >= MOST_FAILURES)
    return withReason("rests", `${failures} runs failed, the last one: ${failure ?? "no reason given"}`)
  if (budget !== undefined) return withReason("rests", `budget: ${budget}`)
  const woken = isWoken(state, task, context)
  if (needs !== undefined && !woken) return withReason("needs you", needs)
  const after = failure === undefined ? "" : ` (the last run failed: ${clipped(failure)})`
  if (isIdle(state, task.id)) return withReason("rests", `no progress${after}`)
  if (isUsedUp(state, context.now) && wake?.cause !== "hand")
    return withReason(
      "rests",
      `the purse is used up until ${untilText(state.quiet ?? { until: context.now }, context.now)}`,
    )
  if (woken || isReady(state, task)) return plain("queued")
  const subtask = waitsFor(state, task)
  if (subtask) return { state: "waits", reason: `#${subtask.id}`, text: `waits for #${subtask.id}` }
  if (context.nextTick === "") return withReason("rests", "the schedule has no further time")
  return { state: "next run", reason: `${context.nextTick}${after}`, text: `next run ${context.nextTick}${after}` }
}

/**
 * Tasks to start now, in order: tasks that a round woke come last and one at a time. `free`: number of free slots;
 * `clockBusy`: whether a task that a round woke is running.
 */
export function dueTasks(
  state: BoardState,
  context: StatusContext,
  slots: { readonly free: number; readonly clockBusy: boolean },
): readonly BoardTask[] {
  const causeOf = ({ id }: BoardTask) => runStateOf(state, id).wake?.cause
  const due = state.tasks.filter((task) => {
    if (runStateOf(state, task.id).budget !== undefined || !mayBegin(state, task, context)) return false
    return isOwed(state, task, context) && !(isUsedUp(state, context.now) && causeOf(task) !== "hand")
  })
  const isClock = (task: BoardTask) => causeOf(task) === "clock"
  const events = due.filter((task) => !isClock(task)).sort(byWake(state))
  const others = readyTasks(state, context).filter((task) => !events.includes(task))
  // A run that is paused before it begins holds a slot for tasks of its owner: otherwise all of them would start, while
  // their model is at its limit. Tasks of other owners may have another model.
  const unbegun = state.tasks.filter((task) => {
    const run = context.runOf(task)
    return run?.state === "queued" && run.pause !== undefined
  })
  const held = ({ owner }: BoardTask) => unbegun.filter((task) => task.owner === owner).length
  const ticked = due.filter((task) => isClock(task) && held(task) < slots.free)
  const ticks = slots.clockBusy ? [] : ticked.slice(0, 1)
  const begins: BoardTask[] = []
  for (const task of [...events, ...ticks, ...others]) if (begins.length + held(task) < slots.free) begins.push(task)
  return begins
}

/** Whether a task is due, even if budget or slots allow no run now. */
export const wantsRun = (state: BoardState, task: BoardTask, context: StatusContext): boolean =>
  isOwed(state, task, context) || (isReady(state, task) && mayBegin(state, task, context))

/** Tasks that an open purse may start now. The task whose last run is longest ago comes first. */
function readyTasks(state: BoardState, context: StatusContext): readonly BoardTask[] {
  const ranAt = ({ id }: BoardTask) => runStateOf(state, id).ran ?? ""
  return state.tasks
    .filter(
      (task) =>
        isReady(state, task) && mayBegin(state, task, context) && runStateOf(state, task.id).budget === undefined,
    )
    .toSorted((a, b) => (ranAt(a) < ranAt(b) ? -1 : ranAt(a) > ranAt(b) ? 1 : Number(a.id) - Number(b.id)))
}

/** Whether a task has a pending wake and a run could begin. */
function isOwed(state: BoardState, task: BoardTask, context: StatusContext): boolean {
  return isWoken(state, task, context) && mayBegin(state, task, context)
}

/** Whether a task has a pending wake. A wake by the clock does not count in a purse's time, in which rounds are off. */
function isWoken(state: BoardState, { id }: BoardTask, { now }: StatusContext): boolean {
  const { wake } = runStateOf(state, id)
  return wake !== undefined && (wake.cause !== "clock" || quietUntil(state, Date.parse(now)) === undefined)
}

/** Whether a run of the task could begin, apart from budget and slots. */
function mayBegin(state: BoardState, task: BoardTask, context: StatusContext): boolean {
  const runState = runStateOf(state, task.id)
  if (task.status !== "active" || isUnverified(state, task.id)) return false
  if ((runState.failures ?? 0) >= MOST_FAILURES) return false
  const run = context.runOf(task)
  return context.agents.includes(task.owner) && !isInFlight(run) && !isUnrecorded(run, runState, context.now)
}

const pausedAs = (pause: PauseView, now: number): TaskState => ({
  state: "parked",
  reason: whenOf(pause, now)?.text ?? "",
  text: pauseText(pause, now),
})

const byWake = (state: BoardState) => (a: BoardTask, b: BoardTask) => {
  const [first, second] = [a, b].map(({ id }) => runStateOf(state, id).wake?.at ?? "") as [string, string]
  if (first !== second) return first < second ? -1 : 1
  return Number(a.id) - Number(b.id)
}

const plain = (state: "queued" | "running"): TaskState => ({ state, reason: "", text: state })

const withReason = (state: "needs you" | "rests" | "waiting for a person", reason: string): TaskState => ({
  state,
  reason: clipped(reason),
  text: `${state}: ${clipped(reason)}`,
})

const clipped = (text: string): string => cut(oneLine(text), MOST_REASON_CHARS)
