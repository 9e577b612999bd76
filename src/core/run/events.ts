import { answerText, classify, isCutByCompaction, withoutCompaction } from "../outcome.ts"
import type { Message } from "../ports.ts"
import type { Ask, Ending, LastWord } from "../task.ts"
import { transition } from "../transition.ts"
import { endAfter, finalReason, MOST_EMPTY_ANSWERS } from "../watchdog.ts"
import { type ActiveRun, expectsMessage, type SentMessage } from "./active-run.ts"
import { end, fail } from "./ending.ts"
import { checkLimits, isUnheard, watchedAs } from "./limits.ts"
import {
  callsIn,
  emptiesIn,
  type Observed,
  withAnswer,
  withDelta,
  withMessages,
  withRepeatedCall,
  withText,
  withTool,
} from "./progress.ts"
import {
  arrived,
  askLastWord,
  askToContinue,
  refusedText,
  resendMessage,
  sayRepeats,
  sendMessage,
  skippedMessage,
} from "./prompts.ts"
import {
  andThen,
  type Confirmed,
  type Handler,
  type Input,
  type MachineStep,
  markIdle,
  moved,
  type RunContext,
  readMessages,
  recordActivity,
  recordRetry,
  type SessionRead,
  stay,
  waitsForOwn,
  withCommands,
} from "./steps.ts"

/** Delay before the parent's model is told of an open question, in ms. */
const HINT_AFTER_MS = 15_000

/** Updates the run's observations. If a last word was being written, a completed step ends the last word. */
function withObserved(run: ActiveRun, observed: Observed): ActiveRun {
  const { lastWord } = run
  const isLastWordDone =
    observed.ended > run.observed.ended && (lastWord?.state === "speaking" || lastWord?.againAt !== undefined)
  return { ...run, observed, ...(isLastWordDone && lastWord && { lastWord: { ...lastWord, state: "done" } }) }
}

const withReadMessages = (run: ActiveRun, messages: readonly Message[]): ActiveRun =>
  withObserved(run, withMessages(run.observed, messages))

type SessionEvent = Extract<Input, { type: "event" }>["event"]

/** Handles an event of the run's session, or of a session below it. */
export const event: Handler<"event"> = (given, { event }, context) => {
  // The plugin's own write of a record updates the session, so this event is no sign of life.
  if (event.type === "updated") return stay(given)
  // Questions that come between the end or pause of the run and the stop of its session are refused. Later ones are its
  // user's.
  if (given.closing || given.stage === "waiting") {
    const isStopping = given.stage === "closing" || given.calls > 0
    return {
      run: given,
      commands: event.type === "asked" && isStopping ? [{ do: "refuse", ask: event.ask, text: "" }] : [],
    }
  }
  const own = "sessionID" in event && event.sessionID === given.sessionID
  const run = { ...given, observed: given.observed.hasEvents ? given.observed : { ...given.observed, hasEvents: true } }
  if (event.type === "idle") {
    if (!own) return stay(run)
    const next = markIdle({ ...run, retry: undefined }, context)
    return andThen(next, (rested) => readMessages(rested, context))
  }
  const alive = recordActivity(run, context.now)
  if (!own) return anyEvent(alive, event)
  return ownEvent(ANSWERS.includes(event.type) ? { ...alive, failing: undefined } : alive, event, context)
}

/** Events that prove an answer of the run's model. */
const ANSWERS: readonly SessionEvent["type"][] = ["began", "thinking", "text", "text-delta", "tool", "answered"]

