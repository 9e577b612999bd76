import type { Message } from "../../core/ports.ts"
import { addFigures, type Figures, isActive, isOwed, NO_FIGURES, type Task } from "../../core/task.ts"
import { type TaskEvent, transition } from "../../core/transition.ts"
import { lastSignIn } from "../../core/verdict.ts"
import { ProgressTracker } from "../run/progress.ts"

/**
 * The tasks of this process and the ways to find them. `apply` is the only way to change one, and `transition` the
 * only thing it does; what follows from a change is the caller's.
 */
export class TaskStore {
  readonly #tasks = new Map<string, Task>()
  readonly #bySession = new Map<string, string>()
  readonly #byParent = new Map<string, Set<string>>()
  readonly #active = new Set<string>()
  readonly #trackers = new Map<string, ProgressTracker>()
  /** Tasks that another process runs, or has ended and not told of: shown, looked at now and then, and left alone. */
  readonly #foreign = new Set<string>()
  /** Tasks whose record another living process writes: those, and what it has ended and told of. */
  readonly #borrowed = new Set<string>()
  /** Sessions below a task's own: what happens there is a sign of the task's life. */
  readonly #descendants = new Map<string, string>()
  readonly #left = new Map<string, Figures>()
  readonly #listeners = new Set<(id: string) => void>()

  readonly #changed?: (before: Task, after: Task, event: TaskEvent) => void

  /** `changed` hears of every change; it must not throw. */
  constructor(changed?: (before: Task, after: Task, event: TaskEvent) => void) {
    this.#changed = changed
  }

  get(id: string): Task | undefined {
    return this.#tasks.get(id)
  }

  bySession(sessionID: string): Task | undefined {
    const id = this.#bySession.get(sessionID)
    return id === undefined ? undefined : this.#tasks.get(id)
  }

  /** The task that a session works for: its own, or the one above it. */
  responsibleFor(sessionID: string): Task | undefined {
    const id = this.#bySession.get(sessionID) ?? this.#descendants.get(sessionID)
    return id === undefined ? undefined : this.#tasks.get(id)
  }

