import { existsSync } from "node:fs"
import { lstat, realpath } from "node:fs/promises"
import { basename, dirname, join, relative } from "node:path"
import { z } from "zod"
import { CallError } from "../../core/errors.ts"
import { MINUTE_MS } from "../../lib/format.ts"
import { Lock, type Processes } from "../../lib/lock.ts"
import { CaptureError } from "../../runtime/places/place.ts"
import { GitError, type GitOptions, git, gitLine, gitList, gitProblem, LONG_MS, redirectingVariable } from "./git.ts"

/** A checkout of a repository: the user's, or a worktree. Paths are absolute and resolved. */
export const Checkout = z.object({
  /** Top folder. */
  top: z.string(),
  /** Git's folder for this checkout alone, with its index and HEAD. */
  gitDir: z.string(),
  /** Git's folder that all checkouts of the repository share, with commits and refs. */
  commonDir: z.string(),
  /** Working folder below `top`; empty for `top` itself. Absent for a task's worktree. */
  prefix: z.string().optional(),
})
export type Checkout = Readonly<z.infer<typeof Checkout>>

/** A checkout that a user or agent works in. */
export type WorkingCheckout = Checkout & { readonly prefix: string }

export type SourceCheckout = WorkingCheckout & {
  /** Current commit. */
  readonly head: string
}

/** Git's operations, as a reader knows them. */
const Operation = z.enum(["a merge", "a rebase", "a cherry-pick", "a revert", "a merge with conflicts"])
type Operation = z.infer<typeof Operation>

/** Files that git keeps while an operation is in progress. */
const UNDER_WAY: readonly (readonly [file: string, what: Operation])[] = [
  ["MERGE_HEAD", "a merge"],
  ["rebase-merge", "a rebase"],
  ["rebase-apply", "a rebase"],
  ["CHERRY_PICK_HEAD", "a cherry-pick"],
  ["REVERT_HEAD", "a revert"],
]

const SORRY = "A worktree could not be made: "

/**
 * Finds the checkout around a folder, from which a worktree is to be made. Throws a `CaptureError` that says why none
 * can be made.
 */
export async function sourceCheckout(folder: string): Promise<SourceCheckout> {
  const problem = await gitProblem(folder)
  if (problem) throw new CaptureError(`${SORRY}it ${problem}.`)
  const variable = redirectingVariable()
  if (variable)
    throw new CaptureError(
      `${SORRY}in OpenCode's environment ${variable} is set, so that the agent's git would work elsewhere. Start OpenCode without it.`,
    )
  const found = await findWorkingCheckout(folder)
  if (!found) throw new CaptureError(`${SORRY}${notIn(folder)}`)
  const outside = outsideOf(found, folder)
  if (outside) throw new CaptureError(`${SORRY}${outside}`)
  const head = await headOf(found)
  if (head === undefined) throw new CaptureError(`${SORRY}the repository has no commit yet. Make a first commit.`)
  if (await isIgnored(found))
    throw new CaptureError(
      `${SORRY}git ignores this folder (${found.prefix || found.top}), so that the agent would see nothing of it, and its work would be lost. Take it out of .gitignore, or make it a repository of its own (git init, and a first commit).`,
    )
  return { ...found, head }
}

/** Called before a checkout's files are read. Throws a `CaptureError` while git changes them. */
export async function refuseWhileUnderWay(checkout: Checkout): Promise<void> {
  const busy = await underWay(checkout)
  if (!busy) return
  const text = `${SORRY}the checkout is in the middle of ${busy}. Finish or abort it first.`
  throw new CaptureError(text, `the end of ${busy} in ${checkout.top}`)
}

/** Whether git ignores the working folder and all in it. */
async function isIgnored({ top, gitDir, prefix }: WorkingCheckout): Promise<boolean> {
  if (prefix === "") return false
  const run = { cwd: top, gitDir }
  const probe = await git(["check-ignore", "--quiet", "--", `${prefix}/superagents-probe`], { ...run, accept: [1] })
  if (probe.code !== 0) return false
  const seen = ["ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", `:(top,literal)${prefix}`]
  return (await gitList(seen, { ...run, mostBytes: 1000 })).length === 0
}

/** Checkout around a folder in any state. Throws a `CallError` where there is none. */
export async function requireCheckout(folder: string): Promise<WorkingCheckout> {
  const checkout = await findWorkingCheckout(folder)
  const problem = checkout ? outsideOf(checkout, folder) : notIn(folder)
  if (!checkout || problem) throw new CallError(problem)
  return checkout
}

