import { NOTHING_SPENT, needsBill } from "../spending.ts"
import { type Ask, elapsed, type LostContact, NOBODY, type Reason, slotSessionOf } from "../task.ts"
import { transition } from "../transition.ts"
import { askTimeoutAt, lastWordRefusal, limitActionOf, type RunLimits, type Watched } from "../watchdog.ts"
import { type ActiveRun, expectsMessage, isUndecided, progressOf, waitsWithSlot } from "./active-run.ts"
import { fail, isWon, superviseMembers } from "./ending.ts"
import { emptiesIn, mayHaveAnswered } from "./progress.ts"
import { askLastWord, unansweredAskText } from "./prompts.ts"
import {
  andThen,
  type Handler,
  type MachineCommand,
  type MachineStep,
  markIdle,
  type RunContext,
  readMessages,
  recordActivity,
  recordRetry,
  stay,
  waitsForOwn,
} from "./steps.ts"

/** Notes that the run's machine cannot be reached. This is neither an end nor silence of the run. */
function contactLost(run: ActiveRun, since: number, { task, mostAway }: RunContext): ActiveRun {
  const { kind: host = "" } = task.place ?? {}
  const away: LostContact = { host, since, most: mostAway() }
  if (run.away) return run
  const unlooked = { stuckSince: undefined, todosSince: undefined, missingSince: undefined, lookAt: undefined }
  return { ...run, ...unlooked, away, retry: undefined, confirming: false }
}

/** Notes that contact is back. The time without contact does not count as silence. */
const contactRestored = (run: ActiveRun, { now }: RunContext): ActiveRun =>
  run.away ? { ...recordActivity(run, now), away: undefined, looking: false, lookAgain: false } : run

export const contact: Handler<"contact"> = (run, input, context) =>
  input.lost === undefined
    ? readMessages(contactRestored(run, context), context)
    : stay(contactLost(run, input.lost, context))

export const preparing: Handler<"preparing"> = (run, { what }) => stay({ ...run, preparing: what })

/** The run as its limits see it. Values are computed only when a limit asks for them. */
export function watchedAs(run: ActiveRun, context: RunContext): Watched {
  const { task, spent, now } = context
  const limits = limitsOf(context)
  const bill = needsBill(limits, task) ? spent() : NOTHING_SPENT
  const { presence } = context
  // A run at work gets no notification before its turn has ended: only an idle run waits for one.
  const ownTasks = context.ownTasks || (context.hasPendingMessage && run.idle)
  return { task, progress: progressOf(run), limits, spent: bill, ownTasks, presence, now }
}

/** Asked at each event of a run, so the options are copied only where a purse pays. */
const limitsOf = ({ options, purse }: RunContext): RunLimits => (purse ? { ...options, purse } : options)

export function checkLimits(run: ActiveRun, context: RunContext): MachineStep {
  // A group with a winner does not end by a limit that its members may have used up.
  if (isWon(run, context)) return stay(run)
  const demand = limitActionOf(watchedAs(run, context))
  if (!demand) return stay(run)
  const { action, reason } = demand
  if (action === "warn") return warn(run, reason, context)
  if (action === "interrupt") return interrupt(run, context)
  // Events may be lost, and the last answer may be final, so OpenCode is asked first.
  const isFinal = mayBeOver(run, context)
  if (!isFinal && !isUnheard(reason)) return fail(run, reason, context)
  if (run.confirming) return stay(run)
  const by = run.lastWord?.state !== "done" && reason.code === "silence" ? "life" : "messages"
  // A model may send many empty answers a second, so only messages since the first of them are read.
  const [since] = reason.code === "empty" ? emptiesIn(run.observed) : []
  return { run: { ...run, confirming: true }, commands: [{ do: "confirm", reason, by, ...(since && { since }) }] }
}

/** True where messages that were not heard of could show that the limit is not passed. */
export const isUnheard = ({ code }: Reason): boolean => code === "silence" || code === "empty"

/** True where the step that passed a limit may have been the run's last. Then the run's messages end it. */
const mayBeOver = (run: ActiveRun, context: RunContext): boolean =>
  run.lastWord?.state === "done" ||
  (run.stage === "working" &&
    run.away === undefined &&
    mayHaveAnswered(run.observed) &&
    run.todosSince === undefined &&
    !expectsMessage(run) &&
    !waitsForOwn(context))

/** True for a run that waits without a slot: no limit applies, and none of its times counts. */
const isAtRest = (run: ActiveRun): boolean => run.stage === "waiting" && !waitsWithSlot(run)

