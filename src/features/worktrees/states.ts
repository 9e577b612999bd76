import type { KeptStates, NextState } from "../../runtime/places/place.ts"
import { checkoutAround } from "./checkout.ts"
import { begin, startOf } from "./create.ts"
import { changesBetween } from "./diff.ts"
import type { WorktreePorts } from "./folders.ts"
import { readRef } from "./refs.ts"

/** States of a task in the local repository, for files on another machine. */
export const statesIn = (ports: WorktreePorts): KeptStates => ({
  async next(taskID, folder, bringIn): Promise<NextState> {
    const from = await checkoutAround(folder)
    const before = await readRef(from, "state", taskID)
    const start = await startOf(ports, from, { taskID, folder, timeLimit: 0, bringIn })
    const { commit, conflicts, unsolved = false } = start
    const changes = before === undefined ? [] : await changesBetween(from, before, commit)
    return {
      commit,
      conflicts,
      unsolved,
      files: changes.map(({ path }) => path),
      settle: () => begin(from, taskID, start),
    }
  },
})
