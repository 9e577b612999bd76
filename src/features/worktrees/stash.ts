import { existsSync } from "node:fs"
import { z } from "zod"
import type { Processes } from "../../lib/lock.ts"
import { type Fault, git } from "./git.ts"
import { changesBetween } from "./objects.ts"
import {
  type Checkout,
  commitTree,
  gitOptions,
  LEFT_IN_STASH,
  lockOf,
  messageIn,
  objectAt,
  type Repository,
  readRef,
  refOf,
  sharedGitOptions,
  treeOf,
  withLock,
  writeRefs,
} from "./repository.ts"
import { filesOf, treeWith } from "./snapshot.ts"
import { entriesMadeIn, firstParents, isSame, rewrite, StashEntry, type StashPlace, stashOf } from "./stash-owner.ts"
import { threeWay } from "./three-way.ts"

/**
 * Handles git's stash, which all checkouts share: a note records it when a run begins; at the run's end, dropped
 * entries are restored and the run's new entries become part of its work. A commit under the task's `stash` ref holds
 * the note, and keeps git from deleting its entries.
 */
const Note = z.object({
  /** Entries of the run's start that the stash should have, newest first. */
  list: z.array(StashEntry),
  /** Commits in the stash at the run's start. */
  seen: z.array(z.string()).default([]),
  /** Entries that the run added to the stash. Those that do not apply to the run's files are in `left`, too. */
  own: z.array(StashEntry).default([]),
  left: z.array(StashEntry).default([]),
  /** Entries that were missing at the run's end and were put back. */
  restored: z.array(StashEntry).default([]),
  /** Entries that the run or somebody else may have made. They stay in the stash. */
  unsure: z.array(StashEntry).default([]),
})
type Note = z.infer<typeof Note>

/**
 * A change of the stash in progress, as a note whose `list` is all that the stash should have. After a crash the next
 * holder of the lock completes it first: until then entries of others are missing, as if they had been taken.
 */
const CHANGE = "refs/superagents-stash-change"

/** Attempts to change the stash while others use it. */
const MOST_ATTEMPTS = 10
const TITLE = "superagents: the stash"

type Ports = { readonly processes: Processes; readonly fault: Fault }

/**
 * A run's checkouts. `from`: the parent's, which may be gone; `worktree`: the run's own, undefined if git does not know
 * it.
 */
export type RunCheckouts = { readonly from: Checkout; readonly worktree: Checkout | undefined; readonly taskID: string }

/** A run's files as a tree. `where`: an existing checkout in which git commands can run. */
type Files = { readonly tree: string; readonly where: Checkout }

/**
 * Notes the stash at a run's start, except entries that other active runs have made. Returns commits that the task's
 * last run stashed and that do not apply to its files.
 */
export async function noteStash(
  ports: Ports,
  from: Checkout,
  taskID: string,
  worktree: Checkout,
  atWork: () => Promise<readonly RunCheckouts[]>,
): Promise<readonly string[]> {
  return holdingStash(ports, from, async () => {
    const [now, before] = await Promise.all([stashOf(from), readNote(from, taskID)])
    const seen = now.map(({ commit }) => commit)
    const theirs = now.length > 0 ? await addedByAny(now, await atWork(), { checkout: worktree, seen }) : []
    const list = without(now, theirs)
    const left = before?.left ?? []
    if (now.length + left.length > 0) await writeNote(from, taskID, { ...NONE, list: [...list], seen, left })
    else if (before) await writeRefs(from, taskID, { stash: undefined })
    return left.map(({ commit }) => commit)
  })
}

const NONE: Note = { list: [], seen: [], own: [], left: [], restored: [], unsure: [] }

const whose = (
  { from, worktree }: RunCheckouts,
  { seen }: Note,
  added: readonly StashEntry[],
  others: readonly StashPlace[],
) =>
  worktree
    ? entriesMadeIn(from, { checkout: worktree, seen }, others, added)
    : Promise.resolve({ own: [], unsure: added })

/** Stash entries that active runs have made, found when another run begins. */
async function addedByAny(
  now: readonly StashEntry[],
  atWork: readonly RunCheckouts[],
  beginning: StashPlace,
): Promise<StashEntry[]> {
  const found: StashEntry[] = []
  const places = [...(await placesOf(atWork)), beginning]
  for (const working of atWork) {
    const note = (await readNote(working.from, working.taskID)) ?? NONE
    found.push(...(await whose(working, note, without(now, note.list), places)).own)
  }
  return found
}

