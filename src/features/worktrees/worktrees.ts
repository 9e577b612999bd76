import { existsSync } from "node:fs"
import { join } from "node:path"
import { jsonNames } from "../../lib/atomic-file.ts"
import { endLeftovers } from "../../runtime/places/command-marks.ts"
import type {
  Changed,
  EnterRequest,
  KeptStates,
  MergeResult,
  Place,
  PutAway,
  Ready,
  SharedPlaces,
  Shown,
  Swept,
} from "../../runtime/places/place.ts"
import { withoutProgram } from "./blobs.ts"
import { type Checkout, checkoutAround, checkoutOf, find, homeAround } from "./checkout.ts"
import { lackedIn, makeReady } from "./create.ts"
import { diffText, hiddenNotes, workBetween } from "./diff.ts"
import { clean, cleanAll, roomOf, targetOf, taskOf, type WorktreePorts } from "./folders.ts"
import { ignoredNotes } from "./ignored.ts"
import { betweenMerges } from "./locks.ts"
import { readMarker } from "./marker.ts"
import { bringHome, bringIn, finishMerges } from "./merge-back.ts"
import { type Entered, welcome } from "./preface.ts"
import { dropRefs, isUnmerged, readRef, refOf, remembered, writeRefs } from "./refs.ts"
import { capturing, plainly } from "./refusals.ts"
import { expireAside, sharedIn } from "./shared-state.ts"
import { snapshot, stamped, withoutAt } from "./snapshot.ts"
import { stashNotes, tookFromStash } from "./stash.ts"
import { statesIn } from "./states.ts"

const STASH_UNSEEN = "it had left work in git's stash, which its check has not seen"

/**
 * Worktrees of git for tasks: made ready from what the parent sees, put away with their state kept under a ref, and
 * brought home. The rules: nothing of the user's is touched but by a merge, and what git does not ignore is never lost.
 * Rejects with a `CallError` where the reader can do something, with a `GitError` where git failed.
 */
export class Worktrees implements Place {
  readonly #ports: WorktreePorts

  readonly shared: SharedPlaces
  readonly states: KeptStates