const notIn = (folder: string): string => `${folder} is not in the checkout of a git repository.`

/** Says that git would work on files elsewhere, as an agent's `core.worktree` makes it; undefined if it does not. */
const outsideOf = ({ top, commonDir, prefix }: WorkingCheckout, folder: string): string | undefined =>
  prefix.startsWith("..")
    ? `git takes ${top} for the top of ${folder}, which lies outside of it. Look at the setting core.worktree in ${join(commonDir, "config")}.`
    : undefined

/** Checkout around a folder; undefined for none. */
export async function findWorkingCheckout(folder: string): Promise<WorkingCheckout | undefined> {
  const found = await findCheckout(folder)
  return found && { ...found, prefix: relative(found.top, await realpath(folder)) }
}

const BETWEEN = "--superagents"

/** Asks git for the checkout around a folder; undefined if there is none. */
export async function findCheckout(folder: string): Promise<Checkout | undefined> {
  try {
    // Git prints unknown options again. Here they separate the paths, which may contain line breaks.
    const wanted = ["--show-toplevel", BETWEEN, "--git-dir", BETWEEN, "--git-common-dir"]
    const { out } = await git(["rev-parse", "--path-format=absolute", ...wanted], { cwd: folder })
    const [top, gitDir, commonDir] = out.replace(/\n$/, "").split(`\n${BETWEEN}\n`)
    if (!top || !gitDir || !commonDir) return undefined
    const real = await realpath(top).catch(() => top)
    return { top: real, gitDir: await realpath(gitDir), commonDir: await realpath(commonDir) }
  } catch (error) {
    if (!(error instanceof GitError)) throw error
    if (/must be run in a work tree/.test(error.message)) return declaredBare(folder)
    if (/not a git repository/.test(error.message)) return undefined
    throw error
  }
}

/**
 * Checkout whose repository an agent has declared bare, by `core.bare` in the configuration that all checkouts share;
 * undefined for a bare repository, which has no index.
 */
async function declaredBare(folder: string): Promise<Checkout | undefined> {
  const { out } = await git(["rev-parse", "--path-format=absolute", "--git-dir"], { cwd: folder })
  const gitDir = await realpath(out.replace(/\n$/, ""))
  const isWithin = !relative(gitDir, await realpath(folder)).startsWith("..")
  if (isWithin || basename(gitDir) !== ".git" || !existsSync(join(gitDir, "index"))) return undefined
  return { top: dirname(gitDir), gitDir, commonDir: gitDir }
}

/** File or link in place of a folder above a path; undefined where there is none. Nothing is written through a link. */
export async function obstacleAbove(top: string, path: string): Promise<string | undefined> {
  const parts = path.split("/")
  for (let depth = 1; depth < parts.length; depth++) {
    const above = parts.slice(0, depth).join("/")
    const found = await lstat(join(top, above)).catch(() => undefined)
    if (!found) return undefined
    if (!found.isDirectory()) return above
  }
  return undefined
}

/** Options for git commands in a checkout. They name the repository, so that git does not search for it. */
export const gitOptions = ({ top, gitDir }: Checkout) => ({ cwd: top, gitDir })

/** Options for git commands on the data that all checkouts share. They work even if the checkout is gone. */
export const sharedGitOptions = ({ commonDir }: Repository) => ({ cwd: commonDir, gitDir: commonDir })

/** Id of the object with a name; undefined for none. */
export async function objectAt(where: GitOptions, name: string): Promise<string | undefined> {
  const { code, out } = await git(["rev-parse", "--verify", "--quiet", name], { ...where, accept: [1] })
  return code === 0 ? out.trim() : undefined
}

/** Current commit; undefined for none. */
export const headOf = (checkout: Checkout): Promise<string | undefined> =>
  objectAt(gitOptions(checkout), "HEAD^{commit}")

/** Commits a tree. The message is passed by stdin, because it may be too long for an argument. */
export const commitTree = (
  where: GitOptions,
  tree: string,
  parents: readonly string[],
  message: string,
): Promise<string> =>
  gitLine(["commit-tree", tree, ...parents.flatMap((parent) => ["-p", parent]), "-F", "-"], {
    ...where,
    input: message,
  })

/** Message of a commit. */
export const messageIn = (where: GitOptions, commit: string): Promise<string> =>
  gitLine(["show", "--no-patch", "--no-show-signature", "--format=%B", commit], where)

