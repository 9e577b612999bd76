import { createHash } from "node:crypto"
import { existsSync } from "node:fs"
import { mkdir, realpath } from "node:fs/promises"
import { join, relative } from "node:path"
import { CallError } from "../core/errors.ts"
import { at, type Checkout, checkoutAround, find, headOf, underWay } from "./checkout.ts"
import { diffText, type Work, workBetween } from "./diff.ts"
import { type Fault, noFault } from "./fault.ts"
import { git } from "./git.ts"
import { locked } from "./lock.ts"
import { dropMarker, folderOf, type Keeper, type Marker, makeRoom, marked, readMarker, writeMarker } from "./marker.ts"
import { type CutOff, cutOff, mergeInto, mergeTrees } from "./merge.ts"
import { dropRefs, isUnmerged, readRef, refOf, remembered, writeRefs } from "./refs.ts"
import { lastLines, runCommand } from "./run-command.ts"
import { commitOf, snapshot } from "./snapshot.ts"
import { addSubmodules, addWorktree, changedSubmodules, copyIgnored, removeWorktree } from "./worktree.ts"

type WorktreeSettings = {
  /** Run in a fresh worktree before the agent; empty for none. */
  readonly setup: string
  /** What git ignores and is brought along. */
  readonly copy: readonly string[]
}

export type WorktreePorts = {
  /** The folder in which all worktrees are made. */
  readonly root: string
  readonly settings: WorktreeSettings
  /** Who makes worktrees here. */
  readonly keeper: () => Keeper
  /** Whether somebody else who lives looks after it. */
  readonly isOthers: (keeper: Keeper) => boolean
  readonly isAlive: (keeper: Keeper) => boolean
  readonly fault?: Fault
}

export type ReadyRequest = {
  readonly taskID: string
  /** Where its parent works. */
  readonly folder: string
  /** Time for the setup command, in ms; 0 for any. */
  readonly timeLimit: number
  readonly signal?: AbortSignal
}

export type Ready = {
  /** The worktree's counterpart of the parent's folder. */
  readonly directory: string
  /** Files with conflict marks in them, since the parent's state was merged in. */
  readonly conflicts: readonly string[]
}

/** What became of a worktree when its run ended. */
export type PutAway = Work & {
  /** The folder, where it stays because of what git cannot keep under a ref. */
  readonly held?: string
  /** Repositories within the worktree whose changes are in that folder alone. */
  readonly unsaved: readonly string[]
}

export type MergeResult =
  | { readonly kind: "nothing" }
  | { readonly kind: "merged"; readonly files: readonly string[]; readonly submodules: readonly string[] }
  | { readonly kind: "conflict"; readonly files: readonly string[] }

export type Shown = Work & { readonly diff: string; readonly cut: boolean; readonly command: string }

export type Swept = { readonly taskID: string; readonly what: string }

/** The commit a worktree begins with; `mine` where the parent's state was merged into it. */
type Start = { readonly commit: string; readonly mine?: string; readonly conflicts: readonly string[] }

const SETUP_LINES = 30

/**
 * Worktrees of git for tasks: made ready from what the parent sees, put away with their state kept under a ref, and
 * brought home. The rules: nothing of the user's is touched but by a merge, and what git does not ignore is never lost.
 * Rejects with a `CallError` where the reader can do something, with a `GitError` where git failed.
 */
export class Worktrees {
  readonly #ports: WorktreePorts
  readonly #fault: Fault
  /** One after the other: each reads the whole of the parent's files. */
  #making: Promise<unknown> = Promise.resolve()

  constructor(ports: WorktreePorts) {
    this.#ports = ports
    this.#fault = ports.fault ?? noFault
  }

  /**
   * Keeps the parent's state as it is now, its commit and what is not committed, as what the task begins with. Throws
   * where no worktree could be made of it.
   */
  async capture(taskID: string, folder: string): Promise<void> {
    const from = await checkoutAround(folder)
    const { commit } = await snapshot(from, [from.head], "superagents: what the task began with")
    this.#fault("capture: state kept")
    await writeRefs(from, taskID, { state: commit, base: commit })
  }

