import { spawn } from "node:child_process"
import { createReadStream } from "node:fs"
import { mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { oneLine } from "../../lib/text.ts"
import { PlaceError } from "../place.ts"
import { at, type Checkout, shared } from "../worktree/checkout.ts"
import { git, gitLine } from "../worktree/git.ts"
import { ignoredIn } from "../worktree/worktree.ts"
import { filling, takeIn } from "./arriving.ts"
import type { Ran, RunOptions } from "./fetching.ts"
import { textOf } from "./frames.ts"
import {
  bundleScript,
  commitScript,
  folderIn,
  lookScript,
  quoted,
  type Rooms,
  receiveScript,
  removeScript,
} from "./scripts.ts"

/** Large repositories take their time. */
const LONG_MS = 900_000
const OLDEST_GIT = [2, 38] as const
/** What a run may bring home. */
const MOST_HOME_BYTES = 4 * 2 ** 30
/** A commit's name. What a host tells under another one is not looked up here: it could name a branch. */
const COMMIT = /^([0-9a-f]{40}|[0-9a-f]{64})$/
/** Folders with work that no commit can hold: so many are told. */
const MOST_NESTED = 100
/** What a system says where it has no room. */
const FULL = /no space left on device|disk quota exceeded|disk full/i

/** Runs a line on the host. */
type RunThere = (line: string, options?: RunOptions) => Promise<Ran>

export type There = { readonly name: string; readonly run: RunThere; readonly rooms: Rooms }

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
  const { run, rooms } = there
  const known = await look(there)
  const receive = async (options: RunOptions, ref?: string) => {
    const shallow = ref === undefined ? [] : await shallowOf(from)
    succeeded(there, await run(receiveScript({ rooms, taskID, commit, ref, shallow, inPlace }), options))
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

/** Sends files that git ignores: those alone that the options name. What git has is there already, and stays. */
async function sendIgnored({ name, run, rooms }: There, from: Checkout, taskID: string, files: readonly string[]) {
  if (files.length === 0) return
  const tar = spawn("tar", ["-C", from.top, "-cf", "-", "--null", "-T", "-"], { stdio: ["pipe", "pipe", "ignore"] })
  tar.on("error", () => {})
  tar.stdin.on("error", () => {})
  tar.stdin.end(files.map((file) => `./${file}\0`).join(""))
  const ran = await run(`tar -C ${quoted(folderIn(rooms, taskID))} -xkf -`, { input: tar.stdout })
  if (ran.code !== 0)
    throw new Error(`${name}: the files of hosts.${name}.copy could not be sent: ${ran.errors.trim()}`)
}

async function look(there: There): Promise<readonly string[]> {
  const { name, run, rooms } = there
  const ran = await run(lookScript(rooms))
  const wanted = `${OLDEST_GIT.join(".")} or newer`
  const otherwise = "or give the task another `place`."
  if (ran.code === 127)
    throw new PlaceError(`git was not found on ${name}. Install git ${wanted} there, ${otherwise}`, "place")
  const [version = "", ...commits] = textOf(ran.out).trim().split("\n")
  const [, found, major, minor] = /^git version ((\d+)\.(\d+)\S*)/.exec(version) ?? []
  const [needsMajor, needsMinor] = OLDEST_GIT
  const enough = Number(major) > needsMajor || (Number(major) === needsMajor && Number(minor) >= needsMinor)
  if (found !== undefined && !enough)
    throw new PlaceError(
      `${name} has git ${oneLine(found, 40)}; ${wanted} is needed. Install a newer git there, ${otherwise}`,
      "place",
    )
  succeeded(there, ran)
  return commits.filter((each) => COMMIT.test(each))
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

/** What came home: the commit of a folder's state, and what no commit can hold and is there alone. */
export type Home = { readonly commit: string; readonly nested: readonly string[] }

/** The ref under which what came is kept until the task's own has it. */
const incoming = (taskID: string): string => `refs/superagents-incoming/${taskID}`

/**
 * Brings the state of a task's folder home, verified object by object; undefined where there is no such folder. Nothing
 * is removed there.
 */
export async function fetchHome(there: There, to: Checkout, taskID: string): Promise<Home | undefined> {
  const { run, rooms } = there
  const committed = await run(commitScript(rooms, taskID))
  if (committed.code === 9) return undefined
  const [commit = "", ...lines] = textOf(succeeded(there, committed).out).trim().split("\n")
  if (!COMMIT.test(commit)) throw new Error(`what came from ${there.name} is no commit: ${oneLine(commit, 60)}`)
  const nested = lines.slice(0, MOST_NESTED).map((line) => oneLine(line))
  if ((await knownHere(to, [commit])).length > 0) return { commit, nested }
  await inFolder(async (folder) => {
    const file = join(folder, "home.bundle")
    const bundle = filling(file, there.name, MOST_HOME_BYTES)
    const ran = await run(bundleScript(rooms, taskID), { take: bundle.take }).finally(bundle.end)
    succeeded(there, ran)
    await takeIn(to, { name: there.name, file, ref: `refs/work/${taskID}`, commit })
  })
  await git(["update-ref", incoming(taskID), commit], shared(to))
  return { commit, nested }
}

/** What came home is kept under another ref by now. */
export const settleIncoming = (to: Checkout, taskID: string): Promise<unknown> =>
  git(["update-ref", "-d", incoming(taskID)], shared(to))

/** Takes a task's folder away there; `commit`: only where that is what was kept of it last. */
export async function removeThere(there: There, taskID: string, commit?: string): Promise<void> {
  succeeded(there, await there.run(removeScript(there.rooms, taskID, commit)))
}

function succeeded({ name }: There, ran: Ran): Ran {
  if (ran.code === 0) return ran
  const last = oneLine(ran.errors.trim().split("\n").at(-1) || `exit code ${ran.code}`)
  if (!FULL.test(ran.errors)) throw new Error(`${name}: ${last}`)
  throw new PlaceError(`The disk of ${name} is full: ${last}. Make room there, then try again.`, "place")
}

async function inFolder<Value>(work: (folder: string) => Promise<Value>): Promise<Value> {
  const folder = await mkdtemp(join(tmpdir(), "superagents-bundle-"))
  try {
    return await work(folder)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
