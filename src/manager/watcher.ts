import type { Clock, Host, HostEvent, Message } from "../core/ports.ts"
import { type Ask, addUsage, isActive, isQueued, type Task } from "../core/task.ts"
import { changedFiles, judge, judgeLastAnswer, keptTodos, usageIn, type Verdict } from "../core/verdict.ts"
import { overrun } from "../core/watchdog.ts"
import type { Toaster } from "../delivery/toaster.ts"
import type { Options } from "../options.ts"
import type { Background } from "./background.ts"
import type { Ending, Lifecycle } from "./lifecycle.ts"
import type { ProgressTracker } from "./progress.ts"
import type { TaskStore } from "./store.ts"

/** How long an idle session may leave its prompt unanswered before that counts as the end. */
export const ANSWER_GRACE_MS = 10_000
/**
 * How long a session whose host told of an error may still begin to answer: the error can be an earlier run's, heard
 * late, and a prompt that was just accepted has not begun.
 */
const ERROR_GRACE_MS = 1000

export type WatcherPorts = {
  readonly host: Host
  readonly clock: Clock
  readonly options: Options
  readonly store: TaskStore
  readonly lifecycle: Lifecycle
  readonly toaster: Toaster
  readonly background: Background
  /** True while a session is still to be told of its own tasks. */
  readonly owesNews: (sessionID: string) => boolean
  /** Something is due at this time: look again then at the latest. */
  readonly lookAgainAt: (at: number) => void
  /** A run has to be stopped, with the reason it ends with. */
  readonly stop: (task: Task, ending: Ending) => void
}

/**
 * Finds out how runs fare. Events are hints, polling is the truth; both end in `inspect`, which reads the session's
 * messages and lets `judge` decide.
 */
export class Watcher {
  readonly #ports: WatcherPorts
  /** Tasks being inspected; true where something came in meanwhile and another look is due. */
  readonly #inspecting = new Map<string, boolean>()

  constructor(ports: WatcherPorts) {
    this.#ports = ports
  }

  /** Takes in one event of a session that works for a task. */
  observe(task: Task, tracker: ProgressTracker, event: HostEvent): void {
    const own = "sessionID" in event && event.sessionID === task.sessionID
    if (event.type === "idle") {
      tracker.retrying(undefined)
      if (own) this.inspect(task.id)
      return
    }
    // A session is also updated when a record is written there, by us: that is no sign of its life.
    if (event.type !== "updated") tracker.sign(this.#ports.clock.now())
    switch (event.type) {
      case "active":
        if (own) tracker.retrying(event.activity.type === "retry" ? event.activity : undefined)
        return
      case "tool":
        return tracker.tool(event.callID, event.tool, event.ended, event.messageID)
      case "text":
        return own ? tracker.text(event.partID, event.text, event.messageID) : undefined
      case "text-delta":
        return own ? tracker.textDelta(event.partID, event.delta, event.messageID) : undefined
      case "answered":
        return own ? this.#answered(task, tracker, event.messageID) : undefined
      case "updated":
        return own ? this.#used(task, tracker, event.usage) : undefined
      case "error":
        if (!own) return
        tracker.error = { ...event.error, at: this.#ports.clock.now() }
        return this.inspect(task.id)
      case "asked":
        return this.#asked(task, tracker, event.ask)
      case "replied":
        return tracker.replied(event.askID)
    }
  }

  /** Looks at a task's session soon; looks once more if asked while it looks. */
  inspect(taskID: string): void {
    if (this.#inspecting.has(taskID)) {
      this.#inspecting.set(taskID, true)
      return
    }
    this.#inspecting.set(taskID, false)
    this.#ports.background.run("inspect", async () => {
      try {
        await this.#inspect(taskID)
      } finally {
        const again = this.#inspecting.get(taskID)
        this.#inspecting.delete(taskID)
        if (again) this.inspect(taskID)
      }
    })
  }

