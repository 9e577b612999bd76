import { constants, existsSync, lstatSync } from "node:fs"
import {
  chmod,
  copyFile,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  realpath,
  rm,
  rmdir,
  stat,
  symlink,
} from "node:fs/promises"
import { dirname, join, resolve } from "node:path"
import { z } from "zod"
import { listed } from "../../core/errors.ts"
import { NoFile, readJson, readPlain, writeJson } from "../../lib/atomic-file.ts"
import type { Processes } from "../../lib/lock.ts"
import { succeeds } from "../../lib/promises.ts"
import { formatInteger } from "../../lib/text.ts"
import { named } from "../../present/summary.ts"
import { CaptureError, type EnterRequest } from "../../runtime/places/place.ts"
import { copiedEntriesIn, redirectLink } from "./dependencies.ts"
import { GitError, git, gitList, LONG_MS, retryOn } from "./git.ts"
import { linksOf } from "./objects.ts"
import { runBounded } from "./process.ts"
import {
  Checkout,
  findCheckout,
  gitOptions,
  ignoredFiles,
  ignoredOf,
  type LeftWork,
  lockOf,
  obstacleAbove,
  type Repository,
  sharedGitOptions,
  withLock,
} from "./repository.ts"

/**
 * State of a worktree's folder, stored beside it for use after a crash:
 * - `making`: incomplete, nothing has run in it;
 * - `used`: an agent may have worked in it;
 * - `kept`: archived under the ref, or empty; the folder may be removed;
 * - `held`: archived except for what git cannot store; the folder stays.
 */
const Marker = z.object({
  state: z.enum(["making", "used", "kept", "held"]),
  keeper: z.looseObject({ instance: z.string() }),
  /** Checkout from which the worktree was made. */
  from: Checkout,
  /** The worktree, once git has created it. */
  worktree: Checkout.optional(),
  /** Size of copied dependencies in bytes, and sentences on missing ones. */
  bytes: z.number().optional(),
  lacks: z.string().optional(),
  /** Of a held folder, the paths that cannot be archived: each archive names them again. */
  unsaved: z.array(z.string()).readonly().optional(),
  /** Of a held folder, the state that was archived of it. */
  archived: z.string().optional(),
})
export type Marker = z.infer<typeof Marker>

const fileOf = (folder: string): string => `${folder}.json`

/** Time at which a folder's marker was last written, in ms. */
export const markedAt = async (folder: string): Promise<number> => (await stat(fileOf(folder))).mtimeMs

/** Whether a folder is a task's worktree. */
export const hasMarker = (folder: string): boolean => existsSync(fileOf(folder))

export const writeMarker = (folder: string, marker: Marker): void => writeJson(fileOf(folder), marker)

/** Reads a folder's marker; undefined if there is none or it cannot be read. */
export const readMarker = (folder: string): Marker | undefined => Marker.safeParse(readJson(fileOf(folder))).data

export const dropMarker = (folder: string): Promise<void> => rm(fileOf(folder), { force: true })

type Ports = { readonly processes: Processes }

/** Delay before a failed change is repeated, in ms. Another process may have been changing a worktree. */
const AGAIN_MS = 50
const HALF_WAY = /failed to read .*commondir|could not create directory of|could not open .*No such file or directory/

/** Adds a worktree with a detached HEAD at a commit. */
export async function addWorktree(ports: Ports, from: Checkout, folder: string, commit: string): Promise<Checkout> {
  const args = ["add", "--detach", "--force", "--no-checkout", folder, commit]
  await alone(ports, from, () => git(["worktree", ...args], gitOptions(from)))
  const made = await ownTop(folder)
  await git(["reset", "--hard", "--quiet"], { ...gitOptions(made), timeLimit: LONG_MS })
  return made
}

/**
 * Finds the checkout in a new worktree. Where the repository sets `core.worktree` for all worktrees, the new one gets a
 * setting of its own: otherwise git would use another folder's files.
 */
async function ownTop(folder: string): Promise<Checkout> {
  const top = await realpath(folder)
  const made = await findCheckout(folder)
  if (!made) throw new GitError(["worktree"], `made no checkout in ${folder}`)
  if (made.top === top) return made
  await git(["config", "--file", join(made.gitDir, "config.worktree"), "core.worktree", top], sharedGitOptions(made))
  const again = await findCheckout(folder)
  if (again?.top === top) return again
  throw new CaptureError(
    `A worktree could not be made: git takes ${made.top} for the top of every worktree of this repository. Look at the setting core.worktree in ${join(made.commonDir, "config")}.`,
  )
}

