import { CallError } from "../../core/errors.ts"
import type { Preparing } from "../../core/task.ts"
import type { Processes } from "../../lib/lock.ts"
import type { CommandMarks } from "./command-marks.ts"
import type { CommandResult } from "./run-command.ts"

/** What a task's run changed. */
export type Changed = {
  readonly files: readonly string[]
  readonly added: number
  readonly removed: number
  /** Repositories within it that changed: they are never merged. */
  readonly submodules: readonly string[]
}

export type EnterRequest = {
  readonly taskID: string
  /** Where its parent works. */
  readonly folder: string
  /** Time for what prepares the place, in ms; 0 for any. */
  readonly timeLimit: number
  /** An earlier run of the task has worked in it. */
  readonly again?: boolean
  /** The parent's present state is brought in; else it begins with what was captured, or what the last run left. */
  readonly bringIn?: boolean
  readonly signal?: AbortSignal
}

export type Ready = {
  /** The folder where the task's session works. */
  readonly directory: string
  /** What its agent is told of it; "" for nothing. */
  readonly told: string
}

/** `submodules`: what stays out: those that changed, with all below them, and what names them. */
export type MergeResult =
  | { readonly kind: "nothing"; readonly submodules?: readonly string[] }
  | { readonly kind: "merged"; readonly files: readonly string[]; readonly submodules: readonly string[] }
  /** `advice`: why and what to do, where to solve it in the place would be no end to it. */
  | { readonly kind: "conflict"; readonly files: readonly string[]; readonly advice?: string }

/** What became of a place when its run ended. */
export type PutAway = Changed & {
  /** The folder, where it stays because it holds what cannot be kept otherwise. */
  readonly held?: string
  /** What is in that folder alone. */
  readonly unsaved: readonly string[]
  /** What else there is to know of how it was kept, a sentence or two each. */
  readonly notes?: readonly string[]
  /** Among the work is something that no check has seen; why, as it is told. */
  readonly unseen?: string
}

export type Shown = Changed & { readonly diff: string; readonly cut: boolean; readonly command: string }

/** What was found of an earlier process. `merge`: what came of a merge that had been cut off. */
export type Swept = { readonly taskID: string; readonly what: string; readonly merge?: MergeResult }

/** A task whose work is put aside, and the name under which. */
export type Aside = { readonly taskID: string; readonly name: string }

/** Several tasks that begin with the very same, of which one's work comes home. */
export type SharedPlaces = {
  /** Has a task begin with what another began with. */
  beginAs(taskID: string, from: string, folder: string): Promise<void>
  /** Has a task go on with what a team's work is now. */
  goOnAs(taskID: string, groupID: string, folder: string): Promise<void>
  /**
   * The winner's work becomes the team's own, that of the others is put aside; what was done so already stays. Returns
   * the names under which it was put aside, by task.
   */
  settle(
    folder: string,
    groupID: string,
    winner: string | undefined,
    others: readonly Aside[],
  ): Promise<ReadonlyMap<string, string>>
  /** What a run has changed so far, and what of it these globs name. */
  changedIn(
    taskID: string,
    folder: string,
    globs: readonly string[],
  ): Promise<{ readonly files: readonly string[]; readonly named: readonly string[] }>
  /** True where the parent's folder is as the task's work was counted from. */
  isCurrent(taskID: string, folder: string): Promise<boolean>
}

/** The state that a task's next run begins with, or that its work is to be checked in. */
export type NextState = {
  readonly commit: string
  /** Files in which the parent's state and the task's do not go together: they have marks. */
  readonly conflicts: readonly string[]
  /** Those marks are of before, and the parent's present state is not in it. */
  readonly unsolved: boolean
  /** What is other than in the state of before. */
  readonly files: readonly string[]
  /** Keeps it as the task's state. Called once its files are where the task works: what fails before has changed nothing. */
  settle(): Promise<void>
}

/** The states of tasks' work in the repository here, for a place whose files are on another machine. */
export type KeptStates = {
  /** `bringIn`: with the parent's present state in it. */
  next(taskID: string, folder: string, bringIn: boolean): Promise<NextState>
}

/**
 * Where tasks work. `folder` is where the task's parent works now. Whatever fails rejects with an error whose message
 * is a sentence for the parent's agent: a `CallError` where it can do something about it. The engine keeps the order:
 * capture, enter, run, put away, show, merge; each may come again after a crash, and must then go on.
 */
