import { duration } from "../lib/duration.ts"
import { moment } from "../lib/format-time.ts"
import { SAME_USD } from "../lib/money.ts"
import { oneLine } from "../lib/text.ts"
import { AMOUNTS, type Amount, atItsEnd, keptOf, type SpendingLimits, type Spent, spentText } from "./spending.ts"
import {
  type Ask,
  type Away,
  elapsed,
  type Failing,
  type LastWord,
  type Progress,
  type Reason,
  type ReasonCode,
  type Repeated,
  type Task,
  type Usage,
  uncounted,
} from "./task.ts"

/** The limits that end a run; 0 turns one off. Times in ms. */
export type RunLimits = SpendingLimits & {
  readonly taskTimeout: number
  readonly stallTimeout: number
  /** Null: so long as `refusedAt` says. */
  readonly permissionTimeout: number | null
  /** After so many equal calls in a row a run is told of that, after twice as many it is ended. */
  readonly maxRepeats: number
  /** How long before its time limit a run is asked for its last word, and how long it has for it near any other. */
  readonly lastWord: number
}

/** A run as its limits see it. `ownTasks`: tasks that it launched are active, or it is still to be told of one. */
export type Watched = {
  readonly task: Task
  readonly progress: Progress
  readonly limits: RunLimits
  readonly spent: Spent
  readonly ownTasks: boolean
  readonly presence: Presence
  readonly now: number
}

/** Whether a person could answer a question: OpenCode is open on a screen; and when one last wrote, in ms. */
export type Presence = { readonly isOpen: boolean; readonly wroteAt: number }

/** How long a question waits where nobody seems to be there, and how long it waits for somebody who may be at lunch. */
const ALONE_MS = 300_000
const HERE_MS = 3_600_000

/** When a question is refused that nobody answers. */
export function refusedAt({ askedAt }: Ask, permissionTimeout: number | null, presence: Presence): number {
  if (permissionTimeout === 0) return Number.POSITIVE_INFINITY
  if (permissionTimeout !== null) return askedAt + permissionTimeout
  const waits = presence.isOpen ? HERE_MS : ALONE_MS
  return Math.max(askedAt + waits, presence.wroteAt + HERE_MS)
}

/**
 * What a run's limits demand: `warn` that it be asked for its last word, `interrupt` that it be stopped in what it does
 * and asked once more, `stop` that it end.
 */
export type Demand = { readonly action: "warn" | "interrupt" | "stop"; readonly reason: Reason }

/** Empty answers in a row after which a model will not be asked again. */
export const MOST_EMPTY_ANSWERS = 3
/** What is told of a provider's error; a reason has more to say. */
const MOST_ERROR_CHARS = 200
/** A tool of a server's own may have any name. */
const MOST_TOOL_CHARS = 60
/** Part of a time limit that the last word may take at most. */
const MOST_OF_TIME = 1 / 3
/** How long a run that was interrupted has for its last word at most, in ms. */
const MOST_OWN_TIME_MS = 60_000

/** How much of a limit is used, and how much there is. */
type Gauge = { readonly used: number; readonly allowed: number }

type Rule = {
  readonly code: ReasonCode
  /** Undefined where the limit is off, or does not count now. */
  readonly gauge: (run: Watched) => Gauge | undefined
  /** Passed when all of it is used, or only when more than that is. */
  readonly passed: "at" | "above"
  /** Time alone uses it up. */
  readonly byClock: boolean
  /** It is the wall's time that does: it goes on whatever the run does, and a last word has no more of it. */
  readonly isWalls?: true
  /** What is left of it when the last word comes, 0 for no last word. Absent where there never is one. */
  readonly reserve?: (gauge: Gauge, run: Watched) => number
  readonly text: (gauge: Gauge, run: Watched) => string
}

const TIME: Rule = {
  code: "timeout",
  gauge: ({ task, now }) => gaugeOf(elapsed(task, now), task.run.startedAt === undefined ? 0 : task.run.timeout),
  passed: "at",
  byClock: true,
  reserve: ({ allowed }, { limits }) => Math.min(limits.lastWord, allowed * MOST_OF_TIME),
  text: ({ allowed }, { limits }) => {
    const source = allowed === limits.taskTimeout ? "the option taskTimeout" : "its timeout argument"
    return `Stopped at its time limit of ${duration(allowed)} (${source}).`
  },
}