function ownEvent(run: ActiveRun, event: SessionEvent, context: RunContext): MachineStep {
  switch (event.type) {
    case "active":
      return stay(recordRetry(run, event.activity, context.now))
    case "began":
      return stay({ ...run, observed: { ...run.observed, began: true } })
    case "text":
      return stay({
        ...withObserved(run, withText(run.observed, event.partID, event.text, event.messageID)),
        endsText: event.text.trim() !== "",
      })
    case "text-delta":
      return stay(withObserved(run, withDelta(run.observed, event.partID, event.delta, event.messageID)))
    case "answered": {
      const next = withObserved(
        event.summary ? lastWordRequested(run) : run,
        withAnswer(run.observed, { ...event, id: event.messageID }),
      )
      return withCommands(checkLimits(next, context), [{ do: "check shared limits" }])
    }
    case "tool":
      return called(run, event, context)
    case "error":
      return readMessages({ ...run, error: { ...event.error, at: context.now } }, context)
  }
  return anyEvent(run, event)
}

/**
 * The request after a compaction asks for the last word. Usage of the compaction itself therefore does not end the run.
 */
const lastWordRequested = (run: ActiveRun): ActiveRun =>
  run.lastWord?.state === "requested" ? { ...run, lastWord: { ...run.lastWord, state: "speaking" } } : run

function called(run: ActiveRun, event: SessionEvent & { type: "tool" }, context: RunContext): MachineStep {
  const { observed } = run
  const { run: next } = anyEvent(run, event)
  const { tool, call } = event
  if (!next || !call || callsIn(next.observed, "ended") === callsIn(observed, "ended")) return stay(next ?? run)
  return checkRepeats({ ...next, observed: withRepeatedCall(next.observed, tool, call) }, observed, context)
}

/**
 * Checks the limits of a run whose agent may repeat one call, and warns an agent that has begun to do so. `before`: what
 * was observed before the last calls.
 */
function checkRepeats(run: ActiveRun, before: Observed, context: RunContext): MachineStep {
  const { repeated } = run.observed
  const { maxRepeats } = context.options
  if (maxRepeats === 0 || !repeated || repeated.times < maxRepeats) return stay(run)
  const known = before.repeated?.digest === repeated.digest ? before.repeated.times : 0
  return andThen(checkLimits(run, context), (next) =>
    known < maxRepeats && !next.lastWord ? sayRepeats(next, repeated, context) : stay(next),
  )
}

function anyEvent(run: ActiveRun, event: SessionEvent): MachineStep {
  switch (event.type) {
    case "tool": {
      const { callID: id, tool, state, messageID, byProvider } = event
      return stay(withObserved(run, withTool(run.observed, { id, tool, state, messageID, byProvider })))
    }
    case "asked":
      return asked(run, event.ask)
    case "replied":
      return stay(replied(run, event.askID))
  }
  return stay(run)
}

const withAsk = (run: ActiveRun, ask: Ask): ActiveRun => ({
  ...run,
  asks: [...run.asks.filter(({ id }) => id !== ask.id), ask],
})

const replied = (run: ActiveRun, askID: string): ActiveRun => ({
  ...run,
  asks: run.asks.filter(({ id }) => id !== askID),
})

const asked = (run: ActiveRun, ask: Ask): MachineStep => {
  const hintAt = run.hintAt ?? ask.askedAt + HINT_AFTER_MS
  return { run: { ...withAsk(run, ask), hintAt }, commands: [{ do: "announce", ask }] }
}

/** Takes over open questions as read from OpenCode, because the event of a question may be lost. */
export const questions: Handler<"questions"> = (run, { open, at }) => {
  if (run.observed.hasEvents && run.lastSignAt >= at) return stay(run)
  const known = (id: string) => run.asks.some((ask) => ask.id === id)
  const updated = {
    ...run,
    askedOfSilence: run.lastSignAt,
    asks: run.asks.filter(({ id }) => open.some((ask) => ask.id === id)),
  }
  return open
    .filter(({ id }) => !known(id))
    .reduce<MachineStep>((step, ask) => andThen(step, (next) => asked(next, ask)), stay(updated))
}

/** Takes usage and calls from messages, where no event reports them. */
export const counted: Handler<"counted"> = (run, { messages }, context) => {
  const checked = checkLimits(withReadMessages(run, messages), context)
  const step = andThen(checked, (read) => checkRepeats(read, run.observed, context))
  return withCommands(step, [{ do: "check shared limits" }])
}