  /**
   * Makes a worktree for a run, at the state that was captured or that the last run left. Where that fails nothing is
   * left behind but that state.
   */
  async ready({ taskID, folder, timeLimit, signal }: ReadyRequest): Promise<Ready> {
    const from = await checkoutAround(folder)
    const target = folderOf(await this.#room(from), taskID)
    const directory = join(target, from.prefix)
    const marker = await readMarker(target)
    if (marker?.state === "held" && existsSync(target)) {
      await writeMarker(target, { ...marker, state: "used", keeper: this.#ports.keeper() })
      return { directory, conflicts: [] }
    }
    if (marker) await this.#clean(target, taskID)
    const making: Marker = { state: "making", keeper: this.#ports.keeper(), from: bare(from) }
    try {
      const { worktree, start } = await this.#inTurn(() => this.#make(from, target, taskID, making))
      await mkdir(directory, { recursive: true })
      await this.#setUp(directory, timeLimit, signal)
      if (signal?.aborted) throw new CallError("The task was stopped before its worktree was ready.")
      this.#fault("ready: set up")
      if (start.mine) await writeRefs(from, taskID, { state: start.commit, base: start.mine, conflict: start.mine })
      await writeMarker(target, { ...making, state: "used", worktree: bare(worktree) })
      return { directory, conflicts: start.conflicts }
    } catch (error) {
      await removeWorktree(from, target)
      await dropMarker(target)
      throw error
    }
  }

  async #make(from: Checkout, target: string, taskID: string, making: Marker) {
    const start = await this.#start(from, taskID)
    await writeMarker(target, making)
    this.#fault("ready: marked")
    const worktree = await addWorktree(from, target, start.commit)
    this.#fault("ready: added")
    await addSubmodules(from, worktree)
    await copyIgnored(from, worktree, this.#ports.settings.copy)
    return { worktree, start }
  }

  #inTurn<Value>(work: () => Promise<Value>): Promise<Value> {
    const done = this.#making.then(work)
    this.#making = done.catch(() => {})
    return done
  }

  /** The state that is kept; after a conflict with the parent's state merged into it, marks included. */
  async #start(from: Checkout, taskID: string): Promise<Start> {
    const [state, base] = await Promise.all([readRef(from, "state", taskID), readRef(from, "base", taskID)])
    if (!state || !base)
      throw new CallError(
        `The work of task ${taskID} is no longer kept in this repository (${refOf("state", taskID)}), so it cannot be resumed. Start a new superagents_task instead.`,
      )
    if (!(await readRef(from, "conflict", taskID))) return { commit: state, conflicts: [] }
    const { commit: mine } = await snapshot(from, [base], "superagents: the parent's state, to be merged with")
    const merged = await mergeTrees(from, state, mine)
    const commit = await commitOf(from, merged.tree, [state, mine], "superagents: merged with the parent's state")
    return { commit, mine, conflicts: merged.kind === "conflict" ? merged.paths : [] }
  }

  async #setUp(cwd: string, timeLimit: number, signal?: AbortSignal): Promise<void> {
    const { setup } = this.#ports.settings
    if (setup === "") return
    const { exitCode, why, output } = await runCommand(setup, { cwd, timeLimit, signal })
    if (exitCode === 0) return
    const how =
      why === "time" ? "ran out of time" : why === "stopped" ? "was stopped" : `ended with exit code ${exitCode}`
    throw new CallError(
      `The option worktree.setup (\`${setup}\`) ${how} in the task's worktree. The end of its output:\n${lastLines(output, SETUP_LINES)}`,
    )
  }

  /** The folder of a task's worktree, if it has one now. */
  async directoryOf(taskID: string, folder: string): Promise<string | undefined> {
    const target = await this.#existing(taskID, folder)
    return target && (await readMarker(target))?.state === "used" ? target : undefined
  }

  /**
   * Keeps the state of a task's worktree under its ref and removes it; where it has none any more, tells what is kept.
   * What fails leaves the folder for the next start to try again.
   */
  async putAway(taskID: string, folder: string): Promise<PutAway> {
    const target = await this.#existing(taskID, folder)
    const marker = target && (await readMarker(target))
    const held = target && marker ? await this.#clean(target, taskID) : undefined
    const from = await this.#home(folder)
    const work = await this.#work(from, taskID)
    return { ...work, unsaved: held ?? [], ...(held && held.length > 0 ? { held: target } : {}) }
  }

  /** What a task's kept work changed, with the diff. */
  async show(taskID: string, folder: string, mostLines: number): Promise<Shown> {
    const from = await this.#home(folder)
    const work = await this.#work(from, taskID)
    const [base, state] = [refOf("base", taskID), refOf("state", taskID)]
    const command = `git diff ${base} ${state}`
    if (work.files.length === 0) return { ...work, diff: "", cut: false, command }
    const { text, cut } = await diffText(from, base, state, mostLines)
    return { ...work, diff: text, cut, command }
  }

  async #work(from: Checkout, taskID: string): Promise<Work> {
    const [state, base] = await Promise.all([readRef(from, "state", taskID), readRef(from, "base", taskID)])
    if (!state || !base) return { files: [], added: 0, removed: 0, submodules: [] }
    return workBetween(from, base, state)
  }

