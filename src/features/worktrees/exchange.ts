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
import { type Change, EXECUTABLE, type TaskHandle } from "./diff.ts"

/**
 * What could not be written because something else is there, or came meanwhile. Nothing was changed, but that what was
 * saved over a file while the changes were made stays: that is named, too.
 */
export class InTheWay extends Error {
  override readonly name = "InTheWay"
  readonly paths: readonly string[]
  constructor(paths: readonly string[]) {
    super(`in the way: ${paths.join(", ")}`)
    this.paths = paths
  }
}

/** What failed halfway and could not be put back: some files are new, some old, none is lost. */
export class HalfDone extends Error {
  override readonly name = "HalfDone"
}

export type Exchange = {
  /** Has the new files whole under `new`, and room for the old ones under `old`. */
  readonly stage: string
  readonly keep: string
  readonly fault: Fault
  /** What stood at each path when it was compared with what the change starts from. */
  readonly seen: ReadonlyMap<string, Stats>
}

/** A change that has been made: what stands there by it; undefined where it took a file away. */
type Done = { readonly change: Change; placed?: Stats | "nothing" }

/**
 * Makes the changes in a checkout's files, one after the other: first what leaves, then what comes, since a folder may
 * take a file's place, and a file a folder's. Where one fails, those before it are put back.
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
    if (error instanceof InTheWay) throw new InTheWay([...error.paths, ...stay])
    throw new Error(`${messageOf(error)}. What was saved meanwhile stays as it is: ${stay.join(", ")}`)
  }
}

/** Returns the paths at which something is that we have not placed: it stays. */
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
    throw new HalfDone(`${messageOf(why)}; and these could not be put back: ${failures.join(", ")}`)
  return stay
}

/** The last look before a file is touched: somebody may have written to it since. */
async function unchanged(top: string, { path, from }: Change, { seen }: Exchange): Promise<void> {
  const now = await stat(join(top, path))
  const before = seen.get(path)
  const same = from
    ? now && before && now.mtimeMs === before.mtimeMs && now.size === before.size && now.ino === before.ino
    : !now || now.isDirectory()
  if (!same) throw new InTheWay([path])
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
  // Who may read the user's file is the user's matter; who may run it is what git keeps.
  if (before?.isFile() && isFile(to)) await chmod(fresh, runnable(before.mode & 0o7777, from, to))
  step.placed = await move(fresh, target)
}

const isFile = ({ mode }: TaskHandle): boolean => mode === "100644" || mode === EXECUTABLE

/** The same mode; where the change makes a file executable, for all who may read it, or takes that away. */
function runnable(mode: number, from: TaskHandle | undefined, to: TaskHandle): number {
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

/** Undoes one exchange, finished or not; false where something else stands there by now, which stays. */
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
 * Moves a file; between two disks as a copy beside the target first, so that the target changes at once there, too.
 * Returns what stands there by it.
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
      // It goes with its folder anyway; once the target is another, nothing may fail.
      await unlink(from).catch(() => {})
      return copied
    } catch (failure) {
      await rm(beside, { force: true })
      throw failure
    }
  }
}

/** Removes folders that have become empty, upwards; not the one that somebody works in. */
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

/** What stands at a path; undefined where nothing does. */
export async function stat(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path)
  } catch (error) {
    const { code } = error as { code?: string }
    // Below a file, or below a link that leads to itself, nothing can stand.
    if (code === "ENOENT" || code === "ENOTDIR" || code === "ELOOP") return undefined
    throw error
  }
}