/** Time for which an idle session may leave its prompt unanswered before the run ends. */
export const ANSWER_GRACE_MS = 10_000
/** Longer limit for a new folder, where OpenCode first starts an instance. */
const PLACE_GRACE_MS = 60_000
/**
 * Time in which a session may still answer after an error event. The event may come late from an earlier run, or
 * OpenCode has not begun the accepted prompt yet.
 */
const ERROR_GRACE_MS = 1000
/** Time for which a session may leave its last message unread. After this time the message is sent again. */
const WORD_GRACE_MS = 1000
/** Time after the stop of an agent in which OpenCode undoes the prompt, where a user wants both. */
const UNDO_GRACE_MS = 3000
/** Time until a session is read again after a read that failed or found undone messages. */
const LOOK_AGAIN_MS = 2000
/** Earlier than any deadline. */
const NEVER = Number.NEGATIVE_INFINITY

export const DELETED: Ending = { type: "cancelled", reason: { code: "deleted", text: "Its session was deleted." } }

/** Handles a read of the session: the run goes on, is checked, or has ended. */
export const looked: Handler<"looked"> = (given, { waited, found }, context) => {
  const run = { ...given, looking: false, lookAgain: false, lookedAt: context.now }
  // The session is read again when contact is back.
  if (run.away && !found) return stay(run)
  const step = found ? classified(run, found, waited, context) : stay({ ...run, lookAt: context.now + LOOK_AGAIN_MS })
  return given.lookAgain ? andThen(step, (next) => readMessages(next, context)) : step
}

function classified(run: ActiveRun, found: SessionRead, waited: boolean, context: RunContext): MachineStep {
  const { replacementID: promptID } = found
  if (promptID === undefined) return classifiedSince(run, found, waited, context)
  // OpenCode stores a prompt a moment after accepting it, and the user may have written to the session before that.
  const since = run.stuckSince ?? context.now
  const lookAt = since + WORD_GRACE_MS
  if (context.now < lookAt) return stay({ ...run, stuckSince: since, lookAt })
  const event = { type: "prompt replaced", generation: run.generation, promptID } as const
  const updatedContext = { ...context, task: transition(context.task, event) }
  // The run's first prompt is not sent again, because a user has replaced it.
  const step = classifiedSince({ ...run, prompt: undefined, stuckSince: undefined }, found, waited, updatedContext)
  return { run: step.run, commands: [{ do: "record", event, write: true }, ...step.commands] }
}

function classifiedSince(run: ActiveRun, found: SessionRead, waited: boolean, context: RunContext): MachineStep {
  const { messages, gone, busy } = found
  const proven = endingIn(run, found)
  const replacedAt = proven && replacementDueAt(run, proven, found, context)
  if (replacedAt !== undefined) return stay({ ...run, stuckSince: undefined, error: undefined, lookAt: replacedAt })
  if (proven) return concluded(arrived(withReadMessages(run, messages), messages), proven, found, waited, context)
  if (gone) return end(run, DELETED, {}, context)
  // A prompt that OpenCode has not accepted yet may be unread, so until then idleness says nothing.
  if (busy || run.stage === "prompting") return stay({ ...run, stuckSince: undefined, todosSince: undefined })
  // A session that stays idle for too long answers no further message, either.
  const isStuck = run.stuckSince !== undefined && context.now >= stuckUntil(run, context)
  const message = isStuck ? undefined : skippedMessage(run, messages)
  if (message && isUnread(run, messages, context)) return resendMessage(run, message, context)
  if (isRefusedByUs(run, messages)) return askToGoOn(run, messages, refusedText(run.refused?.asks ?? []), context)
  const isUrged = isStuck || (run.urgedAfter !== undefined && run.urgedAfter === messages.at(-1)?.id)
  if (!isUrged && isCutByCompaction(messages)) return askToGoOn(run, messages, COMPACTED, context)
  const idle = classify(messages, "idle", run.error)
  const since = run.stuckSince ?? context.now
  const isProven = idle.proven === true && !isBeforePause(run, idle)
  const isUnbegun = !isProven && !isUrged && isPromptAlone(run, messages, context)
  if (isUnbegun && context.now - since >= WORD_GRACE_MS) return askToGoOn(run, messages, UNBEGUN, context)
  const lookAt = message || isUnbegun ? since + WORD_GRACE_MS : undefined
  const stuck = isProven ? run : { ...run, stuckSince: since, lookAt }
  const next = arrived(withReadMessages(stuck, messages), messages)
  const isEnd = isProven || context.now >= stuckUntil(next, context)
  return isEnd ? concluded(next, idle, found, waited, context) : stay(missing(next, context))
}

