import type { ActiveRun } from "./active-run.ts"
import { contact, preparing } from "./contact.ts"
import { closed, ends, finalized, notified, stopped, written } from "./ending.ts"
import { counted, event, questions } from "./events.ts"
import type { Input, InputType, MachineStep, RunContext } from "./inputs.ts"
import { confirmed, hinted, idle, refuseFailed, request, slept, spending, tick } from "./limits.ts"
import { looked, verified } from "./messages.ts"
import { sent, tell } from "./prompts.ts"
import { admitted, begin, look, prepared, prepareFailed, prompted, refused } from "./starting.ts"
import type { Handler } from "./steps.ts"
import { memberCreated, members } from "./supervising.ts"
import { type Edge, edgeOf, GONE, TABLE } from "./table.ts"

const HANDLERS: { readonly [Type in InputType]: Handler<Type> } = {
  begin,
  admitted,
  tell,
  request,
  end: ends,
  event,
  questions,
  look,
  tick,
  spending,
  slept,
  refused,
  members,
  "member created": memberCreated,
  contact,
  preparing,
  prepared,
  "prepare failed": prepareFailed,
  prompted,
  sent,
  stopped,
  idle,
  "refuse failed": refuseFailed,
  hinted,
  counted,
  looked,
  confirmed,
  verified,
  closed,
  finalized,
  written,
  notified,
}

/** Test hook: called for each edge taken. */
export const edges: { taken?: (edge: Edge) => void } = {}

/**
 * Next state of a run and the commands to carry out. Pure and total: inputs that the table does not allow, or for
 * another process's run, change nothing.
 */
export function step(run: ActiveRun, input: Input, context: RunContext): MachineStep {
  if (run.heldBy !== "ours" || !TABLE[run.stage][input.type]) return { run, commands: [] }
  const handle = HANDLERS[input.type] as Handler<InputType>
  const next = handle(run, input, context)
  edges.taken?.(edgeOf(run.stage, input.type, next.run?.stage ?? GONE))
  return next
}
