import { type Clock, OpencodeError } from "../../core/ports.ts"
import { type Model, owesNotification, type Task } from "../../core/task.ts"
import { retry } from "../../lib/clock.ts"
import type { NotificationTexts } from "../../present/notification.ts"
import {
  type Lane,
  type LaneItem,
  newLane,
  notificationPrompt,
  Sender,
  type SenderPorts,
  StoppableWaits,
  type Waking,
} from "./sender.ts"

/** Delays between attempts; the last one repeats until the parent is gone or the process ends. */
const RETRY_DELAYS_MS = [250, 1000, 4000, 15_000, 60_000] as const
/** Wait steps for other ends, so that the last of several wakes the parent for all. */
const GATHER_STEP_MS = 250
/** Interval for checking a parent that accepts no message now, in case its event is missed. */
const HELD_LOOK_MS = 2000
/** Most repetitions of an unanswered message. */
const MOST_NUDGES = 3

export type OutboxPorts = SenderPorts & {
  readonly clock: Clock
  /** False where the task was cleared meanwhile, or another process has taken it over. */
  readonly isKnown: (taskID: string) => boolean
  /** No other task of this parent is still to be announced. */
  readonly isLast: (task: Task) => boolean
  /** How long to wait for other running tasks that may end in the same moment. */
  readonly gatherMs: (task: Task) => number
  /** Whether this model must not be asked now. Its session is then woken by the first `review` that finds otherwise. */
  readonly isBlocked: (model: Model | undefined) => boolean
  /** Must not reject. */
  readonly compose: (task: Task) => Promise<NotificationTexts>
  /** Records the delivery state, and whether the whole answer is in it. Must not reject. */
  readonly told: (task: Task, state: "confirmed" | "abandoned", handedOver: boolean) => Promise<void>
  /** Called when a parent's lane is empty; `woken`: its model was started. */
  readonly drained: (parentID: string, woken: boolean) => void
  readonly run: (what: string, work: () => Promise<unknown>) => void
  readonly stopped: AbortSignal
}

/**
 * Tells parents how their tasks ended: once, in order, one message at a time for each parent. Message ids derive from
 * task and run, so a repeated send stores nothing new; a message counts as told when the parent holds it.
 */
export class Outbox {
  readonly #ports: OutboxPorts
  readonly #lanes = new Map<string, Lane>()
  /** By parent: its last notification that did not start its model, because that must not be asked. */
  readonly #deferred = new Map<string, { readonly task: Task; readonly model: Model | undefined }>()
  readonly #pauses: StoppableWaits
  readonly #sender: Sender

  constructor(ports: OutboxPorts) {
    this.#ports = ports
    this.#pauses = new StoppableWaits(ports.clock, ports.stopped)
    this.#sender = new Sender(ports, this.#pauses)
  }

  /** Queues the notification that the task owes, if any. `maybeDelivered`: first check whether the parent has it. */
  post(task: Task, maybeDelivered = false): void {
    if (!owesNotification(task)) return
    if (this.holds(task)) return
    const lane = this.#lane(task.parentID)
    const isRoused = lane.roused.delete(task.id)
    lane.items.push({ task, wake: task.delivery.wake || isRoused, maybeDelivered })
    lane.release()
    if (lane.state !== "resting") return
    lane.state = "sending"
    this.#ports.run("notify", () => this.#drain(task.parentID, lane))
  }

  /** The end of this run waits to be told or is being sent. */
  holds({ id, parentID, run: { generation } }: Task): boolean {
    const { items = [] } = this.#lanes.get(parentID) ?? {}
    return items.some(({ task }) => task.id === id && task.run.generation === generation)
  }

  /** The batch ended without waking its parent: the message about this task wakes it. */
  wakeAgain(task: Task): void {
    const lane = this.#lane(task.parentID)
    const item = lane.items.find((each) => each.task.id === task.id)
    if (item) item.wake = true
    else if (owesNotification(task)) lane.roused.add(task.id)
    else this.#ports.run("wake", () => this.#wakeAgain(task))
  }

  /** Whether a parent is woken later, by `review`. */
  get defersWake(): boolean {
    return this.#deferred.size > 0
  }

