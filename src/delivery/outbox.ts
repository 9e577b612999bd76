import { messageID, partID } from "../core/ids.ts"
import type { Clock, Host, Persona, Prompt } from "../core/ports.ts"
import { HostError } from "../core/ports.ts"
import type { Task } from "../core/task.ts"
import type { Notice } from "./compose.ts"

/** Waits before a send is tried again; the last one repeats until the parent is gone or the process ends. */
const RETRY_DELAYS_MS = [250, 1000, 4000, 15_000, 60_000] as const
/** Waits before a look whether the host has stored the message. */
const CONFIRM_DELAYS_MS = [5, 25, 100, 500, 2000] as const
/** Waits between two looks whether a busy parent has become idle, should its event have been missed. */
const IDLE_LOOK_MS = 2000
/** From this attempt on, an agent that the configuration no longer has is left out: the host then takes its default. */
const WITHOUT_AGENT_FROM = 3
/** How often an unanswered message is put before an idle parent again. */
const MOST_NUDGES = 3

export type OutboxPorts = {
  readonly host: Host
  readonly clock: Clock
  /** False where a task was forgotten meanwhile: nothing is told of it any more. */
  readonly isKnown: (taskID: string) => boolean
  readonly compose: (task: Task) => Notice
  /** Records how far a notification has come. Must not reject. */
  readonly advance: (task: Task, state: "sent" | "confirmed" | "abandoned") => Promise<void>
  readonly run: (what: string, work: () => Promise<unknown>) => void
}

/** A run's notification, with the task as it was when the run ended: a resume meanwhile does not change it. */
type Item = { readonly task: Task; readonly wake: boolean; readonly ready: Promise<unknown> }

type Lane = {
  readonly items: Item[]
  draining: boolean
  /** An earlier message of this lane was to wake the parent and left that to a later one. */
  wakeOwed: boolean
  /** The parent became idle while a message was on its way to it. */
  idled: boolean
  /** Ends the wait for the parent to become idle. */
  release?: () => void
  /** The last message that was to start the parent's model, until it is seen to have done so. */
  waking?: { readonly prompt: Prompt; nudges: number }
}

/**
 * Tells parents how their tasks ended: exactly once, in order, one at a time for each parent. The message's id is
 * derived from task and run, so what is sent again is the same message; it counts as told when the parent holds it.
 * Of several that wait, only the last starts the parent's model.
 */
export class Outbox {
  readonly #ports: OutboxPorts
  readonly #lanes = new Map<string, Lane>()
  #stopped = false
  readonly #cancels = new Set<() => void>()

  constructor(ports: OutboxPorts) {
    this.#ports = ports
  }

  /**
   * Queues the notification that `task` owes; does nothing where it owes none. It goes out once `ready`, which must not
   * reject, has resolved.
   */
  post(task: Task, ready: Promise<unknown> = Promise.resolve()): void {
    const { delivery } = task
    if (delivery.state !== "pending" && delivery.state !== "sent") return
    const lane = this.#lane(task.parentID)
    if (lane.items.some((item) => item.task.id === task.id && item.task.run.generation === task.run.generation)) return
    lane.items.push({ task, wake: delivery.wake, ready })
    lane.release?.()
    if (lane.draining) return
    lane.draining = true
    this.#ports.run("notify", () => this.#drain(task.parentID, lane))
  }

  /** True while something is still to be told to this session. */
  owes(parentID: string): boolean {
    const lane = this.#lanes.get(parentID)
    return lane !== undefined && (lane.draining || lane.items.length > 0)
  }

  /**
   * The parent has become idle. A message that reached it in the very moment in which it ended its turn is stored but
   * was never read: it is put before the parent once more.
   */
  parentIdle(parentID: string): void {
    const lane = this.#lanes.get(parentID)
    if (!lane) return
    lane.idled = true
    lane.release?.()
    if (!lane.draining) this.#checkSoon(parentID, lane)
  }

  /** Nothing is sent any more to a session that was deleted. */
  parentDeleted(parentID: string): void {
    const lane = this.#lanes.get(parentID)
    this.#lanes.delete(parentID)
    lane?.release?.()
  }

  stop(): void {
    this.#stopped = true
    for (const cancel of this.#cancels) cancel()
  }

  #lane(parentID: string): Lane {
    const lane = this.#lanes.get(parentID) ?? { items: [], draining: false, wakeOwed: false, idled: false }
    this.#lanes.set(parentID, lane)
    return lane
  }

  async #drain(parentID: string, lane: Lane): Promise<void> {
    try {
      for (let item = lane.items[0]; item && !this.#stopped; item = lane.items[0]) {
        await item.ready
        await this.#deliver(item, lane)
        lane.items.shift()
      }
    } finally {
      lane.draining = false
      if (lane.idled) this.#checkSoon(parentID, lane)
      if (!lane.waking && this.#lanes.get(parentID) === lane) this.#lanes.delete(parentID)
    }
  }

