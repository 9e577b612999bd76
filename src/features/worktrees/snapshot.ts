import { randomUUID } from "node:crypto"
import { constants, existsSync } from "node:fs"
import { access, copyFile, lstat, mkdtemp, realpath, rm, stat, utimes } from "node:fs/promises"
import { homedir, tmpdir } from "node:os"
import { dirname, join, relative } from "node:path"
import { listed } from "../../core/errors.ts"
import { NoFile, readPlain } from "../../lib/atomic-file.ts"
import { forAll } from "../../lib/promises.ts"
import { dataFolder } from "../../runtime/record/identity.ts"
import { copiedEntriesIn } from "./dependencies.ts"
import { git, gitLine, gitList, LONG_MS, retryOn } from "./git.ts"
import { reachable, type TreeEntry } from "./objects.ts"
import {
  bodyOf,
  type Checkout,
  commitTree,
  gitOptions,
  ignoredOf,
  LEFT_IN_COMMITS,
  LeftWork,
  refOf,
  treeOf,
  underWay,
} from "./repository.ts"
import { logOf } from "./stash-owner.ts"
import { brokenWithin, foreignWithin, hasMarker } from "./worktree.ts"

/** Git's message if a file vanishes while git reads it. The files are then read again. */
const VANISHED = /No such file or directory|short read/

/** Entries that are not in the tree. */
type LeftOut = {
  /** Nested repositories. Git could store only a link to their commit. */
  readonly nested: readonly string[]
  /**
   * Entries that cannot be read, that git refuses, or that are too large; also submodules whose repository cannot be
   * read or is an agent's. If git tracks an entry, the tree has its last content.
   */
  readonly unreadable: readonly string[]
}
export type Files = LeftOut & { readonly tree: string }
export type Snapshot = Files & { readonly commit: string }

/** "whole": with files that git was told not to check; "without index": for a checkout that has lost it. */
export type SnapshotMode = "as git sees it" | "whole" | "without index"

/**
 * Commits a checkout's current state as `filesOf` reads it; index, HEAD, branches, stash and files do not change.
 * `parents` become the commit's ancestors; a single parent with the same content is returned instead of a new commit.
 */
export async function snapshot(checkout: Checkout, parents: readonly string[], message: string): Promise<Snapshot> {
  const files = await filesOf(checkout, parents[0] ?? "HEAD", "as git sees it")
  return { ...files, commit: await commitOf(checkout, files.tree, parents, message) }
}

/**
 * Stores all files in a tree, staged or not, except ignored ones and the folders of OpenCode and this plugin. Where the
 * user hides untracked files, only those in the working folder count; without an index, that of `instead` is used.
 */
export function filesOf(checkout: Checkout, instead: string, how: SnapshotMode): Promise<Files> {
  return withIndex(async (index) => {
    const copied = how !== "without index" && (await copyIndex(checkout, index))
    if (!copied) await git(["read-tree", instead], { ...gitOptions(checkout), index })
    if (copied && how === "whole") await clearIndexFlags(checkout, index)
    const leftOut = await retryOn(VANISHED, () => addAll(checkout, index))
    return { tree: await gitLine(["write-tree"], { ...gitOptions(checkout), index }), ...leftOut }
  })
}

/** Messages for an index that git cannot use. */
const BAD_INDEX =
  /index file|bad signature|bad index|index entry|field in the index|entries in index|EISDIR|diff status/

/** Stores all files of a task's worktree, as `filesOf` does. An index that git cannot use is replaced. */
export async function workIn(checkout: Checkout, instead: string, how: SnapshotMode): Promise<Files> {
  try {
    return await filesOf(checkout, instead, how)
  } catch (error) {
    if (how === "without index" || !BAD_INDEX.test(String(error))) throw error
    await withIndex(async (index) => {
      await git(["read-tree", instead], { ...gitOptions(checkout), index })
      const own = join(checkout.gitDir, "index")
      await rm(own, { recursive: true, force: true })
      await copyFile(index, own)
    })
    return filesOf(checkout, instead, how)
  }
}

/**
 * Commits a tree with these ancestors. Parents that others already include are left out; a single parent with the same
 * tree is returned instead of a new commit.
 */
export async function commitOf(
  checkout: Checkout,
  tree: string,
  parents: readonly string[],
  message: string,
): Promise<string> {
  const needed = await withoutAncestors(checkout, parents)
  const [only] = needed
  if (needed.length === 1 && only && (await treeOf(checkout, only)) === tree) return only
  return commitTree(gitOptions(checkout), tree, needed, message)
}

