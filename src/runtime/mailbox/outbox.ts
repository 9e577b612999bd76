import { type Clock, HostError, type Persona } from "../../core/ports.ts"
import { owesNotification, type Task } from "../../core/task.ts"
import { retry } from "../../lib/clock.ts"
import type { Notice } from "../../present/notification.ts"
import { type Item, type Lane, newLane, type Waking } from "./lane.ts"
import { promptOf } from "./message.ts"
import { Sender, type SenderPorts } from "./sender.ts"
import { Pauses } from "./user-pauses.ts"

/** Waits before a send is tried again; the last one repeats until the parent is gone or the process ends. */
const RETRY_DELAYS_MS = [250, 1000, 4000, 15_000, 60_000] as const
/** Steps of the wait for another end, so that the last of several wakes the parent for all. */
const GATHER_STEP_MS = 250
/** Waits between two looks whether a parent that nothing may be sent to has changed, should its event be missed. */
const HELD_LOOK_MS = 2000
/** How often an unanswered message is put before an idle parent again. */
const MOST_NUDGES = 3

export type OutboxPorts = SenderPorts & {
  readonly clock: Clock
  /** False where a task was forgotten meanwhile: nothing is told of it any more. */
  readonly isKnown: (taskID: string) => boolean
  /** True when no other task of this parent is still to be announced. */
  readonly isLast: (task: Task) => boolean
  /** How long others that run are waited for, since they may end in the same moment. */
  readonly gatherMs: (task: Task) => number
  /** True where the parent's model is at its limit; it is then noted, and started by `rouse` when that opens. */
  readonly isClosed: (task: Task, persona: Persona | undefined) => boolean
  /** Must not reject. */
  readonly compose: (task: Task) => Promise<Notice>
  /** Records how far a notification has come, and whether the answer is in it whole. Must not reject. */
  readonly told: (task: Task, state: "confirmed" | "abandoned", handedOver: boolean) => Promise<void>
  /** All that was to be told to a parent is; `woken`: its model was started by it. */
  readonly drained: (parentID: string, woken: boolean) => void
  readonly run: (what: string, work: () => Promise<unknown>) => void
  readonly stopped: AbortSignal
}

/**
 * Tells parents how their tasks ended: exactly once, in order, one at a time for each parent. The message's id is
 * derived from task and run, so what is sent again, here or by another process, is the same message; it counts as told
 * when the parent holds it. Of several that end together, only the last starts the parent's model.
 */
export class Outbox {
  readonly #ports: OutboxPorts
  readonly #lanes = new Map<string, Lane>()
  readonly #pauses: Pauses
  readonly #sender: Sender

  constructor(ports: OutboxPorts) {
    this.#ports = ports
    this.#pauses = new Pauses(ports.clock, ports.stopped)
    this.#sender = new Sender(ports, this.#pauses)
  }

  /**
   * Queues the notification that `task` owes; does nothing where it owes none. `maybeTold`: the parent is asked first
   * whether it has it.
   */
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

  /** True while the end of this run waits to be told, or is on its way. */
  holds({ id, parentID, run: { generation } }: Task): boolean {
    const { items = [] } = this.#lanes.get(parentID) ?? {}
    return items.some(({ task }) => task.id === id && task.run.generation === generation)
  }

  /** A batch is over of which nothing has woken its parent: what it was told of this task does. */
  wakeAgain(task: Task): void {
    const lane = this.#lane(task.parentID)
    const item = lane.items.find((each) => each.task.id === task.id)
    if (item) item.wake = true
    else if (owesNotification(task)) lane.roused.add(task.id)
    else this.#ports.run("wake", () => this.#wakeAgain(task))
  }

  /** True while what is to start the session's model is on its way: that it is at work then is no word of its user. */
  isWaking(parentID: string): boolean {
    return this.#lanes.get(parentID)?.isWaking === true
  }

  /** True while the host takes a message to this session. */
  isTelling(parentID: string): boolean {
    return this.#lanes.get(parentID)?.isTelling === true
  }

  /** True while something is still to be told to this session. */
  owes(parentID: string): boolean {
    const { state = "resting", items = [] } = this.#lanes.get(parentID) ?? {}
    return state !== "resting" || items.length > 0
  }

  /**
   * The parent has become idle. A message that reached it in the very moment in which it ended its turn is stored but
   * was never read: it is put before the parent once more.
   */
  parentIdle(parentID: string): void {
    const lane = this.#lanes.get(parentID)
    if (!lane) return
    lane.idled = true
    if (lane.waking) lane.waking.isPassed = true
    lane.release()
    if (lane.state === "resting") this.#checkSoon(parentID, lane)
  }

  /** The parent's session has changed: what it held back may go now. */
  parentChanged(parentID: string): void {
    const lane = this.#lanes.get(parentID)
    if (lane?.state === "until redone") lane.release()
  }

  /** Nothing is sent any more to a session that was deleted. */
  parentDeleted(parentID: string): void {
    const lane = this.#lanes.get(parentID)
    this.#lanes.delete(parentID)
    lane?.release()
  }

