import { constants } from "node:fs"
import { access, lstat } from "node:fs/promises"
import { dirname, join } from "node:path"
import { listed } from "../../core/errors.ts"
import { succeeds } from "../../lib/succeeds.ts"
import { at, type Checkout } from "./checkout.ts"
import { git, gitList } from "./git.ts"

/** Most names of one kind in a text. */
const MOST_NAMES = 10

type Hindrance = "sparse" | "hidden" | "unreadable" | "ignored" | "untracked" | "written"

const TEXTS: Record<Hindrance, (names: string) => string> = {
  sparse: (names) =>
    `${names} lies outside of your sparse checkout, where a merge writes nothing: bring it in with git sparse-checkout add, then merge again.`,
  hidden: (names) =>
    `Git is told not to look at ${names}, so what you have there is in no merge: take that back with git update-index --no-skip-worktree --no-assume-unchanged, then merge again.`,
  unreadable: (names) => `${names} may not be read: let it be read, or move it away, then merge again.`,
  ignored: (names) =>
    `${names} is there, and git ignores it or what it holds, so it is never overwritten: move it away, then merge again.`,
  untracked: (names) => `${names} is there, and git does not track it: move it away, then merge again.`,
  written: (names) => `${names} was written in the same moment: merge again.`,
}

/**
 * Why these files of the user block a merge, and what the user can do. Solving it in the task's worktree is impossible:
 * the states fit there.
 */
export async function adviceOn(home: Checkout, paths: readonly string[]): Promise<string> {
  const blocking = await Promise.all(paths.map((path) => blocker(home.top, path)))
  const [{ flags, tracked }, ignored] = await Promise.all([trackedOf(home, paths), ignoredOf(home, blocking)])
  const found = new Map<Hindrance, Set<string>>()
  for (const [nth, path] of paths.entries()) {
    const name = blocking[nth] ?? path
    const kind = flags.has(path) ? await flagged(home, path) : await hindrance(home, name, { ignored, tracked })
    found.set(kind, (found.get(kind) ?? new Set()).add(name))
  }
  return [...found].map(([kind, names]) => TEXTS[kind](listed([...names], MOST_NAMES))).join(" ")
}

const stat = (home: Checkout, path: string) => lstat(join(home.top, path)).catch(() => undefined)

/** The path itself, or a file above it that blocks a folder. */
async function blocker(top: string, path: string): Promise<string> {
  for (let above = dirname(path); above !== "."; above = dirname(above)) {
    const found = await lstat(join(top, above)).catch(() => undefined)
    if (found && !found.isDirectory()) return above
  }
  return path
}

const flagged = async (home: Checkout, path: string): Promise<Hindrance> =>
  (await stat(home, path)) ? "hidden" : "sparse"

type Known = { readonly ignored: ReadonlySet<string>; readonly tracked: ReadonlySet<string> }

async function hindrance(home: Checkout, name: string, { ignored, tracked }: Known): Promise<Hindrance> {
  const found = await stat(home, name)
  // A folder blocks by its ignored files; all others would be removed.
  if (found?.isDirectory() || ignored.has(name)) return "ignored"
  const isReadable = await succeeds(access(join(home.top, name), constants.R_OK))
  if (found?.isFile() && !isReadable) return "unreadable"
  return found && !tracked.has(name) ? "untracked" : "written"
}

/** Tracked files that git was told not to check: `S` for skip-worktree, lower case for assume-unchanged. */
async function trackedOf(home: Checkout, paths: readonly string[]) {
  const names = new Set(paths)
  const all = await gitList(["ls-files", "-v", "-z"], { ...at(home), timeLimit: 300_000 })
  const entries = all.filter((entry) => names.has(entry.slice(2)))
  const named = (some: readonly string[]): ReadonlySet<string> => new Set(some.map((entry) => entry.slice(2)))
  return { tracked: named(entries), flags: named(entries.filter((entry) => /^[Sa-z]/.test(entry))) }
}

async function ignoredOf(home: Checkout, paths: readonly string[]): Promise<ReadonlySet<string>> {
  const input = paths.map((path) => `${path}\0`).join("")
  const { out } = await git(["check-ignore", "-z", "--stdin"], { ...at(home), input, accept: [1] })
  return new Set(out.split("\0"))
}
