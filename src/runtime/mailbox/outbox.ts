import type { Note } from "../../core/feature.ts"
import { type Clock, OpencodeError, type Persona } from "../../core/ports.ts"
import { hasPendingNotification, type Model, NOBODY, type Task } from "../../core/task.ts"
import type { NotificationTexts } from "../../present/notification.ts"
import { notePrompt, notificationPrompt, Sender, type SenderPorts, StoppableWaits } from "./sender.ts"

/** Delays between attempts; the last one repeats until the parent is gone or the process ends. */
const RETRY_DELAYS_MS = [250, 1000, 4000, 15_000, 60_000] as const
const LONGEST_DELAY_MS = RETRY_DELAYS_MS[4]
/** The outbox waits in such steps for other ends, so that one message wakes the parent for all of them. */
const GATHERING: Wait = { until: "others", ms: 250 }
/** Interval for checking again a parent that accepts no message now, in case the event about its change is missed. */
const HELD_LOOK_MS = 2000
/** Interval where only notes wait, or a user has undone messages: the user may be away. */
const SLOW_LOOK_MS = 10_000
/** Most times that a message is sent again because the parent did not answer it. */
const MOST_REPEATS = 3

/** `isHeld`: the message had to wait when it was last looked at. */
type Queued = { attempts: number; isHeld?: boolean }

/**
 * Notification of a run. `task`: the task as it ended, so that a resume since then does not change the notification.
 */
type EndMail = Queued & {
  readonly kind: "end"
  readonly task: Task
  wakes: boolean
  readonly maybeDelivered: boolean
  /** How long it has waited for other ends. */
  gatheredMs: number
  /** Set by the first send, so that a repeated send has the same text. */
  notice?: NotificationTexts
}

/**
 * A note that waits until its session is idle, and until no notification waits. `compose` is called at each look: it
 * returns undefined where there is nothing to say any more, and "later" where there may be again. `done` is called once
 * the note is sent or dropped.
 */
type NoteMail = Queued & {
  readonly kind: "note"
  readonly compose: () => Note | "later" | undefined
  readonly done?: (sent: boolean) => void
  /** Set by the first send, so that a repeated send has the same text and id. */
  sent?: Note
}

/**
 * Newest notification for which the parent's model should run, until the parent has answered it:
 * - `owed`: stored without starting the model. The next notification starts the model for both; without one, this is sent
 *   again.
 * - `deferred`: owed, and the model must not be asked now.
 * - `sent`: it has started the model.
 * - `passed`: the parent became idle after it, perhaps without reading it.
 */
type WakeMail = Queued & {
  readonly kind: "wake"
  readonly task: Task
  state: "owed" | "deferred" | "sent" | "passed"
  /** Time since when it is owed or sent. */
  readonly at: number
  /** How often it was sent again because the parent did not answer it. */
  repeats: number
  /** The model that must not be asked, and since when the wake waits for it. */
  deferred?: { readonly at: number; readonly model: Model | undefined }
  /** Stored notifications for which the model should run, too, should the parent answer this one without reading them. */
  readonly others: Task[]
}

type Mail = EndMail | NoteMail | WakeMail

/**
 * Wait of a lane, which ends at the latest after `ms`: until other tasks end, the parent is idle, its user has redone
 * messages, or a send may be tried again.
 */
type Wait = { readonly until: "others" | "idle" | "redone" | "retry"; readonly ms: number }

/** Messages to one session. */
type Lane = {
  readonly ends: EndMail[]
  readonly notes: NoteMail[]
  wake?: WakeMail
  /** Tasks whose notification must wake the parent once it is queued. The lane is kept until then. */
  readonly wakeRequests: Set<string>
  isRunning: boolean
  wait?: Wait & { readonly end: () => void }
  /** Something has happened since the lane last began to look at a message. */
  hasChanged: boolean
  /** The parent became idle after the last send began. */
  idled: boolean
  /** A message that starts the parent's model is being sent. */
  isWaking: boolean
  /** A message was sent or dropped since `drained` was last called. */
  isDirty: boolean
  /** `drained` is being called. */
  isDraining: boolean
}