/** Checkouts of active runs, each with the commits that were in the stash at the run's start. */
async function placesOf(atWork: readonly RunCheckouts[]): Promise<readonly StashPlace[]> {
  const places: StashPlace[] = []
  for (const { from, worktree, taskID } of atWork)
    if (worktree) places.push({ checkout: worktree, seen: (await readNote(from, taskID))?.seen ?? [] })
  return places
}

const without = (entries: readonly StashEntry[], others: readonly StashEntry[]): readonly StashEntry[] => {
  const known = new Set(others.map(({ commit }) => commit))
  return entries.filter(({ commit }) => !known.has(commit))
}

/** A run's files, with its stashed work applied, and the commits of this stashed work. */
export type Settled = { readonly tree: string; readonly commits: readonly string[] }

/**
 * Decides what becomes of the stash at a run's end, stores the decision with `keep` and in the note, then changes the
 * stash. After a crash, the call can be repeated to complete the change.
 */
export async function settleStash(
  ports: Ports,
  working: RunCheckouts,
  files: Files,
  atWork: () => Promise<readonly RunCheckouts[]>,
  keep: (settled: Settled) => Promise<void>,
): Promise<void> {
  const { from, taskID } = working
  const isUnused = (await stashOf(from)).length === 0 && !(await readRef(from, "stash", taskID))
  if (isUnused && !(await readChange(from))) return keep({ tree: files.tree, commits: [] })
  return holdingStash(ports, from, async () => {
    const { note, settled, now } = await plan(working, files, await atWork())
    await keep(settled)
    await writeNote(from, taskID, note)
    ports.fault("stash: planned")
    await becomes(ports, from, note, now)
  })
}

/** Does work while no other process changes the stash, and first completes a change in which a process died. */
const holdingStash = <Value>(ports: Ports, from: Checkout, work: () => Promise<Value>): Promise<Value> =>
  withLock(lockOf(ports, from, "stash"), async () => {
    const change = await readChange(from)
    if (change) await becomes(ports, from, change, await stashOf(from))
    return work()
  })

async function plan(working: RunCheckouts, files: Files, atWork: readonly RunCheckouts[]) {
  const { from, taskID } = working
  const [now, before = NONE] = await Promise.all([stashOf(from), readNote(from, taskID)])
  const added = without(now, before.list)
  const missing = without(before.list, now)
  const { own: found, unsure } = await whose(working, before, added, added.length > 0 ? await placesOf(atWork) : [])
  const own = [...found, ...without(before.own, found)]
  const usersOwn = missing.length > 0 ? await takenByUser(from, missing, files) : []
  const list = without(before.list, usersOwn)
  const folded = await fold(files, own)
  const restored = [...without(missing, usersOwn), ...without(before.restored, missing)]
  const note: Note = { list: [...list], seen: before.seen, own, left: folded.left, restored, unsure: [...unsure] }
  return { note, now, settled: { tree: folded.tree, commits: own.map(({ commit }) => commit) } }
}

/** Changes the stash to the note's list, and leaves new entries of others on top. */
async function becomes(ports: Ports, from: Repository, note: Note, seen: readonly StashEntry[]): Promise<void> {
  let [now, list] = [seen, note.list]
  for (let attempt = 0; attempt < MOST_ATTEMPTS; attempt++, now = await stashOf(from)) {
    list = [...without(without(now, list), note.own), ...list]
    if (isSame(now, list)) return setChange(from, undefined)
    await setChange(from, await noteCommit(from, { ...note, list }))
    ports.fault("stash: change noted")
    await rewrite(from, now, list, (step) => ports.fault(`stash: ${step}`))
  }
  throw new Error("git's stash could not be put back as it was: it changed again and again meanwhile")
}

/**
 * Missing entries that the user has taken from the stash: their content is in the user's files, but not in the agent's.
 */
async function takenByUser(
  from: Checkout,
  entries: readonly StashEntry[],
  { tree: agents, where }: Files,
): Promise<readonly StashEntry[]> {
  if (!existsSync(from.top)) return []
  const { tree: users } = await filesOf(from, "HEAD", "as git sees it")
  const parents = await parentsOf(where, entries)
  const taken: StashEntry[] = []
  for (const entry of entries) {
    const base = parents.get(entry.commit) ?? ""
    const content = await contentOf(where, entry.commit)
    const changed = (await changesBetween(where, base, content)).map(({ path }) => path)
    const isIn = async (files: string) => {
      const differs = new Set((await changesBetween(where, content, files)).map(({ path }) => path))
      return changed.every((path) => !differs.has(path))
    }
    if (changed.length > 0 && (await isIn(users)) && !(await isIn(agents))) taken.push(entry)
  }
  return taken
}

/**
 * Tree with all files of a stash entry. Untracked files are included, although git stores them in a separate commit.
 */
