import { constraintsOf } from "../../core/constraints.ts"
import { sizeOf, winnerIn } from "../../core/group.ts"
import { endAfterCrash } from "../../core/last-word.ts"
import { classify, lastSignIn } from "../../core/outcome.ts"
import type { Message } from "../../core/ports.ts"
import { type Ending, isActive, type Reason, type Task } from "../../core/task.ts"
import type { Member } from "../../core/tries.ts"
import type { Options } from "../../options/options.ts"
import type { TaskStore } from "../tasks/store.ts"

/** True where the session may lie in another folder: the task has a place, or its parent may have one. */
export const mayBeElsewhere = (task: Task): boolean => isUnclosed(task) || (task.depth > 1 && isActive(task))

/** It worked in a place of its own, or stands for several, and what became of that was not written down. */
export const isUnclosed = ({ place, team, outcome }: Task): boolean =>
  (place !== undefined && outcome?.work === undefined) || (team !== undefined && outcome?.team === undefined)

/** Whether its agent may have launched tasks of which only its dead process knew: those are settled with it. */
export const mayLaunch = (task: Task, { maxDepth }: Pick<Options, "maxDepth">): boolean =>
  isActive(task) && (maxDepth === 0 || task.depth < maxDepth)

/** When the agent last launched a task, or had one go on: it was at work then, whatever its messages tell. 0: never. */
export const lastLaunchBy = ({ sessionID }: Task, store: TaskStore): number =>
  Math.max(0, ...store.ofParent(sessionID).map(({ run }) => run.createdAt))

/** Its check had passed: that stands in its team's record. */
export const hasWon = ({ id, part }: Task, store: TaskStore): boolean =>
  part !== undefined && winnerIn(store.get(part.of)?.team) === id

/**
 * How a run ended whose process died, by its messages; undefined where they do not tell. `seenAt`: when that is last
 * known to have lived; `isWinner`: that its check had passed stands in its team's record.
 */
export function endOf(task: Task, messages: readonly Message[], seenAt: number, isWinner: boolean): Ending | undefined {
  const classified = classify(messages, "orphaned")
  if (!classified) return undefined
  if (isWinner) return classified
  return {
    at: Math.max(seenAt, lastSignIn(messages)),
    ...unchecked(task, endAfterCrash(classified, task.run, messages)),
  }
}

/** A run that had answered but not passed its check counts as interrupted: nobody can tell whether it would have. */
function unchecked(task: Task, ending: Ending): Ending {
  if (ending.type !== "completed" || task.run.check === undefined) return ending
  const text = "OpenCode stopped or was restarted before its check had passed. It had answered."
  return { type: "failed", reason: { code: "interrupted", text }, at: ending.at }
}

/**
 * What the tries are asked that are still to be begun of a team that goes on after a restart; undefined where it does
 * not: none has begun, or what they were to be asked is not known any more. `members`: all of its tries.
 */
export function triesGoOn({ team, run }: Task, members: readonly Member[]): string | undefined {
  if (team?.kind !== "tries" || team.winner !== undefined || run.startedAt === undefined) return undefined
  const begun = members.filter(({ task }) => task.part?.run === run.generation)
  const isAllBegun = begun.length >= sizeOf(team)
  if (begun.length === 0 || ((run.after || run.generation > 0) && !isAllBegun)) return undefined
  return team.prompt
}

/** How tries or a map ended whose process died: with a winner on record the rest is finished, without it can be resumed. */
export const groupEndOf = ({ team }: Task): Ending =>
  winnerIn(team) === undefined ? { type: "failed", reason: TEAM_INTERRUPTED } : { type: "completed" }

const TEAM_INTERRUPTED: Reason = {
  code: "interrupted",
  text: "OpenCode stopped or was restarted before it had come to an end.",
}

/**
 * What the agent of a run that stood still was asked, from its stored message. Undefined where that is not there, and
 * where the run had gone on and ended, by its messages: its parent may be told already.
 */
export function askedOf(task: Task, messages: readonly Message[]) {
  const asked = messages.find(({ id }) => id === task.run.promptID)
  if (!asked || classify(messages, "working")?.type === "completed") return undefined
  const texts = asked.parts.flatMap((part) => (part.type === "text" ? [part] : []))
  const textOf = (synthetic: boolean) => texts.find((part) => part.synthetic === synthetic)?.text ?? ""
  // Its terms are put behind that anew.
  const [told, constraints] = [textOf(true), constraintsOf(task)]
  const preface = told.endsWith(constraints) ? told.slice(0, told.length - constraints.length) : told
  return { prompt: textOf(false), preface: preface.trim() }
}
