import { type Clock, OpencodeError, type Prompt } from "../../core/ports.ts"
import { hasPendingNotification, type Model, NOBODY, type Task } from "../../core/task.ts"
import { retry } from "../../lib/clock.ts"
import type { NotificationTexts } from "../../present/notification.ts"
import {
  type Lane,
  type LaneItem,
  newLane,
  notePrompt,
  notificationPrompt,
  type PendingNote,
  Sender,
  type SenderPorts,
  StoppableWaits,
} from "./sender.ts"

/** Delays between attempts; the last one repeats until the parent is gone or the process ends. */
const RETRY_DELAYS_MS = [250, 1000, 4000, 15_000, 60_000] as const

function* retryDelays(): Iterable<number> {
  yield* RETRY_DELAYS_MS
  for (;;) yield RETRY_DELAYS_MS[4]
}

/** The outbox waits in such steps for other ends, so that one message wakes the parent for all of them. */
const GATHER_STEP_MS = 250
/** Interval for checking again a parent that accepts no message now, in case the event about its change is missed. */
const HELD_LOOK_MS = 2000
/** Interval where only notes wait, or a user has undone messages: the user may be away. */
const SLOW_LOOK_MS = 10_000
/** Most times that a message is sent again because the parent did not answer it. */
const MOST_REPEATS = 3

export type OutboxPorts = SenderPorts & {
  readonly clock: Clock
  /** False where the task was cleared meanwhile, or another process has taken it over. */
  readonly isKnown: (taskID: string) => boolean
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
  /** Called when a parent's lane is empty. `woken`: a message has started the parent's model. */
  readonly drained: (parentID: string, woken: boolean) => void
  readonly run: (what: string, work: () => Promise<unknown>) => void
  readonly stopped: AbortSignal
}

/** `isDue`: the model may be asked again, and the parent is about to be woken. */
type DeferredWake = { readonly task: Task; readonly model: Model | undefined; readonly at: number; isDue?: true }

/**
 * Mailbox of the parents: sends notifications of ended tasks, and notes about tasks. One message at a time for each
 * parent, notifications once and in order, notes after them. A message id derives from task and run, so a repeated send
 * stores nothing new. A message counts as delivered once OpenCode has stored it.
 */
export class Outbox {
  readonly #ports: OutboxPorts
  readonly #lanes = new Map<string, Lane>()
  /** By parent: its last notification that was sent without starting the model, because the model must not be asked. */
  readonly #deferred = new Map<string, DeferredWake>()
  readonly #pauses: StoppableWaits
  readonly #sender: Sender

  constructor(ports: OutboxPorts) {
    this.#ports = ports
    this.#pauses = new StoppableWaits(ports.clock, ports.stopped)
    this.#sender = new Sender(ports, this.#pauses)
  }

  /**
   * Queues the task's notification if one is still to be sent. `maybeDelivered`: first check whether the parent has it.
   */
  post(task: Task, maybeDelivered = false): void {
    if (!hasPendingNotification(task)) return
    if (this.holds(task)) return
    const lane = this.#lane(task.parentID)
    const isRoused = lane.wakeRequests.delete(task.id)
    lane.items.push({ task, wake: task.delivery.wake || isRoused, maybeDelivered })
    lane.release()
    this.#start(task.parentID, lane)
  }

  /** Queues a note for a session. `done` is called once the note is sent or dropped. */
  note(sessionID: string, compose: PendingNote["compose"], done?: PendingNote["done"]): void {
    if (sessionID === NOBODY) return done?.(false)
    const lane = this.#lane(sessionID)
    lane.notes.push({ compose, done, attempts: 0 })
    if (lane.notes.length === 1) this.#ports.run("send notes", () => this.#drainNotes(sessionID, lane))
  }

  /** Whether the notification of this run is queued or is being sent. */
  holds({ id, parentID, run: { generation } }: Task): boolean {
    const { items = [] } = this.#lanes.get(parentID) ?? {}
    return items.some(({ task }) => task.id === id && task.run.generation === generation)
  }

