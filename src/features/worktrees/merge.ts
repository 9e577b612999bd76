import { constants } from "node:fs"
import { access, lstat, rm } from "node:fs/promises"
import { dirname, join } from "node:path"
import { listed } from "../../core/errors.ts"
import { succeeds } from "../../lib/succeeds.ts"
import type { Fault } from "../../runtime/places/fault.ts"
import { applyChanges } from "./apply.ts"
import { type Checkout, gitOptions, treeOf } from "./checkout.ts"
import { type Change, changesBetween, splitChanges } from "./diff.ts"
import { PartialExchange, PathBlocked } from "./exchange.ts"
import { git, gitLine, gitList } from "./git.ts"
import { readRef, writeRefs } from "./refs.ts"
import { commitOf, snapshot } from "./snapshot.ts"
import { withoutSubmodules } from "./submodules.ts"
import { threeWay } from "./three-way.ts"

/** Result of merging a state into a checkout. */
export type MergeOutcome =
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

type Merging = {
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
export async function mergeInto(checkout: Checkout, merging: Merging): Promise<MergeOutcome> {
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
  const { work: changes } = await splitChanges(checkout, await changesBetween(checkout, mine, merged.tree))
  const unreadable = changes.filter(({ path }) => path.includes("\uFFFD"))
  if (unreadable.length > 0) return { kind: "conflict", paths: unreadable.map(({ path }) => path), mine }
  if (changes.length === 0) return { kind: "merged", changes, brought, leftOut }
  if (!finishing) await writeRefs(checkout, taskID, { merge: await journalOf(checkout, merged.tree, mine, brought) })
  fault("merge: begun")
  try {
    await applyChanges(checkout, changes, { tree: merged.tree, stage, keep, fault })
  } catch (error) {
    const putBack = !(error instanceof PartialExchange)
    if (putBack && !finishing) await writeRefs(checkout, taskID, { merge: undefined })
    if (error instanceof PathBlocked)
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
    gitOptions(checkout),
  )

/** An interrupted merge: both states, and the intended result. */
export type InterruptedMerge = {
  readonly journal: string
  readonly mine: string
  readonly theirs: string
  readonly result: string
}

/** The task's interrupted merge in this checkout, if any. */
export async function findInterruptedMerge(checkout: Checkout, taskID: string): Promise<InterruptedMerge | undefined> {
  const journal = await readRef(checkout, "merge", taskID)
  if (!journal) return undefined
  const message = await gitLine(["show", "--no-patch", "--format=%B", journal], gitOptions(checkout))
  if (message.trim() !== `${JOURNAL}${JSON.stringify(checkout.top)}`) return undefined
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
 * Why these files of the user block a merge, and what the user can do. Solving it in the task's worktree is impossible:
 * the states fit there.
 */
async function adviceOn(original: Checkout, paths: readonly string[]): Promise<string> {
  const blocking = await Promise.all(paths.map((path) => blocker(original.top, path)))
  const [{ flags, tracked }, ignored] = await Promise.all([trackedOf(original, paths), ignoredOf(original, blocking)])
  const found = new Map<Hindrance, Set<string>>()
  for (const [nth, path] of paths.entries()) {
    const name = blocking[nth] ?? path
    const kind = flags.has(path) ? await flagged(original, path) : await hindrance(original, name, { ignored, tracked })
    found.set(kind, (found.get(kind) ?? new Set()).add(name))
  }
  return [...found].map(([kind, names]) => TEXTS[kind](listed([...names], MOST_NAMES))).join(" ")
}

const stat = (original: Checkout, path: string) => lstat(join(original.top, path)).catch(() => undefined)

/** The path itself, or a file above it that blocks a folder. */
async function blocker(top: string, path: string): Promise<string> {
  for (let above = dirname(path); above !== "."; above = dirname(above)) {
    const found = await lstat(join(top, above)).catch(() => undefined)
    if (found && !found.isDirectory()) return above
  }
  return path
}

const flagged = async (original: Checkout, path: string): Promise<Hindrance> =>
  (await stat(original, path)) ? "hidden" : "sparse"

type Known = { readonly ignored: ReadonlySet<string>; readonly tracked: ReadonlySet<string> }

async function hindrance(original: Checkout, name: string, { ignored, tracked }: Known): Promise<Hindrance> {
  const found = await stat(original, name)
  // A folder blocks by its ignored files; all others would be removed.
  if (found?.isDirectory() || ignored.has(name)) return "ignored"
  const isReadable = await succeeds(access(join(original.top, name), constants.R_OK))
  if (found?.isFile() && !isReadable) return "unreadable"
  return found && !tracked.has(name) ? "untracked" : "written"
}

/** Tracked files that git was told not to check: `S` for skip-worktree, lower case for assume-unchanged. */
async function trackedOf(original: Checkout, paths: readonly string[]) {
  const names = new Set(paths)
  const all = await gitList(["ls-files", "-v", "-z"], { ...gitOptions(original), timeLimit: 300_000 })
  const entries = all.filter((entry) => names.has(entry.slice(2)))
  const named = (some: readonly string[]): ReadonlySet<string> => new Set(some.map((entry) => entry.slice(2)))
  return { tracked: named(entries), flags: named(entries.filter((entry) => /^[Sa-z]/.test(entry))) }
}

async function ignoredOf(original: Checkout, paths: readonly string[]): Promise<ReadonlySet<string>> {
  const input = paths.map((path) => `${path}\0`).join("")
  const { out } = await git(["check-ignore", "-z", "--stdin"], { ...gitOptions(original), input, accept: [1] })
  return new Set(out.split("\0"))
}