/** Checks limits after shared spending has changed, or children were paused or resumed. */
export const spending: Handler<"spending"> = (given, _input, context) =>
  withClock(given, context, (run, counted) => checkLimits(run, counted))

/** Time since when the run's clock is stopped: it waits for paused children, for its model, or for a person. */
function clockStoppedSince({ idle, stage, asks }: ActiveRun, { pausedSince, options }: RunContext): number | undefined {
  const own = idle || stage === "supervising" ? pausedSince() : undefined
  // A question with its own timeout does not stop the run's clock.
  if (own !== undefined || asks.length === 0 || options.permissionTimeout !== null) return own
  return Math.min(...asks.map(({ askedAt }) => askedAt))
}

/** True where the run's clock is stopped and has to go on. */
export const restartsClock = (run: ActiveRun, context: RunContext): boolean =>
  context.task.run.stoppedSince !== undefined && clockStoppedSince(run, context) === undefined

/** Stops or restarts the run's clock, and goes on with the run. A run at rest has no clock to keep. */
function withClock(
  given: ActiveRun,
  context: RunContext,
  next: (run: ActiveRun, context: RunContext) => MachineStep,
): MachineStep {
  if (isAtRest(given)) return stay(given)
  const { task, now } = context
  const { stoppedSince, generation } = task.run
  const since = clockStoppedSince(given, context)
  if ((since === undefined) === (stoppedSince === undefined)) return next(given, context)
  const type = since === undefined ? "clock running" : "clock stopped"
  const at = since === undefined ? now : Math.min(now, Math.max(since, given.lastSignAt))
  const event = { type, generation, at } as const
  const { run, commands } = next(given, { ...context, task: transition(task, event) })
  return { run, commands: [{ do: "record", event, write: true }, ...commands] }
}

/** Asks for the last word at the next request, or refuses an open question to do so. */
function warn(run: ActiveRun, reason: Reason, context: RunContext): MachineStep {
  const { now, task } = context
  const { generation, asks } = run
  const event = { type: "warned", generation, at: now, reason } as const
  const fields = { generation, reason: reason.code }
  const commands: readonly MachineCommand[] = [
    { do: "record", event, write: true },
    { do: "log", what: "task asked for its last word", fields },
  ]
  const next: ActiveRun = { ...run, lastWord: { state: "requested", reason, at: elapsed(task, now) } }
  // Dismissing a question ends the turn of the agent that asked it, so the agent needs a message of its own.
  if (asks.some(({ kind, sessionID }) => kind === "question" && sessionID === run.sessionID)) {
    const step = interrupt(next, context)
    return { run: step.run, commands: [...commands, ...step.commands] }
  }
  const refusals = asks.map((ask) => ({ do: "refuse", ask, text: lastWordRefusal(reason) }) as const)
  const rest: readonly MachineCommand[] = waitsForOwn(context) ? [{ do: "check idle" }] : []
  // Some refusals end the agent's turn. It is then asked for its last word by a message of its own.
  const refused = asks.length > 0 ? { after: run.observed.ended, asks } : run.refused
  return { run: { ...next, asks: [], refused }, commands: [...commands, ...refusals, ...rest] }
}

/** Stops the turn and asks for the last word again. The agent then has time of its own for the answer. */
function interrupt(run: ActiveRun, context: RunContext): MachineStep {
  const { lastWord, asks } = run
  const againAt = elapsed(context.task, context.now)
  return askLastWord({ ...run, lastWord: lastWord && { ...lastWord, againAt } }, context, asks)
}

/** Asks an idle run that waits for children for its last word, unless a message is on its way. */
export const idle: Handler<"idle"> = (run, _input, context) =>
  run.lastWord?.state === "requested" && !expectsMessage(run) ? askLastWord(run, context) : stay(run)

/** Handles a call of the model. If a last word was requested, this call asks for it. */
export const request: Handler<"request"> = (given, _input, { now }) => {
  const run = { ...given, requestedAt: now }
  const { lastWord } = run
  if (!lastWord) return stay(run)
  const state = lastWord.state === "requested" ? "speaking" : lastWord.state
  const again = lastWord.againAt === undefined ? {} : { askedAgain: true as const }
  return stay({ ...run, lastWord: { ...lastWord, state, ...again } })
}

/** Checks limits and questions, and reads the session where the session seems idle. */
export const tick: Handler<"tick"> = (given, input, context) =>
  withClock(given, context, (run, counted) => ticked(run, input, counted))

