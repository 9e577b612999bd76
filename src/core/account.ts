import { listed } from "./errors.ts"
import type { Task } from "./task.ts"
import { oneLine } from "./text.ts"

const MOST_FILES = 50
/** What went wrong may need more words than a name. */
const MOST_REASON_CHARS = 500

const INTERRUPTED_ADVICE = "To go on: launch the task again, and tell the agent what is done already."

/** What a reader must know of an ended run beside its answer, a line each. The same in its notification and output. */
export function accountOf({ outcome }: Task): string[] {
  if (!outcome) return []
  const { reason, note, openTodos, filesChanged } = outcome
  return [
    ...(reason ? [`Reason: ${oneLine(reason.text, MOST_REASON_CHARS)}`] : []),
    ...(note ? [`Note: ${oneLine(note, MOST_REASON_CHARS)}`] : []),
    ...(openTodos > 0 ? [`Note: the agent left ${openTodos} of its todos open.`] : []),
    ...(filesChanged.length > 0
      ? [
          `Files changed: ${listed(
            filesChanged.map((file) => oneLine(file)),
            MOST_FILES,
          )}`,
        ]
      : []),
    ...(reason?.code === "interrupted" ? [INTERRUPTED_ADVICE] : []),
  ]
}

/** `bg_k3x9f2q1 (find it)`. */
export const nameOf = ({ id, description }: Pick<Task, "id" | "description">): string =>
  `${id} (${oneLine(description)})`

/** What the text of an ended run is. */
export function textName({ status, outcome }: Task): string {
  if (status === "completed") return "answer"
  return outcome?.saidLastWord ? "last word, which is partial" : "text so far"
}

/** In place of an answer, where there is none. */
export const noText = ({ status }: Task): string =>
  status === "completed" ? "The agent ended without any text." : "It had written no text."
