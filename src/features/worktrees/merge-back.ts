import { CallError } from "../../core/errors.ts"
import type { MergeResult, SweptLeftover } from "../../runtime/places/place.ts"
import { type Checkout, requireCheckout, underWay, type WorkingCheckout } from "./checkout.ts"
import { unsolvedIn } from "./conflicts.ts"
import { changesBetween } from "./diff.ts"
import { type WorktreePorts, worktreeFolder } from "./folders.ts"
import { betweenMerges, mergeLock, withLock } from "./locks.ts"
import { readMarker } from "./marker.ts"
import { findInterruptedMerge, type InterruptedMerge, type MergeOutcome, mergeInto } from "./merge.ts"
import { listTaskRefs, readRef, writeRefs } from "./refs.ts"
import { type Snapshot, snapshot, stampCommit } from "./snapshot.ts"
import { withoutSubmodules } from "./submodules.ts"

/** Merges a task's archived work into its parent's files, after completing an interrupted merge. */
export async function mergeIntoParent(ports: WorktreePorts, taskID: string, folder: string): Promise<MergeResult> {
  const home = await requireCheckout(folder)
  const keep = home.prefix
  return withLock(mergeLock(ports, home), async () => {
    await finishAll(ports, home, keep)
    const busy = await underWay(home)
    if (busy) throw new CallError(`the checkout is in the middle of ${busy}. Finish or abort it, then merge again.`)
    const [theirs, base] = await Promise.all([readRef(home, "state", taskID), readRef(home, "base", taskID)])
    if (!theirs || !base)
      throw new CallError(`There is nothing to merge: no work of task ${taskID} is kept in this repository.`)
    if (theirs === base) return { kind: "nothing" }
    const unsolved = await unsolvedIn(home, taskID, theirs)
    if (unsolved.length > 0) return { kind: "conflict", files: unsolved }
    const merging = { taskID, theirs, base, keep, whose: "the agent's", finishing: false, fault: ports.fault } as const
    const brought = await mergeInto(home, merging)
    if (brought.kind === "conflict") {
      await writeRefs(home, taskID, { conflict: brought.mine })
      return conflictOf(brought)
    }
    await writeRefs(home, taskID, { base: brought.brought, merge: undefined, conflict: undefined })
    ports.fault("merge: done")
    return resultOf(brought)
  })
}

const conflictOf = ({ paths, advice }: MergeOutcome & { kind: "conflict" }): MergeResult => ({
  kind: "conflict",
  files: paths,
  ...(advice !== undefined && { advice }),
})

function resultOf({ changes, leftOut }: MergeOutcome & { kind: "merged" }): MergeResult {
  const files = changes.map(({ path }) => path)
  if (files.length > 0) return { kind: "merged", files, submodules: leftOut }
  return leftOut.length > 0 ? { kind: "nothing", submodules: leftOut } : { kind: "nothing" }
}

/**
 * Merges the parent's current state into a task's worktree, so that a check there sees the result of a merge. "nothing"
 * where the task has that state already.
 */
export async function mergeFromParent(ports: WorktreePorts, taskID: string, folder: string): Promise<MergeResult> {
  const home = await requireCheckout(folder)
  const worktree = readMarker(await worktreeFolder(ports, home, taskID))?.worktree
  const base = await readRef(home, "base", taskID)
  if (!worktree || !base) throw new CallError(`Task ${taskID} has no worktree.`)
  const { commit: parents, unreadable } = await stateToMerge(ports, home, base)
  if (parents === base) return { kind: "nothing" }
  const merging = { taskID, theirs: parents, base, keep: "", finishing: true, fault: () => {} }
  const brought = await mergeInto(worktree, { ...merging, whose: "the user's" })
  if (brought.kind === "conflict") return { kind: "conflict", files: brought.paths }
  const start = await stampCommit(home, brought.brought, unreadable)
  await writeRefs(home, taskID, { base: brought.brought, start })
  return resultOf(brought)
}

/** Current state of a checkout, to be merged over `base`. */
export function stateToMerge(ports: WorktreePorts, home: Checkout, base: string): Promise<Snapshot> {
  const read = () => snapshot(home, [base], "superagents: the parent's state, to be merged with")
  return betweenMerges(ports, home, read)
}

/** Completes merges into this checkout that a crash interrupted. */
export async function finishMerges(ports: WorktreePorts, home: WorkingCheckout): Promise<readonly SweptLeftover[]> {
  const cut = (await listTaskRefs(home)).some(({ trees }) => trees.merge !== undefined)
  if (cut) return withLock(mergeLock(ports, home), () => finishAll(ports, home, home.prefix))
  // Looking at a lock removes those of dead processes.
  await mergeLock(ports, home).isTaken()
  return []
}

async function finishAll(ports: WorktreePorts, home: Checkout, keep: string): Promise<readonly SweptLeftover[]> {
  const finished: SweptLeftover[] = []
  for (const { taskID, trees } of await listTaskRefs(home)) {
    if (trees.merge === undefined) continue
    const cut = await findInterruptedMerge(home, taskID)
    if (cut) finished.push(await finish(ports, home, { taskID, keep, cut }))
  }
  return finished
}

/** Merges again: applied changes exist on both sides, missing ones are added, later ones stay. */
async function finish(
  ports: WorktreePorts,
  home: Checkout,
  { taskID, keep, cut }: { readonly taskID: string; readonly keep: string; readonly cut: InterruptedMerge },
): Promise<SweptLeftover> {
  const { journal, mine, theirs, result } = cut
  const merging = { taskID, theirs: result, base: mine, keep, finishing: true, fault: ports.fault }
  const brought = await mergeInto(home, { ...merging, whose: "the agent's" })
  if (brought.kind === "conflict") {
    await writeRefs(home, taskID, { conflict: journal, merge: undefined })
    const what = `its merge was cut off, and these files were changed since: ${brought.paths.join(", ")}; merge it again`
    return { taskID, what, merge: conflictOf(brought) }
  }
  await writeRefs(home, taskID, { base: theirs, merge: undefined, conflict: undefined })
  const state = await readRef(home, "state", taskID)
  const { leftOut } = state ? await withoutSubmodules(home, theirs, state) : { leftOut: [] }
  const files = (await changesBetween(home, mine, result)).map(({ path }) => path)
  return {
    taskID,
    what: "its merge, which was cut off, was finished",
    merge: { kind: "merged", files, submodules: leftOut },
  }
}
