import { CallError } from "../../core/errors.ts"
import { ANY_PAUSE, PAUSE_KINDS, type PauseKind, pauseOf, type StoredPause } from "../../core/pause.ts"
import { isActive, type Model, type Task } from "../../core/task.ts"

/** Pauses runs for one kind of reason, and tells the scheduler how long they stay blocked. */
export type Pauser<In extends PauseKind> = {
  /**
   * Called before each request of a run; `other`: model of a compaction. True where the request must not be sent: the
   * run is then paused.
   */
  blocksRequest(task: Task, other?: Model): boolean
  /** Whether paused runs continue after a restart. */
  survivesRestart(): boolean
  /** Takes over a paused run that this process now owns. */
  restore(task: Task, stored: StoredPause<In>): void
  /** A user wants it tried now, perhaps with another model. `others`: number of runs that follow on success. */
  retryNow(task: Task, stored: StoredPause<In>, model?: Model): { readonly model: string; readonly others: number }
}

type All = { readonly [In in PauseKind]: Pauser<In> }

/** Pausers, one for each kind of `core/pause`. */
export class Pausers {
  readonly #all: All

  constructor(all: All) {
    this.#all = all
  }

  blocksRequest(task: Task, other?: Model): boolean {
    return PAUSE_KINDS.some((way) => this.#all[way].blocksRequest(task, other))
  }

  /**
   * Function that continues a run paused before a restart; undefined where it was not paused, or ended with its
   * process.
   */
  afterRestart(task: Task): (() => void) | undefined {
    const pause = pauseOf(task.run)
    return pause && this.#afterRestart(task, task.run, pause.pauseKind)
  }

  /** A user wants it tried now. Throws a `CallError` where the task is not paused. */
  retryNow(
    task: Task,
    doing: string = task.status,
    model?: Model,
  ): { readonly model: string; readonly others: number } {
    const pause = isActive(task) ? pauseOf(task.run) : undefined
    if (!pause) throw new CallError(`${task.id} is not ${ANY_PAUSE}: it is ${doing}.`)
    return this.#tryNow(task, task.run, pause.pauseKind, model)
  }

  #afterRestart<In extends PauseKind>(task: Task, run: { readonly [Name in PauseKind]?: StoredPause<Name> }, way: In) {
    const pauser = this.#all[way]
    const stored = run[way]
    return stored && pauser.survivesRestart() ? () => pauser.restore(task, stored) : undefined
  }

  #tryNow<In extends PauseKind>(
    task: Task,
    run: { readonly [Name in PauseKind]?: StoredPause<Name> },
    way: In,
    model?: Model,
  ) {
    return this.#all[way].retryNow(task, run[way] as StoredPause<In>, model)
  }
}