const newLane = (): Lane => ({
  ends: [],
  notes: [],
  wakeRequests: new Set(),
  isRunning: false,
  hasChanged: false,
  idled: false,
  isWaking: false,
  isDirty: false,
  isDraining: false,
})

/** Whether the parent is still to be woken. */
const isOwed = (wake: WakeMail | undefined): wake is WakeMail => wake?.state === "owed" || wake?.state === "deferred"

export type OutboxPorts = SenderPorts & {
  readonly clock: Clock
  /** False where the task was cleared meanwhile, or another process has taken this run over. */
  readonly isKnown: (task: Task) => boolean
  /** Whether no other task of this parent still has a notification to be sent. */
  readonly isLast: (task: Task) => boolean
  /** How long to wait for other running tasks that may end in the same moment. */
  readonly gatherMs: (task: Task) => number
  /**
   * Whether this model must not be asked now. The first `review` after the model may be asked again wakes its session.
   */
  readonly isBlocked: (model: Model | undefined) => boolean
  /** Must not reject. */
  readonly compose: (task: Task) => Promise<NotificationTexts>
  /** Records how the delivery ended. `handedOver`: the message contained the whole answer. Must not reject. */
  readonly recordDelivery: (task: Task, state: "confirmed" | "abandoned", handedOver: boolean) => Promise<void>
  /** Called when a task's notification no longer waits to wake its parent, so that `isUnread` has become false. */
  readonly wakeDone: (task: Task) => void
  /** Called when no notification to the parent is left to be sent. `woken`: a message has started the parent's model. */
  readonly drained: (parentID: string, woken: boolean) => void
  readonly run: (what: string, work: () => Promise<unknown>) => void
  readonly stopped: AbortSignal
}

/** Decides who is woken, before its first await, and sends. */
type Send = () => Promise<unknown>

/**
 * Mailbox of the parents: sends notifications of ended tasks, and notes about tasks. One message at a time for each
 * parent, notifications once and in order, notes after them. A message id derives from task and run, so a repeated send
 * stores nothing new. A message counts as delivered once OpenCode has stored it.
 */
export class Outbox {
  readonly #ports: OutboxPorts
  readonly #lanes = new Map<string, Lane>()
  readonly #waits: StoppableWaits
  readonly #sender: Sender

  constructor(ports: OutboxPorts) {
    this.#ports = ports
    this.#waits = new StoppableWaits(ports.clock, ports.stopped)
    this.#sender = new Sender(ports, this.#waits)
  }

  /**
   * Queues the task's notification if one is still to be sent. `maybeDelivered`: first check whether the parent has it.
   */
  post(task: Task, maybeDelivered = false): void {
    if (!hasPendingNotification(task) || this.holds(task)) return
    const lane = this.#lane(task.parentID)
    const wakes = lane.wakeRequests.delete(task.id) || task.delivery.wake
    lane.ends.push({ kind: "end", task, wakes, maybeDelivered, gatheredMs: 0, attempts: 0 })
    this.#changed(task.parentID, lane)
  }

  /** Queues a note for a session. `done` is called once the note is sent or dropped. */
  note(sessionID: string, compose: NoteMail["compose"], done?: NoteMail["done"]): void {
    if (sessionID === NOBODY) return done?.(false)
    const lane = this.#lane(sessionID)
    lane.notes.push({ kind: "note", compose, done, attempts: 0 })
    if (!lane.isRunning) this.#changed(sessionID, lane)
  }

  /** Whether the notification of this run is queued or is being sent. */
  holds({ id, parentID, run: { generation } }: Task): boolean {
    const { ends = [] } = this.#lanes.get(parentID) ?? {}
    return ends.some(({ task }) => task.id === id && task.run.generation === generation)
  }

