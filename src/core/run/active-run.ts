import type { MessageKind } from "../ids.ts"
import type { AnswerError, Message } from "../ports.ts"
import type { CheckResult } from "../receipt.ts"
import type { Ask, Away, Ending, Failing, LastWord, Outcome, Preparing, Progress, Task, Value } from "../task.ts"
import { callsIn, emptiesIn, NOTHING_OBSERVED, type Observed } from "./progress.ts"

/**
 * What a run is doing:
 *
 * - `making`: its session is being made;
 * - `queued`: it waits for other tasks, a slot, or its model;
 * - `held`: one that begins alike is asked first, so that the provider's cache has what they have in common;
 * - `entering`: its place is made ready; `prompting`: its prompt is on its way; `working`: its agent has it;
 * - `leading`: its parts have it;
 * - `parked`: it stands still, in whichever of the ways of `core/pause`;
 * - `checking`: its check runs;
 * - `leaving`: it has ended, its session is stopped and its place put away; `merging`: its work is checked once more and
 *   brought home; `telling`: all is done but that its parent is told.
 */
const STAGES = [
  "making",
  "queued",
  "held",
  "entering",
  "prompting",
  "working",
  "leading",
  "parked",
  "checking",
  "leaving",
  "merging",
  "telling",
] as const

export type Stage = (typeof STAGES)[number]

/** Something said to the run's session, until it is seen there; a `word` until it is known to have been read. */
export type SentMessage = {
  readonly id: string
  readonly kind: MessageKind
  readonly text: string
  /** The time in its id. */
  readonly at: number
  /** Not among the run's messages yet: the run does not end before. */
  readonly expected: boolean
  /** It waits until the prompt is with the host. */
  readonly held: boolean
  /** The host has taken it. */
  readonly taken: boolean
  /** Whoever said it. */
  readonly reply?: Reply
}

/** What became of a word: the host has it, it stands behind a prompt that is still to be sent, or it was not told. */
export type Answer =
  | "told"
  | "waits"
  | "ended"
  | "at its last word"
  | { readonly away: string }
  | { readonly problem: string }

/** Opaque to the machine: it is handed back with the answer. */
export type Reply = (answer: Answer) => void

/** What goes with an end besides how the run ended. */
export type EndOptions = {
  /** Those since its prompt; without them, they are read once the session has been stopped. */
  readonly messages?: readonly Message[]
  readonly openTodos?: number
  /** False: the notification is stored, but does not start the parent's model. */
  readonly wake?: boolean
  /** True: nobody is told at all, since the task is being forgotten. */
  readonly silent?: boolean
  /** The parent may hold the notification already: it is asked before one is sent. */
  readonly maybeDelivered?: boolean
}

/** A run that has ended. */
export type Closing = {
  /** As it ended: a resume meanwhile changes nothing of what is told. */
  readonly task: Task
  readonly ending: Ending
  readonly how: EndOptions
  /** When the record has to have the end: before anything is told, some time, never; once more, after a crash. */
  readonly write: "now" | "soon" | "never" | "again"
  /** Writes under way that come before it is told. */
  readonly writes: number
  readonly posted: boolean
  readonly delivered: boolean
}

