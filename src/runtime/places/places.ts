import { CallError, listed, messageOf } from "../../core/errors.ts"
import type { ChangedFiles } from "../../core/feature.ts"
import { chosenIn } from "../../core/group.ts"
import type { CheckResult } from "../../core/receipt.ts"
import { holdsPlace, type Merge, type Outcome, type Task, type Work } from "../../core/task.ts"
import { SerialQueue } from "../../lib/promises.ts"
import { capital } from "../../lib/text.ts"
import type { Services } from "../services.ts"
import { autoMergeFolder, moveSessionBack, moveSessionToPlace, parentFolderOf, refuseFailedCheck } from "../sessions.ts"
import {
  HERE,
  isFar,
  kindOf,
  mergeFailure,
  mergeOf,
  type Place,
  PlaceError,
  type PlaceKind,
  type PlaceRunLimits,
  refusedMerge,
  type SharedPlaces,
  toWork,
} from "./place.ts"
import type { CommandResult } from "./process.ts"

/** Automatic merge of a completed task's work. The work is checked again before the merge, and `signal` stops both. */
export type Merging = {
  readonly signal: AbortSignal
  /** Runs the check in `folder`, or in the session's folder. Returns undefined where the check was stopped. */
  readonly check: (task: Task, folder?: string) => Promise<CheckResult | undefined>
}

/** Work of an ended run, and the check before its merge. */
export type FinishedWork = { readonly found: Partial<Outcome>; readonly check?: CheckResult }

/** `work`: the chosen member's work, which now is the group's. `refs`: refs of the others' work, by task. */
export type ArchivedMembers = { readonly work: Work; readonly refs: ReadonlyMap<string, string> }

/**
 * Prepares and archives places of any kind. A task's session moves to its place before the agent is prompted, and moves
 * back before the place is archived. Members that begin with the same files share the group's place.
 */
export class Places {
  readonly #services: Services
  readonly kinds: readonly PlaceKind[]
  /** Resolves when a task's last end is closed. */
  readonly #closed: (taskID: string) => Promise<void>
  readonly #mergeQueue = new SerialQueue()

  constructor(services: Services, kinds: readonly PlaceKind[], closed: (taskID: string) => Promise<void>) {
    this.#services = services
    this.kinds = kinds
    this.#closed = closed
  }

  /**
   * Saves the parent's state for the task. Returns what the place will lack. Throws a `CallError` where the state
   * cannot be saved.
   */
  async capture(task: Pick<Task, "id" | "place">, folder: string): Promise<string | undefined> {
    const place = await this.placeOf(task)
    return place.capture(task.id, folder)
  }

