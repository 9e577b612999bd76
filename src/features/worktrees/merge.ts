import { constants } from "node:fs"
import { access, lstat, rm } from "node:fs/promises"
import { join } from "node:path"
import { CallError, listed, messageOf } from "../../core/errors.ts"
import { succeeds } from "../../lib/promises.ts"
import type { MergeResult, PlacePorts, SweptLeftover } from "../../runtime/places/place.ts"
import { applyChanges, PartialExchange, PathBlocked } from "./apply.ts"
import { unsolvedIn } from "./conflicts.ts"
import { type Fault, gitLine, gitList } from "./git.ts"
import { changesBetween, splitChanges } from "./objects.ts"
import {
  betweenMerges,
  type Checkout,
  commitTree,
  gitOptions,
  ignoredOf,
  isAncestor,
  listTaskRefs,
  lockOf,
  messageIn,
  obstacleAbove,
  type RefKind,
  readRef,
  requireCheckout,
  treeOf,
  underWay,
  type WorkingCheckout,
  withLock,
  writeRefs,
} from "./repository.ts"
import { commitOf, type Snapshot, snapshot, stampCommit } from "./snapshot.ts"
import { threeWay, withoutSubmodules } from "./three-way.ts"

export type MergePorts = Pick<PlacePorts, "processes" | "finished"> & { readonly fault: Fault }

/**
 * Result of merging a state into a checkout. `brought`: the state that was merged, without the changes that a merge
 * leaves out. A merge with conflicts has changed no file.
 */
type MergeOutcome =
  | { readonly result: Exclude<MergeResult, { kind: "conflict" }>; readonly brought: string }
  | { readonly result: Extract<MergeResult, { kind: "conflict" }>; readonly mine: string; readonly brought?: undefined }

type Merging = {
  readonly taskID: string
  /** State to merge, its base (an ancestor), and the task it belongs to. */
  readonly theirs: string
  readonly base: string
  readonly whose: "the user's" | "the agent's"
  /** Working folder of the checkout, relative to its top. This folder stays even if it becomes empty. */
  readonly keep: string
  /** True if the task's `merge` ref must stay as it is, for example because an earlier merge is completed. */
  readonly finishing: boolean
  readonly fault: Fault
}

/**
 * Merges `theirs` into a checkout's files, neither committed nor staged. The result is computed first, so that a
 * conflict changes nothing; while files are written, a commit under the task's `merge` ref holds both states and the
 * result.
 */
async function mergeInto(checkout: Checkout, merging: Merging): Promise<MergeOutcome> {
  const { taskID, base, fault, keep, finishing } = merging
  const stage = stageOf(checkout, taskID)
  // The folder of an interrupted merge may be deleted: the commits contain all its files.
  await rm(stage, { recursive: true, force: true })
  const { commit: mine } = await snapshot(checkout, [base], "superagents: before a merge")
  fault("merge: mine kept")
  const { commit: brought, leftOut } = await withoutSubmodules(checkout, base, merging.theirs)
  const sides = merging.whose === "the user's" ? { users: brought, agents: mine } : { users: mine, agents: brought }
  const merged = await threeWay(checkout, sides)
  const blocked = (files: readonly string[], advice?: string): MergeOutcome => ({
    result: { kind: "conflict", files, ...(advice !== undefined && { advice }) },
    mine,
  })
  if (merged.conflicts.length > 0) return blocked([...new Set(merged.conflicts.map(({ name }) => name))])
  const { work: changes } = await splitChanges(checkout, await changesBetween(checkout, mine, merged.tree))
  const unreadable = changes.filter(({ path }) => path.includes("\uFFFD"))
  if (unreadable.length > 0) return blocked(unreadable.map(({ path }) => path))
  if (changes.length === 0)
    return { result: { kind: "nothing", ...(leftOut.length > 0 && { submodules: leftOut }) }, brought }
  if (!finishing) await writeRefs(checkout, taskID, { merge: await journalOf(checkout, merged.tree, mine, brought) })
  fault("merge: begun")
  try {
    await applyChanges(checkout, changes, { tree: merged.tree, stage, keep, fault })
  } catch (error) {
    const putBack = !(error instanceof PartialExchange)
    if (putBack && !finishing) await writeRefs(checkout, taskID, { merge: undefined })
    if (error instanceof PathBlocked) return blocked(error.paths, await adviceOn(checkout, error.paths))
    throw error
  }
  fault("merge: applied")
  return { result: { kind: "merged", files: changes.map(({ path }) => path), submodules: leftOut }, brought }
}

