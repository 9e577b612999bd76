import { PATIENT_MS, retry } from "../../lib/clock.ts"
import type { Parts } from "../parts.ts"

/** Deletes what a task that could not be made may have left below a session: a call that failed can have done its work. */
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
