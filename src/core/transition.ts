import type { Group } from "./group.ts"
import { modelKey } from "./limits.ts"
import { type Parked, paused, unpaused } from "./pause.ts"
import type { CheckResult } from "./receipt.ts"
import { alsoRecent } from "./spending.ts"
import {
  addFigures,
  type Delivery,
  isActive,
  type Model,
  modelOf,
  NO_FIGURES,
  type Outcome,
  type Reason,
  type Run,
  type Task,
  type Usage,
} from "./task.ts"

/** End of a run. `generation`: the run that the event is about. */
type Ended = {
  readonly generation: number
  readonly at: number
  /** Sleep after `at` that the run's time has left out, because it was noticed before the end was. */
  readonly sleptMs?: number
  readonly outcome: Outcome
  /** Notification owed for the end, or `{state: "none"}`. */
  readonly delivery: Delivery
}

export type TaskEvent =
  | { readonly type: "admitted"; readonly generation: number; readonly at: number }
  | ({ readonly type: "completed" } & Ended)
  | ({ readonly type: "failed" } & Ended)
  | ({ readonly type: "cancelled" } & Ended)
  /**
   * `by`: another agent, or a later run of its group, continues the work. `timeout`: time limit of a group's members from
   * now on.
   */
  | {
      readonly type: "resumed"
      readonly run: Run
      readonly by?: Partial<Pick<Task, "agent" | "model" | "description" | "member">>
      readonly timeout?: number
    }
  | { readonly type: "retrieved"; readonly at: number }
  | { readonly type: "warned"; readonly generation: number; readonly at: number; readonly reason: Reason }
  | ({ readonly type: "parked"; readonly generation: number } & Parked)
  | { readonly type: "won"; readonly generation: number; readonly winner: string; readonly passed?: CheckResult }
  /** A user has replaced the run's prompt in its session by another prompt. */
  | { readonly type: "prompt replaced"; readonly generation: number; readonly promptID: string }
  /** Model known for the next request. */
  | { readonly type: "asks"; readonly generation: number; readonly model: Model }
  | {
      readonly type: "switched"
      readonly generation: number
      readonly model: Model
      readonly step: number
      readonly why: string
    }
  /** The run continues after a pause. */
  | { readonly type: "unparked"; readonly generation: number; readonly at: number }
  /** Since `at`, all that the run waits for is paused (`clock stopped`), or no longer is (`clock running`). */
  | { readonly type: "clock stopped" | "clock running"; readonly generation: number; readonly at: number }
  /** The process of the run has slept; negative where its clock was set back. */
  | { readonly type: "slept"; readonly generation: number; readonly ms: number }
  /** A user has stopped the parent session, or goes on with it. */
  | { readonly type: "parent stopped"; readonly at: number }
  | { readonly type: "parent continued" }
  /** An answer beside the task's runs: somebody asked the agent for it, or it was given in a session below. */
  | { readonly type: "answered beside"; readonly generation: number; readonly at: number; readonly usage: Usage }
  /** More is known of the outcome after the end. `failed`: that a group has failed after all. */
  | { readonly type: "closed"; readonly generation: number; readonly outcome: Outcome; readonly failed?: true }
  | { readonly type: "notified"; readonly generation: number; readonly state: "confirmed" | "abandoned" }

/**
 * The only function that changes a task. Pure and total: what does not apply (a late event, an older generation,
 * a second end) returns the very same object, so `next === task` means "nothing happened".
 *
 * ```
 *              admitted                    completed
 *   ┌─ running ───┐      ┌──────────────────────────────► completed ─┐
 *   │  (queued)   ▼      │           failed                          │
 *   │          running ──┼──────────────────────────────► error ─────┤
 *   │             ▲      │          cancelled                        │
 *   └─────────────┼──────┴──────────────────────────────► cancelled ─┤
 *                 │                                                  │
 *              resumed ◄──────────── resumed (generation + 1) ───────┘
 * ```
 *
 * `resumed` ends as `running` does. The three terminal states absorb everything but `resumed`, `retrieved`, `closed`,
 * `notified`, `answered beside` and what the parent's user does. The caller decides which states may be resumed (option
 * `resumable`), not the machine.
 */
export function transition(task: Task, event: TaskEvent): Task {
  if ("generation" in event && event.generation !== task.run.generation) return task
  const { delivery } = task
  if (event.type === "parent stopped") return ofParent(task, event.at)
  if (event.type === "parent continued") return ofParent(task, undefined)
  if (event.type === "notified")
    return delivery.state === "pending" ? { ...task, delivery: { ...delivery, state: event.state } } : task
  if (event.type === "answered beside") return withUsageBeside(task, event)
  return isActive(task) ? changeActive(task, event) : changeEnded(task, event)
}

/** Whether the event may stop or restart the clock of tasks that wait for this one. */
export const stopsTime = (event: TaskEvent): boolean =>
  event.type === "parked" ||
  event.type === "unparked" ||
  event.type === "clock stopped" ||
  event.type === "clock running"

