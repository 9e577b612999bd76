export const newTaskID = (random: () => string): string => `bg_${random()}`

/** Kind of message that the plugin sends for a task, to the task's session or the parent's. */
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
 * Derives the id of a message, so that a prompt or notification sent twice is stored once. `at` decides only the order
 * among other messages.
 */
export type MessageIDFactory = (kind: MessageKind, task: string, generation: number, at: number) => string
