import type { LostContact } from "../task.ts"
import type { ActiveRun } from "./active-run.ts"
import type { RunContext } from "./inputs.ts"
import { type Handler, readMessages, recordActivity, stay } from "./steps.ts"

/** The run's machine became unreachable: neither an end nor silence of the run. */
export function contactLost(run: ActiveRun, since: number, { task, mostAway }: RunContext): ActiveRun {
  const { kind: host = "" } = task.place ?? {}
  const away: LostContact = { host, since, most: mostAway() }
  if (run.away) return run
  const unlooked = { stuckSince: undefined, todosSince: undefined, missingSince: undefined, lookAt: undefined }
  return { ...run, ...unlooked, away, retry: undefined, confirming: false }
}

/** Contact is back: the time without it does not count as silence. */
export const contactRestored = (run: ActiveRun, { now }: RunContext): ActiveRun =>
  run.away ? { ...recordActivity(run, now), away: undefined, looking: false, lookAgain: false } : run

export const contact: Handler<"contact"> = (run, input, context) =>
  input.lost === undefined
    ? readMessages(contactRestored(run, context), context)
    : stay(contactLost(run, input.lost, context))

export const preparing: Handler<"preparing"> = (run, { what }) => stay({ ...run, preparing: what })