/** Folder beside a new worktree from which ignored files are moved into it. A killed process leaves it behind. */
export const ignoredFolder = (folder: string): string => `${folder}.ignored`

/**
 * Removes a worktree's folder and git's entry for it, as far as they exist. Called when the state is archived or not
 * needed.
 */
export async function removeWorktree(ports: Ports, from: Repository, folder: string): Promise<void> {
  // The folder goes first, because git always drops the entry of a missing folder.
  try {
    await removeFolder(folder)
    await removeFolder(ignoredFolder(folder))
  } catch (error) {
    await alone(ports, from, () => forget(from, folder))
    throw error
  }
  if (!existsSync(from.commonDir)) return
  // With a double `--force`, git also removes a worktree that a killed git has left locked.
  const remove = () => git(["worktree", "remove", "--force", "--force", folder], sharedGitOptions(from))
  await alone(ports, from, remove).catch((error) => {
    if (!(error instanceof GitError && /is not a working tree/.test(error.message))) throw error
  })
}

/**
 * Changes git's list of worktrees. Only one process does so at a time, because git fails on half-made entries; the
 * change is repeated if others interfere.
 */
const alone = (ports: Ports, from: Repository, change: () => Promise<unknown>) =>
  withLock(lockOf(ports, from, "worktrees"), () => retryOn(HALF_WAY, change, AGAIN_MS))

/**
 * Removes git's entry of a worktree whose folder stays. The files are deleted directly, because git refuses to do so.
 */
async function forget(from: Repository, folder: string): Promise<void> {
  const notes = await notesOf(from, folder)
  if (notes !== undefined) await rm(notes, { recursive: true, force: true })
}

/** Folder with git's data of a worktree, whatever the worktree's folder contains; undefined if there is none. */
export async function notesOf({ commonDir }: Repository, folder: string): Promise<string | undefined> {
  const all = join(commonDir, "worktrees")
  for (const name of await readdir(all).catch(() => [])) {
    const note = await readFile(join(all, name, "gitdir"), "utf8").catch(() => "")
    if (resolve(all, name, note.trimEnd()) === join(folder, ".git")) return join(all, name)
  }
  return undefined
}

/** Whether a folder exists. A link to one, which an agent may have put in its place, counts as none. */
export const isFolder = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true

/**
 * Removes a folder, with read-only folders in it, which some package managers leave. Continues after a failure, and
 * throws the first error at the end.
 */
export async function removeFolder(folder: string): Promise<void> {
  try {
    await rm(folder, { recursive: true, force: true, maxRetries: 2 })
  } catch (error) {
    if (!isFolder(folder)) throw error
    const failures = await removeAll(folder)
    if (failures.length > 0) throw failures[0]
  }
}

async function removeAll(path: string): Promise<unknown[]> {
  const failures: unknown[] = []
  // Fails for a folder of another user. Such a folder may still be readable.
  await chmod(path, 0o700).catch(() => {})
  for (const entry of await readdir(path, { withFileTypes: true }).catch(() => [])) {
    const inner = join(path, entry.name)
    if (entry.isDirectory()) failures.push(...(await removeAll(inner)))
    else await rm(inner, { force: true }).catch((error) => failures.push(error))
  }
  if (failures.length === 0) await rmdir(path).catch((error) => failures.push(error))
  return failures
}

/**
 * Checks out the submodules that `original` has, from its local repositories: this needs no network and includes
 * unpushed commits. A submodule whose commit is missing stays empty.
 */
export async function addSubmodules(original: Checkout, worktree: Checkout): Promise<void> {
  const commits = await linksOf(worktree)
  for (const { name, path } of await submodules(worktree)) {
    const source = await submoduleOf(original, path)
    const commit = commits.get(path)
    if (!source || !commit || !(await hasAll(source, commit))) continue
    const settings = [
      `submodule.${name}.url=${source.gitDir}`,
      `submodule.${name}.active=true`,
      `submodule.${name}.update=checkout`,
      "protocol.file.allow=always",
    ]
    const args = [
      ...settings.flatMap((setting) => ["-c", setting]),
      "submodule",
      "update",
      "--init",
      "--checkout",
      "--",
      path,
    ]
    // The repository is not named here: git's submodule script must find it itself.
    await git(args, { cwd: worktree.top, timeLimit: LONG_MS })
    const made = await submoduleOf(worktree, path)
    if (made) await addSubmodules(source, made)
  }
}

