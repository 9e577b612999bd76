import type { NameMessage } from "../../core/ids.ts"
import type { Message, Persona, Prompt } from "../../core/ports.ts"
import type { Task } from "../../core/task.ts"
import type { Notice } from "../../present/notification.ts"

/** Nobody has answered what came since; none is there where its user has deleted it, and that is not told again. */
export function isUnread(since: readonly Message[]): boolean {
  // An answer names the message that it answers.
  const ids = new Set<string | undefined>(since.map(({ id }) => id))
  return since.length > 0 && !since.some(({ parentID }) => ids.has(parentID))
}

/** The id of a run's notification: from the run alone, so that all who tell of it tell the same message. */
export const notificationID = (name: NameMessage, { id, run }: Task): string =>
  name("notification", id, run.generation, run.createdAt)

/** The notification of a run as a message of whoever speaks in its parent. */
export function promptOf(
  name: NameMessage,
  task: Task,
  { visible, hidden }: Pick<Notice, "visible" | "hidden">,
  persona: Persona | undefined,
  noReply: boolean,
): Prompt {
  return {
    sessionID: task.parentID,
    messageID: notificationID(name, task),
    agent: persona?.agent,
    model: persona?.model,
    noReply,
    parts: [{ text: visible }, { text: hidden, synthetic: true }],
  }
}
