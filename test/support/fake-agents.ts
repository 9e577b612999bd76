import { type Ask, NO_USAGE, type Task, type Usage } from "../../src/core/task.ts"
import type { HistoryRun } from "../../src/features/web/opencode/sessions.ts"
import type { Agents } from "../../src/features/web/ports.ts"
import type { FileDiff } from "../../src/lib/repository.ts"
import type { TaskView } from "../../src/present/view.ts"
import { groupKindOf } from "./groups.ts"
import { outcomeOf, taskOf } from "./tasks.ts"

type Shown = Partial<Omit<TaskView, "task" | "whole">> & {
  readonly task?: Parameters<typeof taskOf>[0]
  readonly toolCalls?: number
  readonly usage?: Partial<Usage>
}

export const viewOf = ({ task, toolCalls = 0, usage, ...more }: Shown = {}): TaskView => ({
  task: taskOf(task),
  elapsed: 0,
  waited: 0,
  whole: { toolCalls, usage: { ...NO_USAGE, ...usage } },
  thisRun: { toolCalls, usage: { ...NO_USAGE, ...usage } },
  recentTools: [],
  lastText: "",
  asks: [] as readonly Ask[],
  at: 0,
  groupKind: groupKindOf(taskOf(task)),
  ...more,
})

/** Background tasks that a test puts together. */
export class FakeAgents implements Agents {
  readonly #views = new Map<string, TaskView>()
  readonly #listeners = new Set<(id: string) => void>()
  readonly foreign = new Set<string>()
  readonly answers = new Map<string, string>()
  readonly diffs = new Map<string, readonly FileDiff[]>()
  readonly stories = new Map<string, readonly HistoryRun[]>()
  readonly cancelled: string[] = []
  refreshes = 0
  now: () => number = Date.now

  get listeners(): number {
    return this.#listeners.size
  }

  set(...views: readonly TaskView[]): void {
    for (const view of views) {
      this.#views.set(view.task.id, view)
      this.#tell(view.task.id)
    }
  }

  /** The same view with other figures. */
  alter(id: string, more: Omit<Shown, "task" | "usage">, task: Partial<Task> = {}): void {
    const view = this.#views.get(id)
    if (!view) throw new Error(`no such view: ${id}`)
    const { toolCalls = view.whole.toolCalls, ...rest } = more
    this.set({ ...view, ...rest, whole: { ...view.whole, toolCalls }, task: { ...view.task, ...task } })
  }

  delete(id: string): void {
    this.#views.delete(id)
    this.#tell(id)
  }

  ids = () => [...this.#views.keys()]
  list = () => [...this.#views.values()]
  get = (id: string) => this.#views.get(id)
  refresh = async () => void this.refreshes++
  isForeign = (id: string) => this.foreign.has(id)
  answer = async (id: string) => this.answers.get(id) ?? ""
  history = async (id: string) => this.stories.get(id) ?? []
  diff = async (id: string) => this.diffs.get(id) ?? []

  async cancel(id: string): Promise<boolean> {
    const view = this.#views.get(id)
    if (!view || view.task.run.endedAt !== undefined) return false
    this.cancelled.push(id)
    const outcome = outcomeOf({ reason: { code: "aborted", text: "The user stopped it." } })
    const run = { ...view.task.run, endedAt: this.now() }
    this.alter(id, { phase: undefined, asks: [] }, { status: "cancelled", run, outcome })
    return true
  }

  subscribe(listener: (id: string) => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  #tell(id: string): void {
    for (const listener of this.#listeners) listener(id)
  }
}
