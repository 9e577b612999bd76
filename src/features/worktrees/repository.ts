import { basename, dirname } from "node:path"
import { CallError } from "../../core/errors.ts"
import { MINUTE_MS } from "../../lib/format.ts"
import { Lock, type Processes } from "../../lib/lock.ts"
import { type Checkout, sharedGitOptions } from "./checkout.ts"
import { git, gitLine } from "./git.ts"

/**
 * Refs of a task:
 * - `state`: the task's work at the end of its last run;
 * - `base`: commit from which the work is counted: the state at the task's start, or at the last merge;
 * - `start`: like `base`, but a merge does not move it before the next run;
 * - `merge`: a merge that is in progress, as a commit with both states as parents and the result as tree;
 * - `conflict`: the parent's state at the last conflict, or the commit with the conflicts that the agent was given;
 * - `ignored`: ignored files of the task's runs;
 * - `stash`: git's stash at the run's start, and, after the run's end, what became of the entries.
 */
export type RefKind = "state" | "base" | "start" | "merge" | "conflict" | "ignored" | "stash"

const PREFIXES: Record<RefKind, string> = {
  state: "refs/superagents/",
  base: "refs/superagents-base/",
  start: "refs/superagents-start/",
  merge: "refs/superagents-merge/",
  conflict: "refs/superagents-conflict/",
  ignored: "refs/superagents-ignored/",
  stash: "refs/superagents-stash/",
}
const KINDS = Object.keys(PREFIXES) as RefKind[]

export const refOf = (kind: RefKind, taskID: string): string => `${PREFIXES[kind]}${taskID}`

/** Commit of a task's ref, if it exists. */
export async function readRef(checkout: Checkout, kind: RefKind, taskID: string): Promise<string | undefined> {
  const args = ["rev-parse", "--verify", "--quiet", `${refOf(kind, taskID)}^{commit}`]
  const { code, out } = await git(args, { ...sharedGitOptions(checkout), accept: [1] })
  return code === 0 ? out.trim() : undefined
}

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
  writeRefs(checkout, taskID, {
    state: undefined,
    base: undefined,
    start: undefined,
    merge: undefined,
    conflict: undefined,
    ignored: undefined,
    stash: undefined,
  })

/** A task's refs: the tree of each, and the time of the youngest in ms. */
export type TaskRefs = {
  readonly taskID: string
  readonly keptAt: number
  readonly trees: Readonly<Partial<Record<RefKind, string>>>
  /** True if the task's agent stashed work that does not apply to the task's files. */
  readonly leftInStash: boolean
}

/** Beginning of the message of a `stash` commit if stashed work did not apply to the task's files. */
export const LEFT_IN_STASH = "superagents: the stash, and work that was left in it"

/** All tasks with refs in the repository. */
export async function listTaskRefs(checkout: Checkout): Promise<readonly TaskRefs[]> {
  const format = "--format=%(refname) %(tree) %(committerdate:unix) %(contents:subject)"
  const lines = (await gitLine(["for-each-ref", format, ...Object.values(PREFIXES)], sharedGitOptions(checkout))).split(
    "\n",
  )
  type Found = { keptAt: number; trees: Partial<Record<RefKind, string>>; leftInStash: boolean }
  const found = new Map<string, Found>()
  for (const line of lines) {
    const [name = "", tree = "", seconds, ...subject] = line.split(" ")
    const kind = KINDS.find((candidate) => name.startsWith(PREFIXES[candidate]))
    if (!kind) continue
    const taskID = name.slice(PREFIXES[kind].length)
    const entry: Found = found.get(taskID) ?? { keptAt: 0, trees: {}, leftInStash: false }
    entry.trees[kind] = tree
    if (kind === "stash") entry.leftInStash = subject.join(" ") === LEFT_IN_STASH
    entry.keptAt = Math.max(entry.keptAt, Number(seconds) * 1000)
    found.set(taskID, entry)
  }
  return [...found].map(([taskID, entry]) => ({ taskID, ...entry }))
}

/** True while a task's work is not in its parent's files. */
export const isUnmerged = ({ trees, leftInStash }: TaskRefs): boolean =>
  trees.merge !== undefined || leftInStash || (trees.state !== undefined && trees.state !== trees.base)

const WAIT_MS = 300_000

type Locking = { readonly processes: Processes }
type Repository = Pick<Checkout, "commonDir">

/** Lock for a merge: only one at a time runs in a repository. */
export const mergeLock = ({ processes }: Locking, { commonDir }: Repository): Lock =>
  new Lock(commonDir, "superagents-merge", processes)

/** Lock for changes of git's list of worktrees: only one at a time is made in a repository. */
export const notesLock = ({ processes }: Locking, { commonDir }: Repository): Lock =>
  new Lock(commonDir, "superagents-worktrees", processes)

/** Lock for changes of the stash: only one at a time is made in a repository. */
export const stashLock = ({ processes }: Locking, { commonDir }: Repository): Lock =>
  new Lock(commonDir, "superagents-stash", processes)

/** Lock for adding a new worktree to the total size. Without it, two processes could exceed the limit together. */
export const sizesLock = ({ processes, root }: Locking & { readonly root: string }): Lock =>
  new Lock(root, "lock-sizes", processes)

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
  const lock = mergeLock(ports, home)
  const value = (await lock.isTaken()) ? undefined : await read()
  return value === undefined || (await lock.isTaken()) ? withLock(lock, read) : value
}

const late = (): Error =>
  new CallError(
    `Not done: another process has been at work on this repository for ${WAIT_MS / MINUTE_MS} minutes. Try again when it is done.`,
  )
