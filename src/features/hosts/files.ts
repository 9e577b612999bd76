import { spawn } from "node:child_process"
import { createReadStream, createWriteStream } from "node:fs"
import { open, readFile } from "node:fs/promises"
import { join } from "node:path"
import { finished } from "node:stream/promises"
import { messageOf } from "../../core/errors.ts"
import { formatInteger, oneLine } from "../../lib/text.ts"
import { PlaceError } from "../../runtime/places/place.ts"
import { GitError, git, gitLine, isNewEnough, LONG_MS, WANTED_VERSION } from "../worktrees/git.ts"
import { type Checkout, gitOptions, readRef, refOf, sharedGitOptions, writeRefs } from "../worktrees/repository.ts"
import { specOf } from "../worktrees/shared-state.ts"
import { inTemporaryFolder } from "../worktrees/snapshot.ts"
import { ignoredIn } from "../worktrees/worktree.ts"
import type { OrderResult, RunOptions } from "./fetching.ts"
import { textOf } from "./frames.ts"
import {
  type CommitResult,
  type FilesOrder,
  type HostRepositoryFolders,
  namesIn,
  parseCommitResult,
  parseLookResult,
} from "./orders.ts"

/** Time limit of each git command that imports a bundle, in ms. Large repositories take long. */
const IMPORT_LIMIT_MS = 900_000
/** Most bytes that are read for a bundle's header, which has one line for each ref. */
const MOST_HEAD_BYTES = 1_048_576
const KIND = /^# v[23] git bundle$/
/** The only accepted capability of a bundle: others mean that objects are left out. */
const CAPABILITY = /^@object-format=/

type IncomingBundle = {
  readonly name: string
  readonly file: string
  readonly heads: readonly {
    /** Ref of the commit within the bundle. */
    readonly ref: string
    readonly commit: string
    /** Commit of the task's last known state; undefined if there is none. */
    readonly since: string | undefined
  }[]
}

/**
 * Limits for what a fetched state may have more than the last known one: files and folders, bytes of their names, and
 * bytes of their contents.
 */
const MOST_ADDED = 200_000
const MOST_NAME_BYTES = 32 * 2 ** 20
const MOST_CONTENT_BYTES = 16 * 2 ** 30
/** Longest accepted entry of a tree: mode, kind, hash and path. No file system has a longer path. */
const MOST_ENTRY_BYTES = 65_536

/**
 * Adds a host's bundle to the repository and verifies each object, which git before 2.46 does not do. None of the
 * bundle's refs is used, and nothing stays if anything is wrong.
 */
async function importBundle(to: Checkout, { name, file, heads }: IncomingBundle): Promise<void> {
  const head = await headOf(file)
  if (!head) throw new Error(`what came from ${name} is no bundle of git`)
  if (heads.some(({ commit, ref }) => !head.lines.includes(`${commit} ${ref}`)))
    throw new Error(`what came from ${name} is not what was committed there`)
  const inputFrom = { file, start: head.end }
  try {
    await git(["index-pack", "--strict", "--fix-thin", "--stdin"], {
      ...sharedGitOptions(to),
      inputFrom,
      timeLimit: IMPORT_LIMIT_MS,
    })
    // Verifies that all referenced objects exist.
    const commits = heads.map(({ commit }) => commit)
    await git(["rev-list", "--objects", "--quiet", ...commits, "--not", "--all"], {
      ...sharedGitOptions(to),
      timeLimit: IMPORT_LIMIT_MS,
    })
  } catch (error) {
    if (!(error instanceof GitError)) throw error
    throw new Error(`what came from ${name} is not taken, since git finds it broken: ${error.message}`)
  }
  for (const { since, commit } of heads)
    if (!(await isBounded(to, since, commit)))
      throw new Error(
        `what came from ${name} is not taken, since it adds more than ${formatInteger(MOST_ADDED)} files and folders or ${MOST_CONTENT_BYTES / 2 ** 30} GB`,
      )
}

/**
 * Whether a state is small enough to be listed and written out. A few bytes can name a tree with the same subtree again
 * and again, or files that unpack to more than a disk holds. Folders count, too, since they may be empty.
 */
