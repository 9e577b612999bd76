import type { Task } from "../../core/task.ts"

/** By model: the last notification of each session whose model was not started for it. */
export class DeferredWakes {
  readonly #tasks = new Map<string, readonly Task[]>()

  get isEmpty(): boolean {
    return this.#tasks.size === 0
  }

  note(model: string, task: Task): void {
    const others = (this.#tasks.get(model) ?? []).filter(({ parentID }) => parentID !== task.parentID)
    this.#tasks.set(model, [...others, task])
  }

  has(model: string): boolean {
    return this.#tasks.has(model)
  }

  /** Whether this session is to be woken when a model is available. */
  owes(parentID: string): boolean {
    return [...this.#tasks.values()].some((tasks) => tasks.some((task) => task.parentID === parentID))
  }

  /** Tasks to be told again now; their notifications were stored before. */
  take(model: string): readonly Task[] {
    const tasks = this.#tasks.get(model) ?? []
    this.#tasks.delete(model)
    return tasks.map((task) => ({ ...task, delivery: { state: "none" } }))
  }
}