/** Whether a repository has all these commits, one per line. */
async function hasAll(repository: Checkout, commits: string): Promise<boolean> {
  const { out } = await git(["cat-file", "--batch-check"], { ...gitOptions(repository), input: commits })
  return !/ missing$/m.test(out)
}

type Submodule = { readonly name: string; readonly path: string }

async function submodules(checkout: Checkout): Promise<readonly Submodule[]> {
  if (!existsSync(join(checkout.top, ".gitmodules"))) return []
  const args = ["config", "--null", "--file", ".gitmodules", "--get-regexp", "^submodule\\..*\\.path$"]
  const { code, out } = await git(args, { ...gitOptions(checkout), accept: [1] })
  if (code !== 0) return []
  return out.split("\0").flatMap((entry) => {
    const [key, path] = entry.split("\n")
    return key && path ? [{ name: key.slice("submodule.".length, -".path".length), path }] : []
  })
}

/** Most entries of a list of unsaved paths: markers and records hold it, and readers see all of it. */
const MOST_UNSAVED = 50

/**
 * Paths whose content only this worktree's folder has, with those that a snapshot of it left out. Of many, the last
 * entry counts those that are not named. `isKnown`: git still has the worktree's data.
 */
export async function unsavedIn(
  worktree: Checkout,
  { nested, unreadable }: { readonly nested: readonly string[]; readonly unreadable: readonly string[] },
  isKnown: boolean,
  original?: Checkout,
): Promise<readonly string[]> {
  const within = isKnown ? await unsavedWithin(original, worktree) : []
  const all = [...new Set([...nested, ...unreadable, ...(await unlistedIn(worktree, nested)), ...within])]
  if (all.length <= MOST_UNSAVED) return all
  const first = all.slice(0, MOST_UNSAVED - 1)
  return [...first, `and ${formatInteger(all.length - first.length)} more`]
}

/**
 * Submodules with content that is nowhere else: neither at the same path in `original`, if any, nor at a known remote.
 */
async function unsavedWithin(original: Checkout | undefined, worktree: Checkout): Promise<readonly string[]> {
  const unsaved: string[] = []
  for (const path of (await linksOf(worktree)).keys())
    if (!(await isElsewhere(original, worktree, path))) unsaved.push(path)
  return unsaved
}

/**
 * Paths named `.git` below the top, except ignored ones and those of submodules, copied entries and `nested`. Git
 * neither stores nor lists them, whatever they hold.
 */
async function unlistedIn(worktree: Checkout, nested: readonly string[]): Promise<readonly string[]> {
  const ended = await runBounded("find", [".", "-name", ".git", "-prune", "-print0"], {
    cwd: worktree.top,
    env: { ...process.env } as Record<string, string>,
    timeLimit: LONG_MS,
  })
  if (ended.kind !== "exited") return []
  const known = [...nested, ...(await linksOf(worktree)).keys(), ...(await copiedEntriesIn(worktree))]
  const found = ended.out.split("\0").map((path) => path.slice("./".length))
  const names = found.filter((name) => name.includes("/") && !known.some((folder) => name.startsWith(`${folder}/`)))
  const ignored = await ignoredOf(gitOptions(worktree), names)
  return names.filter((name) => !ignored.includes(name))
}

async function isElsewhere(original: Checkout | undefined, worktree: Checkout, path: string): Promise<boolean> {
  const folder = join(worktree.top, path)
  if (!isFolder(folder)) return true
  try {
    const inner = await submoduleOf(worktree, path)
    // Git takes a submodule without a repository for one that is not checked out, whatever its folder holds.
    if (!inner) return (await readdir(folder)).length === 0
    // Git would look into the submodules within, too.
    if ((await foreignWithin(inner)).length > 0) return false
    const all = ["--untracked-files=all", "--ignore-submodules=none"]
    const changed = await gitList(["status", "--porcelain=v2", "-z", ...all], gitOptions(inner))
    if (changed.length > 0) return false
    const commits = (await git(["rev-list", "--all", "HEAD", "--not", "--remotes"], gitOptions(inner))).out
    const source = original && (await submoduleOf(original, path))
    if (commits !== "" && !(source && (await hasAll(source, commits)))) return false
    return (await unsavedWithin(source, inner)).length === 0
  } catch (error) {
    if (error instanceof GitError) return false
    throw error
  }
}

