import { CallError } from "../core/errors.ts"
import { taskOfMessage } from "../core/ids.ts"
import type { Clock, Host, HostEvent } from "../core/ports.ts"
import type { Spent } from "../core/spending.ts"
import { type Ending, isActive, isQueued, isUnattended, isUnmerged, type Status, type Task } from "../core/task.ts"
import { type Answer, compose, wantsAnswer } from "../delivery/compose.ts"
import { Outbox } from "../delivery/outbox.ts"
import { Toaster } from "../delivery/toaster.ts"
import type { ForkHost } from "../fork/ports.ts"
import type { Options } from "../options.ts"
import type { Shown } from "../place/worktrees.ts"
import { Allowance } from "./allowance.ts"
import { Answers } from "./answers.ts"
import { Background } from "./background.ts"
import { type Caller, permitEdit } from "./checks.ts"
import { type ClosingStep, Endings, PARENT_ENDED } from "./endings.ts"
import { Journal } from "./journal.ts"
import { LastWords, type WordInRequest } from "./last-words.ts"
import { Launcher, type LaunchRequest, type ResumeRequest } from "./launcher.ts"
import { Ledger } from "./ledger.ts"
import { type CancelSelector, findBatch, findTask, selectRunning } from "./lookup.ts"
import { newsOf } from "./news.ts"
import { Overview } from "./overview.ts"
import type { Parts } from "./parts.ts"
import { type LoadWorktrees, Places } from "./places.ts"
import { Queue } from "./queue.ts"
import { Recovery } from "./recovery.ts"
import { Requests } from "./requests.ts"
import { Retention } from "./retention.ts"
import { TaskStore } from "./store.ts"
import { Teller } from "./teller.ts"
import { Timekeeper } from "./timekeeper.ts"
import { Unattended, type UnattendedRequest } from "./unattended.ts"
import { type TaskView, viewOf } from "./view.ts"
import { Waiting } from "./waiting.ts"
import { Watcher } from "./watcher.ts"
import { Checks } from "./work-checks.ts"

export type ManagerPorts = {
  readonly host: Host
  readonly forks: ForkHost
  readonly clock: Clock
  readonly options: Options
  /** Eight random lower-case letters or digits. */
  readonly randomID: () => string
  /** Marks notifications that carry a hidden hint. */
  readonly development: boolean
  /** Loads what makes places of their own for tasks; not called where no task has one. */
  readonly worktrees?: LoadWorktrees
}

/** The answer of an ended task, or none while it runs. `gone`: its session is, and the answer with it. */
export type Report = {
  readonly view: TaskView
  readonly answer?: string
  readonly gone?: boolean
  readonly firstLook: boolean
  /** What it changed in a place of its own. */
  readonly shown?: Shown
}

const CANCELLED: Ending = {
  type: "cancelled",
  reason: { code: "cancelled", text: "It was cancelled by the agent that launched it." },
}
const STOPPED: Ending = { type: "cancelled", reason: { code: "cancelled", text: "It was stopped." } }
/** Lines of a diff that are shown. */
const MOST_DIFF_LINES = 300
const DELETED: Ending = { type: "cancelled", reason: { code: "deleted", text: "Its session was deleted." } }

/**
 * Everything that can be done with tasks, for the tools on one side and the host's events on the other. Puts the parts
 * together and holds no state of its own.
 */
export class TaskManager {
  /** The tasks of all sessions. */
  readonly overview: Overview
  readonly #parts: Parts
  readonly #stop = new AbortController()
  readonly #outbox: Outbox
  readonly #endings: Endings
  readonly #checks: Checks
  readonly #places: Places
  readonly #allowance: Allowance
  readonly #queue: Queue
  readonly #launcher: Launcher
  readonly #watcher: Watcher
  readonly #timekeeper: Timekeeper
  readonly #answers: Answers
  readonly #retention: Retention
  readonly #recovery: Recovery
  readonly #requests: Requests
  readonly #ledger: Ledger
  readonly #waiting: Waiting
  readonly #lastWords: LastWords
  readonly #teller: Teller
  readonly #unattended: Unattended