  /** Wakes parents whose models may be asked again. Called at the beginning of each pass of the scheduler. */
  review(): void {
    for (const [parentID, { task, model }] of this.#deferred) {
      if (this.#ports.isBlocked(model)) continue
      this.#deferred.delete(parentID)
      // Its notification was stored before.
      this.wakeAgain({ ...task, delivery: { state: "none" } })
    }
  }

  /** A message that starts the session's model is being sent: its activity then is not its user's. */
  isWaking(parentID: string): boolean {
    return this.#lanes.get(parentID)?.isWaking === true
  }

  /** OpenCode is storing a message for this session. */
  isTelling(parentID: string): boolean {
    return this.#lanes.get(parentID)?.isTelling === true
  }

  /** A message to this session is pending, or its wake-up. */
  owes(parentID: string): boolean {
    const { state = "resting", items = [] } = this.#lanes.get(parentID) ?? {}
    return state !== "resting" || items.length > 0 || this.#deferred.has(parentID)
  }

  /** The parent became idle. A message that arrived just as its turn ended is stored but unread: it is sent again. */
  parentIdle(parentID: string): void {
    const lane = this.#lanes.get(parentID)
    if (!lane) return
    lane.idled = true
    if (lane.waking) lane.waking.isPassed = true
    lane.release()
    if (lane.state === "resting") this.#checkSoon(parentID, lane)
  }

  /** The parent's session changed: what it held back may go now. */
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
        } else if (lane.owed) await this.#wake(parentID, lane, lane.owed)
        else break
      }
    } finally {
      lane.state = "resting"
      if (lane.waking?.isPassed) this.#checkSoon(parentID, lane)
      if (!lane.waking) this.#forget(parentID, lane)
      if (!this.#ports.stopped.aborted) this.#ports.drained(parentID, lane.waking !== undefined)
    }
  }

  /** Waits for another end that may wake the parent instead, or until the time is up. */
  async #gather(task: Task, lane: Lane): Promise<void> {
    let waited = 0
    while (this.#isOpen(task.parentID, lane) && lane.items.length === 1 && waited < this.#ports.gatherMs(task))
      if (await this.#pauses.in(lane, GATHER_STEP_MS)) waited += GATHER_STEP_MS
  }

  #forget(parentID: string, lane: Lane): void {
    if (this.#lanes.get(parentID) === lane && lane.roused.size === 0) this.#lanes.delete(parentID)
  }

  /** Sends the wake-up that was left to a later message, where that one was withdrawn. */
  async #wake(parentID: string, lane: Lane, owed: Waking): Promise<void> {
    const waking = { ...owed, prompt: { ...owed.prompt, noReply: false } }
    for (const delay of [...RETRY_DELAYS_MS, 0]) {
      await this.#untilFree(parentID, lane)
      if (!this.#isOpen(parentID, lane)) return
      if (!this.#ports.mayWake(owed.task)) break
      try {
        await this.#sender.start(waking, lane)
        lane.waking = { ...waking, wakesAgain: 0, isPassed: lane.idled }
        break
      } catch {
        await this.#pauses.for(delay)
      }
    }
    lane.owed = undefined
  }

  /** Sends a stored message again, unless it was answered. */
  async #wakeAgain(task: Task): Promise<void> {
    const { clock, stopped } = this.#ports
    // Retried, because no other message wakes the parent for it.
    const prompt = await retry(clock, stopped, () => this.#sender.unanswered(task))
    if (!prompt || stopped.aborted) return
    const lane = this.#lane(task.parentID)
    lane.owed ??= { prompt, task }
    if (lane.state !== "resting") return
    lane.state = "sending"
    await this.#drain(task.parentID, lane)
  }

  /** Retries until it is told, the parent is gone, or nothing is to be told any more. */
  async #persist(task: Task, lane: Lane, tell: (attempt: number) => Promise<boolean>): Promise<void> {
    const { host, isKnown, told } = this.#ports
    for (let attempt = 0; ; attempt++) {
      await this.#untilFree(task.parentID, lane)
      if (!this.#isOpen(task.parentID, lane) || !isKnown(task.id)) return
      try {
        if (await tell(attempt)) return
      } catch (error) {
        if (error instanceof OpencodeError && error.notFound) return told(task, "abandoned", false)
        const fields = { task: task.id, session: task.parentID, attempt, error: String(error) }
        host.log("warn", "notification not accepted, trying again", fields)
        await this.#pauses.for(RETRY_DELAYS_MS[Math.min(attempt, RETRY_DELAYS_MS.length - 1)] ?? 0)
      }
    }
  }

  /**
   * Waits until a message may be sent. Every message deletes what the parent's user has undone, and one stored during a
   * turn causes another step: it waits unless it is to start the model.
   */
  async #untilFree(parentID: string, lane: Lane): Promise<void> {
    const { host, mayWake } = this.#ports
    const wakes = () => lane.owed !== undefined || lane.items.some(({ wake, task }) => wake && mayWake(task))
    while (this.#isOpen(parentID, lane)) {
      lane.idled = false
      try {
        const reverted = await this.#sender.isReverted(parentID)
        if (!reverted && (wakes() || !(await host.activity()).has(parentID))) return
        if (lane.idled || (!reverted && wakes())) continue
        lane.state = reverted ? "until redone" : "until idle"
      } catch {
        lane.state = "until idle"
      }
      await this.#pauses.in(lane, HELD_LOOK_MS)
      lane.state = "sending"
    }
  }

  /** False where the message may no longer be sent, although it could when it was composed. */
  async #tell(task: Task, item: LaneItem, lane: Lane, attempt: number): Promise<boolean> {
    const { host, told } = this.#ports
    item.notice ??= await this.#ports.compose(task)
    const { notice, wake, maybeDelivered } = item
    if (maybeDelivered && attempt === 0 && (await this.#sender.isThere(task))) {
      await told(task, "confirmed", notice.handsOver)
      return true
    }
    const persona = await this.#sender.persona(task.parentID, attempt)
    if (await this.#sender.isReverted(task.parentID)) {
      // There may be more to tell after the wait.
      if (attempt === 0) item.notice = undefined
      return false
    }
    // The task may have been cleared during these calls.
    if (!this.#ports.isKnown(task.id)) return false
    const last = lane.items.length === 1
    const { owed } = lane
    const isToWake = (wake || owed !== undefined) && this.#ports.mayWake(task)
    const isDeferred = isToWake && this.#ports.isBlocked(persona?.model)
    const wakes = isToWake && !isDeferred
    // `review` may wake the parent before this send is done.
    if (isDeferred) {
      item.wake = false
      this.#deferred.set(task.parentID, { task, model: persona?.model })
    }
    lane.idled = false
    const prompt = notificationPrompt(host.messageID, task, notice, persona, !(last && wakes))
    await this.#sender.send({ prompt, task }, lane)
    await told(task, "confirmed", notice.handsOver)
    // Keep a wake that was requested during the send.
    const owes = prompt.noReply === true && (wakes || (item.wake && this.#ports.mayWake(task)))
    // Keep a wake that was requested during the send, unless this send woke the parent.
    const later = prompt.noReply && !isDeferred && lane.owed !== owed ? lane.owed : undefined
    lane.owed = owes ? { prompt, task } : later
    if (last && wakes) lane.waking = { prompt, task, wakesAgain: 0, isPassed: lane.idled }
    return true
  }

  #checkSoon(parentID: string, lane: Lane): void {
    const { waking } = lane
    if (waking) this.#ports.run("check the parent's answer", () => this.#checkAnswered(parentID, lane, waking))
  }

  async #checkAnswered(parentID: string, lane: Lane, waking: Required<Lane>["waking"]): Promise<void> {
    const { wakesAgain } = waking
    const nudge = lane.waking === waking && wakesAgain < MOST_NUDGES && (await this.#sender.isIgnored(waking))
    if (!this.#isOpen(parentID, lane) || lane.waking !== waking || waking.wakesAgain !== wakesAgain) return
    if (nudge) {
      waking.wakesAgain++
      waking.isPassed = false
      return this.#sender.start(waking, lane)
    }
    lane.waking = undefined
    if (lane.state === "resting" && lane.items.length === 0) this.#forget(parentID, lane)
  }
}
