import type { Host, Message } from "../../core/ports.ts"
import type { Task } from "../../core/task.ts"
import { notificationID } from "../../delivery/message.ts"

/** What came after its parent was told of the end is its user's, and changes nothing of what the run came to. */
export async function untilTold(host: Host, task: Task, messages: readonly Message[]): Promise<readonly Message[]> {
  if (!messages.some(({ role, id }) => role === "user" && id !== task.run.promptID)) return messages
  const [told] = await host.messagesSince(task.parentID, notificationID(host.messageID, task))
  return told ? messages.filter(({ createdAt }) => createdAt < told.createdAt) : messages
}
