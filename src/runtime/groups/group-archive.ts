import { CallError, listed } from "../../core/errors.ts"
import { chosenIn } from "../../core/group.ts"
import type { CheckResult } from "../../core/receipt.ts"
import { filesNeededBy } from "../../core/receipts/stands-on.ts"
import type { Merge, Task, Work } from "../../core/task.ts"
import { capital } from "../../lib/text.ts"
import type { Services } from "../parts.ts"
import type { Place, SharedPlaces } from "../places/place.ts"
import type { FinishedWork, Merging, Places } from "../places/places.ts"
import { autoMergeFolder, moveSessionBack, parentFolderOf, refuseFailedCheck } from "../sessions.ts"
import { MOST_FILES, mergeFailure, mergeOf, toWork } from "../tasks/changes.ts"

/** Archives the places of members that begin with the same files, where only the chosen member's work is merged. */
export class GroupArchive {
  readonly #services: Services
  readonly #places: Places

  constructor(services: Services, places: Places) {
    this.#services = services
    this.#places = places
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

  /** Captures the state of `folder`, with which a member begins. */
  capture(member: Pick<Task, "id" | "place">, folder: string): Promise<string | undefined> {
    return this.#places.capture(member, folder)
  }

  /** Adds to the result the changed files that the check depends on. A changed guarded file makes the check fail. */
  async inspected(task: Task, result: CheckResult): Promise<CheckResult> {
    if (!task.place) return result
    const { guard = [] } = task.run
    const { shared } = await this.#places.placeOf(task)
    if (!shared)
      return guard.length === 0 ? result : { ...result, passed: false, how: "`guard` cannot be held in its place" }
    const changed = shared.changedIn(task.id, parentFolderOf(this.#services, task), guard)
    // Without a guard the files are only information: an error is ignored, since a remote place may be out of reach.
    const { files, named } = await (guard.length > 0 ? changed : changed.catch(() => ({ files: [], named: [] })))
    if (named.length > 0) {
      const guarded = named.slice(0, MOST_FILES)
      return { ...result, passed: false, how: `it changed what it may not: ${listed(guarded)}`, guarded }
    }
    const touched = result.passed ? filesNeededBy(result.command, files).slice(0, MOST_FILES) : []
    return { ...result, ...(touched.length > 0 && { touched }) }
  }

  /**
   * Archives all members, and merges the chosen member's work if `merging` is set. `refs`: refs of the others' work, by
   * task. Failures become notes of the outcome.
   */
  async archive(task: Task, merging: Merging | undefined): Promise<FinishedWork & Pick<ArchivedMembers, "refs">> {
    try {
      return await this.#archive(task, merging)
    } catch (error) {
      return { ...this.#places.notArchived(task, error), refs: new Map() }
    }
  }

  /** Makes the chosen member's work the group's and archives the others. A repeated call changes nothing. */
  async keep(task: Task): Promise<ArchivedMembers> {
    const { place, shared } = await this.#sharedIn(task)
    const folder = parentFolderOf(this.#services, task)
    const winner = chosenIn(task.group)
    const members = this.#services.store.membersOf(task).map(({ task: each }) => each)
    const works = new Map<string, Work>()
    let left: unknown
    for (const each of members) {
      try {
        if (!each.outcome?.work) await moveSessionBack(this.#services, each)
        works.set(each.id, each.outcome?.work ?? toWork(await place.archive(each.id, folder)))
      } catch (error) {
        // A remote member is archived later, when its place is in reach. Any other failure is thrown.
        if (each.id === winner || !this.#places.outlives(each)) throw error
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
    const { notes: winnerNotes, held } = works.get(winner) ?? {}
    const work = toWork(await place.archive(task.id, folder))
    // The group has taken over the winner's refs, so the notes must name the group's task.
    const notes = winnerNotes?.map((note) => note.replaceAll(`/${winner} `, `/${task.id} `))
    return { work: { ...work, ...(notes && { notes }), ...(held && { held }) }, refs }
  }

  async #archive(task: Task, merging: Merging | undefined): Promise<FinishedWork & Pick<ArchivedMembers, "refs">> {
    const { work, refs } = await this.keep(task)
    if (!merging || work.files.length === 0) return { found: { work }, refs }
    const { place, shared } = await this.#sharedIn(task)
    return this.#places.inTurn(merging.signal, async () => {
      let result: CheckResult | undefined
      const check = async (of: Task, where?: string) => {
        result = await merging.check(of, where)
        return result
      }
      const unfit = await this.#unfit(task, place, shared, { ...merging, check }).catch(mergeFailure)
      const merge = unfit ?? (await this.#places.mergeBack(task, place))
      return { found: { work: { ...work, merge } }, refs, ...(result && { check: result }) }
    })
  }

  /**
   * Why the group's work is not merged automatically; undefined where it can be merged. Brings the parent's changes
   * into a place with the work and runs the check there.
   */
  async #unfit(task: Task, place: Place, shared: SharedPlaces, { signal, check }: Merging): Promise<Merge | undefined> {
    const folder = autoMergeFolder(this.#services, task, signal)
    if (await shared.isCurrent(task.id, folder)) return undefined
    const timeLimit = task.group?.timeout ?? 0
    const { directory } = await place.enter({ taskID: task.id, folder, timeLimit, again: true, signal })
    try {
      const brought = await place.bringIn(task.id, folder)
      if (brought.kind === "conflict") return mergeOf(brought)
      if (brought.kind === "nothing") return undefined
      refuseFailedCheck(await check(task, place.run ? undefined : directory))
      return undefined
    } finally {
      await place.archive(task.id, folder)
    }
  }

  async #sharedIn(task: Pick<Task, "place" | "group" | "member">): Promise<{ place: Place; shared: SharedPlaces }> {
    const place = await this.#places.placeOf(task)
    if (place.shared) return { place, shared: place.shared }
    const { noun } = this.#services.groupKindOf(task) ?? {}
    throw new CallError(
      `${capital(noun?.many ?? "")} cannot work in a place "${task.place?.kind}": leave \`place\` out.`,
    )
  }
}

/** `work`: the chosen member's work, which now is the group's. `refs`: refs of the others' work, by task. */
export type ArchivedMembers = { readonly work: Work; readonly refs: ReadonlyMap<string, string> }

const NO_WORK: Work = { files: [], moreFiles: 0, added: 0, removed: 0, submodules: [] }

/** Archive name of a member: its number from 1, and the group's run where that is not the first. */
const asideName = ({ member }: Task): string => `${(member?.nth ?? 0) + 1}${member?.run ? `-${member.run}` : ""}`
