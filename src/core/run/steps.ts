import type { Options } from "../../options/options.ts"
import type { DependencyAnswer } from "../dependencies.ts"
import type { GroupStep } from "../group.ts"
import type { Parked } from "../pause.ts"
import type { Activity, Message, OpencodeEvent } from "../ports.ts"
import type { CheckResult } from "../receipt.ts"
import type { PurseLimit, Spent } from "../spending.ts"
import type { Ask, Delivery, Ending, MessageIDFactory, MessageKind, Outcome, Preparing, Reason, Task } from "../task.ts"
import type { TaskEvent } from "../transition.ts"
import type { Presence } from "../watchdog.ts"
import type { ActiveRun, EndOptions, MessageCallback, MessageResult, SentMessage, Stage } from "./active-run.ts"

/** Facts outside the run that the machine may use, read at this moment. */
export type RunContext = {
  readonly now: number
  readonly options: Options
  readonly messageID: MessageIDFactory
  /** Whether a user could answer questions. */
  readonly presence: Presence
  /** Shared budget that pays the run. */
  readonly purse?: PurseLimit
  readonly task: Task
  /** Children of the task are active. */
  readonly ownTasks: boolean
  /**
   * Time since when all active children are paused, or, without active children, since when the wake of the idle run
   * waits for its model, in ms. Undefined otherwise.
   */
  readonly pausedSince: () => number | undefined
  /** The notification of a child's end, or another message to the session, is still to be sent. */
  readonly hasPendingMessage: boolean
  /** Current spending, for shared limits. */
  readonly spent: () => Spent
  /** The next step of a group, as its feature decides now. */
  readonly nextMembers: (run: ActiveRun) => GroupStep
  /** How long the task's place may be out of reach, in ms; 0 for any time. */
  readonly mostAway: () => number
  /** Names of the verifiers that judge the run's answer, in order. */
  readonly verifiers: readonly string[]
  /** Notification owed if the run ends now. */
  readonly delivery: (options: EndOptions) => Delivery
}

/** Result of reading the run's session. */
export type SessionRead = {
  readonly messages: readonly Message[]
  readonly gone: boolean
  /** OpenCode reports the session as busy. */
  readonly busy: boolean
  /** A user has undone the last messages of the session and has written nothing since. */
  readonly undone?: boolean
  /** A user has undone the run's prompt and written this one instead: `messages` begins with it. */
  readonly replacementID?: string
  readonly openTodos: number
}

/**
 * OpenCode's state, read again after a limit seemed passed. Fields that the check of that limit does not need are
 * empty.
 */
export type Confirmed = {
  readonly messages: readonly Message[]
  readonly last?: Message
  readonly asks: readonly Ask[]
}

/** Findings of verdicts, kept with the run and its outcome. */
export type Findings = Pick<ActiveRun, "check" | "value">

/**
 * A verifier's verdict on the answer of a run. Where the answer does not pass, the agent gets the message `ask` if it
 * may try `again`; otherwise the run fails.
 */
export type Verdict = { readonly finding: Findings } & (
  | { readonly ok: true }
  | {
      readonly ok: false
      readonly again: boolean
      readonly ask: { readonly kind: MessageKind; readonly text: string }
      readonly failure: Reason
    }
)

