import { duration, formatTime, HOUR_MS, SAME_USD } from "../lib/format.ts"
import { oneLine } from "../lib/text.ts"
import { answerText, withoutCompaction } from "./outcome.ts"
import type { Message } from "./ports.ts"
import {
  lastWordReserve,
  type SpendingLimits,
  type SpendingRule,
  type Spent,
  spendingRules,
  spentText,
  withFinalSpending,
} from "./spending.ts"
import {
  type Ask,
  type Ending,
  elapsed,
  type Failing,
  type LastWord,
  type LostContact,
  type Progress,
  type Reason,
  type Repeated,
  type Run,
  type Task,
  type Usage,
} from "./task.ts"

/** Limits that end a run; 0 turns one off. Times in ms. */
export type RunLimits = SpendingLimits & {
  readonly taskTimeout: number
  /** Defaults of single agents, by name. */
  readonly agents: Readonly<Record<string, { readonly timeout?: number }>>
  readonly stallTimeout: number
  /** Timeout of a question, in ms; null where `askTimeoutAt` decides. */
  readonly permissionTimeout: number | null
  /** A run is warned after so many equal calls in a row, and ended after twice as many. */
  readonly maxRepeats: number
  /**
   * How long before its time limit a run is asked for its last word, and how long the run has for it near any other
   * limit.
   */
  readonly lastWord: number
}

/**
 * A run as its limits see it. `ownTasks`: children are active, or the run is idle and still gets the notification of a
 * child's end.
 */
export type Watched = {
  readonly task: Task
  readonly progress: Progress
  readonly limits: RunLimits
  readonly spent: Spent
  readonly ownTasks: boolean
  readonly presence: Presence
  readonly now: number
}

/** Whether a user could answer: OpenCode is open on a screen; `wroteAt`: last message of a user, in ms. */
export type Presence = { readonly isOpen: boolean; readonly wroteAt: number }

/** Timeout of a question where no user seems present. `HERE_MS`: where the user may only be away for a while. */
const ALONE_MS = 300_000
const HERE_MS = HOUR_MS

/** When an unanswered question is refused. */
export function askTimeoutAt({ askedAt }: Ask, permissionTimeout: number | null, presence: Presence): number {
  if (permissionTimeout === 0) return Number.POSITIVE_INFINITY
  if (permissionTimeout !== null) return askedAt + permissionTimeout
  const waits = presence.isOpen ? HERE_MS : ALONE_MS
  return Math.max(askedAt + waits, presence.wroteAt + HERE_MS)
}

/** `warn`: ask for the last word; `interrupt`: stop the turn and ask again; `stop`: end the run. */
export type LimitAction = { readonly action: "warn" | "interrupt" | "stop"; readonly reason: Reason }

/** A model is not called again after so many empty answers in a row. */
export const MOST_EMPTY_ANSWERS = 3
const MOST_ERROR_CHARS = 200
/** Tool names of MCP servers may have any length. */
const MOST_TOOL_CHARS = 60
/** Time kept for the last word: at most a third of a time limit. */
export const lastWordTime = (limit: number, lastWord: number): number => Math.min(lastWord, limit / 3)
/** Longest extra time of an interrupted run for its last word, in ms. */
const MOST_OWN_TIME_MS = 60_000

type Gauge = { readonly used: number; readonly allowed: number }

type Rule = {
  readonly code: string
  /** Undefined where the limit is off or does not count now. */
  readonly gauge: (run: Watched) => Gauge | undefined
  /** Whether the limit is passed at its amount, or only above this amount. */
  readonly passed: "at" | "above"
  readonly byClock: boolean
  /** Limit on the run's own clock, which may be stopped. */
  readonly isRuns?: true
  /** Wall-clock limit: its time goes on during pauses and is not extended for a last word. */
  readonly isWalls?: true
  /** Amount left when the last word is requested; 0 or absent for no last word. */
  readonly reserve?: (gauge: Gauge, run: Watched) => number
  readonly text: (gauge: Gauge, run: Watched) => string
}

const TIME: Rule = {
  code: "timeout",
  gauge: ({ task, now }) => gaugeOf(elapsed(task, now), task.run.startedAt === undefined ? 0 : task.run.timeout),
  passed: "at",
  byClock: true,
  isRuns: true,
  reserve: ({ allowed }, { limits }) => lastWordTime(allowed, limits.lastWord),
  text: ({ allowed }, { task, limits }) => {
    const isAgents = allowed === limits.agents[task.agent]?.timeout
    const option = allowed === limits.taskTimeout ? "taskTimeout" : isAgents ? "agents" : undefined
    const source = option ? `the option ${option}` : "its timeout argument"
    return `Stopped at its time limit of ${duration(allowed)} (${source}).`
  },
}