/** The time of the purse that pays it is the wall's: it goes on while a run stands still, and while the machine sleeps. */
const PURSE_TIME: Rule = {
  code: "purse",
  gauge: ({ limits: { purse }, now }) => purse && gaugeOf(now - purse.openedAt, purse.until - purse.openedAt),
  passed: "at",
  byClock: true,
  isWalls: true,
  reserve: ({ allowed }, { limits }) => Math.min(limits.lastWord, allowed * MOST_OF_TIME),
  text: ({ used, allowed }, { now }) =>
    `Stopped at the end of the board's purse, ${moment(now - used + allowed, now)}.`,
}

/**
 * Why no run may begin that a purse would pay: it would be asked for its last word at once, or be stopped. Undefined
 * where it may, or nothing pays it.
 */
export function tooLateFor(
  { purse, lastWord }: Pick<RunLimits, "purse" | "lastWord">,
  now: number,
): string | undefined {
  if (!purse) return undefined
  const left = purse.until - now
  if (left > Math.min(lastWord, (purse.until - purse.openedAt) * MOST_OF_TIME)) return undefined
  const until = `${moment(purse.until, now)} (tasks_purse)`
  return left > 0
    ? `the board's purse pays until ${until}, and the time left is too little to begin with`
    : `the board's purse paid until ${until}`
}

const EMPTY: Rule = {
  code: "empty",
  gauge: ({ progress }) => gaugeOf(progress.emptyAnswers, MOST_EMPTY_ANSWERS),
  passed: "at",
  byClock: false,
  text: ({ used }) =>
    `Stopped because the model sent ${used} empty answers in a row. Try another model, or try again later.`,
}

/** While it says its last word a run may make as many more: its calls are refused by then, one like the other. */
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

/** Of the arguments of a call the host tells nothing while they are written, and a slow model may write a long file. */
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

const spending = (amount: Amount): Rule => ({
  code: amount.code,
  gauge: (run) => {
    const used = amount.used(run.spent, run)
    return used && gaugeOf(amount.unit.of(used), amount.allowed(run.limits, run.task))
  },
  passed: "above",
  byClock: false,
  reserve: ({ allowed }, { progress, limits, spent }) =>
    limits.lastWord > 0 && hasWorked(progress) ? keptOf(amount, allowed, spent) : 0,
  text: ({ allowed }, run) => `Stopped at ${amount.whose}: ${spentText(amount, usedOf(amount, run), allowed)}.`,
})

const usedOf = (amount: Amount, run: Watched): Usage => amount.used(run.spent, run) as Usage

const CONTACT: Rule = {
  code: "host",
  gauge: ({ progress: { away }, now }) => away && gaugeOf(now - away.since, away.most),
  passed: "at",
  byClock: true,
  text: ({ used, allowed }, { progress: { away } }) =>
    `Stopped because there was no contact with ${(away as Away).host} for ${duration(used)}; its contactTimeout allows ${duration(allowed)}.`,
}

/** Those that bind without contact: what is not heard of is not silence, and nobody could say a last word. */
const AWAY_RULES: readonly Rule[] = [TIME, PURSE_TIME, CONTACT]

/** All limits of a run. Where several are passed, the first gives the reason. */
const RULES: readonly Rule[] = [TIME, PURSE_TIME, ...AMOUNTS.map(spending), REPEATS, EMPTY, SILENCE]

const rulesFor = ({ progress }: Watched): readonly Rule[] => (progress.away ? AWAY_RULES : RULES)

/** What a run's limits demand now; undefined where it may go on. */
export function demandOf(run: Watched): Demand | undefined {
  const demand = demandBy(run)
  return demand?.action === "stop" ? { ...demand, reason: withFailing(demand.reason, run) } : demand
}

/** A run whose model answered with errors alone has ended by these as much as by its limit. */
function withFailing(reason: Reason, { progress: { failing }, now }: Watched): Reason {
  return failing ? { ...reason, text: `${reason.text} ${failingText(failing, now)}` } : reason
}

/** `Since 14:03 every request to its model has failed (attempt 12: Service Unavailable).` */
const failingText = ({ since, attempt, message }: Failing, now: number): string =>
  `Since ${moment(since, now)} every request to its model has failed (attempt ${attempt}: ${oneLine(message, MOST_ERROR_CHARS)}).`

function demandBy(run: Watched): Demand | undefined {
  const rules = rulesFor(run)
  const passed = rules.filter((rule) => isPassed(rule, run))
  const { lastWord, away } = run.progress
  if (lastWord && !away) return demandAfterWarning(run, lastWord, passed)
  if (passed[0]) return { action: "stop", reason: reasonOf(passed[0], run) }
  const near = rules.find((rule) => isNear(rule, run))
  return near && { action: "warn", reason: reasonOf(near, run) }
}

