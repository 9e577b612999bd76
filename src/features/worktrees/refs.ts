import { type Checkout, shared } from "./checkout.ts"
import { git, gitLine } from "./git.ts"

/**
 * What the repository remembers of a task, each under a ref named after it:
 * - `state`: its work, as of the end of its last run
 * - `base`: what that work is counted from: the state it began with, or what has been merged or brought in since
 * - `start`: what is told of it is counted from: as `base`, but a merge leaves it until the next run
 * - `merge`: a merge that has begun; its parents are the two states, its tree is the result
 * - `conflict`: the parent's state with which the last merge had a conflict; once the agent was given that, what it got
 * - `ignored`: the files that its runs made and git ignores
 * - `stash`: what was in git's stash when the run began; at its end, what became of that
 */
export type RefKind = "state" | "base" | "start" | "merge" | "conflict" | "ignored" | "stash"

const PREFIXES: Record<RefKind, string> = {
  state: "refs/superagents/",
  base: "refs/superagents-base/",
  start: "refs/superagents-start/",
  merge: "refs/superagents-merge/",
  conflict: "refs/superagents-conflict/",
  ignored: "refs/superagents-ignored/",
  stash: "refs/superagents-stash/",
}
const KINDS = Object.keys(PREFIXES) as RefKind[]

export const refOf = (kind: RefKind, taskID: string): string => `${PREFIXES[kind]}${taskID}`

/** The commit under a task's ref, if there is one. */
export async function readRef(checkout: Checkout, kind: RefKind, taskID: string): Promise<string | undefined> {
  const args = ["rev-parse", "--verify", "--quiet", `${refOf(kind, taskID)}^{commit}`]
  const { code, out } = await git(args, { ...shared(checkout), accept: [1] })
  return code === 0 ? out.trim() : undefined
}

/** Sets refs of a task, and deletes those that are given as undefined: all of them or none. */
export async function writeRefs(
  checkout: Checkout,
  taskID: string,
  refs: Readonly<Partial<Record<RefKind, string | undefined>>>,
): Promise<void> {
  const input = KINDS.filter((kind) => kind in refs).map((kind) => {
    const commit = refs[kind]
    return commit === undefined ? `delete ${refOf(kind, taskID)}\0\0` : `update ${refOf(kind, taskID)}\0${commit}\0\0`
  })
  await git(["update-ref", "--stdin", "-z"], { ...shared(checkout), input: input.join("") })
}

export const dropRefs = (checkout: Checkout, taskID: string): Promise<void> =>
  writeRefs(checkout, taskID, {
    state: undefined,
    base: undefined,
    start: undefined,
    merge: undefined,
    conflict: undefined,
    ignored: undefined,
    stash: undefined,
  })

/** What the repository has of a task: the trees of its refs, and when the youngest of them was made (ms). */
export type Remembered = {
  readonly taskID: string
  readonly keptAt: number
  readonly trees: Readonly<Partial<Record<RefKind, string>>>
  /** It has left work in git's stash that does not go together with its files. */
  readonly leftInStash: boolean
}

/** Begins the message of a `stash` ref's commit where it has. */
export const LEFT_IN_STASH = "superagents: the stash, and work that was left in it"

/** All tasks that the repository remembers. */
export async function remembered(checkout: Checkout): Promise<readonly Remembered[]> {
  const format = "--format=%(refname) %(tree) %(committerdate:unix) %(contents:subject)"
  const lines = (await gitLine(["for-each-ref", format, ...Object.values(PREFIXES)], shared(checkout))).split("\n")
  type Found = { keptAt: number; trees: Partial<Record<RefKind, string>>; leftInStash: boolean }
  const found = new Map<string, Found>()
  for (const line of lines) {
    const [name = "", tree = "", seconds, ...subject] = line.split(" ")
    const kind = KINDS.find((candidate) => name.startsWith(PREFIXES[candidate]))
    if (!kind) continue
    const taskID = name.slice(PREFIXES[kind].length)
    const entry: Found = found.get(taskID) ?? { keptAt: 0, trees: {}, leftInStash: false }
    entry.trees[kind] = tree
    if (kind === "stash") entry.leftInStash = subject.join(" ") === LEFT_IN_STASH
    entry.keptAt = Math.max(entry.keptAt, Number(seconds) * 1000)
    found.set(taskID, entry)
  }
  return [...found].map(([taskID, entry]) => ({ taskID, ...entry }))
}

/** True while a task's work is not in its parent's files. */
export const isUnmerged = ({ trees, leftInStash }: Remembered): boolean =>
  trees.merge !== undefined || leftInStash || (trees.state !== undefined && trees.state !== trees.base)
