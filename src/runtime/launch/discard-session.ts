import { PATIENT_MS, retry } from "../../lib/clock.ts"
import type { Parts } from "../parts.ts"

/** Deletes a session that a failed creation may have left: the call can have succeeded without an answer. */
export const sweepUp = ({ host, clock, stopped }: Parts, id: string, under: string): Promise<void> =>
  retry(
    clock,
    stopped,
    async () => {
      const left = (await host.recordsOf(under)).find(({ task }) => task.id === id)
      if (left) await host.deleteSession(left.task.sessionID)
    },
    PATIENT_MS,
  )