  async #deliver(item: Item, lane: Lane): Promise<void> {
    for (let attempt = 0; !this.#stopped; attempt++) {
      const { task } = item
      await this.#silence(task.parentID, lane)
      if (this.#stopped) return
      if (!this.#ports.isKnown(task.id) || this.#lanes.get(task.parentID) !== lane) return
      try {
        await this.#send(item, lane, attempt)
        return
      } catch (error) {
        if (error instanceof HostError && error.notFound) {
          await this.#ports.advance(task, "abandoned")
          return
        }
        this.#ports.host.log("warn", "notification not accepted, trying again", {
          task: task.id,
          session: task.parentID,
          attempt,
          error: String(error),
        })
        await this.#pause(RETRY_DELAYS_MS[Math.min(attempt, RETRY_DELAYS_MS.length - 1)] ?? 0)
      }
    }
  }

  /**
   * Waits until the parent is idle where nothing in the lane is to start its model: a message that is stored in the
   * middle of a turn makes the host's loop go on for another step, with `noReply` too.
   */
  async #silence(parentID: string, lane: Lane): Promise<void> {
    const wakes = () => lane.wakeOwed || lane.items.some(({ wake }) => wake)
    while (!this.#stopped && !wakes() && this.#lanes.get(parentID) === lane) {
      lane.idled = false
      try {
        if (!(await this.#ports.host.activity()).has(parentID)) return
      } catch {
        // The wait below comes before the next look.
      }
      if (lane.idled || wakes()) continue
      await this.#pause(IDLE_LOOK_MS, (release) => {
        lane.release = release
      })
      lane.release = undefined
    }
  }

  async #send({ task, wake }: Item, lane: Lane, attempt: number): Promise<void> {
    const { host, advance } = this.#ports
    const persona = await this.#persona(task.parentID, attempt)
    const last = lane.items.length === 1
    const wakes = last && (wake || lane.wakeOwed)
    lane.idled = false
    const prompt = this.#prompt(task, persona, !wakes)
    await advance(task, "sent")
    await host.prompt(prompt)
    await this.#confirm(prompt)
    await advance(task, "confirmed")
    lane.wakeOwed = last ? false : lane.wakeOwed || wake
    if (wakes) lane.waking = { prompt, nudges: 0 }
  }

  /** Who speaks in the parent. Its agent may be gone from the configuration: a message from it would never be taken. */
  async #persona(parentID: string, attempt: number): Promise<Persona | undefined> {
    const { host } = this.#ports
    const persona = await host.persona(parentID)
    if (!persona || attempt < WITHOUT_AGENT_FROM) return persona
    const agents = await host.agents()
    return agents.some(({ name }) => name === persona.agent) ? persona : undefined
  }

  #prompt(task: Task, persona: Persona | undefined, noReply: boolean): Prompt {
    const { visible, hidden } = this.#ports.compose(task)
    const at = task.run.endedAt ?? 0
    const part = (index: number) => partID("notification", task.id, task.run.generation, at, index)
    return {
      sessionID: task.parentID,
      messageID: messageID("notification", task.id, task.run.generation, at),
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
    throw new HostError("The host took the notification but does not show it.", { ambiguous: true })
  }

  #checkSoon(parentID: string, lane: Lane): void {
    if (lane.waking) this.#ports.run("check the parent's answer", () => this.#checkAnswered(parentID, lane))
  }

  async #checkAnswered(parentID: string, lane: Lane): Promise<void> {
    const { waking } = lane
    if (!waking) return
    const since = await this.#ports.host.messagesSince(parentID, waking.prompt.messageID)
    const asked = new Set(since.flatMap((message) => (message.role === "user" ? [message.id] : [])))
    const unread = !since.some((message) => message.parentID !== undefined && asked.has(message.parentID))
    if (unread && lane.waking === waking && waking.nudges < MOST_NUDGES) {
      waking.nudges++
      await this.#ports.host.prompt(waking.prompt)
      return
    }
    if (lane.waking === waking) lane.waking = undefined
    if (!lane.draining && lane.items.length === 0) this.#lanes.delete(parentID)
  }

  /** Waits `ms`, or until the function that `cancellable` is handed is called. */
  #pause(ms: number, cancellable: (cancel: () => void) => void = () => {}): Promise<void> {
    if (ms === 0 || this.#stopped) return Promise.resolve()
    return new Promise((resolve) => {
      const done = () => {
        this.#cancels.delete(cancel)
        resolve()
      }
      const stop = this.#ports.clock.after(ms, done)
      const cancel = () => {
        stop()
        done()
      }
      this.#cancels.add(cancel)
      cancellable(cancel)
    })
  }
}