  /** Lets the message about this task wake the parent, because the batch ended without waking it. */
  wakeAgain(task: Task): void {
    const lane = this.#lane(task.parentID)
    const item = lane.items.find((each) => each.task.id === task.id)
    if (item) {
      item.wake = true
      this.#undefer(task)
    } else if (hasPendingNotification(task)) lane.wakeRequests.add(task.id)
    else this.#ports.run("wake", () => this.#wakeAgain(task))
  }

  /**
   * Whether the parent holds this notification and is still to be woken with it. Its record stays pending, so that
   * another process wakes the parent should this one die.
   */
  isUnread({ id, parentID }: Task): boolean {
    return this.#deferred.get(parentID)?.task.id === id
  }

  /** Time since when the wake of this session waits for its model, in ms; undefined for no such wake. */
  deferredSince(parentID: string): number | undefined {
    return this.#deferred.get(parentID)?.at
  }

  /** Whether `review` has a parent to wake later. */
  get defersWake(): boolean {
    return this.#deferred.size > 0
  }

  /** Wakes parents whose models may be asked again. Called at the beginning of each pass of the scheduler. */
  review(): void {
    for (const deferred of this.#deferred.values()) {
      if (deferred.isDue || this.#ports.isBlocked(deferred.model)) continue
      deferred.isDue = true
      // The parent already has this notification: with this state, the message is only sent again.
      this.wakeAgain({ ...deferred.task, delivery: { state: "none" } })
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
    return this.#lanes.get(parentID)?.state === "sending"
  }

  /** Whether a notification to this session is queued, or the session is to be woken later. Notes do not count. */
  hasPending(parentID: string): boolean {
    const { items = [], pendingWake } = this.#lanes.get(parentID) ?? {}
    return items.length > 0 || pendingWake !== undefined || this.#deferred.has(parentID)
  }

  /**
   * Called when the parent became idle. A message that arrived just as the turn ended is stored but unread: it is sent
   * again.
   */
  parentIdle(parentID: string): void {
    const lane = this.#lanes.get(parentID)
    if (!lane) return
    lane.idled = true
    if (lane.waking) lane.waking.isPassed = true
    lane.sentAt = Number.NEGATIVE_INFINITY
    lane.release()
    // An unread message is sent again before any note.
    if (lane.state === "idle" && lane.waking) this.#checkSoon(parentID, lane)
    else lane.releaseNotes()
  }

  /**
   * Called when the parent's session changed. Messages that waited because its user had undone messages may be sent
   * now.
   */
  parentChanged(parentID: string): void {
    const lane = this.#lanes.get(parentID)
    if (lane?.state === "until redone") lane.release()
  }

  /** Drops all messages to a deleted session. */
  parentDeleted(parentID: string): void {
    const lane = this.#lanes.get(parentID)
    this.#lanes.delete(parentID)
    this.#deferred.delete(parentID)
    lane?.release()
    for (const { done } of lane?.notes.splice(0) ?? []) done?.(false)
    lane?.releaseNotes()
  }

  #start(parentID: string, lane: Lane): void {
    if (lane.state !== "idle") return
    lane.state = "sending"
    this.#ports.run("notify", () => this.#drain(parentID, lane))
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

  async #drain(parentID: string, lane: Lane): Promise<void> {
    try {
      while (this.#isOpen(parentID, lane)) {
        const [item] = lane.items
        if (item) {
          const { task } = item
          if (item.wake && !this.#ports.isLast(task)) await this.#gather(task, lane)
          await this.#persist(task, lane, (attempt) => this.#tell(task, item, lane, attempt))
          lane.items.shift()
        } else if (lane.pendingWake) await this.#wake(parentID, lane, lane.pendingWake)
        else break
      }
    } finally {
      lane.state = "idle"
      if (lane.waking) lane.sentAt = this.#ports.clock.now()
      else lane.releaseNotes()
      if (lane.waking?.isPassed) this.#checkSoon(parentID, lane)
      if (!lane.waking) this.#forget(parentID, lane)
      if (!this.#ports.stopped.aborted) this.#ports.drained(parentID, lane.waking !== undefined)
    }
  }

  /**
   * Forgets a deferred wake, once the lane has it. A parent that is a task must not end before, and a wake that was
   * deferred again stays.
   */
  #undefer({ parentID }: Task): void {
    const deferred = this.#deferred.get(parentID)
    if (!deferred?.isDue) return
    this.#deferred.delete(parentID)
    this.#ports.wakeDone(deferred.task)
  }

  #defer(task: Task, model: Model | undefined): void {
    const before = this.#deferred.get(task.parentID)
    this.#deferred.set(task.parentID, { task, model, at: this.#ports.clock.now() })
    if (before) this.#ports.wakeDone(before.task)
  }

  /** Waits until another notification is queued that can wake the parent instead, or until the time is up. */
  async #gather(task: Task, lane: Lane): Promise<void> {
    let waited = 0
    while (this.#isOpen(task.parentID, lane) && lane.items.length === 1 && waited < this.#ports.gatherMs(task))
      if (await this.#pauses.in(lane, GATHER_STEP_MS)) waited += GATHER_STEP_MS
  }

  #forget(parentID: string, lane: Lane): void {
    if (this.#lanes.get(parentID) === lane && lane.wakeRequests.size + lane.notes.length === 0)
      this.#lanes.delete(parentID)
  }

  /**
   * Sends notes, one at a time, each when the session is idle and no notification is queued. A loop of its own, so that
   * no notification waits while a note waits.
   */
  async #drainNotes(sessionID: string, lane: Lane): Promise<void> {
    for (;;) {
      const [note] = lane.notes
      if (!note || !this.#isOpen(sessionID, lane)) break
      const result = await this.#tellNote(sessionID, lane, note)
      if (typeof result === "number")
        await this.#pauses.for(result, (release) => {
          lane.releaseNotes = release
        })
      // The notes of a deleted session are dropped already.
      else if (lane.notes[0] === note) {
        lane.notes.shift()
        this.#ports.run("finish a note", async () => note.done?.(result))
      }
    }
    if (lane.state === "idle" && !lane.waking) this.#forget(sessionID, lane)
  }

