import { entriesAt } from "./blobs.ts"
import { at, type Checkout } from "./checkout.ts"
import { changesBetween, type TaskHandle } from "./diff.ts"
import { git, gitLine, gitList } from "./git.ts"

/** A path at which two states do not fit together. */
export type Conflict = {
  /** Where it lies in the merged tree: git gives another name to what cannot have its own. */
  readonly path: string
  /** Its own name. */
  readonly name: string
  /** What each side has; undefined where it has nothing there. */
  readonly users?: TaskHandle
  readonly agents?: TaskHandle
}

export type Merged = {
  readonly tree: string
  /** Empty where all fits together; else the tree is what git makes of it. */
  readonly conflicts: readonly Conflict[]
}

export type Sides = { readonly users: string; readonly agents: string }

/**
 * Merges two commits over what they have in common. The user's state is always the first side: programs and settings for
 * merges, such as `merge=ours`, ask which is which. Touches nothing.
 */
export async function threeWay(checkout: Checkout, sides: Sides): Promise<Merged> {
  const args = ["merge-tree", "--write-tree", "-z", "--messages", sides.users, sides.agents]
  const { code, out } = await git(args, { ...at(checkout), accept: [1], timeLimit: 300_000 })
  const items = out.split("\0")
  const tree = items[0] ?? ""
  const swallowed = await swallowedIn(checkout, tree, sides)
  if (code === 0) return { tree, conflicts: swallowed }
  const end = items.indexOf("", 1)
  const told = conflictsIn(items.slice(1, end), sides)
  const conflicts = [...told, ...swallowed.filter(({ path }) => !told.some((each) => each.path === path))]
  // A conflict can be one of folders alone, such as one whose files were moved to two others.
  return { tree, conflicts: conflicts.length > 0 ? conflicts : inMessages(items.slice(end + 1), sides) }
}

/** From git's list of what each side has at each path: `<mode> <object> <side>\t<path>`. */
function conflictsIn(records: readonly string[], sides: Sides): readonly Conflict[] {
  const found = new Map<string, { users?: TaskHandle; agents?: TaskHandle }>()
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

/** From git's messages: the number of paths, the paths, what it is about, a text. */
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

/** Without the side's commit, which git hangs on where something else has the name. */
function nameOf(path: string, { users, agents }: Sides): string {
  const [, name = path, side] = /^(.*)~([0-9a-f]{40,64})(?:_\d+)?$/s.exec(path) ?? []
  return side === users || side === agents ? name : path
}

/**
 * What one side has edited, and the merged tree has nowhere. Git drops it without a word where the other side has moved
 * the file, and the first has the same file at the new place, too.
 */
async function swallowedIn(checkout: Checkout, tree: string, sides: Sides): Promise<readonly Conflict[]> {
  const base = await gitLine(["merge-base", sides.users, sides.agents], at(checkout))
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
    const moves = await stepsIn(checkout, base, whose === "users" ? sides.agents : sides.users)
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

/** Where a side has moved files to, by where they were. */
async function stepsIn(checkout: Checkout, base: string, side: string): Promise<ReadonlyMap<string, string>> {
  const args = ["diff-tree", "-r", "-z", "-M", "-l0", "--diff-filter=R", "--name-status", base, side]
  const records = await gitList(args, { ...at(checkout), timeLimit: 300_000 })
  const moves = new Map<string, string>()
  for (let at = 0; at + 2 < records.length; at += 3) moves.set(records[at + 1] ?? "", records[at + 2] ?? "")
  return moves
}
