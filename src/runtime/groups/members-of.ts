import type { MemberState } from "../../core/members.ts"
import { hasBegun } from "../../core/run/progress.ts"
import type { Task } from "../../core/task.ts"
import type { TaskStore } from "../tasks/store.ts"

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
