import type { SharedPlaces, UnchosenMember } from "../../runtime/places/place.ts"
import { type WorktreePorts, worktreeFolder } from "./folders.ts"
import { git, gitLine, gitList } from "./git.ts"
import { hiddenIn } from "./ignored.ts"
import { stateToMerge } from "./merge.ts"
import { workBetween } from "./objects.ts"
import {
  type Checkout,
  dropRefs,
  gitOptions,
  hasLeftWork,
  objectAt,
  type RefKind,
  readRef,
  requireCheckout,
  sharedGitOptions,
  writeRefs,
} from "./repository.ts"
import { workIn } from "./snapshot.ts"
import { readMarker } from "./worktree.ts"

/**
 * Handles tasks that begin with the same state and of which only one is merged. The refs of the others' work begin with
 * `ASIDE`.
 */

const ASIDE = "refs/superagents-cleared/"

export const sharedIn = (ports: WorktreePorts): SharedPlaces => ({
  copyStart,
  copyWork,
  settle,
  changedIn: (taskID, folder, globs) => changedIn(ports, taskID, folder, globs),
  async isCurrent(taskID, folder) {
    const checkout = await requireCheckout(folder)
    const base = await readRef(checkout, "base", taskID)
    return base !== undefined && (await stateToMerge(ports, checkout, base)).commit === base
  },
})

async function copyStart(taskID: string, from: string, folder: string): Promise<void> {
  const checkout = await requireCheckout(folder)
  const [base, start] = await Promise.all([readRef(checkout, "base", from), readRef(checkout, "start", from)])
  await writeRefs(checkout, taskID, { state: base, base, start })
}

/** Kinds of refs that make up a task's work. An interrupted merge is not included. */
const WORK = ["state", "base", "start", "conflict", "ignored", "stash"] as const

async function workRefs(original: Checkout, taskID: string): Promise<Partial<Record<RefKind, string | undefined>>> {
  const commits = await Promise.all(WORK.map((kind) => readRef(original, kind, taskID)))
  return Object.fromEntries(WORK.map((kind, at) => [kind, commits[at]]))
}

/** Lets a task continue with the group's work. The group keeps its own refs until it is settled again. */
async function copyWork(taskID: string, groupID: string, folder: string): Promise<void> {
  const checkout = await requireCheckout(folder)
  // If an interrupted run of the task has left a state, that state is kept instead.
  if ((await readRef(checkout, "state", taskID)) === undefined)
    await writeRefs(checkout, taskID, await workRefs(checkout, groupID))
}

/**
 * Makes the winner's work the group's own and archives the losers' changes. Can be repeated; returns, by losing task, a
 * text with the refs that hold its changes.
 */
async function settle(
  folder: string,
  groupID: string,
  winner: string | undefined,
  others: readonly UnchosenMember[],
): Promise<ReadonlyMap<string, string>> {
  const checkout = await requireCheckout(folder)
  const refs = new Map<string, string>()
  for (const { taskID, name } of others) {
    const ref = `${ASIDE}${groupID}/${name}`
    const { state, start, ignored, stash } = await workRefs(checkout, taskID)
    const work = state && start ? await workBetween(checkout, start, state) : undefined
    const leftCommits = state && (await hasLeftWork(checkout, "state", state))
    const left = stash && (await hasLeftWork(checkout, "stash", stash))
    const isWork = leftCommits || (work && work.files.length + work.submodules.length > 0)
    const all = [
      { ref, commit: isWork ? state : undefined, what: "" },
      { ref: `${ref}-ignored`, commit: ignored, what: "what git ignores under " },
      { ref: `${ref}-stash`, commit: left ? stash : undefined, what: "what it left in git's stash under " },
    ]
    const kept: string[] = []
    for (const { ref: aside, commit, what } of all) {
      if (commit) await git(["update-ref", aside, commit], sharedGitOptions(checkout))
      if (await objectAt(sharedGitOptions(checkout), aside)) kept.push(`${what}${aside}`)
    }
    if (kept.length > 0) refs.set(taskID, kept.join(" and "))
    if (state) await dropRefs(checkout, taskID)
  }
  const won = winner === undefined ? {} : await workRefs(checkout, winner)
  if (winner !== undefined && won.state) {
    await writeRefs(checkout, groupID, won)
    await dropRefs(checkout, winner)
  }
  return refs
}

/** Deletes the archived work of losers that is older than `before`. */
export async function expireLosers(original: Checkout, before: number): Promise<void> {
  const lines = await gitLine(
    ["for-each-ref", "--format=%(refname) %(committerdate:unix)", ASIDE],
    sharedGitOptions(original),
  )
  for (const line of lines.split("\n").filter(Boolean)) {
    const [ref = "", seconds] = line.split(" ")
    if (Number(seconds) * 1000 < before) await git(["update-ref", "-d", ref], sharedGitOptions(original))
  }
}

/** Files that a run has changed so far. `named`: those that match the globs, and hidden files that match them. */
async function changedIn(
  ports: WorktreePorts,
  taskID: string,
  folder: string,
  globs: readonly string[],
): Promise<{ readonly files: readonly string[]; readonly named: readonly string[] }> {
  const checkout = await requireCheckout(folder)
  const worktree = readMarker(await worktreeFolder(ports, checkout, taskID))?.worktree
  const start = await readRef(checkout, "start", taskID)
  if (!worktree || !start) return { files: [], named: [] }
  const { tree, ...leftOut } = await workIn(worktree, start, "whole")
  const { files, named } = await changedBetween(worktree, start, tree, globs)
  const hidden = globs.length > 0 ? await hiddenIn(worktree, start, leftOut, globs.map(specOf), checkout) : []
  return { files, named: [...named, ...hidden] }
}

export const specOf = (glob: string): string => `:(top,glob)${glob}`

/** Changed files between two states, and those that match the globs. */
export async function changedBetween(
  checkout: Checkout,
  start: string,
  end: string,
  globs: readonly string[],
): Promise<{ readonly files: readonly string[]; readonly named: readonly string[] }> {
  const changed = (specs: readonly string[]) =>
    gitList(["diff-tree", "-r", "-z", "--name-only", "--no-renames", start, end, "--", ...specs], gitOptions(checkout))
  const files = await changed([])
  return { files, named: globs.length > 0 ? await changed(globs.map(specOf)) : [] }
}
