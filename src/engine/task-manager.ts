import { CallError } from "../core/errors.ts"
import { lastWordRefusal, lastWordRequest } from "../core/last-word.ts"
import { whenOf } from "../core/parked.ts"
import type { HostEvent } from "../core/ports.ts"
import type { Spent } from "../core/spending.ts"
import {
  type Ending,
  isActive,
  isBriefed,
  isQueued,
  isUnattended,
  isUnmerged,
  type Model,
  modelOf,
  NO_USAGE,
  type Status,
  type Task,
  type Usage,
} from "../core/task.ts"
import type { PlaceKind, PlaceNews, Shown } from "../place/place.ts"
import { type Assembly, assemble, type ManagerPorts } from "./assembly.ts"
import { PARENT_ENDED } from "./conductor/conductor.ts"
import { type Caller, chooseModel, permitEdit, refusalTo } from "./launch/checks.ts"
import { goesOnByItself } from "./launch/plans.ts"
import type { LaunchRequest, ResumeRequest } from "./launch/request.ts"
import type { UnattendedRequest } from "./launch/unattended.ts"
import type { Purse } from "./limits/ledger.ts"
import type { Overview } from "./overview.ts"
import type { Parts } from "./parts.ts"
import { DELETED } from "./run/looked.ts"
import { type CancelSelector, findBatch, findTask, findTasks, selectRunning } from "./tasks/lookup.ts"
import { type Cleared, type TaskView, viewOf } from "./tasks/view.ts"

/** What goes along with a request to a session's model. */
type WordInRequest = { readonly text: string; readonly withoutTools: boolean }

/** The answer of an ended task, or none while it runs. `gone`: its session is, and the answer with it. */
export type Report = {
  readonly view: TaskView
  readonly answer?: string
  readonly gone?: boolean
  readonly firstLook: boolean
  /** Of one that still runs: for how long the call has waited for its end in vain, in ms. */
  readonly waited?: number
  /** What it changed in a place of its own. */
  readonly shown?: Shown
}

const CANCELLED: Ending = {
  type: "cancelled",
  reason: { code: "cancelled", text: "It was cancelled by the agent that launched it." },
}
const PURSE_ENDED: Ending = {
  type: "cancelled",
  reason: { code: "purse", text: "It was stopped: the board's purse has ended." },
}
const STOPPED: Ending = { type: "cancelled", reason: { code: "cancelled", text: "It was stopped." } }

/**
 * Everything that can be done with tasks, for the tools on one side and the host's events on the other. Holds no state of
 * its own: `assembly.ts` puts together what does the work.
 */
export class TaskManager {
  readonly #stop = new AbortController()
  readonly #all: Assembly
  readonly #parts: Parts

  /** Where tasks may work. */
  readonly kinds: readonly PlaceKind[]

  constructor(ports: ManagerPorts) {
    this.kinds = ports.kinds
    this.#all = assemble(ports, this.#stop.signal)
    this.#parts = this.#all.parts
  }

  /** The tasks of all sessions. */
  get overview(): Overview {
    return this.#all.overview
  }

  /** Finishes what an earlier process left of places around a folder. Never rejects. */
  sweep(folder: string): Promise<void> {
    return this.#all.kept.sweep(folder)
  }

  /** What a place tells by itself of a task that works there. */
  placeTold(taskID: string, news: PlaceNews): void {
    this.#all.conductor.deliver(taskID, news)
  }

  /** A place can be reached again: what ended tasks have left there comes home. Never rejects. */
  placeAnswers(name: string): Promise<void> {
    return this.#all.kept.settleOwed(name)
  }

  /** Brings back the tasks of an earlier process. Never rejects. */
  recover(): Promise<void> {
    return this.#all.recovery.recover()
  }

  /** To be awaited before a session's tasks are used: brings back those that it had in an earlier process. */
  ready(sessionID: string): Promise<void> {
    return this.#all.recovery.ready(sessionID)
  }

