import { lstat } from "node:fs/promises"
import { join } from "node:path"
import { z } from "zod"
import { GitError, git, gitLine, gitList } from "./git.ts"
import { changesBetween } from "./objects.ts"
import { type Checkout, findCheckout, gitOptions, headOf, type Repository, sharedGitOptions } from "./repository.ts"

/**
 * Traces of work in a checkout, which show whether a stash entry was made there. Git does not record the origin, but
 * commit and branch must fit, and the index must have been written since, because a stash takes changes out of it and
 * of the files.
 */
type Traces = {
  readonly top: string
  readonly commits: ReadonlySet<string>
  readonly branches: ReadonlySet<string>
  readonly index: number
  /** Commits that were in the stash when work in this checkout began. */
  readonly seen: ReadonlySet<string>
}

/** A checkout, and the commits in the stash when work began there. */
export type StashPlace = { readonly checkout: Checkout; readonly seen: readonly string[] }

/** Tolerance for a file system's clock, in s. */
const LAG_S = 0.1
const NO_BRANCH = "(no branch)"
/** Most files of an entry that are checked. */
const MOST_FILES = 50

/**
 * Finds stash entries that were made in this place (`own`), and those that were made here or elsewhere (`unsure`).
 * `others`: places of other active runs.
 */
export async function entriesMadeIn(
  repository: Repository,
  place: StashPlace,
  others: readonly StashPlace[],
  entries: readonly StashEntry[],
): Promise<{ readonly own: readonly StashEntry[]; readonly unsure: readonly StashEntry[] }> {
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
  const own: StashEntry[] = []
  const unsure: StashEntry[] = []
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

function fits({ commit, time, message }: StashEntry, parent: string, traces: Traces): boolean {
  const { commits, branches, index, seen } = traces
  const [, branch] = /^(?:WIP on|On) (.+?): /.exec(message) ?? []
  const isOn = branch === undefined || branches.has(branch)
  return isOn && commits.has(parent) && index >= time - LAG_S && !seen.has(commit)
}

/** Whether each file of a stash entry was written or removed after the entry was made. */
async function touched({ time }: StashEntry, paths: readonly string[], { top }: Traces): Promise<boolean> {
  const times = await Promise.all(paths.slice(0, MOST_FILES).map((path) => secondsOf(join(top, path))))
  return times.every((written) => written === undefined || written >= time - LAG_S)
}

async function tracesOf({ checkout, seen }: StashPlace): Promise<Traces> {
  const [log, head, branch, index = 0] = await Promise.all([
    logOf("HEAD", gitOptions(checkout)),
    headOf(checkout),
    gitLine(["symbolic-ref", "--quiet", "--short", "HEAD"], { ...gitOptions(checkout), accept: [1] }),
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

/** Existing checkouts of a repository, except this one. */
async function checkoutsBeside(repository: Repository, { gitDir }: Checkout): Promise<readonly Checkout[]> {
  const listing = await gitList(["worktree", "list", "--porcelain", "-z"], sharedGitOptions(repository))
  const folders = listing.flatMap((line) => (line.startsWith("worktree ") ? [line.slice("worktree ".length)] : []))
  const found = await Promise.all(folders.map((folder) => findCheckout(folder).catch(() => undefined)))
  return found.flatMap((checkout) => (checkout && checkout.gitDir !== gitDir ? [checkout] : []))
}

export async function firstParents(
  repository: Repository,
  commits: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  if (commits.length === 0) return new Map()
  const args = ["rev-list", "--no-walk=unsorted", "--parents", ...new Set(commits)]
  const lines = (await git(args, sharedGitOptions(repository))).out.split("\n")
  return new Map(lines.map((line) => line.split(" ")).map(([commit = "", parent = ""]) => [commit, parent]))
}

/**
 * An entry of git's stash, which all checkouts share. The stash is a ref with a log: an entry is a commit and its log
 * line, the newest first.
 */
export const StashEntry = z.object({
  commit: z.string(),
  name: z.string(),
  email: z.string(),
  /** Seconds since 1970 and the time zone, as git writes them. */
  time: z.number(),
  zone: z.string(),
  message: z.string(),
})
export type StashEntry = z.infer<typeof StashEntry>

const STASH = "refs/stash"
const FORMAT = ["%H", "%gn", "%ge", "%gd", "%gs"].join("%x01")
/** Git's exit code for a missing ref. */
const NONE = 128
/** Git's message if somebody changed the ref meanwhile. It is another one if the ref's lock file cannot be made. */
const CHANGED = /cannot lock ref(?!.*Unable to create)/

export const stashOf = (repository: Repository): Promise<readonly StashEntry[]> =>
  logOf(STASH, sharedGitOptions(repository))

/** Log of a ref, newest entry first; empty if there is no such ref. */
export async function logOf(
  ref: string,
  where: { readonly cwd: string; readonly gitDir: string },
): Promise<readonly StashEntry[]> {
  const args = ["log", "-g", "-z", "--no-show-signature", "--no-patch", "--date=raw", `--format=${FORMAT}`, ref, "--"]
  const { code, out } = await git(args, { ...where, accept: [NONE] })
  if (code === NONE) return []
  return out.split("\0").flatMap((line) => {
    const [commit = "", name = "", email = "", at = "", message = ""] = line.split("\u0001")
    const [, time, zone = "+0000"] = /\{(\d+) ([+-]\d+)\}$/.exec(at) ?? []
    return commit === "" ? [] : [{ commit, name, email, time: Number(time), zone, message }]
  })
}

export const isSame = (one: readonly StashEntry[], other: readonly StashEntry[]): boolean =>
  one.length === other.length && one.every(({ commit }, nth) => commit === other[nth]?.commit)

/**
 * Replaces the stash's list, unless others change it meanwhile. Git can only push entries, so all are removed and added
 * again with their log lines; `step` is called in between, where a crash would leave a part of the list.
 */
export async function rewrite(
  repository: Repository,
  now: readonly StashEntry[],
  wanted: readonly StashEntry[],
  step: (name: "cleared" | "one entry") => void,
): Promise<void> {
  const run = sharedGitOptions(repository)
  const [top] = now
  try {
    if (top) await git(["update-ref", "-d", STASH, top.commit], run)
    step("cleared")
    let below = "0".repeat((top ?? wanted[0])?.commit.length ?? 0)
    for (const entry of wanted.toReversed()) {
      const { commit, name, email, time, zone, message } = entry
      const args = ["update-ref", "--create-reflog", "-m", message, STASH, commit, below]
      await git(args, { ...run, committer: { name: name || "unknown", email, date: `@${time} ${zone}` } })
      below = commit
      step("one entry")
    }
  } catch (error) {
    if (!(error instanceof GitError && CHANGED.test(error.message))) throw error
  }
}
