import { classify } from "../core/outcome.ts"
import type { Host, Message } from "../core/ports.ts"
import type { Task } from "../core/task.ts"
import { notificationID } from "./mailbox/message.ts"

/**
 * Messages after the notification, or written by the user while it was sent, are the user's: they do not change the
 * answer.
 */
export async function answerBeforeNotice(
  host: Host,
  task: Task,
  messages: readonly Message[],
): Promise<readonly Message[]> {
  if (!messages.some(({ role, id }) => role === "user" && id !== task.run.promptID)) return messages
  const [told] = await host.messagesSince(task.parentID, notificationID(host.messageID, task))
  if (!told) return messages
  const before = messages.filter(
    ({ createdAt, completedAt = createdAt }) => createdAt < told.createdAt && completedAt < told.createdAt,
  )
  // An end that messages do not prove was recorded before it was told.
  const end = before.findLastIndex((_message, index) => classify(before.slice(0, index + 1), "idle").proven)
  return end < 0 ? before : before.slice(0, end + 1)
}
