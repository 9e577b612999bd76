import { createWriteStream, existsSync } from "node:fs"
import { appendFile, mkdir, readFile, realpath, rename, rm, stat, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { Readable } from "node:stream"
import { pipeline } from "node:stream/promises"
import { replaceFile } from "../../../lib/atomic-file.ts"
import type { Processes } from "../../../lib/lock.ts"
import { GitError, git, gitLine, LONG_MS } from "../../worktrees/git.ts"
import { bringIgnored, hiddenIn, keepIgnored, moveMissing } from "../../worktrees/ignored.ts"
import { outputOf } from "../../worktrees/process.ts"
import { type Checkout, gitOptions, headOf, readRef, refOf, sharedGitOptions } from "../../worktrees/repository.ts"
import { clearIndexFlags, commitWork, workIn } from "../../worktrees/snapshot.ts"
import { addWorktree, notesOf, removeFolder, removeWorktree, unsavedIn } from "../../worktrees/worktree.ts"
import { bytesOf } from "../frames.ts"
import {
  type CallEnd,
  type CommitResult,
  completeMarkerPath,
  type FilesOrder,
  folderIn,
  type HostRepositoryFolders,
  jobIn,
  type LookResult,
} from "../orders.ts"
import { endJob } from "./jobs.ts"
import type { Call } from "./server.ts"

/** Commits kept under refs of the store, so that a later launch sends only differences. */
const KEPT = 20
/**
 * Tolerance between file times and the marker's, in ms. File times advance in steps of up to 10 ms, so that the files
 * copied last may seem as young as the marker.
 */
const TICK_MS = 20

/**
 * Git settings of the store and of agents in it. LFS files stay pointers, because their content would not be fetched;
 * line ends are unchanged.
 */
const SETTINGS = `[core]
	autocrlf = false
[filter "lfs"]
	smudge =
	clean =
	process =
	required = false
`

const haveRef = (taskID: string): string => `refs/have/${taskID}`
const workRef = (taskID: string): string => `refs/work/${taskID}`

/** The store in the form of a checkout, for git commands on shared data. */
const storeOf = ({ store }: HostRepositoryFolders): Checkout => ({ top: store, gitDir: store, commonDir: store })

/** Carries out an order on files, and sends its result. */
export async function runFilesOrder(order: FilesOrder, call: Call, processes: Processes): Promise<CallEnd> {
  const { folders } = order
  const answer = (value: unknown) => call.send("data", bytesOf(JSON.stringify(value)))
  if (order.do === "look") await answer(await look(folders))
  if (order.do === "receive") await receive(order, call, processes)
  if (order.do === "copy") await copy(order, call)
  if (order.do === "commit") await answer((await commit(order)) ?? null)
  if (order.do === "hidden") await answer(await hidden(order))
  if (order.do === "bundle") await bundle(order, call)
  if (order.do === "remove") await remove(order, processes)
  return {}
}

/** Creates the store if needed; returns git's version and the commits of its refs. */
async function look({ root, store }: HostRepositoryFolders): Promise<LookResult> {
  const version = await gitLine(["--version"], { cwd: "/" }).catch((error) => {
    if (error instanceof GitError && error.missing) return undefined
    throw error
  })
  if (version === undefined) return {}
  for (const name of ["work", "made"]) await mkdir(join(root, name), { recursive: true, mode: 0o700 })
  if (!existsSync(store)) {
    const fresh = `${store}.${process.pid}`
    await git(["init", "--quiet", "--bare", "--template=", fresh], { cwd: root })
    await appendFile(join(fresh, "config"), SETTINGS)
    // Another relay may have created the store meanwhile: then the fresh one is removed.
    await rename(fresh, store).catch(() => rm(fresh, { recursive: true, force: true }))
  }
  const haves = await gitLine(["for-each-ref", "--format=%(objectname)", "refs/have"], { cwd: store, gitDir: store })
  return { git: version, commits: haves.split("\n").filter((each) => each !== "") }
}

type Receive = Extract<FilesOrder, { do: "receive" }>

/** Adds the bundle, if one was sent, and creates the task's folder from its commit. */
async function receive(order: Receive, call: Call, processes: Processes): Promise<void> {
  const { folders, taskID, commit: wanted, ref, ignored = false, inPlace = false } = order
  const store = storeOf(folders)
  const fetched = [
    ...(ref === undefined ? [] : [`+${ref}:${haveRef(taskID)}`]),
    ...(ignored ? [`+${refOf("ignored", taskID)}:${refOf("ignored", taskID)}`] : []),
  ]
  if (fetched.length > 0) await takeBundle(order, fetched, call)
  if (ref === undefined) await git(["update-ref", haveRef(taskID), wanted], sharedGitOptions(store))
  await git(["cat-file", "-e", `${wanted}^{tree}`], sharedGitOptions(store))
  const folder = folderIn(folders, taskID)
  if (inPlace)
    await updateFolder(folders, taskID, wanted).catch(async (error) => {
      // Later work must not descend from what the folder lacks: a merge would take the parent's changes back.
      await git(["update-ref", haveRef(taskID), workRef(taskID)], sharedGitOptions(store))
      throw error
    })
  else {
    await takeAway(folders, taskID, processes)
    const made = await addWorktree({ processes }, store, folder, wanted)
    if (made.commonDir !== (await realpath(folders.store))) throw new Error(`${folder} belongs to another repository`)
    if (ignored) await bringIgnored(store, taskID, made)
  }
  await writeFile(completeMarkerPath(folders, taskID), "")
}

/** Paths of a task's upload, which last as long as their order, unless the relay is killed. */
const uploadsOf = ({ root }: HostRepositoryFolders, taskID: string) => ({
  bundle: join(root, `${taskID}.bundle`),
  fresh: join(root, `${taskID}.copy`),
  archive: join(root, `${taskID}.copy.tar`),
})

async function takeBundle({ folders, taskID, shallow }: Receive, refs: readonly string[], call: Call): Promise<void> {
  const { store } = folders
  const { bundle: file } = uploadsOf(folders, taskID)
  try {
    await pipeline(Readable.from(call.input), createWriteStream(file))
    if (shallow.length > 0) {
      const known = await readFile(join(store, "shallow"), "utf8").catch(() => "")
      const lines = new Set([...known.split("\n"), ...shallow].filter((line) => line !== ""))
      await replaceFile(join(store, "shallow"), [...lines, ""].join("\n"))
    }
    const args = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow", file]
    await git([...args, ...refs], { ...sharedGitOptions(storeOf(folders)), timeLimit: LONG_MS })
  } finally {
    await rm(file, { force: true })
  }
}

/** Updates a committed folder to another commit; ignored files stay. */
async function updateFolder(folders: HostRepositoryFolders, taskID: string, wanted: string): Promise<void> {
  const { checkout, hasNotes = false } = (await folderOf(folders, taskID)) ?? {}
  if (!checkout || !hasNotes) throw new Error(`git does not know the folder ${folderIn(folders, taskID)} any more`)
  const run = { ...gitOptions(checkout), timeLimit: LONG_MS }
  // No run is at work here: what still locks the checkout is the agent's git, killed with its last run.
  for (const name of ["index.lock", "HEAD.lock"]) await rm(join(checkout.gitDir, name), { force: true })
  // Detach HEAD first, so that branches of the agent stay unchanged. Git's checkout refuses while a merge is unsolved.
  await git(["update-ref", "--no-deref", "HEAD", workRef(taskID)], run)
  // Clear the flags: files that are marked as unchanged would keep their old content.
  await clearIndexFlags(checkout, join(checkout.gitDir, "index"))
  await git(["reset", "--quiet", "--mixed"], run)
  // Without `--force`: what no commit holds differs from the index, and must not be overwritten.
  await git(["checkout", "--quiet", "--detach", wanted], run)
}

/** Unpacks the archive that follows. Existing files of any kind stay. */
async function copy({ folders, taskID }: Extract<FilesOrder, { do: "copy" }>, call: Call): Promise<void> {
  const { fresh, archive } = uploadsOf(folders, taskID)
  try {
    await mkdir(fresh, { recursive: true })
    await pipeline(Readable.from(call.input), createWriteStream(archive))
    await outputOf("tar", ["-xf", archive], { cwd: fresh, timeLimit: LONG_MS })
    await moveMissing(fresh, folderIn(folders, taskID))
    await writeFile(completeMarkerPath(folders, taskID), "")
  } finally {
    await rm(archive, { force: true })
    await removeFolder(fresh)
  }
}

/**
 * A task's folder; undefined unless it was made completely. `hasNotes`: git still has the worktree's data; otherwise
 * only the files are left.
 */
async function folderOf(
  folders: HostRepositoryFolders,
  taskID: string,
): Promise<{ readonly checkout: Checkout; readonly hasNotes: boolean } | undefined> {
  const folder = folderIn(folders, taskID)
  if (!existsSync(folder) || !existsSync(completeMarkerPath(folders, taskID))) return undefined
  const [top, commonDir] = [await realpath(folder), await realpath(folders.store)]
  // Find git's data from the store, not by the `.git` file, which the agent may have changed.
  const notes = await notesOf({ commonDir }, top)
  return { checkout: { top, gitDir: notes ?? commonDir, commonDir }, hasNotes: notes !== undefined }
}

/** Commits the state of a task's folder; undefined without one. The agent's index and branches do not change. */
async function commit({ folders, taskID }: Extract<FilesOrder, { do: "commit" }>): Promise<CommitResult | undefined> {
  await endJob(folderIn(folders, taskID))
  const found = await folderOf(folders, taskID)
  if (!found) return undefined
  const { checkout, hasNotes } = found
  const have = await gitLine(["rev-parse", "--verify", haveRef(taskID)], sharedGitOptions(checkout))
  const head = hasNotes ? await headOf(checkout) : undefined
  const parents = head === undefined ? [have] : [head, have]
  const how = hasNotes ? "whole" : "without index"
  const { tree, nested, unreadable } = await workIn(checkout, parents[0] ?? have, how)
  const made = await commitWork(checkout, tree, parents, hasNotes)
  await git(["update-ref", workRef(taskID), made], sharedGitOptions(checkout))
  const store = storeOf(folders)
  const { mtimeMs } = await stat(completeMarkerPath(folders, taskID))
  if (hasNotes) await keepIgnored(store, taskID, checkout, mtimeMs + TICK_MS)
  const ignored = await readRef(store, "ignored", taskID)
  const unsaved = await unsavedIn(checkout, { nested, unreadable }, hasNotes)
  return { commit: made, ...(ignored !== undefined && { ignored }), unsaved }
}

/** Files that a check reads and that no commit of the folder has as they are: see `hiddenIn`. */
async function hidden({
  folders,
  taskID,
  tree,
  specs,
}: Extract<FilesOrder, { do: "hidden" }>): Promise<readonly string[]> {
  const { checkout, hasNotes } = (await folderOf(folders, taskID)) ?? {}
  if (!checkout) return []
  const leftOut = await workIn(checkout, tree, hasNotes ? "whole" : "without index")
  // Rules in the store's own ignore list are the agent's, since nobody else writes one.
  return hiddenIn(checkout, tree, leftOut, specs)
}

/** Sends a bundle of the folder's new commits. */
async function bundle({ folders, taskID }: Extract<FilesOrder, { do: "bundle" }>, call: Call): Promise<void> {
  const take = async (chunk: Uint8Array) => {
    call.signal.throwIfAborted()
    await call.send("data", chunk)
  }
  const ignored = await readRef(storeOf(folders), "ignored", taskID)
  const refs = [workRef(taskID), ...(ignored === undefined ? [] : [refOf("ignored", taskID)]), `^${haveRef(taskID)}`]
  await git(["bundle", "create", "--quiet", "-", ...refs], {
    ...sharedGitOptions(storeOf(folders)),
    take,
    timeLimit: LONG_MS,
  })
}

/** Removes a task's folder and ref; with `commit`, only if this is the folder's last committed state. */
async function remove(
  { folders, taskID, commit: kept }: Extract<FilesOrder, { do: "remove" }>,
  processes: Processes,
): Promise<void> {
  if (!existsSync(folders.store)) return
  const store = sharedGitOptions(storeOf(folders))
  if (kept !== undefined) {
    const args = ["for-each-ref", "--format=%(objectname)", workRef(taskID)]
    if ((await gitLine(args, store)) !== kept) return
  }
  await takeAway(folders, taskID, processes)
  const { bundle, fresh, archive } = uploadsOf(folders, taskID)
  for (const left of [jobIn(folderIn(folders, taskID)), bundle, fresh, archive]) await removeFolder(left)
  const haves = ["for-each-ref", "--sort=-creatordate", "--format=%(refname)", "refs/have"]
  // The work in a folder is counted and sent from its commit, however old that is.
  const isUsed = (ref: string) => existsSync(folderIn(folders, ref.slice(haveRef("").length)))
  const old = (await gitLine(haves, store))
    .split("\n")
    .slice(KEPT)
    .filter((ref) => !isUsed(ref))
  for (const ref of [...old, workRef(taskID), refOf("ignored", taskID)]) await git(["update-ref", "-d", ref], store)
}

/**
 * Removes a task's folder. The marker is removed first, so that an incomplete folder never counts as the agent's work.
 */
async function takeAway(folders: HostRepositoryFolders, taskID: string, processes: Processes): Promise<void> {
  await rm(completeMarkerPath(folders, taskID), { force: true })
  await endJob(folderIn(folders, taskID))
  await removeWorktree({ processes }, storeOf(folders), folderIn(folders, taskID))
}
