/** `bg_` and eight lower-case letters or digits, from a source of such letters. */
export const taskID = (random: () => string): string => `bg_${random()}`

/** What is said for a task, to its session or its parent's. */
export type MessageKind =
  | "prompt"
  | "notification"
  | "preamble"
  | "hint"
  | "word"
  | "last-word"
  | "check"
  | "schema"
  | "parked"
  | "merge"
  | "report"
  | "answer"

/**
 * The id of the message of this kind that belongs to a run of a task. It is derived, so that a prompt or a notification
 * that is sent again is the same message to the host. `at` is only for the order among other messages.
 */
export type NameMessage = (kind: MessageKind, task: string, generation: number, at: number) => string
