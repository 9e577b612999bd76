import { listed } from "../../core/errors.ts"
import type { Runtime } from "../../core/feature.ts"
import { modelKey, modelKeyOf, modelOfName } from "../../core/limits.ts"
import { isActive, isPaused, isQueued, type Model, type Task } from "../../core/task.ts"

/** Reason for leaving a model that has no credit. Waiting does not change that, so the run does not return to it. */
export const NO_CREDIT = "no credit"

export type FallbackModelPorts = {
  /** When requests to a model may be sent, as far as known; 0 for now. */
  readonly opensAt: (model: Model, task: Task) => number
  /** Called when a task continues with another model. */
  readonly switched: (task: Task) => void
}

/** Only a model that stays blocked for longer than this is replaced, in ms. */
export const LONG_CLOSED_MS = 60_000

/** Fallback models, named by the user, for tasks whose own model is at its limit. */
export class FallbackModels {
  readonly #runtime: Runtime
  readonly #ports: FallbackModelPorts
  #choosing = false
  #toldUnknown = false

  constructor(runtime: Runtime, ports: FallbackModelPorts) {
    this.#runtime = runtime
    this.#ports = ports
  }

  /** Whether the user named fallback models for this task's agent or model. */
  has(task: Task): boolean {
    return this.#namedFor(task).length > 0
  }

  /** When the first of the task's models but the present one takes requests, as far as known. */
  opensAt(task: Task): number {
    return Math.min(...this.#othersFor(task).map((model) => this.#ports.opensAt(model, task)))
  }

  /** Gives waiting tasks their next available model. `why`: reason why the present model is blocked. */
  choose(tasks: readonly Task[], why: string): void {
    const due = tasks.filter((task) => this.#availableTo(task))
    if (due.length === 0 || this.#choosing) return
    this.#choosing = true
    this.#runtime.background.run("choose another model", async () => {
      try {
        const known = await this.#runtime.opencode.models()
        this.#tellUnknown(known)
        for (const { id } of due) this.#switch(id, known, why)
      } finally {
        this.#choosing = false
      }
    })
  }

  /** Gives a task another model. `why`: reason for leaving the present one. */
  give({ id, run }: Task, model: Model, why: string): void {
    const { store, clock } = this.#runtime
    const step = (store.run(id)?.observed.ended ?? 0) + 1
    const event = { type: "switched", generation: run.generation, model, step, why } as const
    const change = store.apply(id, event, clock.now())
    if (change) this.#ports.switched(change.after)
  }

  #switch(id: string, known: readonly string[], why: string): void {
    const task = this.#runtime.store.get(id)
    if (!task || !isActive(task) || !(isPaused(task) || isQueued(task))) return
    const model = this.#availableTo(task, known)
    if (model) this.give(task, model, why)
  }

  /** The task's own model, even if the task has to wait for a slot, or a fallback model with a free slot. */
  #availableTo(task: Task, known?: readonly string[]): Model | undefined {
    const { clock, options, store } = this.#runtime
    const own = task.model && modelKey(task.model)
    return this.#othersFor(task, known).find((model) => {
      const key = modelKey(model)
      if (this.#ports.opensAt(model, task) > clock.now()) return false
      const most = key === own ? 0 : (options.maxConcurrentPerModel[key] ?? 0)
      return most === 0 || store.active().filter((each) => !each.group && modelKeyOf(each) === key).length < most
    })
  }

  #tellUnknown(known: readonly string[]): void {
    const { opencode, options } = this.#runtime
    const unknown = Object.values(options.fallbackModels)
      .flat()
      .filter((name) => !known.includes(name))
    if (unknown.length === 0 || this.#toldUnknown) return
    this.#toldUnknown = true
    const message = `Option "fallbackModels": OpenCode has no model ${listed(unknown)}: passed over.`
    opencode.log("warn", message)
    opencode.toast({ title: "superagents: check your options", message, variant: "warning" })
  }

  /**
   * The task's own model and its fallback models, without the present one and those without credit. None where no
   * fallback model is named.
   */
  #othersFor(task: Task, known?: readonly string[]): readonly Model[] {
    const { model: own, run } = task
    const { switches = [] } = run
    const named = this.#namedFor(task).filter((name) => known === undefined || known.includes(name))
    if (named.length === 0) return []
    const unpaid = switches.flatMap(({ why }, at) => (why === NO_CREDIT ? [switches[at - 1]?.model] : []))
    const left = [modelKeyOf(task), ...unpaid]
    const models = [...(own ? [own] : []), ...named.map(modelOfName)]
    return models.filter((model) => !left.includes(modelKey(model)))
  }

  /**
   * Fallback models of a task. None for a fork that shares its parent's cache, because such a fork must keep its
   * parent's model.
   */
  #namedFor({ agent, model, fork }: Task): readonly string[] {
    const { fallbackModels } = this.#runtime.options
    if (!model || fork?.whole) return []
    const named = (key: string) => (Object.hasOwn(fallbackModels, key) ? fallbackModels[key] : undefined)
    return named(agent) ?? named(modelKey(model)) ?? []
  }
}
