import { randomUUID } from "node:crypto"
import type { Stats } from "node:fs"
import {
  chmod,
  copyFile,
  link,
  lstat,
  mkdir,
  readdir,
  readlink,
  rename,
  rm,
  rmdir,
  symlink,
  unlink,
} from "node:fs/promises"
import { dirname, join } from "node:path"
import { messageOf } from "../../core/errors.ts"
import type { Fault } from "../../runtime/places/fault.ts"
import { type Change, EXECUTABLE, type TreeEntry } from "./diff.ts"

/**
 * A path is blocked or changed meanwhile. No change was made, but content that was saved over a file during the
 * exchange stays, and is named.
 */
export class PathBlocked extends Error {
  override readonly name = "PathBlocked"
  readonly paths: readonly string[]
  constructor(paths: readonly string[]) {
    super(`in the way: ${paths.join(", ")}`)
    this.paths = paths
  }
}

/** A failure that could not be undone: some files are new, some old, none is lost. */
export class PartialExchange extends Error {
  override readonly name = "PartialExchange"
}

export type Exchange = {
  /** Folder with new files under `new`, and space for old ones under `old`. */
  readonly stage: string
  readonly keep: string
  readonly fault: Fault
  /** State of each path at the comparison. */
  readonly seen: ReadonlyMap<string, Stats>
}

/** A change that was made, and the file now there; undefined after a removal. */
type Done = { readonly change: Change; placed?: Stats | "nothing" }

/**
 * Applies changes in order: removals first, since a folder may replace a file and a file a folder. A failure undoes
 * those before it.
 */
export async function exchange(top: string, changes: readonly Change[], work: Exchange): Promise<void> {
  const ordered = [...changes.filter(({ to }) => !to), ...changes.filter(({ to }) => to)]
  const done: Done[] = []
  try {
    for (const change of ordered) {
      await unchanged(top, change, work)
      const step: Done = { change }
      done.push(step)
      await exchangeOne(top, step, work)
      work.fault("merge: one file")
    }
  } catch (error) {
    const stay = await putAllBack(top, done.reverse(), work, error)
    if (stay.length === 0) throw error
    if (error instanceof PathBlocked) throw new PathBlocked([...error.paths, ...stay])
    throw new Error(`${messageOf(error)}. What was saved meanwhile stays as it is: ${stay.join(", ")}`)
  }
}

/** Returns paths with files that are not from this exchange: they stay. */
async function putAllBack(top: string, done: readonly Done[], work: Exchange, why: unknown): Promise<string[]> {
  const stay: string[] = []
  const failures: string[] = []
  for (const step of done) {
    try {
      if (!(await putBack(top, step, work))) stay.push(step.change.path)
    } catch (failure) {
      failures.push(`${step.change.path} (${messageOf(failure)})`)
    }
  }
  if (failures.length > 0)
    throw new PartialExchange(`${messageOf(why)}; and these could not be put back: ${failures.join(", ")}`)
  return stay
}

/** Last check before a file is touched: it may have been written since. */
async function unchanged(top: string, { path, from }: Change, { seen }: Exchange): Promise<void> {
  const now = await stat(join(top, path))
  const before = seen.get(path)
  const same = from
    ? now && before && now.mtimeMs === before.mtimeMs && now.size === before.size && now.ino === before.ino
    : !now || now.isDirectory()
  if (!same) throw new PathBlocked([path])
}

async function exchangeOne(top: string, step: Done, { stage, keep, seen }: Exchange): Promise<void> {
  const { path, from, to } = step.change
  const target = join(top, path)
  const fresh = join(stage, "new", path)
  if (from) await keepOld(target, join(stage, "old", path))
  if (!to) {
    await unlink(target)
    step.placed = "nothing"
    await dropEmpty(top, dirname(path), keep)
    return
  }
  await mkdir(dirname(target), { recursive: true })
  if ((await stat(target))?.isDirectory()) await dropEmptyTree(target)
  const before = seen.get(path)
  // The user decides who may read a file; git only stores whether it is executable.
  if (before?.isFile() && isFile(to)) await chmod(fresh, runnable(before.mode & 0o7777, from, to))
  step.placed = await move(fresh, target)
}

const isFile = ({ mode }: TreeEntry): boolean => mode === "100644" || mode === EXECUTABLE

/** Adds or removes execute permission where the change does, for all who may read. */
function runnable(mode: number, from: TreeEntry | undefined, to: TreeEntry): number {
  if (from?.mode === to.mode) return mode
  return to.mode === EXECUTABLE ? mode | ((mode & 0o444) >> 2) : mode & ~0o111
}

async function keepOld(file: string, old: string): Promise<void> {
  await mkdir(dirname(old), { recursive: true })
  if ((await lstat(file)).isSymbolicLink()) return symlink(await readlink(file), old)
  try {
    await link(file, old)
  } catch {
    await copyFile(file, old)
  }
}

/** Undoes an exchange, complete or not; false where another file is there now, which stays. */
async function putBack(top: string, { change, placed }: Done, { stage, keep }: Exchange): Promise<boolean> {
  if (!placed) return true
  const { path, from } = change
  const target = join(top, path)
  const now = await stat(target)
  if (placed === "nothing" ? now !== undefined : !now || !isSame(now, placed)) return false
  if (from) {
    await mkdir(dirname(target), { recursive: true })
    await move(join(stage, "old", path), target)
    return true
  }
  await unlink(target)
  await dropEmpty(top, dirname(path), keep)
  return true
}

const isSame = (one: Stats, other: Stats): boolean =>
  one.ino === other.ino && one.mtimeMs === other.mtimeMs && one.size === other.size && one.mode === other.mode

/**
 * Moves a file; between disks via a copy next to the target, so that the target changes at once. Returns the file's new
 * state.
 */
async function move(from: string, to: string): Promise<Stats> {
  const moved = await lstat(from)
  try {
    await rename(from, to)
    return moved
  } catch (error) {
    if ((error as { code?: string }).code !== "EXDEV") throw error
    const beside = join(dirname(to), `.superagents-${randomUUID()}`)
    try {
      if (moved.isSymbolicLink()) await symlink(await readlink(from), beside)
      else await copyFile(from, beside)
      const copied = await lstat(beside)
      await rename(beside, to)
      // It goes with its folder anyway; after the target has changed, nothing may fail.
      await unlink(from).catch(() => {})
      return copied
    } catch (failure) {
      await rm(beside, { force: true })
      throw failure
    }
  }
}

/** Removes empty folders upwards, except the working folder. */
async function dropEmpty(top: string, folder: string, keep: string): Promise<void> {
  for (let path = folder; path !== "." && path !== "" && !`${keep}/`.startsWith(`${path}/`); path = dirname(path)) {
    try {
      await rmdir(join(top, path))
    } catch {
      return
    }
  }
}

async function dropEmptyTree(folder: string): Promise<void> {
  for (const entry of await readdir(folder)) await dropEmptyTree(join(folder, entry))
  await rmdir(folder)
}

/** Undefined where nothing exists. */
export async function stat(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path)
  } catch (error) {
    const { code } = error as { code?: string }
    // Nothing can exist below a file, or below a link to itself.
    if (code === "ENOENT" || code === "ENOTDIR" || code === "ELOOP") return undefined
    throw error
  }
}
