import { isActive } from "../../src/core/task.ts"
import { calls, INPUTS, type Input, limit, waits } from "./inputs.ts"

/** Lives in which much is parked, and what is parked is what everybody aims at. */

const isParked: Input["can"] = (_world, { run }) => run.parked !== undefined

const AIMED: readonly string[] = [
  "its parent cancels all",
  "its parent clears all",
  "its parent tells it a word",
  "its parent waits for its answer",
  "it is cancelled at the screen",
  "it is cleared at the screen",
  "it is told a word at the screen",
  "it is tried at its provider's limit",
  "its user stops it",
  "its user writes to it",
  "its session is deleted",
  "the process dies and comes back",
  "another process looks",
  "the machine sleeps",
]

const aimed = (input: Input): Input => ({
  ...input,
  name: `${input.name}, and it is parked`,
  weight: 3,
  can: (world, task) => isParked(world, task) === true && (input.can?.(world, task) ?? true),
})

/** Once the call is back, the run is over. */
const cancel = calls("its parent cancels it", 1, async (world, { id, parentID, run }) => {
  await world.manager.cancel({ type: "task", reference: id }, world.rig.callerIn(parentID))
  const after = world.task(id)
  if (after && isActive(after) && after.run.generation === run.generation)
    world.watch.breach(`${world.history.nameOf(id)} was cancelled and goes on`)
})

/** All that can come where much is parked. */
export const INPUTS_PARKED: readonly Input[] = [
  ...INPUTS,
  ...[
    ...INPUTS.filter(({ name }) => AIMED.includes(name)),
    cancel,
    waits("its parent waits a minute for its answer", 60_000),
  ].map(aimed),
  { ...limit("its provider is at its limit for half a minute", 30_000, true), weight: 8 },
  { ...limit("its provider is at its limit for four minutes", 240_000, true), weight: 3 },
  { ...limit("its provider is at its limit for half a minute, and says nothing of it", 30_000, false), weight: 4 },
]