  /** Brings a task's kept work into its parent's files. */
  async merge(taskID: string, folder: string): Promise<MergeResult> {
    const home = await this.#home(folder)
    return this.#alone(home, async () => {
      await this.#finishAll(home)
      const busy = await underWay(home)
      if (busy)
        throw new CallError(
          `Not merged: the checkout is in the middle of ${busy}. Finish or abort it, then merge again.`,
        )
      const [theirs, base] = await Promise.all([readRef(home, "state", taskID), readRef(home, "base", taskID)])
      if (!theirs || !base)
        throw new CallError(`There is nothing to merge: no work of task ${taskID} is kept in this repository.`)
      if (theirs === base) return { kind: "nothing" }
      const marks = await this.#marksIn(home, taskID, theirs)
      if (marks.length > 0) return { kind: "conflict", files: marks }
      const keep = relative(home.top, await realpath(folder))
      const brought = await mergeInto(home, { taskID, theirs, base, keep, finishing: false, fault: this.#fault })
      if (brought.kind === "conflict") {
        await writeRefs(home, taskID, { conflict: brought.mine })
        return { kind: "conflict", files: brought.paths }
      }
      await writeRefs(home, taskID, { base: theirs, merge: undefined, conflict: undefined })
      this.#fault("merge: done")
      const files = brought.changes.map(({ path }) => path)
      const nothing = files.length === 0 && brought.submodules.length === 0
      return nothing ? { kind: "nothing" } : { kind: "merged", files, submodules: brought.submodules }
    })
  }