  async launch(request: LaunchRequest, caller: Caller): Promise<{ view: TaskView; reused: boolean }> {
    const { task, reused } = await this.#all.launcher.launch(request, caller)
    this.#all.retention.prune(caller.sessionID)
    return { view: this.#view(task), reused }
  }

  async resume(reference: string, request: ResumeRequest, caller: Caller): Promise<TaskView> {
    const task = this.#find(reference, caller.sessionID)
    if (!goesOnByItself(task) && request.prompt === "")
      throw new CallError("Argument `prompt` is missing: what the agent shall do, or what it is told.")
    return this.#view(await this.#all.resuming.resume(task, request, caller))
  }

  /** What the run of a task that has just been begun may spend, by each limit that it comes under. */
  allowance(task: Task): readonly string[] {
    return this.#all.allowance.of(task)
  }

  /** Says something to a task that has not ended; `waits`: it reads that behind its prompt, once it begins. */
  async tell(reference: string, text: string, caller: Caller): Promise<{ view: TaskView; waits: boolean }> {
    const task = this.#find(reference, caller.sessionID)
    const { waits } = await this.#all.tell(task, text)
    return { view: this.#view(task), waits }
  }

  /** What the session's model is told with the request that is about to be sent; undefined for nothing. */
  inRequest(sessionID: string): WordInRequest | undefined {
    const task = this.#parts.store.bySession(sessionID)
    const { lastWord, custody } = this.#atWork(task) ?? {}
    if (!task || custody !== "ours") return undefined
    this.#all.conductor.deliver(task.id, { type: "request" })
    if (!lastWord) return undefined
    const { reason, askedAgain = false } = lastWord
    return { text: lastWordRequest(reason), withoutTools: askedAgain }
  }

  /** A request to a session's model is about to be sent. True where it must not be: its task is parked meanwhile. */
  holdsRequest(sessionID: string, model?: Model): boolean {
    const { store, clock } = this.#parts
    const task = store.bySession(sessionID)
    if (!task || !isActive(task) || store.isForeign(task.id)) return false
    if (!model || modelOf(task)) return this.#all.gates.holds(task)
    // One that works in a session of its own account has the model that its host chooses.
    const asks = { type: "asks", generation: task.run.generation, model } as const
    return this.#all.gates.holds(store.apply(task.id, asks, clock.now())?.after ?? task)
  }

  /**
   * The sessions of tasks at work from which a request may come that goes under the name of `named`: that one, and those
   * that ride on its cache. A session that is below none (`parentID`) rides on none.
   */
  asking(named: string, parentID: string | undefined): readonly string[] {
    const { store } = this.#parts
    const isNamed = ({ sessionID, fork }: Task) =>
      sessionID === named || (parentID !== undefined && fork?.rides === named)
    return store.active().flatMap((task) => (isNamed(task) && !store.isForeign(task.id) ? [task.sessionID] : []))
  }

  /** Has a parked task tried now, whatever the time. Throws a `CallError` where it is not parked. */
  async unpark(
    reference: string,
    sessionID: string,
    model?: string,
  ): Promise<{ view: TaskView; model: string; others: number }> {
    const task = this.#find(reference, sessionID)
    const wanted = model === undefined ? undefined : await chooseModel(this.#parts, model)
    const found = this.#all.gates.tryNow(task, this.#view(task).phase, wanted)
    return { view: this.#view(task), ...found }
  }

  /** The limit that a task's model is at, where it is not to send requests now. */
  limitOf(task: Task): ReturnType<Assembly["gates"]["limitOf"]> {
    return this.#all.gates.limitOf(task)
  }

  /** Why the session may not call this tool now; undefined where it may. */
  refusesTools(sessionID: string, tool: string): string | undefined {
    const { store, options } = this.#parts
    const task = store.bySession(sessionID)
    const { lastWord, custody } = this.#atWork(task) ?? {}
    if (lastWord && custody === "ours") return lastWordRefusal(lastWord.reason)
    return task && refusalTo(task, tool, options)
  }

  /** The session whose requests' beginning this one's share, for the provider's cache; undefined where it has its own. */
  rides(sessionID: string): string | undefined {
    return this.#parts.store.bySession(sessionID)?.fork?.rides
  }

  /** What a session's tasks took, and the project's within a day; those below them and forgotten ones are included. */
  spentBy(sessionID: string): Spent {
    return this.#all.ledger.spentBefore(sessionID)
  }

  /** The ids of the tasks that a reference names: one task, or all of a batch by its name. */
  idsOf(reference: string, sessionID: string): readonly string[] {
    return findTasks(reference, this.#parts.store.ofParent(sessionID)).map(({ id }) => id)
  }

  /**
   * A task as it is, with its answer if it has ended. `block`: wait up to so many ms for the end. The first look at an
   * ended task stamps it as retrieved.
   */
  async output(reference: string, caller: Caller, block = 0, signal?: AbortSignal): Promise<Report> {
    const { store, clock, journal } = this.#parts
    const own = store.ofParent(caller.sessionID)
    const parts = own.flatMap(({ team, sessionID }) => (team ? store.ofParent(sessionID) : []))
    const found = findTask(reference, parts.some(({ id }) => id === reference.trim()) ? parts : own)
    const { parked, at } = this.#view(found)
    // A parked task whose provider opens later than the call waits will not end before that.
    const opensIn = (parked && whenOf(parked, at)?.in) ?? 0
    const waits = block > 0 && opensIn <= block
    if (waits) await this.#all.conductor.wait(found, block, signal)
    const seen = store.get(found.id)
    if (!seen) throw new CallError(`Task ${found.id} was cleared meanwhile.`)
    // The host stores what an aborted answer had so far when the abort is done.
    await this.#all.conductor.quiet(found.id)
    const task = store.get(found.id) ?? seen
    if (isActive(task)) return { view: this.#view(task), firstLook: false, ...(waits && { waited: block }) }
    const { text: answer, gone } = await this.#all.answers.of(task)
    const now = clock.now()
    const change = store.apply(task.id, { type: "retrieved", at: now }, now)
    if (change) journal.saveLater(change.after)
    const shown = await this.#all.kept.shown(task)
    return { view: this.#view(change?.after ?? task), answer, gone, firstLook: change !== undefined, shown }
  }

  /** Brings home what an ended task changed in a place of its own. */
  async merge(reference: string, caller: Caller): Promise<TaskView> {
    const { store } = this.#parts
    const found = this.#find(reference, caller.sessionID)
    await this.#all.conductor.closed(found.id)
    const task = await this.#all.kept.settle(store.get(found.id) ?? found)
    if (isUnmerged(task)) await permitEdit(caller, task.id, await this.#all.kept.filesOf(task))
    return this.#view(await this.#all.kept.merge(task))
  }

  /** True for the session of a task that began from nothing, or with all that such a one was told. */
  isFresh(sessionID: string): boolean {
    const task = this.#parts.store.bySession(sessionID)
    return task !== undefined && isBriefed(task)
  }

  /** The tasks that a session launched, oldest first. */
  list(sessionID: string, filter: { status?: Status; batch?: string } = {}): readonly TaskView[] {
    const own = this.#parts.store.ofParent(sessionID)
    const batch = filter.batch === undefined ? undefined : findBatch(filter.batch, own)
    return own
      .filter((task) => filter.status === undefined || task.status === filter.status)
      .filter((task) => filter.batch === undefined || task.batch === batch)
      .map((task) => this.#view(task))
  }

  /** Ended tasks of a session that were dropped to keep its history short although nobody had read them. */
  droppedUnread(sessionID: string): number {
    return this.#all.retention.droppedUnread(sessionID)
  }

  /**
   * Ends the selected tasks that run, and really stops them; of those that have completed, what is still done to merge
   * their work. Returns those that ended or were stopped by it, with those that waited for them.
   */
  async cancel(selector: CancelSelector, caller: Caller): Promise<readonly TaskView[]> {
    const { store } = this.#parts
    const own = store.ofParent(caller.sessionID)
    const selected = selectRunning(selector, own, store)
    const merging = selected.filter(({ id }) => store.isMerging(id))
    // The newest first: those that wait for others come after them, and are ended for what they are.
    for (const { id, run } of selected.toReversed())
      this.#all.conductor.end(id, run.generation, CANCELLED, { wake: false })
    const cancelled = own.filter((task) => isActive(task) && store.get(task.id)?.status === "cancelled")
    const ended = own.filter((task) => cancelled.includes(task) || merging.includes(task))
    await Promise.all(ended.map(({ id }) => this.#all.conductor.closed(id)))
    return ended.flatMap(({ id }) => store.get(id) ?? []).map((task) => this.#view(task))
  }

  /** Forgets the session's tasks; what runs is stopped first and nobody is told. Their sessions stay. */
  async clear(sessionID: string): Promise<Cleared> {
    const { store } = this.#parts
    const own = store.ofParent(sessionID)
    const tasks = own.filter((task) => !store.isForeign(task.id))
    const left = own.length - tasks.length
    const newestFirst = tasks.toReversed()
    const stopped = newestFirst.filter(({ id, run }) =>
      this.#all.conductor.end(id, run.generation, CANCELLED, { silent: true }),
    )
    await Promise.all(tasks.map(({ id }) => this.#all.conductor.closed(id)))
    const all = tasks.flatMap((task) => [store.get(task.id) ?? task, ...store.below(task)])
    const unmerged = await this.#all.kept.clear(all)
    await Promise.all(tasks.map((task) => this.#all.forget(task)))
    this.#all.retention.forgetSession(sessionID)
    return {
      cleared: tasks.length,
      stopped: stopped.length,
      ...(unmerged.length > 0 && { unmerged }),
      ...(left > 0 && { left }),
    }
  }

  /** Begins a run in a session that stands by itself, of which nobody is told. */
  async run(request: UnattendedRequest): Promise<TaskView> {
    return this.#view(await this.#all.unattended.run(request))
  }

  /** A person has written in such a session: that is a run, too. Undefined where it is not, or joins one. */
  async adoptRun(request: Omit<UnattendedRequest, "prompt">, messageID: string): Promise<TaskView | undefined> {
    const task = await this.#all.unattended.adopt(request, messageID)
    return task && this.#view(task)
  }

  /** Why no run may begin in such sessions now, by the limits on what is spent: undefined of one where it may. */
  refusals(): Promise<(sessionID: string | undefined) => string | undefined> {
    return this.#all.unattended.refusals()
  }

  /** Stops such a run, for the person who wants that, or for the purse that ends. False where there is none. */
  stopRun(sessionID: string, why?: "purse"): Promise<boolean> {
    return this.#all.unattended.stop(sessionID, why === "purse" ? PURSE_ENDED : STOPPED)
  }

  /** Sessions that stand by themselves are paid from this purse; undefined where there is none (any more). */
  usePurse(purse: Purse | undefined): void {
    this.#all.ledger.usePurse(purse)
    this.#all.timekeeper.wake()
  }

  /** What all runs took of the task whose own session this is, and the tasks below it. */
  took(sessionID: string): Usage {
    const task = this.#parts.store.bySession(sessionID)
    return task ? this.#all.ledger.ofTask(task.id) : NO_USAGE
  }

  /** What the purse's runs took since it was opened, and what those at work may need for their last words. */
  ofPurse(): NonNullable<Spent["purse"]> {
    return this.#all.ledger.ofPurse()
  }

  /** The task whose own session this is. */
  taskIn(sessionID: string): TaskView | undefined {
    const task = this.#parts.store.bySession(sessionID)
    return task && this.#view(task)
  }

  /** Whether a session is that of a task that was launched, or lies below one. */
  isLaunched(sessionID: string): boolean {
    const task = this.#parts.store.responsibleFor(sessionID)
    return task !== undefined && !isUnattended(task)
  }

  /** The session of a task that nobody launched; undefined for any other. */
  standing(taskID: string): string | undefined {
    const task = this.#parts.store.get(taskID)
    return task && isUnattended(task) ? task.sessionID : undefined
  }

  /** Whether a message is one that was written by or for a task. */
  wrote(messageID: string): boolean {
    const id = this.#parts.host.taskOf(messageID)
    return id !== undefined && this.#parts.store.get(id) !== undefined
  }

  /** Looks at what other processes have made of their tasks since `since`. Never rejects. */
  async refresh(since: number): Promise<void> {
    await this.#all.recovery.discover(since)
    await this.#all.recovery.refreshForeign()
  }

  /** Takes in what happened in the host. Never throws; costs a look-up or two where the session is not ours. */
  handle(event: HostEvent): void {
    const { store, stopped } = this.#parts
    if (stopped.aborted) return
    const sessionID = event.type === "asked" ? event.ask.sessionID : event.sessionID
    if (event.type === "created") {
      if (event.parentID) store.adopt(sessionID, event.parentID)
      return
    }
    if (event.type === "error" && event.error.aborted) store.stopped(sessionID, true)
    if (event.type === "active" && !this.#all.outbox.isWaking(sessionID)) store.stopped(sessionID, false)
    if (event.type === "idle") this.#all.outbox.parentIdle(sessionID)
    if (event.type === "updated") this.#all.outbox.parentChanged(sessionID)
    if (event.type === "deleted") return this.#sessionDeleted(sessionID)
    if (event.type === "answered" && event.model) this.#all.holding.told(event.model, event.usage)
    const task = store.responsibleFor(sessionID)
    if (!task || store.isForeign(task.id)) return
    if (event.type === "began" && task.sessionID === sessionID) this.#all.holding.began(task)
    if (event.type === "updated" && event.request && task.sessionID === sessionID)
      this.#all.requests.take(task, event.request)
    if (isQueued(task) || (!isActive(task) && event.type !== "asked")) return
    // Its session here only stands for the one that works.
    if (this.#all.places.outlives(task)) return
    this.#all.timekeeper.noticeSleep()
    this.#all.conductor.deliver(task.id, { type: "heard", event })
    if (event.type === "began" && task.part) this.#all.conductor.deliver(task.part.of, { type: "parts" })
    if (task.sessionID === sessionID) this.#all.gates.hear(task, event)
    store.noticed(task.id)
  }

  /** One look at the host and at the limits, as the clock brings it about by itself. Never rejects. */
  tick(): Promise<void> {
    return this.#all.timekeeper.tick()
  }

  /** Ends timers and waiting calls; tasks and their sessions go on. */
  stop(): void {
    this.#stop.abort()
    this.#all.timekeeper.stop()
    this.#all.conductor.releaseAll()
  }

  /** Resolves when nothing is under way in the background. For tests and an orderly end. */
  settled(): Promise<void> {
    return this.#parts.background.idle()
  }

  /** What is known of its run while that has not ended: afterwards its session is its user's. */
  #atWork(task: Task | undefined) {
    return task && isActive(task) ? this.#parts.store.run(task.id) : undefined
  }

  #find(reference: string, sessionID: string): Task {
    return findTask(reference, this.#parts.store.ofParent(sessionID))
  }

  #sessionDeleted(sessionID: string): void {
    const { store, background } = this.#parts
    const task = store.bySession(sessionID)
    // Stopped as well: what a deleted session was doing goes on until somebody aborts it.
    if (task) this.#all.conductor.end(task.id, task.run.generation, DELETED)
    this.#all.outbox.parentDeleted(sessionID)
    store.forgetSession(sessionID)
    for (const own of store.ofParent(sessionID).reverse()) {
      this.#all.conductor.end(own.id, own.run.generation, PARENT_ENDED, { silent: true })
      background.run("parent deleted", async () => {
        await this.#all.conductor.closed(own.id)
        await this.#all.forget(own)
      })
    }
  }

  #view(task: Task): TaskView {
    const { store, clock } = this.#parts
    return viewOf(store.get(task.id) ?? task, store, clock.now())
  }
}
