import { existsSync } from "node:fs"
import { lstat, realpath } from "node:fs/promises"
import { join, relative } from "node:path"
import { CallError } from "../../core/errors.ts"
import { CaptureError } from "../../runtime/places/place.ts"
import { GitError, git, gitLine, gitList, gitProblem, redirectingVariable } from "./git.ts"

/** A checkout of a repository: the user's, or a worktree. Paths are absolute and resolved. */
export type Checkout = {
  /** Top folder. */
  readonly top: string
  /** Git's folder for this checkout alone, with its index and HEAD. */
  readonly gitDir: string
  /** Git's folder that all checkouts of the repository share, with commits and refs. */
  readonly commonDir: string
  /** Working folder below `top`; empty for `top` itself. Absent for a task's worktree. */
  readonly prefix?: string | undefined
}

/** A checkout that a user or agent works in. */
export type WorkingCheckout = Checkout & { readonly prefix: string }

export type SourceCheckout = WorkingCheckout & {
  /** Current commit. */
  readonly head: string
}

/** Files that git keeps while an operation is in progress, each with the operation's name for a reader. */
const UNDER_WAY: readonly (readonly [file: string, what: string])[] = [
  ["MERGE_HEAD", "a merge"],
  ["rebase-merge", "a rebase"],
  ["rebase-apply", "a rebase"],
  ["CHERRY_PICK_HEAD", "a cherry-pick"],
  ["REVERT_HEAD", "a revert"],
]

const SORRY = "A worktree could not be made: "

/**
 * Finds the checkout around a folder, from which a worktree is to be made. Throws a `CaptureError` that says why none
 * can be made.
 */
export async function sourceCheckout(folder: string): Promise<SourceCheckout> {
  const problem = await gitProblem(folder)
  if (problem) throw new CaptureError(`${SORRY}it ${problem}.`)
  const variable = redirectingVariable()
  if (variable)
    throw new CaptureError(
      `${SORRY}in OpenCode's environment ${variable} is set, so that the agent's git would work elsewhere. Start OpenCode without it.`,
    )
  const found = await findWorkingCheckout(folder)
  if (!found) throw new CaptureError(`${SORRY}${folder} is not in the checkout of a git repository.`)
  if (found.prefix.startsWith(".."))
    throw new CaptureError(
      `${SORRY}git takes ${found.top} for the top of ${folder}, which lies outside of it. Look at the setting core.worktree in ${join(found.commonDir, "config")}.`,
    )
  const head = await headOf(found)
  if (head === undefined) throw new CaptureError(`${SORRY}the repository has no commit yet. Make a first commit.`)
  if (await isIgnored(found))
    throw new CaptureError(
      `${SORRY}git ignores this folder (${found.prefix || found.top}), so that the agent would see nothing of it, and its work would be lost. Take it out of .gitignore, or make it a repository of its own (git init, and a first commit).`,
    )
  const busy = await underWay(found)
  if (busy) throw new CaptureError(`${SORRY}the checkout is in the middle of ${busy}. Finish or abort it first.`)
  return { ...found, head }
}

/** Whether git ignores the working folder and all in it. */
async function isIgnored({ top, gitDir, prefix }: WorkingCheckout): Promise<boolean> {
  if (prefix === "") return false
  const run = { cwd: top, gitDir }
  const probe = await git(["check-ignore", "--quiet", "--", `${prefix}/superagents-probe`], { ...run, accept: [1] })
  if (probe.code !== 0) return false
  const seen = ["ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", `:(top,literal)${prefix}`]
  return (await gitList(seen, { ...run, mostBytes: 1000 })).length === 0
}

/** Checkout around a folder in any state. Throws a `CallError` where there is none. */
export async function requireCheckout(folder: string): Promise<WorkingCheckout> {
  const checkout = await findWorkingCheckout(folder)
  if (!checkout) throw new CallError(`${folder} is not in the checkout of a git repository.`)
  return checkout
}

/** Checkout around a folder; undefined for none. */
export async function findWorkingCheckout(folder: string): Promise<WorkingCheckout | undefined> {
  const found = await findCheckout(folder)
  return found && { ...found, prefix: relative(found.top, await realpath(folder)) }
}

const BETWEEN = "--superagents"

/** Asks git for the checkout around a folder; undefined if there is none. */
export async function findCheckout(folder: string): Promise<Checkout | undefined> {
  try {
    // Git prints unknown options again. Here they separate the paths, which may contain line breaks.
    const wanted = ["--show-toplevel", BETWEEN, "--git-dir", BETWEEN, "--git-common-dir"]
    const { out } = await git(["rev-parse", "--path-format=absolute", ...wanted], { cwd: folder })
    const [top, gitDir, commonDir] = out.replace(/\n$/, "").split(`\n${BETWEEN}\n`)
    if (!top || !gitDir || !commonDir) return undefined
    return { top: await realpath(top), gitDir: await realpath(gitDir), commonDir: await realpath(commonDir) }
  } catch (error) {
    if (error instanceof GitError && /not a git repository|must be run in a work tree/.test(error.message))
      return undefined
    throw error
  }
}

/** File or link in place of a folder above a path; undefined where there is none. Nothing is written through a link. */
export async function obstacleAbove(top: string, path: string): Promise<string | undefined> {
  const parts = path.split("/")
  for (let depth = 1; depth < parts.length; depth++) {
    const above = parts.slice(0, depth).join("/")
    const found = await lstat(join(top, above)).catch(() => undefined)
    if (!found) return undefined
    if (!found.isDirectory()) return above
  }
  return undefined
}

/** Options for git commands in a checkout. They name the repository, so that git does not search for it. */
export const gitOptions = ({ top, gitDir }: Checkout) => ({ cwd: top, gitDir })

/** Options for git commands on the data that all checkouts share. They work even if the checkout is gone. */
export const sharedGitOptions = ({ commonDir }: Pick<Checkout, "commonDir">) => ({ cwd: commonDir, gitDir: commonDir })

/** Current commit; undefined for none. */
export async function headOf(checkout: Checkout): Promise<string | undefined> {
  const { code, out } = await git(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], {
    ...gitOptions(checkout),
    accept: [1],
  })
  return code === 0 ? out.trim() : undefined
}

/** Name of git's operation in progress; undefined for none. */
export async function underWay(checkout: Checkout): Promise<string | undefined> {
  for (const [file, what] of UNDER_WAY) if (existsSync(join(checkout.gitDir, file))) return what
  const unmerged = await gitList(["ls-files", "--unmerged", "-z"], { ...gitOptions(checkout), mostBytes: 1000 })
  return unmerged.length > 0 ? "a merge with conflicts" : undefined
}

export const treeOf = (checkout: Checkout, commit: string): Promise<string> =>
  gitLine(["rev-parse", "--verify", `${commit}^{tree}`], gitOptions(checkout))

export async function isAncestor(checkout: Checkout, older: string, newer: string): Promise<boolean> {
  const { code } = await git(["merge-base", "--is-ancestor", older, newer], { ...gitOptions(checkout), accept: [1] })
  return code === 0
}
