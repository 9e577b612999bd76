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
  const checkout = await requireCheckout(folder)
  const keep = checkout.prefix
  return withLock(mergeLock(ports, checkout), async () => {
    await finishAll(ports, checkout, keep)
    const busy = await underWay(checkout)
    if (busy) throw new CallError(`the checkout is in the middle of ${busy}. Finish or abort it, then merge again.`)
    const [theirs, base] = await Promise.all([readRef(checkout, "state", taskID), readRef(checkout, "base", taskID)])
    if (!theirs || !base)
      throw new CallError(`There is nothing to merge: no work of task ${taskID} is kept in this repository.`)
    if (theirs === base) return { kind: "nothing" }
    const unsolved = await unsolvedIn(checkout, taskID, theirs)
    if (unsolved.length > 0) return { kind: "conflict", files: unsolved }
    const merging = { taskID, theirs, base, keep, whose: "the agent's", finishing: false, fault: ports.fault } as const
    const outcome = await mergeInto(checkout, merging)
    if (outcome.kind === "conflict") {
      await writeRefs(checkout, taskID, { conflict: outcome.mine })
      return conflictOf(outcome)
    }
    await writeRefs(checkout, taskID, { base: outcome.brought, merge: undefined, conflict: undefined })
    ports.fault("merge: done")
    return resultOf(outcome)
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
  const checkout = await requireCheckout(folder)
  const worktree = readMarker(await worktreeFolder(ports, checkout, taskID))?.worktree
  const base = await readRef(checkout, "base", taskID)
  if (!worktree || !base) throw new CallError(`Task ${taskID} has no worktree.`)
  const { commit: parents, unreadable } = await stateToMerge(ports, checkout, base)
  if (parents === base) return { kind: "nothing" }
  const merging = { taskID, theirs: parents, base, keep: "", finishing: true, fault: () => {} }
  const outcome = await mergeInto(worktree, { ...merging, whose: "the user's" })
  if (outcome.kind === "conflict") return { kind: "conflict", files: outcome.paths }
  const start = await stampCommit(checkout, outcome.brought, unreadable)
  await writeRefs(checkout, taskID, { base: outcome.brought, start })
  return resultOf(outcome)
}

/** Current state of a checkout, to be merged over `base`. */
export function stateToMerge(ports: WorktreePorts, original: Checkout, base: string): Promise<Snapshot> {
  const read = () => snapshot(original, [base], "superagents: the parent's state, to be merged with")
  return betweenMerges(ports, original, read)
}

/** Completes merges into this checkout that a crash interrupted. */
export async function finishMerges(ports: WorktreePorts, checkout: WorkingCheckout): Promise<readonly SweptLeftover[]> {
  const cut = (await listTaskRefs(checkout)).some(({ trees }) => trees.merge !== undefined)
  if (cut) return withLock(mergeLock(ports, checkout), () => finishAll(ports, checkout, checkout.prefix))
  // Looking at a lock removes those of dead processes.
  await mergeLock(ports, checkout).isTaken()
  return []
}

async function finishAll(ports: WorktreePorts, original: Checkout, keep: string): Promise<readonly SweptLeftover[]> {
  const finished: SweptLeftover[] = []
  for (const { taskID, trees } of await listTaskRefs(original)) {
    if (trees.merge === undefined) continue
    const cut = await findInterruptedMerge(original, taskID)
    if (cut) finished.push(await finish(ports, original, { taskID, keep, cut }))
  }
  return finished
}

/** Merges again: applied changes exist on both sides, missing ones are added, later ones stay. */
async function finish(
  ports: WorktreePorts,
  original: Checkout,
  { taskID, keep, cut }: { readonly taskID: string; readonly keep: string; readonly cut: InterruptedMerge },
): Promise<SweptLeftover> {
  const { journal, mine, theirs, result } = cut
  const merging = { taskID, theirs: result, base: mine, keep, finishing: true, fault: ports.fault }
  const outcome = await mergeInto(original, { ...merging, whose: "the agent's" })
  if (outcome.kind === "conflict") {
    await writeRefs(original, taskID, { conflict: journal, merge: undefined })
    const what = `its merge was cut off, and these files were changed since: ${outcome.paths.join(", ")}; merge it again`
    return { taskID, what, merge: conflictOf(outcome) }
  }
  await writeRefs(original, taskID, { base: theirs, merge: undefined, conflict: undefined })
  const state = await readRef(original, "state", taskID)
  const { leftOut } = state ? await withoutSubmodules(original, theirs, state) : { leftOut: [] }
  const files = (await changesBetween(original, mine, result)).map(({ path }) => path)
  return {
    taskID,
    what: "its merge, which was cut off, was finished",
    merge: { kind: "merged", files, submodules: leftOut },
  }
}
