export const newTaskID = (random: () => string): string => `bg_${random()}`

/** Kind of message that is sent for a task, to its session or its parent's. */
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
 * Derived id of a message, so that a prompt or notification sent twice is stored once. `at` only orders it among other
 * messages.
 */
export type MessageIDFactory = (kind: MessageKind, task: string, generation: number, at: number) => string