/** End that the messages prove. An abort ends no run whose session works. */
function endingIn(run: ActiveRun, { messages, busy, undone }: SessionRead): Ending | undefined {
  const ending = classify(messages, "working")
  if (!ending || undone) return ending
  return isBeforePause(run, ending) || (ending.reason?.code === "aborted" && busy) ? undefined : ending
}

/** An error from before a pause ends no run that has gone on since: the pause was for it, or has cut that step off. */
const isBeforePause = ({ continuedAt = NEVER }: ActiveRun, { type, at = Number.POSITIVE_INFINITY }: Ending): boolean =>
  type !== "completed" && at < continuedAt

/**
 * When to read a stopped session again. A user who replaces the prompt of a working agent stops the agent first, and
 * then undoes the prompt and writes another. Undefined where the agent was only stopped, or where its user wrote no
 * other prompt for nearly as long as a run may be silent.
 */
function replacementDueAt(
  { lastSignAt }: ActiveRun,
  { reason, at = NEVER }: Ending,
  { undone }: SessionRead,
  { now, options: { stallTimeout } }: RunContext,
): number | undefined {
  if (reason?.code !== "aborted") return undefined
  const silentAt = stallTimeout > 0 ? lastSignAt + stallTimeout : Number.POSITIVE_INFINITY
  if (undone) return now + 2 * LOOK_AGAIN_MS < silentAt ? now + LOOK_AGAIN_MS : undefined
  return now < at + UNDO_GRACE_MS ? at + UNDO_GRACE_MS : undefined
}

/** True where the turn ended because this process refused an unanswered question: the work is not done. */
function isRefusedByUs({ refused, observed }: ActiveRun, messages: readonly Message[]): boolean {
  const { finish, error } = messages.at(-1) ?? {}
  const after = refused?.after ?? NEVER
  // Answers with errors are not counted in `observed.ended`.
  return (finish === "called" && observed.ended <= after + 1) || (error?.refused === true && observed.ended <= after)
}

/**
 * Whether the session has nothing since the run's prompt although it is idle: OpenCode stored the prompt just as a
 * user's turn ended, and leaves it unread. In a place without events, OpenCode may not have begun yet.
 */
const isPromptAlone = ({ error, observed }: ActiveRun, messages: readonly Message[], { task }: RunContext): boolean =>
  messages.length === 1 && messages[0]?.id === task.run.promptID && !error && (!task.place || observed.hasEvents)

const UNBEGUN = "The message before this one is your task, and you have not begun it. Begin now."

const COMPACTED = "A compaction of the conversation ended your turn while you were at work. Go on where you were."

function askToGoOn(run: ActiveRun, messages: readonly Message[], why: string, context: RunContext): MachineStep {
  const read = arrived(withReadMessages(run, messages), messages)
  const stuckSince = run.stuckSince ?? context.now
  const next = { ...read, urgedAfter: messages.at(-1)?.id, stuckSince, refused: undefined, error: undefined }
  return run.lastWord ? askLastWord(next, context) : askToContinue(next, why, context)
}

/**
 * Whether the session has left a message unread. A last message may just have come, so it counts only after the session
 * has ignored it for a while.
 */
const isUnread = ({ stuckSince }: ActiveRun, messages: readonly Message[], { now }: RunContext): boolean =>
  messages.at(-1)?.role === "assistant" || now - (stuckSince ?? now) >= WORD_GRACE_MS

