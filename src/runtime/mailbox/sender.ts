import type { Note } from "../../core/feature.ts"
import {
  type Clock,
  type Message,
  type OpencodeApi,
  OpencodeError,
  type Persona,
  type Prompt,
} from "../../core/ports.ts"
import { AUTOMATIC } from "../../core/run/prompts.ts"
import type { MessageIDFactory, Task } from "../../core/task.ts"
import { NOTICE_PARTS, type NotificationTexts } from "../../present/notification.ts"

/**
 * True where no later message answers the first one. False for a deleted notification, so that it is not sent again.
 */
function isUnread(since: readonly Message[]): boolean {
  // The `parentID` of an answer is the id of the message that it answers.
  const ids = new Set<string | undefined>(since.map(({ id }) => id))
  return since.length > 0 && !since.some(({ parentID }) => ids.has(parentID))
}

/** Id of a run's notification. It derives from the run alone, so all processes send the same message. */
export const notificationID = (name: MessageIDFactory, { id, run }: Task): string =>
  name("notification", id, run.generation, run.createdAt)

/** The notification as a message with the parent's current agent and model. */
export function notificationPrompt(
  name: MessageIDFactory,
  task: Task,
  { visible, hidden }: Pick<NotificationTexts, "visible" | "hidden">,
  persona: Persona | undefined,
  noReply: boolean,
): Prompt {
  return {
    sessionID: task.parentID,
    messageID: notificationID(name, task),
    agent: persona?.agent,
    model: persona?.model,
    noReply,
    parts: [{ text: visible }, { text: hidden, synthetic: true }],
  }
}

/** The note as a message with the session's current agent and model. */
export function notePrompt(
  name: MessageIDFactory,
  sessionID: string,
  { task: { id, run }, kind, at, visible, text }: Note,
  persona: Persona | undefined,
): Prompt {
  const hidden = { text: `${AUTOMATIC} ${text}`, synthetic: true }
  return {
    sessionID,
    messageID: name(kind, id, run.generation, at),
    agent: persona?.agent,
    model: persona?.model,
    noReply: true,
    parts: visible === undefined ? [hidden] : [{ text: visible }, hidden],
  }
}

/** Waits that end when the plugin stops. */
export class StoppableWaits {
  readonly #clock: Clock
  readonly #stopped: AbortSignal
  readonly #open = new Set<() => void>()

  constructor(clock: Clock, stopped: AbortSignal) {
    this.#clock = clock
    this.#stopped = stopped
    stopped.addEventListener("abort", () => {
      for (const end of this.#open) end()
    })
  }

  /** Resolves to whether the time passed. `cancellable` receives a function that ends the wait. */
  for(ms: number, cancellable: (cancel: () => void) => void = () => {}): Promise<boolean> {
    if (ms === 0 || this.#stopped.aborted) return Promise.resolve(true)
    return new Promise((resolve) => {
      const end = (passed = false) => {
        cancel()
        this.#open.delete(end)
        resolve(passed)
      }
      const cancel = this.#clock.after(ms, () => end(true))
      this.#open.add(end)
      cancellable(end)
    })
  }
}

/** Delays between checks whether the message is stored. */
const CONFIRM_DELAYS_MS = [5, 25, 100, 500, 2000] as const
/** From this attempt on, the message names no agent that the configuration no longer has. */
const WITHOUT_AGENT_FROM = 3

export type SenderPorts = {
  readonly opencode: OpencodeApi
  /** False where a user or an abort has stopped the parent's model. */
  readonly mayWake: (task: Task) => boolean
  /** Stops a parent's model that a message started although it had just been stopped. Must not reject. */
  readonly silence: (parentID: string) => Promise<void>
}

/**
 * Sends messages to a parent with the parent's agent and model, and checks that OpenCode has stored them. A parent that
 * was stopped is not started again.
 */
export class Sender {
  readonly #ports: SenderPorts
  readonly #pauses: StoppableWaits

  constructor(ports: SenderPorts, pauses: StoppableWaits) {
    this.#ports = ports
    this.#pauses = pauses
  }

  /** Whether the parent holds the whole notification. */
  isThere(task: Task): Promise<boolean> {
    const { opencode } = this.#ports
    return opencode.hasMessage(task.parentID, notificationID(opencode.messageID, task), NOTICE_PARTS)
  }

  /**
   * Reads the stored notification as a message that starts the model. Undefined where the parent has answered the
   * notification.
   */
  async unanswered(task: Task, attempt: number): Promise<Prompt | undefined> {
    const { opencode } = this.#ports
    const since = await opencode.messagesSince(task.parentID, notificationID(opencode.messageID, task))
    const [stored] = since
    if (!stored || !isUnread(since)) return undefined
    const [visible = "", hidden = ""] = stored.parts.flatMap((part) => (part.type === "text" ? [part.text] : []))
    const persona = await this.persona(task.parentID, attempt)
    return notificationPrompt(opencode.messageID, task, { visible, hidden }, persona, false)
  }

  /**
   * Agent and model of the parent. After some attempts, undefined for an agent that no longer exists: OpenCode would
   * never accept a message with it.
   */
  async persona(parentID: string, attempt: number): Promise<Persona | undefined> {
    const { opencode } = this.#ports
    const persona = await opencode.persona(parentID)
    if (!persona || attempt < WITHOUT_AGENT_FROM) return persona
    const agents = await opencode.agents()
    return agents.some(({ name }) => name === persona.agent) ? persona : undefined
  }

  /** Resolves once the parent's session holds the message. Rejects if it does not after several checks. */
  async #confirm(prompt: Prompt): Promise<void> {
    // OpenCode has stored a message that starts no model when the call returns, so check without a delay first.
    const delays = prompt.noReply ? [0, ...CONFIRM_DELAYS_MS] : CONFIRM_DELAYS_MS
    for (const delay of delays) {
      await this.#pauses.for(delay)
      if (await this.#ports.opencode.hasMessage(prompt.sessionID, prompt.messageID, prompt.parts.length)) return
    }
    throw new OpencodeError("OpenCode took the notification but does not show it.")
  }

  /**
   * Resolves when the parent holds the message. `waking`: the task whose message starts the parent's model, which is
   * stopped again if a user stopped it meanwhile.
   */
  async send(prompt: Prompt, lane: { isWaking: boolean }, waking?: Task): Promise<void> {
    if (!waking) {
      await this.#ports.opencode.prompt({ ...prompt, lookedFor: true })
      return this.#confirm(prompt)
    }
    lane.isWaking = true
    try {
      await this.#ports.opencode.prompt(prompt)
    } finally {
      await this.#keepStopped(prompt, waking)
      lane.isWaking = false
    }
    await this.#confirm(prompt)
    // The parent may have been stopped after OpenCode accepted the message and before the turn began.
    await this.#keepStopped(prompt, waking)
  }

  /**
   * Stops the parent again if a user stopped it while a message started its model. A turn that the user began since
   * continues.
   */
  async #keepStopped({ sessionID, messageID }: Prompt, waking: Task): Promise<void> {
    const { opencode, mayWake, silence } = this.#ports
    if (mayWake(waking)) return
    const [, ...since] = await opencode.messagesSince(sessionID, messageID).catch(() => [])
    if (since.every(({ role }) => role !== "user")) await silence(sessionID)
  }
}
