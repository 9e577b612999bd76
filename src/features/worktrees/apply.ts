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
import { basename, dirname, join } from "node:path"
import { messageOf } from "../../core/errors.ts"
import { type Fault, git, gitList, LONG_MS } from "./git.ts"
import { type Change, changesBetween, EXECUTABLE, isFile, type TreeEntry } from "./objects.ts"
import { type Checkout, gitOptions, obstacleAbove } from "./repository.ts"
import { filesOf, withEntries, withIndex } from "./snapshot.ts"

/**
 * A path is blocked, or its file was changed during the merge. The changes were undone, but files that somebody saved
 * during the exchange stay, and `paths` names them.
 */
export class PathBlocked extends Error {
  override readonly name = "PathBlocked"
  readonly paths: readonly string[]
  constructor(paths: readonly string[]) {
    super(`in the way: ${paths.join(", ")}`)
    this.paths = paths
  }
}

/** A failed exchange that could not be undone. Some files are new and some are old, but no content is lost. */
export class PartialExchange extends Error {
  override readonly name = "PartialExchange"
}

type Exchange = {
  /** Folder that holds the new files under `new`, and gets the old files under `old`. */
  readonly stage: string
  readonly keep: string
  readonly fault: Fault
  /**
   * File status of each path just before its content was compared. A different status later shows a write in between.
   */
  readonly seen: ReadonlyMap<string, Stats>
}

/**
 * A change that was begun. `placed`: the file that is there since; "nothing" after a removal; undefined while the
 * target is unchanged.
 */
type Done = { readonly change: Change; placed?: Stats | "nothing" }

/**
 * Applies changes in order, removals first, since a folder may replace a file and a file a folder. If one change fails,
 * the earlier ones are undone.
 */
async function exchange(top: string, changes: readonly Change[], work: Exchange): Promise<void> {
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

/** Undoes changes. Returns the paths at which another program has put a file meanwhile: these files stay. */
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

/**
 * Checks a path for the last time before its file is touched. Throws `PathBlocked` if the file was written since it was
 * compared.
 */
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
  // The file keeps its access rights, which are the user's decision. Git stores only whether a file is executable.
  if (before?.isFile() && isFile(to)) await chmod(fresh, runnable(before.mode & 0o7777, from, to))
  step.placed = await move(fresh, target)
}

/**
 * Mode of the new file. If the change adds or removes execute permission, it is added for all who may read, or removed.
 */
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

/** Undoes one change. Returns false if another file is there now: this file stays. */
async function putBack(top: string, { change, placed }: Done, { stage, keep }: Exchange): Promise<boolean> {
  if (!placed) return true
  const { path, from } = change
  const target = join(top, path)
  const now = await stat(target)
  if (placed === "nothing" ? now !== undefined : !now || !isSameFile(now, placed)) return false
  if (from) {
    await mkdir(dirname(target), { recursive: true })
    await move(join(stage, "old", path), target)
    return true
  }
  await unlink(target)
  await dropEmpty(top, dirname(path), keep)
  return true
}

const isSameFile = (one: Stats, other: Stats): boolean =>
  one.ino === other.ino && one.mtimeMs === other.mtimeMs && one.size === other.size && one.mode === other.mode

/**
 * Moves a file and returns its new status. Between disks, a copy is first made next to the target, so that the target
 * changes at once.
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
      // The old file is deleted with its folder anyway. After the target has changed, nothing may fail.
      await unlink(from).catch(() => {})
      return copied
    } catch (failure) {
      await rm(beside, { force: true })
      throw failure
    }
  }
}

/** Removes a folder and the folders above it, as long as they are empty. The working folder stays. */
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

/** Status of a path; undefined if nothing exists there. */
async function stat(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path)
  } catch (error) {
    const { code } = error as { code?: string }
    // Nothing can exist below a file, or below a link to itself.
    if (code === "ENOENT" || code === "ENOTDIR" || code === "ELOOP") return undefined
    throw error
  }
}

/**
 * Applies changes to a checkout's files, all or none; index, HEAD and other files do not change. New files are first
 * written next to the repository, so that a full disk changes nothing, then swapped in one by one, so that a crash
 * leaves each file old or new. Throws `PathBlocked` where a file is not as expected; `tree` contains all new files.
 */
export async function applyChanges(
  checkout: Checkout,
  changes: readonly Change[],
  work: { readonly tree: string; readonly stage: string; readonly keep: string; readonly fault: Fault },
): Promise<void> {
  const { tree, stage, keep, fault } = work
  await rm(stage, { recursive: true, force: true })
  await mkdir(join(stage, "old"), { recursive: true })
  try {
    await writeNew(checkout, changes, `${stage}/new/`, tree)
    const seen = await look(checkout, changes, tree)
    fault("merge: staged")
    await exchange(checkout.top, changes, { stage, keep, fault, seen })
  } finally {
    await rm(stage, { recursive: true, force: true }).catch(() => {})
  }
}