/** All that is known of a run while it is at work, and until its parent was told of its end. Plain data. */
export type ActiveRun = {
  readonly taskID: string
  readonly sessionID: string
  readonly generation: number
  readonly stage: Stage
  /** Counts its stages: the result of a command that was given in another one is late. */
  readonly stageCount: number
  /** Who looks after it: this process, another one that lives, or nobody, since that one died. */
  readonly heldBy: "ours" | "foreign" | "orphan"
  /** Of an orphan: when its owner was last seen, and that it is being settled. */
  readonly orphaned?: { readonly seenAt: number; readonly settling: boolean }
  /** What it is to do, with what was said to it before that was sent; and what it is told of its place. */
  readonly prompt?: string
  readonly preface: string
  /** While it is held: when it is asked in any case. */
  readonly warmUpUntil?: number
  readonly observed: Observed
  readonly lastSignAt: number
  /** Its session does nothing, as far as is known. */
  readonly idle: boolean
  /** The last thing heard of it is the end of a text: it may be about to end. */
  readonly endsText: boolean
  readonly retry?: { readonly attempt: number; readonly message: string }
  /** Until its model answers again; between two attempts there is no `retry`. */
  readonly failing?: Failing
  readonly error?: AnswerError & { readonly at: number }
  readonly asks: readonly Ask[]
  /** What it asked, and nobody answered in time. */
  readonly unanswered: readonly string[]
  /** What this process refused of a turn, which that may end: `after` so many answers of the run. */
  readonly refused?: { readonly after: number; readonly asks: readonly Ask[] }
  /** When the parent's model is to hear of an open question; absent once it has. */
  readonly hintAt?: number
  readonly hinting: boolean
  /** Its last sign of life when its host was last asked for questions that no event had told of. */
  readonly askedOfSilence?: number
  readonly sentMessages: readonly SentMessage[]
  /** The time in the last word's id: two in one millisecond are two. */
  readonly lastMessageAt: number
  readonly lastWord?: LastWord
  /** Since when, as far as anybody looked, a word is missing that is to come. */
  readonly missingSince?: number
  /** Since when the session is idle without an answer, or with open todos. */
  readonly stuckSince?: number
  readonly todosSince?: number
  /** A look at its messages is under way; another is wanted after it; the last one was then; one is due, since it failed. */
  readonly looking: boolean
  readonly lookAgain: boolean
  readonly lookedAt: number
  readonly lookAt?: number
  /** Whether a limit is really passed is asked of the host. */
  readonly verifying: boolean
  /** What the session looked like when that was last asked for silence. */
  readonly lastLook?: string
  /** How long this process slept meanwhile, in ms: no limit counts that time. */
  readonly sleptMs: number
  /** Calls on their way to its session. Another run begins there when there are none. */
  readonly calls: number
  readonly check?: CheckResult
  /** Of a run with a schema: how often it was asked, and what came of it last. */
  readonly value?: Value
  /** While its value is validated or its check runs: the end that it is to have where that passes. */
  readonly answered?: { readonly ending: Ending; readonly messages: readonly Message[]; readonly openTodos: number }
  /** When its session's model was last asked. */
  readonly requestedAt?: number
  /** Of a map: the items that earlier runs have settled as valid. */
  readonly done: readonly number[]
  /** Of a team: the numbers of the parts that are being made. */
  readonly creatingMembers: readonly number[]
  /** The machine on which it works cannot be reached. */
  readonly away?: Away
  /** What is done to make its place ready, where that takes its time. */
  readonly preparing?: Preparing
  /** It stood still before it had begun: when it goes on it begins. */
  readonly notStarted?: true
  /** Its place went with an earlier process: it is made again before it goes on. */
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
  hinting: false,
  sentMessages: [],
  lastMessageAt: 0,
  looking: false,
  lookAgain: false,
  lookedAt: 0,
  verifying: false,
  sleptMs: 0,
  calls: 0,
  creatingMembers: [],
  done: [],
})

/** True from the end on. */
export const hasEnded = ({ stage }: ActiveRun): boolean =>
  stage === "leaving" || stage === "merging" || stage === "telling"

/** It is not the agent's turn: it is not asked yet, its place is made ready, or its check runs. */
export const isHeldUp = ({ stage }: ActiveRun): boolean =>
  stage === "held" || stage === "entering" || stage === "checking"

/** Another run may begin in its session: it is told of, and nothing more is to come there. */
export const isFinished = ({ stage, closing, calls }: ActiveRun): boolean =>
  stage === "telling" && closing?.posted === true && calls === 0

export const expectsMessage = ({ sentMessages }: ActiveRun): boolean => sentMessages.some(({ expected }) => expected)

/** True while the session is idle, and that alone does not end the run yet. */
export const isUndecided = ({ stuckSince, todosSince, missingSince, lookAt }: ActiveRun): boolean =>
  stuckSince !== undefined || todosSince !== undefined || missingSince !== undefined || lookAt !== undefined

/** What is seen of a run. */
export const progressOf = (run: ActiveRun): Progress => ({
  toolCalls: run.observed.calls.size,
  recentTools: run.observed.recentTools,
  lastText: run.observed.text,
  lastSignAt: run.lastSignAt,
  // Nothing is heard of what another process looks after.
  ...(run.heldBy === "ours" && { idle: run.idle }),
  usage: run.observed.usage,
  retry: run.retry,
  ...(run.failing && { failing: run.failing }),
  ...(run.observed.repeated && { repeated: run.observed.repeated }),
  asks: run.asks,
  openCalls: callsIn(run.observed, "running") + (isHeldUp(run) ? 1 : 0),
  pendingCalls: callsIn(run.observed, "pending"),
  ...(isHeldUp(run) && { held: true }),
  lastWord: run.lastWord,
  emptyAnswers: emptiesIn(run.observed).length,
  ...(run.away && { away: run.away }),
  ...(run.preparing && { preparing: run.preparing }),
})
