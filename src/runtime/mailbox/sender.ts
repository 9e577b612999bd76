import { type OpencodeApi, OpencodeError, type Persona, type Prompt } from "../../core/ports.ts"
import type { Task } from "../../core/task.ts"
import { NOTICE_PARTS } from "../../present/notification.ts"
import type { Lane, Waking } from "./lane.ts"
import { isUnread, notificationID, notificationPrompt } from "./message.ts"
import type { StoppableWaits } from "./user-pauses.ts"

/** Delays between checks whether the message is stored. */
const CONFIRM_DELAYS_MS = [5, 25, 100, 500, 2000] as const
/** From this attempt on, no agent is named: the configuration may no longer have it. */
const WITHOUT_AGENT_FROM = 3

export type SenderPorts = {
  readonly host: OpencodeApi
  /** False where a user or an abort has stopped the parent's model. */
  readonly mayWake: (task: Task) => boolean
  /** Stops a model that was started just as it was stopped. Must not reject. */
  readonly silence: (parentID: string) => Promise<void>
}

/**
 * Sends a message to a parent: with its agent and model, without restarting a stopped parent, and checks that it is
 * stored.
 */
export class Sender {
  readonly #ports: SenderPorts
  readonly #pauses: StoppableWaits

  constructor(ports: SenderPorts, pauses: StoppableWaits) {
    this.#ports = ports
    this.#pauses = pauses
  }

  /** The user has undone messages: any new message would delete them for good. */
  async isReverted(parentID: string): Promise<boolean> {
    return (await this.#ports.host.parent(parentID))?.reverted === true
  }

  /** Whether the parent holds the whole notification. */
  isThere(task: Task): Promise<boolean> {
    const { host } = this.#ports
    return host.hasMessage(task.parentID, notificationID(host.messageID, task), NOTICE_PARTS)
  }

  /** The stored notification as a message that starts the model; undefined where it was answered. */
  async unanswered(task: Task): Promise<Prompt | undefined> {
    const { host } = this.#ports
    const since = await host.messagesSince(task.parentID, notificationID(host.messageID, task))
    const [stored] = since
    if (!stored || !isUnread(since)) return undefined
    const [visible = "", hidden = ""] = stored.parts.flatMap((part) => (part.type === "text" ? [part.text] : []))
    return notificationPrompt(host.messageID, task, { visible, hidden }, await this.persona(task.parentID, 0), false)
  }

  /** A message that should have started the model is stored, unread, and may still start it. */
  async isIgnored({ prompt, task }: Waking): Promise<boolean> {
    const { host, mayWake } = this.#ports
    const since = await host.messagesSince(task.parentID, prompt.messageID)
    return isUnread(since) && mayWake(task) && !(await this.isReverted(task.parentID))
  }

  /** Agent and model of the parent. A message with an agent that no longer exists would never be accepted. */
  async persona(parentID: string, attempt: number): Promise<Persona | undefined> {
    const { host } = this.#ports
    const persona = await host.persona(parentID)
    if (!persona || attempt < WITHOUT_AGENT_FROM) return persona
    const agents = await host.agents()
    return agents.some(({ name }) => name === persona.agent) ? persona : undefined
  }

  /** Resolves when the parent holds the message; otherwise rejects. */
  async #confirm(prompt: Prompt): Promise<void> {
    // A message that starts no model is stored when the call returns.
    const delays = prompt.noReply ? [0, ...CONFIRM_DELAYS_MS] : CONFIRM_DELAYS_MS
    for (const delay of delays) {
      await this.#pauses.for(delay)
      if (await this.#ports.host.hasMessage(prompt.sessionID, prompt.messageID, prompt.parts.length)) return
    }
    throw new OpencodeError("The host took the notification but does not show it.")
  }

  /** Resolves when the parent holds the message. */
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
    // The parent may have been stopped after OpenCode accepted the message and before the turn began.
    if (!prompt.noReply) await this.#keepStopped(waking)
  }

  /** Starts the parent's model with a message, and stops it again if it was stopped meanwhile. */
  async start({ prompt, task }: Waking, lane: Lane): Promise<void> {
    lane.isWaking = true
    try {
      await this.#ports.host.prompt(prompt)
    } finally {
      await this.#keepStopped({ prompt, task })
      lane.isWaking = false
    }
  }

  /** Stops a parent that was stopped while its model was started; turns of its user continue. */
  async #keepStopped({ prompt, task }: Waking): Promise<void> {
    const { host, mayWake, silence } = this.#ports
    if (mayWake(task)) return
    const [, ...since] = await host.messagesSince(prompt.sessionID, prompt.messageID).catch(() => [])
    if (since.every(({ role }) => role !== "user")) await silence(task.parentID)
  }
}
