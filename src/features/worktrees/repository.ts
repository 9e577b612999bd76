import { basename, dirname } from "node:path"
import { CallError } from "../../core/errors.ts"
import { Lock, type Processes } from "../../lib/lock.ts"
import { type Checkout, sharedGitOptions } from "./checkout.ts"
import { git, gitLine } from "./git.ts"

/**
 * Refs of a task:
 * - `state`: its work at the end of its last run;
 * - `base`: commit from which the work is counted: its start, or the last merge;
 * - `start`: like `base`, but not moved by a merge until the next run;
 * - `merge`: merge in progress, with both states as parents and the result as tree;
 * - `conflict`: the parent's state at the last conflict, or the conflicts given to the agent;
 * - `ignored`: ignored files of its runs;
 * - `stash`: git's stash at the run's start, and at its end what became of it.
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

/** Sets refs of a task, or deletes those given as undefined, in one transaction. */
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

/** Trees of a task's refs, and age of the youngest, in ms. */
export type TaskRefs = {
  readonly taskID: string
  readonly keptAt: number
  readonly trees: Readonly<Partial<Record<RefKind, string>>>
  /** Stashed work exists that does not apply to its files. */
  readonly leftInStash: boolean
}

/** Start of the message of a `stash` commit with stashed work. */
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

/** One merge into a repository at a time. */
export const mergeLock = ({ processes }: Locking, { commonDir }: Repository): Lock =>
  new Lock(commonDir, "superagents-merge", processes)

/** One change of a repository's worktree list at a time. */
export const notesLock = ({ processes }: Locking, { commonDir }: Repository): Lock =>
  new Lock(commonDir, "superagents-worktrees", processes)

/** One change of a repository's stash at a time. */
export const stashLock = ({ processes }: Locking, { commonDir }: Repository): Lock =>
  new Lock(commonDir, "superagents-stash", processes)

/** One process at a time adds a new worktree to the total size, so that two cannot exceed the limit together. */
export const sizesLock = ({ processes, root }: Locking & { readonly root: string }): Lock =>
  new Lock(root, "lock-sizes", processes)

/** One process at a time archives a task's worktree. */
export const folderLock = ({ processes }: Locking, folder: string): Lock =>
  new Lock(dirname(folder), `lock-${basename(folder)}`, processes)

/** Runs `work` under the lock. Throws a `CallError` where it stays locked for too long. */
export const withLock = <Value>(lock: Lock, work: () => Promise<Value>): Promise<Value> =>
  lock.hold(WAIT_MS, late, work)

/** Reads a checkout's files while no merge is writing them. A merge that starts meanwhile takes longer than this. */
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
    `Not done: another process has been at work on this repository for ${WAIT_MS / 60_000} minutes. Try again when it is done.`,
  )