export const stageOf = (checkout: Checkout, taskID: string): string => join(checkout.gitDir, "superagents", taskID)

/** Beginning of the message of a commit under the `merge` ref. The checkout's path follows. */
const JOURNAL = "superagents: merge into "

const journalOf = (checkout: Checkout, tree: string, mine: string, theirs: string): Promise<string> =>
  commitTree(gitOptions(checkout), tree, [mine, theirs], `${JOURNAL}${JSON.stringify(checkout.top)}`)

/** Commit of the task's ref if it is that of a merge into this checkout. */
async function journalAt(checkout: Checkout, kind: RefKind, taskID: string): Promise<string | undefined> {
  const commit = await readRef(checkout, kind, taskID)
  if (!commit) return undefined
  const message = await messageIn(gitOptions(checkout), commit)
  return message.trim() === `${JOURNAL}${JSON.stringify(checkout.top)}` ? commit : undefined
}

/** An interrupted merge: both states, and the intended result. */
type InterruptedMerge = {
  readonly journal: string
  readonly mine: string
  readonly theirs: string
  readonly result: string
}

/** The task's interrupted merge in this checkout, if any. */
async function findInterruptedMerge(checkout: Checkout, taskID: string): Promise<InterruptedMerge | undefined> {
  const journal = await journalAt(checkout, "merge", taskID)
  if (!journal) return undefined
  const mine = await gitLine(["rev-parse", `${journal}^1`], gitOptions(checkout))
  const theirs = await gitLine(["rev-parse", `${journal}^2`], gitOptions(checkout))
  const result = await commitOf(checkout, await treeOf(checkout, journal), [mine], "superagents: merged")
  return { journal, mine, theirs, result }
}

/** Most names of one kind in a text. */
const MOST_NAMES = 10

type Hindrance = "sparse" | "hidden" | "unreadable" | "ignored" | "untracked" | "written"

const TEXTS: Record<Hindrance, (names: string) => string> = {
  sparse: (names) =>
    `${names} lies outside of your sparse checkout, where a merge writes nothing: bring it in with git sparse-checkout add, then merge again.`,
  hidden: (names) =>
    `Git is told not to look at ${names}, so what you have there is in no merge: take that back with git update-index --no-skip-worktree --no-assume-unchanged, then merge again.`,
  unreadable: (names) => `${names} may not be read: let it be read, or move it away, then merge again.`,
  ignored: (names) =>
    `${names} is there, and git ignores it or what it holds, so it is never overwritten: move it away, then merge again.`,
  untracked: (names) => `${names} is there, and git does not track it: move it away, then merge again.`,
  written: (names) => `${names} was written in the same moment: merge again.`,
}

/**
 * Text on why files of the user block a merge, and what the user can do. An agent cannot help in the task's worktree,
 * where the states fit.
 */
async function adviceOn(original: Checkout, paths: readonly string[]): Promise<string> {
  const blocking = await Promise.all(paths.map(async (path) => (await obstacleAbove(original.top, path)) ?? path))
  const [{ flags, tracked }, names] = await Promise.all([
    trackedOf(original, paths),
    ignoredOf(gitOptions(original), blocking),
  ])
  const ignored = new Set(names)
  const found = new Map<Hindrance, Set<string>>()
  for (const [nth, path] of paths.entries()) {
    const name = blocking[nth] ?? path
    const kind = flags.has(path) ? await flagged(original, path) : await hindrance(original, name, { ignored, tracked })
    found.set(kind, (found.get(kind) ?? new Set()).add(name))
  }
  return [...found].map(([kind, names]) => TEXTS[kind](listed([...names], MOST_NAMES))).join(" ")
}

const stat = (original: Checkout, path: string) => lstat(join(original.top, path)).catch(() => undefined)

const flagged = async (original: Checkout, path: string): Promise<Hindrance> =>
  (await stat(original, path)) ? "hidden" : "sparse"

type Known = { readonly ignored: ReadonlySet<string>; readonly tracked: ReadonlySet<string> }

