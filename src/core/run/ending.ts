import { tail } from "../../lib/text.ts"
import { memberName, winnerIn } from "../group.ts"
import { factsOf } from "../outcome.ts"
import { type CheckResult, NO_RECEIPT } from "../receipt.ts"
import { addUsage, type Ending, type Outcome, type Reason, type Task } from "../task.ts"
import { type TaskEvent, transition } from "../transition.ts"
import {
  type ActiveRun,
  type Closing,
  type EndOptions,
  isUnsent,
  isWithoutAgent,
  newRun,
  type SentMessage,
} from "./active-run.ts"
import { hasBegun, usageBeside, withMessages } from "./progress.ts"
import { type Handler, type MachineCommand, type MachineStep, moved, type RunContext, stay } from "./steps.ts"

/** Tail of a check's output that the record keeps, in characters. */
const MOST_KEPT_CHARS = 4000

/**
 * Ends a run once, by `transition`, so that late inputs change nothing. Then the session is stopped, the place archived
 * and the parent notified. An end that messages prove is told before it is recorded, any other end after.
 */
export function end(run: ActiveRun, ending: Ending, options: EndOptions, context: RunContext): MachineStep {
  const { task, now } = context
  const { generation, asks, sleeps = [] } = run
  // Where the system clock was set back, the run began later than it ends.
  const at = Math.max(ending.at ?? now, (task.run.startedAt ?? 0) + Math.min(0, task.run.uncountedMs ?? 0))
  // The check's result is recorded now: messages do not show it, and a crash may come before the end is closed.
  const outcome = withCheck(outcomeOf(run, ending, options), run)
  // On another machine, a run goes on while this one sleeps.
  const sleptMs = sleeps.reduce((sum, { since, ms }) => (at < since + ms ? sum + ms : sum), 0)
  const event: TaskEvent = {
    type: ending.type,
    generation,
    at,
    ...(sleptMs > 0 && { sleptMs }),
    outcome,
    delivery: context.delivery(options),
  }
  const began = run.stage === "preparing" || (run.stage !== "supervising" && !isUnsent(run, task))
  const write = options.silent ? "never" : ending.proven ? "soon" : "now"
  const stops = began && (!ending.proven || asks.length > 0)
  const closing: Closing = {
    task: transition(task, event),
    ending,
    options,
    write,
    writes: write === "now" ? 1 : 0,
    posted: false,
    delivered: false,
  }
  const commands: readonly MachineCommand[] = [
    { do: "end", event, ending, options },
    ...(isWithoutAgent(run) ? ([{ do: "abort" }] as const) : []),
    { do: "close", ...(stops && { asks }), read: began && options.messages === undefined },
    ...(write === "now" ? ([{ do: "write", later: false }] as const) : []),
    ...undelivered(run),
    { do: "ended", silent: options.silent ?? false },
  ]
  const calls = run.calls + (stops ? 1 : 0)
  return { run: { ...moved(run, "closing"), calls, closing, outcome }, commands }
}

/** Reports to the senders of messages that waited for the prompt that the run has ended: the prompt is never sent. */
const undelivered = ({ sentMessages: words }: ActiveRun): readonly MachineCommand[] =>
  words.flatMap(({ held, reply }: SentMessage) =>
    held && reply ? [{ do: "answer", reply, with: "ended" } as const] : [],
  )

export const ends: Handler<"end"> = (run, { ending, options }, context) => {
  // The run has ended well already: only its check or merge is stopped.
  if (run.stage === "finalizing") return { run, commands: [{ do: "abort" }] }
  if (isWon(run, context)) return { run, commands: [] }
  return end(run, ending, options, context)
}

/** Continues an end that a process recorded before it died and perhaps did not finish. */
export function reopened(task: Task, now: number): MachineStep {
  const { outcome } = task
  const type = task.status === "error" ? "failed" : task.status === "cancelled" ? "cancelled" : "completed"
  const ending: Ending = { type, reason: outcome?.reason }
  const how = { maybeDelivered: true }
  const closing: Closing = { task, ending, options: how, write: "again", writes: 0, posted: false, delivered: false }
  const merge = merges(task, ending)
  const run = { ...newRun(task, merge ? "finalizing" : "closing", now), closing, outcome }
  return { run, commands: [{ do: "finalize", task, merge }] }
}