  /** Ends the run if it has passed a limit. */
  checkLimits(task: Task, tracker: ProgressTracker): void {
    const { store, options, clock } = this.#ports
    const ownTasks = store.hasActive(task.sessionID)
    const reason = overrun(task, tracker.snapshot(), options, ownTasks, clock.now())
    if (!reason) return
    if (reason.code !== "silence") return this.#ports.stop(task, { type: "failed", reason })
    this.#ports.background.run("check silence", async () => {
      if (await this.#isSilent(task, tracker)) this.#ports.stop(task, { type: "failed", reason })
    })
  }

  #answered(task: Task, tracker: ProgressTracker, messageID: string): void {
    tracker.answered(messageID)
    this.checkLimits(task, tracker)
  }

  #used(task: Task, tracker: ProgressTracker, usage: Parameters<ProgressTracker["used"]>[0]): void {
    tracker.used(usage)
    this.checkLimits(task, tracker)
  }

  #asked(task: Task, tracker: ProgressTracker, ask: Ask): void {
    const { options, host, toaster } = this.#ports
    tracker.asked(ask)
    if (options.permissionTimeout > 0) this.#ports.lookAgainAt(ask.askedAt + options.permissionTimeout)
    toaster.asked(task, ask)
    host.log("info", "a task waits for an answer", { task: task.id, session: ask.sessionID, what: ask.what })
  }

  /** Events may have been missed: before silence ends a run, the host itself is asked what is new, and what is open. */
  async #isSilent(task: Task, tracker: ProgressTracker): Promise<boolean> {
    const { host, clock } = this.#ports
    const [last, session, asks] = await Promise.all([
      host.lastMessage(task.sessionID),
      host.session(task.sessionID),
      host.openAsks(),
    ])
    const look = JSON.stringify([last, session?.usage])
    const before = tracker.lastLook
    const newer = last !== undefined && last.createdAt > tracker.snapshot().lastSignAt
    tracker.lastLook = look
    for (const ask of asks) if (this.#ports.store.responsibleFor(ask.sessionID)?.id === task.id) tracker.asked(ask)
    const changed = before === undefined ? newer : before !== look
    const alive = changed || toolRuns(last) || tracker.snapshot().asks.length > 0
    if (alive) tracker.sign(clock.now())
    return !alive
  }

  async #inspect(taskID: string): Promise<void> {
    const { host, store } = this.#ports
    const task = store.get(taskID)
    if (!task || !isActive(task) || isQueued(task)) return
    const { promptID, generation } = task.run
    const waited = this.#waitsForOwn(task)
    const messages = await host.messagesSince(task.sessionID, promptID)
    const openTodos = keptTodos(messages) ? await host.openTodos(task.sessionID) : 0
    const gone = messages.length === 0 && (await host.session(task.sessionID)) === undefined
    const current = store.get(taskID)
    const tracker = store.tracker(taskID)
    if (!current || !tracker || !isActive(current) || current.run.generation !== generation) return
    if (gone) {
      this.#end(current, { type: "cancelled", reason: { code: "deleted", text: "Its session was deleted." } })
      return
    }
    const usage = addUsage(current.run.usageBefore, usageIn(messages))
    const facts = { openTodos, filesChanged: changedFiles(messages), usage }
    tracker.used(usage)
    const verdict = judge(messages)
    if (verdict.kind === "unanswered" || verdict.kind === "unfinished") {
      const ending = await this.#unanswered(current, tracker, messages)
      // Should the session begin to work after all, nobody would look after it any more.
      if (ending) this.#ports.stop(current, { ...facts, ...ending })
      return
    }
    // What it was told of its own tasks while its messages were read is not in them yet.
    if (verdict.kind === "completed" && (waited || this.#waitsForOwn(current))) return
    const ending = verdict.kind === "completed" ? this.#complete(tracker, verdict.note, openTodos) : endingOf(verdict)
    if (ending) this.#end(current, { ...facts, ...ending })
  }

  /** Its own tasks run, or it is still to be told of one that has ended. */
  #waitsForOwn({ sessionID }: Task): boolean {
    return this.#ports.store.hasActive(sessionID) || this.#ports.owesNews(sessionID)
  }

  /** A model has ended its turn well; somebody may go on with its todos, and is given a while for that. */
  #complete(tracker: ProgressTracker, note: string | undefined, openTodos: number): Ending | undefined {
    const { options, clock } = this.#ports
    const now = clock.now()
    if (openTodos > 0) {
      tracker.todosSince ??= now
      const due = tracker.todosSince + options.todoGrace
      if (now < due) {
        this.#ports.lookAgainAt(due)
        return undefined
      }
    }
    return { type: "completed", note }
  }

  /**
   * Nothing has answered the prompt yet. That is no news while the session works, or has only just been asked; a
   * session that stays idle so long will not answer any more.
   */
  async #unanswered(task: Task, tracker: ProgressTracker, messages: readonly Message[]): Promise<Ending | undefined> {
    const { host, clock } = this.#ports
    const activity = await host.activity()
    if (activity.has(task.sessionID)) return undefined
    const now = clock.now()
    tracker.stuckSince ??= now
    if (tracker.error && messages.length <= 1) {
      const due = tracker.error.at + ERROR_GRACE_MS
      if (now >= due) return endingOf({ kind: "failed", message: tracker.error.message })
      this.#ports.lookAgainAt(due)
      return undefined
    }
    if (now < tracker.stuckSince + ANSWER_GRACE_MS) {
      this.#ports.lookAgainAt(tracker.stuckSince + ANSWER_GRACE_MS)
      return undefined
    }
    const last = judgeLastAnswer(messages)
    if (last.kind !== "unanswered" && last.kind !== "unfinished") return endingOf(last)
    const text =
      last.kind === "unfinished"
        ? "The answer broke off: OpenCode stopped working on it without an error."
        : `OpenCode did not begin to answer the prompt within ${ANSWER_GRACE_MS / 1000} seconds.`
    return { type: "failed", reason: { code: "host", text } }
  }

  #end(task: Task, ending: Ending): void {
    this.#ports.lifecycle.end(task.id, task.run.generation, ending)
  }
}

const toolRuns = (message: Message | undefined): boolean =>
  message?.parts.some((part) => part.type === "tool" && part.state === "running") ?? false

function endingOf(verdict: Exclude<Verdict, { kind: "unanswered" | "unfinished" }>): Ending {
  if (verdict.kind === "completed") return { type: "completed", note: verdict.note }
  if (verdict.kind === "failed") return { type: "failed", reason: { code: "provider", text: verdict.message } }
  return { type: "cancelled", reason: { code: "aborted", text: "It was stopped in its own session." } }
}
