import type { Command } from "./rules/command.ts"
import type { Runs } from "./runs.ts"
import { type BoardState, pulseOf } from "./state.ts"
import { type Moment, wantsRun } from "./status.ts"
import type { Store } from "./store/store.ts"

export type RefusalPorts = {
  readonly runs: Pick<Runs, "refusals">
  readonly change: (command: Command) => Promise<unknown>
  readonly store: Pick<Store, "read">
}

/** Records which runs may not begin for lack of budget, and which may again, without trying them. */
export async function withRefusals(
  { runs, change, store }: RefusalPorts,
  state: BoardState,
  moment: Moment,
): Promise<BoardState> {
  const owed = state.tasks.filter((task) => wantsRun(state, task, moment))
  const resting = state.tasks.filter(({ id }) => pulseOf(state, id).budget !== undefined)
  if (owed.length + resting.length === 0) return state
  const refusal = await runs.refusals()
  const reasons = Object.fromEntries(
    owed.flatMap(({ id, threadId }) => {
      const reason = refusal(threadId)
      return reason === undefined ? [] : [[id, reason] as const]
    }),
  )
  const isAsWritten = ({ id }: { id: string }) => pulseOf(state, id).budget === reasons[id]
  if (owed.every(isAsWritten) && resting.every(isAsWritten)) return state
  await change({ type: "refused", reasons })
  return store.read()
}
