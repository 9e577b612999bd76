import type { Prompt } from "../../src/core/ports.ts"
import { hasPendingNotification, isActive, isPaused, isQueued, isUnattended, type Task } from "../../src/core/task.ts"
import { messageID } from "../../src/opencode/messages.ts"
import type { CallFault } from "../support/fake-api.ts"
import type { StoredMessage } from "../support/fake-database.ts"
import type { Rig } from "../support/rig.ts"
import { WRONG } from "./kinds.ts"
import type { World } from "./world.ts"

/** OpenCode's time to store a message, in ms. */
const CROSSING_MS = 5
/** How long a run that has ended may be asked for something more after the last thing that went wrong, in ms. */
const SETTLING_MS = 6000
/** How soon a user may write after they have pressed ESC, in ms. */
const QUICKEST_MS = 20
/** A life has far fewer requests to models and calls to OpenCode: one with more goes round in circles. */
const MOST_HAPPENINGS = 3000

/** Looks on at a life, and says which promise was broken. */
export class Watch {
  readonly breaches: string[] = []
  /** Tasks that were told to be forgotten, with their parent or by it. */
  readonly forgotten = new Set<string>()
  /** Tasks whose end somebody waited for with a call. */
  readonly waitedFor = new Set<string>()
  /** Answers that their parent has fetched with a call, by task; the notification of such an end leaves them out. */
  readonly fetched = new Map<string, string>()
  /** Tasks that their parent has merged itself. */
  readonly mergedByHand = new Set<string>()
  /** Words that a task was told, by the task and its run, and by the text. */
  readonly words: { readonly taskID: string; readonly generation: number; readonly text: string }[] = []
  /** Sessions of which the user has undone something: what was said there may be gone. */
  readonly undone = new Set<string>()
  /** Tasks whose user has taken a prompt back and written another. */
  readonly rewritten = new Set<string>()
  /** Sessions of which it is heard late that their user has stopped them, or that they were at work before that. */
  readonly stoppedLate = new Set<string>()
  readonly figures = { inputs: 0, calls: 0, requests: 0, deaths: {} as Record<string, number> }
  restarts = 0
  /** Sessions that two processes woke before either could see the other's message: their turns never end. */
  readonly crossed = new Set<string>()
  readonly #wokenBy = new Map<string, { readonly rig: Rig; readonly at: number }>()
  /** Events were lost or came late: what they tell is known when somebody looks. */
  lostEvents = false
  /** One of them told of a question: nobody knows of that but OpenCode. */
  lostQuestion = false
  restartedAt = 0
  /** How long machines slept, calls were under way, and nobody looked since the process was dead, in ms. */
  slept = 0
  held = 0
  dead = 0
  readonly #world: World
  readonly #seen = new Map<string, Task>()
  /** Ends, by task and run, that were written or told; only where a process of another machine may settle a run, too. */
  readonly #stood = new Set<string>()
  readonly #read = new Map<string, string>()
  /** Of each parked task, since when it is parked and how many tools its agent had called. */
  readonly #steps = new Map<string, { readonly at: number; readonly calls: number }>()
  /** When the user of a session last did something there. */
  readonly #userAt = new Map<string, number>()
  /** Sessions whose user has stopped them, and has written nothing since. */
  readonly #silenced = new Map<string, number>()
  /** Of each task, what it waits for. */
  readonly #after = new Map<string, readonly string[]>()
  /** Sessions of tasks that were at work when they were cleared, and since when they are gone. */
  readonly #cleared = new Map<string, number>()
  #troubleAt = 0
  #happenings = 0
  /** A call is held back, however long: what follows from it comes late. */
  isHeld = false
  /** Lets go the calls that are held back at random. */
  letGo: () => void = () => undefined

  constructor(world: World) {
    this.#world = world
  }

  breach(what: string): void {
    this.#world.history.tell(() => `  !!! ${what}`)
    this.breaches.push(what)
  }

  launched(task: Task): void {
    if (task.run.after) this.#after.set(task.id, task.run.after)
  }

  /** A call or an event has met something: for a while what follows from it may come late. */
  meddled(fault?: CallFault): void {
    const slow = (typeof fault === "object" && fault.slow) || 0
    this.held += slow
    this.#troubleAt = Math.max(this.#troubleAt, this.#world.clock.now() + slow)
  }

