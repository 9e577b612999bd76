import { duration } from "../core/duration.ts"
import { elapsed, type Task } from "../core/task.ts"

/** Parts of a notification's message: without both, it was not stored whole. */
export const NOTICE_PARTS = 2

/** The two texts of a notification: what the user reads, and what only the model does. */
export type Notice = { readonly visible: string; readonly hidden: string }

/**
 * The notification of an ended run, in the words of the specification. `development` adds the mark that tells a
 * developer that a hidden hint is attached. `usage` is a line of figures for the model, empty for none.
 */
export function compose(task: Task, usage: string, development: boolean): Notice {
  const { delivery } = task
  const figures = delivery.state === "none" ? { done: 0, total: 0, running: 0 } : delivery
  const visible = `${headline(task)}\nTask Progress: ${figures.done}/${figures.total}`
  return {
    visible: development ? `${visible}\n[hint attached]` : visible,
    hidden: [...reasonLines(task), ...(usage === "" ? [] : [usage]), ...guidance(task, figures)].join("\n"),
  }
}

function headline(task: Task): string {
  const time = duration(elapsed(task, 0))
  const subject = task.run.generation > 0 ? `Resume #${task.run.generation}` : `Agent "${task.description}"`
  if (task.status === "cancelled") return `⊘ **${subject} cancelled after ${time}.**`
  if (task.status === "error") return `✗ **${subject} failed in ${time}.**`
  return `✓ **${subject} ${task.run.generation > 0 ? "completed" : "finished"} in ${time}.**`
}

function reasonLines(task: Task): string[] {
  const lines = [`Task ${task.id}: ${task.status}.`]
  const { outcome } = task
  if (outcome?.reason) lines.push(`Reason: ${outcome.reason.text}`)
  if (outcome?.note) lines.push(`Note: ${outcome.note}`)
  if (outcome && outcome.openTodos > 0) lines.push(`Note: the agent left ${outcome.openTodos} of its todos open.`)
  return lines
}

function guidance(task: Task, { total, running }: { total: number; running: number }): string[] {
  if (running === 0) return [`All ${total} tasks finished.`, "Use superagents_output tools to see agent responses."]
  return [
    `If you need results immediately, use superagents_output(task_id="${task.id}").`,
    "You can continue working or just say 'waiting' and halt.",
    "WATCH OUT for leftovers, you will likely WANT to wait for all agents to complete.",
  ]
}
