import { createHash } from "node:crypto"
import { existsSync } from "node:fs"
import { mkdir, readdir, realpath } from "node:fs/promises"
import { join } from "node:path"
import { messageOf } from "../../core/errors.ts"
import { jsonNames, type Ownership } from "../../lib/atomic-file.ts"
import type { Options } from "../../options/options.ts"
import type { OpencodeFolder } from "../../runtime/places/place.ts"
import { type CommandMarks, endLeftovers } from "../../runtime/places/process.ts"
import type { Bounds } from "./dependencies.ts"
import { keepIgnored } from "./ignored.ts"
import { finishMerges, type MergePorts } from "./merge.ts"
import {
  betweenMerges,
  type Checkout,
  folderLock,
  headOf,
  isAncestor,
  readRef,
  treeOf,
  withLock,
  writeRefs,
} from "./repository.ts"
import { commitWork, workIn } from "./snapshot.ts"
import { type RunCheckouts, settleStash } from "./stash.ts"
import {
  dropMarker,
  isFolder,
  type Marker,
  markedAt,
  readMarker,
  removeWorktree,
  unsavedIn,
  writeMarker,
} from "./worktree.ts"

export type WorktreePorts = Ownership &
  MergePorts & {
    /** Folder of all worktrees. */
    readonly root: string
    readonly settings: Pick<Options["worktree"], "setup" | "dependencies"> & { readonly copy: readonly string[] }
    /** OpenCode's folder in a project, and the packages it installs there. */
    readonly configFolder?: OpencodeFolder
    /** Most bytes of copied dependencies, in one worktree and in all together. */
    readonly bounds?: Bounds
    /** Records of commands that tasks are running. */
    readonly commands?: CommandMarks
  }

/** Folder of a repository's worktrees, shared by all its checkouts. */
export async function repoWorktreesFolder({ root }: WorktreePorts, { commonDir }: Checkout): Promise<string> {
  const repoFolder = join(root, createHash("sha256").update(commonDir).digest("hex").slice(0, 16))
  await mkdir(repoFolder, { recursive: true, mode: 0o700 })
  return realpath(repoFolder)
}

/** Name of a worktree's folder: the task's id, with a number if an earlier folder of the task could not be removed. */
const nameOf = (taskID: string, nth: number): string => (nth === 1 ? taskID : `${taskID}-${nth}`)

/** Id of the task that a folder's name belongs to. */
export const taskOf = (name: string): string => name.replace(/-\d+$/, "")

/**
 * Folder for a task's worktree, whether it exists or not. Archived folders are skipped, since they may be removed at
 * any time.
 */
export async function worktreeFolder(ports: WorktreePorts, checkout: Checkout, taskID: string): Promise<string> {
  const repoFolder = await repoWorktreesFolder(ports, checkout)
  for (let nth = 1; ; nth++) {
    const folder = join(repoFolder, nameOf(taskID, nth))
    if (readMarker(folder)?.state !== "kept") return folder
  }
}

/** Size of dependencies in all worktrees of this user, in bytes. */
export async function heldBytes({ root }: WorktreePorts): Promise<number> {
  let sum = 0
  for (const repoFolder of await readdir(root).catch(() => []))
    for (const name of await jsonNames(join(root, repoFolder)).catch(() => []))
      sum += readMarker(join(root, repoFolder, name))?.bytes ?? 0
  return sum
}

export type Cleaned = {
  /** Paths that cannot be archived. Because of them, the folder stays. */
  readonly unsaved: readonly string[]
  /** Further sentences for readers. */
  readonly notes: readonly string[]
}

/** Archives and removes all folders of a task. */
export async function cleanAll(ports: WorktreePorts, checkout: Checkout, taskID: string): Promise<Cleaned> {
  // Commands that a dead process left running are ended first, because they would write into the archived state.
  if (ports.commands) await endLeftovers(ports.commands)
  const repoFolder = await repoWorktreesFolder(ports, checkout)
  const names = (await jsonNames(repoFolder)).filter((name) => taskOf(name) === taskID)
  const cleaned: Cleaned[] = []
  for (const name of names.sort()) cleaned.push(await clean(ports, join(repoFolder, name), taskID))
  return { unsaved: cleaned.flatMap(({ unsaved }) => unsaved), notes: cleaned.flatMap(({ notes }) => notes) }
}

/**
 * Archives a worktree, then removes its folder. A folder that cannot be removed after archiving is no failure: a note
 * says so.
 */
