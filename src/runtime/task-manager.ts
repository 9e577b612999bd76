import { CallError } from "../core/errors.ts"
import type { Feature } from "../core/feature.ts"
import { lastWordRefusal, lastWordRequest } from "../core/last-word.ts"
import type { HostEvent } from "../core/ports.ts"
import type { Spent } from "../core/spending.ts"
import {
  type Ask,
  isActive,
  isBriefed,
  isUnattended,
  isUnmerged,
  type Model,
  modelOf,
  type Status,
  type Task,
} from "../core/task.ts"
import type { ForkHost } from "../features/forks/ports.ts"
import { type Assembly, assemble, type ManagerPorts } from "./assembly.ts"
import { goesOnByItself } from "./groups/plans.ts"
import { authorizeTell, type Caller, chooseModel, permitEdit, refusalTo } from "./launch/checks.ts"
import { copiedTasks, copiedText } from "./launch/copied.ts"
import type { LaunchRequest, ResumeRequest } from "./launch/request.ts"
import type { Unattended } from "./launch/unattended.ts"
import { refuseUntellable } from "./message-task.ts"
import type { Overview } from "./overview.ts"
import type { Parts } from "./parts.ts"
import type { PlaceKind, PlaceNews, Stirred } from "./places/place.ts"
import type { Report } from "./reports.ts"
import { type CancelSelector, findBatch, findTask, findTasks } from "./tasks/lookup.ts"
import { type Cleared, type TaskView, viewOf } from "./tasks/view.ts"

/** What goes along with a request to a session's model. */
type WordInRequest = { readonly text: string; readonly withoutTools: boolean }

/**
 * Everything that can be done with tasks, for the tools on one side and the host's events on the other. Holds no state of
 * its own: `assembly.ts` puts together what does the work.
 */
export class TaskManager {
  readonly #stop = new AbortController()
  readonly #all: Assembly
  readonly #parts: Parts
  readonly #forks: Pick<ForkHost, "history">

  /** Where tasks may work. */
  readonly kinds: readonly PlaceKind[]
  readonly features: readonly Feature[]

  constructor(ports: ManagerPorts) {
    this.kinds = ports.kinds
    this.features = ports.features
    this.#forks = ports.forks
    this.#all = assemble(ports, this.#stop.signal)
    this.#parts = this.#all.parts
  }

  /** The tasks of all sessions. */
  get overview(): Overview {
    return this.#all.overview
  }

  /** The runs that nobody launched: the board's. */
  get unattended(): Unattended {
    return this.#all.unattended
  }

  /** Finishes what an earlier process left of places around a folder. Never rejects. */
  sweep(folder: string): Promise<void> {
    return this.#all.kept.sweep(folder)
  }