  /** Sends or drops the note. Returns whether the note was sent, or how long to wait before the next attempt, in ms. */
  async #tellNote(sessionID: string, lane: Lane, note: PendingNote): Promise<boolean | number> {
    const { opencode } = this.#ports
    try {
      const composed = note.compose()
      if (composed === undefined) return false
      if (composed === "later") return SLOW_LOOK_MS
      const persona = await this.#sender.persona(sessionID, note.attempts)
      const obstacle = await this.#obstacle(sessionID, () => false)
      // No await may come between this test and the send.
      if (obstacle || !this.#isQuiet(sessionID, lane)) return SLOW_LOOK_MS
      note.sent ??= composed
      const prompt = notePrompt(opencode.messageID, sessionID, note.sent, persona)
      await this.#exclusively(sessionID, lane, () => this.#sender.send(prompt, lane))
      return true
    } catch (error) {
      const delay = RETRY_DELAYS_MS[note.attempts++]
      opencode.log("warn", "note not accepted", { session: sessionID, attempt: note.attempts, error: String(error) })
      const isGone = error instanceof OpencodeError && error.notFound
      return isGone ? false : (delay ?? false)
    }
  }

  /** Whether the lane sends nothing, and has not just started a turn. */
  #isQuiet(sessionID: string, lane: Lane): boolean {
    const isJustWoken = this.#ports.clock.now() - lane.sentAt < HELD_LOOK_MS
    return !isJustWoken && lane.state === "idle" && this.#isOpen(sessionID, lane)
  }

  /** Sends a note while no notification is sent. Notifications that are queued meanwhile are sent right after it. */
  async #exclusively(sessionID: string, lane: Lane, send: () => Promise<void>): Promise<void> {
    lane.state = "sending"
    try {
      await send()
    } finally {
      lane.state = "idle"
      if (lane.waking?.isPassed) this.#checkSoon(sessionID, lane)
      if (lane.items.length > 0 || lane.pendingWake) this.#start(sessionID, lane)
      else if (!this.#ports.stopped.aborted) this.#ports.drained(sessionID, lane.waking !== undefined)
    }
  }

  /** Starts the parent's model with a stored message, where no later message in the lane does so. */
  async #wake(parentID: string, lane: Lane, pendingWake: Required<Lane>["pendingWake"]): Promise<void> {
    const waking = { ...pendingWake, prompt: { ...pendingWake.prompt, noReply: false } }
    for (const delay of retryDelays()) {
      await this.#untilFree(parentID, lane)
      if (!this.#isOpen(parentID, lane)) return
      if (!this.#ports.mayWake(pendingWake.task)) break
      try {
        if (await this.#isAnsweredElsewhere(parentID, lane)) continue
        // The parent may have been stopped, deleted or ended while OpenCode was asked.
        if (!this.#isOpen(parentID, lane) || !this.#ports.mayWake(pendingWake.task)) continue
        await this.#sender.start(waking, lane)
        lane.waking = { ...waking, wakesAgain: pendingWake.wakesAgain ?? 0, isPassed: lane.idled }
        break
      } catch (error) {
        if (error instanceof OpencodeError && error.notFound) break
        await this.#beforeRetry(lane, delay)
      }
    }
    lane.pendingWake = undefined
  }

  /** Sends a stored notification again to wake the parent, unless the parent has answered it. */
  async #wakeAgain(task: Task): Promise<void> {
    const { clock, stopped } = this.#ports
    let prompt: Prompt | undefined
    try {
      // Reading is retried, because no other message wakes the parent for this task.
      prompt = await retry(clock, stopped, () => this.#sender.unanswered(task), retryDelays())
    } finally {
      this.#undefer(task)
    }
    if (!prompt || stopped.aborted) return
    const lane = this.#lane(task.parentID)
    lane.pendingWake ??= { prompt, task }
    lane.release()
    this.#start(task.parentID, lane)
  }

  /** Retries the notification until it is delivered, the parent or the task is gone, or the lane is closed. */
  async #persist(task: Task, lane: Lane, tell: (attempt: number) => Promise<boolean>): Promise<void> {
    const { opencode, isKnown, recordDelivery } = this.#ports
    let attempt = 0
    for (const delay of retryDelays()) {
      await this.#untilFree(task.parentID, lane)
      if (!this.#isOpen(task.parentID, lane) || !isKnown(task.id)) return
      try {
        if (await tell(attempt)) return
      } catch (error) {
        if (error instanceof OpencodeError && error.notFound) return recordDelivery(task, "abandoned", false)
        const fields = { task: task.id, session: task.parentID, attempt, error: String(error) }
        opencode.log("warn", "notification not accepted, trying again", fields)
        await this.#beforeRetry(lane, delay)
      }
      attempt++
    }
  }

  async #beforeRetry(lane: Lane, ms: number): Promise<void> {
    lane.state = "retrying"
    await this.#pauses.for(ms)
    lane.state = "sending"
  }

  /** Waits until a message may be sent: at once where one is meant to start the model, else when the session is idle. */
  async #untilFree(parentID: string, lane: Lane): Promise<void> {
    const { mayWake } = this.#ports
    const wakes = () => lane.pendingWake !== undefined || lane.items.some(({ wake, task }) => wake && mayWake(task))
    while (this.#isOpen(parentID, lane)) {
      lane.idled = false
      try {
        const obstacle = await this.#obstacle(parentID, wakes)
        if (obstacle === undefined) return
        if (lane.idled || (obstacle === "until idle" && wakes())) continue
        lane.state = obstacle
      } catch {
        lane.state = "until idle"
      }
      await this.#pauses.in(lane, lane.state === "until redone" ? SLOW_LOOK_MS : HELD_LOOK_MS)
      lane.state = "sending"
    }
  }

  /**
   * Decides whether the session may get a message now; returns until when it must wait. Every message deletes for good
   * what the session's user has undone. A message stored during a turn causes another step, so only one that is meant to
   * start the model does not wait for the end of the turn. Nothing waits for a session that is gone: the end of its turn
   * may never be reported, and OpenCode refuses the message.
   */
  async #obstacle(sessionID: string, wakes: () => boolean): Promise<"until idle" | "until redone" | undefined> {
    const { opencode } = this.#ports
    const session = await opencode.parent(sessionID)
    if (session?.reverted) return "until redone"
    return !session || wakes() || !(await opencode.activity()).has(sessionID) ? undefined : "until idle"
  }

  /**
   * Waits a while where another process answers in this session, and returns whether it does. Two turns of one session
   * at once would each take the other's open answer for unfinished, and ask the model without end.
   */
  async #isAnsweredElsewhere(sessionID: string, lane: Lane): Promise<boolean> {
    if (!(await this.#ports.opencode.isAnsweredElsewhere(sessionID))) return false
    await this.#pauses.in(lane, HELD_LOOK_MS)
    return true
  }

  /** Sends the notification. Returns false where the message must not be sent any more since it was composed. */
  async #tell(task: Task, item: LaneItem, lane: Lane, attempt: number): Promise<boolean> {
    const { opencode, recordDelivery } = this.#ports
    item.notice ??= await this.#ports.compose(task)
    const { notice, wake, maybeDelivered } = item
    if (maybeDelivered && attempt === 0 && (await this.#sender.isThere(task))) {
      const unread = wake && this.#ports.mayWake(task) ? await this.#sender.unanswered(task) : undefined
      if (unread && this.#ports.isBlocked(unread.model)) this.#defer(task, unread.model)
      else if (unread) lane.pendingWake ??= { prompt: unread, task }
      await recordDelivery(task, "confirmed", notice.handsOver)
      return true
    }
    const mayStart = lane.items.length === 1 && (wake || lane.pendingWake !== undefined)
    if (mayStart && (await this.#isAnsweredElsewhere(task.parentID, lane))) return false
    const persona = await this.#sender.persona(task.parentID, attempt)
    if (await this.#sender.isReverted(task.parentID)) {
      // The wait may be long: compose the message again, because there may be more to report.
      if (attempt === 0) item.notice = undefined
      return false
    }
    // The task may have been cleared while this function waited for OpenCode.
    if (!this.#ports.isKnown(task.id)) return false
    const last = lane.items.length === 1
    const { pendingWake } = lane
    const isToWake = (wake || pendingWake !== undefined) && this.#ports.mayWake(task)
    const isDeferred = isToWake && this.#ports.isBlocked(persona?.model)
    const wakes = isToWake && !isDeferred
    // Set before the send, because `review` may wake the parent while the send is under way.
    if (isDeferred) {
      item.wake = false
      this.#defer(task, persona?.model)
    }
    lane.idled = false
    const prompt = notificationPrompt(opencode.messageID, task, notice, persona, !(last && wakes))
    await this.#sender.send(prompt, lane, prompt.noReply ? undefined : { prompt, task })
    await recordDelivery(task, "confirmed", notice.handsOver)
    // A wake that was requested during the send must not be lost.
    const hasPending = prompt.noReply === true && (wakes || (item.wake && this.#ports.mayWake(task)))
    // A wake that another task requested during the send is kept, unless this send woke the parent.
    const later = prompt.noReply && !isDeferred && lane.pendingWake !== pendingWake ? lane.pendingWake : undefined
    lane.pendingWake = hasPending ? { prompt, task } : later
    if (last && wakes) lane.waking = { prompt, task, wakesAgain: 0, isPassed: lane.idled }
    return true
  }

  #checkSoon(parentID: string, lane: Lane): void {
    const { waking } = lane
    if (waking) this.#ports.run("check the parent's answer", () => this.#checkAnswered(parentID, lane, waking))
  }

  async #checkAnswered(parentID: string, lane: Lane, waking: Required<Lane>["waking"]): Promise<void> {
    const { clock, stopped } = this.#ports
    const { wakesAgain } = waking
    const isRepeated =
      lane.waking === waking &&
      wakesAgain < MOST_REPEATS &&
      (await retry(clock, stopped, () => this.#sender.isIgnored(waking)))
    if (!this.#isOpen(parentID, lane) || lane.waking !== waking || waking.wakesAgain !== wakesAgain) return
    if (isRepeated) {
      waking.wakesAgain++
      waking.isPassed = false
      lane.pendingWake ??= waking
      return this.#start(parentID, lane)
    }
    lane.waking = undefined
    lane.releaseNotes()
    if (lane.state === "idle" && lane.items.length === 0) this.#forget(parentID, lane)
  }
}
