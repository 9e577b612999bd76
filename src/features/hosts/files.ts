import { spawn } from "node:child_process"
import { createReadStream } from "node:fs"
import { mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { messageOf } from "../../core/errors.ts"
import { oneLine } from "../../lib/text.ts"
import { PlaceError } from "../../runtime/places/place.ts"
import { at, type Checkout, shared } from "../worktrees/checkout.ts"
import { git, gitLine } from "../worktrees/git.ts"
import { readRef } from "../worktrees/refs.ts"
import { specOf } from "../worktrees/shared-state.ts"
import { ignoredIn } from "../worktrees/worktree.ts"
import type { Answered, RunOptions } from "./fetching.ts"
import { textOf } from "./frames.ts"
import { filling, takeIn } from "./incoming-bundle.ts"
import { type FilesOrder, lookedIn, namesIn, type Sent, sentIn } from "./orders.ts"
import type { Rooms } from "./rooms.ts"

/** Large repositories take their time. */
const LONG_MS = 900_000
const OLDEST_GIT = [2, 38] as const
/** What a run may bring home. */
const MOST_HOME_BYTES = 4 * 2 ** 30
/** What is told of a reason that came from there. */
const MOST_PROBLEM_CHARS = 400
/** What a system says where it has no room. */
const FULL = /no space left on device|disk quota exceeded|disk full/i

/** A host, and where the files of a repository lie there. */
export type There = {
  readonly name: string
  readonly ask: (order: FilesOrder, options?: RunOptions) => Promise<Answered>
  readonly rooms: Rooms
}

export type Sending = {
  readonly taskID: string
  readonly commit: string
  /** Patterns of ignored files that go along. */
  readonly copy: readonly string[]
  /** Its folder is there, and goes on with what git ignores in it. */
  readonly inPlace?: boolean
}

/**
 * Has a task's folder made on a host, of a commit that is kept here under a ref: as a bundle without what the host has.
 * Throws a `CallError` where its git is not there or too old.
 */
export async function send(there: There, from: Checkout, { taskID, commit, copy, inPlace }: Sending): Promise<void> {
  const { rooms } = there
  const known = await look(there)
  const receive = async (options: RunOptions, ref?: string) => {
    const shallow = ref === undefined ? [] : await shallowOf(from)
    await asked(there, { do: "receive", rooms, taskID, commit, ref, shallow, inPlace }, options)
  }
  const haves = await knownHere(from, known)
  if (await isWithin(from, commit, haves)) await receive({})
  else
    await inFolder(async (folder) => {
      const bundle = join(folder, "there.bundle")
      const ref = `refs/superagents-outgoing/${taskID}`
      await git(["update-ref", ref, commit], shared(from))
      try {
        const range = [ref, ...haves.map((have) => `^${have}`)]
        await git(["bundle", "create", "-q", bundle, ...range], { ...at(from), timeLimit: LONG_MS })
      } finally {
        await git(["update-ref", "-d", ref], shared(from))
      }
      await receive({ input: createReadStream(bundle, { highWaterMark: 65_536 }) }, ref)
    })
  await sendIgnored(there, from, taskID, await ignoredIn(from, copy))
}

/** True where a host that has these commits has that one, too: git makes no bundle of nothing. */
async function isWithin(from: Checkout, commit: string, haves: readonly string[]): Promise<boolean> {
  if (haves.length === 0) return false
  return (await gitLine(["rev-list", "--max-count=1", commit, "--not", ...haves], at(from))) === ""
}

/** Sends files that git ignores: those alone that the options name. What is there already stays as it is. */
async function sendIgnored(there: There, from: Checkout, taskID: string, files: readonly string[]): Promise<void> {
  if (files.length === 0) return
  const tar = spawn("tar", ["-C", from.top, "-cf", "-", "--null", "-T", "-"], { stdio: ["pipe", "pipe", "ignore"] })
  tar.on("error", () => {})
  tar.stdin.on("error", () => {})
  tar.stdin.end(files.map((file) => `./${file}\0`).join(""))
  const { name, rooms } = there
  await asked(there, { do: "copy", rooms, taskID }, { input: tar.stdout }, `the files of hosts.${name}.copy: `)
}

async function look(there: There): Promise<readonly string[]> {
  const { name, rooms } = there
  const { git: version, commits = [] } = lookedIn(textOf(await asked(there, { do: "look", rooms })))
  const wanted = `${OLDEST_GIT.join(".")} or newer`
  const otherwise = "or give the task another `place`."
  if (version === undefined)
    throw new PlaceError(`git was not found on ${name}. Install git ${wanted} there, ${otherwise}`, "place")
  const [, found, major, minor] = /^git version ((\d+)\.(\d+)\S*)/.exec(version) ?? []
  const [needsMajor, needsMinor] = OLDEST_GIT
  const enough = Number(major) > needsMajor || (Number(major) === needsMajor && Number(minor) >= needsMinor)
  if (enough) return commits
  throw new PlaceError(
    `${name} has git ${oneLine(found ?? version, 40)}; ${wanted} is needed. Install a newer git there, ${otherwise}`,
    "place",
  )
}

/** Those of the host's commits that are here, too: what is sent is told from them. */
async function knownHere(from: Checkout, commits: readonly string[]): Promise<readonly string[]> {
  if (commits.length === 0) return []
  const { out } = await git(["cat-file", "--batch-check=%(objectname) %(objecttype)"], {
    ...shared(from),
    input: `${commits.join("\n")}\n`,
  })
  return out.split("\n").flatMap((line) => (line.endsWith(" commit") ? [line.slice(0, line.indexOf(" "))] : []))
}

async function shallowOf(from: Checkout): Promise<readonly string[]> {
  const file = await gitLine(["rev-parse", "--path-format=absolute", "--git-path", "shallow"], at(from))
  const text = await readFile(file, "utf8").catch(() => "")
  return text.split("\n").filter((line) => line !== "")
}

/** The ref under which what came is kept until the task's own has it. */
const incoming = (taskID: string): string => `refs/superagents-incoming/${taskID}`

/**
 * Brings the state of a task's folder home, verified object by object; undefined where there is no such folder. Nothing
 * is removed there.
 */
export async function fetchHome(there: There, to: Checkout, taskID: string): Promise<Sent | undefined> {
  const { name, rooms } = there
  const home = committedBy(name, await asked(there, { do: "commit", rooms, taskID }))
  if (!home) return undefined
  const { commit } = home
  if ((await knownHere(to, [commit])).length > 0) return home
  await inFolder(async (folder) => {
    const file = join(folder, "home.bundle")
    const bundle = filling(file, name, MOST_HOME_BYTES)
    await asked(there, { do: "bundle", rooms, taskID }, { take: bundle.take }).finally(bundle.end)
    const since = await readRef(to, "state", taskID)
    await takeIn(to, { name, file, ref: `refs/work/${taskID}`, commit, since })
  })
  await git(["update-ref", incoming(taskID), commit], shared(to))
  return home
}

/** The files in a task's folder there that no commit of it has and that these globs name. */
export async function hiddenThere(
  there: There,
  taskID: string,
  tree: string,
  globs: readonly string[],
): Promise<readonly string[]> {
  if (globs.length === 0) return []
  const order = { do: "hidden", rooms: there.rooms, taskID, tree, specs: globs.map(specOf) } as const
  return namesIn(textOf(await asked(there, order)))
}

function committedBy(name: string, out: Uint8Array): Sent | null {
  try {
    return sentIn(textOf(out))
  } catch (error) {
    throw new Error(`what came from ${name} ${messageOf(error)}`)
  }
}

/** What came home is kept under another ref by now. */
export const settleIncoming = (to: Checkout, taskID: string): Promise<unknown> =>
  git(["update-ref", "-d", incoming(taskID)], shared(to))

/** Takes a task's folder away there; `commit`: only where that is what was kept of it last. */
export async function removeThere(there: There, taskID: string, commit?: string): Promise<void> {
  await asked(there, { do: "remove", rooms: there.rooms, taskID, commit })
}

/** The answer to an order. Throws where it failed there; `what` begins the reason. */
async function asked(there: There, order: FilesOrder, options?: RunOptions, what = ""): Promise<Uint8Array> {
  const { name } = there
  const { out, problem } = await there.ask(order, options)
  if (problem === undefined) return out
  const why = oneLine(problem, MOST_PROBLEM_CHARS)
  if (!FULL.test(problem)) throw new Error(`${name}: ${what}${why}`)
  throw new PlaceError(`The disk of ${name} is full: ${why}. Make room there, then try again.`, "place")
}

async function inFolder<Value>(work: (folder: string) => Promise<Value>): Promise<Value> {
  const folder = await mkdtemp(join(tmpdir(), "superagents-bundle-"))
  try {
    return await work(folder)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