  /** Lets the message about this task wake the parent, because the batch ended without waking it. */
  wakeAgain(task: Task): void {
    const lane = this.#lane(task.parentID)
    const end = lane.ends.find((each) => each.task.id === task.id)
    if (end) end.wakes = true
    else if (hasPendingNotification(task)) return void lane.wakeRequests.add(task.id)
    else this.#wakeFor(lane, task)
    this.#changed(task.parentID, lane)
  }

  /**
   * Whether the parent holds this notification and is still to be woken with it. Its record stays pending, so that
   * another process wakes the parent should this one die.
   */
  isUnread({ id, parentID }: Task): boolean {
    const { wake } = this.#lanes.get(parentID) ?? {}
    return isOwed(wake) && wake.task.id === id
  }

  /** Time since when the wake of this session waits for its model, in ms; undefined for no such wake. */
  deferredSince(parentID: string): number | undefined {
    return this.#lanes.get(parentID)?.wake?.deferred?.at
  }

  /** Whether `review` has a parent to wake later. */
  get defersWake(): boolean {
    return [...this.#lanes.keys()].some((parentID) => this.deferredSince(parentID) !== undefined)
  }

  /** Wakes parents whose models may be asked again. Called at the beginning of each pass of the scheduler. */
  review(): void {
    for (const [parentID, lane] of this.#lanes) {
      const { wake } = lane
      if (wake?.state !== "deferred" || this.#ports.isBlocked(wake.deferred?.model)) continue
      wake.state = "owed"
      this.#changed(parentID, lane)
    }
  }

  /**
   * Whether a message is being sent that starts the session's model. Activity of the session then does not come from
   * its user.
   */
  isWaking(parentID: string): boolean {
    return this.#lanes.get(parentID)?.isWaking === true
  }

  /** Messages to this session are being sent, one after another. */
  isSending(parentID: string): boolean {
    const { isRunning = false, isDraining, wait } = this.#lanes.get(parentID) ?? {}
    return isRunning && !isDraining && (!wait || wait.until === "others")
  }

  /** Whether a notification to this session is queued, or the session is to be woken later. Notes do not count. */
  hasPending(parentID: string): boolean {
    const { ends = [], wake } = this.#lanes.get(parentID) ?? {}
    return ends.length > 0 || isOwed(wake)
  }

  /**
   * Called when the parent became idle. A message that arrived just as the turn ended is stored but unread: it is sent
   * again.
   */
  parentIdle(parentID: string): void {
    const lane = this.#lanes.get(parentID)
    if (!lane) return
    lane.idled = true
    if (lane.wake?.state === "sent") lane.wake.state = "passed"
    this.#changed(parentID, lane)
  }

  /**
   * Called when the parent's session changed. Messages that waited because its user had undone messages may be sent
   * now.
   */
  parentChanged(parentID: string): void {
    const lane = this.#lanes.get(parentID)
    if (lane?.wait?.until === "redone") lane.wait.end()
  }

  /** Drops all messages to a deleted session. */
  parentDeleted(parentID: string): void {
    const lane = this.#lanes.get(parentID)
    this.#lanes.delete(parentID)
    lane?.wait?.end()
    for (const { done } of lane?.notes.splice(0) ?? []) done?.(false)
  }

  #lane(parentID: string): Lane {
    const lane = this.#lanes.get(parentID) ?? newLane()
    this.#lanes.set(parentID, lane)
    return lane
  }

  /** Whether the lane is still the parent's current one and the plugin runs. */
  #isOpen(parentID: string, lane: Lane): boolean {
    return !this.#ports.stopped.aborted && this.#lanes.get(parentID) === lane
  }