/** Time limit of the purse. It is wall-clock time: pauses and sleep of the machine count. */
const PURSE_TIME: Rule = {
  code: "purse",
  gauge: ({ limits: { purse }, now }) => purse && gaugeOf(now - purse.openedAt, purse.until - purse.openedAt),
  passed: "at",
  byClock: true,
  isWalls: true,
  reserve: ({ allowed }, { limits }) => lastWordTime(allowed, limits.lastWord),
  text: ({ used, allowed }, { now, limits }) =>
    `Stopped at the end of ${limits.purse?.words.whose}, ${formatTime(now - used + allowed, now)}.`,
}

/** Why a purse pays for no new run: the run would reach its last word, or the end of the purse, at once. */
export function tooLateFor(
  { purse, lastWord }: Pick<RunLimits, "purse" | "lastWord">,
  now: number,
): string | undefined {
  if (!purse) return undefined
  const left = purse.until - now
  if (left > lastWordTime(purse.until - purse.openedAt, lastWord)) return undefined
  const { whose, source } = purse.words
  const until = `${formatTime(purse.until, now)} (${source})`
  return left > 0
    ? `${whose} pays until ${until}, and the time left is too little to begin with`
    : `${whose} paid until ${until}`
}

const EMPTY: Rule = {
  code: "empty",
  gauge: ({ progress }) => gaugeOf(progress.emptyAnswers, MOST_EMPTY_ANSWERS),
  passed: "at",
  byClock: false,
  text: ({ used }) =>
    `Stopped because the model sent ${used} empty answers in a row, or answers without a known finish reason.`,
}

/**
 * After the request for a last word, a run may repeat as many calls again: all of them are refused with the same
 * result.
 */
const REPEATS: Rule = {
  code: "repeats",
  gauge: ({ progress: { repeated }, limits: { maxRepeats, lastWord } }) =>
    repeated && gaugeOf(repeated.times, maxRepeats * (lastWord > 0 ? 3 : 2)),
  passed: "at",
  byClock: false,
  reserve: (_gauge, { limits: { maxRepeats, lastWord } }) => (lastWord > 0 ? maxRepeats : 0),
  text: ({ used }, { progress: { repeated } }) =>
    `Stopped at its limit of equal calls: ${oneLine((repeated as Repeated).tool, MOST_TOOL_CHARS)}, ${used} times in a row with the same result (option maxRepeats).`,
}

/**
 * Factor for the limit on silence while a model writes a call's arguments. OpenCode reports nothing until they are
 * complete, and a slow model may write a long file.
 */
const SLOW_ARGUMENTS = 3

const SILENCE: Rule = {
  code: "silence",
  gauge: ({ progress, limits, ownTasks, now }) =>
    hasLife(progress, ownTasks)
      ? undefined
      : gaugeOf(now - progress.lastSignAt, limits.stallTimeout * (progress.pendingCalls > 0 ? SLOW_ARGUMENTS : 1)),
  passed: "at",
  byClock: true,
  text: ({ used }, { progress, limits }) => {
    const arguments_ = progress.pendingCalls > 0 ? `, and ${SLOW_ARGUMENTS} times that while it writes a tool call` : ""
    return `Stopped because nothing was heard of it for ${duration(used)}; the option stallTimeout allows ${duration(limits.stallTimeout)}${arguments_}.`
  },
}

const spending = (amount: SpendingRule): Rule => ({
  code: amount.code,
  gauge: (run) => {
    const used = amount.used(run.spent, run)
    return used && gaugeOf(amount.unit.of(used), amount.allowed(run.limits, run.task))
  },
  passed: "above",
  byClock: false,
  reserve: ({ allowed }, { progress, limits, spent }) =>
    limits.lastWord > 0 && hasWorked(progress) ? lastWordReserve(allowed, amount.reserve?.(spent)) : 0,
  text: ({ allowed }, run) => `Stopped at ${amount.whose}: ${spentText(amount, usedOf(amount, run), allowed)}.`,
})

const usedOf = (amount: SpendingRule, run: Watched): Usage => amount.used(run.spent, run) as Usage

const CONTACT: Rule = {
  code: "host",
  gauge: ({ progress: { away }, now }) => away && gaugeOf(now - away.since, away.most),
  passed: "at",
  byClock: true,
  text: ({ used, allowed }, { progress: { away } }) =>
    `Stopped because there was no contact with ${(away as LostContact).host} for ${duration(used)}; its contactTimeout allows ${duration(allowed)}.`,
}

