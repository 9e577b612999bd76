import { basename, dirname } from "node:path"
import { CallError } from "../../core/errors.ts"
import { Lock, type Processes } from "../../lib/lock.ts"
import type { Checkout } from "./checkout.ts"

const WAIT_MS = 300_000

type Locking = { readonly processes: Processes }
type Repository = Pick<Checkout, "commonDir">

/** One merge into a repository at a time. */
export const mergeLock = ({ processes }: Locking, { commonDir }: Repository): Lock =>
  new Lock(commonDir, "superagents-merge", processes)

/** One change at a time of what git notes of a repository's worktrees. */
export const notesLock = ({ processes }: Locking, { commonDir }: Repository): Lock =>
  new Lock(commonDir, "superagents-worktrees", processes)

/** One change at a time of a repository's stash. */
export const stashLock = ({ processes }: Locking, { commonDir }: Repository): Lock =>
  new Lock(commonDir, "superagents-stash", processes)

/** One who counts what all worktrees hold, and notes what a new one will. */
export const sizesLock = ({ processes, root }: Locking & { readonly root: string }): Lock =>
  new Lock(root, "lock-sizes", processes)

/** One who puts a task's worktree away. */
export const folderLock = ({ processes }: Locking, folder: string): Lock =>
  new Lock(dirname(folder), `lock-${basename(folder)}`, processes)

/** Does the work while nobody else holds the lock. Throws a `CallError` where somebody else holds it too long. */
export const holding = <Value>(lock: Lock, work: () => Promise<Value>): Promise<Value> => lock.hold(WAIT_MS, late, work)

/** Reads a checkout's files as no merge has left them half changed. One that begins meanwhile takes longer than this. */
export async function betweenMerges<Value>(
  ports: Locking,
  home: Repository,
  read: () => Promise<Value>,
): Promise<Value> {
  const lock = mergeLock(ports, home)
  const value = (await lock.isTaken()) ? undefined : await read()
  return value === undefined || (await lock.isTaken()) ? holding(lock, read) : value
}

const late = (): Error =>
  new CallError(
    `Not done: another process has been at work on this repository for ${WAIT_MS / 60_000} minutes. Try again when it is done.`,
  )
