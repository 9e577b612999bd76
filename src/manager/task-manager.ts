import { CallError } from "../core/errors.ts"
import type { Clock, Host, HostEvent } from "../core/ports.ts"
import { isActive, isQueued, type Status, type Task } from "../core/task.ts"
import { compose } from "../delivery/compose.ts"
import { Outbox } from "../delivery/outbox.ts"
import { Toaster } from "../delivery/toaster.ts"
import type { ForkHost } from "../fork/ports.ts"
import type { Options } from "../options.ts"
import { Answers } from "./answers.ts"
import { Background } from "./background.ts"
import { Companion } from "./companion.ts"
import { History } from "./history.ts"
import { Journal } from "./journal.ts"
import { type Caller, Launcher, type LaunchRequest, type ResumeRequest } from "./launcher.ts"
import { type Ending, Lifecycle } from "./lifecycle.ts"
import { type CancelSelector, findBatch, findTask, selectRunning } from "./lookup.ts"
import { newsOf } from "./news.ts"
import { Recovery } from "./recovery.ts"
import { Stopper } from "./stopper.ts"
import { TaskStore } from "./store.ts"
import { Timekeeper } from "./timekeeper.ts"
import { type TaskView, viewOf } from "./view.ts"
import { Watcher } from "./watcher.ts"

export type ManagerPorts = {
  readonly host: Host
  readonly forks: ForkHost
  readonly clock: Clock
  readonly options: Options
  /** Eight random lower-case letters or digits. */
  readonly randomID: () => string
  /** Marks notifications that carry a hidden hint. */
  readonly development: boolean
}

/** The answer of an ended task, or none while it runs. */
export type Report = { readonly view: TaskView; readonly answer?: string; readonly firstLook: boolean }

const CANCELLED_BY_PARENT = "It was cancelled by the agent that launched it."

/**
 * Everything that can be done with tasks, for the tools on one side and the host's events on the other. Puts the parts
 * together and holds no state of its own.
 */
export class TaskManager {
  readonly #ports: ManagerPorts
  readonly #store = new TaskStore()
  readonly #background: Background
  readonly #journal: Journal
  readonly #outbox: Outbox
  readonly #lifecycle: Lifecycle
  readonly #launcher: Launcher
  readonly #watcher: Watcher
  readonly #stopper: Stopper
  readonly #timekeeper: Timekeeper
  readonly #answers: Answers
  readonly #history: History
  readonly #recovery: Recovery
  readonly #companion: Companion
  /** Tasks that have ended and whose sessions are being stopped. */
  readonly #stopping = new Map<string, Promise<void>>()