async function writeNew(checkout: Checkout, changes: readonly Change[], prefix: string, tree: string): Promise<void> {
  await mkdir(prefix, { recursive: true })
  // Git converts files as the checkout's .gitattributes say, but changed .gitattributes are not in the checkout yet.
  // The tree has them.
  if (changes.some(({ path }) => basename(path) === ".gitattributes")) return writeFrom(tree, checkout, changes, prefix)
  const entries = changes.flatMap(({ path, to }) => (to ? [{ path, ...to }] : []))
  await withEntries(checkout, entries, (index) =>
    git(["checkout-index", "--all", "--force", "--quiet", `--prefix=${prefix}`], {
      ...gitOptions(checkout),
      index,
      timeLimit: LONG_MS,
    }),
  )
}

const writeFrom = (tree: string, { gitDir }: Checkout, changes: readonly Change[], folder: string): Promise<void> =>
  withIndex(async (index) => {
    const run = { cwd: folder, gitDir, index, timeLimit: LONG_MS }
    await git(["read-tree", tree], run)
    const input = changes.flatMap(({ path, to }) => (to ? [`${path}\0`] : [])).join("")
    await git(["checkout-index", "--force", "--quiet", "--ignore-skip-worktree-bits", "-z", "--stdin"], {
      ...run,
      input,
    })
  })

/** Reads the status of the present files. Throws `PathBlocked` if a file is not as its change expects. */
async function look(checkout: Checkout, changes: readonly Change[], tree: string): Promise<Map<string, Stats>> {
  const seen = new Map<string, Stats>()
  // Each file's time is read before its content is compared, so that any later write shows in one of the two.
  for (const { path, from } of changes) {
    const found = from && (await stat(join(checkout.top, path)))
    if (found) seen.set(path, found)
  }
  const inTheWay = new Set(await differing(checkout, changes, tree))
  const leaving = new Set(changes.filter(({ to }) => !to).map(({ path }) => path))
  // On a case-insensitive disk, the new name of a file that is renamed in case only finds the old file. Such a file
  // does not block.
  const left = [...seen].flatMap(([path, found]) => (leaving.has(path) ? [`${found.dev} ${found.ino}`] : []))
  const isLeaving = (found: Stats | undefined) =>
    found?.isDirectory() === false && left.includes(`${found.dev} ${found.ino}`)
  for (const change of changes) {
    const found = await stat(join(checkout.top, change.path))
    if (change.to && !isLeaving(found) && (await blocked(checkout.top, change, found, leaving)))
      inTheWay.add(change.path)
  }
  if (inTheWay.size > 0) throw new PathBlocked([...inTheWay])
  return seen
}

/** Paths whose present files differ from what the changes start with. */
async function differing(checkout: Checkout, changes: readonly Change[], tree: string): Promise<string[]> {
  const entries = changes.flatMap(({ path, from }) => (from ? [{ path, ...from }] : []))
  const names = await withEntries(checkout, entries, async (index) => {
    const run = { ...gitOptions(checkout), index, timeLimit: LONG_MS }
    await git(["update-index", "-q", "--refresh"], { ...run, accept: [1] })
    return gitList(["diff-files", "-z", "--name-only"], run)
  })
  if (names.length === 0) return names
  // Line end and filter settings change what git would store. So git's own view of the files is compared, as for the
  // changes.
  const now = await filesOf(checkout, tree, "whole")
  const unread = new Set(now.unreadable)
  const seen = new Map((await changesBetween(checkout, tree, now.tree)).map(({ path, to }) => [path, to]))
  const wanted = new Map(entries.map((entry) => [entry.path, entry]))
  return names.filter((name) => unread.has(name) || !isSame(seen.get(name), wanted.get(name)))
}

const isSame = (one: TreeEntry | undefined, other: TreeEntry | undefined): boolean =>
  one?.oid === other?.oid && one?.mode === other?.mode

async function blocked(
  top: string,
  { path, from }: Change,
  found: Stats | undefined,
  leaving: ReadonlySet<string>,
): Promise<boolean> {
  const above = await obstacleAbove(top, path)
  if (above !== undefined && !leaving.has(above)) return true
  if (!found || from) return false
  return !found.isDirectory() || !(await onlyHolds(top, path, leaving))
}

/** Whether a folder contains only files that the changes remove. */
async function onlyHolds(top: string, folder: string, leaving: ReadonlySet<string>): Promise<boolean> {
  for (const entry of await readdir(join(top, folder), { withFileTypes: true })) {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory() ? !(await onlyHolds(top, path, leaving)) : !leaving.has(path)) return false
  }
  return true
}
