import { formatInteger, oneLine } from "../lib/text.ts"
import { neverBegan } from "./outcome.ts"
import type { CheckResult } from "./receipt.ts"
import type { Group } from "./record.ts"
import { type Ending, isActive, isUnmerged, type Task } from "./task.ts"

export type { Group, GroupResult } from "./record.ts"

/**
 * Several runs that count as one task. In some groups one member is chosen, whose work and answer are the group's. The
 * group's own session is never prompted; each member is a run with a record of its own.
 */

/** Display name of a member, `bg_k3x9f2q1/1`: counted from 1. */
export const memberName = (id: string, nth: number): string => `${id}/${nth + 1}`

export function memberNames(id: string, group: Group): string {
  const last = plannedIn(group) - 1
  return last === 0 ? memberName(id, 0) : `${memberName(id, 0)} to ${memberName(id, last)}`
}

/** Number of members that were planned. */
export const plannedIn = ({ count, total = 0 }: Group): number => count ?? total

/** Number of members of the present run. */
export const sizeOf = (group: Group): number => (group.again === undefined ? plannedIn(group) : 1)

/** The chosen member of the present run. */
export const winnerIn = (group: Group | undefined): string | undefined => group?.winner

/** The member whose work and answer count as the group's own: that chosen in this run or in an earlier run. */
export const chosenIn = (group: Group | undefined): string | undefined => group?.winner ?? group?.again

/**
 * State of a member. `closed`: the member has ended and its work is archived; `began`: its model has begun to answer.
 */
export type MemberState = {
  readonly task: Task
  readonly closed: boolean
  readonly began: boolean
  /** Check result of the member, where the task's outcome does not hold it yet. */
  readonly check?: CheckResult
}

/** Next step of a group: members to start, the chosen member, or the end of its run. `until`: when to decide again. */
export type GroupStep = {
  readonly begin: readonly number[]
  readonly winner?: string
  readonly passed?: CheckResult
  readonly ending?: Ending
  readonly until?: number
}

/**
 * State of a group beside the states of its members. `coming`: members that are being created; `done`: members
 * that earlier runs completed.
 */
export type GroupState = {
  readonly coming: readonly number[]
  readonly done: readonly number[]
  readonly generation: number
  /** Free slots. */
  readonly freeSlots: number
  readonly now: number
}

/** True where OpenCode's end kept the member's last run from its beginning. */
const wasKeptFromBeginning = (task: Task): boolean => {
  const { reason } = task.outcome ?? {}
  return !isActive(task) && reason !== undefined && neverBegan(reason)
}

/** Whether the task is an unfinished group, which may be resumed whatever its status. */
export const isUnfinishedGroup = (task: Task): boolean =>
  !isActive(task) && task.group !== undefined && winnerIn(task.group) === undefined

/** True for a member that has done nothing: OpenCode's end kept its only run from its beginning. */
export const hasNeverBegun = (task: Task): boolean => task.run.generation === 0 && wasKeptFromBeginning(task)

/** True for a member that this run of the group has begun. Such a member is not begun again. */
export const isBegunIn = (task: Task, generation: number): boolean =>
  task.member?.run === generation && !wasKeptFromBeginning(task)

const MOST_REASON_CHARS = 160
export const STOPPED = "stopped"

/** End of a member that did not complete, in a few words. */
export function failureOf({ status, outcome }: Task): string {
  const { reason, receipt } = outcome ?? {}
  if (reason?.code === "parent-ended" || reason?.code === "cancelled") return STOPPED
  const { check } = receipt ?? {}
  if (reason?.code === "check" && check && !check.guarded) return `check did not pass (${oneLine(check.how)})`
  return oneLine(reason?.text ?? status, MOST_REASON_CHARS).replace(/\.$/, "")
}

/** Number of completed members whose changes are not merged, of a group in which no member is chosen. */
export const unmergedAmong = (members: readonly Task[]): number =>
  members.filter((member) => member.status === "completed" && isUnmerged(member)).length

/** Counts of a group's members; they always sum up to `total`. */
export type MemberCounts = {
  readonly valid: number
  readonly failed: number
  readonly running: number
  readonly notBegun: number
  readonly total: number
}

/** `own`: members of the present run. `done`: number of members that earlier runs completed. */
export function countMembers(total: number, own: readonly Task[], done: number): MemberCounts {
  const running = own.filter(isActive).length
  const valid = own.filter(({ status }) => status === "completed").length + done
  const rest = own.length + done
  return { valid, failed: rest - running - valid, running, notBegun: total - rest, total }
}

/** Example: `4 valid, 1 running of 6`; zero counts are left out. */
export function countsText(
  { valid, failed, running, notBegun, total }: MemberCounts,
  [completed, unsuccessful]: readonly [completed: string, failed: string],
): string {
  const all = [
    [valid, completed],
    [failed, unsuccessful],
    [running, "running"],
    [notBegun, "not begun"],
  ] as const
  const shown = all.filter(([many]) => many > 0).map(([many, what]) => `${formatInteger(many)} ${what}`)
  return `${shown.join(", ")} of ${formatInteger(total)}`
}
