import { CallError } from "../../core/errors.ts"
import { ANY_WAY, type Stored, standOf, WAYS, type Way } from "../../core/standstill.ts"
import { isActive, type Model, type Task } from "../../core/task.ts"

/** What has runs stand still in one way, and lets them go on: by delivering `opened`, and having the queue looked at. */
export type Keeper<In extends Way> = {
  /** Lets go who may, and ends who has stood for too long. Called by the clock, and when a run has come, ended or answered. */
  look(): void
  /**
   * A request of a run is about to be sent, or with `other` one to that model which compacts its session. True where it
   * must not be: then the run stands still.
   */
  holds(task: Task, other?: Model): boolean
  /** Whether a run that stood still when its process died goes on where it was. */
  outlivesRestart(): boolean
  /** Takes over such a run, which this process looks after by now. */
  rebuild(task: Task, stored: Stored<In>): void
  /** Somebody wants it tried now, perhaps with another model. `others`: how many more follow if that goes well. */
  tryNow(task: Task, stored: Stored<In>, model?: Model): { readonly model: string; readonly others: number }
}

type All = { readonly [In in Way]: Keeper<In> }

/** Who has runs stand still, one for each way in `core/standstill`. */
export class Keepers {
  readonly #all: All

  constructor(all: All) {
    this.#all = all
  }

  look(): void {
    for (const way of WAYS) this.#all[way].look()
  }

  holds(task: Task, other?: Model): boolean {
    return WAYS.some((way) => this.#all[way].holds(task, other))
  }

  /** What has a run go on after a restart that stood still; undefined where it did not, or ended with its process. */
  afterRestart(task: Task): (() => void) | undefined {
    const stand = standOf(task.run)
    return stand && this.#afterRestart(task, task.run, stand.way)
  }

  /** Somebody wants it tried now. Throws a `CallError` where the task does not stand still. */
  tryNow(task: Task, doing: string = task.status, model?: Model): { readonly model: string; readonly others: number } {
    const stand = isActive(task) ? standOf(task.run) : undefined
    if (!stand) throw new CallError(`${task.id} is not ${ANY_WAY}: it is ${doing}.`)
    return this.#tryNow(task, task.run, stand.way, model)
  }

  #afterRestart<In extends Way>(task: Task, run: { readonly [Name in Way]?: Stored<Name> }, way: In) {
    const keeper = this.#all[way]
    const stored = run[way]
    return stored && keeper.outlivesRestart() ? () => keeper.rebuild(task, stored) : undefined
  }

  #tryNow<In extends Way>(task: Task, run: { readonly [Name in Way]?: Stored<Name> }, way: In, model?: Model) {
    return this.#all[way].tryNow(task, run[way] as Stored<In>, model)
  }
}