export function clean(ports: WorktreePorts, target: string, taskID: string): Promise<Cleaned> {
  const { fault } = ports
  return withLock(folderLock(ports, target), async () => {
    const marker = readMarker(target)
    if (!marker) return { unsaved: [], notes: [] }
    if (marker.state === "held") {
      // Its user removed it. Git's data of it stay, because a folder that was moved needs them.
      if (!existsSync(target)) await dropMarker(target)
      return { unsaved: isFolder(target) ? (marker.unsaved ?? []) : [], notes: [] }
    }
    const notes = marker.state === "used" && !isFolder(target) ? [GONE] : []
    if (marker.state === "used") {
      if (marker.worktree && existsSync(marker.worktree.gitDir) && isFolder(target)) {
        // The archived state would have half of a child task's work.
        const checkout = { ...marker.worktree, prefix: marker.from.prefix ?? "" }
        const finished = await finishMerges(ports, checkout)
        if (finished.length > 0) ports.finished?.(finished)
      }
      // The agent may have been stopped while a merge of its own child tasks wrote into the worktree.
      const unsaved = await betweenMerges(ports, marker.from, () => keepState(ports, target, taskID, marker))
      fault("away: state kept")
      const archived = await readRef(marker.from, "state", taskID)
      writeMarker(target, { ...marker, state: unsaved.length > 0 ? "held" : "kept", unsaved, archived })
      if (unsaved.length > 0) return { unsaved, notes: [] }
      fault("away: marked")
    }
    try {
      await removeWorktree(ports, marker.from, target)
    } catch (error) {
      if (marker.state === "making") writeMarker(target, { ...marker, state: "kept" })
      return { unsaved: [], notes: [stuck(target, error)] }
    }
    fault("away: removed")
    await dropMarker(target)
    return { unsaved: [], notes }
  })
}

/** Checkouts of all active runs in a repository, except those of this task. */
export async function activeRuns(
  ports: WorktreePorts,
  checkout: Checkout,
  but: string,
): Promise<readonly RunCheckouts[]> {
  const repoFolder = await repoWorktreesFolder(ports, checkout)
  const found: RunCheckouts[] = []
  for (const name of await jsonNames(repoFolder)) {
    const marker = taskOf(name) === but ? undefined : readMarker(join(repoFolder, name))
    if (marker?.state === "used" && marker.worktree && existsSync(marker.worktree.gitDir))
      found.push({ from: marker.from, worktree: marker.worktree, taskID: taskOf(name) })
  }
  return found
}

const GONE = "The folder of its worktree was gone at its end: only what it had committed is kept"

const stuck = (folder: string, error: unknown): string =>
  `Its folder could not be removed (${messageOf(error)}), though all that has to be kept of it is kept. The next start tries again; or remove it by hand: ${folder}`

async function keepState(
  ports: WorktreePorts,
  target: string,
  taskID: string,
  { worktree, from }: Marker,
): Promise<readonly string[]> {
  if (!worktree) return []
  const [state, base] = await Promise.all([readRef(from, "state", taskID), readRef(from, "base", taskID)])
  const known = [state, base].filter((commit) => commit !== undefined)
  // If git's data of the worktree is gone (pruned), only the worktree's files are left; without the folder, only commits.
  const [whole, isThere] = [existsSync(worktree.gitDir), isFolder(target)]
  const { top, gitDir, commonDir } = worktree
  const checkout = { ...worktree, top: isThere ? top : commonDir, gitDir: whole ? gitDir : commonDir }
  const head = whole ? await headOf(checkout) : undefined
  const parents = [...(head === undefined ? [] : [head]), ...known]
  const how = whole ? "whole" : "without index"
  const { tree, nested, unreadable } = isThere
    ? await workIn(checkout, parents[0] ?? "HEAD", how)
    : { tree: await lastTree(checkout, head, state), nested: [], unreadable: [] }
  const working = { from, worktree: whole && isThere ? checkout : undefined, taskID }
  const others = () => activeRuns(ports, from, taskID)
  await settleStash(ports, working, { tree, where: checkout }, others, async (settled) => {
    const commit = await commitWork(checkout, settled.tree, [...parents, ...settled.commits], whole)
    if (commit !== state) await writeRefs(from, taskID, { state: commit })
  })
  if (!isThere) return []
  if (whole) await keepIgnored(from, taskID, checkout, await markedAt(target))
  return unsavedIn(checkout, { nested, unreadable }, whole, from)
}

/** Tree of what is left of a worktree whose folder is gone: that of its HEAD, unless the stored state has it. */
async function lastTree(checkout: Checkout, head: string | undefined, state = head ?? "HEAD"): Promise<string> {
  const isAhead = head !== undefined && !(await isAncestor(checkout, head, state))
  return treeOf(checkout, isAhead ? head : state)
}