  #lane(parentID: string): Lane {
    const lane = this.#lanes.get(parentID) ?? newLane()
    this.#lanes.set(parentID, lane)
    return lane
  }

  /** True while this is the parent's lane and the plugin lives. */
  #isOpen(parentID: string, lane: Lane): boolean {
    return !this.#ports.stopped.aborted && this.#lanes.get(parentID) === lane
  }

  async #drain(parentID: string, lane: Lane): Promise<void> {
    try {
      while (this.#isOpen(parentID, lane)) {
        const [item] = lane.items
        if (item) await this.#deliver(item, lane)
        else if (lane.owed) await this.#wake(parentID, lane, lane.owed)
        else break
      }
    } finally {
      lane.state = "resting"
      if (lane.waking?.isPassed) this.#checkSoon(parentID, lane)
      if (!lane.waking) this.#forget(parentID, lane)
      if (!this.#ports.stopped.aborted) this.#ports.drained(parentID, lane.waking !== undefined)
    }
  }

  async #deliver(item: Item, lane: Lane): Promise<void> {
    const { task } = item
    if (item.wake && !this.#ports.isLast(task)) await this.#gather(task, lane)
    await this.#persist(task, lane, (attempt) => this.#tell(task, item, lane, attempt))
    lane.items.shift()
  }

  /** Waits until another has ended that may wake the parent instead, or for a moment. */
  async #gather(task: Task, lane: Lane): Promise<void> {
    let waited = 0
    while (this.#isOpen(task.parentID, lane) && lane.items.length === 1 && waited < this.#ports.gatherMs(task))
      if (await this.#pauses.in(lane, GATHER_STEP_MS)) waited += GATHER_STEP_MS
  }

  #forget(parentID: string, lane: Lane): void {
    if (this.#lanes.get(parentID) === lane && lane.roused.size === 0) this.#lanes.delete(parentID)
  }

  /** What was to wake the parent with a later message wakes it by itself where that one was taken back. */
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

  /** What is stored is sent once more, as it stands there, unless it was answered. */
  async #wakeAgain(task: Task): Promise<void> {
    const { clock, stopped } = this.#ports
    // Nobody else wakes the parent for it: one call that fails may not be the end of that.
    const prompt = await retry(clock, stopped, () => this.#sender.unanswered(task))
    if (!prompt || stopped.aborted) return
    const lane = this.#lane(task.parentID)
    lane.owed ??= { prompt, task }
    if (lane.state !== "resting") return
    lane.state = "sending"
    await this.#drain(task.parentID, lane)
  }

  /** Tries until it is told, the parent is gone or nothing is to be told any more. */
  async #persist(task: Task, lane: Lane, tell: (attempt: number) => Promise<boolean>): Promise<void> {
    const { host, isKnown, told } = this.#ports
    for (let attempt = 0; ; attempt++) {
      await this.#untilFree(task.parentID, lane)
      if (!this.#isOpen(task.parentID, lane) || !isKnown(task.id)) return
      try {
        if (await tell(attempt)) return
      } catch (error) {
        if (error instanceof HostError && error.notFound) return told(task, "abandoned", false)
        const fields = { task: task.id, session: task.parentID, attempt, error: String(error) }
        host.log("warn", "notification not accepted, trying again", fields)
        await this.#pauses.for(RETRY_DELAYS_MS[Math.min(attempt, RETRY_DELAYS_MS.length - 1)] ?? 0)
      }
    }
  }

  /**
   * Waits until something may be sent. Every message, `noReply` too, deletes for good what the parent's user has undone;
   * and one that is stored in the middle of a turn makes the host's loop go on for another step: what is to start no
   * model waits for the turn's end.
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

  /** False where nothing may be sent any more: that it may was seen before the message was made. */
  async #tell(task: Task, item: Item, lane: Lane, attempt: number): Promise<boolean> {
    const { host, told } = this.#ports
    item.notice ??= await this.#ports.compose(task)
    const { notice, wake, maybeDelivered } = item
    if (maybeDelivered && attempt === 0 && (await this.#sender.isThere(task))) {
      await told(task, "confirmed", notice.handsOver)
      return true
    }
    const persona = await this.#sender.persona(task.parentID, attempt)
    if (await this.#sender.isReverted(task.parentID)) {
      // By the time that it may, there may be other things to tell.
      if (attempt === 0) item.notice = undefined
      return false
    }
    // It may have been forgotten while all that was asked.
    if (!this.#ports.isKnown(task.id)) return false
    const last = lane.items.length === 1
    const { owed } = lane
    const isToWake = (wake || owed !== undefined) && this.#ports.mayWake(task)
    // Asked only where the answer matters: to ask notes that the parent is to be woken when its model opens.
    const closed = isToWake && this.#ports.isClosed(task, persona)
    const wakes = isToWake && !closed
    // Whoever opens the model's gate rouses it anew, perhaps while it is still being sent.
    if (closed) item.wake = false
    lane.idled = false
    const prompt = promptOf(host.messageID, task, notice, persona, !(last && wakes))
    await this.#sender.send({ prompt, task }, lane)
    await told(task, "confirmed", notice.handsOver)
    // It may be to wake since it was sent.
    const owes = prompt.noReply === true && (wakes || (item.wake && this.#ports.mayWake(task)))
    // What came to be owed while this was on its way is so still, where this has woken nobody.
    const later = prompt.noReply && !closed && lane.owed !== owed ? lane.owed : undefined
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