/** Everything that can happen to a run: events, ticks, calls, results of commands. */
export type Input =
  /** Without a prompt, a user has already prompted the session. */
  | { readonly type: "begin"; readonly prompt?: string }
  | { readonly type: "admitted" }
  | { readonly type: "tell"; readonly text: string; readonly reply: MessageCallback }
  | { readonly type: "request" }
  | { readonly type: "end"; readonly ending: Ending; readonly options: EndOptions }
  | { readonly type: "event"; readonly event: OpencodeEvent }
  /** Open questions, as read at `at`. */
  | { readonly type: "questions"; readonly open: readonly Ask[]; readonly at: number }
  | { readonly type: "look" }
  /** `doing`: the session's activity; undefined where not known. */
  | { readonly type: "tick"; readonly doing: Activity | "nothing" | undefined }
  | { readonly type: "spending" }
  | { readonly type: "slept"; readonly ms: number }
  | { readonly type: "pause"; readonly parked: Parked }
  /** A member's state has changed, or a slot is free for another. */
  | { readonly type: "members" }
  /** Time since when the run's machine is unreachable; undefined: contact is back. */
  | { readonly type: "contact"; readonly lost: number | undefined }
  /** Current preparation of the place; undefined once it is done. */
  | { readonly type: "preparing"; readonly what: Preparing | undefined }
  | {
      readonly type: "prepared"
      readonly answers: readonly DependencyAnswer[]
      readonly preface: string
      readonly done?: readonly number[]
    }
  /** Result of creating a member. `problem`: why it could not be created; `behind`: what has to end before it can be. */
  | { readonly type: "member created"; readonly nth: number; readonly problem?: string; readonly behind?: string }
  | { readonly type: "prepare failed"; readonly code: "place" | "host"; readonly problem: string }
  | { readonly type: "prompted"; readonly problem?: string }
  | { readonly type: "sent"; readonly message: SentMessage; readonly problem?: string }
  | { readonly type: "stopped" }
  | { readonly type: "idle" }
  | { readonly type: "refuse failed"; readonly ask: Ask }
  | { readonly type: "hint dropped" }
  | { readonly type: "counted"; readonly messages: readonly Message[] }
  | { readonly type: "looked"; readonly waited: boolean; readonly found?: SessionRead }
  | { readonly type: "confirmed"; readonly reason: Reason; readonly found?: Confirmed }
  /** The verdict is absent where the verifier was stopped or failed. */
  | { readonly type: "verified"; readonly by: string; readonly verdict?: Verdict }
  | { readonly type: "closed"; readonly messages: readonly Message[] }
  | { readonly type: "finalized"; readonly found?: Partial<Outcome>; readonly check?: CheckResult }
  | { readonly type: "written" }
  | { readonly type: "notified" }

export type InputType = Input["type"]

/**
 * An effect that the machine wants for a run. A slow effect returns an input, which is ignored if the run has changed
 * stage.
 */
export type MachineCommand =
  /** Applies a task event; `write`: the record is written at once. */
  | { readonly do: "record"; readonly event: TaskEvent; readonly write: boolean }
  | { readonly do: "log"; readonly what: string; readonly fields: Readonly<Record<string, string | number>> }
  /** Makes dependencies and place ready; `again`: with the content left there before a restart. */
  | { readonly do: "prepare"; readonly save: boolean; readonly again?: true }
  /** Creates and starts a member. `text`: the group's prompt; `preface`: what stands before it. */
  | { readonly do: "create member"; readonly nth: number; readonly text: string; readonly preface: string }
  | { readonly do: "prompt"; readonly text: string; readonly preface: string }
  /**
   * Stores the prompt without starting the model, and records the task. From then on the task survives this process.
   */
  | { readonly do: "store prompt"; readonly text: string }
  /** `interrupts`: stop the session first and refuse these questions. */
  | { readonly do: "send"; readonly message: SentMessage; readonly interrupts?: readonly Ask[] }
  /** Stores the message without starting the model. */
  | { readonly do: "store"; readonly message: SentMessage }
  | { readonly do: "answer"; readonly reply: MessageCallback; readonly with: MessageResult }
  /** Stops the check or the preparation of the place. */
  | { readonly do: "abort" }
  | { readonly do: "refuse"; readonly ask: Ask; readonly text: string }
  | { readonly do: "announce"; readonly ask: Ask }
  /** Tells the session that launched the task of an open question, once that session is idle. */
  | { readonly do: "hint" }
  | { readonly do: "check idle" }
  | { readonly do: "count" }
  /** Checks limits of other runs that share this run's spending. */
  | { readonly do: "check shared limits" }
  | { readonly do: "look"; readonly waited: boolean }
  /** `since`: first message to read, in place of the prompt. */
  | { readonly do: "confirm"; readonly reason: Reason; readonly by: "messages" | "life"; readonly since?: string }
  /** `earlier`: findings about earlier answers. */
  | { readonly do: "verify"; readonly by: string; readonly text: string; readonly earlier: Findings }
  /** Undoes the turn and its questions, so that the same prompt can be sent later. */
  | { readonly do: "park"; readonly asks: readonly Ask[] }
  | { readonly do: "end"; readonly event: TaskEvent; readonly ending: Ending; readonly options: EndOptions }
  /** `asks`: stop the session and refuse these questions. `read`: read the messages. */
  | { readonly do: "close"; readonly asks?: readonly Ask[]; readonly read: boolean }
  | { readonly do: "finalize"; readonly task: Task; readonly merge: boolean }
  | { readonly do: "write"; readonly later: boolean }
  /** Updates everything that depends on the end. */
  | { readonly do: "ended"; readonly silent: boolean }
  | { readonly do: "free slot" }
  | { readonly do: "notify"; readonly task: Task; readonly maybeDelivered: boolean }

