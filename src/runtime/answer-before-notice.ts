import { classify } from "../core/outcome.ts"
import type { Message, OpencodeApi } from "../core/ports.ts"
import type { Ending, Task } from "../core/task.ts"
import { toldStatus } from "../present/notification.ts"
import { notificationID } from "./mailbox/message.ts"

/** `told`: the end that the parent was told, where messages no longer prove it. */
type Before = { readonly messages: readonly Message[]; readonly told?: Ending }

/**
 * Messages after the notification, or written by the user while it was sent, are the user's: they do not change the
 * answer.
 */
export async function answerBeforeNotice(host: OpencodeApi, task: Task, messages: readonly Message[]): Promise<Before> {
  const isAlone = messages.every(({ role, id }) => role !== "user" || id === task.run.promptID)
  if (isAlone && classify(messages, "idle").proven) return { messages }
  const id = notificationID(host.messageID, task)
  // Most runs that a crash ended were not told: one small request shows it.
  if (!(await host.hasMessage(task.parentID, id, 0))) return { messages }
  const [notice] = await host.messagesSince(task.parentID, id)
  if (!notice) return { messages }
  const before = messages.filter(
    ({ createdAt, completedAt = createdAt }) => createdAt < notice.createdAt && completedAt < notice.createdAt,
  )
  // An end that messages do not prove was recorded before it was told.
  const end = before.findLastIndex((_message, index) => classify(before.slice(0, index + 1), "idle").proven)
  return end < 0 ? { messages: before, told: endIn(task, notice) } : { messages: before.slice(0, end + 1) }
}

/** End that a notification names; its session's user has replaced the messages that proved it. */
function endIn(task: Task, { parts, createdAt: at }: Message): Ending | undefined {
  const status = parts.flatMap((part) => (part.type === "text" ? [toldStatus(task, part.text)] : [])).find(Boolean)
  if (status === "completed") return { type: "completed", at }
  if (status === "error") return { type: "failed", reason: { code: "provider", text: GONE }, at }
  return status && { type: "cancelled", reason: { code: "refused", text: GONE }, at }
}

const GONE = "The messages that showed its end were replaced. Its notification says how it ended."
