import type { ActiveRun } from "./active-run.ts"
import { contact, preparing } from "./contact.ts"
import { ends, left, quiet, stopped, told, written } from "./ending.ts"
import { counted, heard, questions } from "./events.ts"
import type { Input, InputType, Step, World } from "./inputs.ts"
import { confirmed, hinted, request, resting, slept, spent, tick, unrefused } from "./limits.ts"
import { looked, verified } from "./messages.ts"
import { said, tell } from "./prompts.ts"
import { admitted, begin, entered, look, prompted, refused, shutOut } from "./starting.ts"
import type { Handler } from "./steps.ts"
import { fielded, parts } from "./supervising.ts"
import { type Edge, edgeOf, GONE, TABLE } from "./table.ts"

const HANDLERS: { readonly [Type in InputType]: Handler<Type> } = {
  begin,
  admitted,
  tell,
  request,
  end: ends,
  heard,
  questions,
  look,
  tick,
  spent,
  slept,
  refused,
  parts,
  fielded,
  contact,
  preparing,
  entered,
  "shut out": shutOut,
  prompted,
  said,
  stopped,
  resting,
  unrefused,
  hinted,
  counted,
  looked,
  confirmed,
  verified,
  quiet,
  left,
  written,
  told,
}

/** Test hook: called for each edge taken. */
export const edges: { taken?: (edge: Edge) => void } = {}

/**
 * Next state of a run and the commands to carry out. Pure and total: inputs that the table does not allow, or for
 * another process's run, change nothing.
 */
export function step(run: ActiveRun, input: Input, world: World): Step {
  if (run.heldBy !== "ours" || !TABLE[run.stage][input.type]) return { run, commands: [] }
  const handle = HANDLERS[input.type] as Handler<InputType>
  const next = handle(run, input, world)
  edges.taken?.(edgeOf(run.stage, input.type, next.run?.stage ?? GONE))
  return next
}
