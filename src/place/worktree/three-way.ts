import { at, type Checkout } from "./checkout.ts"
import type { Entry } from "./diff.ts"
import { git } from "./git.ts"

/** A path at which two states do not fit together. */
export type Conflict = {
  /** Where it lies in the merged tree: git gives another name to what cannot have its own. */
  readonly path: string
  /** Its own name. */
  readonly name: string
  /** What each side has; undefined where it has nothing there. */
  readonly users?: Entry
  readonly agents?: Entry
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
  if (code === 0) return { tree, conflicts: [] }
  const end = items.indexOf("", 1)
  const conflicts = conflictsIn(items.slice(1, end), sides)
  // A conflict can be one of folders alone, such as one whose files were moved to two others.
  return { tree, conflicts: conflicts.length > 0 ? conflicts : told(items.slice(end + 1), sides) }
}

/** From git's list of what each side has at each path: `<mode> <object> <side>\t<path>`. */
function conflictsIn(records: readonly string[], sides: Sides): readonly Conflict[] {
  const found = new Map<string, { users?: Entry; agents?: Entry }>()
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
function told(items: readonly string[], sides: Sides): readonly Conflict[] {
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
