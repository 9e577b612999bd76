import { chosenIn } from "./group.ts"
import { neverBegan } from "./outcome.ts"
import type { CheckResult } from "./receipt.ts"
import { type Ending, isActive, type Task } from "./task.ts"

/** State of a member. `closed`: it has ended and its work is archived. `began`: its answer has begun. */
export type MemberState = {
  readonly task: Task
  readonly closed: boolean
  readonly began: boolean
  /** Check result, where the outcome does not hold it yet. */
  readonly check?: CheckResult
}

/** Next step of a group: members to start, its winner, or the end of its run. `until`: when to look again. */
export type GroupStep = {
  readonly begin: readonly number[]
  readonly winner?: string
  readonly passed?: CheckResult
  readonly ending?: Ending
  readonly until?: number
}

/** State of a group beside its members. `coming`: those being created; `done`: items that earlier runs settled. */
export type GroupState = {
  readonly coming: readonly number[]
  readonly done: readonly number[]
  readonly generation: number
  /** Free slots. */
  readonly room: number
  readonly now: number
}

/** Newest member for each number, in their order. */
export function newest(members: readonly MemberState[]): ReadonlyMap<number, MemberState> {
  const known = new Map(members.map((member) => [member.task.member?.nth ?? 0, member]))
  return new Map([...known].sort(([one], [other]) => one - other))
}

/** True for a member that was begun in this run of its group, and is not begun again. */
export const isBegunIn = (task: Task, generation: number): boolean => {
  const { reason } = task.outcome ?? {}
  return task.member?.run === generation && (isActive(task) || !reason || !neverBegan(reason))
}

/** Why a resume of an ended group without a winner would have nothing to continue. */
export function whyNothingRemains({ id, group, outcome }: Task): string | undefined {
  const { group: result, reason } = outcome ?? {}
  if (result?.kind === "each" && result.valid === result.total)
    return `All ${result.total} items of task ${id} are valid: there is nothing to go on with. superagents_output(task_id="${id}") shows the rows; for other items or another prompt, launch a new task.`
  if (result?.kind === "tries" && reason?.code === "check" && chosenIn(group) === undefined)
    return `All ${result.rows.length} tries of task ${id} have failed: there is nothing to go on with. Launch a new task with another prompt or other models.`
  return undefined
}

/** Unfinished members remain: a resume needs no prompt, and is allowed for every status. */
export const hasRemaining = (task: Task): boolean =>
  !isActive(task) &&
  task.group !== undefined &&
  chosenIn(task.group) === undefined &&
  whyNothingRemains(task) === undefined
