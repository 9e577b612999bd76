import { type Host, HostError, type Persona, type Prompt } from "../../core/ports.ts"
import type { Task } from "../../core/task.ts"
import { NOTICE_PARTS } from "../../present/notification.ts"
import type { Lane, Waking } from "./lane.ts"
import { isUnread, notificationID, promptOf } from "./message.ts"
import type { Pauses } from "./user-pauses.ts"

/** Waits before a look whether the host has stored the message. */
const CONFIRM_DELAYS_MS = [5, 25, 100, 500, 2000] as const
/** From this attempt on, an agent that the configuration no longer has is left out: the host then takes its default. */
const WITHOUT_AGENT_FROM = 3

export type SenderPorts = {
  readonly host: Host
  /** False where the parent's model is not to be started by this: somebody or something has stopped it. */
  readonly mayWake: (task: Task) => boolean
  /** Its model was started in the moment in which it was stopped. Must not reject. */
  readonly silence: (parentID: string) => Promise<void>
}

/**
 * Brings one message to a parent: speaks as who speaks there, keeps a parent stopped that was stopped meanwhile, and sees
 * that the message is there.
 */
export class Sender {
  readonly #ports: SenderPorts
  readonly #pauses: Pauses

  constructor(ports: SenderPorts, pauses: Pauses) {
    this.#ports = ports
    this.#pauses = pauses
  }

  /** True while the session's user has undone something of it: any message would delete that for good. */
  async isReverted(parentID: string): Promise<boolean> {
    return (await this.#ports.host.parent(parentID))?.reverted === true
  }

  /** True where the parent holds the whole notification of a run's end. */
  isThere(task: Task): Promise<boolean> {
    const { host } = this.#ports
    return host.hasMessage(task.parentID, notificationID(host.messageID, task), NOTICE_PARTS)
  }

  /** What the parent holds of a run's end as a message that starts its model; undefined where it was answered. */
  async unanswered(task: Task): Promise<Prompt | undefined> {
    const { host } = this.#ports
    const since = await host.messagesSince(task.parentID, notificationID(host.messageID, task))
    const [stored] = since
    if (!stored || !isUnread(since)) return undefined
    const [visible = "", hidden = ""] = stored.parts.flatMap((part) => (part.type === "text" ? [part.text] : []))
    return promptOf(host.messageID, task, { visible, hidden }, await this.persona(task.parentID, 0), false)
  }

  /** True where a message that was to start its parent's model is there and was never read, and may still start it. */
  async isIgnored({ prompt, task }: Waking): Promise<boolean> {
    const { host, mayWake } = this.#ports
    const since = await host.messagesSince(task.parentID, prompt.messageID)
    return isUnread(since) && mayWake(task) && !(await this.isReverted(task.parentID))
  }

  /** Who speaks in the parent. Its agent may be gone from the configuration: a message from it would never be taken. */
  async persona(parentID: string, attempt: number): Promise<Persona | undefined> {
    const { host } = this.#ports
    const persona = await host.persona(parentID)
    if (!persona || attempt < WITHOUT_AGENT_FROM) return persona
    const agents = await host.agents()
    return agents.some(({ name }) => name === persona.agent) ? persona : undefined
  }

  /** Resolves when the parent holds the message; rejects where it does not show. */
  async #confirm(prompt: Prompt): Promise<void> {
    // What starts no model is stored when the host has taken it.
    const delays = prompt.noReply ? [0, ...CONFIRM_DELAYS_MS] : CONFIRM_DELAYS_MS
    for (const delay of delays) {
      await this.#pauses.for(delay)
      if (await this.#ports.host.hasMessage(prompt.sessionID, prompt.messageID, prompt.parts.length)) return
    }
    throw new HostError("The host took the notification but does not show it.")
  }

  /** Brings it to the parent, and waits until that holds it. */
  async send(waking: Waking, lane: Lane): Promise<void> {
    const { prompt } = waking
    lane.isTelling = true
    try {
      if (prompt.noReply) await this.#ports.host.prompt({ ...prompt, lookedFor: true })
      else await this.start(waking, lane)
      await this.#confirm(prompt)
    } finally {
      lane.isTelling = false
    }
    // It may have been stopped between the moment in which the host took this and that in which it began.
    if (!prompt.noReply) await this.#keepStopped(waking)
  }

  /** Starts the parent's model by a message. Where it was stopped meanwhile, it is stopped again. */
  async start({ prompt, task }: Waking, lane: Lane): Promise<void> {
    lane.isWaking = true
    try {
      await this.#ports.host.prompt(prompt)
    } finally {
      await this.#keepStopped({ prompt, task })
      lane.isWaking = false
    }
  }

  /** Stops a parent that was stopped while its model was being started; not what its user has begun since. */
  async #keepStopped({ prompt, task }: Waking): Promise<void> {
    const { host, mayWake, silence } = this.#ports
    if (mayWake(task)) return
    const [, ...since] = await host.messagesSince(prompt.sessionID, prompt.messageID).catch(() => [])
    if (since.every(({ role }) => role !== "user")) await silence(task.parentID)
  }
}