async function isBounded(to: Checkout, since: string | undefined, commit: string): Promise<boolean> {
  const blobs = new Map<string, number>()
  const before = since === undefined ? NOTHING : await listedIn(to, since, ENDLESS, (oid) => add(blobs, oid, -1))
  const most = { entries: before.entries + MOST_ADDED, names: before.names + MOST_NAME_BYTES }
  const { isMore } = await listedIn(to, commit, most, (oid) => add(blobs, oid, 1))
  return !isMore && (await contentsOf(to, blobs)) <= MOST_CONTENT_BYTES
}

const NOTHING = { entries: 0, names: 0 }
const ENDLESS = { entries: Number.POSITIVE_INFINITY, names: Number.POSITIVE_INFINITY }

const add = (counts: Map<string, number>, key: string, by: number) => void counts.set(key, (counts.get(key) ?? 0) + by)

/** Counts files, folders and name bytes, up to a limit, while `ls-tree` prints them. */
async function listedIn(to: Checkout, state: string, most: typeof NOTHING, onBlob: (oid: string) => void) {
  const size = { ...NOTHING }
  let rest = Buffer.alloc(0)
  const take = async (chunk: Buffer) => {
    const text = Buffer.concat([rest, chunk])
    let start = 0
    for (let end = text.indexOf(0); end >= 0; end = text.indexOf(0, start)) {
      const tab = text.indexOf(9, start)
      const [, kind, oid = ""] = text.toString("latin1", start, tab).split(" ")
      if (kind === "blob") onBlob(oid)
      size.entries++
      size.names += end - tab
      start = end + 1
    }
    rest = text.subarray(start)
    const isMore = size.entries > most.entries || size.names > most.names
    if (isMore || rest.length > MOST_ENTRY_BYTES) throw new Error("it is too much")
  }
  const args = ["ls-tree", "-r", "-t", "-z", "--full-tree", state]
  const { cut: isMore } = await git(args, { ...sharedGitOptions(to), take, timeLimit: IMPORT_LIMIT_MS })
  return { ...size, isMore }
}

/** Total size of these blobs in bytes. A blob counts once for each file that has its content. */
async function contentsOf(to: Checkout, blobs: ReadonlyMap<string, number>): Promise<number> {
  const blobsToMeasure = [...blobs].filter(([, times]) => times > 0)
  if (blobsToMeasure.length === 0) return 0
  const input = blobsToMeasure.map(([oid]) => `${oid}\n`).join("")
  const args = ["cat-file", "--batch-check=%(objectsize)"]
  const sizes = (await git(args, { ...sharedGitOptions(to), input, timeLimit: IMPORT_LIMIT_MS })).out.split("\n")
  return blobsToMeasure.reduce((sum, [, times], nth) => sum + times * Number(sizes[nth]), 0)
}

/** Header lines and offset of the pack; undefined for an incomplete bundle. */
async function headOf(file: string): Promise<{ lines: readonly string[]; end: number } | undefined> {
  const handle = await open(file, "r")
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(MOST_HEAD_BYTES), 0, MOST_HEAD_BYTES, 0)
    const text = buffer.toString("latin1", 0, bytesRead)
    const end = text.indexOf("\n\n")
    const [kind = "", ...lines] = text.slice(0, Math.max(0, end)).split("\n")
    if (!KIND.test(kind) || lines.some((line) => line.startsWith("@") && !CAPABILITY.test(line))) return undefined
    return { lines, end: end + 2 }
  } finally {
    await handle.close()
  }
}

/** Writes chunks to a file and throws beyond `mostBytes`. */
function createFileSink(path: string, name: string, mostBytes: number) {
  const file = createWriteStream(path)
  const done = finished(file)
  done.catch(() => {})
  let size = 0
  return {
    take(chunk: Uint8Array): void | Promise<void> {
      size += chunk.length
      if (size > mostBytes) throw new Error(`more came from ${name} than ${mostBytes} bytes`)
      if (file.errored) throw file.errored
      if (file.write(chunk)) return undefined
      const isDrained = new Promise<void>((resolve) => file.once("drain", resolve))
      return Promise.race([isDrained, done.catch(() => {})])
    },
    async end(): Promise<void> {
      file.end()
      try {
        await done
      } catch (error) {
        if ((error as { code?: string }).code !== "ENOSPC") throw error
        throw new Error(`the disk of this machine is full, so that what came from ${name} has no room`)
      }
    },
  }
}

