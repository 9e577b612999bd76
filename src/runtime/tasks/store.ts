import type { Message } from "../../core/ports.ts"
import { type ActiveRun, newRun } from "../../core/run/active-run.ts"
import {
  addFigures,
  type Figures,
  isActive,
  isQueued,
  NO_FIGURES,
  owesNotification,
  type Task,
} from "../../core/task.ts"
import { type TaskEvent, transition } from "../../core/transition.ts"
import { foreignRun, readRun, takenRun } from "../recovery/foreign.ts"
import { ParentState, TaskHandle } from "./task-handle.ts"

type Changed = (before: Task, after: Task, event: TaskEvent) => void

/**
 * The tasks of this process and the ways to find them. `apply` is the only way to change one, and `transition` the
 * only thing it does; what follows from a change is the caller's. What else is known of a task or of a session that
 * launched some stands in its entry here, and is forgotten with it.
 */
export class TaskStore {
  readonly #entries = new Map<string, TaskHandle>()
  /** Tasks whose session is being made. */
  readonly #making = new Map<string, TaskHandle>()
  readonly #bySession = new Map<string, string>()
  readonly #parents = new Map<string, ParentState>()
  readonly #active = new Set<string>()
  /** Tasks that another process looks after, or a dead one left: shown, looked at now and then, and left alone. */
  readonly #foreign = new Set<string>()
  /** Ids of tasks that were cleared here, and of their sessions: a few bytes each, for as long as the process lives. */
  readonly #cleared = new Set<string>()
  /** Sessions below a task's own: what happens there is a sign of the task's life. */
  readonly #descendants = new Map<string, string>()
  readonly #listeners = new Set<(id: string) => void>()
  readonly #changed?: Changed

  /** `changed` hears of every change; it must not throw. */
  constructor(changed?: Changed) {
    this.#changed = changed
  }

  get(id: string): Task | undefined {
    return this.#entries.get(id)?.task
  }

  /** Also of one that is being made. */
  handle(id: string): TaskHandle | undefined {
    return this.#making.get(id) ?? this.#entries.get(id)
  }

  entries(): Iterable<TaskHandle> {
    return this.#entries.values()
  }

  /** What is known of a session beside its tasks. */
  parentState(sessionID: string): ParentState {
    const known = this.#parents.get(sessionID) ?? new ParentState()
    this.#parents.set(sessionID, known)
    return known
  }

  /** The session's turn was stopped, or its model is asked again. */
  stopped(sessionID: string, isStopped: boolean): void {
    const parentState = this.#parents.get(sessionID)
    if (parentState) parentState.isStopped = isStopped
  }

  /** The session was deleted: what is known of it goes with the last of its tasks. */
  forgetSession(sessionID: string): void {
    this.#descendants.delete(sessionID)
    const parentState = this.#parents.get(sessionID)
    if (parentState && parentState.children.size === 0) this.#parents.delete(sessionID)
    else parentState?.reset()
  }

  bySession(sessionID: string): Task | undefined {
    const id = this.#bySession.get(sessionID)
    return id === undefined ? undefined : this.get(id)
  }

  /** The task that a session works for: its own, or the one above it. */
  responsibleFor(sessionID: string): Task | undefined {
    const id = this.#bySession.get(sessionID) ?? this.#descendants.get(sessionID)
    return id === undefined ? undefined : this.get(id)
  }

