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
  readonly outcome: Outcome
  /** Notification owed for the end, or `{state: "none"}`. */
  readonly delivery: Delivery
}

export type TaskEvent =
  | { readonly type: "admitted"; readonly generation: number; readonly at: number }
  | ({ readonly type: "completed" } & Ended)
  | ({ readonly type: "failed" } & Ended)
  | ({ readonly type: "cancelled" } & Ended)
  /** `by`: another agent, or a later run of its group, continues the work. */
  | {
      readonly type: "resumed"
      readonly run: Run
      readonly by?: Partial<Pick<Task, "agent" | "model" | "description" | "member">>
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
  | { readonly type: "parent stopped" | "parent continued" }
  /** The agent has given another answer after its run, because somebody asked for one. */
  | { readonly type: "answered later"; readonly generation: number; readonly at: number; readonly usage: Usage }
  /** More is known of the outcome after the end. */
  | { readonly type: "closed"; readonly generation: number; readonly outcome: Outcome }
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
 * `notified`, `answered later` and what the parent's user does. The caller decides which states may be resumed (option
 * `resumable`), not the machine.
 */
export function transition(task: Task, event: TaskEvent): Task {
  switch (event.type) {
    case "admitted":
      return admit(task, event)
    case "completed":
      return end(task, "completed", event)
    case "failed":
      return end(task, "error", event)
    case "cancelled":
      return end(task, "cancelled", event)
    case "resumed":
      return resume(task, event)
    case "retrieved":
      return isActive(task) || task.retrievedAt !== undefined ? task : { ...task, retrievedAt: event.at }
    case "warned":
      return warn(task, event)
    case "parked":
      return park(task, event)
    case "asks":
      return asks(task, event)
    case "prompt replaced":
      return replacePrompt(task, event)
    case "switched":
      return switchTo(task, event)
    case "unparked":
      return unpark(task, event)
    case "clock stopped":
    case "clock running":
      return count(task, event)
    case "slept":
      return sleep(task, event)
    case "parent stopped":
    case "parent continued":
      return ofParent(task, event.type === "parent stopped")
    case "won":
      return win(task, event)
    case "answered later":
      return addLaterUsage(task, event)
    case "closed":
      return isActive(task) || task.run.generation !== event.generation ? task : { ...task, outcome: event.outcome }
    case "notified":
      return notify(task, event)
  }
}

function admit(task: Task, event: { generation: number; at: number }): Task {
  const { heldBehind, startedAt, ...run } = task.run
  const isAdmitted = startedAt !== undefined && heldBehind === undefined
  if (!isActive(task) || run.generation !== event.generation || isAdmitted) return task
  return { ...task, run: { ...run, startedAt: startedAt ?? event.at } }
}

function warn(task: Task, { generation, at, reason }: Extract<TaskEvent, { type: "warned" }>): Task {
  const { run } = task
  if (!isActive(task) || run.generation !== generation || run.startedAt === undefined) return task
  return run.lastWordAt === undefined ? { ...task, run: { ...run, lastWordAt: at, lastWordFor: reason } } : task
}

/** Whether the event may stop or restart the clock of tasks that wait for this one. */
export const stopsTime = (event: TaskEvent): boolean =>
  event.type === "parked" ||
  event.type === "unparked" ||
  event.type === "clock stopped" ||
  event.type === "clock running"

function park(task: Task, { type: _type, generation, ...parked }: Extract<TaskEvent, { type: "parked" }>): Task {
  const { run } = task
  if (!isActive(task) || run.generation !== generation || run.parked) return task
  return { ...task, run: paused(counting(run, parked.at), parked) }
}

/** True while the task's run has begun and is not parked. */
const isUnderWay = (task: Task, generation: number): boolean =>
  isActive(task) && task.run.generation === generation && task.run.startedAt !== undefined && !task.run.parked

/** Stops or restarts the run's clock at `at`. */
function count(
  task: Task,
  { type, generation, at }: Extract<TaskEvent, { type: "clock stopped" | "clock running" }>,
): Task {
  const { run } = task
  const isPausedByChildren = type === "clock stopped"
  if (!isUnderWay(task, generation) || isPausedByChildren === (run.stillSince !== undefined)) return task
  return { ...task, run: isPausedByChildren ? { ...run, stillSince: at } : counting(run, at) }
}

