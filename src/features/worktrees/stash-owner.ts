import { lstat } from "node:fs/promises"
import { join } from "node:path"
import { at, type Checkout, find, headOf, shared } from "./checkout.ts"
import { changesBetween } from "./diff.ts"
import { git, gitLine, gitList } from "./git.ts"
import { logOf, type Repository, type TaskHandle } from "./stash-list.ts"

/**
 * Whose an entry of the stash is: the user's, or that of an agent in a worktree of its own. Git does not write down where
 * one was made, but leaves traces there: the commit and the branch that the checkout was on, an index that was written
 * since, and files that were, since a stash takes its changes out of them.
 */
type Traces = {
  readonly top: string
  readonly commits: ReadonlySet<string>
  readonly branches: ReadonlySet<string>
  readonly index: number
  /** What was in the stash already when work began there. */
  readonly seen: ReadonlySet<string>
}

/** A checkout, with the commits that were in the stash when work began there. */
export type Place = { readonly checkout: Checkout; readonly seen: readonly string[] }

/** A file system's clock may lag behind by so much, in s. */
const LAG_S = 0.1
const NO_BRANCH = "(no branch)"
/** So many of an entry's files are looked at. */
const MOST_FILES = 50

/**
 * Those of these entries that were made in a place, and those that may have been made there or elsewhere. `others`: what
 * is known of other places at work.
 */
export async function madeIn(
  repository: Repository,
  place: Place,
  others: readonly Place[],
  entries: readonly TaskHandle[],
): Promise<{ readonly own: readonly TaskHandle[]; readonly unsure: readonly TaskHandle[] }> {
  if (entries.length === 0) return { own: [], unsure: [] }
  const parents = await firstParents(
    repository,
    entries.map(({ commit }) => commit),
  )
  const here = await tracesOf(place)
  const beside = await checkoutsBeside(repository, place.checkout)
  const known = new Map(others.map(({ checkout, seen }) => [checkout.gitDir, seen]))
  const rivals = await Promise.all(
    beside.map((checkout) => tracesOf({ checkout, seen: known.get(checkout.gitDir) ?? [] })),
  )
  const own: TaskHandle[] = []
  const unsure: TaskHandle[] = []
  for (const entry of entries) {
    const parent = parents.get(entry.commit) ?? ""
    if (!fits(entry, parent, here)) continue
    const paths = (await changesBetween(place.checkout, parent, entry.commit)).map(({ path }) => path)
    const wasTouched = (traces: Traces) => touched(entry, paths, traces)
    const able = rivals.filter((rival) => fits(entry, parent, rival))
    const [isTouched, others] = [await wasTouched(here), await Promise.all(able.map(wasTouched))]
    const isRivals = others.includes(true)
    if (able.length === 0 || (isTouched && !isRivals)) own.push(entry)
    else if (isTouched === isRivals) unsure.push(entry)
  }
  return { own, unsure }
}

function fits({ commit, time, message }: TaskHandle, parent: string, traces: Traces): boolean {
  const { commits, branches, index, seen } = traces
  const [, branch] = /^(?:WIP on|On) (.+?): /.exec(message) ?? []
  const isOn = branch === undefined || branches.has(branch)
  return isOn && commits.has(parent) && index >= time - LAG_S && !seen.has(commit)
}

/** Whether all files of an entry were written since it was made, or are gone. */
async function touched({ time }: TaskHandle, paths: readonly string[], { top }: Traces): Promise<boolean> {
  const times = await Promise.all(paths.slice(0, MOST_FILES).map((path) => secondsOf(join(top, path))))
  return times.every((written) => written === undefined || written >= time - LAG_S)
}

async function tracesOf({ checkout, seen }: Place): Promise<Traces> {
  const [log, head, branch, index = 0] = await Promise.all([
    logOf("HEAD", at(checkout)),
    headOf(checkout),
    gitLine(["symbolic-ref", "--quiet", "--short", "HEAD"], { ...at(checkout), accept: [1] }),
    secondsOf(join(checkout.gitDir, "index")),
  ])
  const branches = new Set([branch === "" ? NO_BRANCH : branch])
  for (const { message } of log) {
    const [, from = "", to = ""] = /^checkout: moving from (\S+) to (\S+)$/.exec(message) ?? []
    for (const name of [from, to]) branches.add(/^[0-9a-f]{40,64}$/.test(name) ? NO_BRANCH : name)
  }
  const commits = new Set([...log.map(({ commit }) => commit), ...(head === undefined ? [] : [head])])
  return { top: checkout.top, commits, branches, index, seen: new Set(seen) }
}

async function secondsOf(file: string): Promise<number | undefined> {
  const found = await lstat(file).catch(() => undefined)
  return found && found.mtimeMs / 1000
}

/** All checkouts of a repository that are there, but this one. */
async function checkoutsBeside(repository: Repository, { gitDir }: Checkout): Promise<readonly Checkout[]> {
  const told = await gitList(["worktree", "list", "--porcelain", "-z"], shared(repository))
  const folders = told.flatMap((line) => (line.startsWith("worktree ") ? [line.slice("worktree ".length)] : []))
  const found = await Promise.all(folders.map((folder) => find(folder).catch(() => undefined)))
  return found.flatMap((checkout) => (checkout && checkout.gitDir !== gitDir ? [checkout] : []))
}

/** The commit that each of these was made upon. */
export async function firstParents(
  repository: Repository,
  commits: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  if (commits.length === 0) return new Map()
  const args = ["rev-list", "--no-walk=unsorted", "--parents", ...new Set(commits)]
  const lines = (await git(args, shared(repository))).out.split("\n")
  return new Map(lines.map((line) => line.split(" ")).map(([commit = "", parent = ""]) => [commit, parent]))
}