/**
 * A run that was asked for its last word is stopped when its time for that is over, or when a limit is passed and it is
 * not speaking: the step in which it speaks is let through. One that could not read the question yet, since it is in a
 * tool or waits before a question of its own, is interrupted instead, once.
 */
function demandAfterWarning(run: Watched, lastWord: LastWord, passed: readonly Rule[]): Demand | undefined {
  const other = passed.find(endsLastWord)
  if (other) return { action: "stop", reason: reasonOf(other, run) }
  const { state, againAt, reason } = lastWord
  const isOver = run.now >= lastWordEnds(run, lastWord)
  const isSpent = passed.some(({ byClock }) => !byClock)
  if (!isOver && !isSpent) return undefined
  if (state === "told" && againAt === undefined && isHeldUp(run.progress)) return { action: "interrupt", reason }
  const isComing = state === "speaking" || (state === "told" && againAt !== undefined)
  return isOver || !isComing ? { action: "stop", reason: reasonInTheEnd(run, reason) } : undefined
}

/** No last word is asked for near it, or none has more time than it leaves. */
const endsLastWord = ({ reserve, isWalls }: Rule): boolean => !reserve || isWalls === true

/** Why a run that was asked for its last word has ended: what it was near then, and what that came to. */
export const reasonInTheEnd = ({ task, progress, limits, spent }: Watched, reason: Reason): Reason =>
  atItsEnd(reason, limits, spent, { task, progress })

/** When a run that was asked for its last word has had its time for it. */
function lastWordEnds({ task, limits }: Watched, { at, againAt, reason }: LastWord): number {
  if (task.run.stillSince !== undefined) return Number.POSITIVE_INFINITY
  if (againAt !== undefined) return againAt + Math.min(limits.lastWord, MOST_OWN_TIME_MS)
  const { startedAt = at, timeout } = task.run
  const timeEnds = timeout > 0 ? startedAt + timeout + uncounted(task.run) : Number.POSITIVE_INFINITY
  return reason.code === "timeout" ? timeEnds : Math.min(timeEnds, at + limits.lastWord)
}

/**
 * When `demandOf`, or a question's own limit, could next say something else if nothing more is heard. `settled`: what was
 * passed by then is dealt with already, but for questions.
 */
export function dueAt(run: Watched, settled = Number.NEGATIVE_INFINITY): number {
  const { progress, limits } = run
  const { lastWord, asks, away } = progress
  const questions = away ? [] : asks.map((ask) => refusedAt(ask, limits.permissionTimeout, run.presence))
  const rules = rulesFor(run).flatMap((rule) => dueOf(rule, run) ?? [])
  const word = lastWord && !away ? [lastWordEnds(run, lastWord)] : []
  const coming = [...rules, ...word].filter((at) => at > settled)
  return Math.min(Number.POSITIVE_INFINITY, ...questions, ...coming)
}

function dueOf(rule: Rule, run: Watched): number | undefined {
  const gauge = rule.byClock ? rule.gauge(run) : undefined
  if (!gauge) return undefined
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

/** What is left when the last word comes; 0 while the agent is not running: it could not answer. */
const reserveOf = (rule: Rule, gauge: Gauge, run: Watched): number =>
  run.progress.held || run.progress.away ? 0 : (rule.reserve?.(gauge, run) ?? 0)

const leftOf = ({ used, allowed }: Gauge): number => allowed - used

const gaugeOf = (used: number, allowed: number): Gauge | undefined => (allowed > 0 ? { used, allowed } : undefined)

const reasonOf = (rule: Rule, run: Watched): Reason => ({
  code: rule.code,
  text: rule.text(rule.gauge(run) as Gauge, run),
})

/** It has begun to do something: before that it would have nothing to say. */
const hasWorked = ({ toolCalls, lastText, usage }: Progress): boolean =>
  toolCalls > 0 || lastText !== "" || usage.output > 0

/** In a tool, or before a question: it cannot read what it is told. */
const isHeldUp = ({ openCalls, pendingCalls, asks, held = false }: Progress): boolean =>
  !held && openCalls + pendingCalls + asks.length > 0

/** What counts as life although nothing is heard: a running tool, an open question, a retry, tasks of its own. */
const hasLife = (progress: Progress, ownTasks: boolean): boolean =>
  progress.openCalls > 0 || progress.asks.length > 0 || progress.retry !== undefined || ownTasks
