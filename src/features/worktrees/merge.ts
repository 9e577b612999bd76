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

/** What came of bringing a state into a checkout. */
export type Brought =
  | {
      readonly kind: "merged"
      readonly changes: readonly Change[]
      /** What was brought: the state, but for what stays out. */
      readonly brought: string
      /** Submodules, with what lies below them, and what names them. */
      readonly leftOut: readonly string[]
    }
  /** `advice`: what the user can do, where the states go together and something else is in the way of the files. */
  | {
      readonly kind: "conflict"
      readonly paths: readonly string[]
      readonly mine: string
      readonly advice?: string
    }

export type Merging = {
  readonly taskID: string
  /** The state that is brought, what it is counted from, an ancestor of it, and whose it is. */
  readonly theirs: string
  readonly base: string
  readonly whose: "the user's" | "the agent's"
  /** The checkout's folder that somebody works in, below its top. */
  readonly keep: string
  /** True: what a merge of before had begun is finished; its own commit stays under the `merge` ref. */
  readonly finishing: boolean
  readonly fault: Fault
}

/**
 * Three-way merges `theirs` into a checkout as it is, over `base`, and brings the result into its files, neither
 * committed nor staged. Worked out before anything is touched; a conflict touches nothing. From the moment at which
 * something is touched until all of it is done, a commit under the task's `merge` ref holds both states and the result.
 */
export async function mergeInto(checkout: Checkout, merging: Merging): Promise<Brought> {
  const { taskID, base, fault, keep, finishing } = merging
  const stage = stageOf(checkout, taskID)
  // What a merge that was cut off has left there stands in the commits, too.
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

/** The checkout that a merge was going on in stands in the message of its commit. */
const JOURNAL = "superagents: merge into "

const journalOf = (checkout: Checkout, tree: string, mine: string, theirs: string): Promise<string> =>
  gitLine(
    ["commit-tree", tree, "-p", mine, "-p", theirs, "-m", `${JOURNAL}${JSON.stringify(checkout.top)}`],
    at(checkout),
  )

/** A merge that was cut off: the states it began with, and the one that the checkout was to become. */
export type CutOff = {
  readonly journal: string
  readonly mine: string
  readonly theirs: string
  readonly result: string
}

/** The task's merge that was cut off in this checkout, if there is one. */
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