/** Restarts the run's clock. */
const counting = ({ stillSince, ...run }: Run, at: number): Run =>
  stillSince === undefined ? run : leavingOut(run, Math.max(0, at - stillSince))

/** Leaves a sleep out of the run's time. A stopped clock leaves it out anyway. */
const sleep = (task: Task, { generation, ms }: Extract<TaskEvent, { type: "slept" }>): Task =>
  isUnderWay(task, generation) && task.run.stillSince === undefined ? { ...task, run: leavingOut(task.run, ms) } : task

const leavingOut = (run: Run, ms: number): Run => ({ ...run, stillMs: (run.stillMs ?? 0) + ms })

function unpark(task: Task, { generation, at }: Extract<TaskEvent, { type: "unparked" }>): Task {
  if (!isActive(task) || task.run.generation !== generation || !task.run.parked) return task
  return { ...task, run: unpaused(task.run, at) }
}

function ofParent(task: Task, isStopped: boolean): Task {
  const { parentStopped, ...run } = task.run
  if ((parentStopped === true) === isStopped) return task
  return { ...task, run: isStopped ? { ...run, parentStopped: true } : run }
}

function win(task: Task, { generation, winner, passed }: Extract<TaskEvent, { type: "won" }>): Task {
  const { group, run } = task
  if (!isActive(task) || run.generation !== generation || !group || group.winner) return task
  return { ...task, group: { ...group, winner, ...(passed && { passed }) } }
}

/** A resumed group with a chosen member continues with this member alone. */
function forLaterRun(group: Group): Group {
  const { winner, passed: _passed, ...rest } = group
  if (!winner) return group
  return { ...rest, again: winner }
}

function asks(task: Task, { generation, model }: { generation: number; model: Model }): Task {
  if (!isActive(task) || task.run.generation !== generation || modelOf(task)) return task
  return { ...task, run: { ...task.run, model } }
}

function replacePrompt(task: Task, { generation, promptID }: Extract<TaskEvent, { type: "prompt replaced" }>): Task {
  if (!isActive(task) || task.run.generation !== generation) return task
  return { ...task, run: { ...task.run, promptID } }
}

function switchTo(task: Task, { generation, model, step, why }: Extract<TaskEvent, { type: "switched" }>): Task {
  const { run } = task
  if (!isActive(task) || run.generation !== generation) return task
  const switches = [...(run.switches ?? []), { model: modelKey(model), step, why }]
  return { ...task, run: { ...run, model, switches } }
}

function end(task: Task, status: "completed" | "error" | "cancelled", event: Ended): Task {
  if (!isActive(task) || task.run.generation !== event.generation) return task
  return {
    ...task,
    status,
    run: { ...counting(unpaused(task.run, event.at), event.at), endedAt: event.at },
    outcome: event.outcome,
    delivery: event.delivery,
  }
}

function resume(task: Task, { run, by }: Extract<TaskEvent, { type: "resumed" }>): Task {
  if (isActive(task) || run.generation !== task.run.generation + 1) return task
  const { outcome = NO_FIGURES, retrievedAt: _retrievedAt, ...rest } = task
  const earlier = addFigures(task.earlier, outcome)
  const gone = rest.group && { group: forLaterRun(rest.group) }
  return { ...rest, ...gone, ...by, status: "resumed", run, earlier, delivery: { state: "none" } }
}

function addLaterUsage(task: Task, { generation, at, usage }: Extract<TaskEvent, { type: "answered later" }>): Task {
  const { run } = task
  if (isActive(task) || run.generation !== generation) return task
  const earlier = addFigures(task.earlier, { toolCalls: 0, usage })
  return { ...task, earlier, run: { ...run, recent: alsoRecent(run.recent, { endedAt: at, cost: usage.cost }) } }
}

function notify(task: Task, event: { generation: number; state: "confirmed" | "abandoned" }): Task {
  const { delivery } = task
  if (delivery.state !== "pending" || task.run.generation !== event.generation) return task
  return { ...task, delivery: { ...delivery, state: event.state } }
}
