import { entriesAt } from "./blobs.ts"
import { type Checkout, gitOptions } from "./checkout.ts"
import { changesBetween, type TreeEntry } from "./diff.ts"
import { git, gitLine, gitList } from "./git.ts"

/** A path at which two states conflict. */
export type Conflict = {
  /** Path in the merged tree: git renames entries that cannot have their own name. */
  readonly path: string
  /** Original name. */
  readonly name: string
  /** Entry of each side; undefined for none. */
  readonly users?: TreeEntry
  readonly agents?: TreeEntry
}

export type Merged = {
  readonly tree: string
  /** Empty where all fits; otherwise the tree is git's best effort. */
  readonly conflicts: readonly Conflict[]
}

export type Sides = { readonly users: string; readonly agents: string }

/**
 * Merges two commits over their common base without touching files. The user's state is always the first side, because
 * settings like `merge=ours` depend on the order.
 */
export async function threeWay(checkout: Checkout, sides: Sides): Promise<Merged> {
  const args = ["merge-tree", "--write-tree", "-z", "--messages", sides.users, sides.agents]
  const { code, out } = await git(args, { ...gitOptions(checkout), accept: [1], timeLimit: 300_000 })
  const items = out.split("\0")
  const tree = items[0] ?? ""
  const swallowed = await swallowedIn(checkout, tree, sides)
  if (code === 0) return { tree, conflicts: swallowed }
  const end = items.indexOf("", 1)
  const told = conflictsIn(items.slice(1, end), sides)
  const conflicts = [...told, ...swallowed.filter(({ path }) => !told.some((each) => each.path === path))]
  // Conflicts of folders alone exist, such as files moved to two folders.
  return { tree, conflicts: conflicts.length > 0 ? conflicts : inMessages(items.slice(end + 1), sides) }
}

/** Parses git's list: `<mode> <object> <side>\t<path>`. */
function conflictsIn(records: readonly string[], sides: Sides): readonly Conflict[] {
  const found = new Map<string, { users?: TreeEntry; agents?: TreeEntry }>()
  for (const record of records) {
    const tab = record.indexOf("\t")
    const [mode = "", oid = "", side] = record.slice(0, tab).split(" ")
    const path = record.slice(tab + 1)
    const entries = found.get(path) ?? {}
    found.set(path, entries)
    if (side === "2") entries.users = { mode, oid }
    if (side === "3") entries.agents = { mode, oid }
  }
  return [...found].map(([path, entries]) => ({ path, name: nameOf(path, sides), ...entries }))
}

/** Parses git's messages: number of paths, paths, subject, text. */
function inMessages(items: readonly string[], sides: Sides): readonly Conflict[] {
  const conflicts: Conflict[] = []
  for (let next = 0; next + 1 < items.length; ) {
    const count = Number(items[next])
    const paths = items.slice(next + 1, next + 1 + count)
    if (items[next + 1 + count]?.startsWith("CONFLICT"))
      conflicts.push(...paths.map((path) => ({ path, name: nameOf(path, sides) })))
    next += count + 3
  }
  return conflicts
}

/** Removes the commit id that git appends to a name in use. */
function nameOf(path: string, { users, agents }: Sides): string {
  const [, name = path, side] = /^(.*)~([0-9a-f]{40,64})(?:_\d+)?$/s.exec(path) ?? []
  return side === users || side === agents ? name : path
}

/**
 * Edits of one side that the merge dropped: git does so silently where the other side moved the file and the first has
 * it at the new path, too.
 */
async function swallowedIn(checkout: Checkout, tree: string, sides: Sides): Promise<readonly Conflict[]> {
  const base = await gitLine(["merge-base", sides.users, sides.agents], gitOptions(checkout))
  const [users, agents] = await Promise.all([
    changesBetween(checkout, base, sides.users),
    changesBetween(checkout, base, sides.agents),
  ])
  const found: Conflict[] = []
  for (const [whose, edits, others] of [
    ["users", users, agents],
    ["agents", agents, users],
  ] as const) {
    const gone = new Set(others.flatMap(({ path, to }) => (to ? [] : [path])))
    const edited = edits.filter(({ path, from, to }) => from && to && gone.has(path))
    if (edited.length === 0) continue
    const moves = await renamesIn(checkout, base, whose === "users" ? sides.agents : sides.users)
    const targets = edited.flatMap(({ path }) => moves.get(path) ?? [])
    const moved = new Map(others.map(({ path, to }) => [path, to?.oid]))
    const merged = await entriesAt(checkout, tree, [...edited.map(({ path }) => path), ...targets])
    for (const { path, to } of edited) {
      const target = moves.get(path)
      const there = target === undefined ? undefined : merged.get(target)?.oid
      const isThere = there !== undefined && (there !== moved.get(target ?? "") || there === to?.oid)
      if (to && !merged.has(path) && !isThere) found.push({ path, name: path, [whose]: to })
    }
  }
  return found
}

/** Moves of a side, by old path. */
async function renamesIn(checkout: Checkout, base: string, side: string): Promise<ReadonlyMap<string, string>> {
  const args = ["diff-tree", "-r", "-z", "-M", "-l0", "--diff-filter=R", "--name-status", base, side]
  const records = await gitList(args, { ...gitOptions(checkout), timeLimit: 300_000 })
  const moves = new Map<string, string>()
  for (let at = 0; at + 2 < records.length; at += 3) moves.set(records[at + 1] ?? "", records[at + 2] ?? "")
  return moves
}
