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
import type { Fault } from "../fault.ts"
import { at, type Checkout } from "./checkout.ts"
import { type Change, changesBetween, type Entry, EXECUTABLE } from "./diff.ts"
import { git, gitList } from "./git.ts"
import { filesOf, withIndex } from "./snapshot.ts"

const LONG_MS = 900_000

/** What could not be written because something else is there, or came meanwhile; nothing was changed. */
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

/**
 * Brings these changes into a checkout's files, all of them or none; index, HEAD and all other files stay as they are.
 * The new files are written whole into a folder beside the repository first, so that a full disk is found out before
 * anything is touched; then each takes the old one's place at once. Killed in between, every file is its old or its new
 * self. `tree` has them all. Throws `InTheWay` where a file is not as the changes expect it.
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
  // Git writes files as the .gitattributes in the checkout say; where those come along, they are not there yet.
  if (changes.some(({ path }) => basename(path) === ".gitattributes")) return writeFrom(tree, checkout, changes, prefix)
  const entries = changes.flatMap(({ path, to }) => (to ? [{ path, ...to }] : []))
  await withEntries(checkout, entries, (index) =>
    git(["checkout-index", "--all", "--force", "--quiet", `--prefix=${prefix}`], {
      ...at(checkout),
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

const withEntries = <Value>(
  checkout: Checkout,
  entries: readonly (Entry & { readonly path: string })[],
  work: (index: string) => Promise<Value>,
): Promise<Value> =>
  withIndex(async (index) => {
    const input = entries.map(({ mode, oid, path }) => `${mode} ${oid}\t${path}\0`).join("")
    await git(["update-index", "-z", "--index-info"], { ...at(checkout), index, input })
    return work(index)
  })

/** What stands where each change will be made. Throws `InTheWay` where that is not what the change expects. */
async function look(checkout: Checkout, changes: readonly Change[], tree: string): Promise<Map<string, Stats>> {
  const seen = new Map<string, Stats>()
  // How old they are, and only then what is in them: so what is written from here on differs in one or the other.
  for (const { path, from } of changes) {
    const found = from && (await stat(join(checkout.top, path)))
    if (found) seen.set(path, found)
  }
  const inTheWay = new Set(await differing(checkout, changes, tree))
  const leaving = new Set(changes.filter(({ to }) => !to).map(({ path }) => path))
  for (const change of changes) {
    const found = await stat(join(checkout.top, change.path))
    if (change.to && (await blocked(checkout.top, change, found, leaving))) inTheWay.add(change.path)
  }
  if (inTheWay.size > 0) throw new InTheWay([...inTheWay])
  return seen
}

/** The files that are not what the changes start from. */
async function differing(checkout: Checkout, changes: readonly Change[], tree: string): Promise<string[]> {
  const entries = changes.flatMap(({ path, from }) => (from ? [{ path, ...from }] : []))
  const names = await withEntries(checkout, entries, async (index) => {
    const run = { ...at(checkout), index, timeLimit: LONG_MS }
    await git(["update-index", "-q", "--refresh"], { ...run, accept: [1] })
    return gitList(["diff-files", "-z", "--name-only"], run)
  })
  if (names.length === 0) return names
  // What git would store of a file changes with its settings for line ends and filters; one that it has looked at before
  // is to git what it was. The changes start from what git sees.
  const now = await filesOf(checkout, tree, "whole")
  const seen = new Map((await changesBetween(checkout, tree, now.tree)).map(({ path, to }) => [path, to]))
  const wanted = new Map(entries.map((entry) => [entry.path, entry]))
  return names.filter((name) => !isSame(seen.get(name), wanted.get(name)))
}

const isSame = (one: Entry | undefined, other: Entry | undefined): boolean =>
  one?.oid === other?.oid && one?.mode === other?.mode

async function blocked(
  top: string,
  { path, from }: Change,
  found: Stats | undefined,
  leaving: ReadonlySet<string>,
): Promise<boolean> {
  const parts = path.split("/")
  for (let depth = 1; depth < parts.length; depth++) {
    const above = parts.slice(0, depth).join("/")
    const folder = await stat(join(top, above))
    if (!folder) return false
    if (!folder.isDirectory() && !leaving.has(above)) return true
  }
  if (!found || from) return false
  return !found.isDirectory() || !(await onlyHolds(top, path, leaving))
}