function changeActive(task: Task, event: TaskEvent): Task {
  const { group } = task
  switch (event.type) {
    case "completed":
      return end(task, "completed", event)
    case "failed":
      return end(task, "error", event)
    case "cancelled":
      return end(task, "cancelled", event)
    case "asks":
      return modelOf(task) ? task : { ...task, model: event.model }
    case "won":
      if (!group || group.winner) return task
      return { ...task, group: { ...group, winner: event.winner, ...(event.passed && { passed: event.passed }) } }
  }
  const run = changeRun(task, event)
  return run ? { ...task, run } : task
}

/** The changed run of an active task; undefined where the event does not apply. */
function changeRun(task: Task, event: TaskEvent): Run | undefined {
  const { run } = task
  const { startedAt, lastWordAt, parked, stoppedSince, switches = [] } = run
  const isUnderWay = startedAt !== undefined && !parked
  const isCounting = isUnderWay && stoppedSince === undefined
  switch (event.type) {
    case "admitted":
      return startedAt === undefined ? { ...run, startedAt: event.at } : undefined
    case "warned":
      if (startedAt === undefined || lastWordAt !== undefined) return undefined
      return { ...run, lastWordAt: event.at, lastWordFor: event.reason }
    case "parked": {
      const { type: _type, generation: _generation, ...pause } = event
      return parked ? undefined : paused(stopped(run, pause.at), pause)
    }
    case "unparked":
      return parked && unpaused(counting(run, event.at), event.at)
    case "prompt replaced":
      return { ...run, promptID: event.promptID }
    case "switched": {
      const { model, step, why } = event
      return { ...run, model, switches: [...switches, { model: modelKey(model), step, why }] }
    }
    case "clock stopped":
      return isCounting ? stopped(run, event.at) : undefined
    case "clock running":
      return isUnderWay && !isCounting ? counting(run, event.at) : undefined
    case "slept":
      if (isCounting) return leavingOut(run, event.ms)
      // A stopped clock leaves a sleep out anyway, but knows nothing of a system clock that was set back.
      return event.ms < 0 && stoppedSince !== undefined ? stoppedEarlier(run, event.ms) : undefined
  }
  return undefined
}

/** Stops the run's clock. A clock that is stopped already stays so. */
const stopped = (run: Run, at: number): Run => ({ ...run, stoppedSince: run.stoppedSince ?? at })

/** Restarts the run's clock. */
const counting = ({ stoppedSince, ...run }: Run, at: number): Run =>
  stoppedSince === undefined ? run : leavingOut(run, Math.max(0, at - stoppedSince))

/** The run with the time at which its clock stopped, and its start, in a system clock that was set back. */
const stoppedEarlier = ({ parked, stoppedSince = 0, ...run }: Run, ms: number): Run =>
  leavingOut(
    { ...run, ...(parked && { parked: { ...parked, at: parked.at + ms } }), stoppedSince: stoppedSince + ms },
    ms,
  )

const leavingOut = (run: Run, ms: number): Run => ({ ...run, uncountedMs: (run.uncountedMs ?? 0) + ms })

function changeEnded(task: Task, event: TaskEvent): Task {
  const { run } = task
  switch (event.type) {
    case "resumed":
      return event.run.generation === run.generation + 1 ? resume(task, event) : task
    case "retrieved":
      return task.retrievedAt === undefined ? { ...task, retrievedAt: event.at } : task
    case "closed":
      return { ...task, ...(event.failed && { status: "error" }), outcome: event.outcome }
  }
  return task
}

function withUsageBeside(task: Task, { at, usage }: Extract<TaskEvent, { type: "answered beside" }>): Task {
  const earlier = addFigures(task.earlier, { toolCalls: 0, usage })
  const recent = alsoRecent(task.run.recent, { endedAt: at, cost: usage.cost })
  return { ...task, earlier, run: { ...task.run, recent } }
}

function ofParent(task: Task, stoppedAt: number | undefined): Task {
  const { parentStopped, ...run } = task.run
  if ((parentStopped === undefined) === (stoppedAt === undefined)) return task
  return { ...task, run: stoppedAt === undefined ? run : { ...run, parentStopped: stoppedAt } }
}

function end(task: Task, status: "completed" | "error" | "cancelled", event: Ended): Task {
  const { at, sleptMs, outcome, delivery } = event
  const run = { ...counting(unpaused(task.run, at), at), endedAt: at }
  return { ...task, status, run: sleptMs === undefined ? run : leavingOut(run, -sleptMs), outcome, delivery }
}

function resume(task: Task, { run, by, timeout }: Extract<TaskEvent, { type: "resumed" }>): Task {
  const { outcome = NO_FIGURES, retrievedAt: _retrievedAt, ...rest } = task
  const earlier = addFigures(task.earlier, outcome)
  const group = rest.group && { group: forLaterRun(rest.group, timeout) }
  return { ...rest, ...group, ...by, status: "resumed", run, earlier, delivery: { state: "none" } }
}

/** A resumed group with a chosen member continues with this member alone. */
function forLaterRun(group: Group, timeout = group.timeout): Group {
  const { winner, passed: _passed, ...rest } = group
  return winner ? { ...rest, timeout, again: winner } : { ...group, timeout }
}
