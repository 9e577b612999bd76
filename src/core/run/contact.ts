import type { Away } from "../task.ts"
import type { ActiveRun } from "./active-run.ts"
import type { World } from "./inputs.ts"
import { type Handler, looks, sign, stay } from "./steps.ts"

/** The run's machine became unreachable: neither an end nor silence of the run. */
export function lost(run: ActiveRun, since: number, { task, mostAway }: World): ActiveRun {
  const { kind: host = "" } = task.place ?? {}
  const away: Away = { host, since, most: mostAway() }
  if (run.away) return run
  const unlooked = { stuckSince: undefined, todosSince: undefined, missingSince: undefined, lookAt: undefined }
  return { ...run, ...unlooked, away, retry: undefined, confirming: false }
}

/** Contact is back: the time without it does not count as silence. */
export const found = (run: ActiveRun, { now }: World): ActiveRun =>
  run.away ? { ...sign(run, now), away: undefined, looking: false, lookAgain: false } : run

export const contact: Handler<"contact"> = (run, input, world) =>
  input.lost === undefined ? looks(found(run, world), world) : stay(lost(run, input.lost, world))

export const preparing: Handler<"preparing"> = (run, { what }) => stay({ ...run, preparing: what })
