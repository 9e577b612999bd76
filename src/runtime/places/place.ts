import { existsSync } from "node:fs"
import { join } from "node:path"
import { CallError, messageOf } from "../../core/errors.ts"
import type { ChangedFiles } from "../../core/feature.ts"
import type { Merge, Preparing, Work } from "../../core/task.ts"
import type { Processes } from "../../lib/lock.ts"
import { capital } from "../../lib/text.ts"
import { dataFolder } from "../record/identity.ts"
import type { CommandMarks, CommandResult } from "./process.ts"

export type ChangeStats = {
  readonly files: readonly string[]
  readonly added: number
  readonly removed: number
  /** Changed submodules and nested repositories: they are never merged. */
  readonly submodules: readonly string[]
}

export type EnterRequest = {
  readonly taskID: string
  /** The parent's folder. */
  readonly folder: string
  /** Time limit for the preparation, in ms; 0 for none. */
  readonly timeLimit: number
  /** Set if an earlier run of the task has used the place. */
  readonly again?: boolean
  /**
   * Merge the parent's current state into the place. Otherwise the run begins with the captured state, or with the
   * state after the last run.
   */
  readonly bringIn?: boolean
  readonly signal?: AbortSignal
}

export type PreparedPlace = {
  /** Working directory of the task's session. */
  readonly directory: string
  /** Prompt text about the place; "" for none. */
  readonly preface: string
}

/**
 * `submodules`: changed submodules with all submodules below them, and the refs that keep them. They are not merged.
 */
export type MergeResult =
  | { readonly kind: "nothing"; readonly submodules?: readonly string[] }
  | { readonly kind: "merged"; readonly files: readonly string[]; readonly submodules: readonly string[] }
  /**
   * `advice`: what to do where solving the conflict in the place is not enough. `cutOff`: a crash had cut the merge off,
   * so that each file is as it was or as merged.
   */
  | { readonly kind: "conflict"; readonly files: readonly string[]; readonly advice?: string; readonly cutOff?: true }

/** State of a place after its run. */
export type ArchiveResult = ChangeStats & {
  /** Folder that could not be removed, because it holds files that cannot be archived. */
  readonly held?: string
  /** Paths of files that only the folder `held` contains. */
  readonly unsaved: readonly string[]
  /** Further sentences for the parent on how the work was archived. */
  readonly notes?: readonly string[]
  /** Sentence that says why the check never covered part of the work. */
  readonly unseen?: string
}

export type WorkDiff = ChangeStats & { readonly diff: string; readonly cut: boolean; readonly command: string }

/**
 * Leftover of an earlier process, with its task. `merge`: result of a merge that a crash interrupted; "nothing" for work
 * that was merged before, perhaps without a record of it.
 */
export type SweptLeftover = { readonly taskID: string; readonly what: string; readonly merge?: MergeResult }

/** Member that was not chosen, and the name under which its work is archived. */
export type UnchosenMember = { readonly taskID: string; readonly name: string }

/** Operations of places for members that all begin with the same state. Only the chosen member's work is merged. */
export type SharedPlaces = {
  /** Gives a task the files that task `from` began with. */
  copyStart(taskID: string, from: string, folder: string): Promise<void>
  /** Gives a task the group's current work. */
  copyWork(taskID: string, groupID: string, folder: string): Promise<void>
  /**
   * Makes the winner's work the group's work and archives the others. May be repeated. Returns the archive names by
   * task, in words.
   */
  settle(
    folder: string,
    groupID: string,
    winner: string | undefined,
    others: readonly UnchosenMember[],
  ): Promise<ReadonlyMap<string, string>>
  /** Files that a run has changed so far. */
  changedIn(taskID: string, folder: string, globs: readonly string[]): Promise<ChangedFiles>
  /** The parent's folder equals the base from which the task's changes are counted. */
  isCurrent(taskID: string, folder: string): Promise<boolean>
}

/**
 * A place where tasks work; `folder` is the parent's current folder. Order of calls: capture, enter, run, archive,
 * show, merge; after a crash each may be called again and must then continue its work. Errors are sentences for the
 * parent's agent, and a `CallError` where the agent can act.
 */
