import { DAY_MS } from "../../core/bill.ts"
import { CallError, messageOf } from "../../core/errors.ts"
import type { CheckResult } from "../../core/receipt.ts"
import { isActive, isUnmerged, type Merge, type Outcome, type Task, type Work } from "../../core/task.ts"
import { HERE } from "../../place/here.ts"
import { kindOf } from "../../place/kinds.ts"
import type { MergeResult, Place, PlaceKind, PutAway, RunLimits, Shown } from "../../place/place.ts"
import type { CommandResult } from "../../place/run-command.ts"
import type { Parts } from "../parts.ts"
import { cutOffOf } from "../talk/notes.ts"
import { stopSession } from "./stopping.ts"
import { tellIdle } from "./telling.ts"

/** Paths that are kept of a run's work: its record is written into the host's database, again and again. */
export const MOST_FILES = 100
/** Lines of a diff that are shown. */
const MOST_DIFF_LINES = 300
/** How long a session that was stopped may take to be idle, and how often it is looked at. */
const QUIET_LIMIT_MS = 10_000
const QUIET_LOOK_MS = 100

/**
 * Where a task's work belongs, and its session while it rests: where its parent works now. A folder that the parent had
 * of its own, when it launched the task, is gone when the parent has ended.
 */
export function homeOf(parts: Pick<Parts, "store" | "host">, task: Task): string {
  const { store, host } = parts
  const parent = store.bySession(task.parentID)
  if (!parent) return task.place?.folder ?? host.folderOf(task.parentID)
  return isActive(parent) ? host.folderOf(parent.sessionID) : homeOf(parts, parent)
}

/** How a completed task's work is merged by itself: with its check once more, and not where it is stopped before. */
export type Merging = {
  readonly signal: AbortSignal
  /** In its session's folder, or this one. Undefined where it was stopped. */
  readonly check: (task: Task, folder?: string) => Promise<CheckResult | undefined>
}

/** What became of a run's work, and of the check before it was merged. */
export type Left = { readonly found: Partial<Outcome>; readonly check?: CheckResult }

/**
 * What is done with the places that tasks work in, whatever their kind: a session is moved to its place before its agent
 * is asked, and home again before the place is put away.
 */
export class Places {
  readonly #parts: Parts
  readonly #kinds: readonly PlaceKind[]
  /** Resolves when a task's last end has been closed. */
  readonly #closed: (taskID: string) => Promise<void>
  #merging: Promise<unknown> = Promise.resolve()

  constructor(parts: Parts, kinds: readonly PlaceKind[], closed: (taskID: string) => Promise<void>) {
    this.#parts = parts
    this.#kinds = kinds
    this.#closed = closed
  }

  /** Keeps what the parent sees now as what the task begins with. Throws a `CallError` where that cannot be. */
  async capture(task: Pick<Task, "id" | "place">, folder: string): Promise<void> {
    const place = await this.placeOf(task)
    await place.capture(task.id, folder)
  }

  /** Runs a command in a task's place; undefined where that is on this machine. */
  async runner(task: Task): Promise<((command: string, limits: RunLimits) => Promise<CommandResult>) | undefined> {
    const place = await this.placeOf(task)
    return place.run && ((command, limits) => place.run?.(task.id, command, limits) as Promise<CommandResult>)
  }

