import { listed } from "../core/errors.ts"
import type { Toast } from "../core/ports.ts"
import { type Ask, elapsed, type Task } from "../core/task.ts"
import { grouped } from "../lib/collections.ts"
import { duration } from "../lib/format.ts"
import { count, oneLine } from "../lib/text.ts"
import { named } from "./summary.ts"
import { ENDS, endOf } from "./words.ts"

export const launchToast = (task: Task): Toast => ({
  title: task.run.generation > 0 ? `Resume #${task.run.generation} started` : "Background agent launched",
  message: `${oneLine(task.description)} (${oneLine(task.agent)})`,
  variant: "info",
})

export function endToast(task: Task): Toast {
  const end = endOf(task)
  const description = oneLine(task.description)
  const title = `Background agent ${end === "completed" ? "finished" : ENDS[end].text}`
  if (end === "completed")
    return { title, message: `${description} in ${duration(elapsed(task, 0))}`, variant: "success" }
  const reason = task.outcome?.reason && oneLine(task.outcome.reason.text)
  return {
    title,
    message: reason ? `${description}: ${reason}` : description,
    variant: end === "error" ? "error" : "warning",
  }
}

/** Most messages named in one toast. */
const MOST_NAMED = 3

/**
 * Combines toasts to one for each kind, oldest first. Several messages of a kind are counted, and the first are named.
 */
export function summarize(toasts: readonly Toast[]): readonly Toast[] {
  return [...grouped(toasts, ({ title }) => title).values()].map((alike) => {
    const [first] = alike
    if (alike.length === 1) return first
    const messages = alike.map(({ message }) => message)
    return { ...first, title: `${alike.length} × ${first.title}`, message: listed(messages, MOST_NAMED) }
  })
}

export const copiedToast = (tasks: number): Toast => ({
  title: "Background agents stay with the first conversation",
  message: `${count(tasks, "task")} of the conversation that was forked: ${tasks === 1 ? "its answer arrives" : "their answers arrive"} there, not here`,
  variant: "info",
})

export const cutOffToast = (task: Task, files: readonly string[]): Toast => ({
  title: "A merge was cut off, and no longer fits",
  message: `${oneLine(task.description)}: ${named(files, MOST_NAMED)}`,
  variant: "warning",
})

export const askToast = (task: Task, ask: Ask): Toast => ({
  title: ask.kind === "permission" ? "A background agent asks for permission" : "A background agent asks a question",
  message: `${oneLine(task.description)}: ${oneLine(ask.what)}`,
  variant: "warning",
})

/** Shown when a user undoes launches: the undo neither stops the agents nor takes back their edits. */
export const undoneToast = (running: readonly Task[], files: readonly string[]): Toast => ({
  title: "Background agents are not undone",
  message: [
    running.length > 0 &&
      `Still at work: ${named(
        running.map(({ description }) => description),
        MOST_NAMED,
      )} (/tasks stops them)`,
    files.length > 0 && `Their edits stay: ${named(files, MOST_NAMED)}`,
  ]
    .filter(Boolean)
    .join(". "),
  variant: "warning",
})

export const redoToast = (task: Task, files: readonly string[]): Toast => ({
  title: "A redo would reset a background agent's edits",
  message: `${oneLine(task.description)} has edited ${named(files, MOST_NAMED)} since your undo. A redo, or another undo, puts the files back as they were at that undo`,
  variant: "warning",
})