/** Message of a ref's commit after the first paragraph; "" without the ref. */
export const bodyOf = (checkout: Checkout, ref: string): Promise<string> =>
  gitLine(["for-each-ref", "--format=%(contents:body)", ref], sharedGitOptions(checkout))

/** Those paths that git ignores. */
export async function ignoredOf(where: GitOptions, paths: readonly string[]): Promise<readonly string[]> {
  if (paths.length === 0) return []
  return gitList(["check-ignore", "-z", "--stdin"], { ...where, input: paths.join("\0"), accept: [1] })
}

/** Files that git ignores and that match the pathspecs. */
export async function ignoredFiles(checkout: Checkout, specs: readonly string[]): Promise<readonly string[]> {
  const args = ["ls-files", "--others", "--ignored", "--exclude-standard", "-z", "--", ...specs]
  const names = await gitList(args, { ...gitOptions(checkout), timeLimit: LONG_MS })
  return names.filter((name) => !name.endsWith("/"))
}

/** Name of git's operation in progress; undefined for none. */
export async function underWay(checkout: Checkout): Promise<Operation | undefined> {
  for (const [file, what] of UNDER_WAY) if (existsSync(join(checkout.gitDir, file))) return what
  const unmerged = await gitList(["ls-files", "--unmerged", "-z"], { ...gitOptions(checkout), mostBytes: 1000 })
  return unmerged.length > 0 ? "a merge with conflicts" : undefined
}

export const treeOf = (checkout: Checkout, commit: string): Promise<string> =>
  gitLine(["rev-parse", "--verify", `${commit}^{tree}`], gitOptions(checkout))

export async function isAncestor(checkout: Checkout, older: string, newer: string): Promise<boolean> {
  const { code } = await git(["merge-base", "--is-ancestor", older, newer], { ...gitOptions(checkout), accept: [1] })
  return code === 0
}

/**
 * Refs of a task:
 * - `state`: the task's work at the end of its last run;
 * - `base`: commit from which the work is counted: the state at the task's start, or at the last merge;
 * - `start`: like `base`, but a merge does not move it before the next run;
 * - `merge`: a merge that is in progress, as a commit with both states as parents and the result as tree;
 * - `conflict`: the parent's state at the last conflict, or the commit with the conflicts that the agent was given;
 * - `ignored`: ignored files of the task's runs;
 * - `stash`: git's stash at the run's start, and, after the run's end, what became of the entries;
 * - `outgoing`: the state that is being sent to a host;
 * - `incoming`: work that was fetched from a host, until `state` is set.
 */
export type RefKind = "state" | "base" | "start" | "merge" | "conflict" | "ignored" | "stash" | "outgoing" | "incoming"

const PREFIXES: Record<RefKind, string> = {
  state: "refs/superagents/",
  base: "refs/superagents-base/",
  start: "refs/superagents-start/",
  merge: "refs/superagents-merge/",
  conflict: "refs/superagents-conflict/",
  ignored: "refs/superagents-ignored/",
  stash: "refs/superagents-stash/",
  outgoing: "refs/superagents-outgoing/",
  incoming: "refs/superagents-incoming/",
}
const KINDS = Object.keys(PREFIXES) as RefKind[]

export const refOf = (kind: RefKind, taskID: string): string => `${PREFIXES[kind]}${taskID}`

/** Commit of a task's ref, if it exists. */
export const readRef = (checkout: Checkout, kind: RefKind, taskID: string): Promise<string | undefined> =>
  objectAt(sharedGitOptions(checkout), `${refOf(kind, taskID)}^{commit}`)

/** Sets refs of a task in one transaction. Refs that are given as undefined are deleted. */
export async function writeRefs(
  checkout: Checkout,
  taskID: string,
  refs: Readonly<Partial<Record<RefKind, string | undefined>>>,
): Promise<void> {
  const input = KINDS.filter((kind) => kind in refs).map((kind) => {
    const commit = refs[kind]
    return commit === undefined ? `delete ${refOf(kind, taskID)}\0\0` : `update ${refOf(kind, taskID)}\0${commit}\0\0`
  })
  await git(["update-ref", "--stdin", "-z"], { ...sharedGitOptions(checkout), input: input.join("") })
}

export const dropRefs = (checkout: Checkout, taskID: string): Promise<void> =>
  writeRefs(checkout, taskID, Object.fromEntries(KINDS.map((kind) => [kind, undefined])))

/** A task's refs: the tree of each, and the time of the youngest in ms. */
export type TaskRefs = {
  readonly taskID: string
  readonly keptAt: number
  readonly trees: Readonly<Partial<Record<RefKind, string>>>
  /** True if the task's agent left work that is in no file of the state: stashed, or committed. */
  readonly leftWork: boolean
}

