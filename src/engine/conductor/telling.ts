import { AUTOMATIC } from "../../core/account.ts"
import type { Host } from "../../core/ports.ts"
import { slotsOf } from "../../core/task.ts"
import type { Note } from "../talk/notes.ts"

/**
 * Tells a parent's model something of a task without starting it. False where that cannot be now: a message that is
 * stored in mid-turn makes the host take another step, and one in a session whose user has undone something deletes that
 * for good.
 */
export async function tellIdle(host: Host, { task, kind, at, visible, text }: Note): Promise<boolean> {
  const { id, run } = task
  const parentID = slotsOf(task)
  const persona = await host.persona(parentID)
  const [parent, activity] = await Promise.all([host.parent(parentID), host.activity()])
  if (parent?.reverted || activity.has(parentID)) return false
  const hidden = { text: `${AUTOMATIC} ${text}`, synthetic: true }
  await host.prompt({
    sessionID: parentID,
    messageID: host.messageID(kind, id, run.generation, at),
    agent: persona?.agent,
    model: persona?.model,
    noReply: true,
    parts: visible === undefined ? [hidden] : [{ text: visible }, hidden],
  })
  return true
}