/** The new state; `run` is undefined where the run is dropped. */
export type MachineStep = { readonly run: ActiveRun | undefined; readonly commands: readonly MachineCommand[] }

export type Handler<Type extends InputType> = (
  run: ActiveRun,
  input: Extract<Input, { type: Type }>,
  context: RunContext,
) => MachineStep

export const stay = (run: ActiveRun): MachineStep => ({ run, commands: [] })

/** Changes the stage. Results that commands of the old stage return later are ignored. */
export const moved = (run: ActiveRun, stage: Stage): ActiveRun => ({
  ...run,
  stage,
  stageCount: run.stageCount + 1,
  looking: false,
  lookAgain: false,
  confirming: false,
  preparing: undefined,
})

export const recordActivity = (run: ActiveRun, now: number): ActiveRun => ({
  ...run,
  lastSignAt: now,
  idle: false,
  endsText: false,
  stuckSince: undefined,
  todosSince: undefined,
  missingSince: undefined,
  error: undefined,
})

/** Records whether OpenCode retries the model's request, or asks the model. */
export function recordRetry(run: ActiveRun, activity: Activity, now: number): ActiveRun {
  if (activity.type !== "retry") return { ...run, retry: undefined }
  const { attempt, message } = activity
  return { ...run, retry: activity, failing: { since: run.failing?.since ?? now, attempt, message } }
}

/** Applies a second step unless the first ended the run. */
export function andThen({ run, commands }: MachineStep, next: (run: ActiveRun) => MachineStep): MachineStep {
  if (!run || run.closing) return { run, commands }
  const second = next(run)
  return { run: second.run, commands: [...commands, ...second.commands] }
}

export const withCommands = ({ run, commands }: MachineStep, more: readonly MachineCommand[]): MachineStep => ({
  run,
  commands: [...commands, ...more],
})

export const waitsForOwn = ({ ownTasks, hasPendingMessage }: RunContext): boolean => ownTasks || hasPendingMessage

/** Marks the session as idle. A run that waits for children then leaves its model to other runs. */
export const markIdle = (run: ActiveRun, context: RunContext): MachineStep => ({
  run: { ...run, idle: true },
  commands: waitsForOwn(context) && !run.idle ? [{ do: "free slot" }] : [],
})

/** Reads the messages. If a read is under way, another one follows, because the first may have begun too early. */
export function readMessages(run: ActiveRun, context: RunContext): MachineStep {
  if (run.stage !== "prompting" && run.stage !== "working") return stay(run)
  // The messages are read when contact is back.
  if (run.away) return stay(run)
  if (run.looking) return stay({ ...run, lookAgain: true })
  return {
    run: { ...run, looking: true, lookAgain: false, lookAt: undefined },
    commands: [{ do: "look", waited: waitsForOwn(context) }],
  }
}
