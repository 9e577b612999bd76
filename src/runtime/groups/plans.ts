import { CallError } from "../../core/errors.ts"
import type { GroupKind } from "../../core/feature.ts"
import { chosenIn, type Group } from "../../core/group.ts"
import type { MemberState } from "../../core/members.ts"
import { hasBegun } from "../../core/run/progress.ts"
import type { Task } from "../../core/task.ts"
import type { TaskStore } from "../tasks/store.ts"

/**
 * Prompt of a group's later run. A former winner gets only `more`, because its session already holds the first prompt.
 */
export const laterPrompt = (group: Group, more: string): string =>
  chosenIn(group) !== undefined ? more : more === "" ? group.prompt : `${group.prompt}\n\n${more}`

/** True for a group without a winner: its unfinished members can be resumed without a new prompt. */
export const resumesWithoutPrompt = ({ group }: Task): boolean => group !== undefined && chosenIn(group) === undefined

/** Throws where a group without a winner has nothing to continue. */
export function refuseUnlessRemaining(task: Task, kind: GroupKind | undefined): void {
  const why = kind?.whyNothingRemains(task)
  if (why !== undefined) throw new CallError(why)
}

/** Current members of a group, oldest first. */
export const membersOf = (store: TaskStore, group: Task): readonly MemberState[] =>
  store
    .ofParent(group.sessionID)
    .filter(({ member }) => member?.of === group.id)
    .map((task) => {
      const run = store.run(task.id)
      const check = run?.check
      return {
        task,
        closed: !run || run.stage === "notifying",
        began: !run || hasBegun(run.observed),
        ...(check && { check }),
      }
    })
