import type { Outcome, Task } from "./task.ts"
import { oneLine } from "./text.ts"

const MOST_FILES = 50
/** What went wrong may need more words than a name. */
const MOST_REASON_CHARS = 500

const INTERRUPTED_ADVICE = "To go on: launch the task again, and tell the agent what is done already."

/** What a reader must know of an ended run beside its answer, a line each. The same in its notification and output. */
export function accountOf({ outcome }: Task): string[] {
  if (!outcome) return []
  const { reason, note, openTodos } = outcome
  return [
    ...(reason ? [`Reason: ${oneLine(reason.text, MOST_REASON_CHARS)}`] : []),
    ...(note ? [`Note: ${oneLine(note, MOST_REASON_CHARS)}`] : []),
    ...(openTodos > 0 ? [`Note: the agent left ${openTodos} of its todos open.`] : []),
    ...filesLine(outcome),
    ...(reason?.code === "interrupted" ? [INTERRUPTED_ADVICE] : []),
  ]
}

function filesLine({ filesChanged, moreFiles }: Outcome): string[] {
  if (filesChanged.length === 0) return []
  const names = filesChanged.slice(0, MOST_FILES).map((file) => oneLine(file))
  const more = filesChanged.length - names.length + moreFiles
  return [`Files changed: ${names.join(", ")}${more > 0 ? ` and ${more} more` : ""}`]
}

/** `bg_k3x9f2q1 (find it)`. */
export const nameOf = ({ id, description }: Pick<Task, "id" | "description">): string =>
  `${id} (${oneLine(description)})`

/** What the text of an ended run is. */
export function textName({ status, outcome }: Task): string {
  if (status === "completed") return "answer"
  return outcome?.saidLastWord ? "last word, which is partial" : "text so far"
}

/** In place of an answer, where there is none. `gone`: its session was deleted. */
export function noText({ status }: Task, gone = false): string {
  if (gone) return "Its session was deleted, and what it had written with it."
  return status === "completed" ? "The agent ended without any text." : "It had written no text."
}