  all(): Task[] {
    return [...this.#tasks.values()]
  }

  /** The tasks that a session launched, oldest first. */
  ofParent(parentID: string): Task[] {
    return this.#pick(this.#byParent.get(parentID) ?? []).sort((a, b) => a.createdAt - b.createdAt)
  }

  /** True while a task that this session launched is active, here or in another process, or its end is still to be told. */
  hasOpen(parentID: string): boolean {
    return this.#pick(this.#byParent.get(parentID) ?? []).some((task) => isActive(task) || isOwed(task))
  }

  /** `listener` hears the id of a task that changed, and must not throw. Returns the end of it. */
  subscribe(listener: (id: string) => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /** Something is seen of the task that it does not hold itself. */
  noticed(id: string): void {
    for (const listener of this.#listeners) listener(id)
  }

  /** True while this run of the task has not ended, and is this process's. */
  runs({ id, run }: Task): boolean {
    const current = this.#tasks.get(id)
    if (!current || this.#foreign.has(id)) return false
    return isActive(current) && current.run.generation === run.generation
  }

  /** The tasks that this process runs and that have not ended. */
  active(): Task[] {
    return this.#pick(this.#active)
  }

  get activeCount(): number {
    return this.#active.size
  }

  /** What is seen of the task's present run. Undefined once the run has ended, and where another process runs it unread. */
  tracker(id: string): ProgressTracker | undefined {
    return this.#trackers.get(id)
  }

  /** True where another process looks after the task. */
  isForeign(id: string): boolean {
    return this.#foreign.has(id)
  }

  /** True where this process has to write the task's record. */
  isWritten(id: string): boolean {
    return !this.#borrowed.has(id)
  }

  get foreignCount(): number {
    return this.#foreign.size
  }

  foreign(): Task[] {
    return this.#pick(this.#foreign)
  }

  /** Takes in a task that another process looks after, or what has become of it there. */
  addForeign(task: Task): void {
    this.#link(task)
    this.#active.delete(task.id)
    this.#borrowed.add(task.id)
    if (isActive(task) || isOwed(task)) this.#foreign.add(task.id)
    else this.#foreign.delete(task.id)
    if (!isActive(task)) this.#trackers.delete(task.id)
    this.noticed(task.id)
  }

  /** Another process has taken the task over: what it says of it is what counts. */
  disown(id: string): void {
    if (!this.#tasks.has(id)) return
    this.#active.delete(id)
    this.#trackers.delete(id)
    this.#foreign.add(id)
    this.#borrowed.add(id)
    this.noticed(id)
  }

  /** Shows what the session of another process's task says of it. */
  readForeign(id: string, messages: readonly Message[]): void {
    if (!this.#foreign.has(id)) return
    const { createdAt = 0 } = this.#tasks.get(id)?.run ?? {}
    const tracker = new ProgressTracker(Math.max(createdAt, lastSignIn(messages)))
    tracker.read(messages)
    this.#trackers.set(id, tracker)
    this.noticed(id)
  }

  add(task: Task, now: number): void {
    this.#foreign.delete(task.id)
    this.#borrowed.delete(task.id)
    this.#link(task)
    this.#index(task, now)
    this.noticed(task.id)
  }

  #link(task: Task): void {
    this.#tasks.set(task.id, task)
    this.#bySession.set(task.sessionID, task.id)
    const siblings = this.#byParent.get(task.parentID) ?? new Set()
    this.#byParent.set(task.parentID, siblings.add(task.id))
  }

  /** Puts `event` through the one door. Returns the task before and after, or undefined where nothing changed. */
  apply(id: string, event: TaskEvent, now: number): { before: Task; after: Task } | undefined {
    const before = this.#tasks.get(id)
    if (!before) return undefined
    const after = transition(before, event)
    if (after === before) return undefined
    // Who asks a task again is the one who runs it.
    if (event.type === "resumed") this.#borrowed.delete(id)
    this.#tasks.set(id, after)
    if (isActive(after) !== isActive(before)) this.#index(after, now)
    this.#changed?.(before, after, event)
    this.noticed(id)
    return { before, after }
  }

  remove(id: string): void {
    const task = this.#tasks.get(id)
    if (!task) return
    if (this.#bySession.has(task.parentID)) this.#left.set(task.parentID, this.#tookWith(task))
    this.#left.delete(task.sessionID)
    this.#tasks.delete(id)
    this.#bySession.delete(task.sessionID)
    this.#active.delete(id)
    this.#trackers.delete(id)
    this.#foreign.delete(id)
    this.#borrowed.delete(id)
    const siblings = this.#byParent.get(task.parentID)
    siblings?.delete(id)
    if (siblings?.size === 0) this.#byParent.delete(task.parentID)
    for (const [session, owner] of this.#descendants) if (owner === id) this.#descendants.delete(session)
    this.noticed(id)
  }

  /** What the tasks took that this session, a task's own, launched and that were forgotten: it was paid all the same. */
  left(parentID: string): Figures {
    return this.#left.get(parentID) ?? NO_FIGURES
  }

  /** What is left of a parent's forgotten tasks once this one, with what it launched, is among them. */
  #tookWith(task: Task): Figures {
    const took = (each: Task): Figures => {
      const own = addFigures(addFigures(each.earlier, each.outcome ?? NO_FIGURES), this.left(each.sessionID))
      return this.ofParent(each.sessionID).reduce((sum, child) => addFigures(sum, took(child)), own)
    }
    return addFigures(this.left(task.parentID), took(task))
  }

  /** A session was made below `parentID`; if that one works for a task, the new one does too. */
  adopt(sessionID: string, parentID: string): void {
    const task = this.responsibleFor(parentID)
    if (task && isActive(task) && !this.#bySession.has(sessionID)) this.#descendants.set(sessionID, task.id)
  }

  forgetDescendant(sessionID: string): void {
    this.#descendants.delete(sessionID)
  }

  #index(task: Task, now: number): void {
    if (!isActive(task)) {
      this.#active.delete(task.id)
      this.#trackers.delete(task.id)
      return
    }
    this.#active.add(task.id)
    this.#trackers.set(task.id, new ProgressTracker(now))
  }

  #pick(ids: Iterable<string>): Task[] {
    return [...ids].flatMap((id) => this.#tasks.get(id) ?? [])
  }
}