const BEGAN = "superagents: what a run began with"

/**
 * Copies a commit with its tree, so that a ref to the copy counts as new: a ref is as old as its commit. The message
 * lists contents that the run lacked.
 */
export const stampCommit = (checkout: Checkout, commit: string, without: readonly string[]): Promise<string> =>
  commitTree(
    gitOptions(checkout),
    `${commit}^{tree}`,
    [commit],
    without.length === 0 ? BEGAN : `${BEGAN}\n\n${JSON.stringify(without)}`,
  )

/** Contents that a run lacked at its start. They are read from the commit of the given ref. */
export async function missingAtStart(checkout: Checkout, ref: string): Promise<readonly string[]> {
  const body = await bodyOf(checkout, ref)
  return body === "" ? [] : (JSON.parse(body) as string[])
}

async function withoutAncestors(checkout: Checkout, commits: readonly string[]): Promise<readonly string[]> {
  const all = [...new Set(commits)]
  if (all.length < 2) return all
  const independent = await gitLine(["merge-base", "--independent", ...all], gitOptions(checkout))
  return all.filter((commit) => independent.includes(commit))
}

const NONE_LEFT: LeftWork = { commits: [] }
const WORK = "superagents: its work"

/**
 * Commits the state of a task's worktree. Commits that its agent has left without taking them back, and that its files
 * lack, become ancestors, and the message names them. `isKnown`: git still has the worktree's data.
 */
export async function commitWork(
  checkout: Checkout,
  tree: string,
  parents: readonly string[],
  isKnown: boolean,
): Promise<string> {
  const work = await commitOf(checkout, tree, parents, WORK)
  const { during, commits } = isKnown ? await findLeft(checkout, tree, work) : NONE_LEFT
  if (commits.length === 0 && !during) return work
  const message = `${commits.length > 0 ? LEFT_IN_COMMITS : WORK}\n\n${JSON.stringify({ during, commits })}`
  return commitOf(checkout, tree, [...parents, ...commits], message)
}

/** Files in which git keeps what a rebase in progress has taken out of the files: the newest commit first. */
const BEFORE_REBASE = ["autostash", "orig-head"].flatMap((name) => [`rebase-merge/${name}`, `rebase-apply/${name}`])
const BEFORE_MERGE = "MERGE_AUTOSTASH"
const MOST_ID_BYTES = 100
const IS_MOVE = /^checkout: moving from /
/** Most commits that are examined, and most that are kept: the newest. */
const MOST_EXAMINED = 200
const MOST_LEFT = 20

/** Finds what the files lack. `work`: a commit of their tree, with all ancestors that are known. */
async function findLeft(checkout: Checkout, tree: string, work: string): Promise<LeftWork> {
  const run = gitOptions(checkout)
  const files = BEFORE_REBASE.map((name) =>
    readPlain(join(checkout.gitDir, name), MOST_ID_BYTES, () => new NoFile()).then(
      (id) => /^[0-9a-f]{40,64}$/.exec(id.toString().trim()) ?? [],
      () => [],
    ),
  )
  const names = [BEFORE_MERGE, ...(await Promise.all(files)).flat(), ...(await departed(checkout))]
  const input = names.map((name) => `${name}^{commit}\n`).join("")
  const { out } = await git(["cat-file", "--batch-check=%(objecttype) %(objectname)"], { ...run, input })
  const existing = out.split("\n").flatMap((line) => /^commit (\S+)$/.exec(line)?.[1] ?? [])
  const commits: string[] = []
  for (const commit of await withoutAncestors(checkout, [work, ...existing]))
    if (commit !== work && commits.length < MOST_LEFT && (await isLacking(checkout, tree, { work, commit })))
      commits.push(commit)
  const during = await underWay(checkout)
  return { ...(during && { during }), commits }
}

/** Commits of the agent's own that a checkout has left for good, newest first. */
async function departed(checkout: Checkout): Promise<readonly string[]> {
  const log = await logOf("HEAD", gitOptions(checkout))
  // The newest step away from a commit counts: one amended or reset after a return was taken back.
  const steps = new Map(log.map(({ commit }, nth) => [commit, log[nth - 1]?.message ?? ""] as const).reverse())
  // A commit at which only checkouts arrived is not the agent's own.
  const own = new Set(log.flatMap(({ commit, message }) => (IS_MOVE.test(message) ? [] : [commit])))
  return [...own].filter((commit) => IS_MOVE.test(steps.get(commit) ?? "")).slice(0, MOST_EXAMINED)
}

