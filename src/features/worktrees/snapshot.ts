import { randomUUID } from "node:crypto"
import { constants, existsSync } from "node:fs"
import { access, copyFile, lstat, mkdtemp, realpath, rm, stat, utimes } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, relative } from "node:path"
import { succeeds } from "../../lib/succeeds.ts"
import { ownFolders } from "../../runtime/places/root.ts"
import { at, type Checkout, isAncestor, shared, treeOf } from "./checkout.ts"
import { placedIn } from "./dependencies.ts"
import { git, gitLine, gitList, patiently } from "./git.ts"
import { hasMarker } from "./marker.ts"

/** Files may be many and large: hashing and writing them takes its time. */
const LONG_MS = 900_000

/** Git gives up where a file goes while it looks, as those of programs do that run here. Then it looks again. */
const VANISHED = /No such file or directory|short read/

/** What of a checkout's files is left out of their tree. */
type LeftOut = {
  /** Repositories of their own, which git could only name. */
  readonly nested: readonly string[]
  /**
   * Files and folders that may not be read, that git refuses, or that are too large; one that it tracks is in the tree
   * as it last saw it.
   */
  readonly unreadable: readonly string[]
}
export type Files = LeftOut & { readonly tree: string }
export type Snapshot = Files & { readonly commit: string }

/** "whole": with what git was told not to look at; "without index": where the checkout has none any more. */
export type How = "as git sees it" | "whole" | "without index"

/**
 * A commit of a checkout's state as it is, see `filesOf`. Index, HEAD, branches, stash and files stay as they are. All
 * of `parents` are the commit's ancestors; where one of them is that state already, it is taken as it is.
 */
export async function snapshot(
  checkout: Checkout,
  parents: readonly string[],
  message: string,
  how: How = "as git sees it",
): Promise<Snapshot> {
  const files = await filesOf(checkout, parents[0] ?? "HEAD", how)
  return { ...files, commit: await commitOf(checkout, files.tree, parents, message) }
}

/**
 * The tree of a checkout's files: changed and untracked ones, whatever is staged or not; what git ignores is left out.
 * So are untracked files of a user's who has git show none, but for those in the folder that somebody works in, and
 * what OpenCode and this plugin keep for themselves. Where there is no index, that of `instead` is taken.
 */
export function filesOf(checkout: Checkout, instead: string, how: How): Promise<Files> {
  return withIndex(async (index) => {
    const copied = how !== "without index" && (await copyIndex(checkout, index))
    if (!copied) await git(["read-tree", instead], { ...at(checkout), index })
    if (copied && how === "whole") await lookAtAll(checkout, index)
    const leftOut = await patiently(VANISHED, () => addAll(checkout, index))
    return { tree: await gitLine(["write-tree"], { ...at(checkout), index }), ...leftOut }
  })
}

/** A commit of a tree with these ancestors, each once; one of the parents itself where it is that already. */
export async function commitOf(
  checkout: Checkout,
  tree: string,
  parents: readonly string[],
  message: string,
): Promise<string> {
  const needed = await withoutAncestors(checkout, parents)
  const [only] = needed
  if (needed.length === 1 && only && (await treeOf(checkout, only)) === tree) return only
  const args = ["commit-tree", tree, ...needed.flatMap((parent) => ["-p", parent]), "-m", message]
  return gitLine(args, at(checkout))
}

const BEGAN = "superagents: what a run began with"

/**
 * The same files in a commit of this moment: a ref's age is that of its commit, and the user's own may be old. Its
 * message has what the run began without.
 */
export const stamped = (checkout: Checkout, commit: string, without: readonly string[]): Promise<string> =>
  gitLine(["commit-tree", `${commit}^{tree}`, "-p", commit, "-F", "-"], {
    ...at(checkout),
    input: without.length === 0 ? BEGAN : `${BEGAN}\n\n${JSON.stringify(without)}`,
  })

/** What a run began without, by the ref of its start. */
export async function withoutAt(checkout: Checkout, ref: string): Promise<readonly string[]> {
  const body = await gitLine(["for-each-ref", "--format=%(contents:body)", ref], shared(checkout))
  return body === "" ? [] : (JSON.parse(body) as string[])
}

