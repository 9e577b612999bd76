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
 * Notification of a run. `task`: the task as it ended, so that a resume since then does not change the notification.
 */
export type LaneItem = {
  readonly task: Task
  wake: boolean
  readonly maybeDelivered: boolean
  /** Set by the first send, so that a repeated send has the same text. */
  notice?: NotificationTexts
}

/**
 * A note that waits until its session is idle, and until no notification waits. `compose` is called at each look: it
 * returns undefined where there is nothing to say any more, and "later" where there may be again. `done` is called once
 * the note is sent or dropped.
 */
export type PendingNote = {
  readonly compose: () => Note | "later" | undefined
  readonly done?: (sent: boolean) => void
  /** Set by the first send, so that a repeated send has the same text and id. */
  sent?: Note
  attempts: number
}

/**
 * State of a parent's lane:
 * - `idle`: nothing to send; kept while a waking message may be unread.
 * - `sending`: messages are sent one at a time.
 * - `retrying`: OpenCode did not accept the last one; it is sent again later.
 * - `until idle`: the parent works, and no waiting message may start its model.
 * - `until redone`: the parent's user has undone messages.
 */
type LaneState = "idle" | "sending" | "retrying" | "until idle" | "until redone"

export type Lane = {
  state: LaneState
  readonly items: LaneItem[]
  readonly notes: PendingNote[]
  /** Ends the current wait of the notes. */
  releaseNotes: () => void
  /** Time of the last send before the parent was idle: OpenCode may not yet report the turn that it started. */
  sentAt: number
  /** The parent became idle after the last send began. */
  idled: boolean
  /** Tasks whose queued notification must wake the parent. The lane is kept until they are sent. */
  readonly wakeRequests: Set<string>
  /** Ends the current wait of the lane. */
  release: () => void
  /** Stored message that has not woken the parent. The next message wakes the parent for both. */
  pendingWake?: Waking & { readonly wakesAgain?: number }
  /**
   * Last message that should start the parent's model, until the parent has answered. `isPassed`: the parent became
   * idle after it, perhaps without reading it.
   */
  waking?: Waking & { wakesAgain: number; isPassed: boolean }
  /** A message that starts the parent's model is being sent. */
  isWaking: boolean
}

/** Message that should start its parent's model, and the task it reports. */
export type Waking = { readonly prompt: Prompt; readonly task: Task }

export const newLane = (): Lane => ({
  state: "idle",
  items: [],
  notes: [],
  releaseNotes: () => {},
  sentAt: Number.NEGATIVE_INFINITY,
  wakeRequests: new Set(),
  idled: false,
  isWaking: false,
  release: () => {},
})

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

  /** Resolves to true if the time passed, and to false if the lane was released before. */
  async in(lane: Lane, ms: number): Promise<boolean> {
    const passed = await this.for(ms, (release) => {
      lane.release = release
    })
    lane.release = () => {}
    return passed
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

  /** The user has undone messages: any new message would delete them for good. */
  async isReverted(parentID: string): Promise<boolean> {
    return (await this.#ports.opencode.parent(parentID))?.reverted === true
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
  async unanswered(task: Task): Promise<Prompt | undefined> {
    const { opencode } = this.#ports
    const since = await opencode.messagesSince(task.parentID, notificationID(opencode.messageID, task))
    const [stored] = since
    if (!stored || !isUnread(since)) return undefined
    const [visible = "", hidden = ""] = stored.parts.flatMap((part) => (part.type === "text" ? [part.text] : []))
    return notificationPrompt(
      opencode.messageID,
      task,
      { visible, hidden },
      await this.persona(task.parentID, 0),
      false,
    )
  }

  /** Whether a message that should have started the model is stored but unread, and may still start the model. */
  async isIgnored({ prompt, task }: Waking): Promise<boolean> {
    const { opencode, mayWake } = this.#ports
    const since = await opencode.messagesSince(task.parentID, prompt.messageID)
    return isUnread(since) && mayWake(task) && !(await this.isReverted(task.parentID))
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

  /** Resolves when the parent holds the message. `waking`: set if the message starts the parent's model. */
  async send(prompt: Prompt, lane: Lane, waking?: Waking): Promise<void> {
    if (waking) await this.start(waking, lane)
    else await this.#ports.opencode.prompt({ ...prompt, lookedFor: true })
    await this.#confirm(prompt)
    // The parent may have been stopped after OpenCode accepted the message and before the turn began.
    if (waking) await this.#keepStopped(waking)
  }

  /** Starts the parent's model with a message, and stops the model again if a user stopped it meanwhile. */
  async start({ prompt, task }: Waking, lane: Lane): Promise<void> {
    lane.isWaking = true
    try {
      await this.#ports.opencode.prompt(prompt)
    } finally {
      await this.#keepStopped({ prompt, task })
      lane.isWaking = false
    }
  }

  /**
   * Stops the parent again if a user stopped it while a message started its model. A turn that the user began since
   * continues.
   */
  async #keepStopped({ prompt, task }: Waking): Promise<void> {
    const { opencode, mayWake, silence } = this.#ports
    if (mayWake(task)) return
    const [, ...since] = await opencode.messagesSince(prompt.sessionID, prompt.messageID).catch(() => [])
    if (since.every(({ role }) => role !== "user")) await silence(task.parentID)
  }
}
