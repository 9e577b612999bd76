import { AUTOMATIC, nameOf } from "../../core/account.ts"
import { messageID, partID } from "../../core/ids.ts"
import type { Ask, Task } from "../../core/task.ts"
import { oneLine } from "../../lib/text.ts"
import type { Parts } from "../parts.ts"

/**
 * Tells the parent's model, without starting it, that a task waits for somebody. False where that cannot be now: a
 * message that is stored in mid-turn makes the host take another step, and one in a session whose user has undone
 * something deletes that for good.
 */
export async function hintParent({ host }: Parts, task: Task, ask: Ask): Promise<boolean> {
  const { id, parentID } = task
  const { generation, startedAt = 0 } = task.run
  const persona = await host.persona(parentID)
  const [parent, activity] = await Promise.all([host.parent(parentID), host.activity()])
  if (parent?.reverted || activity.has(parentID)) return false
  const text = `${AUTOMATIC} Background task ${nameOf(task)} waits for the user's answer to a ${ask.kind}: ${oneLine(ask.what)}. Tell the user when you next speak to them.`
  await host.prompt({
    sessionID: parentID,
    messageID: messageID("hint", id, generation, startedAt),
    agent: persona?.agent,
    model: persona?.model,
    noReply: true,
    parts: [{ id: partID("hint", id, generation, startedAt, 0), text, synthetic: true }],
  })
  return true
}