  /** The files of a state in which the marks of a conflict that was given to the agent to solve still stand. */
  async #marksIn(home: Checkout, taskID: string, state: string): Promise<readonly string[]> {
    const mine = await readRef(home, "conflict", taskID)
    if (!mine) return []
    const args = ["grep", "-l", "-z", "-I", "--fixed-strings", "-e", `>>>>>>> ${mine}`, state]
    const { out } = await git(args, { ...at(home), accept: [1] })
    return out.split("\0").flatMap((name) => (name === "" ? [] : [name.slice(state.length + 1)]))
  }

  /**
   * Brings the parent's present state into a task's worktree, so that what is checked there is what a merge would make.
   * "nothing" where the parent's state is what the task knows already.
   */
  async bringIn(taskID: string, folder: string): Promise<MergeResult> {
    const home = await this.#home(folder)
    const target = await this.#existing(taskID, folder)
    const worktree = target ? (await readMarker(target))?.worktree : undefined
    const base = await readRef(home, "base", taskID)
    if (!worktree || !base) throw new CallError(`Task ${taskID} has no worktree.`)
    const { commit: parents } = await snapshot(home, [base], "superagents: the parent's state, to be merged with")
    if (parents === base) return { kind: "nothing" }
    const merging = { taskID, theirs: parents, base, keep: "", finishing: true, fault: noFault }
    const brought = await mergeInto(worktree, merging)
    if (brought.kind === "conflict") return { kind: "conflict", files: brought.paths }
    await writeRefs(home, taskID, { base: parents })
    const files = brought.changes.map(({ path }) => path)
    return files.length === 0 ? { kind: "nothing" } : { kind: "merged", files, submodules: brought.submodules }
  }

  /** The tasks whose work is kept and not merged. */
  async unmerged(folder: string): Promise<ReadonlySet<string>> {
    const home = await find(folder)
    if (!home) return new Set()
    return new Set((await remembered(home)).filter(isUnmerged).map(({ taskID }) => taskID))
  }

  /** Forgets what is merged or empty of these tasks; returns those whose work is kept because it is neither. */
  async clear(folder: string, taskIDs: readonly string[]): Promise<readonly string[]> {
    const home = await find(folder)
    if (!home) return []
    const known = (await remembered(home)).filter(({ taskID }) => taskIDs.includes(taskID))
    const kept: string[] = []
    for (const task of known) {
      const target = folderOf(await this.#room(home), task.taskID)
      if (isUnmerged(task) || (await readMarker(target))?.state === "held") kept.push(task.taskID)
      else await dropRefs(home, task.taskID)
    }
    return kept
  }

  /** Forgets what was kept before `before`: what is merged or empty, with `all` the rest too. */
  async expire(folder: string, before: number, all: boolean): Promise<readonly string[]> {
    const home = await find(folder)
    if (!home) return []
    const gone: string[] = []
    for (const task of await remembered(home)) {
      if (task.keptAt >= before || task.trees.merge !== undefined || (isUnmerged(task) && !all)) continue
      if (existsSync(folderOf(await this.#room(home), task.taskID))) continue
      await dropRefs(home, task.taskID)
      gone.push(task.taskID)
    }
    return gone
  }

  /**
   * Finishes what a crash cut off in this repository: keeps the state of worktrees that nobody looks after any more and
   * removes them, then finishes merges. `isBusy` tells the tasks that run here.
   */
  async sweep(folder: string, isBusy: (taskID: string) => boolean): Promise<readonly Swept[]> {
    const home = await find(folder)
    if (!home) return []
    const swept: Swept[] = []
    const room = await this.#room(home)
    for (const taskID of await marked(room)) {
      const target = folderOf(room, taskID)
      const marker = await readMarker(target)
      if (!marker || marker.state === "held" || isBusy(taskID) || this.#ports.isOthers(marker.keeper)) continue
      try {
        await this.#clean(target, taskID)
        swept.push({ taskID, what: marker.state === "used" ? "its state was kept" : "its folder was removed" })
      } catch (error) {
        swept.push({ taskID, what: `its folder ${target} stays: ${(error as Error).message}` })
      }
    }
    const cut = (await remembered(home)).some(({ trees }) => trees.merge !== undefined)
    if (cut || existsSync(lockOf(home))) swept.push(...(await this.#alone(home, () => this.#finishAll(home))))
    return swept
  }

  /** Keeps what has to be kept of a worktree, then removes it. Returns what cannot be kept: then the folder stays. */
  #clean(target: string, taskID: string): Promise<readonly string[]> {
    const { keeper, isAlive } = this.#ports
    return locked(`${target}.lock`, keeper(), isAlive, async () => {
      const marker = await readMarker(target)
      if (!marker || marker.state === "held") return []
      if (marker.state === "used") {
        const unsaved = await this.#keepState(target, taskID, marker)
        this.#fault("away: state kept")
        await writeMarker(target, { ...marker, state: unsaved.length > 0 ? "held" : "kept" })
        if (unsaved.length > 0) return unsaved
        this.#fault("away: marked")
      }
      await removeWorktree(marker.from, target)
      this.#fault("away: removed")
      await dropMarker(target)
      return []
    })
  }

  async #keepState(target: string, taskID: string, { worktree, from }: Marker): Promise<readonly string[]> {
    if (!worktree || !existsSync(target)) return []
    const [state, base] = await Promise.all([readRef(from, "state", taskID), readRef(from, "base", taskID)])
    const known = [state, base].filter((commit) => commit !== undefined)
    // Where git's notes of the worktree are gone (somebody pruned them), the files are all there is.
    const whole = existsSync(worktree.gitDir)
    const checkout = whole ? worktree : { ...worktree, gitDir: worktree.commonDir }
    const head = whole ? await headOf(checkout) : undefined
    const parents = [...(head === undefined ? [] : [head]), ...known]
    const { commit, nested } = await snapshot(checkout, parents, `superagents: the work of ${taskID}`, whole)
    if (commit !== state) await writeRefs(from, taskID, { state: commit })
    return whole ? [...nested, ...(await changedSubmodules(checkout))] : nested
  }

  async #finishAll(home: Checkout): Promise<readonly Swept[]> {
    const finished: Swept[] = []
    for (const { taskID, trees } of await remembered(home)) {
      if (trees.merge === undefined) continue
      const cut = await cutOff(home, taskID)
      if (cut) finished.push({ taskID, what: await this.#finish(home, taskID, cut) })
    }
    return finished
  }

  /** What was applied is there already, on both sides of this merge; what is missing comes; what changed since stays. */
  async #finish(home: Checkout, taskID: string, { journal, mine, theirs, result }: CutOff): Promise<string> {
    const merging = { taskID, theirs: result, base: mine, keep: "", finishing: true, fault: this.#fault }
    const brought = await mergeInto(home, merging)
    if (brought.kind === "conflict") {
      await writeRefs(home, taskID, { conflict: journal, merge: undefined })
      return `its merge was cut off, and these files were changed since: ${brought.paths.join(", ")}; merge it again`
    }
    await writeRefs(home, taskID, { base: theirs, merge: undefined, conflict: undefined })
    return "its merge, which was cut off, was finished"
  }

  #alone<Value>(home: Checkout, work: () => Promise<Value>): Promise<Value> {
    const { keeper, isAlive } = this.#ports
    return locked(lockOf(home), keeper(), isAlive, work)
  }

  async #home(folder: string): Promise<Checkout> {
    const home = await find(folder)
    if (!home) throw new CallError(`${folder} is not in the checkout of a git repository.`)
    return home
  }

  async #existing(taskID: string, folder: string): Promise<string | undefined> {
    const home = await find(folder)
    return home && folderOf(await this.#room(home), taskID)
  }

  /** The folder of a repository's worktrees, which all its checkouts share. */
  async #room({ commonDir }: Checkout): Promise<string> {
    const room = join(this.#ports.root, createHash("sha256").update(commonDir).digest("hex").slice(0, 16))
    await makeRoom(room)
    return realpath(room)
  }
}

const lockOf = ({ commonDir }: Checkout): string => join(commonDir, "superagents-merge.lock")

const bare = ({ top, gitDir, commonDir }: Checkout): Checkout => ({ top, gitDir, commonDir })