async function contentOf(where: Checkout, entry: string): Promise<string> {
  const untracked = await objectAt(gitOptions(where), `${entry}^3^{tree}`)
  const tree = await treeOf(where, entry)
  if (untracked === undefined) return tree
  const files = (await git(["ls-tree", "-r", "-z", "--full-tree", untracked], gitOptions(where))).out
  return treeWith(where, tree, files)
}

/** Applies stash entries to files. Entries that do not apply are returned in `left`. */
async function fold({ tree: files, where }: Files, entries: readonly StashEntry[]) {
  const left: StashEntry[] = []
  const parents = await parentsOf(where, entries)
  let tree = files
  for (const entry of entries) {
    const base = parents.get(entry.commit) ?? ""
    const onBase = (content: string) => commitTree(gitOptions(where), content, [base], TITLE)
    const [ours, theirs] = [await onBase(tree), await onBase(await contentOf(where, entry.commit))]
    const merged = await threeWay(where, { users: ours, agents: theirs })
    if (merged.conflicts.length > 0) left.push(entry)
    else tree = merged.tree
  }
  return { tree, left }
}

const parentsOf = (where: Checkout, entries: readonly StashEntry[]): Promise<ReadonlyMap<string, string>> =>
  firstParents(
    where,
    entries.map(({ commit }) => commit),
  )

/** Adds the work that the last run stashed to the files of a worktree that could not be removed. */
export async function withStashed(from: Checkout, taskID: string, tree: string): Promise<string> {
  const note = await readNote(from, taskID)
  return note ? (await fold({ tree, where: from }, note.own)).tree : tree
}

async function readNote(repository: Repository, taskID: string): Promise<Note | undefined> {
  return noteAt(repository, refOf("stash", taskID))
}

const readChange = (repository: Repository): Promise<Note | undefined> => noteAt(repository, CHANGE)

async function noteAt(repository: Repository, ref: string): Promise<Note | undefined> {
  const commit = await objectAt(sharedGitOptions(repository), `${ref}^{commit}`)
  if (!commit) return undefined
  const message = await messageIn(sharedGitOptions(repository), commit)
  try {
    return Note.parse(JSON.parse(message.slice(message.indexOf("\n"))))
  } catch {
    return undefined
  }
}

const writeNote = async (from: Checkout, taskID: string, note: Note): Promise<void> =>
  writeRefs(from, taskID, { stash: await noteCommit(from, note) })

async function setChange(from: Repository, commit: string | undefined): Promise<void> {
  const args = commit === undefined ? ["-d", CHANGE] : [CHANGE, commit]
  await git(["update-ref", ...args], sharedGitOptions(from))
}

async function noteCommit(from: Repository, note: Note): Promise<string> {
  const { list, own, restored } = note
  const entries = [...new Set([...list, ...own, ...restored].map(({ commit }) => commit))]
  const title = note.left.length > 0 ? LEFT_IN_STASH : TITLE
  const message = `${title}\n\n${JSON.stringify(note)}`
  const tree = `${entries[0] ?? "HEAD"}^{tree}`
  return commitTree(sharedGitOptions(from), tree, entries, message)
}

/** Sentences that tell the parent what became of the stash in a task's last run. */
export async function stashNotes(from: Checkout, taskID: string): Promise<readonly string[]> {
  const note = await readNote(from, taskID)
  if (!note) return []
  const { own, left, restored, unsure } = note
  const taken = without(own, left)
  const told = (entries: readonly StashEntry[]) => entries.map(({ message }) => `"${message}"`).join(", ")
  return [
    ...(restored.length > 0
      ? [
          `Git's stash is one for all checkouts, and what was in it before was dropped or popped in the meantime: it is back (${told(restored)}). If its agent popped it, that is among its changes, too.`,
        ]
      : []),
    ...(taken.length > 0
      ? [`It left work in git's stash (${told(taken)}): that is out of the stash, and part of its changes.`]
      : []),
    ...left.map(
      ({ commit, message }) =>
        `It left work in git's stash ("${message}") that does not go together with its files: that is out of the stash, no part of its changes, and kept as ${commit}: git stash apply ${commit} brings it in.`,
    ),
    ...(unsure.length > 0
      ? [
          `Git's stash has more than before (${told(unsure)}); whether it is its agent's cannot be told, so it stays there.`,
        ]
      : []),
  ]
}

/** Whether a run's changes include stashed work. No check has seen this work. */
export async function tookFromStash(from: Checkout, taskID: string): Promise<boolean> {
  const note = await readNote(from, taskID)
  return note !== undefined && without(note.own, note.left).length > 0
}
