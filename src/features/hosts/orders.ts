import { oneLine } from "../../lib/text.ts"
import type { Rooms } from "./rooms.ts"

/** What the near end asks of the far one, and what comes back: each order is the body of an `open` frame, as JSON. */

export type Order =
  /** A line for `sh`; what follows in `data` frames is its stdin, until `end`. */
  | { readonly do: "run"; readonly line: string; readonly cwd?: string }
  /** A request to OpenCode's server there; its body follows likewise. */
  | {
      readonly do: "request"
      readonly method: string
      /** Path and query. */
      readonly path: string
      readonly headers: Readonly<Record<string, string>>
    }
  /** Has OpenCode's server run there. */
  | { readonly do: "serve" }
  /** Tells what happens in tasks' sessions there, a hint in each `data` frame; the `head` comes once that can be heard. */
  | { readonly do: "listen" }
  /** No task of ours is there any more: the server may end soon. */
  | { readonly do: "rest" }
  | FilesOrder

/** About the files of tasks there; `rooms` is the place of their repository. */
export type FilesOrder = {
  readonly rooms: Rooms
} & (
  | { readonly do: "look" }
  | ({ readonly taskID: string } & (
      | {
          readonly do: "receive"
          readonly commit: string
          /** The ref under which the bundle that follows has it; absent where none follows, since the store has it. */
          readonly ref?: string
          /** Commits whose parents are not here either. */
          readonly shallow: readonly string[]
          /** The folder is there, and its state committed: it goes on with what git ignores in it. */
          readonly inPlace?: boolean
        }
      /** A tar archive of files that git ignores follows. */
      | { readonly do: "copy" }
      | { readonly do: "commit" }
      | { readonly do: "bundle" }
      /** Which of the files that no commit of its folder has are named by these pathspecs; `tree`: of what the run began with. */
      | { readonly do: "hidden"; readonly tree: string; readonly specs: readonly string[] }
      /** `commit`: only where that is what was committed of its folder last. */
      | { readonly do: "remove"; readonly commit?: string }
    ))
)

/** The answer to `look`; empty where no git is installed. */
export type Looked = { readonly git?: string; readonly commits?: readonly string[] }

/** The answer to `commit`, `null` where there is no folder: the state of it, and what of it no commit can hold. */
export type Sent = { readonly commit: string; readonly unsaved: readonly string[] }

/** What a relay is told when it begins. */
export type RelaySettings = {
  /** Names this side among those that use the same server. */
  readonly client: string
  /** How long the server there goes on without a sign of anybody, in ms. */
  readonly unattended: number
  /** How long it is kept when nobody has a task there, in ms. */
  readonly kept: number
  /** How long the relay stays without a sign of this side, in ms. */
  readonly patience: number
}

/** What a relay says of itself at first. */
export type Hello = { readonly now: number; readonly cache: string; readonly pid: number }

/** What comes back to a ping. `server`: whether OpenCode's server answers; undefined where none was started or asked. */
export type Pong = { readonly now: number; readonly server?: boolean }

/** How OpenCode's server there is. `id` changes with each start. */
export type Served = {
  readonly id: string
  readonly version: string
  /** When it was started, by the clock there. */
  readonly since?: number
}

/** How a call ended. `code`: of a command; null where a signal ended it. `isServerGone`: OpenCode's server answers nobody. */
export type CallEnd = { readonly code?: number | null; readonly problem?: string; readonly isServerGone?: boolean }

export type CallHead = { readonly status: number; readonly headers: Readonly<Record<string, string>> }

/** Something happened in a session there. `urgent`: it may have ended, or asks something. */
export type Hint = { readonly session: string; readonly urgent: boolean }

/** Whoever answers there may be anybody: what it says of itself is looked at before it is used. */
export const isHello = (given: unknown): given is Hello => {
  const { now, cache } = (given ?? {}) as Partial<Hello>
  const isPath = typeof cache === "string" && PATH.test(cache)
  return typeof now === "number" && Math.abs(now) < MOST_TIME_MS && isPath
}

/** What a host says of its server; undefined where it cannot be read. */
export function servedIn(text: string): Served | undefined {
  const { id, version, since } = partsOf<Served>(text)
  if (!isWord(id) || !isWord(version)) return undefined
  return { id, version, ...(typeof since === "number" && { since }) }
}

/** What was told of a session there; undefined where it cannot be read. */
export function hintIn(text: string): Hint | undefined {
  const { session, urgent } = partsOf<Hint>(text)
  return isWord(session) ? { session, urgent: urgent === true } : undefined
}

/** How a call ended, as far as that can be read. */
export function endIn(text: string): CallEnd {
  const { code, problem, isServerGone } = partsOf<CallEnd>(text)
  return {
    ...((typeof code === "number" || code === null) && { code }),
    ...(typeof problem === "string" && { problem: problem.slice(0, MOST_PROBLEM_CHARS) }),
    ...(isServerGone === true && { isServerGone }),
  }
}

/** What a host says of its git and its store. */
export function lookedIn(text: string): Looked {
  const { git, commits } = partsOf<Looked>(text)
  const known = Array.isArray(commits) ? commits.slice(0, MOST_COMMITS).filter(isCommit) : []
  return { ...(typeof git === "string" && { git }), commits: known }
}

/** What a host has committed of a task's folder; null where it says that there is none. Throws where it says nothing of use. */
export function sentIn(text: string): Sent | null {
  if (text === "null") return null
  const { commit, unsaved } = partsOf<Sent>(text)
  if (!isCommit(commit)) throw new Error(`is no commit: ${oneLine(String(commit), 60)}`)
  const names = Array.isArray(unsaved) ? unsaved.slice(0, MOST_UNSAVED) : []
  return { commit, unsaved: names.map((name) => oneLine(String(name))) }
}

/** Files that a host names. */
export function namesIn(text: string): readonly string[] {
  const names = partsOf<readonly unknown[]>(text)
  return Array.isArray(names) ? names.slice(0, MOST_UNSAVED).map((name) => oneLine(String(name))) : []
}

/** What is told of it is looked at part by part: whoever answers may have written anything. */
function partsOf<Told>(text: string): Partial<Told> {
  try {
    return (JSON.parse(text) ?? {}) as Partial<Told>
  } catch {
    return {}
  }
}

/** The longest reason of a failed call, and how many commits and names are taken from one answer. */
const MOST_PROBLEM_CHARS = 4000
const MOST_COMMITS = 100
const MOST_UNSAVED = 100
/** A commit's name. What is told under another one is not looked up here: it could name a branch. */
const isCommit = (given: unknown): given is string =>
  typeof given === "string" && /^([0-9a-f]{40}|[0-9a-f]{64})$/.test(given)

/** The last moment of a `Date`. */
const MOST_TIME_MS = 8.64e15
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const PATH = /^\/[^\u0000-\u001f]{0,1000}$/
const isWord = (given: unknown): given is string => typeof given === "string" && /^[\w.+-]{0,100}$/.test(given)
