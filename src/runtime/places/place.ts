import { CallError } from "../../core/errors.ts"
import type { Preparing } from "../../core/task.ts"
import type { Processes } from "../../lib/lock.ts"
import type { CommandMarks } from "./command-marks.ts"
import type { CommandResult } from "./run-command.ts"

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
  /** An earlier run of the task has used it. */
  readonly again?: boolean
  /** Merge in the parent's current state; otherwise begin with the captured state or the last run's. */
  readonly bringIn?: boolean
  readonly signal?: AbortSignal
}

export type PreparedPlace = {
  /** Working directory of the task's session. */
  readonly directory: string
  /** Prompt text about the place; "" for none. */
  readonly preface: string
}

/** `submodules`: changed ones with all below them, and the refs that keep them: left out of the merge. */
export type MergeResult =
  | { readonly kind: "nothing"; readonly submodules?: readonly string[] }
  | { readonly kind: "merged"; readonly files: readonly string[]; readonly submodules: readonly string[] }
  /** `advice`: what to do where solving the conflict in the place is not enough. */
  | { readonly kind: "conflict"; readonly files: readonly string[]; readonly advice?: string }

/** State of a place after its run. */
export type ArchiveResult = ChangeStats & {
  /** Folder that stays because it holds what cannot be archived. */
  readonly held?: string
  /** Paths that only this folder holds. */
  readonly unsaved: readonly string[]
  /** Further sentences for the parent on how the work was archived. */
  readonly notes?: readonly string[]
  /** Why part of the work was never checked, as a sentence. */
  readonly unseen?: string
}

export type WorkDiff = ChangeStats & { readonly diff: string; readonly cut: boolean; readonly command: string }

/** Leftover of an earlier process. `merge`: result of a merge that was cut off. */
export type SweptLeftover = { readonly taskID: string; readonly what: string; readonly merge?: MergeResult }

/** Losing try, and the name under which its work is archived. */
export type LosingTry = { readonly taskID: string; readonly name: string }

/** Places of tasks that begin with the same state, of which one is merged. */
export type SharedPlaces = {
  /** Gives a task the files that task `from` began with. */
  beginAs(taskID: string, from: string, folder: string): Promise<void>
  /** Gives a task the group's current work. */
  goOnAs(taskID: string, groupID: string, folder: string): Promise<void>
  /** Makes the winner's work the group's and archives the others. Repeatable; returns the archive names, in words, by task. */
  settle(
    folder: string,
    groupID: string,
    winner: string | undefined,
    others: readonly LosingTry[],
  ): Promise<ReadonlyMap<string, string>>
  /** Current changes of a run, and those that match the globs. */
  changedIn(
    taskID: string,
    folder: string,
    globs: readonly string[],
  ): Promise<{ readonly files: readonly string[]; readonly named: readonly string[] }>
  /** The parent's folder equals the base from which the task's changes are counted. */
  isCurrent(taskID: string, folder: string): Promise<boolean>
}

/** State for a task's next run, or for the check of its work. */
export type NextState = {
  readonly commit: string
  /** Files with conflict markers between the parent's and the task's changes. */
  readonly conflicts: readonly string[]
  /** The markers are from an earlier conflict, and the parent's current state is not merged in. */
  readonly unsolved: boolean
  /** Files that differ from the earlier state. */
  readonly files: readonly string[]
  /** Makes this state the task's. Called once the files are in place, so that earlier failures change nothing. */
  settle(): Promise<void>
}

/** States of tasks in the local repository, for places whose files are on another machine. */
export type KeptStates = {
  /** `bringIn`: include the parent's current state. */
  next(taskID: string, folder: string, bringIn: boolean): Promise<NextState>
}

/**
 * A place where tasks work; `folder` is the parent's current folder. Errors are sentences for the parent's agent, and a
 * `CallError` where it can act. Order: capture, enter, run, putAway, show, merge; after a crash each may be repeated
 * and must then continue.
 */