  /** Sentences on dependencies that the task's place lacks, so that its check may fail. */
  async lackedBy(task: Task): Promise<string | undefined> {
    const place = await this.placeOf(task)
    return place.lacks?.(task.id, parentFolderOf(this.#services, task))
  }

  /** Function that runs a command in the task's remote place; undefined for a local place. */
  async runner(task: Task): Promise<((command: string, limits: PlaceRunLimits) => Promise<CommandResult>) | undefined> {
    const place = await this.placeOf(task)
    return place.run && ((command, limits) => place.run?.(task.id, command, limits) as Promise<CommandResult>)
  }

  /** The task's work continues when this process ends. */
  outlives({ place }: Task): boolean {
    return isFar(this.kinds, place?.kind)
  }

  /** Whether the task's work is still on another machine. */
  isAway(task: Task): boolean {
    return this.outlives(task) && holdsPlace(task)
  }

  /** Supervises a remote task again that an earlier process started. */
  rejoin({ id, place }: Task): void {
    if (place) kindOf(this.kinds, place.kind).rejoin?.(place.kind, id)
  }

  /** Undefined for a place that this process does not know. */
  kindNamed(name: string): PlaceKind | undefined {
    return this.kinds.find(({ names }) => names.includes(name))
  }

  /** Returns the task's place. The code of a kind is loaded only when a task uses it. */
  placeOf({ place }: Pick<Task, "place">): Promise<Place> {
    const name = place?.kind ?? HERE
    return kindOf(this.kinds, name).open(name)
  }

  /** Rejects where a resumed run could not enter its place now: it would fail, and its task lose its earlier end. */
  async mayEnterAgain(task: Task): Promise<void> {
    const { id: taskID, place, group } = task
    if (!place || (group && chosenIn(group) === undefined)) return
    const folder = parentFolderOf(this.#services, task)
    const opened = await this.placeOf(task)
    await opened.mayEnterAgain?.({ taskID, folder, bringIn: folder === place.folder })
  }

  /**
   * Prepares the place, moves the session there and returns the prompt text about the place. Rejects on failure, or if
   * the run ended meanwhile. `left`: the run continues with the files that a restart left in the place.
   */
  async enter(task: Task, signal: AbortSignal, left = false): Promise<string> {
    const { sessionID, run } = task
    const { opencode } = this.#services
    const folder = parentFolderOf(this.#services, task)
    const place = await this.placeOf(task)
    const again = left || run.generation > 0
    if (left) await place.archive(task.id, folder)
    // The place must contain the changes of the tasks that this run has waited for.
    if (!again && run.after) await place.capture(task.id, folder)
    // The parent's state is merged in only if the parent is still in the folder that the work is based on.
    const bringIn = again && !left && folder === task.place?.folder
    const request = { taskID: task.id, folder, timeLimit: run.timeout, again, bringIn, signal }
    const { directory, preface } = await place.enter(request)
    if (signal.aborted) throw new CallError("It was stopped before its place was ready.")
    if (opencode.folderOf(sessionID) !== directory)
      await moveSessionToPlace(this.#services, sessionID, directory, signal)
    return preface
  }

  /**
   * Archives the place of an ended run, once the task's children are closed, and moves the sessions back. With
   * `merging`, the work is merged, too.
   */
  async archive(task: Task, merging: Merging | undefined): Promise<FinishedWork> {
    try {
      return await this.#archive(task, merging)
    } catch (error) {
      return this.notArchived(task, error)
    }
  }

  /** Result of a run whose place could not be archived: a note that says so. */
  notArchived(task: Task, error: unknown): FinishedWork {
    const { id, outcome } = task
    this.#services.opencode.log("warn", "a place could not be put away", { task: id, error: String(error) })
    return { found: { note: [outcome?.note, this.#notArchivedText(task, error)].filter(Boolean).join(" ") } }
  }

  #notArchivedText(task: Task, error: unknown): string {
    const { id, place, status, group, member } = task
    const name = place?.kind ?? HERE
    const why = messageOf(error)
    if (isFar(this.kinds, name) && !(error instanceof PlaceError && error.code === "host"))
      return `What it changed is still on ${name}, and could not be fetched; superagents_task(merge="${id}") tries that again. Why: ${why}`
    const { picksOne } = this.#services.groupKindOf(task) ?? {}
    const isUnchosen = picksOne && (member !== undefined || chosenIn(group) === undefined)
    const merge = isUnchosen ? "" : `; superagents_task(merge="${id}") then brings it into your files`
    if (isFar(this.kinds, name))
      return `${status === "cancelled" ? `It is stopped on ${name} as soon as ${name} answers. ` : ""}What it changed is still on ${name}, and is fetched when ${name} answers${merge}.`
    const where = kindOf(this.kinds, name).remains(name)
    return `${NOT_ARCHIVED}, and is still in ${where}; superagents_task(merge="${id}") or the next start of OpenCode tries that again. Why: ${why}`
  }

  async #archive(task: Task, merging: Merging | undefined): Promise<FinishedWork> {
    const below = this.#services.store.below(task)
    for (const { id } of below) await this.#closed(id)
    const place = await this.placeOf(task)
    const archive = async () => {
      for (const each of [task, ...below]) await moveSessionBack(this.#services, each)
      return place.archive(task.id, parentFolderOf(this.#services, task))
    }
    if (!merging) return { found: { work: toWork(await archive()) } }
    return this.#inTurn(merging, async (recorded) => {
      const found = await this.#unfit(task, place, recorded).catch(mergeFailure)
      const archived = await archive()
      // What OpenCode had begun to merge before it was stopped had passed its check.
      const unfit = found && (await this.#isMergeBegun(task, place)) ? undefined : found
      const unseen = task.run.check === undefined || !archived.unseen ? undefined : refusedMerge(archived.unseen)
      const merge = archived.files.length > 0 ? (unfit ?? unseen ?? (await this.mergeBack(task, place))) : undefined
      return toWork(archived, merge)
    })
  }

  /**
   * Runs merges one after the other, so that each is checked together with what the earlier ones merged. A stopped
   * merge does not wait.
   */
  #inTurn(merging: Merging, merge: (recorded: Merging) => Promise<Work>): Promise<FinishedWork> {
    let result: CheckResult | undefined
    const check: Merging["check"] = async (task, folder) => {
      result = await merging.check(task, folder)
      return result
    }
    const take = async () => {
      const work = await merge({ ...merging, check })
      return { found: { work }, ...(result && { check: result }) }
    }
    return this.#mergeQueue.take(take, "", (before) => Promise.race([before, aborted(merging.signal)]))
  }

  /**
   * Returns the conflict if the work does not fit the parent's current state; undefined if it may be merged. Throws
   * where the parent's folder is gone, or the check fails together with the parent's current state.
   */
  async #unfit(task: Task, place: Place, { signal, check }: Merging): Promise<Merge | undefined> {
    const folder = autoMergeFolder(this.#services, task, signal)
    if (task.run.check === undefined) return undefined
    // The session is back in the parent's folder: the place was archived after a crash, and nothing can be checked
    // there. A session that represents a remote session never leaves this folder, so remote places are excepted.
    if (!this.outlives(task) && this.#services.opencode.folderOf(task.sessionID) === folder)
      throw new CallError("OpenCode stopped before it was checked with what was changed in your folder meanwhile")
    return this.#unfitIn(place, task, folder, () => check(task))
  }

  /** Brings the parent's changes into a place with the task's work, and checks both together. */
  async #unfitIn(place: Place, { id }: Task, folder: string, check: () => ReturnType<Merging["check"]>) {
    const brought = await place.bringIn(id, folder)
    // The work might merge into the parent's files all the same, but it could not be checked in its place.
    if (brought.kind === "conflict") return mergeOf(brought)
    if (brought.kind !== "nothing") refuseFailedCheck(await check())
    return undefined
  }

  async mergeBack(task: Task, place: Place): Promise<Merge> {
    try {
      return mergeOf(await place.merge(task.id, parentFolderOf(this.#services, task)))
    } catch (error) {
      return mergeFailure(error)
    }
  }

  /** Gives a member the state that its group began with. */
  async share(member: Pick<Task, "id" | "place" | "group" | "member">, groupID: string): Promise<void> {
    const { shared } = await this.#sharedIn(member)
    await shared.copyStart(member.id, groupID, member.place?.folder ?? "")
  }

  /** Gives the former winner the group's current work to continue with. */
  async giveBack(member: Task, groupID: string): Promise<void> {
    const { shared } = await this.#sharedIn(member)
    await shared.copyWork(member.id, groupID, parentFolderOf(this.#services, member))
  }

  /** See `Submission`. An error counts only with globs: a remote place may be out of reach. */
  async changedIn(task: Task, globs: readonly string[]): Promise<ChangedFiles | undefined> {
    const { shared } = await this.placeOf(task)
    const changed = shared?.changedIn(task.id, parentFolderOf(this.#services, task), globs)
    return globs.length > 0 ? changed : changed?.catch(() => undefined)
  }

  /**
   * Archives all members, and merges the chosen member's work if `merging` is set. `refs`: refs of the others' work, by
   * task. Failures become notes of the outcome.
   */
  async archiveGroup(task: Task, merging: Merging | undefined): Promise<FinishedWork & Pick<ArchivedMembers, "refs">> {
    try {
      return await this.#archiveGroup(task, merging)
    } catch (error) {
      return { ...this.notArchived(task, error), refs: new Map() }
    }
  }

  /** Makes the chosen member's work the group's and archives the others. A repeated call changes nothing. */
  async keepGroup(task: Task): Promise<ArchivedMembers> {
    const { place, shared } = await this.#sharedIn(task)
    const folder = parentFolderOf(this.#services, task)
    const winner = chosenIn(task.group)
    const members = this.#services.store.membersOf(task).map(({ task: each }) => each)
    const works = new Map<string, Work>()
    let left: unknown
    for (const each of members) {
      try {
        if (!each.outcome?.work) await moveSessionBack(this.#services, each, this.outlives(each))
        works.set(each.id, each.outcome?.work ?? toWork(await place.archive(each.id, folder)))
      } catch (error) {
        // A remote member is archived later, when its place is in reach. Any other failure is thrown.
        if (each.id === winner || !this.outlives(each)) throw error
        left ??= error
        this.#services.opencode.log("warn", "a member's place could not be put away", {
          task: each.id,
          error: String(error),
        })
      }
    }
    // Without a winner nothing else reports the work that could not be archived.
    if (left !== undefined && winner === undefined) throw left
    const isAside = ({ id }: Task) => id !== winner && works.has(id)
    const aside = members.filter(isAside).map((each) => ({ taskID: each.id, name: asideName(each) }))
    const refs = await shared.settle(folder, task.id, winner, aside)
    if (winner === undefined) return { work: NO_WORK, refs }
    const { notes: winnerNotes, held: winnerHeld } = works.get(winner) ?? {}
    const work = toWork(await place.archive(task.id, folder))
    const held = [winnerHeld, work.held].filter((each) => each !== undefined)
    // The group has taken over the winner's refs, so the notes must name the group's task.
    const notes = winnerNotes?.map((note) => note.replaceAll(`/${winner} `, `/${task.id} `))
    const all = { folder: listed(held.map((each) => each.folder)), because: held.flatMap(({ because }) => because) }
    return { work: { ...work, ...(notes && { notes }), ...(held.length > 0 && { held: all }) }, refs }
  }

  async #archiveGroup(task: Task, merging: Merging | undefined): Promise<FinishedWork & Pick<ArchivedMembers, "refs">> {
    const { work, refs } = await this.keepGroup(task)
    if (!merging || work.files.length === 0) return { found: { work }, refs }
    const { place, shared } = await this.#sharedIn(task)
    const finished = await this.#inTurn(merging, async (recorded) => {
      if (await this.#isMergeBegun(task, place)) return { ...work, merge: await this.mergeBack(task, place) }
      const checked = await this.#checkGroup(task, place, shared, recorded).catch((error) => ({
        merge: mergeFailure(error),
      }))
      return { ...work, merge: checked.merge ?? (await this.mergeBack(task, place)), ...checked }
    })
    return { ...finished, refs }
  }

  async #isMergeBegun(task: Task, place: Place): Promise<boolean | undefined> {
    return place.isMergeBegun?.(task.id, parentFolderOf(this.#services, task)).catch(() => false)
  }

  /** Like `#unfit`, for a group's work, which has no place any more. */
  async #checkGroup(
    task: Task,
    place: Place,
    shared: SharedPlaces,
    { signal, check }: Merging,
  ): Promise<Pick<Work, "held" | "merge">> {
    const folder = autoMergeFolder(this.#services, task, signal)
    if (await shared.isCurrent(task.id, folder)) return {}
    const timeLimit = task.group?.timeout ?? 0
    const merge = await place
      .enter({ taskID: task.id, folder, timeLimit, again: true, signal })
      .then(({ directory }) => this.#unfitIn(place, task, folder, () => check(task, place.run ? undefined : directory)))
      .catch(mergeFailure)
    // The folder of the check may stay, and is named as well.
    const { held } = (await this.keepGroup(task)).work
    return { ...(held && { held }), ...(merge && { merge }) }
  }

  async #sharedIn(task: Pick<Task, "place" | "group" | "member">): Promise<{ place: Place; shared: SharedPlaces }> {
    const place = await this.placeOf(task)
    if (place.shared) return { place, shared: place.shared }
    const { noun } = this.#services.groupKindOf(task) ?? {}
    throw new CallError(
      `${capital(noun?.many ?? "")} cannot work in a place "${task.place?.kind}": leave \`place\` out.`,
    )
  }
}

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener("abort", () => resolve(), { once: true })
  })

const NOT_ARCHIVED = "What it changed was not kept at its end"

const NO_WORK: Work = { files: [], moreFiles: 0, added: 0, removed: 0, submodules: [] }

/** Archive name of a member: its number from 1, and the group's run where that is not the first. */
const asideName = ({ member }: Task): string => `${(member?.nth ?? 0) + 1}${member?.run ? `-${member.run}` : ""}`
