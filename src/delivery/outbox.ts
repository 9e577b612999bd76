import { messageID, partID } from "../core/ids.ts"
import { type Clock, type Host, HostError, type Persona, type Prompt } from "../core/ports.ts"
import { isOwed, type Task } from "../core/task.ts"
import { NOTICE_PARTS, type Notice } from "./compose.ts"

/** Waits before a send is tried again; the last one repeats until the parent is gone or the process ends. */
const RETRY_DELAYS_MS = [250, 1000, 4000, 15_000, 60_000] as const
/** Waits before a look whether the host has stored the message. */
const CONFIRM_DELAYS_MS = [5, 25, 100, 500, 2000] as const
/** While others run, the wait for one that ends in the same moment: the last of them wakes the parent for all. */
const GATHER_MS = 250
/** Waits between two looks whether a parent that nothing may be sent to has changed, should its event be missed. */
const HELD_LOOK_MS = 2000
/** From this attempt on, an agent that the configuration no longer has is left out: the host then takes its default. */
const WITHOUT_AGENT_FROM = 3
/** How often an unanswered message is put before an idle parent again. */
const MOST_NUDGES = 3

export type OutboxPorts = {
  readonly host: Host
  readonly clock: Clock
  /** False where a task was forgotten meanwhile: nothing is told of it any more. */
  readonly isKnown: (taskID: string) => boolean
  /** True where of no other task of its parent there is still to be told. */
  readonly isLast: (task: Task) => boolean
  /** Must not reject. */
  readonly compose: (task: Task) => Promise<Notice>
  /** Records how far a notification has come, and whether the answer is in it whole. Must not reject. */
  readonly told: (task: Task, state: "confirmed" | "abandoned", handedOver: boolean) => Promise<void>
  /** All that was to be told to a parent is; `woken`: its model was started by it. */
  readonly drained: (parentID: string, woken: boolean) => void
  readonly run: (what: string, work: () => Promise<unknown>) => void
  readonly stopped: AbortSignal
}

/** A run's notification. It is told as the task was when the run had ended: a resume meanwhile does not change it. */
type Item = {
  readonly task: Task
  readonly wake: boolean
  readonly maybeTold: boolean
  /** Once it was sent, whatever came of that: what is sent again is the same. */
  notice?: Notice
}

/**
 * - `resting`: nothing is to be sent. Kept only while a message that was to wake the parent may be unread.
 * - `sending`: messages go out, one after the other.
 * - `until idle`: the parent is at work, and nothing that waits is to start its model.
 * - `until redone`: the parent's user has undone something.
 */
type LaneState = "resting" | "sending" | "until idle" | "until redone"

type Lane = {
  state: LaneState
  readonly items: Item[]
  /** The parent became idle since the last send began. */
  idled: boolean
  /** Ends the wait of a lane that may not send now. */
  release: () => void
  /** A stored message that was to wake the parent and left that to the next; the next takes it off. */
  owed?: Prompt
  /** The last message that was to start the parent's model, until it is seen to have done so. */
  waking?: { readonly prompt: Prompt; nudges: number }
}

/**
 * Tells parents how their tasks ended: exactly once, in order, one at a time for each parent. The message's id is
 * derived from task and run, so what is sent again, here or by another process, is the same message; it counts as told
 * when the parent holds it. Of several that end together, only the last starts the parent's model.
 */
export class Outbox {
  readonly #ports: OutboxPorts
  readonly #lanes = new Map<string, Lane>()
  readonly #pauses = new Set<() => void>()

