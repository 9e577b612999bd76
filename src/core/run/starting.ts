import { withAnswers } from "../dependencies.ts"
import type { Parked } from "../pause.ts"
import { isPaused, isQueued } from "../task.ts"
import { type ActiveRun, waitsWithSlot } from "./active-run.ts"
import { callReturned, end, shortened, superviseMembers } from "./ending.ts"
import { checkLimits } from "./limits.ts"
import { withoutOpenCalls } from "./progress.ts"
import { release } from "./prompts.ts"
import {
  andThen,
  type Handler,
  type MachineCommand,
  type MachineStep,
  moved,
  type RunContext,
  readMessages,
  recordActivity,
  stay,
} from "./steps.ts"

/** Begins a run whose session now exists, or a resume. With a slot the run starts, otherwise it is queued. */
export const begin: Handler<"begin"> = (run, { prompt }, context) => {
  const { task } = context
  // Messages sent while the session was created follow the prompt.
  const ready = { ...run, prompt: prompt && `${prompt}${run.prompt ?? ""}`, sessionID: task.sessionID }
  if (prompt === undefined) return stay(moved(ready, "working"))
  if (run.stage === "waiting" || isQueued(task)) return stay(moved(ready, "waiting"))
  return run.held ? stay(moved(ready, "waiting")) : start(ready, context, false)
}

/** Starts or continues a run that the scheduler has admitted. */
export const admitted: Handler<"admitted"> = (run, input, context) => {
  // The abort of the session is still pending and would stop a new prompt.
  if (isPaused(context.task)) return run.calls > 0 ? stay(run) : continueAfterPause(run, input, context)
  const { now } = context
  // The time of a run with a slot counts, so its limits are checked before it starts.
  if (waitsWithSlot(run))
    return andThen(checkLimits(run, context), (next) =>
      start(recordActivity({ ...next, held: undefined }, now), context, false),
    )
  const event = { type: "admitted", generation: run.generation, at: now } as const
  const { run: next, commands } = start(recordActivity(run, now), context, true)
  return { run: next, commands: [{ do: "record", event, write: false }, ...commands] }
}

/** Starts a run whose preparation is done or not needed. `save`: the record is written first. */
function start(run: ActiveRun, { task }: RunContext, save: boolean): MachineStep {
  if (save || task.place || task.depth > 1 || task.run.after || task.group)
    return { run: moved(run, "preparing"), commands: [{ do: "prepare", save }] }
  return prompt(moved(run, "prompting"))
}

function prompt(run: ActiveRun): MachineStep {
  const { prompt: text = "", preface } = run
  return { run: { ...run, calls: run.calls + 1 }, commands: [{ do: "prompt", text, preface }] }
}

export const prepared: Handler<"prepared"> = (
  { preparesAgain: reenters, ...run },
  { answers, preface, done = [] },
  context,
) => {
  const { now, task } = context
  // Continue with the same prompt. One that was stored before the run began says nothing of the place.
  if (reenters) return prompt({ ...recordActivity(moved(run, "prompting"), now), preface: run.preface || preface })
  // What stands in the answers is no part of the prompt that the members' prompts are made of.
  const before = withAnswers("", answers, task.place !== undefined)
  if (task.group)
    return superviseMembers({ ...recordActivity(moved(run, "supervising"), now), preface: before, done }, context)
  return prompt({ ...recordActivity(moved(run, "prompting"), now), prompt: before + (run.prompt ?? ""), preface })
}

export const prepareFailed: Handler<"prepare failed"> = (run, { code, problem }, context) =>
  end(run, { type: "failed", reason: { code, text: problem } }, {}, context)

/**
 * Handles the result of sending the prompt. A refused prompt ends the run; after an unknown result, OpenCode may have
 * accepted the prompt.
 */
export const prompted: Handler<"prompted"> = (given, { problem }, context) => {
  if (given.stage !== "prompting") return callReturned(given)
  const run = { ...given, calls: given.calls - 1 }
  if (problem !== undefined) {
    const text = `OpenCode did not take the prompt: ${problem}`
    return end(run, { type: "failed", reason: { code: "host", text } }, {}, context)
  }
  // What was read before OpenCode had the prompt says nothing: such a read is late, and another one follows.
  const step = release({ ...moved(run, "working"), looking: false, lookAgain: false, stuckSince: undefined })
  return run.idle || run.looking ? andThen(step, (next) => readMessages(next, context)) : step
}

/**
 * Pauses the run, for example after a provider's refusal. Turns started by the user are neither undone nor resent; a
 * request that was just sent is stopped.
 */
export const pause: Handler<"pause"> = (run, { parked }, { now, task }) => {
  if (isQueued(task)) return pauseBeforeStart(run, parked, now)
  if (isPaused(task))
    return {
      run: { ...run, asks: [], calls: run.calls + 1 },
      commands: [{ do: "park", asks: run.asks }],
    }
  // A run that waits with a slot has sent no request.
  if (run.prompt === undefined || waitsWithSlot(run)) return stay(run)
  const { check, value, unanswered } = run
  const found = { check: check && shortened(check), value, unanswered }
  const event = { type: "parked", generation: run.generation, ...parked, found } as const
  const next = {
    ...moved(run, "waiting"),
    asks: [],
    retry: undefined,
    failing: undefined,
    error: undefined,
    observed: withoutOpenCalls(run.observed),
    calls: run.calls + 1,
  }
  const park = { do: "park", asks: run.asks } as const
  const commands: readonly MachineCommand[] = [{ do: "record", event, write: true }, park, { do: "free slot" }]
  return { run: next, commands }
}

/** Pauses a run without a slot, because its provider is at a limit before the run has begun. */
function pauseBeforeStart(run: ActiveRun, parked: Parked, now: number): MachineStep {
  const { generation, prompt: text = "" } = run
  const next = { ...recordActivity(moved(run, "waiting"), now), notStarted: true, calls: run.calls + 1 } as const
  const commands: readonly MachineCommand[] = [
    { do: "record", event: { type: "admitted", generation, at: now }, write: false },
    { do: "record", event: { type: "parked", generation, ...parked }, write: false },
    { do: "store prompt", text },
  ]
  return { run: next, commands }
}

/** Continues a run after a pause, with the same prompt under the same ids. */
const continueAfterPause: Handler<"admitted"> = (run, _input, context) => {
  const { now } = context
  const event = { type: "unparked", generation: run.generation, at: now } as const
  const on = { ...recordActivity(run, now), continuedAt: now }
  const record = { do: "record", event, write: true } as const
  const unparked = { run: on, commands: [record] }
  // Others may have used up a shared limit meanwhile, which is known before the next request.
  const checked = andThen(unparked, (next) => checkLimits(next, context))
  return andThen(checked, ({ notStarted: unbegun, ...next }) => {
    if (next.preparesAgain)
      return {
        run: moved(next, "preparing"),
        commands: [{ do: "prepare", save: false, ...(!unbegun && { again: true }) }],
      }
    return unbegun ? start(next, context, false) : prompt(moved(next, "prompting"))
  })
}

export const look: Handler<"look"> = (run, _input, context) => readMessages(run, context)
