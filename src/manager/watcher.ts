import type { HostEvent, Message } from "../core/ports.ts"
import { type Ask, type Ending, isActive, isQueued, type Task } from "../core/task.ts"
import { emptyAnswers, judge, keptTodos } from "../core/verdict.ts"
import { MOST_EMPTY_ANSWERS, overrun } from "../core/watchdog.ts"
import type { Circumstances, Endings } from "./endings.ts"
import type { Parts } from "./parts.ts"
import type { ProgressTracker } from "./progress.ts"

/** How long an idle session may leave its prompt unanswered before that counts as the end. */
export const ANSWER_GRACE_MS = 10_000
/**
 * How long a session whose host told of an error may still begin to answer: the error can be an earlier run's, heard
 * late, and a prompt that was just accepted has not begun.
 */
const ERROR_GRACE_MS = 1000

export type WatcherPorts = {
  readonly endings: Endings
  /** True while a session is still to be told of its own tasks. */
  readonly owesNews: (sessionID: string) => boolean
  /** Something is due at this time: look again then at the latest. */
  readonly lookAgainAt: (at: number) => void
  /** Asked when a run is about to end as completed: false where it goes on, and will be looked at again. */
  readonly mayComplete: (task: Task) => Promise<boolean>
}

const DELETED: Ending = { type: "cancelled", reason: { code: "deleted", text: "Its session was deleted." } }

/**
 * Finds out how runs fare. Events are hints, polling is the truth; both end in `inspect`, which reads the session's
 * messages and lets `judge` decide.
 */
export class Watcher {
  readonly #parts: Parts
  readonly #ports: WatcherPorts
  /** Tasks being inspected; true where something came in meanwhile and another look is due. */
  readonly #inspecting = new Map<string, boolean>()

  constructor(parts: Parts, ports: WatcherPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /** Takes in one event of a session that works for a task. */
  observe(task: Task, tracker: ProgressTracker, event: HostEvent): void {
    // A session is also updated when a record is written there, by us: that is no sign of its life.
    if (event.type === "updated") return
    const own = "sessionID" in event && event.sessionID === task.sessionID
    const now = this.#parts.clock.now()
    tracker.heard = true
    if (event.type === "idle") {
      tracker.retrying(undefined)
      if (own) this.inspect(task.id)
      return
    }
    tracker.sign(now)
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
        if (!own) return
        tracker.answered(event.messageID, event.usage)
        return this.checkLimits(task, tracker)
      case "error":
        if (!own) return
        tracker.error = { ...event.error, at: now }
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
    this.#parts.background.run("inspect", async () => {
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
    const { store, options, clock, background } = this.#parts
    const ownTasks = store.hasActive(task.sessionID)
    const reason = overrun(awake(task, tracker), tracker.snapshot(), options, ownTasks, clock.now())
    if (!reason) return
    const end = () => this.#ports.endings.end(task.id, task.run.generation, { type: "failed", reason })
    if (reason.code === "silence")
      background.run("check silence", async () => {
        if (await this.#isSilent(task, tracker)) end()
      })
    else if (reason.code === "empty")
      background.run("check empty answers", async () => {
        if (await this.#isEmpty(task, tracker)) end()
      })
    else end()
  }

  #asked(task: Task, tracker: ProgressTracker, ask: Ask): void {
    const { options, host, toaster } = this.#parts
    tracker.asked(ask)
    if (options.permissionTimeout > 0) this.#ports.lookAgainAt(ask.askedAt + options.permissionTimeout)
    toaster.asked(task, ask)
    host.log("info", "a task waits for an answer", { task: task.id, session: ask.sessionID, what: ask.what })
  }

  /** Events may have been missed: before silence ends a run, the host itself is asked what is new, and what is open. */
  async #isSilent(task: Task, tracker: ProgressTracker): Promise<boolean> {
    const { host, clock, store } = this.#parts
    const [last, asks] = await Promise.all([host.lastMessage(task.sessionID), host.openAsks()])
    const look = JSON.stringify(last)
    const before = tracker.lastLook
    const newer = last !== undefined && last.createdAt > tracker.snapshot().lastSignAt
    tracker.lastLook = look
    for (const ask of asks) if (store.responsibleFor(ask.sessionID)?.id === task.id) tracker.asked(ask)
    const changed = before === undefined ? newer : before !== look
    const alive = changed || toolRuns(last) || tracker.snapshot().asks.length > 0
    if (alive) tracker.sign(clock.now())
    return !alive
  }

  /** The same for answers that seem to be empty: what was in them may not have been heard. */
  async #isEmpty({ sessionID, run }: Task, tracker: ProgressTracker): Promise<boolean> {
    const messages = await this.#parts.host.messagesSince(sessionID, run.promptID)
    tracker.read(messages)
    return emptyAnswers(messages) >= MOST_EMPTY_ANSWERS
  }

