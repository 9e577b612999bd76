import type { Activity } from "../ports.ts"
import type { LastWord } from "../task.ts"
import type { ActiveRun, Stage } from "./active-run.ts"
import type { Command, Input, InputType, Step, World } from "./inputs.ts"

/** What an input does to a run in a stage where the table has it. */
export type Handler<Type extends InputType> = (
  run: ActiveRun,
  input: Extract<Input, { type: Type }>,
  world: World,
) => Step

export const stay = (run: ActiveRun): Step => ({ run, commands: [] })

/** Another stage: what was asked in the one before is not waited for any more. */
export const moved = (run: ActiveRun, stage: Stage): ActiveRun => ({
  ...run,
  stage,
  stageCount: run.stageCount + 1,
  looking: false,
  lookAgain: false,
  verifying: false,
  preparing: undefined,
})

/** A sign of life. */
export const sign = (run: ActiveRun, now: number): ActiveRun => ({
  ...run,
  lastSignAt: now,
  idle: false,
  endsText: false,
  stuckSince: undefined,
  todosSince: undefined,
  missingSince: undefined,
  error: undefined,
})

/** What its host does about its model: it tries again after an error, or asks. */
export function trying(run: ActiveRun, activity: Activity, now: number): ActiveRun {
  if (activity.type !== "retry") return { ...run, retry: undefined }
  const { attempt, message } = activity
  return { ...run, retry: activity, failing: { since: run.failing?.since ?? now, attempt, message } }
}

/** Where no time of a run has counted for so long, a time in it lies as much later. */
export const later = (time: number | undefined, ms: number): number | undefined =>
  time === undefined ? undefined : time + ms

/** It has as long for its last word as it had before. */
export const wordLater = (lastWord: LastWord | undefined, ms: number): LastWord | undefined =>
  lastWord && { ...lastWord, at: lastWord.at + ms, againAt: later(lastWord.againAt, ms) }

/** Its session does nothing: where it waits for its own tasks, it uses no model. */
export const rested = (run: ActiveRun, { ownTasks }: World): Step => ({
  run: { ...run, idle: true },
  commands: ownTasks && !run.idle ? [{ do: "freed" }] : [],
})

/** The second step is taken after the first, unless that has ended the run. */
export function also({ run, commands }: Step, next: (run: ActiveRun) => Step): Step {
  if (!run || run.closing) return { run, commands }
  const second = next(run)
  return { run: second.run, commands: [...commands, ...second.commands] }
}

export const withCommands = ({ run, commands }: Step, more: readonly Command[]): Step => ({
  run,
  commands: [...commands, ...more],
})

export const waitsForOwn = ({ ownTasks, owed }: World): boolean => ownTasks || owed

/** Has its messages looked at; once more where that is under way, since it may have begun too early. */
export function looks(run: ActiveRun, world: World): Step {
  if (run.stage !== "prompting" && run.stage !== "working") return stay(run)
  // When its machine can be reached again it is looked at.
  if (run.away) return stay(run)
  if (run.looking) return stay({ ...run, lookAgain: true })
  return {
    run: { ...run, looking: true, lookAgain: false, lookAt: undefined },
    commands: [{ do: "look", waited: waitsForOwn(world) }],
  }
}
