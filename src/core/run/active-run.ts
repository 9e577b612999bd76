import type { Held } from "../limits.ts"
import type { AnswerError, Message } from "../ports.ts"
import type { CheckResult } from "../receipt.ts"
import {
  type Ask,
  type Ending,
  type Failing,
  isPaused,
  type LastWord,
  type LostContact,
  type MessageKind,
  type Outcome,
  type Preparing,
  type Progress,
  type Task,
  type Value,
} from "../task.ts"
import { callsIn, emptiesIn, NOTHING_OBSERVED, type Observed } from "./progress.ts"

/**
 * Stages of a run:
 *
 * - `creating`: its session is being created;
 * - `waiting`: the scheduler does not admit it yet, or not again after a pause (`core/pause`). It waits for other tasks, a
 *   slot, or its model, or with a slot until another task with the same beginning has filled the provider's cache;
 * - `preparing`: its folder is prepared;
 * - `prompting`: its prompt is being sent;
 * - `working`: its agent works;
 * - `supervising`: the members of its group work;
 * - `verifying`: the value or the check of its answer is judged;
 * - `closing`: ended; its session is stopped and its folder archived;
 * - `finalizing`: ended; its work is checked once more and merged;
 * - `notifying`: ended; its parent is notified.
 */
const STAGES = [
  "creating",
  "waiting",
  "preparing",
  "prompting",
  "working",
  "supervising",
  "verifying",
  "closing",
  "finalizing",
  "notifying",
] as const

export type Stage = (typeof STAGES)[number]

/**
 * A message to the run's session. The run keeps it until the session shows it; a question or a user's message is kept
 * until the agent has read it.
 */
export type SentMessage = {
  readonly id: string
  readonly kind: MessageKind
  readonly text: string
  /** Timestamp in the message's id. */
  readonly at: number
  /** The message is not among the run's messages yet. The run must not end before it is. */
  readonly expected: boolean
  /** The message waits until OpenCode has accepted the run's prompt. */
  readonly held: boolean
  /** OpenCode has accepted the message. */
  readonly taken: boolean
  readonly reply?: MessageCallback
}

/** Result of a message: accepted, added to a prompt that is not sent yet, or not delivered. */
export type MessageResult =
  | "accepted"
  | "queued"
  | "ended"
  | "at its last word"
  | { readonly away: string }
  | { readonly problem: string }

/** The machine never calls this function, and only returns it together with the answer. */
export type MessageCallback = (answer: MessageResult) => void

export type EndOptions = {
  /** Messages since the prompt; absent where they are read after the session has been stopped. */
  readonly messages?: readonly Message[]
  readonly openTodos?: number
  /** False: store the notification without starting the parent's model. */
  readonly wake?: boolean
  /** True: tell nobody, because the task is being forgotten. */
  readonly silent?: boolean
  /** The parent may already have the notification, so its session is checked before the notification is sent. */
  readonly maybeDelivered?: boolean
}

export type Closing = {
  /** The task as it ended. A resume in the meantime must not change what the notification says. */
  readonly task: Task
  readonly ending: Ending
  readonly options: EndOptions
  /** When the record must hold the end: before the notification, later, never, or once more after a crash. */
  readonly write: "now" | "soon" | "never" | "again"
  /** Number of pending record writes that come before the notification. */
  readonly writes: number
  readonly posted: boolean
  readonly delivered: boolean
}

/** State of a run from its start until its parent has the notification of its end. Plain data. */
export type ActiveRun = {
  readonly taskID: string
  readonly sessionID: string
  readonly generation: number
  readonly stage: Stage
  /** Incremented with each stage: results of commands given in an earlier stage are late and ignored. */
  readonly stageCount: number
  /** Owner of the run: this process, another process that is alive, or none since the owner died. */
  readonly heldBy: "ours" | "foreign" | "orphan"
  /** Orphaned run: when its owner was last seen, and whether it is being settled. */
  readonly orphaned?: { readonly seenAt: number; readonly settling: boolean }
  /** Prompt to be sent, with earlier messages to the run. */
  readonly prompt?: string
  /** Text about the run's place; of a group, the answers before its members' prompts. */
  readonly preface: string
  /** Set from the launch on until the run begins, if it waits with its slot. */
  readonly held?: Held
  /** When a group's next member may begin, at the latest. */
  readonly membersAt?: number
  /** Set while a group's next member cannot be created: what has to end first. */
  readonly membersBehind?: string
  readonly observed: Observed
  readonly lastSignAt: number
  /** Sleeps of this process that the run's time leaves out. */
  readonly sleeps?: readonly { readonly since: number; readonly ms: number }[]
  readonly idle: boolean
  /** The last event closed a text: the run may be about to end. */
  readonly endsText: boolean
  readonly retry?: { readonly attempt: number; readonly message: string }
  /** Failing requests, until the model answers again; OpenCode's own `retry` state ends between attempts. */
  readonly failing?: Failing
  readonly error?: AnswerError & { readonly at: number }
  readonly asks: readonly Ask[]
  /** Questions that were not answered in time. */
  readonly unanswered: readonly string[]
  /** Questions refused by this process, which may end the turn. `after`: number of answers before the refusal. */
  readonly refused?: { readonly after: number; readonly asks: readonly Ask[] }
  /** When the parent's model is told of an open question; infinite once that was requested. */
  readonly hintAt?: number
  /**
   * Last sign of life before the last request for open questions. They are requested because their events may be lost.
   */
  readonly askedOfSilence?: number
  readonly sentMessages: readonly SentMessage[]
  /** Timestamp in the last message id, so that two messages in one millisecond get different ids. */
  readonly lastMessageAt: number
  readonly lastWord?: LastWord
  /** Time since when an expected message has been absent from the session. */
  readonly missingSince?: number
  /** Time since when the session has been idle without an answer, or with open todos. */
  readonly stuckSince?: number
  /** Last message of the session when the agent was asked to begin or to go on: it is asked once after a message. */
  readonly urgedAfter?: string
  /** When the run last went on after a pause. */
  readonly continuedAt?: number
  readonly todosSince?: number
  /**
   * State of message reads: one is under way, another is wanted after it, time of the last read, and time of a read
   * that is due after a failure.
   */
  readonly looking: boolean
  readonly lookAgain: boolean
  readonly lookedAt: number
  readonly lookAt?: number
  /** A limit seems passed, and OpenCode is being asked whether the run has passed it. */
  readonly confirming: boolean
  /** Digest of the session at the last check for silence. */
  readonly lastLook?: string
  /** Number of pending calls to the run's session. Another run may begin in this session only at 0. */
  readonly calls: number
  readonly check?: CheckResult
  /** With a schema: number of attempts, and the last result. */
  readonly value?: Value
  /** End that the run will have if the pending validation or check passes. */
  readonly pendingEnding?: {
    readonly ending: Ending
    readonly messages: readonly Message[]
    readonly openTodos: number
    /** How many answers had ended by then. */
    readonly answers: number
  }
  readonly requestedAt?: number
  /** Map items that earlier runs settled as valid. */
  readonly done: readonly number[]
  /** Indexes of group members that are being created. */
  readonly creatingMembers: readonly number[]
  /** Set while the run's machine cannot be reached. */
  readonly away?: LostContact
  /** Slow preparation of the place that is under way. */
  readonly preparing?: Preparing
  /** The run was paused before it had begun, and begins when the pause ends. */
  readonly notStarted?: true
  /** The place was lost with an earlier process, or never made: it must be prepared for the stored prompt. */
  readonly preparesAgain?: true
  readonly closing?: Closing
  readonly outcome?: Outcome
}

