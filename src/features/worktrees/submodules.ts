import { type Checkout, gitOptions } from "./checkout.ts"
import { type Change, changesBetween, isSubmodule } from "./diff.ts"
import { git, gitLine } from "./git.ts"
import { commitOf, withIndex } from "./snapshot.ts"

const NAMES_FILE = ".gitmodules"

/**
 * Changes around submodules: their entries, paths above and below, and the files that name them. They are never merged,
 * because git stores the other half elsewhere; new folders that look like git's data count, too.
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

/** A state without changes around submodules since `base`, and the names left out. */
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

/** Removes from the first state what the second changed around submodules. */
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
  return withIndex(async (index) => {
    const run = { ...gitOptions(checkout), index }
    await git(["read-tree", state], run)
    const gone = "0".repeat(state.length)
    const leave = changes.flatMap(({ path, to }) => (to ? [`0 ${gone}\t${path}\0`] : []))
    const come = changes.flatMap(({ path, from }) => (from ? [`${from.mode} ${from.oid}\t${path}\0`] : []))
    await git(["update-index", "-z", "--index-info"], { ...run, input: [...leave, ...come].join("") })
    return gitLine(["write-tree"], run)
  })
}
