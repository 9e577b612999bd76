import { rm } from "node:fs/promises"
import { join } from "node:path"
import type { Fault } from "../fault.ts"
import { applyChanges } from "./apply.ts"
import { at, type Checkout, treeOf } from "./checkout.ts"
import { type Change, changesBetween, divide, isSubmodule } from "./diff.ts"
import { HalfDone, InTheWay } from "./exchange.ts"
import { git, gitLine, gitList } from "./git.ts"
import { readRef, writeRefs } from "./refs.ts"
import { commitOf, snapshot, withIndex } from "./snapshot.ts"

/** What came of bringing a state into a checkout. */
export type Brought =
  | { readonly kind: "merged"; readonly changes: readonly Change[]; readonly submodules: readonly string[] }
  | { readonly kind: "conflict"; readonly paths: readonly string[]; readonly mine: string }

export type Merging = {
  readonly taskID: string
  /** The state that is brought, and what it is counted from: an ancestor of it. */
  readonly theirs: string
  readonly base: string
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
  const { theirs, submodules } = await withoutSubmodules(checkout, base, merging.theirs)
  const merged = await mergeTrees(checkout, mine, theirs)
  if (merged.kind === "conflict") return { ...merged, mine }
  const { work: changes } = await divide(checkout, await changesBetween(checkout, mine, merged.tree))
  const unreadable = changes.filter(({ path }) => path.includes("\uFFFD"))
  if (unreadable.length > 0) return { kind: "conflict", paths: unreadable.map(({ path }) => path), mine }
  if (changes.length === 0) return { kind: "merged", changes, submodules }
  if (!finishing)
    await writeRefs(checkout, taskID, { merge: await journalOf(checkout, merged.tree, mine, merging.theirs) })
  fault("merge: begun")
  try {
    await applyChanges(checkout, changes, { tree: merged.tree, stage, keep, fault })
  } catch (error) {
    const putBack = !(error instanceof HalfDone)
    if (putBack && !finishing) await writeRefs(checkout, taskID, { merge: undefined })
    if (error instanceof InTheWay) return { kind: "conflict", paths: error.paths, mine }
    throw error
  }
  fault("merge: applied")
  return { kind: "merged", changes, submodules }
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

type MergedTree =
  | { readonly kind: "clean"; readonly tree: string }
  | { readonly kind: "conflict"; readonly tree: string; readonly paths: readonly string[] }

/** The tree that two commits make; with conflicts, one with the marks in its files. Touches nothing. */
export async function mergeTrees(checkout: Checkout, mine: string, theirs: string): Promise<MergedTree> {
  const args = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", mine, theirs]
  const { code, out } = await git(args, { ...at(checkout), accept: [1], timeLimit: 300_000 })
  const [tree = "", ...paths] = out.split("\0").filter((item) => item !== "")
  return code === 0 ? { kind: "clean", tree } : { kind: "conflict", tree, paths: [...new Set(paths)] }
}

/**
 * A conflict's tree with `mine` of each file without marks that could be known again: one in which git can make none,
 * such as a binary, where it has left `theirs`; and one that goes through a program of the user's, which stores the marks
 * as something else. Left as they are, those would come home in the place of the user's.
 */
export async function withMine(
  checkout: Checkout,
  { tree, paths }: { readonly tree: string; readonly paths: readonly string[] },
  theirs: string,
  mine: string,
): Promise<string> {
  const marked = new Set((await changesBetween(checkout, theirs, tree)).map(({ path }) => path))
  for (const path of await filtered(checkout, paths)) marked.delete(path)
  const sides = await changesBetween(checkout, theirs, mine)
  const back = sides.filter((change) => change.from && paths.includes(change.path) && !marked.has(change.path))
  const input = back.flatMap(({ path, to }) => (to ? [`${to.mode} ${to.oid}\t${path}\0`] : [])).join("")
  if (input === "") return tree
  return withIndex(async (index) => {
    const run = { ...at(checkout), index }
    await git(["read-tree", tree], run)
    await git(["update-index", "-z", "--index-info"], { ...run, input })
    return gitLine(["write-tree"], run)
  })
}

/** Those of these files that a program of the user's reads and writes for git, as for large files. */
async function filtered(checkout: Checkout, paths: readonly string[]): Promise<readonly string[]> {
  const input = paths.map((path) => `${path}\0`).join("")
  const told = await gitList(["check-attr", "-z", "--stdin", "filter"], { ...at(checkout), input })
  return paths.filter((_, nth) => !/^(unspecified|unset|set)$/.test(told[3 * nth + 2] ?? "unset"))
}

/** The files of a state in which the marks of a conflict that was given to the agent to solve still stand. */
export async function marksIn(checkout: Checkout, taskID: string, state: string): Promise<readonly string[]> {
  const mine = await readRef(checkout, "conflict", taskID)
  if (!mine) return []
  // In all files: many a text is one that git is told to show no diff of. And attributes say how long a mark is.
  const args = ["grep", "-l", "-z", "--text", "--no-color", "--fixed-strings", "-e", `> ${mine}`, state]
  const { out } = await git(args, { ...at(checkout), accept: [1] })
  return out.split("\0").flatMap((name) => (name === "" ? [] : [name.slice(state.length + 1)]))
}

/** The state with its submodules as they were at `base`, and the names of those that had changed. */
async function withoutSubmodules(checkout: Checkout, base: string, theirs: string) {
  const changed = (await changesBetween(checkout, base, theirs)).filter(isSubmodule)
  if (changed.length === 0) return { theirs, submodules: [] }
  const tree = await withIndex(async (index) => {
    const run = { ...at(checkout), index }
    await git(["read-tree", theirs], run)
    const gone = "0".repeat(base.length)
    const input = changed.map(({ path, from }) => `${from?.mode ?? "0"} ${from?.oid ?? gone}\t${path}\0`).join("")
    await git(["update-index", "-z", "--index-info"], { ...run, input })
    return gitLine(["write-tree"], run)
  })
  const without = await commitOf(checkout, tree, [base, theirs], "superagents: without submodules")
  return { theirs: without, submodules: changed.map(({ path }) => path) }
}
