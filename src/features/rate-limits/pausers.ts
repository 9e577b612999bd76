import { CallError } from "../../core/errors.ts"
import { ANY_PAUSE, PAUSE_KINDS, type PauseKind, pauseOf, type Stored } from "../../core/pause.ts"
import { isActive, type Model, type Task } from "../../core/task.ts"

/** What has runs stand still in one way. As a source of blocks, it says how long. */
export type Pauser<In extends PauseKind> = {
  /**
   * A request of a run is about to be sent, or with `other` one to that model which compacts its session. True where it
   * must not be: then the run stands still.
   */
  blocksRequest(task: Task, other?: Model): boolean
  /** Whether a run that stood still when its process died goes on where it was. */
  survivesRestart(): boolean
  /** Takes over such a run, which this process looks after by now. */
  restore(task: Task, stored: Stored<In>): void
  /** Somebody wants it tried now, perhaps with another model. `others`: how many more follow if that goes well. */
  retryNow(task: Task, stored: Stored<In>, model?: Model): { readonly model: string; readonly others: number }
}

type All = { readonly [In in PauseKind]: Pauser<In> }

/** Who has runs stand still, one for each way in `core/pause`. */
export class Pausers {
  readonly #all: All

  constructor(all: All) {
    this.#all = all
  }

  blocksRequest(task: Task, other?: Model): boolean {
    return PAUSE_KINDS.some((way) => this.#all[way].blocksRequest(task, other))
  }

  /** What has a run go on after a restart that stood still; undefined where it did not, or ended with its process. */
  afterRestart(task: Task): (() => void) | undefined {
    const stand = pauseOf(task.run)
    return stand && this.#afterRestart(task, task.run, stand.pauseKind)
  }

  /** Somebody wants it tried now. Throws a `CallError` where the task does not stand still. */
  retryNow(
    task: Task,
    doing: string = task.status,
    model?: Model,
  ): { readonly model: string; readonly others: number } {
    const stand = isActive(task) ? pauseOf(task.run) : undefined
    if (!stand) throw new CallError(`${task.id} is not ${ANY_PAUSE}: it is ${doing}.`)
    return this.#tryNow(task, task.run, stand.pauseKind, model)
  }

  #afterRestart<In extends PauseKind>(task: Task, run: { readonly [Name in PauseKind]?: Stored<Name> }, way: In) {
    const pauser = this.#all[way]
    const stored = run[way]
    return stored && pauser.survivesRestart() ? () => pauser.restore(task, stored) : undefined
  }

  #tryNow<In extends PauseKind>(
    task: Task,
    run: { readonly [Name in PauseKind]?: Stored<Name> },
    way: In,
    model?: Model,
  ) {
    return this.#all[way].retryNow(task, run[way] as Stored<In>, model)
  }
}