/**
 * False if merging the commit into the files changes nothing, as after a squash merge or a cherry-pick. The commit is the
 * first side, so that with `merge=ours` the files' own side does not hide what they lack.
 */
async function isLacking(
  checkout: Checkout,
  tree: string,
  { work, commit }: { readonly work: string; readonly commit: string },
): Promise<boolean> {
  const args = ["merge-tree", "--write-tree", "--no-messages", "--allow-unrelated-histories", commit, work]
  // If git cannot merge at all, the commit is kept.
  const { code, out } = await git(args, { ...gitOptions(checkout), accept: [1, 128] })
  return code !== 0 || out.trim() !== tree
}

/** Work that is in no file of a task's state. */
export async function leftOf(checkout: Checkout, taskID: string): Promise<LeftWork> {
  const body = await bodyOf(checkout, refOf("state", taskID))
  try {
    return LeftWork.parse(JSON.parse(body))
  } catch {
    return NONE_LEFT
  }
}

/** Note for the parent on work that is in no file of a task's state: one sentence, or none. */
export async function leftNotes(checkout: Checkout, taskID: string): Promise<readonly string[]> {
  const { during, commits } = await leftOf(checkout, taskID)
  const [commit] = commits
  const end = `It ended ${during ? `in the middle of ${during}` : "at another commit than its last"}`
  if (commit)
    return [
      `${end}, and its files may lack what it had in ${listed(commits)}: kept with its work, not among its changes and not merged; git log -p ${commit} shows it`,
    ]
  return during ? [`${end}: its files may have conflict marks of git's`] : []
}