  constructor(ports: ManagerPorts) {
    const parts = partsOf(ports, this.#stop.signal)
    this.#parts = parts
    this.#outbox = this.#newOutbox(ports)
    const load = ports.worktrees ?? (() => Promise.reject(new CallError("There are no worktrees here.")))
    this.#checks = new Checks(parts, () => this.#endings)
    this.#places = new Places(parts, load, this.#checks)
    // What is done between a run's end and its parent's being told, in this order.
    const steps: readonly ClosingStep[] = [
      (closing) => this.#places.leave(closing),
      (closing) => this.#checks.close(closing),
    ]
    this.#answers = new Answers(parts)
    this.#ledger = new Ledger(parts)
    this.#waiting = new Waiting(parts)
    this.#endings = new Endings(parts, this.#outbox, this.#answers, steps, () => this.#freed())
    const endings = this.#endings
    const { forks, randomID } = ports
    const watch = () => this.#timekeeper.wake()
    const [ledger, waiting, places, answers] = [this.#ledger, this.#waiting, this.#places, this.#answers]
    const allowance = new Allowance(parts, ledger)
    const queue = new Queue(parts, { endings, places, allowance, waiting, answers, watch })
    this.#allowance = allowance
    this.#queue = queue
    this.#launcher = new Launcher(parts, { endings, places, forks, randomID, queue, allowance })
    this.#lastWords = new LastWords(parts, endings)
    this.#unattended = new Unattended(parts, { endings, randomID, queue, allowance })
    this.#watcher = new Watcher(parts, {
      endings,
      ledger,
      lastWords: this.#lastWords,
      owesNews: (sessionID) => this.#outbox.owes(sessionID),
      lookAgainAt: (at) => this.#timekeeper.at(at),
      mayComplete: (task) => this.#checks.mayComplete(task),
    })
    this.#recovery = new Recovery(parts, endings, this.#outbox)
    this.#timekeeper = new Timekeeper(parts, this.#watcher, this.#recovery, ledger)
    this.#teller = new Teller(parts, queue, (taskID) => this.#watcher.inspect(taskID))
    this.#retention = new Retention(parts, waiting, (task) => this.#forget(task))
    this.overview = new Overview(parts, {
      endings,
      answers: this.#answers,
      discover: async (since) => {
        await this.#recovery.discover(since)
        this.#timekeeper.wake()
      },
      shown: (task) => this.#shown(task),
    })
    this.#requests = new Requests(parts, {
      endings,
      forget: (task) => this.#forget(task),
      resume: (task, prompt) => this.#launcher.resume(task, { prompt }),
      tell: (task, text) => this.#teller.tell(task, text),
    })
  }

  /** Finishes what an earlier process left of worktrees in the repository around a folder. Never rejects. */
  sweep(folder: string): Promise<void> {
    return this.#places.sweep(folder)
  }

  /** Brings back the tasks of an earlier process. Never rejects. */
  async recover(): Promise<void> {
    try {
      await this.#recovery.recover()
    } catch (error) {
      this.#parts.host.log("warn", "could not look for earlier tasks", { error: String(error) })
    }
    this.#timekeeper.wake()
  }

  /** To be awaited before a session's tasks are used: brings back those that it had in an earlier process. */
  async ready(sessionID: string): Promise<void> {
    await this.#recovery.ready(sessionID)
    this.#timekeeper.wake()
  }

  async launch(request: LaunchRequest, caller: Caller): Promise<{ view: TaskView; reused: boolean }> {
    const { task, reused } = await this.#launcher.launch(request, caller)
    this.#retention.prune(caller.sessionID)
    return { view: this.#view(task), reused }
  }

  async resume(reference: string, request: ResumeRequest, caller: Caller): Promise<TaskView> {
    return this.#view(await this.#launcher.resume(this.#find(reference, caller.sessionID), request, caller))
  }

  /** Says something to a task that has not ended; `waits`: it reads that behind its prompt, once it begins. */
  async tell(reference: string, text: string, caller: Caller): Promise<{ view: TaskView; waits: boolean }> {
    const task = this.#find(reference, caller.sessionID)
    const { waits } = await this.#teller.tell(task, text)
    return { view: this.#view(task), waits }
  }

  /** What the session's model is told with the request that is about to be sent; undefined for nothing. */
  inRequest(sessionID: string): WordInRequest | undefined {
    return this.#lastWords.inRequest(sessionID)
  }

  /** Why the session may call no tool now; undefined where it may. */
  refusesTools(sessionID: string): string | undefined {
    return this.#lastWords.refusal(sessionID)
  }

  /** What a session's tasks took, and the project's within a day; those below them and forgotten ones are included. */
  spentBy(sessionID: string): Spent {
    return this.#ledger.spentBefore(sessionID)
  }

  /**
   * A task as it is, with its answer if it has ended. `block`: wait up to so many ms for the end. The first look at an
   * ended task stamps it as retrieved.
   */
  async output(reference: string, caller: Caller, block = 0, signal?: AbortSignal): Promise<Report> {
    const { store, clock, journal } = this.#parts
    const found = this.#find(reference, caller.sessionID)
    if (block > 0) await this.#endings.wait(found, block, signal)
    const seen = store.get(found.id)
    if (!seen) throw new CallError(`Task ${found.id} was cleared meanwhile.`)
    // The host stores what an aborted answer had so far when the abort is done.
    await this.#endings.closed(found.id)
    const task = store.get(found.id) ?? seen
    if (isActive(task)) return { view: this.#view(task), firstLook: false }
    const { text: answer, gone } = await this.#answers.of(task)
    const now = clock.now()
    const change = store.apply(task.id, { type: "retrieved", at: now }, now)
    if (change && !store.isForeign(task.id)) journal.saveLater(change.after)
    const shown = await this.#shown(task)
    return { view: this.#view(change?.after ?? task), answer, gone, firstLook: change !== undefined, shown }
  }

  /** Brings home what an ended task changed in its own worktree. */
  async merge(reference: string, caller: Caller): Promise<TaskView> {
    const { store } = this.#parts
    const found = this.#find(reference, caller.sessionID)
    await this.#endings.closed(found.id)
    const task = store.get(found.id) ?? found
    if (isUnmerged(task)) await permitEdit(caller, task)
    return this.#view(await this.#places.merge(task))
  }

  /** True for the session of a task that began from nothing. */
  isFresh(sessionID: string): boolean {
    const task = this.#parts.store.bySession(sessionID)
    return task !== undefined && !isUnattended(task) && task.fork === undefined
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
    return this.#retention.droppedUnread(sessionID)
  }

  /** Ends the selected tasks that run, and really stops them. Returns those that it ended. */
  async cancel(selector: CancelSelector, caller: Caller): Promise<readonly TaskView[]> {
    const { store } = this.#parts
    const selected = selectRunning(selector, store.ofParent(caller.sessionID), ({ id }) => store.isForeign(id))
    // The newest first: those that wait for others come after them, and are ended for what they are.
    const ended = selected
      .toReversed()
      .filter(({ id, run }) => this.#endings.end(id, run.generation, CANCELLED, { wake: false }))
      .reverse()
    await Promise.all(ended.map(({ id }) => this.#endings.closed(id)))
    return ended.flatMap(({ id }) => store.get(id) ?? []).map((task) => this.#view(task))
  }

  /** Forgets the session's tasks; what runs is stopped first and nobody is told. Their sessions stay. */
  async clear(sessionID: string): Promise<{ cleared: number; stopped: number; unmerged?: readonly string[] }> {
    const { store } = this.#parts
    const tasks = store.ofParent(sessionID).filter((task) => !store.isForeign(task.id))
    const newestFirst = tasks.toReversed()
    const stopped = newestFirst.filter(({ id, run }) =>
      this.#endings.end(id, run.generation, CANCELLED, { silent: true }),
    )
    await Promise.all(tasks.map(({ id }) => this.#endings.closed(id)))
    const unmerged = await this.#places.clear(tasks.map((task) => store.get(task.id) ?? task))
    await Promise.all(tasks.map((task) => this.#forget(task)))
    this.#retention.forgetSession(sessionID)
    return { cleared: tasks.length, stopped: stopped.length, ...(unmerged.length > 0 && { unmerged }) }
  }

  /** Begins a run in a session that stands by itself, of which nobody is told. */
  async run(request: UnattendedRequest): Promise<TaskView> {
    return this.#view(await this.#unattended.run(request))
  }

  /** Stops such a run, for the person who wants that. False where there is none. */
  stopRun(sessionID: string): Promise<boolean> {
    return this.#unattended.stop(sessionID, STOPPED)
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
    const id = taskOfMessage(messageID)
    return id !== undefined && this.#parts.store.get(id) !== undefined
  }

  /** Looks at what other processes have made of their tasks since `since`. Never rejects. */
  async refresh(since: number): Promise<void> {
    await this.#recovery.discover(since)
    await this.#recovery.refreshForeign()
    this.#timekeeper.wake()
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
    if (event.type === "idle") this.#outbox.parentIdle(sessionID)
    if (event.type === "updated") this.#outbox.parentChanged(sessionID)
    if (event.type === "deleted") return this.#sessionDeleted(sessionID)
    const task = store.responsibleFor(sessionID)
    if (!task || store.isForeign(task.id)) return
    if (event.type === "updated" && event.request && task.sessionID === sessionID)
      this.#requests.take(task, event.request)
    const tracker = store.tracker(task.id)
    if (!tracker || isQueued(task)) return
    this.#timekeeper.noticeSleep()
    this.#watcher.observe(task, tracker, event)
    store.noticed(task.id)
  }

  /** One look at the host and at the limits, as the clock brings it about by itself. Never rejects. */
  tick(): Promise<void> {
    return this.#timekeeper.tick()
  }

  /** Ends timers and waiting calls; tasks and their sessions go on. */
  stop(): void {
    this.#stop.abort()
    this.#timekeeper.stop()
    this.#endings.releaseAll()
  }

  /** Resolves when nothing is under way in the background. For tests and an orderly end. */
  settled(): Promise<void> {
    return this.#parts.background.idle()
  }

  #newOutbox({ options, development }: ManagerPorts): Outbox {
    const { host, clock, store, journal, toaster, background, stopped } = this.#parts
    return new Outbox({
      host,
      clock,
      stopped,
      isKnown: (id) => store.get(id) !== undefined,
      compose: async (task) => {
        const wanted = options.notifyAnswerChars > 0 && wantsAnswer(newsOf(task, store, clock.now()))
        const answer = wanted ? await this.#answerTo(task) : undefined
        return compose({ ...newsOf(task, store, clock.now()), answer }, { ...options, development })
      },
      told: (task, state, handedOver) => this.#endings.told(task, state, handedOver),
      drained: (parentID, woken) => {
        toaster.flush()
        journal.flush(parentID)
        // A task that was told of its own without being woken may have ended long before.
        const parent = store.bySession(parentID)
        if (!woken && parent && isActive(parent)) this.#watcher.inspect(parent.id)
      },
      run: (what, work) => background.run(what, work),
    })
  }

  /** What a run has to tell its parent; undefined where that cannot be read now. */
  async #answerTo(task: Task): Promise<Answer | undefined> {
    const { store, host } = this.#parts
    const current = store.get(task.id)
    const next = current && current.run.generation > task.run.generation ? current.run.promptID : undefined
    try {
      return await this.#answers.ofClosed(task, next)
    } catch (error) {
      host.log("warn", "an answer could not be read for its notification", { task: task.id, error: String(error) })
      return undefined
    }
  }

  /** A diff that cannot be had is no reason to keep an answer back. */
  async #shown(task: Task): Promise<Shown | undefined> {
    try {
      return await this.#places.show(task, MOST_DIFF_LINES)
    } catch (error) {
      this.#parts.host.log("warn", "a task's changes could not be read", { task: task.id, error: String(error) })
      return undefined
    }
  }

  #find(reference: string, sessionID: string): Task {
    return findTask(reference, this.#parts.store.ofParent(sessionID))
  }

  /** A slot has become free, and some may wait for the task that has ended. */
  #freed(): void {
    this.#waiting.endStranded(this.#endings)
    this.#queue.pump()
    this.#timekeeper.rest()
  }

  async #forget(task: Task): Promise<void> {
    this.#ledger.keep(this.#parts.store.get(task.id) ?? task)
    this.#parts.store.remove(task.id)
    this.#waiting.endStranded(this.#endings)
    this.#answers.forget(task.id)
    this.#checks.forget(task.id)
    await this.#parts.journal.erase(task)
  }

  #sessionDeleted(sessionID: string): void {
    const { store, background } = this.#parts
    const task = store.bySession(sessionID)
    // Stopped as well: what a deleted session was doing goes on until somebody aborts it.
    if (task) this.#endings.end(task.id, task.run.generation, DELETED)
    store.forgetDescendant(sessionID)
    this.#outbox.parentDeleted(sessionID)
    this.#allowance.forgetSession(sessionID)
    this.#retention.forgetSession(sessionID)
    this.#recovery.forget(sessionID)
    for (const own of store.ofParent(sessionID).reverse()) {
      this.#endings.end(own.id, own.run.generation, PARENT_ENDED, { silent: true })
      background.run("parent deleted", async () => {
        await this.#endings.closed(own.id)
        await this.#forget(own)
      })
    }
  }

  #view(task: Task): TaskView {
    const { store, clock } = this.#parts
    return viewOf(store.get(task.id) ?? task, store, clock.now())
  }
}

function partsOf({ host, clock, options }: ManagerPorts, stopped: AbortSignal): Parts {
  const store = new TaskStore(
    options.verbose
      ? (before, after, { type }) =>
          host.log("info", "transition", {
            task: after.id,
            event: type,
            generation: after.run.generation,
            from: before.status,
            to: after.status,
          })
      : undefined,
  )
  const background = new Background((what, error) => {
    if (!stopped.aborted) host.log("error", `${what} failed`, { error: String(error) })
  })
  const own = (id: string) => (store.isForeign(id) ? undefined : store.get(id))
  const journal = new Journal(host, clock, stopped, { newest: own, takenOver: (id) => store.disown(id) })
  return { host, clock, options, store, journal, toaster: new Toaster({ host, clock, options }), background, stopped }
}
