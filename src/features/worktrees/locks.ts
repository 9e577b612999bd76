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

/** One change of a repository's worktree list at a time. */
export const notesLock = ({ processes }: Locking, { commonDir }: Repository): Lock =>
  new Lock(commonDir, "superagents-worktrees", processes)

/** One change of a repository's stash at a time. */
export const stashLock = ({ processes }: Locking, { commonDir }: Repository): Lock =>
  new Lock(commonDir, "superagents-stash", processes)

/** Guards the total size of worktrees while a new one is counted. */
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