/** Calls `work` with a temporary folder, which is deleted afterwards. */
export async function inTemporaryFolder<Value>(name: string, work: (folder: string) => Promise<Value>): Promise<Value> {
  const folder = await mkdtemp(join(tmpdir(), `superagents-${name}-`))
  try {
    return await work(folder)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** Calls `work` with the path of a temporary index. */
export const withIndex = <Value>(work: (index: string) => Promise<Value>): Promise<Value> =>
  inTemporaryFolder("index", (folder) => work(join(folder, randomUUID())))

/** Calls `work` with a temporary index that has only these entries. */
export const withEntries = <Value>(
  checkout: Checkout,
  entries: readonly (TreeEntry & { readonly path: string })[],
  work: (index: string) => Promise<Value>,
): Promise<Value> =>
  withIndex(async (index) => {
    const input = entries.map(({ mode, oid, path }) => `${mode} ${oid}\t${path}\0`).join("")
    await git(["update-index", "-z", "--index-info"], { ...gitOptions(checkout), index, input })
    return work(index)
  })

/** Tree of a state, or of nothing, after these lines of `git update-index --index-info`. */
export const treeWith = (checkout: Checkout, state: string | undefined, lines: string): Promise<string> =>
  withIndex(async (index) => {
    const run = { ...gitOptions(checkout), index }
    await git(["read-tree", state ?? "--empty"], run)
    await git(["update-index", "-z", "--index-info"], { ...run, input: lines })
    return gitLine(["write-tree"], run)
  })

/**
 * Copies the checkout's index, because git has stored file states there; false without an index. The copy's time is
 * rounded down, so that git rechecks files that are as new as the index.
 */
async function copyIndex(checkout: Checkout, index: string): Promise<boolean> {
  const original = join(checkout.gitDir, "index")
  try {
    const { mtimeMs } = await stat(original)
    await copyFile(original, index)
    const seconds = Math.floor(mtimeMs / 1000)
    await utimes(index, seconds, seconds)
    return true
  } catch (error) {
    if ((error as { code?: string }).code === "ENOENT") return false
    throw error
  }
}

/** Makes git check all existing files again, even those that the user told it not to check. */
export async function clearIndexFlags(checkout: Checkout, index: string): Promise<void> {
  const run = { ...gitOptions(checkout), index }
  const marked = await gitList(["ls-files", "-v", "-z"], run)
  const named = (mark: RegExp) => marked.flatMap((entry) => (mark.test(entry) ? entry.slice(2) : []))
  for (const [option, names] of [
    ["--no-assume-unchanged", named(/^[a-z] /)],
    // Files outside of a sparse checkout do not exist and keep their flag.
    ["--no-skip-worktree", named(/^s /i).filter((name) => existsSync(join(checkout.top, name)))],
  ] as const)
    if (names.length > 0) await git(["update-index", option, "-z", "--stdin"], { ...run, input: names.join("\0") })
}

/** Private folders of OpenCode and this plugin: keys, sessions, logs. */
const ownFolders = (): readonly string[] => {
  const { XDG_STATE_HOME, XDG_CACHE_HOME } = process.env
  const state = XDG_STATE_HOME || join(homedir(), ".local", "state")
  return [dirname(dataFolder()), join(state, "opencode"), join(XDG_CACHE_HOME || join(homedir(), ".cache"), "opencode")]
}

/** Pathspecs of the examined files. */
type Scope = { readonly tracked: readonly string[]; readonly untracked: readonly string[] }

const ALL = ["."]

async function scopeOf(checkout: Checkout): Promise<Scope> {
  const { top, prefix } = checkout
  if (prefix === undefined) return { tracked: ALL, untracked: ALL }
  const folders = await Promise.all(ownFolders().map((folder) => realpath(folder).catch(() => folder)))
  const inside = folders.map((folder) => relative(top, folder)).filter((path) => path !== "" && !path.startsWith(".."))
  const own = await reachable(checkout, inside)
  const but = own.map(excluded)
  if (!(await showsNoUntracked(checkout))) {
    const all = [".", ...but]
    return { tracked: all, untracked: all }
  }
  return { tracked: [".", ...but], untracked: prefix === "" ? [] : [`:(top,literal)${prefix}`, ...but] }
}

const excluded = (path: string): string => `:(exclude,top,literal)${path}`

/** Whether the user hides untracked files, as in a home folder with some tracked files. */
async function showsNoUntracked(checkout: Checkout): Promise<boolean> {
  const setting = await git(["config", "--get", "status.showUntrackedFiles"], { ...gitOptions(checkout), accept: [1] })
  return /^(no|false|off|0)\s*$/i.test(setting.out) && !hasMarker(checkout.top)
}

/** Adds all existing files to the index, and returns the entries that could not be added. */
async function addAll(checkout: Checkout, index: string): Promise<LeftOut> {
  const run = { ...gitOptions(checkout), index, timeLimit: LONG_MS }
  const placed = await withoutPlaced(checkout, index)
  const scope = await scopeOf(checkout)
  const listing = ["ls-files", "--others", "--exclude-standard", "-z", "--", ...scope.untracked, ...placed]
  const { out, warnings } = scope.untracked.length === 0 ? NOTHING : await git(listing, run)
  const others = out.split("\0").filter((name) => name !== "")
  const nested = others.filter((name) => name.endsWith("/")).map((name) => name.slice(0, -1))
  const folders = [...warnings.matchAll(NOT_OPENED)].map(([, folder = ""]) => folder)
  const large = await tooLarge(checkout, others)
  const refused = [...(await foreignWithin(checkout, index))]
  /** Returns git's warnings. */
  const add = async (without: readonly string[]): Promise<string> => {
    const but = [...placed, ...[...without, ...large, ...refused].map(excluded)]
    const take = async (paths: readonly string[], which: string) => {
      const input = [...paths, ...but].join("\0")
      const args = ["add", which, "--sparse", "--pathspec-from-file=-", "--pathspec-file-nul"]
      return (await git(args, { ...run, input })).warnings
    }
    try {
      const updated = scope.tracked === scope.untracked ? "" : await take(scope.tracked, "--update")
      return updated + (scope.untracked.length > 0 ? await take(scope.untracked, "--all") : "")
    } catch (error) {
      const name = refusedIn(String(error))
      const names = name === undefined ? await brokenWithin(checkout, index, refused) : [name]
      const fresh = names.filter((each) => !refused.includes(each))
      if (fresh.length === 0 || refused.length >= MOST_REFUSED) throw error
      refused.push(...fresh)
      return add(without)
    }
  }
  const changed = () => gitList(["ls-files", "--modified", "-z"], run)
  const leftOut = (files: readonly string[]) => ({ nested, unreadable: [...folders, ...files, ...large, ...refused] })
  try {
    // Git only warns of tracked files that it may not look at.
    const warned = await add(nested)
    return leftOut(DENIED.test(warned) ? await unreadable(checkout, await changed()) : [])
  } catch (error) {
    if (!NOT_ADDED.test(String(error))) throw error
    const gone = await replaced(checkout, await changed())
    if (gone.length > 0)
      await git(["update-index", "--force-remove", "-z", "--stdin"], { ...run, input: gone.join("\0") })
    const files = await unreadable(checkout, [...others, ...(await changed())])
    if (files.length + gone.length === 0) throw error
    await add([...nested, ...files])
    return leftOut(files)
  }
}

const NOTHING = { out: "", warnings: "" }

/** Most bytes of untracked files in one state. */
const MOST_UNTRACKED_BYTES = 512 * 1024 * 1024

/** Untracked files that are left out so that the others stay within the limit. The largest files are left out first. */
async function tooLarge(checkout: Checkout, names: readonly string[]): Promise<string[]> {
  const sizes: { name: string; size: number }[] = []
  await forAll(names, async (name) => {
    const stat = await lstat(join(checkout.top, name)).catch(() => undefined)
    if (stat?.isFile()) sizes.push({ name, size: stat.size })
  })
  let all = sizes.reduce((sum, { size }) => sum + size, 0)
  const out: string[] = []
  for (const { name, size } of sizes.sort((a, b) => b.size - a.size)) {
    if (all <= MOST_UNTRACKED_BYTES) break
    out.push(name)
    all -= size
  }
  return out
}

/**
 * Removes copied dependencies from a worktree's index. Returns pathspecs that exclude those that git does not ignore.
 */
async function withoutPlaced(checkout: Checkout, index: string): Promise<readonly string[]> {
  const placed = await reachable(checkout, await copiedEntriesIn(checkout))
  if (placed.length === 0) return []
  const specs = placed.map((name) => `:(top,literal)${name}`)
  const input = specs.join("\0")
  const from = ["--pathspec-from-file=-", "--pathspec-file-nul"]
  const run = { ...gitOptions(checkout), index }
  await git(["rm", "-r", "--cached", "--quiet", "--force", "--ignore-unmatch", ...from], { ...run, input })
  // Git rejects an exclusion of files that it ignores anyway, so only the others are excluded.
  const ignored = new Set(await ignoredOf(run, placed))
  return placed.filter((name) => !ignored.has(name)).map(excluded)
}

/** Names of which now a pipe or a socket exists. Git does not see it, but reports the file as changed. */
async function replaced(checkout: Checkout, names: readonly string[]): Promise<string[]> {
  const found: string[] = []
  for (const name of new Set(names)) {
    const stat = await lstat(join(checkout.top, name)).catch(() => undefined)
    if (stat && !stat.isFile() && !stat.isSymbolicLink() && !stat.isDirectory()) found.push(name)
  }
  return found
}

/**
 * Git's messages for a name that it refuses, because on some disk the name means git's own files, and for a file that is
 * not in the encoding of its attributes. Names may hold anything, and of a long message only the end is known.
 */
const REFUSED = [
  /unable to add '(.+)' to index/s,
  /BOM is \w+ in '(.+)' if encoded as /s,
  /failed to encode '(.+)' from /s,
  /encoding '(.+)' from .+ and back is not the same/s,
]
const LIKE_GITS = /^(?:[^/]+\/)*?(?:\.git|git~1)[ .]*(?:[:\\][^/]*)?(?=\/|$)/i
/** Most files that are refused one by one, since git names only the first at each attempt. */
const MOST_REFUSED = 1000
const DENIED = /Permission denied/
const NOT_ADDED = /Permission denied|can only add regular files/
const NOT_OPENED = /^warning: could not open directory '(.*)\/': Permission denied$/gm

/** The path that git refused, or the folder above it whose name is the reason; undefined for another error. */
function refusedIn(error: string): string | undefined {
  for (const message of REFUSED) {
    const [, name] = message.exec(error) ?? []
    if (name !== undefined) return LIKE_GITS.exec(name)?.[0] ?? name
  }
  return undefined
}

async function unreadable(checkout: Checkout, names: readonly string[]): Promise<string[]> {
  const found: string[] = []
  for (const name of new Set(names)) {
    const file = join(checkout.top, name)
    try {
      if ((await lstat(file)).isFile()) await access(file, constants.R_OK)
    } catch (error) {
      if ((error as { code?: string }).code === "EACCES") found.push(name)
    }
  }
  return found
}
