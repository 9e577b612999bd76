import { spawn } from "node:child_process"
import { createReadStream } from "node:fs"
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { CallError } from "../../core/errors.ts"
import { at, type Checkout, shared } from "../worktree/checkout.ts"
import { git, gitLine } from "../worktree/git.ts"
import { refOf } from "../worktree/refs.ts"
import { ignoredIn } from "../worktree/worktree.ts"
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

/** Runs a line on the host. */
type RunThere = (line: string, options?: RunOptions) => Promise<Ran>

export type There = { readonly name: string; readonly run: RunThere; readonly rooms: Rooms }

/**
 * Has a task's folder made on a host, of a commit that is kept here under a ref: as a bundle without what the host has.
 * Throws a `CallError` where its git is not there or too old.
 */
export async function send(
  there: There,
  from: Checkout,
  taskID: string,
  commit: string,
  copy: readonly string[],
): Promise<void> {
  const { run, rooms } = there
  const known = await look(there)
  const haves = await knownHere(from, known)
  const needs = !known.includes(commit)
  const ref = refOf("state", taskID)
  const receive = (options: RunOptions, sent?: string) => {
    const shallow = sent === undefined ? Promise.resolve([]) : shallowOf(from)
    return shallow.then(async (shallow) =>
      succeeded(there, await run(receiveScript({ rooms, taskID, commit, ref: sent, shallow }), options)),
    )
  }
  if (!needs) await receive({})
  else
    await inFolder(async (folder) => {
      const bundle = join(folder, "there.bundle")
      await git(["bundle", "create", "-q", bundle, ref, ...haves.map((have) => `^${have}`)], {
        ...at(from),
        timeLimit: LONG_MS,
      })
      await receive({ input: createReadStream(bundle, { highWaterMark: 65_536 }) }, ref)
    })
  await sendIgnored(there, from, taskID, await ignoredIn(from, copy))
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
  const ran = await there.run(lookScript(there.rooms))
  const wanted = OLDEST_GIT.join(".")
  if (ran.code === 127) throw new CallError(`${there.name} has no git; ${wanted} or newer is needed.`)
  const [version = "", ...commits] = textOf(succeeded(there, ran).out).trim().split("\n")
  const [, major, minor] = /(\d+)\.(\d+)/.exec(version) ?? []
  const [needsMajor, needsMinor] = OLDEST_GIT
  const enough = Number(major) > needsMajor || (Number(major) === needsMajor && Number(minor) >= needsMinor)
  if (!enough) throw new CallError(`${there.name} has ${version.slice(0, 60)}; ${wanted} or newer is needed.`)
  return commits
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

/** The ref under which a bundle arrives here, until it is known to be whole. */
const incoming = (taskID: string): string => `refs/superagents-incoming/${taskID}`

/**
 * Brings the state of a task's folder home, verified object by object; undefined where there is no such folder. Nothing
 * is removed there.
 */
export async function fetchHome(there: There, to: Checkout, taskID: string): Promise<Home | undefined> {
  const { run, rooms } = there
  const committed = await run(commitScript(rooms, taskID))
  if (committed.code === 9) return undefined
  const [commit = "", ...nested] = textOf(succeeded(there, committed).out).trim().split("\n")
  if ((await knownHere(to, [commit])).length > 0) return { commit, nested }
  const { out } = succeeded(there, await run(bundleScript(rooms, taskID)))
  await inFolder(async (folder) => {
    const bundle = join(folder, "home.bundle")
    await writeFile(bundle, out)
    const fetch = ["fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"]
    const refs = `+refs/work/${taskID}:${incoming(taskID)}`
    await git(["-c", "fetch.fsckObjects=true", ...fetch, bundle, refs], { ...shared(to), timeLimit: LONG_MS })
  })
  const arrived = await gitLine(["rev-parse", "--verify", `${incoming(taskID)}^{commit}`], shared(to))
  if (arrived !== commit) throw new Error(`what came from ${there.name} is not what was committed there`)
  return { commit, nested }
}

/** What came home is kept under another ref by now. */
export const settleIncoming = (to: Checkout, taskID: string): Promise<unknown> =>
  git(["update-ref", "-d", incoming(taskID)], shared(to))

/** Takes a task's folder away there. */
export async function removeThere(there: There, taskID: string): Promise<void> {
  succeeded(there, await there.run(removeScript(there.rooms, taskID)))
}

function succeeded({ name }: There, ran: Ran): Ran {
  if (ran.code === 0) return ran
  throw new Error(`${name}: ${ran.errors.trim().split("\n").at(-1) || `exit code ${ran.code}`}`)
}

async function inFolder<Value>(work: (folder: string) => Promise<Value>): Promise<Value> {
  const folder = await mkdtemp(join(tmpdir(), "superagents-bundle-"))
  try {
    return await work(folder)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