const ticked: Handler<"tick"> = (given, { doing }, context) => {
  if (given.stage === "waiting") return checkLimits(given, context)
  // A group's own session is idle and is not read.
  if (given.stage === "supervising")
    return andThen(checkLimits(recordActivity(given, context.now), context), (run) => superviseMembers(run, context))
  const seen = watched(given, doing, context)
  const checked = andThen(seen, (run) => checkLimits(run, context))
  return andThen(checked, (run) =>
    run.asks.reduce<MachineStep>((step, ask) => andThen(step, (next) => lookAtAsk(next, ask, context)), stay(run)),
  )
}

function watched(run: ActiveRun, doing: Parameters<typeof tick>[1]["doing"], context: RunContext): MachineStep {
  if (doing === undefined) return isUndecided(run) ? readMessages(run, context) : stay(run)
  if (doing === "nothing")
    return andThen(markIdle(contactRestored(run, context), context), (next) => readMessages(next, context))
  if (doing.type === "unreachable") return stay(contactLost(run, context.now, context))
  return seenAtWork(recordRetry(contactRestored(run, context), doing, context.now), context)
}

/** Handles a run that is at work, and resets what its idleness suggested. */
function seenAtWork(given: ActiveRun, context: RunContext): MachineStep {
  const { options, task, now } = context
  const over = { idle: false, stuckSince: undefined, todosSince: undefined, lookAt: undefined, lookedAt: now }
  const run = { ...given, ...over }
  const counts = options.maxRepeats + options.maxTokensPerTask > 0 || needsBill(limitsOf(context), task)
  return counts && !run.observed.hasEvents ? { run, commands: [{ do: "count" }] } : stay(run)
}

function lookAtAsk(run: ActiveRun, ask: Ask, { now, options, task, presence }: RunContext): MachineStep {
  // Without contact nobody can answer a question, and no refusal reaches the agent.
  if (run.away) return stay(run)
  if (now >= askTimeoutAt(ask, options.permissionTimeout, presence)) {
    const asks = run.asks.filter(({ id }) => id !== ask.id)
    const unanswered = [...run.unanswered, ask.what]
    const before = run.refused?.after === run.observed.ended ? run.refused.asks : []
    const refused = { after: run.observed.ended, asks: [...before, ask] }
    return {
      run: { ...run, asks, unanswered, refused },
      commands: [{ do: "refuse", ask, text: unansweredAskText(ask) }],
    }
  }
  if (run.hintAt === undefined || now < run.hintAt) return stay(run)
  const isToNobody = slotSessionOf(task) === NOBODY
  return { run: { ...run, hintAt: Number.POSITIVE_INFINITY }, commands: isToNobody ? [] : [{ do: "hint" }] }
}

/** Time until the next try where a question is open of which the parent could not be told. */
const HINT_AGAIN_MS = 10_000

/** The parent was not told of an open question, for example because it was answered before. The next one may be told. */
export const hintDropped: Handler<"hint dropped"> = (run, _input, { now }) =>
  stay({ ...run, hintAt: run.asks.length > 0 ? now + HINT_AGAIN_MS : undefined })

/** Keeps a question open that could not be refused. */
export const refuseFailed: Handler<"refuse failed"> = (run, { ask }) => stay({ ...run, asks: [...run.asks, ask] })

/**
 * Leaves a sleep of this process out of the run's time, and moves the deadlines that run on while the run's clock is
 * stopped. `ms` is negative where this process's clock was set back.
 */
export const slept: Handler<"slept"> = (run, { ms }, { now, task }) => {
  const event = { type: "slept", generation: run.generation, ms } as const
  const commands = [{ do: "record", event, write: false }] as const
  // None of these times counts while a run is at rest.
  if (isAtRest(run)) return { run, commands }
  const later = (time: number | undefined) => (time === undefined ? undefined : time + ms)
  const next: ActiveRun = {
    ...run,
    ...(ms > 0 && task.run.stoppedSince === undefined && { sleeps: [...(run.sleeps ?? []), { since: now - ms, ms }] }),
    lastSignAt: run.lastSignAt + ms,
    stuckSince: later(run.stuckSince),
    todosSince: later(run.todosSince),
    missingSince: later(run.missingSince),
    lookAt: later(run.lookAt),
    held: run.held && { ...run.held, until: run.held.until + ms },
    membersAt: later(run.membersAt),
    hintAt: later(run.hintAt),
    away: run.away && { ...run.away, since: run.away.since + ms },
    asks: run.asks.map((ask) => ({ ...ask, askedAt: ask.askedAt + ms })),
  }
  return { run: next, commands }
}
