import { constraintsOf } from "../../core/constraints.ts"
import { sizeOf, winnerIn } from "../../core/group.ts"
import { endAfterCrash } from "../../core/last-word.ts"
import { isBegunIn, type MemberState } from "../../core/members.ts"
import { classify, lastAnswerAt } from "../../core/outcome.ts"
import type { Message } from "../../core/ports.ts"
import { type Ending, holdsPlace, isActive, type Reason, type Task } from "../../core/task.ts"
import type { Options } from "../../options/options.ts"
import type { TaskStore } from "../tasks/store.ts"

/** The session may be in another folder: the task has a place, or its parent may have one. */
export const mayBeInOtherFolder = (task: Task): boolean => isUnclosed(task) || (task.depth > 1 && isActive(task))

/** A place or group whose end was not recorded. */
export const isUnclosed = (task: Task): boolean =>
  holdsPlace(task) || (task.group !== undefined && task.outcome?.group === undefined)

/** Whether the agent may have launched tasks that only its dead process knew; they are settled with it. */
export const mayLaunch = (task: Task, { maxDepth }: Pick<Options, "maxDepth">): boolean =>
  isActive(task) && (maxDepth === 0 || task.depth < maxDepth)

/** Time of the agent's last launch or resume, which proves it worked then; 0 for never. */
export const lastLaunchBy = ({ sessionID }: Task, store: TaskStore): number =>
  Math.max(0, ...store.ofParent(sessionID).map(({ run }) => run.createdAt))

/** The group's record shows that the try passed its check. */
export const hasWon = ({ id, member }: Task, store: TaskStore): boolean =>
  member !== undefined && winnerIn(store.get(member.of)?.group) === id

/**
 * End of a run of a dead process by its messages; undefined where they show none. `seenAt`: last sign of that process;
 * `isWinner`: the group's record names it the winner.
 */
export function endOf(task: Task, messages: readonly Message[], seenAt: number, isWinner: boolean): Ending | undefined {
  const classified = classify(messages, "orphaned")
  if (!classified) return undefined
  if (isWinner) return classified
  return {
    at: Math.max(seenAt, lastAnswerAt(messages)),
    ...unchecked(task, endAfterCrash(classified, task.run, messages)),
  }
}

/** A run that answered without a recorded check counts as interrupted: whether it would have passed is not known. */
function unchecked(task: Task, ending: Ending): Ending {
  if (ending.type !== "completed" || task.run.check === undefined) return ending
  const text = "OpenCode stopped or was restarted before its check had passed. It had answered."
  return { type: "failed", reason: { code: "interrupted", text }, at: ending.at }
}

/**
 * Prompts of the remaining members when a group continues after a restart; undefined where it cannot: none has begun, or
 * the prompts are lost. `members`: all members.
 */
export function remainingPrompts({ group, run }: Task, members: readonly MemberState[]): string | undefined {
  if (!group || winnerIn(group) !== undefined || run.startedAt === undefined) return undefined
  const begun = members.filter(({ task }) => isBegunIn(task, run.generation))
  const isAllBegun = begun.length >= sizeOf(group)
  if (begun.length === 0 || ((run.after || run.generation > 0) && !isAllBegun)) return undefined
  return group.prompt
}

/** End of a group whose process died: with a recorded winner it is completed, otherwise it can be resumed. */
export const groupEndOf = ({ group }: Task): Ending =>
  winnerIn(group) === undefined ? { type: "failed", reason: TEAM_INTERRUPTED } : { type: "completed" }

const TEAM_INTERRUPTED: Reason = {
  code: "interrupted",
  text: "OpenCode stopped or was restarted before it had come to an end.",
}

/**
 * Prompt of a paused run, from its stored message. Undefined where that is missing, or messages show that the run
 * continued and ended.
 */
export function promptFromMessages(task: Task, messages: readonly Message[]) {
  const asked = messages.find(({ id }) => id === task.run.promptID)
  if (!asked || classify(messages, "working")?.type === "completed") return undefined
  const texts = asked.parts.flatMap((part) => (part.type === "text" ? [part] : []))
  const textOf = (synthetic: boolean) => texts.find((part) => part.synthetic === synthetic)?.text ?? ""
  // The constraints are appended again later.
  const [told, constraints] = [textOf(true), constraintsOf(task)]
  const preface = told.endsWith(constraints) ? told.slice(0, told.length - constraints.length) : told
  return { prompt: textOf(false), preface: preface.trim() }
}
