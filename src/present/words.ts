import { endedUnanswered, type Phase, type Task } from "../core/task.ts"
import { oneLine } from "../lib/text.ts"

/** Words and marks for the states of a task. */

/** `of`: model, place or agent that the slot belongs to, if not to the session. */
export const slotText = (of: string | undefined): string => `a free slot${of === undefined ? "" : ` of ${oneLine(of)}`}`

/** The phase in words that say what a task waits for. */
export const phaseText = (phase: Phase): string => (phase === "queued" ? `queued for ${slotText(undefined)}` : phase)

/** Whether the task waits for a free slot. */
export const isInQueue = (phase: Phase | undefined): boolean => phase?.startsWith("queued") === true

/** Phase of an ended remote task until its changes are here. */
export const FETCHING_WORK = "fetching its work"

/** Example: `attempt 3: overloaded`. */
export const attemptText = ({ attempt, message }: { readonly attempt: number; readonly message: string }): string =>
  `attempt ${attempt}: ${oneLine(message)}`

/** Marks of tasks that have not ended. */
export const MARKS = { working: "●", waiting: "?", queued: "○" } as const

/** How a run ended. `unanswered`: its last message holds no text; `refused`: it stopped at a refused question. */
export type End = "completed" | "unanswered" | "error" | "cancelled" | "refused"

/** How an ended task is said and marked for a user. A model reads the status itself, by which it may list tasks. */
export const ENDS: Readonly<Record<End, { readonly text: string; readonly mark: string }>> = {
  completed: { text: "completed", mark: "✓" },
  unanswered: { text: "ended without an answer", mark: "⊖" },
  error: { text: "failed", mark: "✗" },
  cancelled: { text: "cancelled", mark: "⊘" },
  refused: { text: "stopped at a refusal", mark: "⊖" },
}

/** End of an ended task. */
export function endOf(task: Task): End {
  const { status, outcome } = task
  if (outcome?.reason?.code === "refused") return "refused"
  if (endedUnanswered(task)) return "unanswered"
  return status === "completed" || status === "error" ? status : "cancelled"
}