  /** What a place tells by itself of a task that works there. */
  placeTold(taskID: string, news: PlaceNews | Stirred): void {
    if (news.type === "stirred") this.#all.poller.stirred(news)
    else this.#all.dispatcher.deliver(taskID, news)
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

  /** `lacks`: what its place will lack. */
  async launch(
    request: LaunchRequest,
    caller: Caller,
  ): Promise<{ view: TaskView; reused: boolean; lacks: string | undefined }> {
    const { task, reused } = await this.#all.launcher.launch(request, caller)
    this.#all.retention.prune(caller.sessionID)
    return { view: this.#view(task), reused, lacks: this.#parts.store.handle(task.id)?.lacks }
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

  /** Where the valid value of a task's run will lie, and the rows of a map; undefined where it has neither. */
  async resultsOf({ id, run, team }: Task): Promise<string | undefined> {
    if (team?.kind === "each") return team.file
    return run.schema && this.#all.values.fileOf(id)
  }

  /** Says something to a task that has not ended; `waits`: it reads that behind its prompt, once it begins. */
  async tell(reference: string, text: string, caller: Caller): Promise<{ view: TaskView; waits: boolean }> {
    const task = this.#find(reference, caller.sessionID)
    if (caller.authorize) {
      refuseUntellable(this.#parts, task.id)
      await authorizeTell(this.#parts, caller, task)
    }
    const { waits } = await this.#all.tell(task, text)
    return { view: this.#view(task), waits }
  }

  /** What the session's model is told with the request that is about to be sent; undefined for nothing. */
  inRequest(sessionID: string): WordInRequest | undefined {
    const task = this.#parts.store.bySession(sessionID)
    const { lastWord, heldBy } = this.#atWork(task) ?? {}
    if (!task || heldBy !== "ours") return undefined
    this.#all.dispatcher.deliver(task.id, { type: "request" })
    if (!lastWord) return undefined
    const { reason, askedAgain = false } = lastWord
    return { text: lastWordRequest(reason), withoutTools: askedAgain }
  }

  /**
   * A request to a session's model is about to be sent. True where it must not be: its task stands still meanwhile.
   * `compacts`: it compacts the session, by an agent that may have another model.
   */
  holdsRequest(sessionID: string, model?: Model, compacts = false): boolean {
    const { store, clock } = this.#parts
    const task = store.bySession(sessionID)
    if (!task || !isActive(task) || store.isForeign(task.id)) return false
    if (compacts) return this.#all.pausers.blocksRequest(task, model)
    if (!model || modelOf(task)) return this.#all.pausers.blocksRequest(task)
    // One that works in a session of its own account has the model that its host chooses.
    const asks = { type: "asks", generation: task.run.generation, model } as const
    return this.#all.pausers.blocksRequest(store.apply(task.id, asks, clock.now())?.after ?? task)
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

  /** Has a task that stands still tried now, whatever the time. Throws a `CallError` where it does not. */
  async unpark(
    reference: string,
    sessionID: string,
    model?: string,
  ): Promise<{ view: TaskView; model: string; others: number }> {
    const task = this.#find(reference, sessionID)
    if (this.#parts.store.isForeign(task.id))
      throw new CallError(`Task ${task.id} is run by another OpenCode process. Try it there.`)
    const wanted = model === undefined ? undefined : await chooseModel(this.#parts, model)
    const found = this.#all.pausers.retryNow(task, this.#view(task).phase, wanted)
    return { view: this.#view(task), ...found }
  }

  /** The limit that a task's model is at, where it is not to send requests now. */
  limitOf(task: Task): ReturnType<Assembly["breakers"]["limitOf"]> {
    return this.#all.breakers.limitOf(task)
  }

  /** Why the session may not call this tool now; undefined where it may. */
  refusesTools(sessionID: string, tool: string): string | undefined {
    const task = this.#parts.store.bySession(sessionID)
    const { lastWord, heldBy } = this.#atWork(task) ?? {}
    if (lastWord && heldBy === "ours") return lastWordRefusal(lastWord.reason)
    return task && refusalTo(this.#parts, task, tool)
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
  output(reference: string, caller: Caller, block = 0, signal?: AbortSignal): Promise<Report> {
    return this.#all.reporting.report(reference, caller.sessionID, block, signal)
  }

  /** The same of one task or member, or of all tasks of a batch by its name. */
  outputs(reference: string, caller: Caller, block = 0, signal?: AbortSignal): Promise<readonly Report[]> {
    return this.#all.reporting.reports(reference, caller.sessionID, block, signal)
  }

  /** Brings home what an ended task changed in a place of its own. */
  async merge(reference: string, caller: Caller): Promise<TaskView> {
    const { store } = this.#parts
    const found = this.#find(reference, caller.sessionID)
    await this.#all.dispatcher.closed(found.id)
    const task = await this.#all.kept.settle(store.get(found.id) ?? found, { signal: caller.abort })
    if (isUnmerged(task)) await permitEdit(caller, task.id, await this.#all.kept.filesOf(task))
    return this.#view(await this.#all.kept.merge(task))
  }

  /** True for the session of a task that began from nothing, or with all that such a one was told. */
  isFresh(sessionID: string): boolean {
    const task = this.#parts.store.bySession(sessionID)
    return task !== undefined && isBriefed(task)
  }

  /** True for the session of a task whose last message has to be valid against a schema. */
  answersInJSON(sessionID: string): boolean {
    return this.#parts.store.bySession(sessionID)?.run.schema !== undefined
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

  /**
   * What a session is told that asks for tasks which it has only in the past that `/fork` copied into it; undefined for
   * nothing. Its user is told once.
   */
  async copied(caller: Caller): Promise<string | undefined> {
    const tasks = await copiedTasks(this.#parts, this.#forks, caller)
    if (tasks.length === 0) return undefined
    this.#parts.toaster.copied(caller.sessionID, tasks.length)
    return copiedText(tasks)
  }

  /** Ended tasks of a session that were dropped to keep its history short although nobody had read them. */
  droppedUnread(sessionID: string): number {
    return this.#all.retention.droppedUnread(sessionID)
  }

  /** Ends the selected tasks that run; see `Cancelling`. Returns those that ended or were stopped by it. */
  async cancel(selector: CancelSelector, { sessionID }: Caller): Promise<readonly TaskView[]> {
    return (await this.#all.cancelling.cancel(selector, sessionID)).map((task) => this.#view(task))
  }

  /** Forgets the session's tasks; what runs is stopped first and nobody is told. Their sessions stay. */
  clear(sessionID: string): Promise<Cleared> {
    return this.#all.cancelling.clear(sessionID)
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

  /** A person has written to a session. */
  wrote(): void {
    this.#parts.attendance.wrote()
  }

  /** A person has opened the page. Returns what to call when it is closed. */
  opened(): () => void {
    return this.#parts.attendance.opened()
  }

  /** Takes in what happened in the host. Never throws; costs a look-up or two where the session is not ours. */
  handle(event: HostEvent): void {
    this.#all.eventRouter.take(event)
  }

  /** One look at the host and at the limits, as the clock brings it about by itself. Never rejects. */
  tick(): Promise<void> {
    return this.#all.poller.tick()
  }

  /** Ends timers and waiting calls; tasks and their sessions go on. */
  stop(): void {
    this.#stop.abort()
    this.#all.poller.stop()
    this.#all.dispatcher.releaseAll()
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

  #view(task: Task): TaskView {
    const { store, clock, attendance } = this.#parts
    const holdsBack = (each: Task) => this.#all.breakers.holdsBack(each)
    const until = (ask: Ask) => attendance.refusedAt(ask)
    return viewOf(store.get(task.id) ?? task, store, clock.now(), holdsBack, until)
  }
}
