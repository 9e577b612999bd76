import type { ReportHead } from "../../src/features/board/purse/report.ts"
import {
  type Actor,
  type Archived,
  type Board,
  type BoardAgent,
  BoardError,
  type Purses,
  type PurseView,
} from "../../src/features/board/service.ts"
import {
  type BoardTask,
  type NewTask,
  type Resource,
  shownStatus,
  type TaskPatch,
  type TaskState,
} from "../../src/features/board/task.ts"
import { boardTaskOf } from "./board-state.ts"

/** A board in memory with the rules that HTTP has to put into words; the real one has its own tests. */
export class FakeBoard implements Board {
  readonly tasks = new Map<string, BoardTask>()
  readonly archive: BoardTask[] = []
  readonly states = new Map<string, TaskState>()
  readonly calls: { readonly method: string; readonly by?: Actor }[] = []
  /** `seen` of the calls of `update`, `run` and `accept`, in order. */
  readonly seen: (readonly string[] | undefined)[] = []
  readonly #listeners = new Set<() => void>()
  owners: BoardAgent[] = [
    { name: "build", description: "Does the work." },
    { name: "plan", description: "Thinks first." },
  ]
  /** Set: its files cannot be read. */
  broken = ""
  now: () => number = Date.now
  #nextId = 1

  get listeners(): number {
    return this.#listeners.size
  }

  /** Puts a task there, or changes it, and tells of it. */
  put(task: Partial<BoardTask> & { id: string }, state?: Partial<TaskState>): BoardTask {
    const at = new Date(this.now()).toISOString()
    const whole = boardTaskOf(task.id, at, { ...this.tasks.get(task.id), ...task })
    this.tasks.set(task.id, whole)
    this.#nextId = Math.max(this.#nextId, Number(task.id) + 1)
    if (state) this.states.set(task.id, { state: "running", reason: "", text: state.state ?? "running", ...state })
    this.#tell()
    return whole
  }

  async list() {
    if (this.broken !== "") throw new BoardError("unavailable", this.broken)
    return [...this.tasks.values()]
  }

  async get(id: string) {
    const task = this.tasks.get(id) ?? this.archive.find((each) => each.id === id)
    if (!task) throw new BoardError("not found", `There is no task #${id}.`)
    return task
  }

  async history(limit = 20) {
    return this.archive.slice(-limit).reverse()
  }

