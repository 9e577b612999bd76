import { join } from "node:path"
import { oneLine } from "../../lib/text.ts"

/** Orders to a relay and their results: an order is the JSON body of an `open` frame. */

export type Order =
  /** Runs a line in `sh`. The `data` frames that follow, up to `end`, are the stdin of the line. */
  | { readonly do: "run"; readonly line: string; readonly cwd?: string }
  /** A request to OpenCode's server. Its body follows in `data` frames, until `end`. */
  | {
      readonly do: "request"
      readonly method: string
      /** Path and query. */
      readonly path: string
      readonly headers: Readonly<Record<string, string>>
    }
  /** Starts OpenCode's server. */
  | { readonly do: "serve" }
  /** Reports activity of tasks' sessions, one hint for each `data` frame; the `head` comes once events arrive. */
  | { readonly do: "listen" }
  /** Tells the relay that this client has no task left: the server may end soon. */
  | { readonly do: "rest" }
  | FilesOrder

/** Orders on a task's files. `folders`: the host's folders for the task's repository. */
export type FilesOrder = {
  readonly folders: HostRepositoryFolders
} & (
  | { readonly do: "look" }
  | ({ readonly taskID: string } & (
      | {
          readonly do: "receive"
          readonly commit: string
          /** Ref in the bundle that follows; absent where the store has the commit. */
          readonly ref?: string
          /** The bundle also has ignored files of earlier runs. */
          readonly ignored?: boolean
          /** Commits whose parents are missing on this machine, too. */
          readonly shallow: readonly string[]
          /** The folder exists and its state is committed: its ignored files are kept. */
          readonly inPlace?: boolean
        }
      /** A tar archive of ignored files follows. */
      | { readonly do: "copy" }
      | { readonly do: "commit" }
      | { readonly do: "bundle" }
      /** Asks for untracked files that match these pathspecs. `tree`: state at the run's start. */
      | { readonly do: "hidden"; readonly tree: string; readonly specs: readonly string[] }
      /** Removes the folder; with `commit`, only if this is the folder's last committed state. */
      | { readonly do: "remove"; readonly commit?: string }
    ))
)

/** Result of `look`; empty where git is missing. */
export type LookResult = { readonly git?: string; readonly commits?: readonly string[] }

/**
 * Result of `commit`, `null` without a folder: a commit of the folder's state, a commit of ignored files, and paths
 * that no commit can hold.
 */
export type CommitResult = { readonly commit: string; readonly ignored?: string; readonly unsaved: readonly string[] }

/** Settings of a relay, sent to the host with its script. */
export type RelaySettings = {
  /** Name of this client among all clients of the same server. */
  readonly client: string
  /** How long the server goes on when no client with tasks sends a ping, in ms. */
  readonly unattended: number
  /** How long the server runs without tasks, in ms. */
  readonly kept: number
  /** How long the relay goes on without a message from this client, in ms. */
  readonly patience: number
}

/** First message of a relay. */
export type RelayHello = { readonly now: number; readonly cache: string; readonly pid: number }

/** Answer to a ping. `server`: whether OpenCode's server answers; undefined if no server was started or asked. */
export type PingReply = { readonly now: number; readonly server?: boolean }

/** State of OpenCode's server. `id` changes with each start. */
export type RemoteServerState = {
  readonly id: string
  readonly version: string
  /** Start time, by the host's clock. */
  readonly since?: number
}

/** End of a call. `code`: exit code, null after a signal; `isServerGone`: OpenCode's server no longer answers. */
export type CallEnd = { readonly code?: number | null; readonly problem?: string; readonly isServerGone?: boolean }

export type CallHead = { readonly status: number; readonly headers: Readonly<Record<string, string>> }

/** Activity in a remote session. `urgent`: the run may have ended, or the agent asks something. */
export type Hint = { readonly session: string; readonly urgent: boolean }

/** Validates the first message of a relay, because a relay is not trusted. */
export const isHello = (given: unknown): given is RelayHello => {
  const { now, cache } = (given ?? {}) as Partial<RelayHello>
  const isPath = typeof cache === "string" && PATH.test(cache)
  return typeof now === "number" && Math.abs(now) < MOST_TIME_MS && isPath
}