  /** The machine falls asleep, and what was under way goes on when it wakes. */
  sleeping(ms: number): void {
    this.slept += ms
    this.#troubleAt = Math.max(this.#troubleAt, this.#world.clock.now() + ms)
  }

  /** So long after this time, and after the last thing that went wrong, that nothing may come of it any more. */
  isLate(since: number): boolean {
    return this.#world.clock.now() > Math.max(since, this.#troubleAt) + SETTLING_MS
  }

  userDid(sessionID: string): void {
    this.#userAt.set(sessionID, this.#world.clock.now())
  }

  /** Its user has stopped a session in the middle of a turn. */
  silenced(sessionID: string): void {
    this.#silenced.set(sessionID, this.#world.clock.now())
  }

  /**
   * Its model calls a tool: what stands in the session by now it reads in that turn. A turn that was stopped before a
   * crash is no more, so whoever calls since then does so at its user's word.
   */
  called(sessionID: string): void {
    if ((this.#silenced.get(sessionID) ?? Number.POSITIVE_INFINITY) < this.restartedAt) this.#silenced.delete(sessionID)
    const last = this.#world.opencode.database.sessions.get(sessionID)?.messages.at(-1)
    if (last) this.#read.set(sessionID, last.id)
  }

  /** The last message of a session that its model had read when it last called a tool. */
  readBy(sessionID: string): string | undefined {
    return this.#read.get(sessionID)
  }

  userWrote(sessionID: string): void {
    this.#silenced.delete(sessionID)
    this.userDid(sessionID)
  }

  /** Nobody stops a session and writes to it in the same moment. */
  mayWrite(sessionID: string): boolean {
    return this.#world.clock.now() - (this.#silenced.get(sessionID) ?? 0) > QUICKEST_MS
  }

  isSilent(sessionID: string): boolean {
    return this.#silenced.has(sessionID)
  }

  /** What was not written down when the process died never was: records, and words that OpenCode had just taken. */
  restarting(): void {
    const { deaths } = this.figures
    for (const { phase } of this.#world.manager.parts.reports.list()) {
      if (!phase) continue
      const what = phase.replaceAll(/bg_\w+/g, "a task").replace(/,? (until|next try) .*/, "")
      deaths[what] = (deaths[what] ?? 0) + 1
    }
    const { opencode, clock } = this.#world
    const isStored = ({ text }: { readonly text: string }) =>
      [...opencode.database.sessions.values()].some(({ messages }) => messages.some((message) => says(message, text)))
    this.words.splice(0, this.words.length, ...this.words.filter(isStored))
    this.restarts++
    this.dead += clock.now() - (opencode.diedAt ?? clock.now())
    for (const sessionID of [...this.#silenced.keys()])
      if (!this.#isStoredAsStopped(sessionID)) this.#silenced.delete(sessionID)
    // Of what could not be cleared the record is still there.
    this.#cleared.clear()
    this.restartedAt = clock.now()
    this.#troubleAt = clock.now()
    for (const [id, seen] of this.#seen) {
      const session = opencode.database.sessions.get(seen.sessionID)
      const record = session && opencode.database.recordIn(session)
      // Of a resume that was not written down either, the record is the run's before it.
      const isOlder = record !== undefined && record.task.run.generation < seen.run.generation
      // An end that was neither written nor told is none: another process has settled it otherwise meanwhile.
      const isOthers = record !== undefined && record.task.status !== seen.status && !this.#isTold(seen)
      if (!record || isActive(record.task) || isOlder || isOthers) this.#seen.delete(id)
    }
  }

  /** A call is made of OpenCode. */
  calling(rig: Rig, method: string, sessionID: string | undefined, about: unknown): void {
    const { manager } = rig
    this.figures.calls++
    this.#checkCircles()
    if (method !== "prompt" || !sessionID || (about as Prompt).noReply) return
    const { history, clock } = this.#world
    const last = this.#wokenBy.get(sessionID)
    if (last && last.rig !== rig && clock.now() - last.at < CROSSING_MS) this.crossed.add(sessionID)
    this.#wokenBy.set(sessionID, { rig, at: clock.now() })
    if (this.isSilent(sessionID) && this.#heardIt(rig) && !this.stoppedLate.has(sessionID))
      this.breach(`${history.nameOf(sessionID)} is woken after its user's ESC`)
    const task = manager.taskIn(sessionID)?.task
    if (!task || isActive(task) || task.status === "completed" || this.isUsers(task)) return
    // Its user may have asked for a task of it to be resumed before it ended.
    const { endedAt = 0 } = task.run
    if (this.#world.tasks.some(({ parentID, run }) => parentID === sessionID && run.createdAt > endedAt)) return
    this.breach(`${history.nameOf(sessionID)} has ended (${task.status}) and is asked to go on`)
  }

  /** A model is asked for its next step. */
  requested(rig: Rig, sessionID: string): void {
    this.figures.requests++
    this.#checkCircles()
    // Another machine goes on while the process that would stop its agents is dead, or nobody knows that it is.
    if (rig.opencode.isDead || this.#isLeftAlone) return
    const { clock, history } = this.#world
    const now = clock.now()
    if (this.isHeld) this.#troubleAt = Math.max(this.#troubleAt, now)
    const task = this.#ownedIn(sessionID) ?? rig.manager.taskIn(sessionID)?.task
    const isSilenced = this.isSilent(sessionID) && this.#heardIt(rig) && !this.stoppedLate.has(sessionID)
    if (isSilenced && now > this.#troubleAt + SETTLING_MS)
      this.breach(`the model of ${history.nameOf(sessionID)} is asked after its user's ESC`)
    if (task) this.#checkParked(task)
    else this.#checkCleared(sessionID)
    if (!task || isActive(task) || this.isUsers(task)) return
    const ended = Math.max(task.run.endedAt ?? 0, this.#troubleAt)
    if (now > ended + SETTLING_MS) this.breach(`the model of ${history.nameOf(sessionID)} is asked after its end`)
  }

  /** A session's task as the process that runs it knows it: what another one knows may be old. */
  #ownedIn(sessionID: string): Task | undefined {
    for (const { manager, opencode } of [this.#world.rig, this.#world.other]) {
      const task = opencode.isDead ? undefined : manager.taskIn(sessionID)?.task
      if (task && !manager.parts.reports.isForeign(task.id)) return task
    }
    return undefined
  }

  /**
   * Its tasks record that its user has stopped it, once they had the time to. Nobody takes them over where it is not known
   * that their process died.
   */
  #isStoredAsStopped(sessionID: string): boolean {
    const { opencode, endOptions } = this.#world
    if (endOptions.strangers) return false
    const { database } = opencode
    return database.children(sessionID).some((child) => {
      const { task } = database.recordIn(child) ?? {}
      return task?.run.parentStopped && (isActive(task) || hasPendingNotification(task))
    })
  }

  /** Only the process that a session was in hears that its user has stopped it. */
  #heardIt(rig: Rig): boolean {
    return rig === this.#world.rig
  }

  /** Nothing is asked for a parked run, but by its user. */
  #checkParked({ sessionID, run }: Task): void {
    const { clock, history } = this.#world
    if (!run.parked) return
    // A run that is parked before it begins leaves the turn alone that its user has begun meanwhile.
    const since = run.startedAt === run.parked.at ? run.createdAt : run.parked.at
    if ((this.#userAt.get(sessionID) ?? 0) >= since || this.#answersBefore(sessionID, run.createdAt)) return
    if (clock.now() > Math.max(run.parked.at, this.#troubleAt) + SETTLING_MS)
      this.breach(`the model of ${history.nameOf(sessionID)} is asked while it is parked`)
  }

  /** The turn that goes on in a session answers what was said there before: its user's word, after the run before this. */
  #answersBefore(sessionID: string, at: number): boolean {
    const messages = this.#world.opencode.database.sessions.get(sessionID)?.messages ?? []
    const open = messages.findLast(({ role, completedAt }) => role === "assistant" && completedAt === undefined)
    const asked = messages.find(({ id }) => id === open?.parentID)
    return asked !== undefined && asked.createdAt < at
  }

  /** Nothing is asked for a run that was cleared, but by its user. */
  #checkCleared(sessionID: string): void {
    const at = this.#cleared.get(sessionID)
    const { clock, history } = this.#world
    if (at === undefined || (this.#userAt.get(sessionID) ?? 0) >= at) return
    if (clock.now() > Math.max(at, this.#troubleAt) + SETTLING_MS)
      this.breach(`the model of ${history.nameOf(sessionID)} is asked after it was cleared`)
  }

  /** Where nobody knows that a process died, what it left on another machine goes on until its lease is over. */
  get #isLeftAlone(): boolean {
    const { far, endOptions } = this.#world
    return far !== undefined && endOptions.strangers === true && this.restarts > 0
  }

  #checkCircles(): void {
    this.#happenings++
    // While a call is held back, what it was to stop may go on and on.
    if (this.#happenings === MOST_HAPPENINGS / 2) this.letGo()
    if (this.#happenings !== MOST_HAPPENINGS) return
    const { rig, other } = this.#world
    if (!this.#isLeftAlone && this.crossed.size === 0) this.breach("it goes round in circles")
    for (const each of [rig, other]) each.crash()
  }

  /** Its user has done something in a session. */
  hasUser(sessionID: string): boolean {
    return this.#userAt.has(sessionID)
  }

  /** Its user has done something there since it ended: what goes on there is theirs. */
  isUsers({ sessionID, run, outcome, group }: Task): boolean {
    // Nobody but its user says anything in the session of several tries or items: they have their own.
    if (group && this.hasUser(sessionID)) return true
    // When a run of a dead process ended is not known: its user may have gone on before that.
    // All that goes on in the session of a run that never began is its user's.
    const isUnknown = outcome?.reason?.code === "interrupted" || run.startedAt === undefined
    const since = isUnknown ? run.createdAt : run.endedAt
    return (this.#userAt.get(sessionID) ?? 0) >= (since ?? 0)
  }

  /** What goes on in a session is its user's own turn, after the end of the run that was there. */
  isUsersTurn(sessionID: string): boolean {
    return [...this.#seen.values()].some(
      (task) => task.sessionID === sessionID && !isActive(task) && this.isUsers(task),
    )
  }

  /** What must hold at every moment. */
  check(): void {
    const { tasks, rig, manager, endOptions, bursar } = this.#world
    const { maxConcurrentTasks = 0 } = endOptions.options
    const holding = new Map<string, number>()
    this.#checkCalls()
    // What is asked in the session of one that has not begun is its user's.
    for (const [id, seen] of this.#seen)
      if (
        this.forgotten.has(id) &&
        isActive(seen) &&
        !isQueued(seen) &&
        // In a group's own session nobody but its user says anything.
        !seen.group &&
        !this.#cleared.has(seen.sessionID) &&
        !this.#world.task(id)
      )
        this.#cleared.set(seen.sessionID, this.#world.clock.now())
    for (const task of tasks) {
      this.#checkChange(task)
      if (manager.parts.reports.isForeign(task.id)) continue
      this.#checkAfter(task)
      // What an earlier process left holds no slot in this one; until it is settled it is shown as it was.
      const holds =
        isActive(task) && !task.group && !isQueued(task) && !isPaused(task) && task.run.createdAt > this.restartedAt
      if (holds && !isUnattended(task)) holding.set(task.parentID, (holding.get(task.parentID) ?? 0) + 1)
    }
    bursar?.look()
    for (const count of holding.values())
      if (maxConcurrentTasks > 0 && count > maxConcurrentTasks)
        this.breach(`${count} tasks of one session run, ${maxConcurrentTasks} may`)
    for (const task of tasks) if (isPaused(task)) this.#checkParking(task)
    const told = rig.notices().map(({ id }) => id)
    if (new Set(told).size < told.length) this.breach("the parent was told something twice")
  }

  /** Who waits with a call is answered in the time for which they wait. */
  #checkCalls(): void {
    const { open, clock } = this.#world
    for (const { what, by } of this.isHeld ? [] : open)
      if (clock.now() > Math.max(by, this.#troubleAt) + SETTLING_MS) this.breach(`${what}: it is not answered in time`)
  }

  #checkParking(task: Task): void {
    const isWrong = Object.values(WRONG).some(({ body }) => body.error.message === task.run.parked?.why)
    if (isWrong) this.breach(`${this.#world.history.nameOf(task.id)} is parked: ${task.run.parked?.why}`)
    this.#checkSteps(task)
  }

  /** Nothing that its agent has done is taken back while it is parked: that would be done twice. */
  #checkSteps({ id, sessionID, run }: Task): void {
    const { opencode, history } = this.#world
    const session = opencode.database.sessions.get(sessionID)
    if (!run.parked || !session || session.undoneFrom || this.rewritten.has(id)) return
    const calls = session.messages.flatMap(({ parts }) => parts.filter(({ type }) => type === "tool")).length
    const before = this.#steps.get(id)
    this.#steps.set(id, { at: run.parked.at, calls })
    if (before?.at === run.parked.at && calls < before.calls)
      this.breach(`${history.nameOf(id)} is parked, and a step of it was taken back`)
  }

  #checkChange(task: Task): void {
    const before = this.#seen.get(task.id)
    this.#seen.set(task.id, task)
    if (task.status === "completed") this.#checkWorth(task)
    const isOther = before && !isActive(before) && before.status !== task.status
    if (!isOther || task.run.generation > before.run.generation) return this.#noteEnd(task)
    // An end that was neither written nor told is none: where its process slept past its lease, another's is the end.
    if (this.#world.endOptions.strangers && !this.#stood.has(runOf(before))) return
    this.breach(`${this.#world.history.nameOf(task.id)} was ${before.status} and is ${task.status} without a resume`)
  }

  /** What has completed is as good as was asked for. */
  #checkWorth({ id, run, outcome, delivery, group }: Task): void {
    const { history, places } = this.#world
    // Of several tries it is that of the one that won.
    const checked = group?.kind === "tries" ? (group.winner ?? id) : id
    if (run.check !== undefined && !places.hasPassed(checked))
      this.breach(`${history.nameOf(id)} has completed, and its check has not passed`)
    // What its answer is worth is known of it when it is closed.
    if (run.schema && delivery.state === "confirmed" && !outcome?.value?.valid)
      this.breach(`${history.nameOf(id)} has completed without a valid value`)
  }

  #noteEnd(task: Task): void {
    if (!this.#world.endOptions.strangers || isActive(task) || this.#stood.has(runOf(task))) return
    const { database } = this.#world.opencode
    const session = database.sessions.get(task.sessionID)
    const isWritten = session && database.recordIn(session)?.task.status === task.status
    if (isWritten || this.#isTold(task)) this.#stood.add(runOf(task))
  }

  #checkAfter({ id, run }: Task): void {
    if (run.startedAt === undefined || run.generation > 0) return
    // What it waited for when an earlier process began it may have had no record of its end yet.
    if (run.startedAt <= this.restartedAt) return
    for (const other of this.#after.get(id) ?? []) {
      // One that was forgotten meanwhile was seen long ago.
      const done = this.#world.task(other) && this.#seen.get(other)
      const isDone = done && (done.run.generation > 0 || done.status === "completed")
      if (done && !isDone) this.breach(`${this.#world.history.nameOf(id)} began before what it waits for was completed`)
    }
  }

  /** The notifications of a task in its parent's session, by run. */
  told({ id, parentID }: Task): readonly { readonly id: string; readonly visible: string; readonly hidden: string }[] {
    return this.#world.rig.notices(parentID).filter((notice) => notice.id.includes(`${id.slice("bg_".length)}N`))
  }

  /** Its parent has been told of the run's end, and as this one. */
  #isTold(task: Task): boolean {
    return this.told(task).some((notice) => notice.id === this.noticeID(task) && isToldAs(task, notice.visible))
  }

  noticeID({ id, run }: Task): string {
    return messageID("notification", id, run.generation, run.createdAt)
  }
}

/** An agent that stopped at a refusal is cancelled, with a mark of its own. */
const MARKS: Readonly<Record<string, readonly string[]>> = { completed: ["✓"], error: ["✗"], cancelled: ["⊘", "⊖"] }

const runOf = ({ id, run }: Task): string => `${id} ${run.generation}`

/** Whether this is what is said of an end like that. */
export const isToldAs = ({ status }: Task, visible: string): boolean =>
  (MARKS[status] ?? []).some((mark) => visible.startsWith(mark))

/** Whether it has this text in it. */
export const says = ({ parts }: Pick<StoredMessage, "parts">, text: string): boolean =>
  parts.some((part) => part.type === "text" && part.text.includes(text))