  /** Tasks that were forgotten, and that a limit still counts. */
  forgotten(): Task[] {
    return [...this.#parents.values()].flatMap(({ forgotten }) => forgotten)
  }

  all(): Task[] {
    return [...this.#entries.values()].map(({ task }) => task)
  }

  /** The tasks that a session launched, oldest first. */
  ofParent(parentID: string): Task[] {
    return this.#pick(this.#parents.get(parentID)?.children ?? []).sort((a, b) => a.createdAt - b.createdAt)
  }

  /** The tasks that a task launched, and those that they launched in turn. */
  below({ sessionID }: Task): readonly Task[] {
    return this.ofParent(sessionID).flatMap((own) => [own, ...this.below(own)])
  }

  /** True while a task that this session launched is active, here or in another process, or its end is still to be told. */
  hasOpen(parentID: string): boolean {
    const children = this.#parents.get(parentID)?.children
    return children !== undefined && this.#pick(children).some((task) => isActive(task) || owesNotification(task))
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
    const current = this.get(id)
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

  /** What is known of the task's run while it is at work, or being closed. */
  run(id: string): ActiveRun | undefined {
    return this.handle(id)?.run
  }

  /** A completed task's work is checked once more and brought home. */
  isMerging(id: string): boolean {
    return this.run(id)?.stage === "merging"
  }

  isForeign(id: string): boolean {
    return this.#foreign.has(id)
  }

  get foreignCount(): number {
    return this.#foreign.size
  }

  foreign(): Task[] {
    return this.#pick(this.#foreign)
  }

  /** Keeps a place for a task whose session is being made. */
  make(task: Task, now: number): void {
    this.#making.set(task.id, new TaskHandle(task, newRun(task, "making", now)))
  }

  /** Its session could not be made. */
  unmake(id: string): void {
    this.#making.delete(id)
  }

  making(): Task[] {
    return [...this.#making.values()].map(({ task }) => task)
  }

  /** Takes in a task that another process looks after, or what has become of it there. */
  addForeign(task: Task): void {
    const handle = this.#link(task)
    this.#active.delete(task.id)
    handle.borrowed = true
    handle.run = foreignRun(task, handle.run)
    if (handle.run) this.#foreign.add(task.id)
    else this.#foreign.delete(task.id)
    this.noticed(task.id)
  }

  /** Another process has taken the task over: what it says of it is what counts. */
  disown(id: string): void {
    const handle = this.#entries.get(id)
    if (!handle) return
    this.#active.delete(id)
    this.#foreign.add(id)
    handle.borrowed = true
    handle.run = takenRun(handle.task)
    this.noticed(id)
  }

  /** Shows what the session of another process's task says of it. */
  readForeign(id: string, messages: readonly Message[]): void {
    const handle = this.#entries.get(id)
    if (!handle || !this.#foreign.has(id)) return
    handle.run = readRun(handle.task, handle.run, messages)
    this.noticed(id)
  }

  add(task: Task, now: number): void {
    this.#foreign.delete(task.id)
    const handle = this.#link(task)
    handle.borrowed = false
    this.#index(handle, now)
    this.noticed(task.id)
  }

  #link(task: Task): TaskHandle {
    const handle = this.handle(task.id) ?? new TaskHandle(task)
    handle.task = task
    this.#making.delete(task.id)
    this.#entries.set(task.id, handle)
    this.#bySession.set(task.sessionID, task.id)
    this.parentState(task.parentID).children.add(task.id)
    return handle
  }

  /** Puts `event` through the one door. Returns the task before and after, or undefined where nothing changed. */
  apply(id: string, event: TaskEvent, now: number): { before: Task; after: Task } | undefined {
    const handle = this.#entries.get(id)
    if (!handle) return undefined
    const before = handle.task
    const after = transition(before, event)
    if (after === before) return undefined
    // Who asks a task again is the one who runs it.
    if (event.type === "resumed") handle.borrowed = false
    handle.task = after
    if (isActive(after) && !isActive(before)) this.#index(handle, now)
    else if (!isActive(after)) this.#active.delete(id)
    this.#changed?.(before, after, event)
    this.noticed(id)
    return { before, after }
  }

  /** The task's entry is handed back: what it still holds is to be let go. */
  remove(id: string): TaskHandle | undefined {
    const handle = this.#entries.get(id)
    if (!handle) return undefined
    const { task } = handle
    const parentState = this.#parents.get(task.parentID)
    if (parentState && this.#bySession.has(task.parentID)) parentState.forgottenUsage = this.#tookWith(task)
    const own = this.#parents.get(task.sessionID)
    own?.transferUsage(parentState)
    if (own?.children.size === 0) this.#parents.delete(task.sessionID)
    this.#entries.delete(id)
    this.#bySession.delete(task.sessionID)
    this.#active.delete(id)
    this.#foreign.delete(id)
    parentState?.children.delete(id)
    for (const [session, owner] of this.#descendants) if (owner === id) this.#descendants.delete(session)
    this.noticed(id)
    return handle
  }

  /** Its user or its parent has cleared it: a record that was read before that shows it no more. */
  clear(id: string): TaskHandle | undefined {
    for (const cleared of [id, this.get(id)?.sessionID ?? id]) this.#cleared.add(cleared)
    return this.remove(id)
  }

  /** `id`: a task's, or that of its session. */
  wasCleared(id: string): boolean {
    return this.#cleared.has(id)
  }

  /** What the tasks took that this session, a task's own, launched and that were forgotten: it was paid all the same. */
  left(parentID: string): Figures {
    return this.#parents.get(parentID)?.forgottenUsage ?? NO_FIGURES
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

  /** The run of a task that is this process's now: one that was being made keeps what is known of it. */
  #index(handle: TaskHandle, now: number): void {
    const { task } = handle
    if (!isActive(task)) {
      this.#active.delete(task.id)
      handle.run = undefined
      return
    }
    this.#active.add(task.id)
    if (handle.run?.stage !== "making") handle.run = newRun(task, isQueued(task) ? "queued" : "working", now)
  }

  #pick(ids: Iterable<string>): Task[] {
    return [...ids].flatMap((id) => this.get(id) ?? [])
  }
}