export interface Place {
  /** Runs a command in a place on another machine. */
  run?(taskID: string, command: string, limits: PlaceRunLimits): Promise<CommandResult>
  /**
   * Saves the parent's current state for the task. Returns sentences on what the place will lack and which option adds
   * it. Rejects where the state cannot be saved.
   */
  capture(taskID: string, folder: string): Promise<string | undefined>
  /** Rejects where a further run could not enter now, because the parent's files that it needs cannot be read. */
  mayEnterAgain?(request: Pick<EnterRequest, "taskID" | "folder" | "bringIn">): Promise<void>
  enter(request: EnterRequest): Promise<PreparedPlace>
  /** Sentences on dependencies that the place lacks, so that a command may fail. */
  lacks?(taskID: string, folder: string): Promise<string | undefined>
  /** Merges the parent's current state into the place, so that the result can be checked there. */
  bringIn(taskID: string, folder: string): Promise<MergeResult>
  /**
   * Resolves once the place is in reach. Rejects with a `PlaceError` after too long, or when `signal` is aborted.
   * Absent for local places.
   */
  reach?(taskID: string, signal?: AbortSignal): Promise<void>
  /** Archives the work of a run. A repeated call returns the archived state. */
  archive(taskID: string, folder: string): Promise<ArchiveResult>
  /** Archived changes with their diff. */
  show(taskID: string, folder: string, mostLines: number): Promise<WorkDiff>
  /** Merges the archived work into the parent's folder. */
  merge(taskID: string, folder: string): Promise<MergeResult>
  /** Whether the archived work was merged into the parent's folder, or a crash cut its merge off. */
  isMergeBegun?(taskID: string, folder: string): Promise<boolean>
  /** Drops work of these tasks that is merged or empty. Returns the ids of tasks whose work stays. */
  clear(folder: string, taskIDs: readonly string[]): Promise<readonly string[]>
  /** Cleans up after earlier processes. `isBusy`: tasks that run here. */
  sweep(folder: string, isBusy: (taskID: string) => boolean): Promise<readonly SweptLeftover[]>
  /**
   * Drops archived work older than `before` and returns the ids of its tasks. Unmerged work is dropped only with `all`,
   * and work of tasks that `isKnown` always stays.
   */
  expire(folder: string, before: number, all: boolean, isKnown: (taskID: string) => boolean): Promise<readonly string[]>
  /** Absent for kinds that support neither such groups nor guarded files. */
  readonly shared?: SharedPlaces
}

/** Event of a place about a running task. */
export type PlaceEvent =
  /** Current step of the preparation; undefined once it is done. */
  | { readonly type: "preparing"; readonly what: Preparing | undefined }
  /** `lost`: time since when the place is out of reach; undefined once it is in reach again. */
  | { readonly type: "contact"; readonly lost: number | undefined }

/** Something happened in a remote place. `urgent`: the task may have ended or may ask something. */
export type RemoteActivity = { readonly type: "active"; readonly urgent: boolean }

/** `timeLimit`: in ms, 0 for none. */
export type PlaceRunLimits = { readonly timeLimit: number; readonly signal: AbortSignal }

/**
 * The parent's state cannot be captured, for the given reason. The caller adds alternatives. `behind`: what it can be
 * captured after; undefined where no wait helps.
 */
export class CaptureError extends CallError {
  readonly behind: string | undefined
  constructor(message: string, behind?: string) {
    super(message)
    this.behind = behind
  }

  /**
   * The error with alternatives for the caller. `members`: noun for the members of a group that cannot do without
   * places.
   */
  advised(members?: string): CallError {
    return new CallError(`${this.message} ${members === undefined ? INSTEAD : `${capital(members)} ${NEED}`}`)
  }
}

const INSTEAD = 'Or give `place: "here"`, without `merge` and `guard`: the task then works in this folder.'
const NEED = "need a git repository: each works in a worktree of its own."

/** A place cannot be prepared: it is out of reach, or lacks something. */
export class PlaceError extends CallError {
  readonly code: "place" | "host"
  constructor(message: string, code: "place" | "host") {
    super(message)
    this.code = code
  }
}

