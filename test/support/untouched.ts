import { existsSync } from "node:fs"
import { join } from "node:path"
import type { Worktrees } from "../../src/features/worktrees/worktrees.ts"
import { Repository } from "./repository.ts"

/** The folder that each call is about, and the only ones that may change files there. */
const FOLDERS: Record<string, (args: readonly unknown[]) => unknown> = {
  capture: ([, folder]) => folder,
  enter: ([request]) => (request as { folder: string }).folder,
  archive: ([, folder]) => folder,
  show: ([, folder]) => folder,
  merge: ([, folder]) => folder,
  bringIn: ([, folder]) => folder,
  clear: ([folder]) => folder,
  expire: ([folder]) => folder,
  sweep: ([folder]) => folder,
}
const MAY_CHANGE_FILES = ["merge", "sweep"]

/** What others than a call may change while it runs: these files; the stash, too. */
export type Others = { readonly files: string[]; stash: boolean }

/** Calls that are under way, and what the test itself did to a checkout meanwhile. */
const underWay = new Map<string, { calls: number; overlapped: boolean }>()

/**
 * The same worktrees, watched: whatever a call does, the checkout that it is about must have the same index, HEAD, refs,
 * stash with its log, configuration and hooks afterwards, and the same bytes, modes and links in all files but those
 * that a merge names. What the test does through a `Repository` while the call runs is the user's own.
 */
export function untouched(worktrees: Worktrees, others: Others): Worktrees {
  return new Proxy(worktrees, {
    get(target, name) {
      const method = Reflect.get(target, name) as unknown
      const folderOf = FOLDERS[String(name)]
      if (typeof method !== "function") return method
      if (!folderOf) return method.bind(target)
      return async (...args: unknown[]) => {
        const call = () => method.apply(target, args) as Promise<unknown>
        return watched(String(name), String(folderOf(args)), call, others)
      }
    },
  })
}

async function watched(name: string, folder: string, call: () => Promise<unknown>, others: Others) {
  const top = topOf(folder)
  if (top === undefined) return call()
  const checkout = new Repository(top)
  const entry = underWay.get(top) ?? { calls: 0, overlapped: false }
  underWay.set(top, entry)
  entry.calls++
  if (entry.calls > 1) entry.overlapped = true
  const own = checkout.noteOwn()
  const cutOff = cutOffFiles(checkout)
  const before = { files: checkout.files(), repository: checkout.repositoryState() }
  let named: readonly string[] = []
  try {
    const result = (await call()) as { kind?: string; files?: readonly string[] } | undefined
    if (name === "merge" && result?.kind === "merged") named = result.files ?? []
    return result
  } finally {
    const { overlapped } = entry
    if (--entry.calls === 0) underWay.delete(top)
    own.stop()
    if (existsSync(join(top, ".git"))) {
      const mayChange = MAY_CHANGE_FILES.includes(name) ? [...named, ...cutOff] : []
      if (!overlapped) expectSame(name, before.files, checkout.files(), [...mayChange, ...own.names, ...others.files])
      const now = checkout.repositoryState()
      const stash = others.stash ? ["(refs)", "(git logs/refs/stash)"] : []
      if (!own.usedGit) expectSame(name, before.repository, now, stash)
    }
  }
}

function expectSame(
  call: string,
  before: Record<string, string>,
  now: Record<string, string>,
  except: readonly string[],
): void {
  const names = new Set([...Object.keys(before), ...Object.keys(now)])
  const changed = [...names].filter((name) => !except.includes(name) && before[name] !== now[name])
  if (changed.length > 0) {
    const shown = changed.map((name) => `${name}: ${before[name]?.slice(0, 300)} → ${now[name]?.slice(0, 300)}`)
    throw new Error(`${call} touched what is the user's:\n${shown.join("\n")}`)
  }
}

/** The files of merges into a checkout that were cut off: whoever comes next finishes them. */
function cutOffFiles(checkout: Repository): string[] {
  const merges = checkout.ours().filter((name) => name.startsWith("refs/superagents-merge/"))
  return merges.flatMap((ref) =>
    checkout.git("diff-tree", "-r", "-z", "--name-only", `${ref}^1`, ref).split("\0").filter(Boolean),
  )
}

function topOf(folder: string): string | undefined {
  try {
    return new Repository(folder, false).git("rev-parse", "--show-toplevel").trim() || undefined
  } catch {
    return undefined
  }
}
