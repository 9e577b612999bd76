import { CallError } from "../core/errors.ts"
import type { MemberState } from "../core/members.ts"
import { type PauseView, whenOf } from "../core/pause.ts"
import { type Ask, isActive, type Task } from "../core/task.ts"
import type { Answers } from "./answers.ts"
import type { Archive } from "./archive.ts"
import type { Dispatcher } from "./dispatcher.ts"
import { membersOf } from "./groups/members-of.ts"
import type { TaskFinder } from "./opening.ts"
import type { Parts } from "./parts.ts"
import type { WorkDiff } from "./places/place.ts"
import { findNamedBatch } from "./tasks/lookup.ts"
import { type TaskView, viewOf } from "./tasks/view.ts"

/** Answer of an ended task; none while it runs. `gone`: its session was deleted. */
export type Report = {
  readonly view: TaskView
  readonly answer?: string
  readonly gone?: boolean
  readonly firstLook: boolean
  /** Statuses that may be resumed. */
  readonly resumable?: readonly string[]
  /** Time that the call waited in vain for a running task, in ms. */
  readonly waited?: number
  /** Changes in its own place. */
  readonly shown?: WorkDiff
  /** Known members of a group. */
  readonly members?: readonly MemberState[]
}

type ReportingPorts = {
  readonly dispatcher: Dispatcher
  readonly answers: Answers
  readonly archive: Archive
  readonly opening: TaskFinder
  readonly limitOf: (task: Task) => PauseView | undefined
}

/** Reports of tasks to the sessions that ask for them. */
export class Reporting {
  readonly #parts: Parts
  readonly #ports: ReportingPorts

  constructor(parts: Parts, ports: ReportingPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /**
   * A task or member with its answer if it has ended. `block`: longest wait for the end, in ms; the first read of an
   * ended task marks it as retrieved.
   */
  async report(reference: string, sessionID: string, block: number, signal?: AbortSignal): Promise<Report> {
    const { store, clock, journal } = this.#parts
    const found = await this.#ports.opening.find(reference, store.ofParent(sessionID))
    const { pause, at } = this.#view(found)
    // A task paused for longer than the wait will not end during it.
    const goesOnIn = (pause && whenOf(pause, at)?.in) ?? 0
    const waits = block > 0 && goesOnIn <= block
    if (waits) await this.#wait(found, block, signal)
    // Members of earlier processes have only a record.
    const seen = store.get(found.id) ?? (found.member ? found : undefined)
    if (!seen) throw new CallError(`Task ${found.id} was cleared meanwhile.`)
    // OpenCode stores the rest of an aborted answer when the abort is done.
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
    const shown = await this.#ports.archive.shown(task)
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

  /** Reports of a task, or of all tasks of a batch. */
  async reports(reference: string, sessionID: string, block: number, signal?: AbortSignal): Promise<readonly Report[]> {
    const batch = findNamedBatch(reference, this.#parts.store.ofParent(sessionID))
    const names = batch.length > 0 ? batch.map(({ id }) => id) : [reference]
    return Promise.all(names.map((name) => this.report(name, sessionID, block, signal)))
  }

  /**
   * Resolves when the run has ended, after `ms`, or on `signal`. Meanwhile the end does not wake the parent, because
   * the waiting call returns the answer.
   */
  #wait(task: Task, ms: number, signal?: AbortSignal): Promise<void> {
    const handle = this.#parts.store.handle(task.id)
    if (!handle || !isActive(task) || signal?.aborted) return Promise.resolve()
    return new Promise<void>((resolve) => {
      const finish = () => {
        handle.waiters.delete(finish)
        cancelTimer()
        signal?.removeEventListener("abort", finish)
        resolve()
      }
      const cancelTimer = this.#parts.clock.after(ms, finish)
      signal?.addEventListener("abort", finish)
      handle.waiters.add(finish)
    })
  }

  #view(task: Task): TaskView {
    const { store, clock, attendance } = this.#parts
    const until = (ask: Ask) => attendance.refusedAt(ask)
    return viewOf(store.get(task.id) ?? task, store, clock.now(), this.#ports.limitOf, until)
  }
}