/** Largest bundle that a host may send back, in bytes. */
const MOST_HOME_BYTES = 4 * 2 ** 30
/** Characters quoted of an error on the host. */
const MOST_PROBLEM_CHARS = 400
const FULL = /no space left on device|disk quota exceeded|disk full/i

export type RepositoryHost = {
  readonly name: string
  readonly ask: (order: FilesOrder, options?: RunOptions) => Promise<OrderResult>
  readonly folders: HostRepositoryFolders
}

export type Sending = {
  readonly taskID: string
  readonly commit: string
  /** Patterns of ignored files to copy. */
  readonly copy: readonly string[]
  /** True if the remote folder exists: it is updated, and its ignored files are kept. */
  readonly inPlace?: boolean
}

/**
 * Creates a task's remote folder from a commit that a local ref keeps, after sending a bundle of the objects that the
 * host lacks. Throws a `CallError` if the host's git is missing or too old.
 */
export async function send(
  repositoryHost: RepositoryHost,
  from: Checkout,
  { taskID, commit, copy, inPlace }: Sending,
): Promise<void> {
  const { folders } = repositoryHost
  const known = await look(repositoryHost)
  const ignored = !inPlace && (await readRef(from, "ignored", taskID)) !== undefined
  const receive = async (options: RunOptions, ref?: string) => {
    const shallow = ref === undefined ? [] : await shallowOf(from)
    await runOrder(repositoryHost, { do: "receive", folders, taskID, commit, ref, ignored, shallow, inPlace }, options)
  }
  const haves = await knownHere(from, known)
  const isThere = await isWithin(from, commit, haves)
  if (isThere && !ignored) await receive({})
  else
    await inTemporaryFolder("bundle", async (folder) => {
      const bundle = join(folder, "there.bundle")
      const ref = isThere ? undefined : refOf("outgoing", taskID)
      if (ref) await writeRefs(from, taskID, { outgoing: commit })
      try {
        const refs = [...(ref ? [ref] : []), ...(ignored ? [refOf("ignored", taskID)] : [])]
        const range = [...refs, ...haves.map((have) => `^${have}`)]
        await git(["bundle", "create", "-q", bundle, ...range], { ...gitOptions(from), timeLimit: LONG_MS })
      } finally {
        if (ref) await writeRefs(from, taskID, { outgoing: undefined })
      }
      const input = createReadStream(bundle, { highWaterMark: 65_536 })
      await receive({ input }, ref).finally(() => input.destroy())
    })
  await sendIgnored(repositoryHost, from, taskID, await ignoredIn(from, copy))
}

/**
 * Whether a host with the commits `haves` has this commit, too. No bundle is made then, because git refuses to make an
 * empty one.
 */
async function isWithin(from: Checkout, commit: string, haves: readonly string[]): Promise<boolean> {
  if (haves.length === 0) return false
  return (await gitLine(["rev-list", "--max-count=1", commit, "--not", ...haves], gitOptions(from))) === ""
}

/** Sends ignored files that the options name. Existing files are not overwritten. */
async function sendIgnored(
  repositoryHost: RepositoryHost,
  from: Checkout,
  taskID: string,
  files: readonly string[],
): Promise<void> {
  if (files.length === 0) return
  const tar = spawn("tar", ["-C", from.top, "-cf", "-", "--null", "-T", "-"], { stdio: ["pipe", "pipe", "ignore"] })
  tar.on("error", () => {})
  tar.stdin.on("error", () => {})
  tar.stdin.end(files.map((file) => `./${file}\0`).join(""))
  const { name, folders } = repositoryHost
  await runOrder(
    repositoryHost,
    { do: "copy", folders, taskID },
    { input: tar.stdout },
    `the files of hosts.${name}.copy: `,
  ).finally(() => tar.stdout.destroy())
}

async function look(repositoryHost: RepositoryHost): Promise<readonly string[]> {
  const { name, folders } = repositoryHost
  const { git: version, commits = [] } = parseLookResult(
    textOf(await runOrder(repositoryHost, { do: "look", folders })),
  )
  const otherwise = "or give the task another `place`."
  if (version === undefined)
    throw new PlaceError(`git was not found on ${name}. Install git ${WANTED_VERSION} there, ${otherwise}`, "place")
  const [, found = ""] = /^git version (\d+\.\d+\S*)/.exec(version) ?? []
  if (isNewEnough(found)) return commits
  throw new PlaceError(
    `${name} has git ${oneLine(found || version, 40)}; ${WANTED_VERSION} is needed. Install a newer git there, ${otherwise}`,
    "place",
  )
}