async function hindrance(original: Checkout, name: string, { ignored, tracked }: Known): Promise<Hindrance> {
  const found = await stat(original, name)
  // A folder blocks a merge because of its ignored files. Other files in the folder would be removed.
  if (found?.isDirectory() || ignored.has(name)) return "ignored"
  const isReadable = await succeeds(access(join(original.top, name), constants.R_OK))
  if (found?.isFile() && !isReadable) return "unreadable"
  return found && !tracked.has(name) ? "untracked" : "written"
}

/**
 * Of these paths, those that git tracks, and those that git was told not to check. Git marks the latter with `S`
 * (skip-worktree) or a lower-case letter (assume-unchanged).
 */
async function trackedOf(original: Checkout, paths: readonly string[]) {
  const names = new Set(paths)
  const all = await gitList(["ls-files", "-v", "-z"], { ...gitOptions(original), timeLimit: 300_000 })
  const entries = all.filter((entry) => names.has(entry.slice(2)))
  const named = (some: readonly string[]): ReadonlySet<string> => new Set(some.map((entry) => entry.slice(2)))
  return { tracked: named(entries), flags: named(entries.filter((entry) => /^[Sa-z]/.test(entry))) }
}

/** Merges a task's archived work into its parent's files. Interrupted merges into this checkout are completed first. */
export async function mergeIntoParent(ports: MergePorts, taskID: string, folder: string): Promise<MergeResult> {
  const checkout = await requireCheckout(folder)
  const keep = checkout.prefix
  return withLock(lockOf(ports, checkout, "merge"), async () => {
    const finished: SweptLeftover[] = []
    for (const id of await mergingTasks(checkout)) finished.push(...(await finish(ports, checkout, id)))
    const others = finished.filter((each) => each.taskID !== taskID)
    if (others.length > 0) ports.finished?.(others)
    await refuseWhileBusy(checkout)
    const [theirs, base] = await Promise.all([readRef(checkout, "state", taskID), readRef(checkout, "base", taskID)])
    if (!theirs || !base)
      throw new CallError(
        `There is nothing to merge: no work of task ${taskID} is kept in this repository. Launch a new task if it is needed.`,
      )
    const own = finished.find((each) => each.taskID === taskID && each.merge?.kind === "merged")?.merge
    if (theirs === base) return own ?? { kind: "nothing" }
    const unsolved = await unsolvedIn(checkout, taskID, theirs)
    if (unsolved.length > 0) return { kind: "conflict", files: unsolved }
    const merging = { taskID, theirs, base, keep, whose: "the agent's", finishing: false, fault: ports.fault } as const
    const outcome = await mergeInto(checkout, merging)
    if (outcome.brought === undefined) {
      // The ref says until the conflict is solved that an earlier merge was cut off.
      if (await journalAt(checkout, "conflict", taskID)) return { ...outcome.result, cutOff: true }
      await writeRefs(checkout, taskID, { conflict: outcome.mine })
      return outcome.result
    }
    await writeRefs(checkout, taskID, { base: outcome.brought, merge: undefined, conflict: undefined })
    ports.fault("merge: done")
    return (outcome.result.kind === "nothing" && own) || outcome.result
  })
}

/** Throws a `CallError` while an operation of git changes the checkout's files. */
async function refuseWhileBusy(checkout: Checkout): Promise<void> {
  const busy = await underWay(checkout)
  if (busy) throw new CallError(`the checkout is in the middle of ${busy}. Finish or abort it, then merge again.`)
}

/** Whether the task's archived work was merged into its parent's files, or a crash cut its merge off. */
export async function isMergeBegun(taskID: string, folder: string): Promise<boolean> {
  const checkout = await requireCheckout(folder)
  const state = await readRef(checkout, "state", taskID)
  // A merge moves the base to the state, or to a commit on it; a journal has the state among its ancestors.
  const later = [
    readRef(checkout, "base", taskID),
    ...(["merge", "conflict"] as const).map((kind) => journalAt(checkout, kind, taskID)),
  ]
  for (const commit of await Promise.all(later))
    if (state && commit && (await isAncestor(checkout, state, commit))) return true
  return false
}

/**
 * Merges the parent's current state into a task's worktree, so that a check there sees what a merge would give. Returns
 * "nothing" if the task has that state already.
 */
