import { CallError, messageOf } from "../core/errors.ts"
import { chosenIn, type GroupResult, unmergedAmong } from "../core/group.ts"
import { holdsPlace, isActive, isUnmerged, type Merge, type Outcome, slotSessionOf, type Task } from "../core/task.ts"
import { DAY_MS } from "../lib/format.ts"
import { cutOffMergeNote } from "../present/notification.ts"
import { toldText } from "../present/output.ts"
import { cutOffToast } from "../present/toasts.ts"
import type { Engine } from "./engine.ts"
import {
  kindOf,
  mergeOf,
  PlaceError,
  type PlaceKind,
  type SweptLeftover,
  toWork,
  type WorkDiff,
} from "./places/place.ts"
import type { ArchivedMembers } from "./places/places.ts"
import { moveSessionBack, parentFolderOf } from "./sessions.ts"

const MOST_DIFF_LINES = 300
/** Beginnings of sentences in an outcome's note that become false once the work is archived. */
const OWED = /What it changed was not kept at its end|It is stopped on |What it changed is still on /

/** Most attempts to archive work from a remote place that loses contact again. */
const MOST_TRIES = 3

/**
 * Given where the caller waits for a place out of reach, for as long as the place allows. Aborting `signal` ends the
 * wait.
 */
export type Waiting = { readonly signal?: AbortSignal }

/** True for an ended task whose work still lies in its place. */
const isLeft = (task: Task): task is Task & { readonly outcome: Outcome } =>
  !isActive(task) && task.outcome !== undefined && holdsPlace(task)

/** The task without what its note says of work that was not archived. */
function withoutOwed<Of extends Task>(task: Of): Of {
  const { outcome } = task
  return { ...task, outcome: outcome && { ...outcome, note: outcome.note?.split(OWED)[0]?.trim() || undefined } }
}

const isCut = (error: unknown): error is PlaceError => error instanceof PlaceError && error.code === "host"

/** Handles the work of ended tasks: archives it again after a failure, shows, merges, clears and sweeps it. */
export class Archive {
  readonly #engine: Engine

  constructor(engine: Engine) {
    this.#engine = engine
  }

  /** Archives the work that ended tasks left in a place, at the start or when contact with it is back. Never rejects. */
  async settleOwed(name: string): Promise<void> {
    const { store, opencode, recovery } = this.#engine
    const owedNow = () =>
      [...store.entries()].map(({ task }) => task).filter((task) => task.place?.kind === name && holdsPlace(task))
    // The death of the process that owns a task is written nowhere: who is dead is seen when its record is read.
    const others = owedNow().filter(({ id }) => !store.isOwn(id))
    if (others.length > 0) await recovery.discover(Math.min(...others.map(({ run }) => run.endedAt ?? run.createdAt)))
    const owed = owedNow()
    const groupIDs = new Set(
      owed.flatMap(({ member }) => (member && store.get(member.of)?.outcome?.work ? [member.of] : [])),
    )
    for (const { id } of owed) {
      await this.#engine.dispatcher.closed(id)
      const task = store.get(id)
      // Another process may resume a task of its own just now, and its agent would work in what is removed here.
      if (!task || isActive(task) || !store.isOwn(id)) continue
      await this.settle(task)
        .catch((error) => this.#stillLeft(task, error))
        .catch((error) => opencode.log("warn", "work could not be merged", { task: id, error: messageOf(error) }))
    }
    for (const id of groupIDs) await this.#archiveOthers(id)
  }

  /** Says of an ended task why its work still lies in its place. */
  async #stillLeft(task: Task, error: unknown): Promise<void> {
    const { found } = this.#engine.places.notArchived(withoutOwed(task), error)
    const now = this.#engine.store.get(task.id) ?? task
    if (isLeft(now)) await this.#record(now, { ...now.outcome, ...found })
  }