/** Submodules of an index whose commit or files git cannot read, without those that it must not look into. */
export async function brokenWithin(
  checkout: Checkout,
  index: string,
  but: readonly string[],
): Promise<readonly string[]> {
  const broken: string[] = []
  for (const path of (await linksOf(checkout, index)).keys()) {
    if (but.includes(path)) continue
    const isRead = async () => {
      const inner = await submoduleOf(checkout, path)
      if (!inner) return
      await git(["rev-parse", "--verify", "HEAD^{commit}"], gitOptions(inner))
      await git(["status", "--porcelain=v2"], gitOptions(inner))
    }
    if (isFolder(join(checkout.top, path)) && !(await succeeds(isRead()))) broken.push(path)
  }
  return broken
}

/**
 * Submodules of a task's worktree with a repository that git did not make for it, or with such a submodule within. An
 * agent may have written its configuration, and git runs programs that a configuration names.
 */
export async function foreignWithin(checkout: Checkout, index?: string): Promise<readonly string[]> {
  if (!isTasks(checkout)) return []
  const foreign: string[] = []
  for (const path of (await linksOf(checkout, index)).keys()) {
    if (!isFolder(join(checkout.top, path)) || !(await succeeds(lstat(join(checkout.top, path, ".git"))))) continue
    const inner = await submoduleOf(checkout, path)
    const within = inner && (await foreignWithin(inner).catch(() => undefined))
    if (within?.length !== 0) foreign.push(path)
  }
  return foreign
}

/** Whether the checkout is a task's worktree or a submodule in one. */
const isTasks = ({ top, prefix }: Checkout): boolean => prefix === undefined || hasMarker(top)

/**
 * Repository of a submodule, if any. In a task's worktree, only one whose data git made beside those of the worktree,
 * where no agent that only writes files gets to; git is not asked, because it would read the configuration.
 */
async function submoduleOf(checkout: Checkout, path: string): Promise<Checkout | undefined> {
  const folder = join(checkout.top, path)
  if (!isTasks(checkout)) {
    const found = existsSync(join(folder, ".git")) ? await findCheckout(folder) : undefined
    return found?.top === checkout.top ? undefined : found && { ...found, prefix: "" }
  }
  try {
    const link = await readPlain(join(folder, ".git"), MOST_LINK_BYTES, () => new NoFile())
    const [, target = ""] = /^gitdir: (.+?)\n*$/s.exec(link.toString()) ?? []
    const gitDir = await realpath(resolve(folder, target))
    if (!gitDir.startsWith(join(checkout.gitDir, "modules", "/"))) return undefined
    return { top: await realpath(folder), gitDir, commonDir: gitDir }
  } catch {
    return undefined
  }
}

const MOST_LINK_BYTES = 10_000

/**
 * Copies ignored files that match a pattern; existing files stay. A pattern without a slash matches in any folder, one
 * with a slash from the top.
 */
export async function copyIgnored(from: Checkout, to: Checkout, patterns: readonly string[]): Promise<void> {
  for (const name of await ignoredIn(from, patterns)) await copyOne(from.top, to.top, name)
}

/** Ignored files of a checkout that match a pattern. */
export async function ignoredIn(from: Checkout, patterns: readonly string[]): Promise<readonly string[]> {
  if (patterns.length === 0) return []
  const specs = patterns.flatMap((pattern) => {
    const path = pattern.replace(/^\.?\/+/, "").replace(/\/+$/, "")
    const glob = path.includes("/") || pattern.startsWith("/") ? path : `**/${path}`
    return [`:(top,glob)${glob}`, `:(top,glob)${glob}/**`]
  })
  return ignoredFiles(from, specs)
}

async function copyOne(original: string, copy: string, name: string): Promise<void> {
  const [from, to] = [join(original, name), join(copy, name)]
  if ((await obstacleAbove(copy, name)) !== undefined || (await succeeds(lstat(to)))) return
  await mkdir(dirname(to), { recursive: true })
  if ((await lstat(from)).isSymbolicLink()) {
    const target = await readlink(from)
    await symlink((await redirectLink({ from: original, to: copy }, name, target)) ?? target, to)
  } else await copyFile(from, to, constants.COPYFILE_FICLONE)
}

