import type { OpencodeApi } from "../../core/ports.ts"
import { AUTOMATIC } from "../../core/summary.ts"
import { slotSessionOf } from "../../core/task.ts"
import { retry, sleepFor } from "../../lib/clock.ts"
import type { Parts } from "../parts.ts"
import type { Note } from "./notes.ts"

/** Delays between attempts, in ms: doubled up to the longest. */
const FIRST_WAIT_MS = 5000
const LONGEST_WAIT_MS = 60_000

/**
 * Sends a parent's model a message about a task without starting it. False where that must wait: a message during a
 * turn causes another step, and one after an undo deletes the undone messages for good.
 */
export async function notifyIdle(host: OpencodeApi, { task, kind, at, visible, text }: Note): Promise<boolean> {
  const { id, run } = task
  const parentID = slotSessionOf(task)
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

/** Sends it as soon as the parent is idle. Rejects where the parent is gone or does not answer. */
export async function tellOnceIdle({ host, clock, stopped }: Parts, note: Note): Promise<void> {
  for (let wait = FIRST_WAIT_MS; !stopped.aborted; wait = Math.min(2 * wait, LONGEST_WAIT_MS)) {
    if (await retry(clock, stopped, () => notifyIdle(host, note))) return
    await sleepFor(clock, wait)
  }
}
