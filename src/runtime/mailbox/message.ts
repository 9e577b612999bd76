import type { MessageIDFactory } from "../../core/ids.ts"
import type { Message, Persona, Prompt } from "../../core/ports.ts"
import type { Task } from "../../core/task.ts"
import type { NotificationTexts } from "../../present/notification.ts"

/** No later message answers it. A notification that the user deleted is not sent again. */
export function isUnread(since: readonly Message[]): boolean {
  // An answer names the message that it answers.
  const ids = new Set<string | undefined>(since.map(({ id }) => id))
  return since.length > 0 && !since.some(({ parentID }) => ids.has(parentID))
}

/** Derived from the run alone, so that all processes send the same message. */
export const notificationID = (name: MessageIDFactory, { id, run }: Task): string =>
  name("notification", id, run.generation, run.createdAt)

/** The notification as a message with the parent's current agent and model. */
export function notificationPrompt(
  name: MessageIDFactory,
  task: Task,
  { visible, hidden }: Pick<NotificationTexts, "visible" | "hidden">,
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
