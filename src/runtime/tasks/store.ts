import type { MemberState } from "../../core/group.ts"
import type { Held } from "../../core/limits.ts"
import { lastAnswerAt } from "../../core/outcome.ts"
import type { Message } from "../../core/ports.ts"
import { type ActiveRun, newRun } from "../../core/run/active-run.ts"
import { hasBegun, withMessages } from "../../core/run/progress.ts"
import {
  addFigures,
  type Figures,
  hasPendingNotification,
  isActive,
  isQueued,
  NO_FIGURES,
  type Task,
} from "../../core/task.ts"
import { type TaskEvent, transition } from "../../core/transition.ts"
import { ParentState, TaskHandle } from "./task-handle.ts"

type Changed = (before: Task, after: Task, event: TaskEvent) => void

/**
 * Tasks known to this process, with their indexes. A task changes only by `apply`, which calls `transition`; the caller
 * carries out the effects. All other state of a task or parent is in its handle and dropped with it.
 */
export class TaskStore {
  readonly #entries = new Map<string, TaskHandle>()
  /** Tasks whose session is being created. */
  readonly #making = new Map<string, TaskHandle>()
  readonly #bySession = new Map<string, string>()
  readonly #parents = new Map<string, ParentState>()
  readonly #active = new Set<string>()
  /** Ids of tasks that other processes own or have owned. Such tasks are only shown and polled. */
  readonly #foreign = new Set<string>()
  /**
   * Ids of cleared tasks and of their sessions. They are kept until the process ends, so that no task appears again.
   */
  readonly #cleared = new Set<string>()
  /** Deleted sessions that had called tools, since a call may still be running. */
  readonly #deleted = new Set<string>()
  /** Sessions below a task's own session, with the id of that task. Activity in them is a sign that the task works. */
  readonly #descendants = new Map<string, string>()
  readonly #listeners = new Set<(id: string) => void>()
  readonly #changed?: Changed

  /** `changed` is called after every change and must not throw. */
  constructor(changed?: Changed) {
    this.#changed = changed
  }

  get(id: string): Task | undefined {
    return this.#entries.get(id)?.task
  }

  /** Returns the handle of a task, also of one whose session is being created. */
  handle(id: string): TaskHandle | undefined {
    return this.#making.get(id) ?? this.#entries.get(id)
  }

  entries(): Iterable<TaskHandle> {
    return this.#entries.values()
  }

  parentState(sessionID: string): ParentState {
    const known = this.#parents.get(sessionID) ?? new ParentState()
    this.#parents.set(sessionID, known)
    return known
  }

  /**
   * Notes whether the session's turn was stopped. Returns false where that was known already, or an event of the stopped
   * turn came late: none has begun since.
   */
  stopped(sessionID: string, isStopped: boolean): boolean {
    const parentState = this.#parents.get(sessionID)
    const isLate = !isStopped && parentState?.isActiveAgain === false
    if (parentState && isStopped) parentState.isActiveAgain = false
    if (!parentState || isLate || parentState.isStopped === isStopped) return false
    parentState.isStopped = isStopped
    return true
  }

  /** Notes that a turn has begun in the session. */
  becameActive(sessionID: string): void {
    const parentState = this.#parents.get(sessionID)
    if (parentState) parentState.isActiveAgain = true
  }

  /** Called when a session was deleted. Drops its state; while it still has tasks, only a part of it. */
  forgetSession(sessionID: string): void {
    this.#descendants.delete(sessionID)
    const parentState = this.#parents.get(sessionID)
    if (parentState) this.#deleted.add(sessionID)
    if (parentState && parentState.children.size === 0) this.#parents.delete(sessionID)
    else parentState?.reset()
  }

  /** Whether a session that had called tools was deleted. */
  wasDeleted(sessionID: string): boolean {
    return this.#deleted.has(sessionID)
  }

  bySession(sessionID: string): Task | undefined {
    const id = this.#bySession.get(sessionID)
    return id === undefined ? undefined : this.get(id)
  }

  /** Task of a session, or the cleared one there whose cost still counts. */
  latestIn(sessionID: string): Task | undefined {
    return this.bySession(sessionID) ?? this.forgotten().find((task) => task.sessionID === sessionID)
  }

  /** The task that a session works for: the session's own task, or the nearest one above. */
  responsibleFor(sessionID: string): Task | undefined {
    const id = this.#bySession.get(sessionID) ?? this.#descendants.get(sessionID)
    return id === undefined ? undefined : this.get(id)
  }