  constructor(ports: OutboxPorts) {
    this.#ports = ports
    ports.stopped.addEventListener("abort", () => {
      for (const end of this.#pauses) end()
    })
  }

  /**
   * Queues the notification that `task` owes; does nothing where it owes none. `maybeTold`: the parent is asked first
   * whether it has it.
   */
  post(task: Task, maybeTold = false): void {
    if (!isOwed(task)) return
    const lane = this.#lane(task.parentID)
    if (lane.items.some((item) => item.task.id === task.id && item.task.run.generation === task.run.generation)) return
    lane.items.push({ task, wake: task.delivery.wake, maybeTold })
    lane.release()
    if (lane.state !== "resting") return
    lane.state = "sending"
    this.#ports.run("notify", () => this.#drain(task.parentID, lane))
  }

  /** True while something is still to be told to this session. */
  owes(parentID: string): boolean {
    const lane = this.#lanes.get(parentID)
    return lane !== undefined && (lane.state !== "resting" || lane.items.length > 0)
  }

  /**
   * The parent has become idle. A message that reached it in the very moment in which it ended its turn is stored but
   * was never read: it is put before the parent once more.
   */
  parentIdle(parentID: string): void {
    const lane = this.#lanes.get(parentID)
    if (!lane) return
    lane.idled = true
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
    const lane = this.#lanes.get(parentID) ?? { state: "resting", items: [], idled: false, release: () => {} }
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
        else if (lane.owed) await this.#wake(parentID, lane, { ...lane.owed, noReply: false })
        else break
      }
    } finally {
      lane.state = "resting"
      if (lane.idled) this.#checkSoon(parentID, lane)
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
  async #gather({ parentID }: Task, lane: Lane): Promise<void> {
    let isOver = false
    while (this.#isOpen(parentID, lane) && lane.items.length === 1 && !isOver)
      isOver = await this.#pause(GATHER_MS, (release) => {
        lane.release = release
      })
    lane.release = () => {}
  }

  #forget(parentID: string, lane: Lane): void {
    if (this.#lanes.get(parentID) === lane) this.#lanes.delete(parentID)
  }

  /** What was to wake the parent with a later message wakes it by itself where that one was taken back. */
  async #wake(parentID: string, lane: Lane, prompt: Prompt): Promise<void> {
    for (const delay of [...RETRY_DELAYS_MS, 0]) {
      await this.#untilFree(parentID, lane)
      if (!this.#isOpen(parentID, lane)) return
      try {
        await this.#ports.host.prompt(prompt)
        lane.waking = { prompt, nudges: 0 }
        break
      } catch {
        await this.#pause(delay)
      }
    }
    lane.owed = undefined
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
        await this.#pause(RETRY_DELAYS_MS[Math.min(attempt, RETRY_DELAYS_MS.length - 1)] ?? 0)
      }
    }
  }

  /**
   * Waits until something may be sent. Every message, `noReply` too, deletes for good what the parent's user has undone;
   * and one that is stored in the middle of a turn makes the host's loop go on for another step: what is to start no
   * model waits for the turn's end.
   */
  async #untilFree(parentID: string, lane: Lane): Promise<void> {
    const { host } = this.#ports
    const wakes = () => lane.owed !== undefined || lane.items.some(({ wake }) => wake)
    while (this.#isOpen(parentID, lane)) {
      lane.idled = false
      try {
        const reverted = (await host.parent(parentID))?.reverted === true
        if (!reverted && (wakes() || !(await host.activity()).has(parentID))) return
        if (lane.idled || (!reverted && wakes())) continue
        lane.state = reverted ? "until redone" : "until idle"
      } catch {
        lane.state = "until idle"
      }
      await this.#pause(HELD_LOOK_MS, (release) => {
        lane.release = release
      })
      lane.state = "sending"
      lane.release = () => {}
    }
  }

  /** False where nothing may be sent any more: that it may was seen before the message was made. */
  async #tell(task: Task, item: Item, lane: Lane, attempt: number): Promise<boolean> {
    const { host, told } = this.#ports
    const { wake, maybeTold } = item
    item.notice ??= await this.#ports.compose(task)
    const { notice } = item
    const id = notificationID(task)
    if (maybeTold && attempt === 0 && (await host.hasMessage(task.parentID, id, NOTICE_PARTS))) {
      await told(task, "confirmed", notice.handsOver)
      return true
    }
    const persona = await this.#persona(task.parentID, attempt)
    if ((await host.parent(task.parentID))?.reverted) {
      // By the time that it may, there may be other things to tell.
      if (attempt === 0) item.notice = undefined
      return false
    }
    // It may have been forgotten while all that was asked.
    if (!this.#ports.isKnown(task.id)) return false
    const last = lane.items.length === 1
    const wakes = wake || lane.owed !== undefined
    lane.idled = false
    const prompt = this.#prompt(task, notice, persona, !(last && wakes))
    await host.prompt(prompt)
    await this.#confirm(prompt)
    await told(task, "confirmed", notice.handsOver)
    lane.owed = !last && wakes ? prompt : undefined
    if (last && wakes) lane.waking = { prompt, nudges: 0 }
    return true
  }

  /** Who speaks in the parent. Its agent may be gone from the configuration: a message from it would never be taken. */
  async #persona(parentID: string, attempt: number): Promise<Persona | undefined> {
    const { host } = this.#ports
    const persona = await host.persona(parentID)
    if (!persona || attempt < WITHOUT_AGENT_FROM) return persona
    const agents = await host.agents()
    return agents.some(({ name }) => name === persona.agent) ? persona : undefined
  }

  #prompt(task: Task, { visible, hidden }: Notice, persona: Persona | undefined, noReply: boolean): Prompt {
    const part = (index: number) => partID("notification", task.id, task.run.generation, task.run.createdAt, index)
    return {
      sessionID: task.parentID,
      messageID: notificationID(task),
      agent: persona?.agent,
      model: persona?.model,
      noReply,
      parts: [
        { id: part(0), text: visible },
        { id: part(1), text: hidden, synthetic: true },
      ],
    }
  }

  async #confirm(prompt: Prompt): Promise<void> {
    // What starts no model is stored when the host has taken it.
    const delays = prompt.noReply ? [0, ...CONFIRM_DELAYS_MS] : CONFIRM_DELAYS_MS
    for (const delay of delays) {
      await this.#pause(delay)
      if (await this.#ports.host.hasMessage(prompt.sessionID, prompt.messageID, prompt.parts.length)) return
    }
    throw new HostError("The host took the notification but does not show it.")
  }

  #checkSoon(parentID: string, lane: Lane): void {
    if (lane.waking) this.#ports.run("check the parent's answer", () => this.#checkAnswered(parentID, lane))
  }

  async #checkAnswered(parentID: string, lane: Lane): Promise<void> {
    const { waking } = lane
    if (!waking) return
    const { prompt, nudges } = waking
    const since = await this.#ports.host.messagesSince(parentID, prompt.messageID)
    // An answer names the message that it answers.
    const ids = new Set<string | undefined>(since.map(({ id }) => id))
    // None: deleted by the parent's user, and not told again.
    const unread = since.length > 0 && !since.some(({ parentID: answered }) => ids.has(answered))
    const nudge = unread && nudges < MOST_NUDGES && !(await this.#ports.host.parent(parentID))?.reverted
    if (!this.#isOpen(parentID, lane) || lane.waking !== waking || waking.nudges !== nudges) return
    if (nudge) {
      waking.nudges++
      await this.#ports.host.prompt(prompt)
      return
    }
    lane.waking = undefined
    if (lane.state === "resting" && lane.items.length === 0) this.#forget(parentID, lane)
  }

  /** Waits `ms`, or until the function that `cancellable` is handed is called. Resolves with whether the time passed. */
  #pause(ms: number, cancellable: (cancel: () => void) => void = () => {}): Promise<boolean> {
    if (ms === 0 || this.#ports.stopped.aborted) return Promise.resolve(true)
    return new Promise((resolve) => {
      const end = (passed = false) => {
        cancel()
        this.#pauses.delete(end)
        resolve(passed)
      }
      const cancel = this.#ports.clock.after(ms, () => end(true))
      this.#pauses.add(end)
      cancellable(end)
    })
  }
}

/** The id of a run's notification: from the run alone, so that all who tell of it tell the same message. */
export const notificationID = ({ id, run }: Task): string =>
  messageID("notification", id, run.generation, run.createdAt)
