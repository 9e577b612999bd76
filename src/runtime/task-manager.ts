import { CallError } from "../core/errors.ts"
import type { Feature, RequestObserver } from "../core/feature.ts"
import { modelKey, modelKeyOf } from "../core/limits.ts"
import type { OpencodeEvent } from "../core/ports.ts"
import type { Spent } from "../core/spending.ts"
import {
  isActive,
  isBriefed,
  isPaused,
  isQueued,
  isUnattended,
  isUnmerged,
  type Model,
  machineOf,
  modelOf,
  type Status,
  type Task,
} from "../core/task.ts"
import { lastWordRefusal, lastWordRequest } from "../core/watchdog.ts"
import type { Cleared, Report, TaskView } from "../present/view.ts"
import { Archive } from "./archive.ts"
import { TaskCanceller } from "./cancel.ts"
import { engineOf, type ManagerPorts } from "./engine.ts"
import { EventRouter } from "./event-router.ts"
import { authorizeTell, type Caller, chooseModel, permitEdit, refusalTo } from "./launch/checks.ts"
import { Launcher } from "./launch/launcher.ts"
import type { LaunchRequest, ResumeRequest } from "./launch/request.ts"
import { resumesWithoutPrompt, TaskResumer } from "./launch/resuming.ts"
import type { PlaceEvent, PlaceKind, RemoteActivity } from "./places/place.ts"
import { Reports } from "./reports.ts"
import { Requests, refuseUntellable, tellTask } from "./requests.ts"
import { type CancelSelector, findBatch, findNamedBatch, findTask, viewOf } from "./tasks/view.ts"

export type Assembly = ReturnType<typeof assemble>

/** Creates the engine, and the parts that only use it: the API of tools, hooks, terminal, page and board. */
function assemble(ports: ManagerPorts, stopped: AbortSignal) {
  const engine = engineOf(ports, stopped)
  const archive = new Archive(engine)
  const launcher = new Launcher(engine)
  const resuming = new TaskResumer(engine)
  const reports = new Reports(engine, archive)
  const cancelling = new TaskCanceller(engine, archive)
  const requests = new Requests(engine, resuming, cancelling)
  const eventRouter = new EventRouter(engine, requests, cancelling)
  return { ...engine, archive, launcher, resuming, reports, cancelling, eventRouter }
}

/** Text added to a request to a session's model. */
type RequestAddition = { readonly text: string; readonly withoutTools: boolean }

/** API of the engine for tools and OpenCode's events. Stateless: `assemble` creates the parts. */
export class TaskManager {
  readonly #stop = new AbortController()

  /** The parts of the engine, for features that run sessions of their own. */
  readonly parts: Assembly
  readonly kinds: readonly PlaceKind[]
  readonly features: readonly Feature[]

