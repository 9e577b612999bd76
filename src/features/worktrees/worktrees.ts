import { existsSync } from "node:fs"
import { join } from "node:path"
import { CallError, messageOf } from "../../core/errors.ts"
import { jsonNames } from "../../lib/atomic-file.ts"
import { oneLine } from "../../lib/text.ts"
import { named } from "../../present/summary.ts"
import {
  type ArchiveResult,
  CaptureError,
  type ChangeStats,
  type EnterRequest,
  type MergeResult,
  type Place,
  type PreparedPlace,
  type SharedPlaces,
  type SweptLeftover,
  type WorkDiff,
} from "../../runtime/places/place.ts"
import { endLeftovers } from "../../runtime/places/process.ts"
import { begin, makeReady, missingContentNote, readsParent, type Start, startOf } from "./create.ts"
import { clean, cleanAll, repoWorktreesFolder, taskOf, type WorktreePorts, worktreeFolder } from "./folders.ts"
import { GitError } from "./git.ts"
import { ignoredNotes } from "./ignored.ts"
import { finishMerges, isMergeBegun, mergedTasks, mergeFromParent, mergeIntoParent } from "./merge.ts"
import { changesBetween, diffText, hiddenNotes, missingFilterNote, workBetween } from "./objects.ts"
import {
  betweenMerges,
  type Checkout,
  dropRefs,
  findCheckout,
  findWorkingCheckout,
  isUnmerged,
  type LeftWork,
  listTaskRefs,
  readRef,
  refOf,
  refuseWhileUnderWay,
  requireCheckout,
  sourceCheckout,
  writeRefs,
} from "./repository.ts"
import { expireLosers, sharedIn } from "./shared-state.ts"
import { leftNotes, leftOf, missingAtStart, snapshot, stampCommit } from "./snapshot.ts"
import { stashNotes, tookFromStash } from "./stash.ts"
import { type PreparedWorktree, prefaceOf, readMarker } from "./worktree.ts"

const STASH_UNSEEN = "it had left work in git's stash, which its check has not seen"

/** Start of a task's next run, for a task whose files are on another machine. */
export type NextState = Start & {
  /** Files that differ from the earlier state. */
  readonly files: readonly string[]
  readonly left: LeftWork
  /** Makes this state the task's. Called once the files are in place, so that earlier failures change nothing. */
  settle(): Promise<void>
}

/**
 * Git worktrees of tasks: created from the parent's state, archived under refs, merged back. Only a merge changes the
 * user's files, and only files that git ignores can be lost. Rejects with a `CallError` if the reader can act,
 * otherwise with a `GitError`.
 */
export class Worktrees implements Place {
  readonly #ports: WorktreePorts

  readonly shared: SharedPlaces