export async function mergeFromParent(
  ports: MergePorts,
  taskID: string,
  checkout: Checkout,
  worktree: Checkout | undefined,
): Promise<MergeResult> {
  const base = await readRef(checkout, "base", taskID)
  if (!worktree || !base) throw new CallError(`Task ${taskID} has no worktree.`)
  await refuseWhileBusy(checkout)
  const { commit: parents, unreadable } = await stateToMerge(ports, checkout, base)
  if (parents === base) return { kind: "nothing" }
  const merging = { taskID, theirs: parents, base, keep: "", finishing: true, fault: () => {} }
  const { result, brought } = await mergeInto(worktree, { ...merging, whose: "the user's" })
  // The advice is for the user's folder.
  if (brought === undefined) return { kind: "conflict", files: result.files }
  await writeRefs(checkout, taskID, { base: brought, start: await stampCommit(checkout, brought, unreadable) })
  return result
}

/** Commits the current state of a checkout, for a merge with `base` as common ancestor. */
export function stateToMerge(ports: MergePorts, original: Checkout, base: string): Promise<Snapshot> {
  const read = () => snapshot(original, [base], "superagents: the parent's state, to be merged with")
  return betweenMerges(ports, original, read)
}

/** Completes merges into this checkout that a crash interrupted. One that fails does not hold back the others. */
export async function finishMerges(ports: MergePorts, checkout: WorkingCheckout): Promise<readonly SweptLeftover[]> {
  if ((await mergingTasks(checkout)).length > 0)
    return withLock(lockOf(ports, checkout, "merge"), async () => {
      const swept: SweptLeftover[] = []
      for (const taskID of await mergingTasks(checkout))
        try {
          swept.push(...(await finish(ports, checkout, taskID)))
        } catch (error) {
          swept.push({ taskID, what: `its merge was cut off, and could not be finished: ${messageOf(error)}` })
        }
      return swept
    })
  // Asking whether the lock is taken removes locks of dead processes.
  await lockOf(ports, checkout, "merge").isTaken()
  return []
}

/** Tasks whose work is merged. A crash may have kept their records from saying so. */
export const mergedTasks = async (checkout: Checkout): Promise<readonly SweptLeftover[]> =>
  (await listTaskRefs(checkout)).flatMap(({ taskID, trees: { merge, state, base, start } }) =>
    merge === undefined && state !== undefined && state === base && state !== start
      ? [{ taskID, what: "its work is merged", merge: { kind: "nothing" } }]
      : [],
  )

/** Tasks whose merge, into this or another checkout, is under way or was interrupted. */
const mergingTasks = async (checkout: Checkout): Promise<readonly string[]> =>
  (await listTaskRefs(checkout)).filter(({ trees }) => trees.merge !== undefined).map(({ taskID }) => taskID)

/**
 * Completes a task's interrupted merge into this checkout, if any, by merging its result again. Changes that it had made
 * are equal on both sides, missing ones are added, and later changes of the user stay.
 */
async function finish(ports: MergePorts, original: WorkingCheckout, taskID: string): Promise<readonly SweptLeftover[]> {
  const cut = await findInterruptedMerge(original, taskID)
  if (!cut) return []
  const { journal, mine, theirs, result } = cut
  const merging = { taskID, theirs: result, base: mine, keep: original.prefix, finishing: true, fault: ports.fault }
  const { result: merged } = await mergeInto(original, { ...merging, whose: "the agent's" })
  if (merged.kind === "conflict") {
    await writeRefs(original, taskID, { conflict: journal, merge: undefined })
    const what = `its merge was cut off, and these files were changed since: ${listed(merged.files)}; merge it again`
    return [{ taskID, what, merge: { ...merged, cutOff: true } }]
  }
  await writeRefs(original, taskID, { base: theirs, merge: undefined, conflict: undefined })
  const state = await readRef(original, "state", taskID)
  const { leftOut } = state ? await withoutSubmodules(original, theirs, state) : { leftOut: [] }
  const files = (await changesBetween(original, mine, result)).map(({ path }) => path)
  const merge = { kind: "merged", files, submodules: leftOut } as const
  return [{ taskID, what: "its merge, which was cut off, was finished", merge }]
}
