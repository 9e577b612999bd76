import type { Bill } from "../../core/bill.ts"
import { endAfter } from "../../core/last-word.ts"
import type { HostEvent, Message } from "../../core/ports.ts"
import { needsBill } from "../../core/spending.ts"
import { type Ask, type Ending, isActive, isQueued, type Task } from "../../core/task.ts"
import { emptyAnswers, judge, keptTodos } from "../../core/verdict.ts"
import { demandOf, MOST_EMPTY_ANSWERS } from "../../core/watchdog.ts"
import type { LastWords } from "../limits/last-words.ts"
import type { Ledger } from "../limits/ledger.ts"
import type { Parts } from "../parts.ts"
import { type Circumstances, DELETED, type Endings } from "./endings.ts"
import type { ProgressTracker } from "./progress.ts"

/** How long an idle session may leave its prompt unanswered before that counts as the end. */
export const ANSWER_GRACE_MS = 10_000
/** The same for one in a folder of its own of which nothing was heard yet: the host starts an instance for it. */
const PLACE_GRACE_MS = 60_000
/**
 * How long a session whose host told of an error may still begin to answer: the error can be an earlier run's, heard
 * late, and a prompt that was just accepted has not begun.
 */
const ERROR_GRACE_MS = 1000

export type WatcherPorts = {
  readonly endings: Endings
  readonly ledger: Ledger
  readonly lastWords: LastWords
  /** True while a session is still to be told of its own tasks. */
  readonly owesNews: (sessionID: string) => boolean
  /** What a run was told was passed over by its host, which has let it rest. */
  readonly tellAgain: (task: Task, tracker: ProgressTracker, text: string) => void
  /** Something is due at this time: look again then at the latest. */
  readonly lookAgainAt: (at: number) => void
  /** Asked when a run is about to end as completed: false where it goes on, and will be looked at again. */
  readonly mayComplete: (task: Task) => Promise<boolean>
}

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
        return this.#spent(task, tracker)
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

  /** Does what the run's limits demand; `bill` is that of this moment, if it is known. */
  checkLimits(task: Task, tracker: ProgressTracker, bill?: Bill): void {
    const { background } = this.#parts
    const { ledger, lastWords, endings } = this.#ports
    const demand = demandOf(ledger.watched(task, tracker, bill))
    if (!demand) return
    const { action, reason } = demand
    if (action === "warn") return lastWords.ask(task, tracker, reason)
    if (action === "interrupt") return lastWords.askAgain(task, tracker)
    const end = () => endings.end(task.id, task.run.generation, { type: "failed", reason })
    if (tracker.lastWord?.state === "spoke")
      return background.run("check a last word", async () => {
        if (!(await this.#hasAnswered(task))) end()
      })
    if (reason.code === "silence") return this.#checkSilence(task, tracker, end)
    if (reason.code === "empty")
      background.run("check empty answers", async () => {
        if (await this.#isEmpty(task, tracker)) end()
      })
    else end()
  }

  /** Where no event tells what a run spends, and a limit asks for it, its messages do. */
  count(task: Task, tracker: ProgressTracker): void {
    const { options, background, host } = this.#parts
    if (options.maxTokensPerTask === 0 && !needsBill(options, task)) return
    background.run("count what a run spends", async () => {
      tracker.read(await host.messagesSince(task.sessionID, task.run.promptID))
      this.#spent(task, tracker)
    })
  }

  /** What one run spends counts for the limits that others share with it, and for the budgets of those above it. */
  #spent(task: Task, tracker: ProgressTracker): void {
    const { store } = this.#parts
    const bill = this.#ports.ledger.now()
    this.checkLimits(task, tracker, bill)
    for (const other of bill ? store.active() : this.#above(task)) {
      const its = store.tracker(other.id)
      if (other.id !== task.id && its && !isQueued(other)) this.checkLimits(other, its, bill)
    }
  }

  /** The tasks that launched this one, and that one in turn. */
  #above({ parentID }: Task): readonly Task[] {
    const { store } = this.#parts
    const parent = store.bySession(parentID)
    return parent && !store.isForeign(parent.id) ? [parent, ...this.#above(parent)] : []
  }

  /** Asks the host for the open questions of these tasks, of which nothing is heard. */
  async lookForAsks(tasks: readonly Task[]): Promise<void> {
    const { host, store } = this.#parts
    const open = await host.openAsks()
    for (const task of tasks) {
      const tracker = store.tracker(task.id)
      if (!tracker || tracker.heard) continue
      const known = tracker.snapshot().asks
      const own = open.filter(({ sessionID }) => store.responsibleFor(sessionID)?.id === task.id)
      for (const { id } of known) if (!own.some((ask) => ask.id === id)) tracker.replied(id)
      for (const ask of own) if (!known.some(({ id }) => id === ask.id)) this.#asked(task, tracker, ask)
    }
  }

  #asked(task: Task, tracker: ProgressTracker, ask: Ask): void {
    const { options, host, toaster } = this.#parts
    tracker.asked(ask)
    if (options.permissionTimeout > 0) this.#ports.lookAgainAt(ask.askedAt + options.permissionTimeout)
    toaster.asked(task, ask)
    host.log("info", "a task waits for an answer", { task: task.id, session: ask.sessionID, what: ask.what })
  }

  /** One look at a time: a second one would find what the first has just seen, and nothing new in it. */
  #checkSilence(task: Task, tracker: ProgressTracker, end: () => void): void {
    if (tracker.looking) return
    tracker.looking = true
    this.#parts.background.run("check silence", async () => {
      try {
        if (await this.#isSilent(task, tracker)) end()
      } finally {
        tracker.looking = false
      }
    })
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

  /** The step in which it spoke may have been its last: then its messages end it. */
  async #hasAnswered({ id, sessionID, run }: Task): Promise<boolean> {
    const messages = await this.#parts.host.messagesSince(sessionID, run.promptID)
    const answered = judge(messages, "working") !== undefined
    if (answered) this.inspect(id)
    return answered
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
    if (!task || !tracker || !isActive(task) || isQueued(task) || tracker.held) return
    const { sessionID, run } = task
    const waited = this.#waitsForOwn(task)
    let messages = await host.messagesSince(sessionID, run.promptID)
    let ending = judge(messages, "working")
    if (!ending) {
      if (messages.length === 0 && !(await host.session(sessionID))) return this.#end(task, DELETED)
      if ((await host.activity()).has(sessionID)) return
      // What was said between the two looks is not in the messages yet.
      messages = await host.messagesSince(sessionID, run.promptID)
      const unread = tracker.unread(messages)
      if (unread !== undefined) return this.#ports.tellAgain(task, tracker, unread)
      ending = this.#patiently(task, tracker, judge(messages, "idle", tracker.error))
    }
    tracker.read(messages)
    tracker.arrived(messages)
    if (!ending || this.#isStillTold(tracker)) return
    ending = endAfter(ending, tracker.lastWord, messages)
    const openTodos = keptTodos(messages) ? await host.openTodos(sessionID) : 0
    if (ending.type === "completed") {
      // What it was told of its own tasks while its messages were read is not in them yet.
      if (waited || this.#waitsForOwn(task) || this.#waitsForTodos(tracker, openTodos)) {
        // Its turn ended before it could read that it is near a limit.
        if (tracker.lastWord) this.#ports.lastWords.askIfResting(task, tracker)
        return
      }
      if (!(await this.#ports.mayComplete(task))) return
    }
    // Once more, with nothing awaited between this look and the end: what it was told meanwhile it has not read yet.
    if (this.#isStillTold(tracker)) return
    // That its check passed, or what its place holds, is not in its messages.
    const proven = ending.proven && task.run.check === undefined && task.place === undefined
    this.#end(task, { ...ending, proven }, { messages, openTodos })
  }

  /** A message is on its way to it. One that the host has taken and still does not show after a while never comes. */
  #isStillTold(tracker: ProgressTracker): boolean {
    const since = tracker.missingSince(this.#parts.clock.now())
    return since !== undefined && this.#isBefore(since + ANSWER_GRACE_MS)
  }

  /** Its own tasks run, or it is still to be told of one that has ended. */
  #waitsForOwn({ sessionID }: Task): boolean {
    return this.#parts.store.hasOpen(sessionID) || this.#ports.owesNews(sessionID)
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
  #patiently(task: Task, tracker: ProgressTracker, ending: Ending | undefined): Ending | undefined {
    if (!ending || ending.proven) return ending
    tracker.stuckSince ??= this.#parts.clock.now()
    const grace = task.place && !tracker.heard ? PLACE_GRACE_MS : ANSWER_GRACE_MS
    const due = tracker.error ? tracker.error.at + ERROR_GRACE_MS : tracker.stuckSince + grace
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

const toolRuns = (message: Message | undefined): boolean =>
  message?.parts.some((part) => part.type === "tool" && part.state === "running") ?? false