  /** Cleared tasks that a limit still counts. */
  forgotten(): Task[] {
    return [...this.#parents.values()].flatMap(({ forgotten }) => forgotten)
  }

  /** Whether the run's model was not asked yet: the run is queued, or was paused before it began. */
  isUnbegun(task: Task): boolean {
    return isQueued(task) || this.run(task.id)?.notStarted === true
  }

  all(): Task[] {
    return [...this.#entries.values()].map(({ task }) => task)
  }

  /** Tasks that the session launched, oldest first. */
  ofParent(parentID: string): Task[] {
    return this.#childrenOf(parentID).sort((a, b) => a.createdAt - b.createdAt)
  }

  #childrenOf(parentID: string): Task[] {
    return this.#pick(this.#parents.get(parentID)?.children ?? [])
  }

  /** Members of a group, oldest first. */
  membersOf({ id, sessionID }: Task): readonly MemberState[] {
    return this.ofParent(sessionID).flatMap((task) => {
      if (task.member?.of !== id) return []
      const run = this.run(task.id)
      const states = { closed: !run || run.stage === "notifying", began: !run || hasBegun(run.observed) }
      return { task, ...states, ...(run?.check && { check: run.check }) }
    })
  }

  /** All descendants. */
  below({ sessionID }: Task): readonly Task[] {
    return this.ofParent(sessionID).flatMap((own) => [own, ...this.below(own)])
  }

  /** Whether a child of the session is active in any process. */
  hasActive(parentID: string): boolean {
    return this.#childrenOf(parentID).some(isActive)
  }

  /** Whether a child of the session is active in any process, or still has a notification to be sent. */
  hasOpen(parentID: string): boolean {
    return this.#childrenOf(parentID).some((task) => isActive(task) || hasPendingNotification(task))
  }

  /** `listener` gets the id of a changed task and must not throw. Returns the unsubscribe function. */
  subscribe(listener: (id: string) => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /** Informs listeners that something shown of the task has changed, although the task itself has not. */
  noticed(id: string): void {
    for (const listener of this.#listeners) listener(id)
  }

  /** Whether this process owns the run and the run is active. */
  runs({ id, run }: Task): boolean {
    const current = this.get(id)
    if (!current || this.#foreign.has(id)) return false
    return isActive(current) && current.run.generation === run.generation
  }

  /** Active tasks of this process. */
  active(): Task[] {
    return this.#pick(this.#active)
  }

  get activeCount(): number {
    return this.#active.size
  }

  /** State of the task's run while it is active or being closed. */
  run(id: string): ActiveRun | undefined {
    return this.handle(id)?.run
  }

  /** Whether the task has completed and its work is being checked again and merged. */
  isMerging(id: string): boolean {
    return this.run(id)?.stage === "finalizing"
  }

  isForeign(id: string): boolean {
    return this.#foreign.has(id)
  }

  /** Whether this process writes the task's record. Another process may do so even after the task has ended. */
  isOwn(id: string): boolean {
    return this.#entries.get(id)?.isForeign === false
  }

  get foreignCount(): number {
    return this.#foreign.size
  }

  foreign(): Task[] {
    return this.#pick(this.#foreign)
  }

  /** Adds a task whose session is being created. */
  make(task: Task, now: number, held?: Held): void {
    this.#making.set(task.id, new TaskHandle(task, { ...newRun(task, "creating", now), held }))
  }

  /** Drops a task whose session could not be created. */
  unmake(id: string): void {
    this.#making.delete(id)
  }

  making(): Task[] {
    return [...this.#making.values()].map(({ task }) => task)
  }

  /** Adds or updates another process's task. */
  addForeign(task: Task): void {
    const handle = this.#link(task)
    this.#active.delete(task.id)
    handle.isForeign = true
    handle.isLost = false
    handle.run = foreignRun(task, handle.run)
    if (handle.run) this.#foreign.add(task.id)
    else this.#foreign.delete(task.id)
    this.noticed(task.id)
  }

  /** Makes a task foreign that another process has taken over. From now on its record counts. */
  disown(id: string): void {
    const handle = this.#entries.get(id)
    if (!handle) return
    this.#active.delete(id)
    this.#foreign.add(id)
    handle.isForeign = true
    handle.isLost = true
    handle.run = takenRun(handle.task)
    this.noticed(id)
  }

  /** Updates another process's task from its session. */
  readForeign(id: string, messages: readonly Message[]): void {
    const handle = this.#entries.get(id)
    if (!handle || !this.#foreign.has(id)) return
    handle.run = readRun(handle.task, handle.run, messages)
    this.noticed(id)
  }

  add(task: Task, now: number): void {
    this.#foreign.delete(task.id)
    const handle = this.#link(task)
    handle.isForeign = false
    this.#index(handle, now)
    this.noticed(task.id)
  }

  #link(task: Task): TaskHandle {
    const handle = this.handle(task.id) ?? new TaskHandle(task)
    handle.task = task
    this.#making.delete(task.id)
    this.#entries.set(task.id, handle)
    this.#bySession.set(task.sessionID, task.id)
    // What the session spends is its own task's from here on, even after that is cleared.
    this.#descendants.delete(task.sessionID)
    this.parentState(task.parentID).children.add(task.id)
    return handle
  }

  /** Applies an event. Returns the task before and after, or undefined where nothing changed. */
  apply(id: string, event: TaskEvent, now: number): { before: Task; after: Task } | undefined {
    const handle = this.#entries.get(id)
    if (!handle) return undefined
    const before = handle.task
    const after = transition(before, event)
    if (after === before) return undefined
    // The process that resumes a task owns it.
    if (event.type === "resumed") handle.isForeign = false
    handle.task = after
    if (isActive(after) && !isActive(before)) this.#index(handle, now)
    else if (!isActive(after)) this.#active.delete(id)
    this.#changed?.(before, after, event)
    this.noticed(id)
    return { before, after }
  }

  /** Returns the handle, whose resources the caller must release. */
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

  /**
   * Notes that a user or the task's parent clears it: from then on it is not resumed, and a record read earlier does not
   * show it again.
   */
  markCleared(id: string): void {
    for (const cleared of [id, this.get(id)?.sessionID ?? id]) this.#cleared.add(cleared)
  }

  /** Removes a task that a user or its parent has cleared. */
  clear(id: string): TaskHandle | undefined {
    this.markCleared(id)
    return this.remove(id)
  }

  /** `id`: of a task, or of its session. */
  wasCleared(id: string): boolean {
    return this.#cleared.has(id)
  }

  /** Usage of cleared tasks that a task's session had launched. It still counts, because it was paid. */
  left(parentID: string): Figures {
    return this.#parents.get(parentID)?.forgottenUsage ?? NO_FIGURES
  }

  /** Usage of the parent's cleared tasks, with this one and its descendants. */
  #tookWith(task: Task): Figures {
    const took = (each: Task): Figures => {
      const own = addFigures(addFigures(each.earlier, each.outcome ?? NO_FIGURES), this.left(each.sessionID))
      return this.ofParent(each.sessionID).reduce((sum, child) => addFigures(sum, took(child)), own)
    }
    return addFigures(this.left(task.parentID), took(task))
  }

  /** Notes a session that was created below `parentID`. It belongs to the task of `parentID`, if there is one. */
  adopt(sessionID: string, parentID: string): void {
    const task = this.responsibleFor(parentID)
    if (task && isActive(task) && !this.#bySession.has(sessionID)) this.#descendants.set(sessionID, task.id)
  }

  /** Sets up the run of a task that this process owns now. A run whose session is being created keeps its state. */
  #index(handle: TaskHandle, now: number): void {
    const { task } = handle
    if (!isActive(task)) {
      this.#active.delete(task.id)
      handle.run = undefined
      return
    }
    this.#active.add(task.id)
    if (handle.run?.stage !== "creating") handle.run = newRun(task, isQueued(task) ? "waiting" : "working", now)
  }

  #pick(ids: Iterable<string>): Task[] {
    return [...ids].flatMap((id) => this.get(id) ?? [])
  }
}

/**
 * Run of another process's task, as this process knows it. Undefined if the task has ended and its notification is
 * settled.
 */
function foreignRun(task: Task, known: ActiveRun | undefined): ActiveRun | undefined {
  if (!isActive(task) && !hasPendingNotification(task)) return undefined
  if (known && known.heldBy !== "ours" && known.generation === task.run.generation) return known
  return newRun(task, isActive(task) ? "working" : "notifying", task.run.createdAt, "foreign")
}

/** Run of a task that another process has just taken over. */
const takenRun = (task: Task): ActiveRun => newRun(task, "working", task.run.createdAt, "foreign")

/** The run updated from its session's messages. */
function readRun(task: Task, known: ActiveRun | undefined, messages: readonly Message[]): ActiveRun {
  const run = known ?? newRun(task, "working", 0, "foreign")
  const fresh = newRun(task, run.stage, Math.max(task.run.createdAt, lastAnswerAt(messages)), run.heldBy)
  return { ...fresh, orphaned: run.orphaned, observed: withMessages(fresh.observed, messages) }
}
