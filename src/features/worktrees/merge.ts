import { rm } from "node:fs/promises"
import { join } from "node:path"
import type { Fault } from "../../runtime/places/fault.ts"
import { adviceOn } from "./advice.ts"
import { applyChanges } from "./apply.ts"
import { at, type Checkout, treeOf } from "./checkout.ts"
import { type Change, changesBetween, divide } from "./diff.ts"
import { HalfDone, InTheWay } from "./exchange.ts"
import { gitLine } from "./git.ts"
import { readRef, writeRefs } from "./refs.ts"
import { commitOf, snapshot } from "./snapshot.ts"
import { withoutSubmodules } from "./submodules.ts"
import { threeWay } from "./three-way.ts"

/** Result of merging a state into a checkout. */
export type Brought =
  | {
      readonly kind: "merged"
      readonly changes: readonly Change[]
      /** Merged state, without what is left out. */
      readonly brought: string
      /** Submodules, with entries below them and files that name them. */
      readonly leftOut: readonly string[]
    }
  /** `advice`: for the user, where the states fit but other files block them. */
  | {
      readonly kind: "conflict"
      readonly paths: readonly string[]
      readonly mine: string
      readonly advice?: string
    }

export type Merging = {
  readonly taskID: string
  /** State to merge, its base (an ancestor), and its task. */
  readonly theirs: string
  readonly base: string
  readonly whose: "the user's" | "the agent's"
  /** Working folder of the checkout, below its top. */
  readonly keep: string
  /** True: completes an earlier merge, whose commit stays under the `merge` ref. */
  readonly finishing: boolean
  readonly fault: Fault
}

/**
 * Merges `theirs` into a checkout's files, neither committed nor staged. The result is computed first, so that a
 * conflict changes nothing; while files are written, a commit under the task's `merge` ref holds both states and the
 * result.
 */
export async function mergeInto(checkout: Checkout, merging: Merging): Promise<Brought> {
  const { taskID, base, fault, keep, finishing } = merging
  const stage = stageOf(checkout, taskID)
  // The commits have everything that an interrupted merge left there.
  await rm(stage, { recursive: true, force: true })
  const { commit: mine } = await snapshot(checkout, [base], "superagents: before a merge")
  fault("merge: mine kept")
  const { commit: brought, leftOut } = await withoutSubmodules(checkout, base, merging.theirs)
  const sides = merging.whose === "the user's" ? { users: brought, agents: mine } : { users: mine, agents: brought }
  const merged = await threeWay(checkout, sides)
  if (merged.conflicts.length > 0)
    return { kind: "conflict", paths: [...new Set(merged.conflicts.map(({ name }) => name))], mine }
  const { work: changes } = await divide(checkout, await changesBetween(checkout, mine, merged.tree))
  const unreadable = changes.filter(({ path }) => path.includes("\uFFFD"))
  if (unreadable.length > 0) return { kind: "conflict", paths: unreadable.map(({ path }) => path), mine }
  if (changes.length === 0) return { kind: "merged", changes, brought, leftOut }
  if (!finishing) await writeRefs(checkout, taskID, { merge: await journalOf(checkout, merged.tree, mine, brought) })
  fault("merge: begun")
  try {
    await applyChanges(checkout, changes, { tree: merged.tree, stage, keep, fault })
  } catch (error) {
    const putBack = !(error instanceof HalfDone)
    if (putBack && !finishing) await writeRefs(checkout, taskID, { merge: undefined })
    if (error instanceof InTheWay)
      return { kind: "conflict", paths: error.paths, mine, advice: await adviceOn(checkout, error.paths) }
    throw error
  }
  fault("merge: applied")
  return { kind: "merged", changes, brought, leftOut }
}

export const stageOf = (checkout: Checkout, taskID: string): string => join(checkout.gitDir, "superagents", taskID)

/** The commit's message names the checkout of the merge. */
const JOURNAL = "superagents: merge into "

const journalOf = (checkout: Checkout, tree: string, mine: string, theirs: string): Promise<string> =>
  gitLine(
    ["commit-tree", tree, "-p", mine, "-p", theirs, "-m", `${JOURNAL}${JSON.stringify(checkout.top)}`],
    at(checkout),
  )

/** An interrupted merge: both states, and the intended result. */
export type CutOff = {
  readonly journal: string
  readonly mine: string
  readonly theirs: string
  readonly result: string
}

/** The task's interrupted merge in this checkout, if any. */
export async function cutOff(checkout: Checkout, taskID: string): Promise<CutOff | undefined> {
  const journal = await readRef(checkout, "merge", taskID)
  if (!journal) return undefined
  const message = await gitLine(["show", "--no-patch", "--format=%B", journal], at(checkout))
  if (message.trim() !== `${JOURNAL}${JSON.stringify(checkout.top)}`) return undefined
  const mine = await gitLine(["rev-parse", `${journal}^1`], at(checkout))
  const theirs = await gitLine(["rev-parse", `${journal}^2`], at(checkout))
  const result = await commitOf(checkout, await treeOf(checkout, journal), [mine], "superagents: merged")
  return { journal, mine, theirs, result }
}
