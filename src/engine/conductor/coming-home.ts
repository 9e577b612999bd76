import { CallError, listed } from "../../core/errors.ts"
import type { CheckResult } from "../../core/receipt.ts"
import type { Merge, Outcome, Task, Work } from "../../core/task.ts"
import type { Place, SharedPlaces } from "../../place/place.ts"
import { standsOn } from "../../receipt/stands-on.ts"
import type { Parts } from "../parts.ts"
import { MOST_FILES, mergeOf, refusedBy, workOf } from "../tasks/work.ts"
import { goHome, homeAsAsked, homeOf, refuseUnpassed } from "./home.ts"
import type { Left, Merging, Places } from "./places.ts"

/** Where tries work: each begins with what their team began with, and the work of one comes home. */
export class ComingHome {
  readonly #parts: Parts
  readonly #places: Places

  constructor(parts: Parts, places: Places) {
    this.#parts = parts
    this.#places = places
  }

  /** Has a part begin with the very state that its team began with. */
  async share(part: Pick<Task, "id" | "place">, teamID: string): Promise<void> {
    const { shared } = await this.#sharedIn(part)
    await shared.beginAs(part.id, teamID, part.place?.folder ?? "")
  }

  /** Has the part that had won go on with what has become of its work, which is its team's by now. */
  async giveBack(part: Task, teamID: string): Promise<void> {
    const { shared } = await this.#sharedIn(part)
    await shared.goOnAs(part.id, teamID, homeOf(this.#parts, part))
  }

  /** Keeps what an item begins with. */
  capture(part: Pick<Task, "id" | "place">, folder: string): Promise<void> {
    return this.#places.capture(part, folder)
  }

  /** A check's result with what is known of the files that it stands on; it has not passed where a guarded one changed. */
  async inspected(task: Task, result: CheckResult): Promise<CheckResult> {
    if (!task.place) return result
    const { guard = [] } = task.run
    const { shared } = await this.#places.placeOf(task)
    if (!shared)
      return guard.length === 0 ? result : { ...result, passed: false, how: "`guard` cannot be held in its place" }
    const changed = shared.changedIn(task.id, homeOf(this.#parts, task), guard)
    // Where nothing is guarded it is only to be told; a place on another machine may be out of reach.
    const { files, named } = await (guard.length > 0 ? changed : changed.catch(() => ({ files: [], named: [] })))
    if (named.length > 0) {
      const guarded = named.slice(0, MOST_FILES)
      return { ...result, passed: false, how: `it changed what it may not: ${listed(guarded)}`, guarded }
    }
    const touched = result.passed ? standsOn(result.command, files).slice(0, MOST_FILES) : []
    return { ...result, ...(touched.length > 0 && { touched }) }
  }

  /**
   * What follows from the end of tries: the winner's work becomes the team's, and is merged where `merging` is there;
   * that of the others is put aside. `refs`: where, by task.
   */
  async leave(
    task: Task,
    tries: readonly Task[],
    winner: Task | undefined,
    merging: Merging | undefined,
  ): Promise<Left & { readonly refs: ReadonlyMap<string, string> }> {
    const { place, shared } = await this.#sharedIn(task)
    const folder = homeOf(this.#parts, task)
    for (const each of tries) {
      if (each.outcome?.work) continue
      await goHome(this.#parts, each)
      await place.putAway(each.id, folder)
    }
    const aside = tries.flatMap((each) => (each === winner ? [] : [{ taskID: each.id, name: asideName(each) }]))
    const refs = await shared.settle(folder, task.id, winner?.id, aside)
    if (!winner) return { found: { work: NO_WORK }, refs }
    const put = await place.putAway(task.id, folder)
    const { notes, held } = winner.outcome?.work ?? {}
    const found = (merge?: Merge): Partial<Outcome> => ({
      work: { ...workOf(put, merge), ...(notes && { notes }), ...(held && { held }) },
    })
    if (!merging || put.files.length === 0) return { found: found(), refs }
    return this.#places.inTurn(merging.signal, async () => {
      let result: CheckResult | undefined
      const check = async (of: Task, where?: string) => {
        result = await merging.check(of, where)
        return result
      }
      const unfit = await this.#unfit(task, place, shared, { ...merging, check }).catch(refusedBy)
      const merge = unfit ?? (await this.#places.bringHome(task, place))
      return { found: found(merge), refs, ...(result && { check: result }) }
    })
  }

  /** Why it is not merged by itself: what was changed meanwhile is brought into a place with its work, and checked there. */
  async #unfit(task: Task, place: Place, shared: SharedPlaces, { signal, check }: Merging): Promise<Merge | undefined> {
    const folder = homeAsAsked(this.#parts, task, signal)
    if (await shared.isCurrent(task.id, folder)) return undefined
    const timeLimit = task.team?.timeout ?? 0
    const { directory } = await place.enter({ taskID: task.id, folder, timeLimit, again: true, signal })
    try {
      const brought = await place.bringIn(task.id, folder)
      if (brought.kind === "conflict") return mergeOf(brought)
      if (brought.kind === "nothing") return undefined
      refuseUnpassed(await check(task, place.run ? undefined : directory))
      return undefined
    } finally {
      await place.putAway(task.id, folder)
    }
  }

  async #sharedIn(task: Pick<Task, "place">): Promise<{ place: Place; shared: SharedPlaces }> {
    const place = await this.#places.placeOf(task)
    if (place.shared) return { place, shared: place.shared }
    throw new CallError(`Tries cannot work in a place "${task.place?.kind}": leave \`place\` out.`)
  }
}

const NO_WORK: Work = { files: [], moreFiles: 0, added: 0, removed: 0, submodules: [] }

/** The try's number, from 1; of a later run of its team with that. */
const asideName = ({ part }: Task): string => `${(part?.nth ?? 0) + 1}${part?.run ? `-${part.run}` : ""}`