const merges = ({ place }: Task, { type }: Ending): boolean => place?.merge === true && type === "completed"

/** Continues the end once the session is idle and its messages are known. */
export const closed: Handler<"closed"> = (run, { messages }) => {
  const { closing } = run
  if (!closing) return stay(run)
  const { task, ending, options } = closing
  const outcome = outcomeOf(run, ending, { ...options, messages })
  // Late events of these messages must not count them again.
  const next = { ...run, observed: withMessages(run.observed, messages), outcome }
  if (!task.place && !task.group) return finish(next)
  const merge = merges(task, ending)
  const commands: readonly MachineCommand[] = [{ do: "finalize", task: { ...task, outcome }, merge }]
  return { run: merge ? moved(next, "finalizing") : next, commands }
}

/**
 * Continues the end once the place is archived and, if requested, its work merged. With a reason in `found`, a group that
 * had completed has failed after all.
 */
export const finalized: Handler<"finalized"> = (run, { found, check = run.check }) => {
  const { outcome, closing } = run
  const known = { ...run, check, outcome: outcome && { ...outcome, ...found } }
  if (!closing || found?.reason === undefined) return finish(known)
  return finish({ ...known, closing: { ...closing, task: { ...closing.task, status: "error" } } })
}

function finish(run: ActiveRun): MachineStep {
  const { closing, generation } = run
  if (!closing) return stay(run)
  const outcome = run.outcome && withCheck(run.outcome, run)
  // Messages show neither a check's result nor a value. Both are recorded before the notification, since a crash may
  // lose them. So may the usage until the stop, where no notification is written with it.
  const untold = (outcome?.receipt?.check ?? outcome?.value) !== undefined || closing.task.delivery.state === "none"
  const writes = closing.write === "again" || (closing.write === "now" && untold)
  const failed = closing.ending.type === "completed" && closing.task.status === "error"
  const event = outcome && ({ type: "closed", generation, outcome, ...(failed && { failed }) } as const)
  const commands: readonly MachineCommand[] = [
    ...(event ? [{ do: "record", event, write: false } as const] : []),
    { do: "free slot" },
    ...(writes ? [{ do: "write", later: false } as const] : []),
    ...(closing.write === "soon" ? [{ do: "write", later: true } as const] : []),
  ]
  const next = {
    ...moved(run, "notifying"),
    outcome,
    closing: { ...closing, writes: closing.writes + (writes ? 1 : 0) },
  }
  const { run: rest, commands: more } = post(next)
  return { run: rest, commands: [...commands, ...more] }
}

function withCheck(known: Outcome, { check: result, value }: ActiveRun): Outcome {
  const outcome = value ? { ...known, value } : known
  if (!result) return outcome
  return { ...outcome, receipt: { ...(outcome.receipt ?? NO_RECEIPT), check: shortened(result) } }
}

/** The result as the record keeps it. */
export function shortened({ output, ...check }: CheckResult): CheckResult {
  return output === undefined ? check : { ...check, output: tail(output, MOST_KEPT_CHARS) }
}

/** True after a group member has passed, while the group's winner is being recorded. */
export const isWon = ({ stage }: ActiveRun, { task }: RunContext): boolean =>
  stage === "supervising" && winnerIn(task.group) !== undefined

/** Sends the notification once all pending steps are done. */
function post(run: ActiveRun): MachineStep {
  const { closing, outcome } = run
  if (run.stage !== "notifying" || !closing || closing.posted || closing.writes > 0) return settle(run)
  const task = { ...closing.task, outcome }
  const next = { ...run, closing: { ...closing, posted: true, delivered: closing.options.silent === true } }
  const rest = settle(next)
  return {
    run: rest.run,
    commands: [{ do: "notify", task, maybeDelivered: closing.options.maybeDelivered ?? false }, ...rest.commands],
  }
}

export const written: Handler<"written"> = (run, _input, context) => {
  const { closing } = run
  // The winner is recorded: now the group may end.
  if (run.stage === "supervising")
    return winnerIn(context.task.group) ? end(run, { type: "completed" }, {}, context) : stay(run)
  return closing ? post({ ...run, closing: { ...closing, writes: closing.writes - 1 } }) : stay(run)
}

export const notified: Handler<"notified"> = (run) =>
  settle(run.closing ? { ...run, closing: { ...run.closing, delivered: true } } : run)