/** Limits that apply without contact: then silence proves nothing, and no agent could be asked for its last word. */
const AWAY_RULES: readonly Rule[] = [TIME, PURSE_TIME, CONTACT]

/** Where several limits are passed, the first gives the reason. */
const rulesFor = ({ progress, limits }: Watched): readonly Rule[] =>
  progress.away ? AWAY_RULES : [TIME, PURSE_TIME, ...spendingRules(limits).map(spending), REPEATS, EMPTY, SILENCE]

/** Action that the limits demand now; undefined where the run may go on. */
export function limitActionOf(run: Watched): LimitAction | undefined {
  const demand = demandBy(run)
  return demand?.action === "stop" ? { ...demand, reason: withFailing(demand.reason, run) } : demand
}

/** Adds the model's failures to the reason: they caused the end as much as the limit did. */
function withFailing(reason: Reason, { progress: { failing }, now }: Watched): Reason {
  return failing ? { ...reason, text: `${reason.text} ${failingText(failing, now)}` } : reason
}

/** Example: `Since 14:03 every request to its model has failed (attempt 12: Service Unavailable).` */
const failingText = ({ since, attempt, message }: Failing, now: number): string =>
  `Since ${formatTime(since, now)} every request to its model has failed (attempt ${attempt}: ${oneLine(message, MOST_ERROR_CHARS)}).`

function demandBy(run: Watched): LimitAction | undefined {
  const rules = rulesFor(run)
  const passed = rules.filter((rule) => isPassed(rule, run))
  const { lastWord, away } = run.progress
  if (lastWord && !away) return demandAfterWarning(run, lastWord, passed)
  if (passed[0]) return { action: "stop", reason: reasonOf(passed[0], run) }
  const near = rules.find((rule) => isNear(rule, run))
  return near && { action: "warn", reason: reasonOf(near, run) }
}

/**
 * Stops a run whose time for the last word is over, or that passes a limit while it does not write its last word. A run
 * that cannot read the request, because a tool runs or a question is open, is interrupted once.
 */
function demandAfterWarning(run: Watched, lastWord: LastWord, passed: readonly Rule[]): LimitAction | undefined {
  const other = passed.find(endsLastWord)
  if (other) return { action: "stop", reason: reasonOf(other, run) }
  const { state, againAt, reason } = lastWord
  const isOver = lastWordLeft(run, lastWord) <= 0
  const isSpent = passed.some(({ byClock }) => !byClock)
  if (!isOver && !isSpent) return undefined
  if (state === "requested" && againAt === undefined && hasOpenCalls(run.progress))
    return { action: "interrupt", reason }
  const isComing = state === "speaking" || (state === "requested" && againAt !== undefined)
  return isOver || !isComing ? { action: "stop", reason: finalReason(run, reason) } : undefined
}

/** True for limits that end a run even while the agent writes its last word. */
const endsLastWord = ({ reserve, isWalls }: Rule): boolean => !reserve || isWalls === true

/** Reason after a last word: the limit that the run was near, with final figures. */
export const finalReason = ({ task, progress, limits, spent }: Watched, reason: Reason): Reason =>
  withFinalSpending(reason, limits, spent, { task, progress })

function lastWordLeft({ task, limits, now }: Watched, { at, againAt, reason }: LastWord): number {
  if (task.run.stoppedSince !== undefined) return Number.POSITIVE_INFINITY
  const { timeout } = task.run
  const used = elapsed(task, now)
  if (againAt !== undefined) return againAt + Math.min(limits.lastWord, MOST_OWN_TIME_MS) - used
  const left = timeout > 0 ? timeout - used : Number.POSITIVE_INFINITY
  return reason.code === "timeout" ? left : Math.min(left, at + limits.lastWord - used)
}

/**
 * Time at which `limitActionOf` or a question's timeout could next change without new events. `settled`: limits passed
 * before this time are already handled.
 */
export function nextLimitAt(run: Watched, settled = Number.NEGATIVE_INFINITY): number {
  const { progress, limits } = run
  const { lastWord, asks, away } = progress
  const questions = away ? [] : asks.map((ask) => askTimeoutAt(ask, limits.permissionTimeout, run.presence))
  const rules = rulesFor(run).flatMap((rule) => dueOf(rule, run) ?? [])
  const word = lastWord && !away ? [run.now + lastWordLeft(run, lastWord)] : []
  const coming = [...rules, ...word].filter((at) => at > settled)
  return Math.min(Number.POSITIVE_INFINITY, ...questions, ...coming)
}