/** Whether a folder holds nothing but files that leave, and folders of such. */
async function onlyHolds(top: string, folder: string, leaving: ReadonlySet<string>): Promise<boolean> {
  for (const entry of await readdir(join(top, folder), { withFileTypes: true })) {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory() ? !(await onlyHolds(top, path, leaving)) : !leaving.has(path)) return false
  }
  return true
}

type Exchange = {
  readonly stage: string
  readonly keep: string
  readonly fault: Fault
  readonly seen: ReadonlyMap<string, Stats>
}

/** First what leaves, then what comes: a folder may take a file's place, and a file a folder's. */
async function exchange(top: string, changes: readonly Change[], work: Exchange): Promise<void> {
  const ordered = [...changes.filter(({ to }) => !to), ...changes.filter(({ to }) => to)]
  const done: Change[] = []
  try {
    for (const change of ordered) {
      await unchanged(top, change, work)
      done.push(change)
      await exchangeOne(top, change, work)
      work.fault("merge: one file")
    }
  } catch (error) {
    try {
      for (const change of done.reverse()) await putBack(top, change, work)
    } catch (failure) {
      throw new HalfDone(`${messageOf(error)}; and it could not be put back: ${messageOf(failure)}`)
    }
    throw error
  }
}

/** The last look before a file is touched: somebody may have written to it since. */
async function unchanged(top: string, { path, from }: Change, { seen }: Exchange): Promise<void> {
  const now = await stat(join(top, path))
  const before = seen.get(path)
  const same = from
    ? now && before && now.mtimeMs === before.mtimeMs && now.ino === before.ino
    : !now || now.isDirectory()
  if (!same) throw new InTheWay([path])
}

async function exchangeOne(top: string, { path, from, to }: Change, { stage, keep, seen }: Exchange): Promise<void> {
  const target = join(top, path)
  const fresh = join(stage, "new", path)
  if (from) await keepOld(target, join(stage, "old", path))
  if (!to) {
    await unlink(target)
    await dropEmpty(top, dirname(path), keep)
    return
  }
  await mkdir(dirname(target), { recursive: true })
  if ((await stat(target))?.isDirectory()) await dropEmptyTree(target)
  const mode = seen.get(path)?.mode
  // Who may read the user's file is the user's matter, as long as nothing was said of it.
  if (mode !== undefined && from?.mode === to.mode && isFile(to)) await chmod(fresh, mode & 0o7777)
  await move(fresh, target)
}

const isFile = ({ mode }: Entry): boolean => mode === "100644" || mode === EXECUTABLE

async function keepOld(file: string, old: string): Promise<void> {
  await mkdir(dirname(old), { recursive: true })
  if ((await lstat(file)).isSymbolicLink()) return symlink(await readlink(file), old)
  try {
    await link(file, old)
  } catch {
    await copyFile(file, old)
  }
}

/** Undoes one exchange, finished or not. */
async function putBack(top: string, { path, from, to }: Change, { stage, keep }: Exchange): Promise<void> {
  const target = join(top, path)
  if (from) {
    const old = join(stage, "old", path)
    if (!(await stat(old))) return
    await mkdir(dirname(target), { recursive: true })
    await move(old, target)
    return
  }
  if (to && !(await stat(join(stage, "new", path)))) {
    await unlink(target)
    await dropEmpty(top, dirname(path), keep)
  }
}

/** Moves a file; between two disks as a copy beside the target first, so that the target changes at once there, too. */
async function move(from: string, to: string): Promise<void> {
  try {
    await rename(from, to)
  } catch (error) {
    if ((error as { code?: string }).code !== "EXDEV") throw error
    const beside = join(dirname(to), `.superagents-${randomUUID()}`)
    try {
      if ((await lstat(from)).isSymbolicLink()) await symlink(await readlink(from), beside)
      else await copyFile(from, beside)
      await rename(beside, to)
    } catch (failure) {
      await rm(beside, { force: true })
      throw failure
    }
    await unlink(from)
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

async function stat(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path)
  } catch (error) {
    const { code } = error as { code?: string }
    if (code === "ENOENT" || code === "ENOTDIR") return undefined
    throw error
  }
}
