import { at, type Checkout } from "./checkout.ts"
import { type Change, changesBetween, isSubmodule } from "./diff.ts"
import { git, gitLine } from "./git.ts"
import { commitOf, withIndex } from "./snapshot.ts"

const NAMES_FILE = ".gitmodules"

/**
 * What of these changes is about submodules: those that became another commit, a folder or a file, or came of one; all
 * above and below them; and with any of them the file that names them. None of it is merged, since git keeps the other
 * half of it elsewhere. Nor is what a new git folder consists of.
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

/** The new files that are named like parts of a git folder, where a `HEAD` and a `config` came together. */
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

/** A state without what it changed around submodules since `base`, and the names of what stays out. */
export type Without = { readonly commit: string; readonly leftOut: readonly string[] }

export async function withoutSubmodules(checkout: Checkout, base: string, state: string): Promise<Without> {
  const around = aroundSubmodules(await changesBetween(checkout, base, state))
  if (around.length === 0) return { commit: state, leftOut: [] }
  const tree = await putBack(checkout, state, around)
  const commit = await commitOf(checkout, tree, [base, state], "superagents: without submodules")
  const gitFolders = partsOfGitFolders(around).flatMap(({ path }) => HEAD.exec(path)?.[1] ?? [])
  const named = around.filter((change) => isSubmodule(change) || change.path === NAMES_FILE).map(pathOf)
  return { commit, leftOut: [...named, ...gitFolders.map((folder) => folder.slice(0, -1) || ".")] }
}

/** The same of two states: what the second one changed around submodules since `base` is taken out of the first. */
export async function withoutThoseOf(
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

/** The tree of a state in which these changes were not made. */
function putBack(checkout: Checkout, state: string, changes: readonly Change[]): Promise<string> {
  return withIndex(async (index) => {
    const run = { ...at(checkout), index }
    await git(["read-tree", state], run)
    const gone = "0".repeat(state.length)
    const leave = changes.flatMap(({ path, to }) => (to ? [`0 ${gone}\t${path}\0`] : []))
    const come = changes.flatMap(({ path, from }) => (from ? [`${from.mode} ${from.oid}\t${path}\0`] : []))
    await git(["update-index", "-z", "--index-info"], { ...run, input: [...leave, ...come].join("") })
    return gitLine(["write-tree"], run)
  })
}
