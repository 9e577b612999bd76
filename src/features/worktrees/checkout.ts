import { existsSync } from "node:fs"
import { realpath } from "node:fs/promises"
import { join, relative } from "node:path"
import { CallError } from "../../core/errors.ts"
import { CaptureError } from "../../runtime/places/place.ts"
import { GitError, git, gitLine, gitList, gitProblem, redirected } from "./git.ts"

/** A checkout of a repository: the user's own one, or a worktree. All paths are absolute and real. */
export type Checkout = {
  /** The folder of the checkout's files. */
  readonly top: string
  /** The folder's own repository data: its index and HEAD. */
  readonly gitDir: string
  /** What all checkouts of the repository share: commits and refs. */
  readonly commonDir: string
  /** The folder below `top` that somebody works in; empty where it is `top`. Absent for a task's own worktree. */
  readonly prefix?: string | undefined
}

/** A checkout in which somebody works. */
export type Home = Checkout & { readonly prefix: string }

export type Found = Home & {
  /** The commit it is on. */
  readonly head: string
}

/** What git leaves behind while it is in the middle of something; the name for a reader. */
const UNDER_WAY: readonly (readonly [file: string, what: string])[] = [
  ["MERGE_HEAD", "a merge"],
  ["rebase-merge", "a rebase"],
  ["rebase-apply", "a rebase"],
  ["CHERRY_PICK_HEAD", "a cherry-pick"],
  ["REVERT_HEAD", "a revert"],
]

const SORRY = "A worktree could not be made: "

/** The checkout around a folder, to make a worktree of. Throws a `CaptureError` where none can be made. */
export async function checkoutAround(folder: string): Promise<Found> {
  const problem = await gitProblem(folder)
  if (problem) throw new CaptureError(`${SORRY}it ${problem}.`)
  const variable = redirected()
  if (variable)
    throw new CaptureError(
      `${SORRY}in OpenCode's environment ${variable} is set, so that the agent's git would work elsewhere. Start OpenCode without it.`,
    )
  const found = await homeAround(folder)
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

/** Whether git ignores all that is in the folder that somebody works in, and would ignore what is made there. */
async function isIgnored({ top, gitDir, prefix }: Home): Promise<boolean> {
  if (prefix === "") return false
  const run = { cwd: top, gitDir }
  const probe = await git(["check-ignore", "--quiet", "--", `${prefix}/superagents-probe`], { ...run, accept: [1] })
  if (probe.code !== 0) return false
  const seen = ["ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", `:(top,literal)${prefix}`]
  return (await gitList(seen, { ...run, mostBytes: 1000 })).length === 0
}

/** The checkout around a folder, whatever its state. Throws a `CallError` where there is none. */
export async function checkoutOf(folder: string): Promise<Home> {
  const checkout = await homeAround(folder)
  if (!checkout) throw new CallError(`${folder} is not in the checkout of a git repository.`)
  return checkout
}

/** The same; undefined where there is none. */
export async function homeAround(folder: string): Promise<Home | undefined> {
  const found = await find(folder)
  return found && { ...found, prefix: relative(found.top, await realpath(folder)) }
}

const BETWEEN = "--superagents"

/** The checkout that git finds around a folder; undefined where there is none. */
export async function find(folder: string): Promise<Checkout | undefined> {
  try {
    // Git repeats an option that it does not know: so paths are told apart that have line breaks in them.
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

/** Where a checkout's git commands run: in its folder, its repository named outright. */
export const at = ({ top, gitDir }: Checkout) => ({ cwd: top, gitDir })

/** Where git commands run that are about what all checkouts share: a checkout may be gone. */
export const shared = ({ commonDir }: Pick<Checkout, "commonDir">) => ({ cwd: commonDir, gitDir: commonDir })

/** The commit a checkout is on; undefined where it is on none. */
export async function headOf(checkout: Checkout): Promise<string | undefined> {
  const { code, out } = await git(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], {
    ...at(checkout),
    accept: [1],
  })
  return code === 0 ? out.trim() : undefined
}

/** What the checkout is in the middle of, for a reader; undefined where nothing stands in the way. */
export async function underWay(checkout: Checkout): Promise<string | undefined> {
  for (const [file, what] of UNDER_WAY) if (existsSync(join(checkout.gitDir, file))) return what
  const unmerged = await gitList(["ls-files", "--unmerged", "-z"], { ...at(checkout), mostBytes: 1000 })
  return unmerged.length > 0 ? "a merge with conflicts" : undefined
}

export const treeOf = (checkout: Checkout, commit: string): Promise<string> =>
  gitLine(["rev-parse", "--verify", `${commit}^{tree}`], at(checkout))

export async function isAncestor(checkout: Checkout, older: string, newer: string): Promise<boolean> {
  const { code } = await git(["merge-base", "--is-ancestor", older, newer], { ...at(checkout), accept: [1] })
  return code === 0
}