export const stopped: Handler<"stopped"> = (run) => callReturned(run)

/**
 * Counts a call to the run's session that has returned. A parked run goes on after the last pending call at the
 * earliest.
 */
export function callReturned(given: ActiveRun): MachineStep {
  const run = { ...given, calls: given.calls - 1 }
  return run.stage === "waiting" && run.calls === 0 ? { run, commands: [{ do: "free slot" }] } : settle(run)
}

/** Drops a run once its parent has been notified and no call to its session is pending. */
const settle = (run: ActiveRun): MachineStep =>
  run.closing?.delivered && run.calls === 0 ? { run: undefined, commands: [] } : stay(run)

/** Outcome from the messages if there are any, else from events. */
function outcomeOf(run: ActiveRun, ending: Ending, options: EndOptions): Outcome {
  const outcome = knownOf(run, ending, options)
  // The usage after contact was lost is not known, so the known usage is a lower bound.
  return run.away ? { ...outcome, usage: { ...outcome.usage, atLeast: true } } : outcome
}

function knownOf(run: ActiveRun, ending: Ending, { messages = [], openTodos = 0 }: EndOptions): Outcome {
  const { reason, note, saidLastWord, thought } = ending
  const { unanswered, observed } = run
  const known = {
    reason,
    note,
    saidLastWord,
    openTodos,
    ...(thought !== undefined && { thought }),
    ...(unanswered.length > 0 && { unanswered: [...unanswered] }),
  }
  if (messages.length > 0) {
    const facts = factsOf(messages)
    return { ...known, ...facts, usage: addUsage(facts.usage, usageBeside(observed, messages)) }
  }
  const { calls, recentTools } = observed
  // Events tell of whole answers alone: what was asked last may have been cut off.
  const usage = hasBegun(observed) ? { ...observed.usage, atLeast: true as const } : observed.usage
  return { ...known, toolCalls: calls.size, usage, recentTools, filesChanged: [], moreFiles: 0 }
}

export const fail = (run: ActiveRun, reason: Reason, context: RunContext): MachineStep =>
  end(run, { type: "failed", reason }, {}, context)

/** Starts, stops or ends members according to their results. */
export function superviseMembers(run: ActiveRun, context: RunContext): MachineStep {
  const { group } = context.task
  if (!group || winnerIn(group) !== undefined) return stay(run)
  const { begin, winner, passed, ending, until } = context.nextMembers(run)
  if (ending) return end(run, ending, {}, context)
  // What keeps the next from being created keeps the others, too.
  const next = run.membersBehind === undefined ? begin : begin.slice(0, 1)
  if (winner === undefined) return createMembers({ ...run, membersAt: until }, next)
  const { generation } = run
  const event = { type: "won", generation, winner, ...(passed && { passed: withoutOutput(passed) }) } as const
  return {
    run,
    commands: [
      { do: "record", event, write: false },
      { do: "write", later: false },
    ],
  }
}

/** Output of a passed check is not kept. */
const withoutOutput = ({ output: _output, ...check }: CheckResult): CheckResult => check

function createMembers(run: ActiveRun, begin: readonly number[]): MachineStep {
  const { prompt: text = "", preface } = run
  const commands = begin.map((nth): MachineCommand => ({ do: "create member", nth, text, preface }))
  const creatingMembers = [...run.creatingMembers, ...begin]
  // A group without a member to create waits for nothing.
  const membersBehind = creatingMembers.length > 0 ? run.membersBehind : undefined
  return { run: { ...run, creatingMembers, membersBehind }, commands }
}

export const members: Handler<"members"> = (run, _input, context) => superviseMembers(run, context)

/**
 * Handles a created member. One that could not be created ends the group, because the next would fail in the same way.
 * One that has to wait is created at a later look at the group.
 */
export const memberCreated: Handler<"member created"> = (given, { nth, problem, behind }, context) => {
  const creatingMembers = given.creatingMembers.filter((each) => each !== nth)
  const run = { ...given, creatingMembers, membersBehind: behind }
  if (behind !== undefined) return stay(run)
  if (problem === undefined) return superviseMembers(run, context)
  return fail(run, { code: "host", text: `${memberName(run.taskID, nth)} could not be begun: ${problem}` }, context)
}