  constructor(ports: Omit<WorktreePorts, "fault"> & Partial<Pick<WorktreePorts, "fault">>) {
    this.#ports = { fault: () => {}, ...ports }
    this.shared = sharedIn(this.#ports)
    this.states = statesIn(this.#ports)
  }

  /**
   * Keeps the parent's present state, committed or not, for the task to begin with. Files that may not be read are left
   * out, and named to the agent. Throws where no worktree could be made of it. Returns what a worktree will lack.
   */
  capture(taskID: string, folder: string): Promise<string | undefined> {
    return capturing(() => this.#capture(taskID, folder))
  }

  async #capture(taskID: string, folder: string): Promise<string | undefined> {
    const from = await checkoutAround(folder)
    const lacks = lackedIn(this.#ports, from)
    lacks.catch(() => {})
    const read = () => snapshot(from, [from.head], "superagents: what the task began with")
    const { commit, unreadable } = await betweenMerges(this.#ports, from, read)
    this.#ports.fault("capture: state kept")
    await writeRefs(from, taskID, { state: commit, base: commit, start: await stamped(from, commit, unreadable) })
    return lacks
  }

  /** What a task's worktree lacks of its project's dependencies, and which option brings it. */
  async lacks(taskID: string, folder: string): Promise<string | undefined> {
    const home = await checkoutOf(folder)
    return readMarker(await targetOf(this.#ports, home, taskID))?.lacks
  }

  /** Makes a worktree for a run, at the state that was captured or that the last run left. */
  async enter(request: EnterRequest): Promise<Ready & Entered> {
    const entered = await plainly(() => makeReady(this.#ports, request))
    return { ...entered, told: welcome(request, entered) }
  }

  /**
   * Keeps the state of a task's worktree under its ref and removes it; where it has none any more, tells what is kept.
   * What fails leaves the folder for the next start to try again.
   */
  putAway(taskID: string, folder: string): Promise<PutAway> {
    return plainly(() => this.#putAway(taskID, folder))
  }

  async #putAway(taskID: string, folder: string): Promise<PutAway> {
    const home = await checkoutOf(folder)
    const target = await targetOf(this.#ports, home, taskID)
    const { unsaved, notes } = await cleanAll(this.#ports, home, taskID)
    const work = await workOf(home, taskID)
    const missing = await withoutAt(home, refOf("start", taskID))
    const lacked =
      missing.length > 0 ? [`It worked without what could not be read or is too large: ${missing.join(", ")}`] : []
    const lacksProgram = await withoutProgram(home)
    const stored = lacksProgram ? [lacksProgram] : []
    const all = [
      ...notes,
      ...lacked,
      ...stored,
      ...(await hiddenIn(home, taskID)),
      ...(await ignoredNotes(home, taskID)),
      ...(await stashNotes(home, taskID)),
    ]
    return {
      ...work,
      unsaved,
      ...(unsaved.length > 0 && { held: target }),
      ...(all.length > 0 && { notes: all }),
      ...((await tookFromStash(home, taskID)) && { unseen: STASH_UNSEEN }),
    }
  }

  /** What a task's kept work changed, with the diff. */
  async show(taskID: string, folder: string, mostLines: number): Promise<Shown> {
    const home = await checkoutOf(folder)
    const work = await workOf(home, taskID)
    const [start, state] = [refOf("start", taskID), refOf("state", taskID)]
    const command = `git diff ${start} ${state}`
    if (work.files.length === 0) return { ...work, diff: "", cut: false, command }
    const { text, cut } = await diffText(home, start, state, mostLines)
    return { ...work, diff: text, cut, command }
  }

  /** Brings a task's kept work into its parent's files. */
  merge(taskID: string, folder: string): Promise<MergeResult> {
    return plainly(() => bringHome(this.#ports, taskID, folder))
  }

  /** Brings the parent's present state into a task's worktree. */
  bringIn(taskID: string, folder: string): Promise<MergeResult> {
    return plainly(() => bringIn(this.#ports, taskID, folder))
  }

  /** Forgets what is merged or empty of these tasks; returns those whose work is kept because it is neither. */
  async clear(folder: string, taskIDs: readonly string[]): Promise<readonly string[]> {
    const home = await find(folder)
    if (!home) return []
    const known = (await remembered(home)).filter(({ taskID }) => taskIDs.includes(taskID))
    const kept: string[] = []
    for (const task of known) {
      const { state } = readMarker(await targetOf(this.#ports, home, task.taskID)) ?? {}
      if (isUnmerged(task) || state === "held" || state === "used") kept.push(task.taskID)
      else await dropRefs(home, task.taskID)
    }
    return kept
  }

  /**
   * Forgets what was begun and kept before `before`: what is merged or empty, with `all` the rest too; nothing of those
   * that `isKnown`.
   */
  async expire(
    folder: string,
    before: number,
    all: boolean,
    isKnown: (taskID: string) => boolean,
  ): Promise<readonly string[]> {
    const home = await find(folder)
    if (!home) return []
    await expireAside(home, before)
    const gone: string[] = []
    for (const task of await remembered(home)) {
      if (isKnown(task.taskID) || task.keptAt >= before || task.trees.merge !== undefined || (isUnmerged(task) && !all))
        continue
      if (existsSync(await targetOf(this.#ports, home, task.taskID))) continue
      await dropRefs(home, task.taskID)
      gone.push(task.taskID)
    }
    return gone
  }

  /**
   * Finishes what a crash cut off in this repository. Commands of tasks that outlived it are ended, wherever they run;
   * worktrees without a living owner are kept as commits and removed; merges are finished. `isBusy`: the task runs here.
   */
  async sweep(folder: string, isBusy: (taskID: string) => boolean): Promise<readonly Swept[]> {
    if (this.#ports.commands) await endLeftovers(this.#ports.commands)
    const home = await homeAround(folder)
    if (!home) return []
    const swept: Swept[] = []
    const room = await roomOf(this.#ports, home)
    for (const name of await jsonNames(room)) {
      const taskID = taskOf(name)
      const target = join(room, name)
      const marker = readMarker(target)
      if (!marker || marker.state === "held" || isBusy(taskID) || this.#ports.isOthers(marker.keeper)) continue
      try {
        const { notes } = await clean(this.#ports, target, taskID)
        const done = marker.state === "used" ? "its state was kept" : "its folder was removed"
        swept.push({ taskID, what: notes[0] ?? done })
      } catch (error) {
        swept.push({ taskID, what: `its folder ${target} stays: ${(error as Error).message}` })
      }
    }
    return [...swept, ...(await finishMerges(this.#ports, home))]
  }
}

async function hiddenIn(home: Checkout, taskID: string): Promise<readonly string[]> {
  const [state, start] = await Promise.all([readRef(home, "state", taskID), readRef(home, "start", taskID)])
  return state && start ? hiddenNotes(home, start, state) : []
}

async function workOf(home: Checkout, taskID: string): Promise<Changed> {
  const [state, start] = await Promise.all([readRef(home, "state", taskID), readRef(home, "start", taskID)])
  if (!state || !start) return { files: [], added: 0, removed: 0, submodules: [] }
  return workBetween(home, start, state)
}