  constructor(ports: ManagerPorts) {
    const { host, clock, options } = ports
    const store = this.#store
    this.#ports = ports
    const toaster = new Toaster(ports)
    this.#background = new Background((what, error) => host.log("error", `${what} failed`, { error: String(error) }))
    const background = this.#background
    this.#journal = new Journal(host, clock, (id) => store.get(id))
    this.#stopper = new Stopper(host, clock)
    this.#answers = new Answers(host, clock, options.resultCacheTTL)
    this.#outbox = new Outbox({
      host,
      clock,
      isKnown: (id) => store.get(id) !== undefined,
      compose: (task) => compose(newsOf(task, store, clock.now()), { ...options, development: ports.development }),
      advance: (task, state) => this.#advance(task, state),
      run: (what, work) => background.run(what, work),
    })
    this.#lifecycle = new Lifecycle({
      host,
      clock,
      options,
      store,
      journal: this.#journal,
      outbox: this.#outbox,
      toaster,
      background,
      freed: () => this.#freed(),
      orphaned: (task) => this.#halt(task, parentEnded),
    })
    this.#launcher = new Launcher({
      host,
      clock,
      options,
      store,
      toaster,
      forks: ports.forks,
      randomID: ports.randomID,
      watch: () => this.#timekeeper.wake(),
      save: (task) => this.#journal.save(task),
      stop: (task, ending) => this.#halt(task, ending),
      background: (what, work) => background.run(what, work),
    })
    this.#watcher = new Watcher({
      host,
      clock,
      options,
      store,
      lifecycle: this.#lifecycle,
      toaster,
      background,
      owesNews: (sessionID) => this.#outbox.owes(sessionID),
      lookAgainAt: (at) => this.#timekeeper.at(at),
      stop: (task, ending) => this.#halt(task, ending),
    })
    this.#recovery = new Recovery({
      host,
      clock,
      store,
      lifecycle: this.#lifecycle,
      outbox: this.#outbox,
      save: (task) => this.#journal.save(task),
      pump: () => {
        this.#launcher.pump()
        this.#timekeeper.wake()
      },
    })
    this.#timekeeper = new Timekeeper({
      host,
      clock,
      options,
      store,
      watcher: this.#watcher,
      recovery: this.#recovery,
      background,
      save: (task) => this.#journal.save(task),
    })
    this.#companion = new Companion({
      host,
      store,
      background,
      end: (task, ending) => this.#end(task, ending),
      forget: (task) => this.#forget(task),
      resume: (task, prompt) => this.#launcher.resume(task, { prompt }),
      save: (task) => this.#journal.save(task),
    })
    this.#history = new History({ store, options, forget: (task) => this.#forget(task), host })
  }

  /** Brings back the tasks of an earlier process. Never rejects. */
  async recover(): Promise<void> {
    try {
      await this.#recovery.recover()
      if (this.#store.foreignCount > 0) this.#timekeeper.wake()
    } catch (error) {
      this.#ports.host.log("warn", "could not look for earlier tasks", { error: String(error) })
    }
  }

  /** To be awaited before a session's tasks are used: brings back those that it had in an earlier process. */
  ready(sessionID: string): Promise<void> {
    return this.#recovery.ready(sessionID)
  }

  async launch(request: LaunchRequest, caller: Caller): Promise<{ view: TaskView; reused: boolean }> {
    const { task, reused } = await this.#launcher.launch(request, caller)
    this.#history.prune(caller.sessionID)
    return { view: this.#view(task), reused }
  }

  async resume(reference: string, request: ResumeRequest, caller: Caller): Promise<TaskView> {
    const task = await this.#launcher.resume(this.#find(reference, caller.sessionID), request)
    return this.#view(task)
  }

  /**
   * A task as it is, with its answer if it has ended. `block`: wait up to so many ms for the end. The first look at an
   * ended task stamps it as retrieved.
   */
  async output(reference: string, caller: Caller, block = 0, signal?: AbortSignal): Promise<Report> {
    const found = this.#find(reference, caller.sessionID)
    if (block > 0) await this.#lifecycle.wait(found, block, signal)
    const task = this.#store.get(found.id)
    if (!task) throw new CallError(`Task ${found.id} was cleared meanwhile.`)
    if (isActive(task)) return { view: this.#view(task), firstLook: false }
    // The host stores what an aborted answer had so far when the abort is done.
    await this.#stopping.get(task.id)
    const answer = await this.#answers.of(task)
    const now = this.#ports.clock.now()
    const change = this.#store.apply(task.id, { type: "retrieved", at: now }, now)
    if (change) this.#background.run("save", () => this.#journal.save(change.after))
    return { view: this.#view(change?.after ?? task), answer, firstLook: change !== undefined }
  }

  /** The tasks that a session launched, oldest first. */
  list(sessionID: string, filter: { status?: Status; batch?: string } = {}): readonly TaskView[] {
    const own = this.#store.ofParent(sessionID)
    const batch = filter.batch === undefined ? undefined : findBatch(filter.batch, own)
    return own
      .filter((task) => filter.status === undefined || task.status === filter.status)
      .filter((task) => filter.batch === undefined || task.batch === batch)
      .map((task) => this.#view(task))
  }

  /** Ended tasks of a session that were dropped to keep its history short although nobody had read them. */
  droppedUnread(sessionID: string): number {
    return this.#history.droppedUnread(sessionID)
  }

  /** Ends the selected tasks that run, and really stops them. Returns those that it ended. */
  async cancel(selector: CancelSelector, caller: Caller): Promise<readonly TaskView[]> {
    const selected = selectRunning(selector, this.#store.ofParent(caller.sessionID), (task) =>
      this.#store.isForeign(task.id),
    )
    const ended = await Promise.all(selected.map((task) => this.#cancelOne(task)))
    return ended.flatMap((task) => (task ? [this.#view(task)] : []))
  }

  /** Forgets the session's tasks; what runs is stopped first and nobody is told. Their sessions stay. */
  async clear(sessionID: string): Promise<{ cleared: number; stopped: number }> {
    const tasks = this.#store.ofParent(sessionID).filter((task) => !this.#store.isForeign(task.id))
    const stopped = await Promise.all(tasks.map((task) => this.#end(task, { ...cancelled, silent: true })))
    await Promise.all(tasks.map((task) => this.#forget(task)))
    this.#history.forgetSession(sessionID)
    return { cleared: tasks.length, stopped: stopped.filter(Boolean).length }
  }

  /** Takes in what happened in the host. Never throws; costs a look-up or two where the session is not ours. */
  handle(event: HostEvent): void {
    const sessionID = event.type === "asked" ? event.ask.sessionID : event.sessionID
    if (event.type === "created") {
      if (event.parentID) this.#store.adopt(sessionID, event.parentID)
      return
    }
    if (event.type === "idle") this.#outbox.parentIdle(sessionID)
    if (event.type === "deleted") return this.#sessionDeleted(sessionID)
    const task = this.#store.responsibleFor(sessionID)
    if (event.type === "updated" && event.request && task?.sessionID === sessionID)
      this.#companion.take(task, event.request)
    const tracker = task && this.#store.tracker(task.id)
    if (task && tracker && !isQueued(task)) this.#watcher.observe(task, tracker, event)
  }

  /** One look at the host and at the limits, as the clock brings it about by itself. Never rejects. */
  tick(): Promise<void> {
    return this.#timekeeper.tick()
  }

  /** Ends timers and waiting calls; tasks and their sessions go on. */
  stop(): void {
    this.#timekeeper.stop()
    this.#outbox.stop()
    this.#journal.stop()
    this.#lifecycle.releaseAll()
  }

  /** Resolves when nothing is under way in the background. For tests and an orderly end. */
  settled(): Promise<void> {
    return this.#background.idle()
  }

  #find(reference: string, sessionID: string): Task {
    return findTask(reference, this.#store.ofParent(sessionID))
  }

  async #cancelOne(task: Task): Promise<Task | undefined> {
    const ended = await this.#end(task, { ...cancelled, wake: false })
    return ended ? this.#store.get(task.id) : undefined
  }

  /** Ends a run and stops its session; resolves when that is done, or has taken too long. */
  async #end(task: Task, ending: Ending): Promise<boolean> {
    const asks = this.#store.tracker(task.id)?.snapshot().asks ?? []
    const queued = isQueued(task)
    if (!this.#lifecycle.end(task.id, task.run.generation, ending)) return false
    if (queued) return true
    const stopping = this.#stopper.stop(task.sessionID, asks)
    this.#stopping.set(task.id, stopping)
    await stopping
    this.#stopping.delete(task.id)
    return true
  }

  #halt(task: Task, ending: Ending): void {
    this.#background.run("stop", () => this.#end(task, ending))
  }

  async #forget(task: Task): Promise<void> {
    this.#store.remove(task.id)
    this.#answers.forget(task.id)
    await this.#journal.erase(task)
  }

  async #advance(task: Task, state: "sent" | "confirmed" | "abandoned"): Promise<void> {
    const { clock, host } = this.#ports
    const event = { type: "notified", generation: task.run.generation, state } as const
    const change = this.#store.apply(task.id, event, clock.now())
    if (!change || state === "sent") return
    host.log("info", "task notified", { task: task.id, session: task.parentID, state })
    // After a crash the parent's own messages tell what it was told: this write may wait.
    if (state === "confirmed") this.#journal.saveLater(change.after)
    else await this.#journal.save(change.after)
    const parentTask = this.#store.bySession(task.parentID)
    if (parentTask && isActive(parentTask)) this.#timekeeper.wake()
  }

  #freed(): void {
    this.#launcher.pump()
    this.#timekeeper.rest()
  }

  #sessionDeleted(sessionID: string): void {
    const reason = { code: "deleted", text: "Its session was deleted." } as const
    const task = this.#store.bySession(sessionID)
    // Stopped as well: what a deleted session was doing goes on until somebody aborts it.
    if (task) this.#halt(task, { type: "cancelled", reason })
    this.#store.forgetDescendant(sessionID)
    this.#outbox.parentDeleted(sessionID)
    this.#launcher.forgetSession(sessionID)
    this.#history.forgetSession(sessionID)
    this.#recovery.forget(sessionID)
    for (const own of this.#store.ofParent(sessionID))
      this.#background.run("parent deleted", async () => {
        await this.#end(own, { ...parentEnded, silent: true })
        await this.#forget(own)
      })
  }

  #view(task: Task): TaskView {
    return viewOf(this.#store.get(task.id) ?? task, this.#store, this.#ports.clock.now())
  }
}

const cancelled: Ending = { type: "cancelled", reason: { code: "cancelled", text: CANCELLED_BY_PARENT } }

const parentEnded: Ending = {
  type: "cancelled",
  reason: { code: "parent-ended", text: "The agent that launched it has ended." },
  wake: false,
}
