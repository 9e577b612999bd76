import { duration } from "../core/duration.ts"
import type { Toast } from "../core/ports.ts"
import { type Ask, elapsed, type Task } from "../core/task.ts"

export const launchToast = (task: Task): Toast => ({
  title: task.run.generation > 0 ? `Resume #${task.run.generation} started` : "Background agent launched",
  message: `${task.description} (${task.agent})`,
  variant: "info",
})

export function endToast(task: Task): Toast {
  const time = duration(elapsed(task, 0))
  if (task.status === "completed")
    return { title: "Background agent finished", message: `${task.description} in ${time}`, variant: "success" }
  const reason = task.outcome?.reason?.text
  return {
    title: task.status === "cancelled" ? "Background agent cancelled" : "Background agent failed",
    message: reason ? `${task.description}: ${reason}` : task.description,
    variant: task.status === "cancelled" ? "warning" : "error",
  }
}

export const askToast = (task: Task, ask: Ask): Toast => ({
  title: ask.kind === "permission" ? "A background agent asks for permission" : "A background agent asks a question",
  message: `${task.description}: ${ask.what}`,
  variant: "warning",
})
