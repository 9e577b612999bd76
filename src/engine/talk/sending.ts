import type { Task } from "../../core/task.ts"
import type { Parts } from "../parts.ts"
import { stopSession } from "../run/stopping.ts"

/**
 * Sends a run a message. Where the run has ended meanwhile its session is stopped once more, whether the message is
 * known to have come or not: it may have started the model again, with nobody to watch it. Resolves with whether the run
 * goes on.
 */
export function sendTo(parts: Parts, task: Task, send: () => Promise<void>): Promise<boolean> {
  const { store, underway } = parts
  return underway.track(task.sessionID, async () => {
    try {
      await send()
    } finally {
      if (!store.runs(task)) await stopSession(parts, task.sessionID)
    }
    return store.runs(task)
  })
}