function dueOf(rule: Rule, run: Watched): number | undefined {
  const gauge = rule.byClock ? rule.gauge(run) : undefined
  if (!gauge || (rule.isRuns && run.task.run.stoppedSince !== undefined)) return undefined
  const { lastWord, away } = run.progress
  const left = leftOf(gauge)
  if (lastWord && !away) return endsLastWord(rule) ? run.now + left : undefined
  const near = left - reserveOf(rule, gauge, run)
  return run.now + (near > 0 ? near : left)
}

function isPassed(rule: Rule, run: Watched): boolean {
  const gauge = rule.gauge(run)
  if (!gauge) return false
  return rule.passed === "at" ? leftOf(gauge) <= 0 : leftOf(gauge) < -SAME_USD
}

function isNear(rule: Rule, run: Watched): boolean {
  const gauge = rule.gauge(run)
  const reserve = gauge ? reserveOf(rule, gauge, run) : 0
  return gauge !== undefined && reserve > 0 && leftOf(gauge) <= reserve + SAME_USD
}

/** Reserve for a last word; 0 while the agent is not running, since the agent could not answer. */
const reserveOf = (rule: Rule, gauge: Gauge, run: Watched): number =>
  run.progress.held || run.progress.away ? 0 : (rule.reserve?.(gauge, run) ?? 0)

const leftOf = ({ used, allowed }: Gauge): number => allowed - used

const gaugeOf = (used: number, allowed: number): Gauge | undefined => (allowed > 0 ? { used, allowed } : undefined)

const reasonOf = (rule: Rule, run: Watched): Reason => ({
  code: rule.code,
  text: rule.text(rule.gauge(run) as Gauge, run),
})

/** Whether a run has something to say in a last word. */
export const hasWorked = ({ toolCalls, lastText, usage }: Progress): boolean =>
  toolCalls > 0 || lastText !== "" || usage.output > 0

/** True while a tool call or a question of the run is open: the agent cannot read messages then. */
const hasOpenCalls = ({ openCalls, pendingCalls, asks, held = false }: Progress): boolean =>
  !held && openCalls + pendingCalls + asks.length > 0

/**
 * Whether a run counts as alive without events: a tool runs, a question is open, a retry is due, or children are
 * active.
 */
const hasLife = (progress: Progress, ownTasks: boolean): boolean =>
  progress.openCalls > 0 || progress.asks.length > 0 || progress.retry !== undefined || ownTasks

/** Message that asks a run near a limit for its last word. */
export const lastWordRequest = (reason: Reason): string =>
  `${nearness(reason)} Stop working now and call no more tools: calls are refused. Answer at once: what is done, what is left, and where it lies. This answer ends your work.`

/** Error that the run's tool calls return after the request for the last word. */
export const lastWordRefusal = (reason: Reason): string =>
  `Refused. ${nearness(reason)} Call no more tools. Answer now: what is done, what is left, and where it lies.`

/**
 * Example: `You are near the session's budget: the session's tasks spent $0.0912 of $0.10 (option maxCostPerSession).`
 */
const nearness = ({ text }: Reason): string =>
  text
    .replace(/^Stopped at (its )?/, (_all, own) => `You are near ${own ? "your " : ""}`)
    .replace(/: it (?=spent|used)/, ": you ")

/**
 * End of a run that was asked for its last word at `askedAt`. If the agent answered, the limit is the reason of the end;
 * if the run ended before the agent read the request, the run ended by itself. Such an end may be found late: OpenCode
 * goes on after an answer when it compacts the conversation.
 */
export function endAfter(
  ending: Ending,
  lastWord: Pick<LastWord, "state" | "reason"> | undefined,
  messages: readonly Message[],
  askedAt = Number.NEGATIVE_INFINITY,
): Ending {
  if (!lastWord || lastWord.state === "requested" || ending.type !== "completed") return ending
  if (ending.at !== undefined && ending.at < askedAt) return ending
  // Text from before the request is not the run's last word.
  const last = withoutCompaction(messages).filter(({ role }) => role === "assistant")
  const isSaid = answerText(last.slice(-1)) !== ""
  return { type: "failed", reason: lastWord.reason, at: ending.at, ...(isSaid && { saidLastWord: true }) }
}

/**
 * End of a run that was asked for its last word, after a crash. Any answer begun after the request is the last word.
 */
export function endAfterCrash(ending: Ending, run: Run, messages: readonly Message[]): Ending {
  const { lastWordAt: at, lastWordFor: reason } = run
  const answer = withoutCompaction(messages).findLast(({ role }) => role === "assistant")
  if (at === undefined || !reason || !answer || answer.createdAt < at) return ending
  return endAfter(ending, { state: "done", reason }, messages)
}