export type Ignored = { readonly present: readonly string[]; readonly absent: readonly string[] }

export type PreparedWorktree = {
  /** Folder in the worktree that corresponds to the parent's. */
  readonly directory: string
  /** Files that got conflict markers when the parent's state was merged in. */
  readonly conflicts: readonly string[]
  /** Files of the parent that the worktree lacks, because they could not be read or are too large. */
  readonly unreadable: readonly string[]
  /** Note on files whose filter program is not installed. */
  readonly lacksProgram?: string
  /** Commits that the last run stashed and that do not apply to the worktree's files. */
  readonly stashed: readonly string[]
  /** Work of the last run that the worktree's files lack. */
  readonly left: LeftWork
  /** Ignored paths of the parent's folder, split by whether the worktree has them. */
  readonly ignored: Ignored
  /** Sentences on missing dependencies. */
  readonly lacks?: string
  /**
   * True if the parent's current state was not merged in, because conflicts of an earlier merge must be solved first.
   */
  readonly unsolved?: boolean
}

export function prefaceOf(
  { folder, again = false, bringIn = false }: EnterRequest,
  { directory, conflicts, unsolved, unreadable, stashed, left, lacksProgram, ignored, lacks }: PreparedWorktree,
): string {
  const inStash =
    stashed.length > 0
      ? ` What your last run left in it does not go together with your files; to take it up: ${stashed.map((commit) => `git stash apply ${commit}`).join("; ")}.`
      : ""
  const without = unreadable.length > 0 ? ` It lacks what could not be read or is too large: ${named(unreadable)}.` : ""
  const stored = lacksProgram ? ` ${lacksProgram}. Leave them so.` : ""
  const missing = lacks === undefined ? "" : ` ${lacks}`
  const place = `# Where you work\n\nYou work in a git worktree of your own, ${directory}. It has ${beginningText(again, bringIn && !unsolved)}.${ignoredText(ignored)}${without}${missing}${stored} Work in it alone: the agent that asks you works in ${folder}; do not write there. What you change is kept when you are done: you need not commit it. Do not use git stash: all checkouts share it, and what is in it is the user's.${inStash}${leftText(left)}`
  return `${place}${conflictMarkersText(conflicts, unsolved)}`
}

/** Names a run's files. `isPresent`: the parent's current state was merged into a later run's. */
export function beginningText(again: boolean, isPresent: boolean): string {
  if (!again) return "what the agent that asks you sees, uncommitted work included"
  return `your work so far${isPresent ? ", and with it what the agent that asks you sees now, uncommitted work included" : ""}`
}

function ignoredText({ present, absent }: Ignored): string {
  if (present.length === 0) return absent.length === 0 ? "" : ` It lacks what git ignores: ${listed(absent)}.`
  return ` Of what git ignores it has ${listed(present)}${absent.length === 0 ? "" : `, and lacks ${listed(absent)}`}.`
}

/** Part of the prompt of a later run that names commits which the agent's files lack; "" for none. */
export function leftText({ during, commits }: LeftWork): string {
  if (commits.length === 0) return ""
  const end = during ? `in the middle of ${during}` : "at another commit than your last"
  return ` Your last run ended ${end}: what you had in ${listed(commits)} is in your history, but may not be in these files. Look with git log -p, and take up what is still needed with git cherry-pick or git checkout <commit> -- <file>.`
}

/** Part of the prompt that explains conflict markers; "" if no file has any. */
export function conflictMarkersText(conflicts: readonly string[], unsolved = false): string {
  if (conflicts.length === 0) return ""
  const why = unsolved
    ? "The original folder's state was merged into it before, and these files still have conflict marks (<<<<<<<, =======, >>>>>>>)"
    : "The present state of the original folder was merged into it, and these files have conflict marks (<<<<<<<, =======, >>>>>>>)"
  return `\n${why} that you have to solve first, keeping what both sides meant. Above ======= is the original folder's, below it is yours. Where a side cannot be written out (a binary, a link), its mark says how to take it: put there what is to be there, or delete the file. A file is solved when no line of its marks is left. The files: ${named(conflicts, conflicts.length)}`
}