  /** True where what a task does goes on when this process ends. */
  outlives({ place }: Task): boolean {
    return place !== undefined && kindOf(this.#kinds, place.kind).outlives === true
  }

  /** A task of an earlier process goes on in its place: that is looked after from now on. */
  rejoin({ id, place }: Task): void {
    if (place) kindOf(this.#kinds, place.kind).rejoin?.(place.kind, id)
  }

  /** How many tasks may be in a place at once; 0 for any number. */
  mostIn(name: string): number {
    return this.#kinds.find(({ names }) => names.includes(name))?.most?.(name) ?? 0
  }

  /** What a place can do again that it could not before: what ended tasks have left there comes home. Never rejects. */
  async settleOwed(name: string): Promise<void> {
    const { store, host } = this.#parts
    const owed = [...store.entries()]
      .map(({ task }) => task)
      .filter((task) => task.place?.kind === name && !task.outcome?.work)
    for (const { id } of owed) {
      await this.#closed(id)
      const task = store.get(id)
      if (!task || isActive(task) || store.isForeign(id)) continue
      await this.settle(task).catch((error) =>
        host.log("warn", "work could not be brought home", { task: id, error: messageOf(error) }),
      )
    }
  }

  /** Not loaded where no task has one of its kind. */
  placeOf({ place }: Pick<Task, "place">): Promise<Place> {
    const name = nameOf(place)
    return kindOf(this.#kinds, name).open(name)
  }

  /**
   * Prepares the run's place and moves its session there. Returns what the agent has to be told of it. Rejects where
   * that failed, or the run ended meanwhile. `left`: the run goes on with what it had done there when OpenCode stopped.
   */
  async enter(task: Task, signal: AbortSignal, left = false): Promise<string> {
    const { sessionID, run } = task
    const { host } = this.#parts
    const folder = homeOf(this.#parts, task)
    const place = await this.placeOf(task)
    const again = left || run.generation > 0
    if (left) await place.putAway(task.id, folder)
    // One that waited for others is to see what they have done.
    if (!again && run.after) await place.capture(task.id, folder)
    // Not of another folder than the one that its work was made from.
    const bringIn = again && !left && folder === task.place?.folder
    const request = { taskID: task.id, folder, timeLimit: run.timeout, again, bringIn, signal }
    const { directory, told } = await place.enter(request)
    if (signal.aborted) throw new CallError("It was stopped before its place was ready.")
    if (host.folderOf(sessionID) !== directory) await host.move(sessionID, directory)
    return told
  }

  /**
   * What follows a run's end: its session comes home, its work is kept, and merged where `merging` is there. The tasks
   * that it launched are closed before, and come along from its folder.
   */
  async leave(task: Task, merging: Merging | undefined): Promise<Left> {
    const { id, outcome } = task
    try {
      return await this.#leave(task, merging)
    } catch (error) {
      this.#parts.host.log("warn", "a place could not be put away", { task: id, error: String(error) })
      return { found: { note: [outcome?.note, this.#notPutAway(task, messageOf(error))].filter(Boolean).join(" ") } }
    }
  }

  #notPutAway({ id, place, status }: Task, why: string): string {
    const name = nameOf(place)
    if (kindOf(this.#kinds, name).outlives)
      return `${status === "cancelled" ? `It is stopped on ${name} as soon as ${name} answers. ` : ""}What it changed is still on ${name}, and is fetched when ${name} answers.`
    const where = kindOf(this.#kinds, name).remains(name)
    return `${NOT_PUT_AWAY}, and is still in ${where}; superagents_task(merge="${id}") or the next start of OpenCode tries that again. Why: ${why}`
  }

  async #leave(task: Task, merging: Merging | undefined): Promise<Left> {
    const below = this.#parts.store.below(task)
    for (const { id } of below) await this.#closed(id)
    const place = await this.placeOf(task)
    const putAway = async () => {
      for (const each of [task, ...below]) await this.home(each)
      return place.putAway(task.id, homeOf(this.#parts, task))
    }
    if (!merging) return { found: { work: workOf(await putAway()) } }
    return this.inTurn(merging.signal, async () => {
      let result: CheckResult | undefined
      const once = async () => {
        result = await merging.check(task)
        return result
      }
      const unfit = await this.#unfit(task, place, { ...merging, check: once }).catch(refusedBy)
      const put = await putAway()
      const unseen = task.run.check === undefined || !put.unseen ? undefined : refused(put.unseen)
      const merge = put.files.length > 0 ? (unfit ?? unseen ?? (await this.bringHome(task, place))) : undefined
      return { found: { work: workOf(put, merge) }, ...(result && { check: result }) }
    })
  }

  /** One after the other: what one has merged, the next is checked with. One that is stopped waits for none. */
  inTurn<Value>(signal: AbortSignal, work: () => Promise<Value>): Promise<Value> {
    const before = this.#merging
    const done = Promise.race([before, aborted(signal)]).then(work)
    this.#merging = Promise.all([before, done.catch(() => {})])
    return done
  }

  /** Moves a task's session back to where its parent works, once it does nothing any more. */
  async home(task: Task): Promise<void> {
    const { host, clock } = this.#parts
    const { sessionID } = task
    const folder = homeOf(this.#parts, task)
    if (host.folderOf(sessionID) === folder) return
    const deadline = clock.now() + QUIET_LIMIT_MS
    while ((await host.activity()).has(sessionID)) {
      if (clock.now() >= deadline) throw new Error(`session ${sessionID} does not stop, so its place stays as it is`)
      await stopSession(this.#parts, sessionID).soon
      await new Promise<void>((resolve) => clock.after(QUIET_LOOK_MS, resolve))
    }
    await host.move(sessionID, folder)
  }

  /** Puts away the place of an ended task where that failed at its end; the task as it is then. */
  async settle(task: Task): Promise<Task> {
    const { outcome, place } = task
    if (!place || isActive(task) || !outcome || outcome.work) return task
    if (this.#parts.store.isForeign(task.id))
      throw new CallError(
        `Task ${task.id} ended in another OpenCode process, which still puts its work away. Merge it there, or once its message is here.`,
      )
    await this.home(task)
    const own = await this.placeOf(task)
    const work = workOf(await own.putAway(task.id, homeOf(this.#parts, task)))
    const note = outcome.note?.split(OWED)[0]?.trim() || undefined
    return this.#record(task, { ...outcome, note, work })
  }

  /** Brings the kept work of an ended task home. */
  async merge(task: Task): Promise<Task> {
    const { outcome } = task
    if (!task.place)
      throw new CallError(
        `Task ${task.id} works in your own folder: there is nothing to merge. Only tasks with a \`place\` of their own are merged.`,
      )
    if (isActive(task)) throw new CallError(`Task ${task.id} is still running. Merge it when it has ended.`)
    const merge = await this.bringHome(task, await this.placeOf(task))
    if (merge.kind === "refused") throw new CallError(`Task ${task.id} was not merged: ${merge.text}`)
    if (!outcome?.work) return task
    return this.#record(task, { ...outcome, work: { ...outcome.work, merge } })
  }

  /** Writes down what became of an ended task's work since; the task as it is then. */
  async #record(task: Task, outcome: Outcome): Promise<Task> {
    const { store, journal, clock } = this.#parts
    const event = { type: "closed", generation: task.run.generation, outcome } as const
    const change = store.apply(task.id, event, clock.now())
    if (change) await journal.save(change.after)
    return change?.after ?? task
  }

  /** What an ended task changed, with the diff. One that cannot be had is no reason to keep an answer back. */
  async shown(task: Task): Promise<Shown | undefined> {
    try {
      return await this.#show(task, MOST_DIFF_LINES)
    } catch (error) {
      this.#parts.host.log("warn", "a task's changes could not be read", { task: task.id, error: String(error) })
      return undefined
    }
  }

  async #show(task: Task, mostLines: number): Promise<Shown | undefined> {
    if (!task.outcome?.work?.files.length) return undefined
    const place = await this.placeOf(task)
    return place.show(task.id, homeOf(this.#parts, task), mostLines)
  }

  /** Each file that an ended task changed; its record has the first of many. */
  async filesOf(task: Task): Promise<readonly string[]> {
    const { files = [], moreFiles = 0 } = task.outcome?.work ?? {}
    return moreFiles > 0 ? ((await this.#show(task, 0))?.files ?? files) : files
  }

  /** Forgets what is kept of these tasks, where it is merged or empty. Returns those whose work stays. */
  async clear(tasks: readonly Task[]): Promise<readonly string[]> {
    const kept: string[] = []
    for (const { name, folder, group } of this.#groups(tasks)) {
      try {
        const place = await kindOf(this.#kinds, name).open(name)
        const ids = group.map(({ id }) => id)
        kept.push(...(await place.clear(folder, ids)))
      } catch (error) {
        this.#parts.host.log("warn", "what is kept of tasks could not be cleared", { folder, error: messageOf(error) })
        kept.push(...group.filter(isUnmerged).map(({ id }) => id))
      }
    }
    return kept
  }

  /** Tasks with places of one name that belong to one folder. */
  #groups(tasks: readonly Task[]) {
    const groups = new Map<string, { name: string; folder: string; group: Task[] }>()
    for (const task of tasks) {
      if (!task.place) continue
      const [name, folder] = [task.place.kind, homeOf(this.#parts, task)]
      const { group = [] } = groups.get(`${name} ${folder}`) ?? {}
      groups.set(`${name} ${folder}`, { name, folder, group: [...group, task] })
    }
    return groups.values()
  }

  /** Finishes what an earlier process left of places around a folder. Never rejects. */
  async sweep(folder: string): Promise<void> {
    for (const kind of this.#kinds.filter((each) => each.mayHaveLeft()))
      for (const name of kind.names) await this.#sweepOne(kind, name, folder)
  }

  async #sweepOne(kind: PlaceKind, name: string, folder: string): Promise<void> {
    const { host, store, clock } = this.#parts
    try {
      const place = await kind.open(name)
      const isBusy = (taskID: string) => {
        const task = store.get(taskID)
        return task !== undefined && isActive(task)
      }
      for (const { taskID, what, merge } of await place.sweep(folder, isBusy)) {
        host.log("warn", `after a restart: ${what}`, { task: taskID })
        if (merge) await this.#cutOff(taskID, mergeOf(merge))
      }
      const { keepDays = 0, dropUnmerged = false } = kind.keeps ?? {}
      if (keepDays === 0) return
      const isKnown = (taskID: string) => store.get(taskID) !== undefined
      const dropped = await place.expire(folder, clock.now() - keepDays * DAY_MS, dropUnmerged, isKnown)
      if (dropped.length > 0) host.log("info", "old work was dropped", { tasks: dropped.join(", ") })
    } catch (error) {
      host.log("warn", "places could not be looked after", { folder, error: messageOf(error) })
    }
  }

  /** A merge that another process had begun was finished, or does not fit any more: then its parent and the user hear it. */
  async #cutOff(taskID: string, merge: Merge): Promise<void> {
    const { store, toaster } = this.#parts
    const task = store.get(taskID)
    // One that is not closed yet is merged by that, and told.
    if (!task || isActive(task) || !task.outcome?.work || store.isForeign(taskID)) return
    const now = await this.#record(task, { ...task.outcome, work: { ...task.outcome.work, merge } })
    if (merge.kind !== "conflict") return
    toaster.cutOff(now, merge.files)
    await tellIdle(this.#parts.host, cutOffOf(now, merge.files))
  }

  /** True where a task's place holds nothing that is not in its parent's files; where that cannot be told, false. */
  async isUntouched(task: Task): Promise<boolean> {
    try {
      const place = await this.placeOf(task)
      return await place.isUntouched(task.id, homeOf(this.#parts, task))
    } catch (error) {
      this.#parts.host.log("warn", "a place could not be looked at", { task: task.id, error: messageOf(error) })
      return false
    }
  }

  /**
   * Why a completed task's work is not merged by itself, as what came of the merge: the parent's present state does not
   * go together with it in its place, where it would be checked. Throws where the folder of its parent for which it was
   * asked is gone, or its check does not pass with what was merged since.
   */
  async #unfit(task: Task, place: Place, { signal, check }: Merging): Promise<Merge | undefined> {
    if (signal.aborted) throw new CallError("it was stopped before that")
    const folder = homeOf(this.#parts, task)
    if (folder !== task.place?.folder)
      throw new CallError("the agent that asked for it has ended, and the folder it worked in is put away")
    if (task.run.check === undefined) return undefined
    // Brought home after a crash: in its place nothing can be checked any more.
    if (this.#parts.host.folderOf(task.sessionID) === folder)
      throw new CallError("OpenCode stopped before it was checked with what was changed in your folder meanwhile")
    const brought = await place.bringIn(task.id, folder)
    // In the parent's files it may go together: but nobody could have checked it so.
    if (brought.kind === "conflict") return mergeOf(brought)
    if (brought.kind === "nothing") return undefined
    const result = await check(task)
    if (!result) throw new CallError("its second check was stopped")
    if (!result.passed)
      throw new CallError(`with what was changed in your folder meanwhile, its check does not pass (${result.how})`)
    return undefined
  }

  async bringHome(task: Task, place: Place): Promise<Merge> {
    try {
      return mergeOf(await place.merge(task.id, homeOf(this.#parts, task)))
    } catch (error) {
      return refusedBy(error)
    }
  }
}

export function mergeOf(result: MergeResult): Merge {
  const files = result.kind === "nothing" ? [] : result.files.slice(0, MOST_FILES)
  if (result.kind === "conflict") return { kind: "conflict", files, ...(result.advice && { text: result.advice }) }
  const { kind, submodules = [] } = result
  return { kind, files, ...(submodules.length > 0 && { leftOut: submodules }) }
}

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener("abort", () => resolve(), { once: true })
  })

const refused = (text: string): Merge => ({ kind: "refused", files: [], text })

export const refusedBy = (error: unknown): Merge => refused(messageOf(error))

const nameOf = (place: Task["place"]): string => place?.kind ?? HERE

export function workOf({ files, added, removed, submodules, held, unsaved, notes = [] }: PutAway, merge?: Merge): Work {
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

/** Where the sentences begin that are no longer true once its work is home. */
const OWED = /What it changed was not kept at its end|It is stopped on |What it changed is still on /
const NOT_PUT_AWAY = "What it changed was not kept at its end"
