import { join } from "node:path"
import { z } from "zod"
import { oneLine } from "../../lib/text.ts"

/** Orders to a relay and their results: an order is the JSON body of an `open` frame. */

export type Order =
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
  | JobOrder
  | FilesOrder

/** Begins a command in a task's folder, unless it has begun, and asks for its state. */
export type JobOrder = {
  readonly do: "job"
  readonly folder: string
  /** Names this run of the command: another one has other files. */
  readonly id: string
  readonly command: string
  /** Kills the job, and removes its files. */
  readonly stop: boolean
}

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

/** Answer to a ping. `server`: whether OpenCode's server answers; undefined if no server was started or asked. */
export type PingReply = { readonly now: number; readonly server?: boolean }

export type CallHead = { readonly status: number; readonly headers: Readonly<Record<string, string>> }

/**
 * Schemas of what a relay sends. A relay is not trusted, so its texts are parsed, and invalid optional fields are left
 * out.
 */

/** Longest error of a call, and most commits and names in a result. */
const MOST_PROBLEM_CHARS = 4000
const MOST_COMMITS = 100
const MOST_UNSAVED = 100
/** Largest valid `Date`. */
const MOST_TIME_MS = 8.64e15
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const PATH = /^\/[^\u0000-\u001f]{0,1000}$/

const word = z.string().regex(/^[\w.+-]{0,100}$/)
/** A full commit id. Other names are refused, because they could mean a local branch. */
const commitID = z.string().regex(/^([0-9a-f]{40}|[0-9a-f]{64})$/)
const names = z
  .array(z.unknown())
  .catch([])
  .transform((given): readonly string[] => given.slice(0, MOST_UNSAVED).map((name) => oneLine(String(name))))
const optional = <Schema extends z.ZodType>(schema: Schema) => schema.optional().catch(undefined)

/** First message of a relay. */
const Hello = z.object({ now: z.number().gt(-MOST_TIME_MS).lt(MOST_TIME_MS), cache: z.string().regex(PATH) })
export type RelayHello = z.infer<typeof Hello>

export const isHello = (given: unknown): given is RelayHello => Hello.safeParse(given).success

/** State of OpenCode's server. `id` changes with each start; `since` is its start time, by the host's clock. */
const ServerState = z.object({ id: word, version: word, since: optional(z.number()) })
export type RemoteServerState = z.infer<typeof ServerState>

export const parseServerState = (text: string): RemoteServerState | undefined => parsed(ServerState, text)

/** Activity in a remote session. `urgent`: the run may have ended, or the agent asks something. */
const HintSchema = z.object({ session: word, urgent: z.boolean().catch(false) })
export type Hint = z.infer<typeof HintSchema>

export const hintIn = (text: string): Hint | undefined => parsed(HintSchema, text)

/** End of a call. `isServerGone`: OpenCode's server no longer answers. */
const EndSchema = z.object({
  problem: optional(z.string().transform((text) => text.slice(0, MOST_PROBLEM_CHARS))),
  isServerGone: optional(z.literal(true)),
})
export type CallEnd = z.infer<typeof EndSchema>

export const endIn = (text: string): CallEnd => parsed(EndSchema, text) ?? {}

/** State of a job. `code`: once it is over, the text of its exit code, or another one where none was stored. */
const Job = z.object({ output: optional(z.string()), code: optional(z.string()) })
export type JobState = z.infer<typeof Job>

export const parseJobState = (text: string): JobState => parsed(Job, text) ?? {}

/** Result of `look`: the host's git version and commits; empty where git is missing. */
const Look = z.object({
  git: optional(z.string()),
  commits: z
    .array(z.unknown())
    .catch([])
    .transform((given) => given.slice(0, MOST_COMMITS).flatMap((each) => commitID.safeParse(each).data ?? [])),
})
export type LookResult = Partial<z.infer<typeof Look>>

export const parseLookResult = (text: string): LookResult => parsed(Look, text) ?? {}

/** Result of `commit`: a commit of the folder's state, a commit of ignored files, and paths that no commit can hold. */
const Commit = z.object({ commit: commitID, ignored: commitID.optional(), unsaved: names })
export type CommitResult = z.infer<typeof Commit>

/** Reads the committed state of a task's folder; null without a folder. Throws if a commit is invalid. */
export function parseCommitResult(text: string): CommitResult | null {
  const result = parsed(Commit.nullable(), text)
  if (result === undefined) throw new Error(`is no commit: ${oneLine(text, 60)}`)
  return result
}

export const namesIn = (text: string): readonly string[] => parsed(names, text) ?? []

/** Value of a JSON text; undefined for an invalid one. */
function parsed<Schema extends z.ZodType>(schema: Schema, text: string): z.infer<Schema> | undefined {
  try {
    return schema.safeParse(JSON.parse(text)).data
  } catch {
    return undefined
  }
}

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