  constructor(ports: ManagerPorts) {
    this.kinds = ports.kinds
    this.features = ports.features
    this.parts = assemble(ports, this.#stop.signal)
  }

  /** Parts of the features that observe model requests. */
  get observers(): readonly RequestObserver[] {
    return [...this.parts.bodies.values()].flatMap(({ requests }) => requests ?? [])
  }

  /** Handles an event of a place. */
  placeTold(taskID: string, news: PlaceEvent | RemoteActivity): void {
    if (news.type === "active") this.parts.poller.onRemoteActivity(news)
    else this.parts.dispatcher.deliver(taskID, news)
  }

  /** Recovers tasks of an earlier process. Never rejects. */
  recover(): Promise<void> {
    return this.parts.recovery.recover()
  }

  /** Recovers the session's tasks from earlier processes. Must be awaited before these tasks are used. */
  ready(sessionID: string): Promise<void> {
    return this.parts.recovery.ready(sessionID)
  }

  /** Launches a task. `lacks`: what the task's place will lack. */
  async launch(
    request: LaunchRequest,
    caller: Caller,
  ): Promise<{ view: TaskView; reused: boolean; lacks: string | undefined }> {
    const { task, reused } = await this.parts.launcher.launch(request, caller)
    this.parts.cancelling.prune(caller.sessionID)
    return { view: this.#view(task), reused, lacks: this.parts.store.handle(task.id)?.lacks }
  }

  async resume(reference: string, request: ResumeRequest, caller: Caller): Promise<TaskView> {
    const task = this.#find(reference, caller.sessionID)
    if (!resumesWithoutPrompt(task) && request.prompt === "")
      throw new CallError("Argument `prompt` is missing: what the agent shall do, or what it is told.")
    return this.#view(await this.parts.resuming.resume(task, request, caller))
  }

  /** Path of the file with the value or the rows of a task's run; undefined for none. */
  resultsOf(task: Task): string | undefined {
    const rows = task.group && this.parts.groupKindOf(task)?.rows?.(task.group)
    return rows ?? (task.run.schema && this.parts.results.valueOf(task.id))
  }

  /** Sends a message to an active task. `waits`: the task reads the message after a prompt that is not sent yet. */
  async tell(reference: string, text: string, caller: Caller): Promise<{ view: TaskView; waits: boolean }> {
    const task = this.#find(reference, caller.sessionID)
    if (caller.authorize) {
      refuseUntellable(this.parts, task.id)
      await authorizeTell(this.parts, caller, task)
    }
    const { waits } = await tellTask(this.parts, task, text)
    return { view: this.#view(task), waits }
  }

  /** Text to add to the session's next request; undefined for none. */
  inRequest(sessionID: string): RequestAddition | undefined {
    const task = this.parts.store.bySession(sessionID)
    const { lastWord, heldBy } = this.#atWork(task) ?? {}
    if (!task || heldBy !== "ours") return undefined
    this.parts.dispatcher.deliver(task.id, { type: "request" })
    if (!lastWord) return undefined
    const { reason, askedAgain = false } = lastWord
    return { text: lastWordRequest(reason), withoutTools: askedAgain }
  }

  /**
   * Called before each request to a session's model. Undefined where it may be sent now, otherwise a promise that
   * resolves when it may be sent: once the session of an ended run is stopped. A paused task's promise never resolves,
   * because its turn is aborted and its prompt is repeated later. `compacts`: the request is a compaction, whose agent may
   * use another model.
   */
  holdRequest(sessionID: string, model?: Model, compacts = false): Promise<void> | undefined {
    const task = this.parts.store.bySession(sessionID)
    if (!task || this.parts.store.isForeign(task.id)) return undefined
    // A new promise for each request: a shared one would keep the data of all held requests in memory.
    if (isActive(task)) return this.#isPaused(task, model, compacts) ? new Promise(() => {}) : undefined
    return this.parts.dispatcher.stopping(task.id)
  }

  #isPaused(task: Task, model: Model | undefined, compacts: boolean): boolean {
    // Before a run has begun, requests in its session belong to the session's user.
    if (isQueued(task)) return false
    const { pauser, store, clock } = this.parts
    if (compacts) return pauser?.blocksRequest(task, model) === true
    // For a task without a model of its own, the request shows which model OpenCode has chosen.
    const isNews = model !== undefined && modelOf(task) === undefined
    const asks = isNews ? ({ type: "asks", generation: task.run.generation, model } as const) : undefined
    const change = asks && store.apply(task.id, asks, clock.now())
    const asking = change?.after ?? task
    const isOther = model !== undefined && modelKey(model) !== modelKeyOf(asking)
    return pauser?.blocksRequest(asking, isOther ? model : undefined) === true
  }

  /** Resumes a paused task, or of a group a paused member, now. Throws a `CallError` where nothing is paused. */
  async unpark(
    reference: string,
    sessionID: string,
    model?: string,
  ): Promise<{ view: TaskView; model: string; others: number }> {
    const task = this.#find(reference, sessionID)
    if (this.parts.store.isForeign(task.id))
      throw new CallError(`Task ${task.id} is run by another OpenCode process. Only the user can try it, there.`)
    const machine = machineOf(task)
    if (model !== undefined && machine !== undefined)
      throw new CallError(
        `Task ${task.id} works on ${machine}, whose models are not known here: unpark it without \`model\`, or launch another task.`,
      )
    const wanted = model === undefined ? undefined : await chooseModel(this.parts, model)
    const paused = this.parts.store.membersOf(task).find((member) => isPaused(member.task))?.task ?? task
    const found = this.parts.retryNow(paused, this.#view(task).phase, wanted)
    return { view: this.#view(paused), ...found }
  }

  /** Why the session may not call this tool now; undefined where it may. */
  refusesTools(sessionID: string, tool: string): string | undefined {
    const task = this.parts.store.bySession(sessionID)
    const { lastWord, heldBy } = this.#atWork(task) ?? {}
    if (lastWord && heldBy === "ours") return lastWordRefusal(lastWord.reason)
    return task && refusalTo(this.parts, task, tool)
  }

  /** Session whose cache key the requests of this session use; undefined where they use their own session's key. */
  cacheSessionOf(sessionID: string): string | undefined {
    return this.parts.store.bySession(sessionID)?.fork?.rides
  }

  /** Usage of the session's tasks, and of the project within a day; descendants and forgotten tasks included. */
  spentBy(sessionID: string): Spent {
    return this.parts.ledger.spentBefore()(sessionID)
  }

  /** Like `spentBy`, with what other processes have spent by now. */
  async bill(sessionID: string): Promise<Spent> {
    await this.parts.ledger.lookAtForeign()
    return this.spentBy(sessionID)
  }

  /** Ids named by a reference: one task, or a batch. */
  async idsOf(reference: string, sessionID: string): Promise<readonly string[]> {
    const own = this.parts.store.ofParent(sessionID)
    const batch = findNamedBatch(reference, own)
    const tasks = batch.length > 0 ? batch : [await this.parts.reports.find(reference, own)]
    const all = tasks.map(async (task) => (task.group?.place ? this.parts.reports.completed(task) : [task]))
    return (await Promise.all(all)).flat().map(({ id }) => id)
  }

  /** Outputs of one task or member, or of a batch. */
  outputs(reference: string, caller: Caller, block = 0, signal?: AbortSignal): Promise<readonly Report[]> {
    return this.parts.reports.reports(reference, caller.sessionID, block, signal)
  }

  /** Merges an ended task's changes into its parent's folder. */
  async merge(reference: string, caller: Caller): Promise<TaskView> {
    const { store } = this.parts
    const found = await this.parts.reports.find(reference, store.ofParent(caller.sessionID))
    const kind = found.member && this.parts.groupKindOf(found)
    if (kind?.picksOne)
      throw new CallError(
        `Task ${found.id} is one of several ${kind.noun.many}: superagents_task(merge="${found.member?.of}") merges the one that passed.`,
      )
    // After a restart, the members of an ended group are read only where they are needed.
    if (!store.get(found.id)) await this.ready(found.parentID)
    await this.parts.dispatcher.closed(found.id)
    const task = await this.parts.archive.settle(store.get(found.id) ?? found, { signal: caller.abort })
    if (isUnmerged(task)) await permitEdit(caller, task.id, await this.parts.archive.filesOf(task))
    return this.#view(await this.parts.archive.merge(task))
  }

  /** Whether the session belongs to a task whose system prompt includes the briefing for fresh agents. */
  isFresh(sessionID: string): boolean {
    const task = this.parts.store.bySession(sessionID)
    return task !== undefined && isBriefed(task)
  }

  /** Whether the session belongs to a task whose last message is validated against a schema. */
  answersInJSON(sessionID: string): boolean {
    return this.parts.store.bySession(sessionID)?.run.schema !== undefined
  }

  /** The session's tasks, oldest first. Those of status "running" include the resumed ones. */
  list(sessionID: string, filter: { status?: Status; batch?: string } = {}): readonly TaskView[] {
    const own = this.parts.store.ofParent(sessionID)
    const batch = filter.batch === undefined ? undefined : findBatch(filter.batch, own)
    return own
      .filter((task) => filter.status === undefined || hasStatus(task, filter.status))
      .filter((task) => filter.batch === undefined || task.batch === batch)
      .map((task) => this.#view(task))
  }

  /**
   * Text for a session that asks for tasks which only its copied history names; undefined otherwise. The session's user
   * is told once.
   */
  async copied(caller: Caller): Promise<string | undefined> {
    for (const body of this.parts.bodies.values()) {
      const found = await body.copied?.(caller)
      if (!found) continue
      this.parts.toaster.copied(caller.sessionID, found.tasks)
      return found.text
    }
    return undefined
  }

  /** Cancels the selected tasks; see `TaskCanceller`. Returns the tasks that the call ended or stopped. */
  async cancel(selector: CancelSelector, { sessionID }: Caller): Promise<readonly TaskView[]> {
    return (await this.parts.cancelling.cancel(selector, sessionID)).map((task) => this.#view(task))
  }

  /** Clears the session's tasks. Running tasks are stopped without a notification, and all tasks' sessions stay. */
  clear(sessionID: string): Promise<Cleared> {
    return this.parts.cancelling.clear(sessionID)
  }

  /** The task whose own session this is. */
  taskIn(sessionID: string): TaskView | undefined {
    const task = this.parts.store.bySession(sessionID)
    return task && this.#view(task)
  }

  /** Whether the session belongs to a launched task, or lies below such a session. */
  isLaunched(sessionID: string): boolean {
    const task = this.parts.store.responsibleFor(sessionID)
    return task !== undefined && !isUnattended(task)
  }

  /** Handles an event of OpenCode. Never throws; costs one or two look-ups for sessions of other agents. */
  handle(event: OpencodeEvent): void {
    this.parts.eventRouter.take(event)
  }

  /** Stops timers and waiting calls; tasks and their sessions continue. */
  stop(): void {
    this.#stop.abort()
    this.parts.poller.stop()
    this.parts.dispatcher.releaseAll()
  }

  /** Active run of a task; an ended task's session belongs to its user. */
  #atWork(task: Task | undefined) {
    return task && isActive(task) ? this.parts.store.run(task.id) : undefined
  }

  #find(reference: string, sessionID: string): Task {
    return findTask(reference, this.parts.store.ofParent(sessionID))
  }

  #view(task: Task): TaskView {
    return viewOf(task, this.parts, this.parts.waits)
  }
}

const hasStatus = (task: Task, status: Status): boolean =>
  task.status === status || (status === "running" && isActive(task))
