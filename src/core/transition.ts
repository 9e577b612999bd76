import type { Delivery, Outcome, Run, Task } from "./task.ts"
import { isActive } from "./task.ts"

/** How a run can end, and what it leaves. `generation` names the run that the news is about. */
type Ended = {
  readonly generation: number
  readonly at: number
  readonly outcome: Outcome
  /** The notification that the end owes, or `{state: "none"}` where it owes none. */
  readonly delivery: Delivery
}

export type TaskEvent =
  | { readonly type: "admitted"; readonly generation: number; readonly at: number }
  | ({ readonly type: "completed" } & Ended)
  | ({ readonly type: "failed" } & Ended)
  | ({ readonly type: "cancelled" } & Ended)
  | { readonly type: "resumed"; readonly run: Run }
  | { readonly type: "retrieved"; readonly at: number }
  | { readonly type: "notified"; readonly generation: number; readonly state: "sent" | "confirmed" | "abandoned" }

/**
 * The only door through which a task changes. Pure and total: what does not apply (a late event, an older generation,
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
 * `resumed` ends as `running` does. The three terminal states absorb everything but `resumed`, `retrieved` and
 * `notified`; which of them may be resumed is the caller's rule (option `resumable`), not the machine's.
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
      return resume(task, event.run)
    case "retrieved":
      return isActive(task) || task.retrievedAt !== undefined ? task : { ...task, retrievedAt: event.at }
    case "notified":
      return notify(task, event)
  }
}

function admit(task: Task, event: { generation: number; at: number }): Task {
  if (!isActive(task) || task.run.generation !== event.generation || task.run.startedAt !== undefined) return task
  const { queuedPrompt: _sent, ...run } = task.run
  return { ...task, run: { ...run, startedAt: event.at } }
}

function end(task: Task, status: "completed" | "error" | "cancelled", event: Ended): Task {
  if (!isActive(task) || task.run.generation !== event.generation) return task
  const { queuedPrompt: _unsent, ...run } = task.run
  return {
    ...task,
    status,
    run: { ...run, endedAt: event.at },
    outcome: event.outcome,
    delivery: event.delivery,
  }
}

function resume(task: Task, run: Run): Task {
  if (isActive(task) || run.generation !== task.run.generation + 1) return task
  const { outcome: _outcome, retrievedAt: _retrievedAt, ...rest } = task
  return { ...rest, status: "resumed", run, delivery: { state: "none" } }
}

const DELIVERY_ORDER = { pending: 0, sent: 1, confirmed: 2, abandoned: 2 } as const

function notify(task: Task, event: { generation: number; state: "sent" | "confirmed" | "abandoned" }): Task {
  const { delivery } = task
  if (delivery.state === "none" || task.run.generation !== event.generation) return task
  if (DELIVERY_ORDER[event.state] <= DELIVERY_ORDER[delivery.state]) return task
  return { ...task, delivery: { ...delivery, state: event.state } }
}