export interface Place {
  /** Runs a command in a task's place, where that is not on this machine. */
  run?(taskID: string, command: string, limits: RunLimits): Promise<CommandResult>
  /**
   * Keeps what the parent sees now as what the task begins with. Rejects where no place can be made of it. Returns what
   * the place will lack and which option brings it, sentences for the parent.
   */
  capture(taskID: string, folder: string): Promise<string | undefined>
  /** Prepares it for a run. */
  enter(request: EnterRequest): Promise<Ready>
  /** What a task's place lacks, so that a command may fail there for that alone; as sentences. */
  lacks?(taskID: string, folder: string): Promise<string | undefined>
  /** Brings the parent's present state into it, to be checked with. */
  bringIn(taskID: string, folder: string): Promise<MergeResult>
  /**
   * Resolves as soon as it can be reached; rejects with a `PlaceError` where that takes too long, or `signal` fires.
   * Absent where it always can.
   */
  reach?(taskID: string, signal?: AbortSignal): Promise<void>
  /** Keeps what a run has left; where that is done already, tells what is kept. */
  putAway(taskID: string, folder: string): Promise<PutAway>
  /** What the kept work changed, with the diff. */
  show(taskID: string, folder: string, mostLines: number): Promise<Shown>
  /** Brings the kept work into the parent's folder. */
  merge(taskID: string, folder: string): Promise<MergeResult>
  /** Forgets what is merged or empty of these tasks; returns those whose work stays because it is neither. */
  clear(folder: string, taskIDs: readonly string[]): Promise<readonly string[]>
  /** Finishes what earlier processes left undone. `isBusy` tells the tasks that run here. */
  sweep(folder: string, isBusy: (taskID: string) => boolean): Promise<readonly Swept[]>
  /** Forgets what was kept before `before`: what is merged or empty, with `all` the rest too; nothing of those that `isKnown`. */
  expire(folder: string, before: number, all: boolean, isKnown: (taskID: string) => boolean): Promise<readonly string[]>
  /** Absent where a kind cannot do this: then nobody can try a thing several times in it, or guard files. */
  readonly shared?: SharedPlaces
  /** Absent where a kind keeps no states in the repository. */
  readonly states?: KeptStates
}

/** What a place tells by itself of a task whose run is under way. */
export type PlaceNews =
  /** What is done to make it ready; undefined: that is over. */
  | { readonly type: "preparing"; readonly what: Preparing | undefined }
  /** It cannot be reached since then; undefined: it can. */
  | { readonly type: "contact"; readonly lost: number | undefined }

/** Something happened where a task works of which its host here tells nothing: it may have ended or ask something if `urgent`. */
export type Stirred = { readonly type: "stirred"; readonly urgent: boolean }

/** `timeLimit`: in ms, 0 for none. */
export type RunLimits = { readonly timeLimit: number; readonly signal: AbortSignal }

/** What a parent sees cannot be captured, and why. What else could be asked for is for whoever knows what was. */
export class CaptureError extends CallError {
  /** The same, with what else the caller could do. */
  advised(isForTries: boolean): CallError {
    return new CallError(`${this.message} ${isForTries ? TRIES_NEED : INSTEAD}`)
  }
}

const INSTEAD = 'Or leave `place` out: the task then works in this folder (place "here").'
const TRIES_NEED = "Tries need a git repository: each works in a worktree of its own."

/** A place that cannot be entered, for a reason that is told apart: it cannot be reached, or does not have what is needed. */
export class PlaceError extends CallError {
  readonly code: "place" | "host"
  constructor(message: string, code: "place" | "host") {
    super(message)
    this.code = code
  }
}

/** What there is to know of a kind of place while no task has one: nothing of it is loaded for that. */
export type PlaceKind = {
  /** What a call names its places by, and a task's record. */
  readonly names: readonly string[]
  /** What the description of the argument `place` says of it; "" for nothing. */
  readonly described: string
  /** The place of that name in the answer to a launch, after "Place: "; "" for no line. */
  readonly called: (name: string) => string
  /** Where work lies that could not be put away, after "What it changed is still in ". */
  readonly remains: (name: string) => string
  /** How long kept work stays whose task nobody knows any more; `keepDays` 0 for ever. Absent where nothing is kept. */
  readonly keeps?: { readonly keepDays: number; readonly dropUnmerged: boolean }
  /** Its places are `SharedPlaces`. */
  readonly isShared?: true
  /** Files can be guarded in its places: they tell what a run has changed so far. */
  readonly guards?: true
  /** False where no process has ever left anything to be swept. */
  readonly mayHaveLeft: () => boolean
  /** True where what works there goes on when this process ends. */
  readonly outlives?: boolean
  /** True while the place of that name tells when something happens in it: then it need not be looked at often. */
  readonly hears?: (name: string) => boolean
  /** Looks after a task there again that an earlier process has begun. */
  readonly rejoin?: (name: string, taskID: string) => void
  /** Most tasks in the place of that name at once; 0 for any. */
  readonly most?: (name: string) => number
  readonly open: (name: string) => Promise<Place>
}

export type HostFolder = {
  readonly name: string
  readonly installs: readonly string[]
  /** A folder of the user's into which the host has installed the same. */
  readonly own: string
}

/** What a kind is given of the process it works in. */
export type PlacePorts = {
  readonly processes: Processes
  readonly commands: CommandMarks
  /** A folder of the host's own in a project, and what the host installs into it. */
  readonly hostFolder?: HostFolder
}
