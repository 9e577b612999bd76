import type { Aside, SharedPlaces } from "../../runtime/places/place.ts"
import { at, type Checkout, checkoutOf, shared } from "./checkout.ts"
import { workBetween } from "./diff.ts"
import { targetOf, type WorktreePorts } from "./folders.ts"
import { git, gitLine, gitList } from "./git.ts"
import { hiddenIn } from "./hidden.ts"
import { readMarker } from "./marker.ts"
import { stateToMerge } from "./merge-back.ts"
import { dropRefs, type RefKind, readRef, writeRefs } from "./refs.ts"
import { filesOf } from "./snapshot.ts"

/** Several tasks that begin with the very same state, of which one's work comes home. */

const ASIDE = "refs/superagents-cleared/"

export const sharedIn = (ports: WorktreePorts): SharedPlaces => ({
  beginAs: (taskID, from, folder) => beginAs(folder, from, taskID),
  goOnAs: (taskID, groupID, folder) => goOnAs(folder, groupID, taskID),
  settle,
  changedIn: (taskID, folder, globs) => changedIn(ports, taskID, folder, globs),
  async isCurrent(taskID, folder) {
    const home = await checkoutOf(folder)
    const base = await readRef(home, "base", taskID)
    return base !== undefined && (await stateToMerge(ports, home, base)).commit === base
  },
})

/** Has a task begin with what another began with. */
async function beginAs(folder: string, from: string, taskID: string): Promise<void> {
  const home = await checkoutOf(folder)
  const [base, start] = await Promise.all([readRef(home, "base", from), readRef(home, "start", from)])
  await writeRefs(home, taskID, { state: base, base, start })
}

/** What a task's work stands under, but for a merge that is under way. */
const WORK = ["state", "base", "start", "conflict", "ignored"] as const

async function workRefs(home: Checkout, taskID: string): Promise<Partial<Record<RefKind, string | undefined>>> {
  const commits = await Promise.all(WORK.map((kind) => readRef(home, kind, taskID)))
  return Object.fromEntries(WORK.map((kind, at) => [kind, commits[at]]))
}

/** Has a task go on with what has become of a team's work. That stays the team's until it is settled again. */
async function goOnAs(folder: string, groupID: string, taskID: string): Promise<void> {
  const home = await checkoutOf(folder)
  // What a run that was cut off has left of it goes on.
  if ((await readRef(home, "state", taskID)) === undefined) await writeRefs(home, taskID, await workRefs(home, groupID))
}

/**
 * The winner's work becomes the team's own; that of the others is put aside, where it has changed anything. What was done
 * so already stays as it is. Returns the refs of what was put aside, by the task.
 */
async function settle(
  folder: string,
  groupID: string,
  winner: string | undefined,
  others: readonly Aside[],
): Promise<ReadonlyMap<string, string>> {
  const home = await checkoutOf(folder)
  const refs = new Map<string, string>()
  for (const { taskID, name } of others) {
    const ref = `${ASIDE}${groupID}/${name}`
    const [state, start] = await Promise.all([readRef(home, "state", taskID), readRef(home, "start", taskID)])
    const work = state && start ? await workBetween(home, start, state) : undefined
    if (state && work && work.files.length + work.submodules.length > 0)
      await git(["update-ref", ref, state], shared(home))
    if (await isThere(home, ref)) refs.set(taskID, ref)
    if (state) await dropRefs(home, taskID)
  }
  const won = winner === undefined ? {} : await workRefs(home, winner)
  if (winner !== undefined && won.state) {
    await writeRefs(home, groupID, won)
    await dropRefs(home, winner)
  }
  return refs
}

const isThere = async (home: Checkout, ref: string): Promise<boolean> =>
  (await git(["rev-parse", "--verify", "--quiet", ref], { ...shared(home), accept: [1] })).code === 0

/** Forgets what was put aside before `before`. */
export async function expireAside(home: Checkout, before: number): Promise<void> {
  const lines = await gitLine(["for-each-ref", "--format=%(refname) %(committerdate:unix)", ASIDE], shared(home))
  for (const line of lines.split("\n").filter(Boolean)) {
    const [ref = "", seconds] = line.split(" ")
    if (Number(seconds) * 1000 < before) await git(["update-ref", "-d", ref], shared(home))
  }
}

/** The files that a run has changed in its worktree so far, and those that these globs name, hidden from git or not. */
async function changedIn(
  ports: WorktreePorts,
  taskID: string,
  folder: string,
  globs: readonly string[],
): Promise<{ readonly files: readonly string[]; readonly named: readonly string[] }> {
  const home = await checkoutOf(folder)
  const worktree = readMarker(await targetOf(ports, home, taskID))?.worktree
  const start = await readRef(home, "start", taskID)
  if (!worktree || !start) return { files: [], named: [] }
  const { tree, nested } = await filesOf(worktree, start, "whole")
  const { files, named } = await changedBetween(worktree, start, tree, globs)
  const hidden = globs.length > 0 ? await hiddenIn(worktree, start, nested, globs.map(specOf)) : []
  return { files, named: [...named, ...hidden] }
}

export const specOf = (glob: string): string => `:(top,glob)${glob}`

/** The files that differ between two states, and those of them that these globs name. */
export async function changedBetween(
  checkout: Checkout,
  start: string,
  end: string,
  globs: readonly string[],
): Promise<{ readonly files: readonly string[]; readonly named: readonly string[] }> {
  const changed = (specs: readonly string[]) =>
    gitList(["diff-tree", "-r", "-z", "--name-only", "--no-renames", start, end, "--", ...specs], at(checkout))
  const files = await changed([])
  return { files, named: globs.length > 0 ? await changed(globs.map(specOf)) : [] }
}