/** Time until which idleness alone proves no end, because the session may just have been prompted. */
export function stuckUntil({ error, stuckSince = 0, observed }: ActiveRun, { task }: RunContext): number {
  if (error) return error.at + ERROR_GRACE_MS
  return stuckSince + (task.place && !observed.hasEvents ? PLACE_GRACE_MS : ANSWER_GRACE_MS)
}

/** Deadline for a message that OpenCode accepted and does not show. */
export const missingUntil = ({ missingSince = NEVER }: ActiveRun): number => missingSince + ANSWER_GRACE_MS

/** Time until which an agent with open todos may go on after its turn has ended well. */
export const todosUntil = ({ todosSince = 0 }: ActiveRun, { options }: RunContext): number =>
  todosSince + options.todoGrace

const missing = (run: ActiveRun, { now }: RunContext): ActiveRun => ({
  ...run,
  missingSince: expectsMessage(run) ? (run.missingSince ?? now) : undefined,
})

const hasPendingMessages = (run: ActiveRun, { now }: RunContext): boolean =>
  now < missingUntil(run) || run.sentMessages.some(isUnconfirmed)

/**
 * True for a message of which is not known whether OpenCode has accepted it. Nobody waits for a reply: the sender was
 * told so, or the machine itself wrote the message.
 */
const isUnconfirmed = ({ expected, taken, reply }: SentMessage): boolean => expected && !taken && reply === undefined

/** Handles messages that show an end. Messages sent in the meantime may still be unread. */
function concluded(
  given: ActiveRun,
  judgement: Ending,
  found: Pick<SessionRead, "messages" | "openTodos">,
  waited: boolean,
  context: RunContext,
): MachineStep {
  const { messages, openTodos } = found
  const run = missing(given, context)
  if (hasPendingMessages(run, context)) return stay(run)
  const ending = endAfter(judgement, finalLastWord(run, context), messages, context.task.run.lastWordAt)
  // An answer given before the notifications of the task's children is not final: the session is read again.
  const isOld = judgement.type === "completed" && waited && !waitsForOwn(context)
  if (ending.type !== "completed" && !isOld) return ended(run, ending, messages, openTodos, context)
  const todos = openTodos === 0 ? run : { ...run, todosSince: run.todosSince ?? context.now }
  const waitsForTodos = openTodos > 0 && context.now < todosUntil(todos, context)
  // Notifications of children that were sent during this read are not among these messages yet.
  if (waited || waitsForOwn(context) || waitsForTodos)
    // The turn ended before the agent could read that it is near a limit.
    return { run: todos, commands: run.lastWord ? [{ do: "check idle" }] : [] }
  const [first] = context.verifiers
  if (first === undefined) return ended(todos, ending, messages, openTodos, context)
  const pendingEnding = { ending, messages, openTodos, answers: todos.observed.ended }
  return verifies({ ...moved(todos, "verifying"), idle: true, pendingEnding }, messages, first)
}

/** Decides by OpenCode's state whether a limit that seemed passed ends the run. */
export const confirmed: Handler<"confirmed"> = (given, { reason, found }, context) => {
  const run = { ...given, confirming: false }
  const hasSpoken = run.lastWord?.state === "done"
  if (!found) return hasSpoken || isUnheard(reason) ? stay(run) : fail(run, reason, context)
  if (hasSpoken || !isUnheard(reason)) {
    if (classify(found.messages, "working")) return readMessages(run, context)
    const { messages } = found
    const answered = run.stage === "working" ? classify(withoutCompaction(messages), "working") : undefined
    // A check takes time, and the limit would end the run meanwhile.
    if (!answered || context.task.run.check) return fail(run, reason, context)
    // OpenCode compacts behind the run's answer. Only an end that is not proven stops the session.
    const ending = { ...answered, proven: false }
    return concluded(withReadMessages(run, messages), ending, { messages, openTodos: 0 }, false, context)
  }
  if (reason.code === "empty") {
    const read = { ...run, observed: withMessages(run.observed, found.messages) }
    return emptiesIn(read.observed).length >= MOST_EMPTY_ANSWERS ? fail(read, reason, context) : stay(read)
  }
  const { changed, next } = lookedAlive(run, found)
  const alive = changed || hasCall(found.last, "running") || next.asks.length > 0
  return alive ? stay(recordActivity(next, context.now)) : fail(next, reason, context)
}

