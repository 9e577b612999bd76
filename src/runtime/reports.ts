import { CallError } from "../core/errors.ts"
import { whenOf } from "../core/pause.ts"
import { type Ask, isActive, type Task } from "../core/task.ts"
import type { Member } from "../core/tries.ts"
import type { Answers } from "./answers.ts"
import type { Archive } from "./archive.ts"
import type { Dispatcher } from "./dispatcher.ts"
import { membersOf } from "./groups/members-of.ts"
import type { Opening } from "./opening.ts"
import type { Parts } from "./parts.ts"
import type { Shown } from "./places/place.ts"
import { findNamedBatch } from "./tasks/lookup.ts"
import { type TaskView, viewOf } from "./tasks/view.ts"

/** The answer of an ended task, or none while it runs. `gone`: its session is, and the answer with it. */
export type Report = {
  readonly view: TaskView
  readonly answer?: string
  readonly gone?: boolean
  readonly firstLook: boolean
  /** The statuses that may be resumed. */
  readonly resumable?: readonly string[]
  /** Of one that still runs: for how long the call has waited for its end in vain, in ms. */
  readonly waited?: number
  /** What it changed in a place of its own. */
  readonly shown?: Shown
  /** Of a group: those that are known. */
  readonly members?: readonly Member[]
}

type ReportingPorts = {
  readonly dispatcher: Dispatcher
  readonly answers: Answers
  readonly kept: Archive
  readonly opening: Opening
  readonly holdsBack: (task: Task) => string | undefined
}

/** What a session is told of a task that it asks for. */
export class Reporting {
  readonly #parts: Parts
  readonly #ports: ReportingPorts

  constructor(parts: Parts, ports: ReportingPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /**
   * A task of the session, or a part of one, as it is, with its answer if it has ended. `block`: wait up to so many ms
   * for the end. The first look at an ended task stamps it as retrieved.
   */
  async report(reference: string, sessionID: string, block: number, signal?: AbortSignal): Promise<Report> {
    const { store, clock, journal } = this.#parts
    const found = await this.#ports.opening.find(reference, store.ofParent(sessionID))
    const { stand, at } = this.#view(found)
    // One that stands still for longer than the call waits will not end before that.
    const goesOnIn = (stand && whenOf(stand, at)?.in) ?? 0
    const waits = block > 0 && goesOnIn <= block
    if (waits) await this.#wait(found, block, signal)
    // Of a member that an earlier process has led nothing but its record is known.
    const seen = store.get(found.id) ?? (found.part ? found : undefined)
    if (!seen) throw new CallError(`Task ${found.id} was cleared meanwhile.`)
    // The host stores what an aborted answer had so far when the abort is done.
    await this.#ports.dispatcher.quiet(found.id)
    const task = store.get(found.id) ?? seen
    if (isActive(task))
      return {
        view: this.#view(task),
        firstLook: false,
        resumable: this.#parts.options.resumable,
        members: membersOf(store, task),
        ...(waits && { waited: block }),
      }
    const { text: answer, gone } = await this.#ports.answers.of(task)
    const now = clock.now()
    const change = store.apply(task.id, { type: "retrieved", at: now }, now)
    if (change) journal.saveLater(change.after)
    const shown = await this.#ports.kept.shown(task)
    const { resumable } = this.#parts.options
    return {
      view: this.#view(change?.after ?? task),
      answer,
      gone,
      firstLook: change !== undefined,
      resumable,
      shown,
      members: membersOf(store, task),
    }
  }

  /** The same of all tasks of a batch, by its name. */
  async reports(reference: string, sessionID: string, block: number, signal?: AbortSignal): Promise<readonly Report[]> {
    const batch = findNamedBatch(reference, this.#parts.store.ofParent(sessionID))
    const names = batch.length > 0 ? batch.map(({ id }) => id) : [reference]
    return Promise.all(names.map((name) => this.report(name, sessionID, block, signal)))
  }

  /**
   * Resolves when the task's run has ended, `ms` have passed or `signal` fires. Until then the end will not wake the
   * parent: the waiting call hands the answer over itself.
   */
  #wait(task: Task, ms: number, signal?: AbortSignal): Promise<void> {
    const entry = this.#parts.store.handle(task.id)
    if (!entry || !isActive(task) || signal?.aborted) return Promise.resolve()
    return new Promise<void>((resolve) => {
      const finish = () => {
        entry.waiters.delete(finish)
        cancelTimer()
        signal?.removeEventListener("abort", finish)
        resolve()
      }
      const cancelTimer = this.#parts.clock.after(ms, finish)
      signal?.addEventListener("abort", finish)
      entry.waiters.add(finish)
    })
  }

  #view(task: Task): TaskView {
    const { store, clock, attendance } = this.#parts
    const until = (ask: Ask) => attendance.refusedAt(ask)
    return viewOf(store.get(task.id) ?? task, store, clock.now(), this.#ports.holdsBack, until)
  }
}