export const newRun = (task: Task, stage: Stage, now: number, heldBy: ActiveRun["heldBy"] = "ours"): ActiveRun => ({
  taskID: task.id,
  sessionID: task.sessionID,
  generation: task.run.generation,
  stage,
  stageCount: 0,
  heldBy,
  observed: NOTHING_OBSERVED,
  lastSignAt: now,
  idle: false,
  endsText: false,
  preface: "",
  asks: [],
  unanswered: [],
  sentMessages: [],
  lastMessageAt: 0,
  looking: false,
  lookAgain: false,
  lookedAt: 0,
  confirming: false,
  calls: 0,
  creatingMembers: [],
  done: [],
})

/** True for an ended run whose session or folder is still in use. */
export const isClosing = (run: ActiveRun | undefined): boolean =>
  run?.stage === "closing" || run?.stage === "finalizing"

export const hasEnded = (run: ActiveRun): boolean => isClosing(run) || run.stage === "notifying"

/** True while calls to an ended run's session are pending, such as the one that stops its agent. */
export const isBeingStopped = (run: ActiveRun): boolean => hasEnded(run) && run.calls > 0

/** True for a run that waits with a slot: its time counts, and its limits apply. */
export const waitsWithSlot = ({ stage, held }: ActiveRun): boolean => stage === "waiting" && held !== undefined

/** True while the run has a slot and waits for something other than its agent: for a warm cache, its place or its check. */
export const isWithoutAgent = (run: ActiveRun): boolean =>
  waitsWithSlot(run) || run.stage === "preparing" || run.stage === "verifying"

/** True for a run whose prompt OpenCode does not have yet. */
export const isUnsent = ({ stage }: ActiveRun, task: Task): boolean =>
  stage === "creating" || stage === "preparing" || (stage === "waiting" && !isPaused(task))

/** True once the parent has been notified and no call is pending: another run may begin in the session. */
export const isFinished = ({ stage, closing, calls }: ActiveRun): boolean =>
  stage === "notifying" && closing?.posted === true && calls === 0

export const expectsMessage = ({ sentMessages }: ActiveRun): boolean => sentMessages.some(({ expected }) => expected)

/** True while the session is idle but idleness alone does not end the run yet. */
export const isUndecided = ({ stuckSince, todosSince, missingSince, lookAt }: ActiveRun): boolean =>
  stuckSince !== undefined || todosSince !== undefined || missingSince !== undefined || lookAt !== undefined

export const progressOf = (run: ActiveRun): Progress => ({
  toolCalls: run.observed.calls.size,
  recentTools: run.observed.recentTools,
  lastText: run.observed.text,
  lastSignAt: run.lastSignAt,
  // No events arrive for a run of another process, so whether it is idle is not known.
  ...(run.heldBy === "ours" && { idle: run.idle }),
  usage: run.observed.usage,
  retry: run.retry,
  ...(run.failing && { failing: run.failing }),
  ...(run.observed.repeated && { repeated: run.observed.repeated }),
  asks: run.asks,
  openCalls: callsIn(run.observed, "running") + (isWithoutAgent(run) ? 1 : 0),
  pendingCalls: callsIn(run.observed, "pending"),
  ...(isWithoutAgent(run) && { held: true }),
  ...(waitsWithSlot(run) && { heldBehind: run.held?.behind }),
  lastWord: run.lastWord,
  emptyAnswers: emptiesIn(run.observed).length,
  ...(run.away && { away: run.away }),
  ...(run.preparing && { preparing: run.preparing }),
})