async function withoutAncestors(checkout: Checkout, commits: readonly string[]): Promise<string[]> {
  const kept: string[] = []
  for (const commit of new Set(commits)) {
    let covered = false
    for (const other of kept) covered ||= await isAncestor(checkout, commit, other)
    if (!covered) kept.push(commit)
  }
  return kept
}

/** Hands over the path of an index of one's own, which is gone afterwards. */
export async function withIndex<Value>(work: (index: string) => Promise<Value>): Promise<Value> {
  const folder = await mkdtemp(join(tmpdir(), "superagents-index-"))
  try {
    return await work(join(folder, randomUUID()))
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/**
 * A copy of the checkout's index, which knows what git has looked at already. It keeps the original's time, rounded
 * down: git takes a file that is as young as the index for one that may have changed since. False where there is none.
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

/** Has git look at the files again that it was told not to look at, and that are there. */
export async function lookAtAll(checkout: Checkout, index: string): Promise<void> {
  const run = { ...at(checkout), index }
  const marked = await gitList(["ls-files", "-v", "-z"], run)
  const named = (mark: RegExp) => marked.flatMap((entry) => (mark.test(entry) ? entry.slice(2) : []))
  for (const [option, names] of [
    ["--no-assume-unchanged", named(/^[a-z] /)],
    // Those that a sparse checkout leaves out are not there, and stay out.
    ["--no-skip-worktree", named(/^s /i).filter((name) => existsSync(join(checkout.top, name)))],
  ] as const)
    if (names.length > 0) await git(["update-index", option, "-z", "--stdin"], { ...run, input: names.join("\0") })
}

/** Which of a checkout's files are looked at, as pathspecs. */
type Scope = { readonly tracked: readonly string[]; readonly untracked: readonly string[] }

const ALL = ["."]

async function scopeOf(checkout: Checkout): Promise<Scope> {
  const { top, prefix } = checkout
  if (prefix === undefined) return { tracked: ALL, untracked: ALL }
  const folders = await Promise.all(ownFolders().map((folder) => realpath(folder).catch(() => folder)))
  const own = folders.map((folder) => relative(top, folder)).filter((path) => path !== "" && !path.startsWith(".."))
  const but = own.map(excluded)
  if (!(await showsNoUntracked(checkout))) {
    const all = [".", ...but]
    return { tracked: all, untracked: all }
  }
  return { tracked: [".", ...but], untracked: prefix === "" ? [] : [`:(top,literal)${prefix}`, ...but] }
}

const excluded = (path: string): string => `:(exclude,top,literal)${path}`

/** Whether the user has git show no untracked files here: so is a home folder set up in which some files are tracked. */
async function showsNoUntracked(checkout: Checkout): Promise<boolean> {
  const setting = await git(["config", "--get", "status.showUntrackedFiles"], { ...at(checkout), accept: [1] })
  return /^(no|false|off|0)\s*$/i.test(setting.out) && !hasMarker(checkout.top)
}

/** Takes all that is there into the index. Returns what had to be left out. */
async function addAll(checkout: Checkout, index: string): Promise<LeftOut> {
  const run = { ...at(checkout), index, timeLimit: LONG_MS }
  const placed = await withoutPlaced(checkout, index)
  const scope = await scopeOf(checkout)
  const listing = ["ls-files", "--others", "--exclude-standard", "-z", "--", ...scope.untracked, ...placed]
  const { out, complaints } = scope.untracked.length === 0 ? NOTHING : await git(listing, run)
  const others = out.split("\0").filter((name) => name !== "")
  const nested = others.filter((name) => name.endsWith("/")).map((name) => name.slice(0, -1))
  const folders = [...complaints.matchAll(NOT_OPENED)].map(([, folder = ""]) => folder)
  const large = await tooLarge(checkout, others)
  const refused: string[] = []
  const add = async (without: readonly string[]): Promise<void> => {
    const but = [...placed, ...[...without, ...large, ...refused].map(excluded)]
    const take = (paths: readonly string[], which: string) =>
      git(["add", which, "--sparse", "--pathspec-from-file=-", "--pathspec-file-nul"], {
        ...run,
        input: [...paths, ...but].join("\0"),
      })
    try {
      if (scope.tracked !== scope.untracked) await take(scope.tracked, "--update")
      if (scope.untracked.length > 0) await take(scope.untracked, "--all")
    } catch (error) {
      const [, name] = REFUSED.exec(String(error)) ?? []
      if (name === undefined || refused.length === MOST_REFUSED) throw error
      refused.push(LIKE_GITS.exec(name)?.[0] ?? name)
      await add(without)
    }
  }
  const changed = () => gitList(["ls-files", "--modified", "-z"], run)
  const leftOut = (files: readonly string[]) => ({ nested, unreadable: [...folders, ...files, ...large, ...refused] })
  try {
    await add(nested)
    return leftOut([])
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

const NOTHING = { out: "", complaints: "" }

/** The most bytes of untracked files that one state takes into the repository. */
const MOST_UNTRACKED_BYTES = 512 * 1024 * 1024
const STATS_AT_ONCE = 64

/** Those of these untracked files that are too much, the largest first. */
async function tooLarge(checkout: Checkout, names: readonly string[]): Promise<string[]> {
  const sizes: { name: string; size: number }[] = []
  for (let next = 0; next < names.length; next += STATS_AT_ONCE)
    await Promise.all(
      names.slice(next, next + STATS_AT_ONCE).map(async (name) => {
        const stat = await lstat(join(checkout.top, name)).catch(() => undefined)
        if (stat?.isFile()) sizes.push({ name, size: stat.size })
      }),
    )
  let all = sizes.reduce((sum, { size }) => sum + size, 0)
  const out: string[] = []
  for (const { name, size } of sizes.sort((a, b) => b.size - a.size)) {
    if (all <= MOST_UNTRACKED_BYTES) break
    out.push(name)
    all -= size
  }
  return out
}

/** Takes what we have put into a worktree out of its index, whatever git ignores there by now. Returns what leaves it out. */
async function withoutPlaced(checkout: Checkout, index: string): Promise<readonly string[]> {
  const placed = await placedIn(checkout)
  if (placed.length === 0) return []
  const specs = placed.map((name) => `:(top,literal)${name}`)
  const input = specs.join("\0")
  const from = ["--pathspec-from-file=-", "--pathspec-file-nul"]
  const run = { ...at(checkout), index }
  await git(["rm", "-r", "--cached", "--quiet", "--force", "--ignore-unmatch", ...from], { ...run, input })
  // Git refuses to be told to leave out what it ignores by itself.
  const check = { ...run, input: placed.join("\0"), accept: [1] }
  const ignored = new Set(await gitList(["check-ignore", "-z", "--stdin"], check))
  return placed.filter((name) => !ignored.has(name)).map(excluded)
}

/** Those of these names at which a pipe, a socket or the like is: to git that is nothing at all, but it says so for no file. */
async function replaced(checkout: Checkout, names: readonly string[]): Promise<string[]> {
  const found: string[] = []
  for (const name of new Set(names)) {
    const stat = await lstat(join(checkout.top, name)).catch(() => undefined)
    if (stat && !stat.isFile() && !stat.isSymbolicLink() && !stat.isDirectory()) found.push(name)
  }
  return found
}

/** Names that git takes for its own on some disk or other, and so keeps nowhere. */
const REFUSED = /invalid path '([^']+)'/
const LIKE_GITS = /^(?:[^/]+\/)*?(?:\.git|git~1)[ .]*(?:[:\\][^/]*)?(?=\/|$)/i
const MOST_REFUSED = 50
const NOT_ADDED = /Permission denied|can only add regular files/
const NOT_OPENED = /^warning: could not open directory '(.*)\/': Permission denied$/gm

async function unreadable(checkout: Checkout, names: readonly string[]): Promise<string[]> {
  const found: string[] = []
  for (const name of new Set(names)) {
    const file = join(checkout.top, name)
    const stat = await lstat(file).catch(() => undefined)
    if (stat?.isFile() && !(await succeeds(access(file, constants.R_OK)))) found.push(name)
  }
  return found
}