  constructor(ports: Omit<WorktreePorts, "fault"> & Partial<Pick<WorktreePorts, "fault">>) {
    this.#ports = { fault: () => {}, ...ports }
    this.shared = sharedIn(this.#ports)
  }

  /**
   * Saves the parent's current state, committed or not, without unreadable files. Returns a text on contents that a
   * worktree will lack; throws if no worktree can be made.
   */
  capture(taskID: string, folder: string): Promise<string | undefined> {
    return capturing(async () => {
      const from = await sourceCheckout(folder)
      await refuseWhileUnderWay(from)
      const lacks = missingContentNote(this.#ports, from)
      lacks.catch(() => {})
      const read = () => snapshot(from, [from.head], "superagents: what the task began with")
      const { commit, unreadable } = await betweenMerges(this.#ports, from, read)
      this.#ports.fault("capture: state kept")
      await writeRefs(from, taskID, { state: commit, base: commit, start: await stampCommit(from, commit, unreadable) })
      return lacks
    })
  }

  /** Missing dependencies of a task's worktree, and the option that adds them. */
  async lacks(taskID: string, folder: string): Promise<string | undefined> {
    const checkout = await requireCheckout(folder)
    return readMarker(await worktreeFolder(this.#ports, checkout, taskID))?.lacks
  }

  mayEnterAgain(request: Pick<EnterRequest, "taskID" | "folder" | "bringIn">): Promise<void> {
    return plainly(async () => {
      const from = await requireCheckout(request.folder)
      if (await readsParent(from, request)) await refuseWhileUnderWay(from)
    })
  }

  async enter(request: EnterRequest): Promise<PreparedPlace & PreparedWorktree> {
    const entered = await plainly(() => makeReady(this.#ports, request))
    return { ...entered, preface: prefaceOf(request, entered) }
  }

  /**
   * Archives and removes a task's worktree. If there is none, the state that was archived before is returned; if
   * archiving fails, the folder stays for the next start of the plugin.
   */
  archive(taskID: string, folder: string): Promise<ArchiveResult> {
    return plainly(async () => {
      const checkout = await requireCheckout(folder)
      const target = await worktreeFolder(this.#ports, checkout, taskID)
      const { unsaved, notes } = await cleanAll(this.#ports, checkout, taskID)
      const work = await workOf(checkout, taskID)
      const missing = await missingAtStart(checkout, refOf("start", taskID))
      const all = [
        ...notes,
        ...(await leftNotes(checkout, taskID)),
        missing.length > 0 && `It worked without what could not be read or is too large: ${named(missing)}`,
        await missingFilterNote(checkout),
        ...(await hiddenIn(checkout, taskID)),
        ...(await ignoredNotes(checkout, taskID)),
        ...(await stashNotes(checkout, taskID)),
      ].filter((note) => typeof note === "string")
      return {
        ...work,
        unsaved,
        ...(unsaved.length > 0 && { held: target }),
        ...(all.length > 0 && { notes: all }),
        ...((await tookFromStash(checkout, taskID)) && { unseen: STASH_UNSEEN }),
      }
    })
  }

  async show(taskID: string, folder: string, mostLines: number): Promise<WorkDiff> {
    const checkout = await requireCheckout(folder)
    const work = await workOf(checkout, taskID)
    const [start, state] = [refOf("start", taskID), refOf("state", taskID)]
    const command = `git diff ${start} ${state}`
    if (work.files.length === 0) return { ...work, diff: "", cut: false, command }
    const { text, cut } = await diffText(checkout, start, state, mostLines)
    return { ...work, diff: text, cut, command }
  }

  merge(taskID: string, folder: string): Promise<MergeResult> {
    return plainly(() => mergeIntoParent(this.#ports, taskID, folder))
  }

  isMergeBegun(taskID: string, folder: string): Promise<boolean> {
    return isMergeBegun(taskID, folder)
  }

  bringIn(taskID: string, folder: string): Promise<MergeResult> {
    return plainly(async () => {
      const checkout = await requireCheckout(folder)
      const { worktree } = readMarker(await worktreeFolder(this.#ports, checkout, taskID)) ?? {}
      return mergeFromParent(this.#ports, taskID, checkout, worktree)
    })
  }

  /** State of a task's next run. With `bringIn`, the parent's current state is merged in. */
  async next(taskID: string, folder: string, bringIn: boolean): Promise<NextState> {
    const from = await sourceCheckout(folder)
    const [before, left] = await Promise.all([readRef(from, "state", taskID), leftOf(from, taskID)])
    const start = await startOf(this.#ports, from, { taskID, folder, timeLimit: 0, bringIn })
    const changes = before === undefined ? [] : await changesBetween(from, before, start.commit)
    return { ...start, left, files: changes.map(({ path }) => path), settle: () => begin(from, taskID, start) }
  }

  /** Deletes the refs of these tasks if their work is merged or empty. Returns the ids of the other tasks. */
  async clear(folder: string, taskIDs: readonly string[]): Promise<readonly string[]> {
    const original = await findCheckout(folder)
    if (!original) return []
    const known = (await listTaskRefs(original)).filter(({ taskID }) => taskIDs.includes(taskID))
    const kept: string[] = []
    for (const task of known) {
      const { state } = readMarker(await worktreeFolder(this.#ports, original, task.taskID)) ?? {}
      if (isUnmerged(task) || state === "held" || state === "used") kept.push(task.taskID)
      else await dropRefs(original, task.taskID)
    }
    return kept
  }

  /**
   * Deletes work that is older than `before` and merged or empty; with `all`, unmerged work, too. Work of tasks for
   * which `isKnown` is true stays.
   */
  async expire(
    folder: string,
    before: number,
    all: boolean,
    isKnown: (taskID: string) => boolean,
  ): Promise<readonly string[]> {
    const original = await findCheckout(folder)
    if (!original) return []
    await expireLosers(original, before)
    const gone: string[] = []
    for (const task of await listTaskRefs(original)) {
      if (isKnown(task.taskID) || task.keptAt >= before || task.trees.merge !== undefined || (isUnmerged(task) && !all))
        continue
      if (existsSync(await worktreeFolder(this.#ports, original, task.taskID))) continue
      await dropRefs(original, task.taskID)
      gone.push(task.taskID)
    }
    return gone
  }

  /**
   * Completes what a crash interrupted in this repository: kills leftover commands, archives and removes worktrees
   * whose owner has died, and completes merges. `isBusy`: whether this process runs the task.
   */
  async sweep(folder: string, isBusy: (taskID: string) => boolean): Promise<readonly SweptLeftover[]> {
    if (this.#ports.commands) await endLeftovers(this.#ports.commands)
    const checkout = await findWorkingCheckout(folder)
    if (!checkout) return []
    const swept: SweptLeftover[] = []
    const repoFolder = await repoWorktreesFolder(this.#ports, checkout)
    for (const name of await jsonNames(repoFolder)) {
      const taskID = taskOf(name)
      const target = join(repoFolder, name)
      const marker = readMarker(target)
      if (!marker || (marker.state === "held" && existsSync(target))) continue
      if (isBusy(taskID) || this.#ports.isOthers(marker.keeper)) continue
      try {
        const { notes } = await clean(this.#ports, target, taskID)
        const done = marker.state === "used" ? "its state was kept" : "its folder was removed"
        swept.push({ taskID, what: notes[0] ?? done })
      } catch (error) {
        swept.push({ taskID, what: `its folder ${target} stays: ${(error as Error).message}` })
      }
    }
    return [...swept, ...(await mergedTasks(checkout)), ...(await finishMerges(this.#ports, checkout))]
  }
}

/** Start and end of a task's archived changes; undefined for none. */
async function endsOf(
  original: Checkout,
  taskID: string,
): Promise<readonly [start: string, state: string] | undefined> {
  const [start, state] = await Promise.all([readRef(original, "start", taskID), readRef(original, "state", taskID)])
  return start && state ? [start, state] : undefined
}

async function hiddenIn(original: Checkout, taskID: string): Promise<readonly string[]> {
  const ends = await endsOf(original, taskID)
  return ends ? hiddenNotes(original, ...ends) : []
}

async function workOf(original: Checkout, taskID: string): Promise<ChangeStats> {
  const ends = await endsOf(original, taskID)
  return ends ? workBetween(original, ...ends) : { files: [], added: 0, removed: 0, submodules: [] }
}

const MOST_CHARS = 300

type KnownError = { readonly pattern: RegExp; readonly text: (found: RegExpExecArray, error: Error) => string }

/** Errors of git and the file system that the plugin knows, each with advice for the reader. */
const KNOWN_ERRORS: readonly KnownError[] = [
  {
    pattern: /detected dubious ownership in repository at '(.+?)'/,
    text: ([, folder]) =>
      `the repository at ${folder} belongs to another user, so git refuses to work in it. If you trust it: git config --global --add safe.directory ${folder}.`,
  },
  {
    pattern: /^fatal: (.+): (?:clean|smudge) filter '?([^'\s]+)'? failed/m,
    text: ([, file, filter], error) =>
      `the program of the git filter ${filter} failed at ${file}. Mend it, or take it out of .gitattributes. Git said: ${oneLine(error.message, MOST_CHARS)}`,
  },
  {
    pattern:
      /repository database (\S+)|^(?=.*(?:Permission denied|Read-only file system)).*(?:unable to create|cannot create|could not create|cannot mkdir|cannot open|cannot lock ref)/im,
    text: ([, objects], error) =>
      `the repository's own folder may not be written to (${objects ?? oneLine(error.message, MOST_CHARS)}). Let OpenCode's user write to it, then try again.`,
  },
  {
    pattern: /^(?:EACCES|EPERM|EROFS): .*'([^']+)'/,
    text: ([, path]) => `${path} may not be written to. Let OpenCode's user write to it, then try again.`,
  },
]

/** Turns a known error into a `CallError` with advice. Any other error is returned as it is. */
export function explained(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof CallError) return error
  for (const { pattern, text } of KNOWN_ERRORS) {
    const found = pattern.exec(error.message)
    if (found) return new CallError(text(found, error))
  }
  return error
}

/** Runs `work`. If it fails with a known error, throws the error with advice. */
async function plainly<Value>(work: () => Promise<Value>): Promise<Value> {
  try {
    return await work()
  } catch (error) {
    throw explained(error)
  }
}

/** Runs `work`. If it fails with an error of git or a call, throws a `CaptureError`, with advice for known errors. */
async function capturing<Value>(work: () => Promise<Value>): Promise<Value> {
  try {
    return await plainly(work)
  } catch (error) {
    if (error instanceof CaptureError) throw error
    if (error instanceof CallError || error instanceof GitError)
      throw new CaptureError(`A worktree could not be made: ${messageOf(error)}`)
    throw error
  }
}