/** Reads the state of a server; undefined if the text is invalid. */
export function parseServerState(text: string): RemoteServerState | undefined {
  const { id, version, since } = partsOf<RemoteServerState>(text)
  if (!isWord(id) || !isWord(version)) return undefined
  return { id, version, ...(typeof since === "number" && { since }) }
}

/** Reads a hint; undefined if the text is invalid. */
export function hintIn(text: string): Hint | undefined {
  const { session, urgent } = partsOf<Hint>(text)
  return isWord(session) ? { session, urgent: urgent === true } : undefined
}

/** Reads the end of a call. Invalid fields are left out. */
export function endIn(text: string): CallEnd {
  const { code, problem, isServerGone } = partsOf<CallEnd>(text)
  return {
    ...((typeof code === "number" || code === null) && { code }),
    ...(typeof problem === "string" && { problem: problem.slice(0, MOST_PROBLEM_CHARS) }),
    ...(isServerGone === true && { isServerGone }),
  }
}

/** Validates the host's git version and commits. */
export function parseLookResult(text: string): LookResult {
  const { git, commits } = partsOf<LookResult>(text)
  const known = Array.isArray(commits) ? commits.slice(0, MOST_COMMITS).filter(isCommit) : []
  return { ...(typeof git === "string" && { git }), commits: known }
}

/** Reads the committed state of a task's folder; null without a folder. Throws if a commit is invalid. */
export function parseCommitResult(text: string): CommitResult | null {
  if (text === "null") return null
  const { commit, ignored, unsaved } = partsOf<CommitResult>(text)
  if (!isCommit(commit) || (ignored !== undefined && !isCommit(ignored)))
    throw new Error(`is no commit: ${oneLine(String(isCommit(commit) ? ignored : commit), 60)}`)
  return { commit, ...(ignored && { ignored }), unsaved: namesOf(unsaved) }
}

/** Reads a list of file names. Returns an empty list for an invalid text. */
export const namesIn = (text: string): readonly string[] => namesOf(partsOf<readonly unknown[]>(text))

const namesOf = (given: unknown): readonly string[] =>
  Array.isArray(given) ? given.slice(0, MOST_UNSAVED).map((name) => oneLine(String(name))) : []

/** Parses a text without validating its fields. Callers must check each field, because the sender is not trusted. */
function partsOf<Told>(text: string): Partial<Told> {
  try {
    return (JSON.parse(text) ?? {}) as Partial<Told>
  } catch {
    return {}
  }
}

/** Longest error of a call, and most commits and names in a result. */
const MOST_PROBLEM_CHARS = 4000
const MOST_COMMITS = 100
const MOST_UNSAVED = 100
/** Whether this is a full commit id. Other names are refused, because they could mean a local branch. */
const isCommit = (given: unknown): given is string =>
  typeof given === "string" && /^([0-9a-f]{40}|[0-9a-f]{64})$/.test(given)

/** Largest valid `Date`. */
const MOST_TIME_MS = 8.64e15
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const PATH = /^\/[^\u0000-\u001f]{0,1000}$/
const isWord = (given: unknown): given is string => typeof given === "string" && /^[\w.+-]{0,100}$/.test(given)

/** Folders for a repository on a host: a store of git objects, and a folder for each task. */
export type HostRepositoryFolders = { readonly root: string; readonly store: string }

export const hostRepositoryFolders = (cache: string, key: string): HostRepositoryFolders => {
  const root = join(cache, "opencode-superagents", key)
  return { root, store: join(root, "store") }
}

/**
 * Path of the marker of a complete folder. In a folder without marker, missing files were never written, so that nobody
 * has deleted them; the marker's time tells when the run began.
 */
export const completeMarkerPath = ({ root }: HostRepositoryFolders, taskID: string): string =>
  join(root, "made", taskID)

export const folderIn = ({ root }: HostRepositoryFolders, taskID: string): string => join(root, "work", taskID)

/** Folder with the process number, output and exit code of the command that runs for a task's folder. */
export const jobIn = (folder: string): string => `${folder}.job`
