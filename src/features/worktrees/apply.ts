import type { Stats } from "node:fs"
import { mkdir, readdir, rm } from "node:fs/promises"
import { basename, join } from "node:path"
import type { Fault } from "../../runtime/places/fault.ts"
import { type Checkout, gitOptions } from "./checkout.ts"
import { type Change, changesBetween, type TreeEntry } from "./diff.ts"
import { exchange, PathBlocked, stat } from "./exchange.ts"
import { git, gitList } from "./git.ts"
import { filesOf, withIndex } from "./snapshot.ts"

const LONG_MS = 900_000

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
  // Git writes files as .gitattributes in the checkout say; new ones are not there yet.
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

const withEntries = <Value>(
  checkout: Checkout,
  entries: readonly (TreeEntry & { readonly path: string })[],
  work: (index: string) => Promise<Value>,
): Promise<Value> =>
  withIndex(async (index) => {
    const input = entries.map(({ mode, oid, path }) => `${mode} ${oid}\t${path}\0`).join("")
    await git(["update-index", "-z", "--index-info"], { ...gitOptions(checkout), index, input })
    return work(index)
  })

/** Checks the present files. Throws `PathBlocked` where one is not as its change expects. */
async function look(checkout: Checkout, changes: readonly Change[], tree: string): Promise<Map<string, Stats>> {
  const seen = new Map<string, Stats>()
  // Times are read before contents, so that any later write differs in one of them.
  for (const { path, from } of changes) {
    const found = from && (await stat(join(checkout.top, path)))
    if (found) seen.set(path, found)
  }
  const inTheWay = new Set(await differing(checkout, changes, tree))
  const leaving = new Set(changes.filter(({ to }) => !to).map(({ path }) => path))
  // On a case-insensitive disk, a file renamed in case only is found under its new name before it is moved.
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

/** Files that differ from the changes' start. */
async function differing(checkout: Checkout, changes: readonly Change[], tree: string): Promise<string[]> {
  const entries = changes.flatMap(({ path, from }) => (from ? [{ path, ...from }] : []))
  const names = await withEntries(checkout, entries, async (index) => {
    const run = { ...gitOptions(checkout), index, timeLimit: LONG_MS }
    await git(["update-index", "-q", "--refresh"], { ...run, accept: [1] })
    return gitList(["diff-files", "-z", "--name-only"], run)
  })
  if (names.length === 0) return names
  // Line end and filter settings change what git would store: compare what git sees, as the changes do.
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

/** Whether a folder contains nothing but files that are removed. */
async function onlyHolds(top: string, folder: string, leaving: ReadonlySet<string>): Promise<boolean> {
  for (const entry of await readdir(join(top, folder), { withFileTypes: true })) {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory() ? !(await onlyHolds(top, path, leaving)) : !leaving.has(path)) return false
  }
  return true
}