  /** Lets the lane look again at what it may send now. */
  #changed(parentID: string, lane: Lane): void {
    lane.hasChanged = true
    if (lane.wait?.until !== "retry") lane.wait?.end()
    if (lane.isRunning) return
    lane.isRunning = true
    this.#ports.run("notify", () => this.#work(parentID, lane))
  }

  /** Sends a lane's messages, one at a time, until each is sent or dropped, or waits for an event. */
  async #work(parentID: string, lane: Lane): Promise<void> {
    const { stopped, drained } = this.#ports
    try {
      for (;;) {
        const mail = this.#isOpen(parentID, lane) ? this.#next(lane) : undefined
        const isPressing = mail?.kind === "end" || (mail?.kind === "wake" && mail.state === "owed")
        if (lane.isDirty && !isPressing && !stopped.aborted) {
          lane.isDirty = false
          lane.isDraining = true
          drained(parentID, lane.wake !== undefined && !isOwed(lane.wake))
          lane.isDraining = false
        } else if (mail) await this.#attempt(parentID, lane, mail)
        else break
      }
    } finally {
      lane.isRunning = false
      if (this.#lanes.get(parentID) === lane && !lane.wake && lane.wakeRequests.size === 0) this.#lanes.delete(parentID)
    }
  }

  /** Decides which message is next. Drops messages of tasks that are gone, and a wake that is forbidden by now. */
  #next(lane: Lane): Mail | undefined {
    const { isKnown, mayWake } = this.#ports
    for (const end of [...lane.ends]) {
      if (isKnown(end.task)) return end
      this.#remove(lane, end)
    }
    for (let { wake } = lane; wake?.state === "owed" || wake?.state === "passed"; { wake } = lane) {
      if (mayWake(wake.task)) return wake
      this.#remove(lane, wake)
    }
    return lane.notes[0]
  }

  async #attempt(parentID: string, lane: Lane, mail: Mail): Promise<void> {
    lane.hasChanged = false
    try {
      // The wait may be long, so the message is composed after it.
      if (mail.isHeld && (await this.#mustWait(parentID, lane, mail))) return
      const send = await this.#prepare(parentID, lane, mail)
      if (!send || (await this.#mustWait(parentID, lane, mail))) return
      // No await may come between this test and the send.
      if (!this.#isOpen(parentID, lane) || this.#next(lane) !== mail) return
      lane.idled = false
      await send()
    } catch (error) {
      await this.#failed(parentID, lane, mail, error)
    }
  }

  async #failed(parentID: string, lane: Lane, mail: Mail, error: unknown): Promise<void> {
    const { opencode, recordDelivery } = this.#ports
    const isGone = error instanceof OpencodeError && error.notFound
    const attempt = mail.attempts++
    const ms = RETRY_DELAYS_MS[attempt] ?? (mail.kind === "note" ? undefined : LONGEST_DELAY_MS)
    const fields = { session: parentID, attempt, error: String(error) }
    if (mail.kind === "note") opencode.log("warn", "note not accepted", fields)
    else opencode.log("warn", "notification not accepted", { task: mail.task.id, ...fields })
    if (!isGone && ms !== undefined) await this.#pause(lane, { until: mail.kind === "end" ? "retry" : "idle", ms })
    else {
      if (mail.kind === "end") await recordDelivery(mail.task, "abandoned", false)
      this.#remove(lane, mail)
    }
  }

  /** Resolves to whether the time passed. A change of the lane ends each wait but that before another attempt. */
  async #pause(lane: Lane, wait: Wait): Promise<boolean> {
    if (lane.hasChanged && wait.until !== "retry") return false
    const hasPassed = await this.#waits.for(wait.ms, (end) => {
      lane.wait = { ...wait, end }
    })
    lane.wait = undefined
    return hasPassed
  }

  async #mustWait(parentID: string, lane: Lane, mail: Mail): Promise<boolean> {
    const wait = await this.#obstacle(parentID, lane, mail)
    mail.isHeld = wait !== undefined && mail.kind !== "note"
    if (wait) await this.#pause(lane, wait)
    return wait !== undefined
  }

  /**
   * Decides whether the session may get this message now; returns what it must wait for. Every message deletes for good
   * what the session's user has undone. A message stored during a turn causes another step, so only one that is meant to
   * start the model does not wait for the end of the turn. Two turns of one session at once, in two processes, would
   * each take the other's open answer for unfinished, and ask the model without end. Nothing waits for a session that is
   * gone: the end of its turn may never be reported, and OpenCode refuses the message.
   */
  async #obstacle(parentID: string, lane: Lane, mail: Mail): Promise<Wait | undefined> {
    const { opencode, mayWake, clock } = this.#ports
    const isNote = mail.kind === "note"
    const untilIdle: Wait = { until: "idle", ms: isNote ? SLOW_LOOK_MS : HELD_LOOK_MS }
    try {
      const session = await opencode.parent(parentID)
      if (session?.reverted) return { until: "redone", ms: SLOW_LOOK_MS }
      if (!session) return undefined
      const wakes = !isNote && (lane.wake?.state === "owed" || lane.ends.some((end) => end.wakes && mayWake(end.task)))
      if (wakes && lane.ends.length < 2 && (await opencode.isAnsweredElsewhere(parentID))) return untilIdle
      if (!wakes && (await opencode.activity()).has(parentID)) return untilIdle
      // OpenCode may not yet report the turn that the last message has started.
      const isJustWoken = lane.wake?.state === "sent" && clock.now() - lane.wake.at < HELD_LOOK_MS
      return isNote && isJustWoken ? untilIdle : undefined
    } catch {
      return untilIdle
    }
  }

  /** Returns what sends the message; undefined where there is nothing to send, or not yet. */
  #prepare(parentID: string, lane: Lane, mail: Mail): Promise<Send | undefined> {
    if (mail.kind === "end") return this.#prepareEnd(parentID, lane, mail)
    return mail.kind === "wake" ? this.#prepareWake(lane, mail) : this.#prepareNote(parentID, lane, mail)
  }

  async #prepareEnd(parentID: string, lane: Lane, end: EndMail): Promise<Send | undefined> {
    const { isLast, gatherMs, compose, recordDelivery, mayWake } = this.#ports
    const { task, attempts, maybeDelivered } = end
    // Another notification that is queued meanwhile can wake the parent instead.
    if (end.wakes && !end.notice && lane.ends.length === 1 && end.gatheredMs < gatherMs(task) && !isLast(task)) {
      if (await this.#pause(lane, GATHERING)) end.gatheredMs += GATHERING.ms
      return undefined
    }
    const notice = end.notice ?? (await compose(task))
    if (maybeDelivered && !end.notice && (await this.#sender.isThere(task))) {
      if (end.wakes && mayWake(task)) this.#wakeFor(lane, task)
      await recordDelivery(task, "confirmed", notice.handsOver)
      this.#remove(lane, end)
      return undefined
    }
    const persona = await this.#sender.persona(parentID, attempts)
    return () => this.#sendEnd(lane, end, notice, persona)
  }

  async #sendEnd(lane: Lane, end: EndMail, notice: NotificationTexts, persona: Persona | undefined): Promise<void> {
    const { opencode, mayWake, isBlocked, recordDelivery } = this.#ports
    const { task } = end
    const isToWake = (end.wakes || lane.wake?.state === "owed") && mayWake(task)
    const starts = isToWake && lane.ends.length === 1 && !isBlocked(persona?.model)
    end.notice = notice
    const prompt = notificationPrompt(opencode.messageID, task, notice, persona, !starts)
    await this.#sender.send(prompt, lane, starts ? task : undefined)
    // A wake may have been requested during the send, or while the delivery is recorded.
    const isAsked = isToWake || end.wakes
    if (starts || isToWake || (end.wakes && mayWake(task))) this.#wake(lane, task, starts)
    await recordDelivery(task, "confirmed", notice.handsOver)
    if (!isAsked && end.wakes && mayWake(task)) this.#wake(lane, task, false)
    this.#remove(lane, end)
  }

  /** Lets a stored message start the parent's model, unless the parent has answered it. */
  async #prepareWake(lane: Lane, wake: WakeMail): Promise<Send | undefined> {
    const { isBlocked, clock } = this.#ports
    const { task, state, repeats } = wake
    const isLeft = state === "owed" || repeats < MOST_REPEATS
    const prompt = isLeft ? await this.#sender.unanswered(task, wake.attempts) : undefined
    if (!prompt) {
      this.#remove(lane, wake)
      return undefined
    }
    if (state === "passed") {
      wake.state = "owed"
      wake.repeats++
    }
    return async () => {
      if (isBlocked(prompt.model)) {
        wake.state = "deferred"
        wake.deferred = { at: wake.deferred?.at ?? clock.now(), model: prompt.model }
      } else {
        await this.#sender.send(prompt, lane, task)
        this.#wake(lane, task, true, wake)
      }
    }
  }

  async #prepareNote(sessionID: string, lane: Lane, note: NoteMail): Promise<Send | undefined> {
    const { opencode } = this.#ports
    const composed = note.compose()
    if (composed === undefined) this.#remove(lane, note)
    if (composed === "later") await this.#pause(lane, { until: "idle", ms: SLOW_LOOK_MS })
    if (composed === undefined || composed === "later") return undefined
    const persona = await this.#sender.persona(sessionID, note.attempts)
    return async () => {
      note.sent ??= composed
      await this.#sender.send(notePrompt(opencode.messageID, sessionID, note.sent, persona), lane)
      this.#remove(lane, note, true)
    }
  }

  /** Does nothing for a message that was removed already, as those of a deleted session are. */
  #remove(lane: Lane, mail: Mail, isSent = false): void {
    if (mail.kind === "wake") {
      const [next, ...others] = mail.others
      return this.#setWake(lane, next && this.#newWake(next, "owed", others), mail)
    }
    const queue = mail.kind === "end" ? lane.ends : lane.notes
    if (queue[0] !== mail) return
    queue.shift()
    lane.isDirty = true
    if (mail.kind === "note") this.#ports.run("finish a note", async () => mail.done?.(isSent))
  }

  /**
   * Called when the task's message has started the parent's model, or is stored as the newest and must still do so: the
   * model then reads all earlier ones. A wake that takes the place of a deferred one counts as deferred from now on: the
   * clock of a parent that is a task may have run before. `again`: the wake that this one repeats.
   */
  #wake(lane: Lane, task: Task, isStarted: boolean, again?: WakeMail): void {
    const state = isStarted ? (lane.idled ? "passed" : "sent") : "owed"
    const wake = this.#newWake(task, state, again?.others)
    wake.repeats = again?.repeats ?? 0
    if (!isStarted && lane.wake?.deferred) wake.deferred = { ...lane.wake.deferred, at: wake.at }
    this.#setWake(lane, wake)
  }

  /** Wakes the parent for a message that is stored already, after a wake for another message that may be newer. */
  #wakeFor(lane: Lane, task: Task): void {
    const { wake } = lane
    if (!wake || wake.task.id === task.id) this.#wake(lane, task, false, wake)
    else wake.others.push(task)
  }

  #newWake(task: Task, state: WakeMail["state"], others: Task[] = []): WakeMail {
    return { kind: "wake", task, state, at: this.#ports.clock.now(), repeats: 0, attempts: 0, others }
  }

  /** `instead`: nothing happens where another wake has replaced this one. */
  #setWake(lane: Lane, wake: WakeMail | undefined, instead = lane.wake): void {
    if (lane.wake !== instead) return
    lane.wake = wake
    if (!isOwed(instead)) return
    lane.isDirty = true
    if (!isOwed(wake) || wake.task.id !== instead.task.id) this.#ports.wakeDone(instead.task)
  }
}
