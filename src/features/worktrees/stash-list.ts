import { type Checkout, shared } from "./checkout.ts"
import { GitError, git } from "./git.ts"

/**
 * Git's stash, shared by all checkouts, newest first. It is a ref with its log: an entry is a commit and its log line.
 */
export type TaskHandle = {
  readonly commit: string
  readonly name: string
  readonly email: string
  /** Seconds since 1970 and the time zone, as git writes them. */
  readonly time: number
  readonly zone: string
  readonly message: string
}

export type Repository = Pick<Checkout, "commonDir">

const STASH = "refs/stash"
const FORMAT = ["%H", "%gn", "%ge", "%gd", "%gs"].join("%x01")
/** Git's exit code for a missing ref. */
const NONE = 128

export const stashOf = (repository: Repository): Promise<readonly TaskHandle[]> => logOf(STASH, shared(repository))

/** A ref's log, newest first; empty without one. */
export async function logOf(
  ref: string,
  where: { readonly cwd: string; readonly gitDir: string },
): Promise<readonly TaskHandle[]> {
  const args = ["log", "-g", "-z", "--no-show-signature", "--no-patch", "--date=raw", `--format=${FORMAT}`, ref, "--"]
  const { code, out } = await git(args, { ...where, accept: [NONE] })
  if (code === NONE) return []
  return out.split("\0").flatMap((line) => {
    const [commit = "", name = "", email = "", at = "", message = ""] = line.split("\u0001")
    const [, time, zone = "+0000"] = /\{(\d+) ([+-]\d+)\}$/.exec(at) ?? []
    return commit === "" ? [] : [{ commit, name, email, time: Number(time), zone, message }]
  })
}

export const isSame = (one: readonly TaskHandle[], other: readonly TaskHandle[]): boolean =>
  one.length === other.length && one.every(({ commit }, nth) => commit === other[nth]?.commit)

/**
 * Replaces the stash's list if it is still `now`; false where it has changed meanwhile, without a loss. Git can only
 * push entries, so all are removed and added again with their log lines; `step` is called in between, where a crash
 * leaves a part of the list.
 */
export async function rewrite(
  repository: Repository,
  now: readonly TaskHandle[],
  wanted: readonly TaskHandle[],
  step: (name: "cleared" | "one entry") => void,
): Promise<boolean> {
  const run = shared(repository)
  const [top] = now
  try {
    if (top) await git(["update-ref", "-d", STASH, top.commit], run)
    step("cleared")
    let below = "0".repeat((top ?? wanted[0])?.commit.length ?? 0)
    for (const entry of wanted.toReversed()) {
      const { commit, name, email, time, zone, message } = entry
      const args = ["update-ref", "--create-reflog", "-m", message, STASH, commit, below]
      await git(args, { ...run, committer: { name: name || "unknown", email, date: `@${time} ${zone}` } })
      below = commit
      step("one entry")
    }
    return true
  } catch (error) {
    if (error instanceof GitError && /cannot lock ref/.test(error.message)) return false
    throw error
  }
}
