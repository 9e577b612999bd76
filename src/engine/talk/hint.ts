import { AUTOMATIC, nameOf } from "../../core/account.ts"
import { listed } from "../../core/errors.ts"
import { type MessageKind, messageID, partID } from "../../core/ids.ts"
import type { Ask, Task } from "../../core/task.ts"
import { oneLine } from "../../lib/text.ts"
import type { Parts } from "../parts.ts"

/** The most files that are named. */
const MOST_NAMES = 10

/** Tells the parent's model that a task waits for somebody; see `tellIdle`. */
export const hintParent = (parts: Parts, task: Task, ask: Ask): Promise<boolean> =>
  tellIdle(
    parts,
    task,
    "hint",
    `Background task ${nameOf(task)} waits for the user's answer to a ${ask.kind}: ${oneLine(ask.what)}. Tell the user when you next speak to them.`,
  )

/** Tells it that a merge of a task's work was cut off, and does not fit any more; see `tellIdle`. */
export const tellCutOff = (parts: Parts, task: Task, files: readonly string[]): Promise<boolean> => {
  const names = listed(
    files.map((file) => oneLine(file)),
    MOST_NAMES,
  )
  return tellIdle(
    parts,
    task,
    "merge",
    `OpenCode was stopped while the work of background task ${nameOf(task)} was merged into your files, and the rest of it no longer fits to what was changed since: ${names}. Each file is as it was, or as it was merged; nothing more was touched. superagents_task(resume="${task.id}", prompt) has its agent solve that; then merge it again. Tell the user when you next speak to them.`,
  )
}

/**
 * Tells the parent's model something of a task without starting it. False where that cannot be now: a message that is
 * stored in mid-turn makes the host take another step, and one in a session whose user has undone something deletes that
 * for good.
 */
async function tellIdle({ host }: Parts, task: Task, kind: MessageKind, text: string): Promise<boolean> {
  const { id, parentID } = task
  const { generation, startedAt = 0 } = task.run
  const persona = await host.persona(parentID)
  const [parent, activity] = await Promise.all([host.parent(parentID), host.activity()])
  if (parent?.reverted || activity.has(parentID)) return false
  await host.prompt({
    sessionID: parentID,
    messageID: messageID(kind, id, generation, startedAt),
    agent: persona?.agent,
    model: persona?.model,
    noReply: true,
    parts: [{ id: partID(kind, id, generation, startedAt, 0), text: `${AUTOMATIC} ${text}`, synthetic: true }],
  })
  return true
}
