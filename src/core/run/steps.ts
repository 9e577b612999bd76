import type { Activity } from "../ports.ts"
import type { LastWord } from "../task.ts"
import type { ActiveRun, Stage } from "./active-run.ts"
import type { Input, InputType, MachineCommand, MachineStep, RunContext } from "./inputs.ts"

export type Handler<Type extends InputType> = (
  run: ActiveRun,
  input: Extract<Input, { type: Type }>,
  context: RunContext,
) => MachineStep

export const stay = (run: ActiveRun): MachineStep => ({ run, commands: [] })

/** Changes the stage: results awaited in the old one are now late. */
export const moved = (run: ActiveRun, stage: Stage): ActiveRun => ({
  ...run,
  stage,
  stageCount: run.stageCount + 1,
  looking: false,
  lookAgain: false,
  confirming: false,
  preparing: undefined,
})

export const recordActivity = (run: ActiveRun, now: number): ActiveRun => ({
  ...run,
  lastSignAt: now,
  idle: false,
  endsText: false,
  stuckSince: undefined,
  todosSince: undefined,
  missingSince: undefined,
  error: undefined,
})

/** OpenCode retries the model's request, or asks the model. */
export function recordRetry(run: ActiveRun, activity: Activity, now: number): ActiveRun {
  if (activity.type !== "retry") return { ...run, retry: undefined }
  const { attempt, message } = activity
  return { ...run, retry: activity, failing: { since: run.failing?.since ?? now, attempt, message } }
}

/** Shifts a time by a period in which the run's clock was stopped. */
export const shiftTime = (time: number | undefined, ms: number): number | undefined =>
  time === undefined ? undefined : time + ms

/** Extends the time for the last word. */
export const extendLastWord = (lastWord: LastWord | undefined, ms: number): LastWord | undefined =>
  lastWord && { ...lastWord, at: lastWord.at + ms, againAt: shiftTime(lastWord.againAt, ms) }

/** The session is idle: if it waits for children it releases its model. */
export const markIdle = (run: ActiveRun, { ownTasks }: RunContext): MachineStep => ({
  run: { ...run, idle: true },
  commands: ownTasks && !run.idle ? [{ do: "free slot" }] : [],
})

/** Applies a second step unless the first ended the run. */
export function andThen({ run, commands }: MachineStep, next: (run: ActiveRun) => MachineStep): MachineStep {
  if (!run || run.closing) return { run, commands }
  const second = next(run)
  return { run: second.run, commands: [...commands, ...second.commands] }
}

export const withCommands = ({ run, commands }: MachineStep, more: readonly MachineCommand[]): MachineStep => ({
  run,
  commands: [...commands, ...more],
})

export const waitsForOwn = ({ ownTasks, owed }: RunContext): boolean => ownTasks || owed

/** Reads the messages; once more if a read is under way, which may have begun too early. */
export function readMessages(run: ActiveRun, context: RunContext): MachineStep {
  if (run.stage !== "prompting" && run.stage !== "working") return stay(run)
  // Repeated when contact is back.
  if (run.away) return stay(run)
  if (run.looking) return stay({ ...run, lookAgain: true })
  return {
    run: { ...run, looking: true, lookAgain: false, lookAt: undefined },
    commands: [{ do: "look", waited: waitsForOwn(context) }],
  }
}