export interface Place {
  /** Runs a command in a place on another machine. */
  run?(taskID: string, command: string, limits: PlaceRunLimits): Promise<CommandResult>
  /**
   * Saves the parent's current state for the task. Rejects where that is impossible; returns sentences on what the
   * place will lack and which option adds it.
   */
  capture(taskID: string, folder: string): Promise<string | undefined>
  enter(request: EnterRequest): Promise<PreparedPlace>
  /** Missing dependencies that may fail a command, as sentences. */
  lacks?(taskID: string, folder: string): Promise<string | undefined>
  /** Merges the parent's current state into the place, to be checked there. */
  bringIn(taskID: string, folder: string): Promise<MergeResult>
  /**
   * Resolves once it is in reach. Rejects with a `PlaceError` after too long, or when `signal` is aborted; absent for
   * local places.
   */
  reach?(taskID: string, signal?: AbortSignal): Promise<void>
  /** Archives what a run left. Repeating it returns the archived state. */
  putAway(taskID: string, folder: string): Promise<ArchiveResult>
  /** Archived changes with their diff. */
  show(taskID: string, folder: string, mostLines: number): Promise<WorkDiff>
  /** Merges the archived work into the parent's folder. */
  merge(taskID: string, folder: string): Promise<MergeResult>
  /** Drops merged or empty work of these tasks; returns the ids of the others. */
  clear(folder: string, taskIDs: readonly string[]): Promise<readonly string[]>
  /** Cleans up after earlier processes. `isBusy`: tasks that run here. */
  sweep(folder: string, isBusy: (taskID: string) => boolean): Promise<readonly SweptLeftover[]>
  /**
   * Drops archived work older than `before`: merged or empty work, with `all` any, but never that of tasks that
   * `isKnown`.
   */
  expire(folder: string, before: number, all: boolean, isKnown: (taskID: string) => boolean): Promise<readonly string[]>
  /** Absent for kinds that support neither tries nor guarded files. */
  readonly shared?: SharedPlaces
  /** Absent for kinds without states in the repository. */
  readonly states?: KeptStates
}

/** Event of a place about a running task. */
export type PlaceEvent =
  /** Current step of the preparation; undefined once it is done. */
  | { readonly type: "preparing"; readonly what: Preparing | undefined }
  /** Time since when the place is out of reach; undefined: contact is back. */
  | { readonly type: "contact"; readonly lost: number | undefined }

/** Activity in a remote place; `urgent`: the task may have ended or ask something. */
export type RemoteActivity = { readonly type: "stirred"; readonly urgent: boolean }

/** `timeLimit`: in ms, 0 for none. */
export type PlaceRunLimits = { readonly timeLimit: number; readonly signal: AbortSignal }

/** The parent's state cannot be captured, for the given reason. The caller adds alternatives. */
export class CaptureError extends CallError {
  /** The error with alternatives for the caller. */
  advised(isForTries: boolean): CallError {
    return new CallError(`${this.message} ${isForTries ? TRIES_NEED : INSTEAD}`)
  }
}

const INSTEAD = 'Or leave `place` out: the task then works in this folder (place "here").'
const TRIES_NEED = "Tries need a git repository: each works in a worktree of its own."

/** A place cannot be prepared: out of reach, or without what is needed. */
export class PlaceError extends CallError {
  readonly code: "place" | "host"
  constructor(message: string, code: "place" | "host") {
    super(message)
    this.code = code
  }
}

/** Static description of a kind, which loads no code of it. */
export type PlaceKind = {
  /** Names of its places in calls and records. */
  readonly names: readonly string[]
  /** Text in the description of the argument `place`; "" for none. */
  readonly described: string
  /** Place name in the answer to a launch; "" for no line. */
  readonly called: (name: string) => string
  /** Location of work that could not be archived, for a message. */
  readonly remains: (name: string) => string
  /** Retention of archived work whose task is unknown; `keepDays` 0 for ever. Absent where nothing is archived. */
  readonly keeps?: { readonly keepDays: number; readonly dropUnmerged: boolean }
  /** Its places are `SharedPlaces`. */
  readonly isShared?: true
  /** Supports guarded files: it knows a run's changes so far. */
  readonly guards?: true
  /** False where no process can have left anything to clean up. */
  readonly mayHaveLeft: () => boolean
  /** Work there continues when this process ends. */
  readonly outlives?: boolean
  /** The place reports activity by events, so polling may be rare. */
  readonly hears?: (name: string) => boolean
  /** Supervises a task there again that an earlier process started. */
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

export type OpencodeFolder = {
  readonly name: string
  readonly installs: readonly string[]
  /** A folder of the user with the same packages installed by OpenCode. */
  readonly own: string
}

/** Services for a kind of place. */
export type PlacePorts = {
  readonly processes: Processes
  readonly commands: CommandMarks
  /** OpenCode's folder in a project, and the packages it installs there. */
  readonly hostFolder?: OpencodeFolder
}

/** Test hook with the name of a step at which the process is killed. */
export type Fault = (moment: string) => void
