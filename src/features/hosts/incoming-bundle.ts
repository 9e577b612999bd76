import { createWriteStream } from "node:fs"
import { open } from "node:fs/promises"
import { finished } from "node:stream/promises"
import { formatInteger } from "../../lib/text.ts"
import { type Checkout, sharedGitOptions } from "../worktrees/checkout.ts"
import { GitError, git } from "../worktrees/git.ts"

/** Large repositories take long. */
const LONG_MS = 900_000
/** Longest header: one line for each ref. */
const MOST_HEAD_BYTES = 1_048_576
const KIND = /^# v[23] git bundle$/
/** Other capabilities mean that objects are left out. */
const CAPABILITY = /^@object-format=/

export type IncomingBundle = {
  /** Name of the host. */
  readonly name: string
  /** Path of the local bundle. */
  readonly file: string
  readonly heads: readonly {
    /** Ref of the commit within the bundle. */
    readonly ref: string
    readonly commit: string
    /** Last known state of the task; absent for none. */
    readonly since: string | undefined
  }[]
}

/** How many files and folders it may have more than that, and how many bytes more their names and contents together. */
const MOST_ADDED = 200_000
const MOST_NAME_BYTES = 32 * 2 ** 20
const MOST_CONTENT_BYTES = 16 * 2 ** 30
/** Mode, kind, hash and name of an entry: no file system has a longer path. */
const MOST_ENTRY_BYTES = 65_536

/**
 * Adds a host's bundle to the repository with each object verified, which git before 2.46 does not do. None of its refs
 * is used, and nothing stays where anything is wrong.
 */
export async function importBundle(to: Checkout, { name, file, heads }: IncomingBundle): Promise<void> {
  const head = await headOf(file)
  if (!head) throw new Error(`what came from ${name} is no bundle of git`)
  if (heads.some(({ commit, ref }) => !head.lines.includes(`${commit} ${ref}`)))
    throw new Error(`what came from ${name} is not what was committed there`)
  const inputFrom = { file, start: head.end }
  try {
    await git(["index-pack", "--strict", "--fix-thin", "--stdin"], {
      ...sharedGitOptions(to),
      inputFrom,
      timeLimit: LONG_MS,
    })
    // Verifies that all referenced objects exist.
    const commits = heads.map(({ commit }) => commit)
    await git(["rev-list", "--objects", "--quiet", ...commits, "--not", "--all"], {
      ...sharedGitOptions(to),
      timeLimit: LONG_MS,
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
 * Whether a state can be listed and written out. A few bytes can name a tree that has itself in it again and again, or
 * files that unpack to more than a disk holds. Folders count, too: they may be empty.
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
  const { cut: isMore } = await git(args, { ...sharedGitOptions(to), take, timeLimit: LONG_MS })
  return { ...size, isMore }
}

/** The bytes of these files, each as often as it is there. */
async function contentsOf(to: Checkout, blobs: ReadonlyMap<string, number>): Promise<number> {
  const asked = [...blobs].filter(([, times]) => times > 0)
  if (asked.length === 0) return 0
  const input = asked.map(([oid]) => `${oid}\n`).join("")
  const args = ["cat-file", "--batch-check=%(objectsize)"]
  const sizes = (await git(args, { ...sharedGitOptions(to), input, timeLimit: LONG_MS })).out.split("\n")
  return asked.reduce((sum, [, times], nth) => sum + times * Number(sizes[nth]), 0)
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
export function createFileSink(path: string, name: string, mostBytes: number) {
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