  /** Archives work of members that was still missing when the chosen member's work was merged. */
  async #archiveOthers(groupID: string): Promise<void> {
    const { store, opencode, groupKindOf } = this.#engine
    await this.#engine.dispatcher.closed(groupID)
    const task = store.get(groupID)
    const { group, work } = task?.outcome ?? {}
    const picksOne = task && group && groupKindOf(task)?.picksOne
    if (!picksOne || !task.outcome || !work || isActive(task) || !store.isOwn(groupID)) return
    try {
      const kept = await this.#archive(task)
      await this.#record(task, { ...task.outcome, group: kept.group })
    } catch (error) {
      opencode.log("warn", "the work of members could not be put aside", { task: groupID, error: messageOf(error) })
    }
  }

  /**
   * Archives the work of an ended task where that failed when the task ended. With `waiting`, the call waits for a
   * place out of reach.
   */
  async settle(task: Task, waiting?: Waiting): Promise<Task> {
    const { store } = this.#engine
    if (!isLeft(task)) return task
    if (store.isForeign(task.id))
      throw new CallError(
        `Task ${task.id} ended in another OpenCode process, which still puts its work away. Merge it there, or after the message about its end.`,
      )
    await moveSessionBack(this.#engine, task, this.#engine.places.outlives(task))
    const keep = () => this.#archive(task)
    const kept = await (waiting ? this.#onceReached(task, keep, waiting) : keep())
    // Meanwhile the work may have been archived, or the task resumed.
    const now = store.get(task.id) ?? task
    if (!kept || !isLeft(now)) return now
    return this.#record(now, { ...withoutOwed(now).outcome, ...kept })
  }

  async #archive(task: Task): Promise<Partial<Outcome>> {
    if (!task.group || !this.#engine.groupKindOf(task)?.picksOne) {
      const place = await this.#engine.places.placeOf(task)
      return { work: toWork(await place.archive(task.id, parentFolderOf(this.#engine, task))) }
    }
    const { work, refs } = await this.#engine.places.keepGroup(task)
    const { group } = task.outcome ?? {}
    return { work, ...(group && { group: withRefs(group, refs) }) }
  }

  /**
   * Calls `keep` once the task's place is in reach, and again where the call finds the connection dead. Undefined where
   * the work was archived meanwhile.
   */
  async #onceReached<Value>(task: Task, keep: () => Promise<Value>, { signal }: Waiting): Promise<Value | undefined> {
    const { store } = this.#engine
    const place = await this.#engine.places.placeOf(task)
    const ids = [task, ...store.membersOf(task).map((member) => member.task)].map(({ id }) => id)
    try {
      for (let tries = 1; ; tries++) {
        for (const id of ids) await place.reach?.(id, signal)
        if (!isLeft(store.get(task.id) ?? task)) return undefined
        const kept = await keep().catch((error) => {
          if (tries === MOST_TRIES || !isCut(error)) throw error
        })
        if (kept) return kept
      }
    } catch (error) {
      if (!isCut(error)) throw error
      const { id } = task
      throw new CallError(`Task ${id} was not merged: ${error.message} superagents_task(merge="${id}") merges it then.`)
    }
  }

  /** Merges the archived work of an ended task into its parent's folder. */
  async merge(task: Task): Promise<Task> {
    if (!task.place)
      throw new CallError(
        `Task ${task.id} works in your own folder: there is nothing to merge. Only tasks with a \`place\` of their own are merged.`,
      )
    if (isActive(task)) {
      const told = toldText(task, this.#engine.groupKindOf(task))
      throw new CallError(`Task ${task.id} is still running. ${told} Merge it then.`)
    }
    const merge = await this.#engine.places.mergeBack(task, await this.#engine.places.placeOf(task))
    if (merge.kind === "refused") throw new CallError(`Task ${task.id} was not merged: ${merge.text}`)
    return this.#recordMerge(task, merge)
  }

  /** Records a change of an ended task's work and returns the task. */
  async #record(task: Task, outcome: Outcome): Promise<Task> {
    const { store, journal, clock } = this.#engine
    const event = { type: "closed", generation: task.run.generation, outcome } as const
    const change = store.apply(task.id, event, clock.now())
    if (change) await journal.save(change.after)
    return change?.after ?? task
  }

  /**
   * Returns an ended task's changes with their diff. Undefined where they cannot be read, so that the caller still gets
   * the answer.
   */
  async diffOf(task: Task): Promise<WorkDiff | undefined> {
    try {
      return await this.#show(task, MOST_DIFF_LINES)
    } catch (error) {
      this.#engine.opencode.log("warn", "a task's changes could not be read", { task: task.id, error: String(error) })
      return undefined
    }
  }

  async #show(task: Task, mostLines: number): Promise<WorkDiff | undefined> {
    if (!task.outcome?.work?.files.length) return undefined
    const place = await this.#engine.places.placeOf(task)
    const group = this.#engine.store.get(task.member?.of ?? "")
    // When a group ended, the work of its chosen member became the group's: read the work by the group's id.
    const of = group && chosenIn(group.group) === task.id && !isActive(group) ? group : task
    return place.show(of.id, parentFolderOf(this.#engine, task), mostLines)
  }

  /** All files that an ended task changed; its record holds only the first of many. */
  async filesOf(task: Task): Promise<readonly string[]> {
    const { files = [], moreFiles = 0 } = task.outcome?.work ?? {}
    return moreFiles > 0 ? ((await this.#show(task, 0))?.files ?? files) : files
  }

  /** Drops archived work that is merged or empty. Returns ids of tasks whose work stays. */
  async clear(tasks: readonly Task[]): Promise<readonly string[]> {
    const kept: string[] = []
    for (const { name, folder, group } of this.#groups(tasks)) {
      try {
        const place = await kindOf(this.#engine.places.kinds, name).open(name)
        const ids = group.map(({ id }) => id)
        kept.push(...(await place.clear(folder, ids)))
      } catch (error) {
        this.#engine.opencode.log("warn", "what is kept of tasks could not be cleared", {
          folder,
          error: messageOf(error),
        })
        const isKept = (task: Task) => isUnmerged(task, this.#engine.groupKindOf(task))
        kept.push(...group.filter(isKept).map(({ id }) => id))
      }
    }
    return kept
  }

  /** Groups tasks by place and folder. */
  #groups(tasks: readonly Task[]) {
    const groups = new Map<string, { name: string; folder: string; group: Task[] }>()
    for (const task of tasks) {
      if (!task.place) continue
      const [name, folder] = [task.place.kind, parentFolderOf(this.#engine, task)]
      const { group = [] } = groups.get(`${name} ${folder}`) ?? {}
      groups.set(`${name} ${folder}`, { name, folder, group: [...group, task] })
    }
    return groups.values()
  }

  /**
   * Cleans up places that earlier processes left around a folder, and tells parents of merges that a crash cut off.
   * Never rejects.
   */
  async sweep(folder: string): Promise<void> {
    const { store, background } = this.#engine
    for (const kind of this.#engine.places.kinds.filter((each) => each.mayHaveLeft()))
      for (const name of kind.names) {
        await this.#sweepOne(kind, name, folder)
        // Not awaited: a task may still be closing.
        if (!kind.outlives) background.run("archive what was left", () => this.settleOwed(name))
      }
    for (const { task } of store.entries()) if (unreportedIn(task) && !store.isForeign(task.id)) this.#report(task)
  }

  async #sweepOne(kind: PlaceKind, name: string, folder: string): Promise<void> {
    const { opencode, store, clock } = this.#engine
    try {
      const place = await kind.open(name)
      const isBusy = (taskID: string) => {
        const task = store.get(taskID)
        return task !== undefined && isActive(task)
      }
      await this.#found(await place.sweep(folder, isBusy))
      const { keepDays = 0, dropUnmerged = false } = kind.retention ?? {}
      if (keepDays === 0) return
      const isKnown = (taskID: string) => store.get(taskID) !== undefined
      const dropped = await place.expire(folder, clock.now() - keepDays * DAY_MS, dropUnmerged, isKnown)
      if (dropped.length > 0) opencode.log("info", "old work was dropped", { tasks: dropped.join(", ") })
    } catch (error) {
      opencode.log("warn", "places could not be looked after", { folder, error: messageOf(error) })
    }
  }

  /** Records what became of merges that a crash interrupted, and tells parents of those that conflict. Never rejects. */
  async finished(leftovers: readonly SweptLeftover[]): Promise<void> {
    await this.#found(leftovers)
    for (const { taskID } of leftovers) {
      const task = this.#engine.store.get(taskID)
      if (task && unreportedIn(task)) this.#report(task)
    }
  }

  async #found(leftovers: readonly SweptLeftover[]): Promise<void> {
    for (const { taskID, what, merge } of leftovers) {
      const task = this.#engine.store.get(taskID)
      if (merge?.kind === "nothing" && !(task && isUnmerged(task, this.#engine.groupKindOf(task)))) continue
      this.#engine.opencode.log("warn", `after a restart: ${what}`, { task: taskID })
      if (merge) await this.#cutOff(taskID, mergeOf(merge))
    }
  }

  /** Records the result of a merge that a crash interrupted. Shows a toast if it conflicts with the parent's folder. */
  async #cutOff(taskID: string, merge: Merge): Promise<void> {
    const { store, toaster } = this.#engine
    const task = store.get(taskID)
    // If the task's end is not closed yet, closing it will merge the work and tell the parent.
    if (!task || isActive(task) || !task.outcome?.work || store.isForeign(taskID)) return
    const isConflict = merge.kind === "conflict"
    const now = await this.#recordMerge(task, isConflict ? { ...merge, unreported: true } : merge)
    if (isConflict) toaster.add(cutOffToast(now, merge.files))
  }

  /** Tells the parent of a merge that a crash cut off. The record says so until then, because the wait may be long. */
  #report(task: Task): void {
    const { store, background, options } = this.#engine
    const current = () => store.get(task.id) ?? task
    const compose = () => {
      const merge = unreportedIn(current())
      return merge && cutOffMergeNote(current(), merge, options)
    }
    this.#engine.outbox.note(slotSessionOf(task), compose, (isSent) => {
      const merge = unreportedIn(current())
      if (!isSent || !merge) return
      const { unreported: _unreported, ...reported } = merge
      background.run("record a report", () => this.#recordMerge(current(), reported))
    })
  }

  async #recordMerge(task: Task, merge: Merge): Promise<Task> {
    const { outcome } = task
    if (!outcome?.work) return task
    const now = await this.#record(task, { ...outcome, work: { ...outcome.work, merge } })
    if (isUnmerged(task) && !isUnmerged(now)) await this.#countUnmerged(this.#engine.store.get(task.member?.of ?? ""))
    return now
  }

  /** Records how many members of an ended group are still unmerged, after one of them was merged. */
  async #countUnmerged(group: Task | undefined): Promise<void> {
    const { outcome } = group ?? {}
    if (!group || !outcome?.group?.unmerged || isActive(group)) return
    const { unmerged, ...result } = outcome.group
    const members = this.#engine.store.membersOf(group).map(({ task }) => task)
    // After a restart, not all members are in the store.
    const left = Math.max(unmerged - 1, unmergedAmong(members))
    await this.#record(group, { ...outcome, group: { ...result, ...(left > 0 && { unmerged: left }) } })
  }
}

/** Result of a merge that a crash cut off, where the parent does not know of it. */
const unreportedIn = ({ outcome }: Task): Merge | undefined =>
  outcome?.work?.merge?.unreported ? outcome.work.merge : undefined

const withRefs = (group: GroupResult, refs: ArchivedMembers["refs"]): GroupResult => {
  const rows = group.rows?.map((row) => {
    const ref = refs.get(row.task ?? "")
    return ref ? { ...row, ref } : row
  })
  return rows ? { ...group, rows } : group
}