/** Returns the commits of the host that exist in the local repository, too. A sent bundle leaves out their objects. */
async function knownHere(from: Checkout, commits: readonly string[]): Promise<readonly string[]> {
  if (commits.length === 0) return []
  const { out } = await git(["cat-file", "--batch-check=%(objectname) %(objecttype)"], {
    ...sharedGitOptions(from),
    input: `${commits.join("\n")}\n`,
  })
  return out.split("\n").flatMap((line) => (line.endsWith(" commit") ? [line.slice(0, line.indexOf(" "))] : []))
}

async function shallowOf(from: Checkout): Promise<readonly string[]> {
  const file = await gitLine(["rev-parse", "--path-format=absolute", "--git-path", "shallow"], gitOptions(from))
  const text = await readFile(file, "utf8").catch(() => "")
  return text.split("\n").filter((line) => line !== "")
}

/**
 * Fetches the state of a task's folder and verifies each object; undefined without a folder. Removes nothing on the
 * host. The ref `incoming` keeps the work until the caller has set the task's own refs.
 */
export async function fetchWork(
  repositoryHost: RepositoryHost,
  to: Checkout,
  taskID: string,
): Promise<CommitResult | undefined> {
  const { name, folders } = repositoryHost
  const sent = committedBy(name, await runOrder(repositoryHost, { do: "commit", folders, taskID }))
  if (!sent) return undefined
  const { commit, ignored } = sent
  const all = [
    { ref: `refs/work/${taskID}`, commit, since: await readRef(to, "state", taskID) },
    ...(ignored === undefined
      ? []
      : [{ ref: refOf("ignored", taskID), commit: ignored, since: await readRef(to, "ignored", taskID) }]),
  ]
  const known = await knownHere(
    to,
    all.map((head) => head.commit),
  )
  // Import only commits that do not exist here: the bundle has no refs for known ones.
  const heads = all.filter((head) => !known.includes(head.commit))
  if (heads.length === 0) return sent
  await inTemporaryFolder("bundle", async (folder) => {
    const file = join(folder, "home.bundle")
    const bundle = createFileSink(file, name, MOST_HOME_BYTES)
    await runOrder(repositoryHost, { do: "bundle", folders, taskID }, { take: bundle.take }).finally(bundle.end)
    await importBundle(to, { name, file, heads })
  })
  await writeRefs(to, taskID, { incoming: commit })
  return sent
}

/** Files in a task's remote folder that match the globs and are in none of the folder's commits. */
export async function hiddenOnHost(
  repositoryHost: RepositoryHost,
  taskID: string,
  tree: string,
  globs: readonly string[],
): Promise<readonly string[]> {
  if (globs.length === 0) return []
  const order = { do: "hidden", folders: repositoryHost.folders, taskID, tree, specs: globs.map(specOf) } as const
  return namesIn(textOf(await runOrder(repositoryHost, order)))
}

function committedBy(name: string, out: Uint8Array): CommitResult | null {
  try {
    return parseCommitResult(textOf(out))
  } catch (error) {
    throw new Error(`what came from ${name} ${messageOf(error)}`)
  }
}

/** Removes a task's remote folder; with `commit`, only if this is the folder's last committed state. */
export async function removeRemoteFolder(
  repositoryHost: RepositoryHost,
  taskID: string,
  commit?: string,
): Promise<void> {
  await runOrder(repositoryHost, { do: "remove", folders: repositoryHost.folders, taskID, commit })
}

/** Sends an order and returns its result. Throws if the order failed; the message has `what` before the reason. */
async function runOrder(
  repositoryHost: RepositoryHost,
  order: FilesOrder,
  options?: RunOptions,
  what = "",
): Promise<Uint8Array> {
  const { name } = repositoryHost
  const { out, problem } = await repositoryHost.ask(order, options)
  if (problem === undefined) return out
  const why = oneLine(problem, MOST_PROBLEM_CHARS)
  if (!FULL.test(problem)) throw new Error(`${name}: ${what}${why}`)
  throw new PlaceError(`The disk of ${name} is full: ${why}. Make room there, then try again.`, "place")
}
