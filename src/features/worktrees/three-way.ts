import { git, gitLine, gitList } from "./git.ts"
import { type Change, changesBetween, entriesAt, isSubmodule, type TreeEntry } from "./objects.ts"
import { type Checkout, gitOptions } from "./repository.ts"
import { commitOf, treeWith } from "./snapshot.ts"

const NAMES_FILE = ".gitmodules"

/**
 * Of these changes, those around submodules: their entries, paths above and below, the file that names them, and new
 * folders that look like git's data. They are never merged, because git stores the submodules' content elsewhere.
 */
export function aroundSubmodules(changes: readonly Change[]): readonly Change[] {
  const links = changes.filter(isSubmodule).map(({ path }) => path)
  const parts = new Set(partsOfGitFolders(changes))
  if (links.length === 0) return [...parts]
  const touches = (path: string) =>
    links.some((link) => path === link || path.startsWith(`${link}/`) || link.startsWith(`${path}/`))
  return changes.filter((change) => change.path === NAMES_FILE || parts.has(change) || touches(change.path))
}

const HEAD = /^((?:.*\/)?)HEAD$/
const PART =
  /^(?:HEAD|[A-Z]+_HEAD|COMMIT_EDITMSG|config|config\.worktree|description|index|packed-refs|gitdir|commondir|shallow|(?:branches|hooks|info|logs|lfs|modules|objects|refs|worktrees)\/.*)$/

/** New files that look like git's data, where `HEAD` and `config` were added together. */
function partsOfGitFolders(changes: readonly Change[]): readonly Change[] {
  const fresh = changes.filter(({ from }) => from === undefined)
  const names = new Set(fresh.map(pathOf))
  const folders = [...names]
    .flatMap((path) => HEAD.exec(path)?.[1] ?? [])
    .filter((folder) => names.has(`${folder}config`))
  if (folders.length === 0) return []
  return fresh.filter(({ path }) =>
    folders.some((folder) => path.startsWith(folder) && PART.test(path.slice(folder.length))),
  )
}

/** A state whose changes around submodules since `base` were taken back, and the names of these changes. */
export type StateWithoutSubmodules = { readonly commit: string; readonly leftOut: readonly string[] }

export async function withoutSubmodules(
  checkout: Checkout,
  base: string,
  state: string,
): Promise<StateWithoutSubmodules> {
  const around = aroundSubmodules(await changesBetween(checkout, base, state))
  if (around.length === 0) return { commit: state, leftOut: [] }
  const tree = await putBack(checkout, state, around)
  const commit = await commitOf(checkout, tree, [base, state], "superagents: without submodules")
  const gitFolders = partsOfGitFolders(around).flatMap(({ path }) => HEAD.exec(path)?.[1] ?? [])
  const named = around.filter((change) => isSubmodule(change) || change.path === NAMES_FILE).map(pathOf)
  return { commit, leftOut: [...named, ...gitFolders.map((folder) => folder.slice(0, -1) || ".")] }
}

/** Takes back, in `state`, changes at paths around which `others` has changed submodules. */
export async function dropSubmoduleChanges(
  checkout: Checkout,
  { base, state, others }: { readonly base: string; readonly state: string; readonly others: string },
): Promise<string> {
  const theirs = aroundSubmodules(await changesBetween(checkout, base, others))
  if (theirs.length === 0) return state
  const own = await changesBetween(checkout, base, state)
  const isBelow = (path: string) =>
    theirs.some((each) => path === each.path || path.startsWith(`${each.path}/`) || each.path.startsWith(`${path}/`))
  const back = own.filter(({ path }) => isBelow(path))
  if (back.length === 0) return state
  return commitOf(checkout, await putBack(checkout, state, back), [base], "superagents: without submodules")
}

const pathOf = ({ path }: Change): string => path

/** Tree of a state without these changes. */
function putBack(checkout: Checkout, state: string, changes: readonly Change[]): Promise<string> {
  const gone = "0".repeat(state.length)
  const leave = changes.flatMap(({ path, to }) => (to ? [`0 ${gone}\t${path}\0`] : []))
  const come = changes.flatMap(({ path, from }) => (from ? [`${from.mode} ${from.oid}\t${path}\0`] : []))
  return treeWith(checkout, state, [...leave, ...come].join(""))
}

/** A path at which two states conflict. */
export type Conflict = {
  /** Path in the merged tree. Git renames an entry if its own name is in use. */
  readonly path: string
  /** Name that the entry had before git renamed it. */
  readonly name: string
  /** Tree entry of each side; undefined if the side has none. */
  readonly users?: TreeEntry
  readonly agents?: TreeEntry
}

export type Merged = {
  readonly tree: string
  /** Paths at which the states conflict. If there are any, the tree is only git's best attempt. */
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
  const listedConflicts = conflictsIn(items.slice(1, end), sides)
  const conflicts = [
    ...listedConflicts,
    ...swallowed.filter(({ path }) => !listedConflicts.some((each) => each.path === path)),
  ]
  // Some conflicts concern folders alone, such as files moved to two folders. Git names them only in its messages.
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

/** Reads git's messages. Each has the number of paths, the paths, a subject and a text. */
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
 * Edits of one side that the merge has lost. Git drops them without a conflict where the other side moved the file and
 * the first side has a file at the new path, too.
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

/** New paths of files that a side moved, by old path. */
async function renamesIn(checkout: Checkout, base: string, side: string): Promise<ReadonlyMap<string, string>> {
  const args = ["diff-tree", "-r", "-z", "-M", "-l0", "--diff-filter=R", "--name-status", base, side]
  const records = await gitList(args, { ...gitOptions(checkout), timeLimit: 300_000 })
  const moves = new Map<string, string>()
  for (let at = 0; at + 2 < records.length; at += 3) moves.set(records[at + 1] ?? "", records[at + 2] ?? "")
  return moves
}