/** Beginning of the message of a `stash` commit if stashed work did not apply to the task's files. */
export const LEFT_IN_STASH = "superagents: the stash, and work that was left in it"

/** Beginning of the message of a `state` commit if the agent has committed what its files lack. */
export const LEFT_IN_COMMITS = "superagents: its work, and commits that its files lack"

const LEFT_MESSAGES: Partial<Record<RefKind, string>> = { state: LEFT_IN_COMMITS, stash: LEFT_IN_STASH }

/** Whether the message of a task's ref says that its agent left work which is in no file of the state. */
export const hasLeftWork = async (checkout: Checkout, kind: "state" | "stash", commit: string): Promise<boolean> =>
  (await messageIn(sharedGitOptions(checkout), commit)).split("\n", 1)[0] === LEFT_MESSAGES[kind]

/**
 * Work that is in no file of a state. `during`: the operation of git that the run's end interrupted. `commits`: what the
 * agent had committed, or git had put aside for it; the state has them among its ancestors. Read with care, because
 * another machine may have written it.
 */
export const LeftWork = z.object({
  during: Operation.optional(),
  commits: z.array(z.string().regex(/^[0-9a-f]{40,64}$/)),
})
export type LeftWork = z.infer<typeof LeftWork>

/** All tasks with refs in the repository. */
export async function listTaskRefs(checkout: Checkout): Promise<readonly TaskRefs[]> {
  const format = "--format=%(refname) %(tree) %(committerdate:unix) %(contents:subject)"
  const lines = (await gitLine(["for-each-ref", format, ...Object.values(PREFIXES)], sharedGitOptions(checkout))).split(
    "\n",
  )
  type Found = { keptAt: number; trees: Partial<Record<RefKind, string>>; leftWork: boolean }
  const found = new Map<string, Found>()
  for (const line of lines) {
    const [name = "", tree = "", seconds, ...subject] = line.split(" ")
    const kind = KINDS.find((candidate) => name.startsWith(PREFIXES[candidate]))
    if (!kind) continue
    const taskID = name.slice(PREFIXES[kind].length)
    const entry: Found = found.get(taskID) ?? { keptAt: 0, trees: {}, leftWork: false }
    entry.trees[kind] = tree
    entry.leftWork ||= subject.join(" ") === LEFT_MESSAGES[kind]
    entry.keptAt = Math.max(entry.keptAt, Number(seconds) * 1000)
    found.set(taskID, entry)
  }
  return [...found].map(([taskID, entry]) => ({ taskID, ...entry }))
}

/** True while a task's work is not in its parent's files. */
export const isUnmerged = ({ trees, leftWork }: TaskRefs): boolean =>
  trees.merge !== undefined || leftWork || (trees.state !== undefined && trees.state !== trees.base)

const WAIT_MS = 300_000

type Locking = { readonly processes: Processes }
export type Repository = Pick<Checkout, "commonDir">

/** Lock of a repository, for a merge, or for changes of git's list of worktrees or of the stash. */
export const lockOf = (
  { processes }: Locking,
  { commonDir }: Repository,
  what: "merge" | "worktrees" | "stash",
): Lock => new Lock(commonDir, `superagents-${what}`, processes)

/** Lock for archiving a task's worktree: only one process at a time does so. */
export const folderLock = ({ processes }: Locking, folder: string): Lock =>
  new Lock(dirname(folder), `lock-${basename(folder)}`, processes)

/** Runs `work` while it holds the lock. Throws a `CallError` if others hold the lock for too long. */
export const withLock = <Value>(lock: Lock, work: () => Promise<Value>): Promise<Value> =>
  lock.hold(WAIT_MS, late, work)

/**
 * Reads a checkout's files while no merge writes them. A merge that starts during the reading outlasts it, so its lock
 * is seen afterwards and the files are read again.
 */
export async function betweenMerges<Value>(
  ports: Locking,
  home: Repository,
  read: () => Promise<Value>,
): Promise<Value> {
  const lock = lockOf(ports, home, "merge")
  const value = (await lock.isTaken()) ? undefined : await read()
  return value === undefined || (await lock.isTaken()) ? withLock(lock, read) : value
}

const late = (): Error =>
  new CallError(
    `Not done: another process has been at work on this repository for ${WAIT_MS / MINUTE_MS} minutes. Try again when it is done.`,
  )