  async create(input: NewTask, by: Actor) {
    this.calls.push({ method: "create", by })
    this.#ownerMustBe(input.owner)
    const { steps = [], ...rest } = input
    const done = steps.map((step) => ({ done: false, ...step }))
    return this.put({ ...rest, owner: input.owner ?? "build", id: String(this.#nextId), steps: done })
  }

  async update(id: string, patch: TaskPatch, by: Actor, seen?: readonly string[]): Promise<Archived> {
    this.calls.push({ method: "update", by })
    this.seen.push(seen)
    const task = this.#open(id)
    this.#ownerMustBe(patch.owner)
    if (patch.status === "done") return this.complete(id, by)
    if (patch.status === "canceled") return this.cancel(id, by)
    if (patch.status === "draft" && this.state(task).state === "running")
      throw new BoardError("conflict", `Task #${id} runs.`)
    return { task: this.put({ id, ...patch }), canceled: [], open: [] }
  }

  async complete(id: string, by: Actor): Promise<Archived> {
    this.calls.push({ method: "complete", by })
    const task = this.#open(id)
    if (task.status === "draft") throw new BoardError("conflict", `Task #${id} is a draft; activate it first.`)
    const open = this.#subtasks(task)
    return { task: this.#end(task, "done"), canceled: [], open }
  }

  async cancel(id: string, by: Actor): Promise<Archived> {
    this.calls.push({ method: "cancel", by })
    const task = this.#open(id)
    const canceled = this.#subtasks(task).map((each) => this.#end(each, "canceled"))
    return { task: this.#end(task, "canceled"), canceled, open: [] }
  }

  async run(id: string, seen?: readonly string[]) {
    this.seen.push(seen)
    const task = this.#open(id)
    if (task.status === "draft") throw new BoardError("conflict", `Task #${id} is a draft; activate it first.`)
    if (this.state(task).state === "running") throw new BoardError("conflict", `Task #${id} runs already.`)
    this.put({ id }, { state: "running", text: "running" })
  }

  state(task: BoardTask): TaskState {
    if (task.status !== "active") return { state: task.status, reason: "", text: shownStatus(task.status) }
    return this.states.get(task.id) ?? { state: "next run", reason: "14:00", text: "next run 14:00" }
  }

  async agents() {
    return this.owners
  }

  inFlight() {
    return [...this.tasks.values()].filter((task) => this.state(task).state === "running").map(({ id }) => id)
  }

  subscribe(listener: () => void) {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  purseView: PurseView | undefined
  readonly purse: Purses = {
    view: async () => this.purseView,
    open: async ({ max, until }) => {
      if (this.purseView) throw new BoardError("conflict", "A purse is open.")
      const openedAt = new Date(this.now()).toISOString()
      const text = `$0.00 of $${max} until ${until}, 0 at work`
      this.purseView = { max, spent: 0, atLeast: false, openedAt, until, atWork: 0, parked: 0, text }
      this.#tell()
      return this.purseView
    },
    close: async () => {
      if (!this.purseView) throw new BoardError("conflict", "No purse is open.")
      this.purseView = undefined
      this.#tell()
    },
    reports: async () => this.reports,
    report: async (name) => {
      const found = this.reports.find((report) => report.name === name)
      if (!found) throw new BoardError("not found", `There is no report "${name}".`)
      return { ...found, tasks: [], text: "Spent $4.37 of $5.00." }
    },
  }
  reports: ReportHead[] = []

  accepted = 0
  subtasksIn = () => this.#unused()

  async accept(seen?: readonly string[]) {
    this.seen.push(seen)
    this.accepted++
    for (const { id } of this.tasks.values()) this.states.delete(id)
    this.#tell()
  }

  /** Those of a board whose file has gone. */
  gone: BoardTask[] = []
  lost = () => this.gone

  async restore() {
    if (this.gone.length === 0) throw new BoardError("conflict", "No task of this board has gone.")
    for (const task of this.gone.splice(0)) this.put(task)
  }

  async forget() {
    this.gone = []
    this.#tell()
  }

  updateSteps = () => this.#unused()
  updateStep = () => this.#unused()
  createSubtask = () => this.#unused()
  addResource = (_id: string, _resource: Resource) => this.#unused()
  removeResource = () => this.#unused()
  notifyUser = () => this.#unused()

  #unused(): never {
    throw new Error("the page has no use for this")
  }

  #open(id: string): BoardTask {
    const task = this.tasks.get(id)
    if (task) return task
    if (this.archive.some((each) => each.id === id))
      throw new BoardError("conflict", `Task #${id} is in history, which does not change.`)
    throw new BoardError("not found", `There is no task #${id}.`)
  }

  #subtasks(task: BoardTask): BoardTask[] {
    return task.steps.flatMap(({ taskId }) => this.tasks.get(taskId ?? "") ?? [])
  }

  #end(task: BoardTask, status: "done" | "canceled"): BoardTask {
    const archived = { ...task, status, archivedAt: new Date(this.now()).toISOString() }
    this.tasks.delete(task.id)
    this.states.delete(task.id)
    this.archive.push(archived)
    this.#tell()
    return archived
  }

  #ownerMustBe(owner: string | undefined): void {
    if (owner !== undefined && !this.owners.some(({ name }) => name === owner))
      throw new BoardError("invalid", `There is no agent "${owner}". There are: build, plan.`)
  }

  #tell(): void {
    for (const listener of this.#listeners) listener()
  }
}