/** Description of a kind of place. The kind's own code is loaded only by `open`. */
export type PlaceKind = {
  /** Names of this kind's places in calls and records. */
  readonly names: readonly string[]
  /** Text in the description of the argument `place`; "" for none. */
  readonly described: string
  /** How the answer to a launch names the place; "" for no line. */
  readonly called: (name: string) => string
  /** Words for a message: where work is that could not be archived. */
  readonly remains: (name: string) => string
  /** How long archived work of an unknown task is kept; `keepDays` 0 for ever. Absent where nothing is archived. */
  readonly retention?: { readonly keepDays: number; readonly dropUnmerged: boolean }
  /** Set if the kind's places have `shared` operations. */
  readonly isShared?: true
  /** Set if guarded files are supported: the kind's places know what a run has changed so far. */
  readonly guards?: true
  /** False where no process can have left anything to clean up. */
  readonly mayHaveLeft: () => boolean
  /** Set if tasks there continue to work when this process ends. */
  readonly outlives?: boolean
  /** Whether the place reports activity by events. Polling may then be rare. */
  readonly hasEvents?: (name: string) => boolean
  /** Supervises a task again that an earlier process started there. */
  readonly rejoin?: (name: string, taskID: string) => void
  /** Most tasks at once in the named place; 0 for no limit. */
  readonly most?: (name: string) => number
  /** How long the named place may be out of reach before its runs end, in ms; 0 for any time. */
  readonly mostAway?: (name: string) => number
  readonly open: (name: string) => Promise<Place>
}

/** Throws a `CallError` where no kind has that name. */
export function kindOf(kinds: readonly PlaceKind[], name: string): PlaceKind {
  const kind = kinds.find(({ names }) => names.includes(name))
  if (kind) return kind
  const known = kinds.flatMap(({ names }) => names).map((each) => `"${each}"`)
  throw new CallError(`There is no place "${name}" here. There are: ${known.join(", ")}.`)
}

/** Whether the work in this place continues when this process ends, since another machine does it. */
export const isFar = (kinds: readonly PlaceKind[], place: string | undefined): boolean =>
  place !== undefined && kindOf(kinds, place).outlives === true

export type OpencodeFolder = {
  readonly name: string
  readonly installs: readonly string[]
  /** Folder of the user in which OpenCode has installed the same packages. */
  readonly own: string
}

/** Services that the plugin passes to a kind of place. */
export type PlacePorts = {
  readonly processes: Processes
  readonly commands: CommandMarks
  /** OpenCode's folder in a project, and the packages it installs there. */
  readonly configFolder?: OpencodeFolder
  /** Called with what became of merges that a crash had cut off, where another call has finished them. */
  readonly finished?: (found: readonly SweptLeftover[]) => void
}

/** Default of the argument `place`: the parent's folder. Tasks there have no `place` in their record. */
export const HERE = "here"

const NOTHING: ArchiveResult = { files: [], added: 0, removed: 0, submodules: [], unsaved: [] }

/** Place of a task that works in its parent's folder: nothing is archived or merged. */
const here: Place = {
  capture: async () => undefined,
  enter: async ({ folder }) => ({ directory: folder, preface: "" }),
  bringIn: async () => ({ kind: "nothing" }),
  archive: async () => NOTHING,
  show: async () => ({ ...NOTHING, diff: "", cut: false, command: "" }),
  merge: async () => ({ kind: "nothing" }),
  clear: async () => [],
  sweep: async () => [],
  expire: async () => [],
}

export const hereKind: PlaceKind = {
  names: [HERE],
  described: "",
  called: () => "",
  remains: () => "your own folder",
  mayHaveLeft: () => false,
  open: async () => here,
}

export const WORKTREES = join(dataFolder(), "worktrees")

/** Folder with the marks of running commands. */
export const COMMANDS = join(dataFolder(), "commands")

/** Some worktree exists, so that sessions may work in other folders. */
export const hasWorktrees = (): boolean => existsSync(WORKTREES)

/** Most paths that a record contains. More would make it too large, because it is written again and again. */
export const MOST_FILES = 100

export function mergeOf(result: MergeResult): Merge {
  const files = result.kind === "nothing" ? [] : result.files.slice(0, MOST_FILES)
  if (result.kind === "conflict") {
    const { kind, advice, cutOff } = result
    return { kind, files, ...(advice && { text: advice }), ...(cutOff && { cutOff }) }
  }
  const { kind, submodules = [] } = result
  return { kind, files, ...(submodules.length > 0 && { leftOut: submodules }) }
}

export const refusedMerge = (text: string): Merge => ({ kind: "refused", files: [], text })

export const mergeFailure = (error: unknown): Merge => refusedMerge(messageOf(error))

export function toWork(
  { files, added, removed, submodules, held, unsaved, notes = [] }: ArchiveResult,
  merge?: Merge,
): Work {
  return {
    files: files.slice(0, MOST_FILES),
    moreFiles: Math.max(0, files.length - MOST_FILES),
    added,
    removed,
    submodules,
    ...(held !== undefined && { held: { folder: held, because: unsaved } }),
    ...(notes.length > 0 && { notes }),
    ...(merge && { merge }),
  }
}