function lookedAlive(run: ActiveRun, { last, asks }: Confirmed): { changed: boolean; next: ActiveRun } {
  const look = JSON.stringify(last)
  const newer = last !== undefined && last.createdAt > run.lastSignAt
  const unheard = hasCall(last, "pending") && callsIn(run.observed, "pending") === 0
  const changed = run.lastLook === undefined ? newer || unheard : run.lastLook !== look
  const known = run.asks.filter(({ id }) => !asks.some((ask) => ask.id === id))
  return { changed, next: { ...run, lastLook: look, asks: [...known, ...asks] } }
}

const hasCall = (message: Message | undefined, state: "pending" | "running"): boolean =>
  message?.parts.some((part) => part.type === "tool" && part.state === state) ?? false

const finalLastWord = (run: ActiveRun, context: RunContext): LastWord | undefined =>
  run.lastWord && { ...run.lastWord, reason: finalReason(watchedAs(run, context), run.lastWord.reason) }

const verifies = (run: ActiveRun, messages: readonly Message[], by: string): MachineStep => ({
  run,
  commands: [{ do: "verify", by, text: answerText(messages), earlier: { check: run.check, value: run.value } }],
})

/**
 * Handles a verdict. An answer that passes goes on to the next verifier; otherwise the agent is asked again in the same
 * run.
 */
export const verified: Handler<"verified"> = (given, { by, verdict }, context) => {
  const { pendingEnding } = given
  const found = { ...given, ...verdict?.finding }
  const back = recordActivity({ ...moved(found, "working"), pendingEnding: undefined }, context.now)
  // After a stopped verifier the session is not read, because a read would start the verifier again.
  if (!verdict || !pendingEnding) return stay(back)
  if (verdict.ok) {
    // The session has worked again since, for example for its user: its next answer is the run's.
    if (!given.idle || given.observed.ended !== pendingEnding.answers) return readMessages(unsettled(back), context)
    const next = context.verifiers[context.verifiers.indexOf(by) + 1]
    return next === undefined
      ? passed(back, pendingEnding, context)
      : verifies(moved(found, "verifying"), pendingEnding.messages, next)
  }
  return verdict.again || expectsMessage(back)
    ? sendMessage(unsettled(back), verdict.ask, context)
    : fail(back, verdict.failure, context)
}

/**
 * A run that goes on after a valid value: its last text is another one, in which that value does not stand. The attempts
 * before the value still count.
 */
function unsettled(run: ActiveRun): ActiveRun {
  if (!run.value?.valid) return run
  const { at: _at, length: _length, file: _file, ...counted } = run.value
  return { ...run, value: { ...counted, valid: false, asked: counted.asked - 1 } }
}

/** Ends a run that passed all verifiers. Messages sent in the meantime must be read first. */
function passed(run: ActiveRun, { ending, messages, openTodos }: PendingEnding, context: RunContext): MachineStep {
  const next = missing(run, context)
  return hasPendingMessages(next, context) ? stay(unsettled(next)) : ended(next, ending, messages, openTodos, context)
}

type PendingEnding = NonNullable<ActiveRun["pendingEnding"]>

function ended(
  run: ActiveRun,
  ending: Ending,
  messages: readonly Message[],
  openTodos: number,
  context: RunContext,
): MachineStep {
  // Messages alone prove no end that depends on a verdict or on changes in the place.
  const proven = ending.proven && context.verifiers.length === 0 && context.task.place === undefined
  return end(run, { ...ending, proven }, { messages, openTodos }, context)
}
