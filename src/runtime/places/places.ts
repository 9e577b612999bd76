import { CallError, messageOf } from "../../core/errors.ts"
import type { CheckResult } from "../../core/receipt.ts"
import type { Merge, Outcome, Task } from "../../core/task.ts"
import { Turn } from "../../lib/turn.ts"
import { goHome, goThere, homeAsAsked, homeOf, refuseUnpassed } from "../merge-target.ts"
import type { Parts } from "../parts.ts"
import { mergeOf, refused, refusedBy, workOf } from "../tasks/changes.ts"
import { HERE } from "./here.ts"
import { kindOf } from "./kinds.ts"
import { type Place, PlaceError, type PlaceKind, type RunLimits } from "./place.ts"
import type { CommandResult } from "./run-command.ts"

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
  readonly kinds: readonly PlaceKind[]
  /** Resolves when a task's last end has been closed. */
  readonly #closed: (taskID: string) => Promise<void>
  readonly #merging = new Turn()

  constructor(parts: Parts, kinds: readonly PlaceKind[], closed: (taskID: string) => Promise<void>) {
    this.#parts = parts
    this.kinds = kinds
    this.#closed = closed
  }

  /**
   * Keeps what the parent sees now as what the task begins with. Throws a `CallError` where that cannot be. Returns what
   * its place will lack, for the parent.
   */
  async capture(task: Pick<Task, "id" | "place">, folder: string): Promise<string | undefined> {
    const place = await this.placeOf(task)
    return place.capture(task.id, folder)
  }

  /** What a task's place lacks, so that its check may fail for that alone. */
  async lackedBy(task: Task): Promise<string | undefined> {
    const place = await this.placeOf(task)
    return place.lacks?.(task.id, homeOf(this.#parts, task))
  }

  /** Runs a command in a task's place; undefined where that is on this machine. */
  async runner(task: Task): Promise<((command: string, limits: RunLimits) => Promise<CommandResult>) | undefined> {
    const place = await this.placeOf(task)
    return place.run && ((command, limits) => place.run?.(task.id, command, limits) as Promise<CommandResult>)
  }

  /** True where what a task does goes on when this process ends. */
  outlives({ place }: Task): boolean {
    return place !== undefined && kindOf(this.kinds, place.kind).outlives === true
  }

  /** A task of an earlier process goes on in its place: that is looked after from now on. */
  rejoin({ id, place }: Task): void {
    if (place) kindOf(this.kinds, place.kind).rejoin?.(place.kind, id)
  }

  /** True while a task's place tells when something happens in it. */
  hears({ place }: Task): boolean {
    return place !== undefined && this.#kindNamed(place.kind)?.hears?.(place.kind) === true
  }

  /** How many tasks may be in a place at once; 0 for any number. */
  mostIn(name: string): number {
    return this.#kindNamed(name)?.most?.(name) ?? 0
  }

  #kindNamed(name: string): PlaceKind | undefined {
    return this.kinds.find(({ names }) => names.includes(name))
  }

  /** Not loaded where no task has one of its kind. */
  placeOf({ place }: Pick<Task, "place">): Promise<Place> {
    const name = place?.kind ?? HERE
    return kindOf(this.kinds, name).open(name)
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
    if (host.folderOf(sessionID) !== directory) await goThere(this.#parts, sessionID, directory, signal)
    return told
  }

  /**
   * What follows a run's end: its session comes home, its work is kept, and merged where `merging` is there. The tasks
   * that it launched are closed before, and come along from its folder.
   */
  async leave(task: Task, merging: Merging | undefined): Promise<Left> {
    try {
      return await this.#leave(task, merging)
    } catch (error) {
      return this.notKept(task, error)
    }
  }

  /** What is told where a place could not be put away. */
  notKept(task: Task, error: unknown): Left {
    const { id, outcome } = task
    this.#parts.host.log("warn", "a place could not be put away", { task: id, error: String(error) })
    return { found: { note: [outcome?.note, this.#notPutAway(task, error)].filter(Boolean).join(" ") } }
  }

  #notPutAway({ id, place, status }: Task, error: unknown): string {
    const name = place?.kind ?? HERE
    const why = messageOf(error)
    if (kindOf(this.kinds, name).outlives && !(error instanceof PlaceError && error.code === "host"))
      return `What it changed is still on ${name}, and could not be fetched; superagents_task(merge="${id}") tries that again. Why: ${why}`
    if (kindOf(this.kinds, name).outlives)
      return `${status === "cancelled" ? `It is stopped on ${name} as soon as ${name} answers. ` : ""}What it changed is still on ${name}, and is fetched when ${name} answers.`
    const where = kindOf(this.kinds, name).remains(name)
    return `${NOT_PUT_AWAY}, and is still in ${where}; superagents_task(merge="${id}") or the next start of OpenCode tries that again. Why: ${why}`
  }

  async #leave(task: Task, merging: Merging | undefined): Promise<Left> {
    const below = this.#parts.store.below(task)
    for (const { id } of below) await this.#closed(id)
    const place = await this.placeOf(task)
    const putAway = async () => {
      for (const each of [task, ...below]) await goHome(this.#parts, each)
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
    return this.#merging.take(work, "", (before) => Promise.race([before, aborted(signal)]))
  }

  /**
   * Why a completed task's work is not merged by itself, as what came of the merge: the parent's present state does not
   * go together with it in its place, where it would be checked. Throws where the folder of its parent for which it was
   * asked is gone, or its check does not pass with what was merged since.
   */
  async #unfit(task: Task, place: Place, { signal, check }: Merging): Promise<Merge | undefined> {
    const folder = homeAsAsked(this.#parts, task, signal)
    if (task.run.check === undefined) return undefined
    // Brought home after a crash: in its place nothing can be checked any more. A session that stands for one on another
    // machine never leaves this folder.
    if (!this.outlives(task) && this.#parts.host.folderOf(task.sessionID) === folder)
      throw new CallError("OpenCode stopped before it was checked with what was changed in your folder meanwhile")
    const brought = await place.bringIn(task.id, folder)
    // In the parent's files it may go together: but nobody could have checked it so.
    if (brought.kind === "conflict") return mergeOf(brought)
    if (brought.kind === "nothing") return undefined
    refuseUnpassed(await check(task))
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

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener("abort", () => resolve(), { once: true })
  })

const NOT_PUT_AWAY = "What it changed was not kept at its end"