  async #inspect(taskID: string): Promise<void> {
    const { host, store } = this.#parts
    const task = store.get(taskID)
    const tracker = store.tracker(taskID)
    if (!task || !tracker || !isActive(task) || isQueued(task)) return
    const { sessionID, run } = task
    const waited = this.#waitsForOwn(task)
    let messages = await host.messagesSince(sessionID, run.promptID)
    let ending = judge(messages, "working")
    if (!ending) {
      if (messages.length === 0 && !(await host.session(sessionID))) return this.#end(task, DELETED)
      if ((await host.activity()).has(sessionID)) return
      // What was said between the two looks is not in the messages yet.
      messages = await host.messagesSince(sessionID, run.promptID)
      ending = this.#patiently(tracker, judge(messages, "idle", tracker.error))
    }
    tracker.read(messages)
    if (!ending) return
    const openTodos = keptTodos(messages) ? await host.openTodos(sessionID) : 0
    if (ending.type === "completed") {
      // What it was told of its own tasks while its messages were read is not in them yet.
      if (waited || this.#waitsForOwn(task) || this.#waitsForTodos(tracker, openTodos)) return
      if (!(await this.#ports.mayComplete(task))) return
    }
    this.#end(task, ending, { messages, openTodos })
  }

  /** Its own tasks run, or it is still to be told of one that has ended. */
  #waitsForOwn({ sessionID }: Task): boolean {
    return this.#parts.store.hasActive(sessionID) || this.#ports.owesNews(sessionID)
  }

  /** A model has ended its turn well; somebody may go on with its todos, and is given a while for that. */
  #waitsForTodos(tracker: ProgressTracker, openTodos: number): boolean {
    const { options, clock } = this.#parts
    if (openTodos === 0) return false
    const now = clock.now()
    tracker.todosSince ??= now
    return this.#isBefore(tracker.todosSince + options.todoGrace)
  }

  /** What only its idleness says of a session has to hold for a while: it may have been asked just now. */
  #patiently(tracker: ProgressTracker, ending: Ending | undefined): Ending | undefined {
    if (!ending || ending.proven) return ending
    tracker.stuckSince ??= this.#parts.clock.now()
    const due = tracker.error ? tracker.error.at + ERROR_GRACE_MS : tracker.stuckSince + ANSWER_GRACE_MS
    return this.#isBefore(due) ? undefined : ending
  }

  /** Whether this time is still to come; there will be another look then. */
  #isBefore(due: number): boolean {
    if (this.#parts.clock.now() >= due) return false
    this.#ports.lookAgainAt(due)
    return true
  }

  #end(task: Task, ending: Ending, circumstances?: Circumstances): void {
    this.#ports.endings.end(task.id, task.run.generation, ending, circumstances)
  }
}

/** The task as its limits see it: the time for which this process slept does not count. */
export const awake = (task: Task, { asleep }: ProgressTracker): Task => {
  const { startedAt } = task.run
  return startedAt === undefined || asleep === 0
    ? task
    : { ...task, run: { ...task.run, startedAt: startedAt + asleep } }
}

const toolRuns = (message: Message | undefined): boolean =>
  message?.parts.some((part) => part.type === "tool" && part.state === "running") ?? false
