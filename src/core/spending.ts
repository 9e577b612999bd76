import { budget, dollars, SAME_USD, spentOf } from "../lib/money.ts"
import { count, grouped } from "../lib/text.ts"
import { billedTokens, NO_USAGE, type Progress, type Reason, type Task, type Usage } from "./task.ts"

/** The limits on what is spent; 0 turns one off. Tokens as `billedTokens` counts them, costs in US dollars. */
export type SpendingLimits = {
  readonly maxTokensPerTask: number
  readonly maxTokensPerSession: number
  readonly maxCostPerTask: number
  readonly maxCostPerSession: number
  readonly maxCostPerDay: number
  /** The board's purse, where the run is paid from it. */
  readonly purse?: PurseLimit
}

/** Money for all runs that a board's purse pays, and the time in which it may be spent. */
export type PurseLimit = { readonly max: number; readonly openedAt: number; readonly until: number }

/** What has been spent, as a run's limits see it: its task with those below it, its session, the project's last day. */
export type Spent = {
  readonly task: Usage
  readonly session: Usage
  readonly day: Usage
  /** Of the purse that pays it; `reserve`: what those at work may need for their last words. */
  readonly purse?: { readonly used: Usage; readonly reserve: number }
}

export const NOTHING_SPENT: Spent = Object.freeze({ task: NO_USAGE, session: NO_USAGE, day: NO_USAGE })

type Run = { readonly task: Task; readonly progress: Pick<Progress, "usage"> }

/** A limit on what is spent. */
export type Amount = {
  readonly code: "tokens" | "budget" | "purse"
  /** What sets it. */
  readonly source: string
  /** 0 where it is off; `task` is undefined before there is one. */
  readonly allowed: (limits: SpendingLimits, task?: Task) => number
  /** What counts for it; undefined without a run where it is a run's own, since a new one begins at nothing. */
  readonly used: (spent: Spent, run?: Run) => Usage | undefined
  /** What is kept for last words; absent for a tenth of what is allowed. */
  readonly reserve?: (spent: Spent) => number | undefined
  readonly unit: Unit
  /** Whose limit it is, and who spent. */
  readonly whose: string
  readonly who: string
  /** What may still be spent of it is for these. */
  readonly goesTo: string
}

type Unit = {
  readonly of: (usage: Usage) => number
  readonly told: (usage: Usage, allowed: number, source: string) => string
  readonly amount: (usage: Usage) => string
  /** So much of all of it. */
  readonly left: (left: number, allowed: number) => string
  readonly plain: (amount: number) => string
}

const TOKENS: Unit = {
  of: billedTokens,
  told: (usage, allowed, source) =>
    `used ${usage.atLeast ? "at least " : ""}${billedTokens(usage)} tokens, the ${source} allows ${allowed}`,
  amount: (usage) => `${usage.atLeast ? "at least " : ""}${billedTokens(usage)} tokens`,
  left: (left, allowed) =>
    left < allowed ? `${grouped(left)} of ${grouped(allowed)} tokens left` : `${grouped(allowed)} tokens`,
  plain: (tokens) => count(tokens, "token"),
}

const MONEY: Unit = {
  of: ({ cost }) => cost,
  told: ({ cost, atLeast }, allowed, source) => `spent ${spentOf(cost, allowed, atLeast)} (${source})`,
  amount: ({ cost, atLeast }) => dollars(cost, atLeast),
  // What rounds to all of it is all of it.
  left: (left, allowed) =>
    left < allowed && dollars(left) !== dollars(allowed)
      ? `${dollars(left)} of ${budget(allowed)} left`
      : budget(allowed),
  plain: (amount) => dollars(amount),
}

/** Narrow ones first: the reason names the nearest cause. */
export const AMOUNTS: readonly Amount[] = [
  {
    code: "tokens",
    source: "option maxTokensPerTask",
    allowed: (limits) => limits.maxTokensPerTask,
    used: (_spent, run) => run?.progress.usage,
    unit: TOKENS,
    whose: "its token limit",
    who: "it",
    goesTo: "this run",
  },
  {
    code: "budget",
    source: "argument max_cost",
    allowed: (_limits, task) => task?.run.budget?.max ?? 0,
    used: ({ task }, run) => run && without(task, run.task.run.budget?.before ?? 0),
    unit: MONEY,
    whose: "its budget",
    who: "it",
    goesTo: "this run (max_cost)",
  },
  {
    code: "budget",
    source: "option maxCostPerTask",
    allowed: (limits) => limits.maxCostPerTask,
    used: ({ task }) => task,
    unit: MONEY,
    whose: "its budget",
    who: "it",
    goesTo: "this task",
  },
  {
    code: "budget",
    source: "option maxCostPerSession",
    allowed: (limits) => limits.maxCostPerSession,
    used: ({ session }) => session,
    unit: MONEY,
    whose: "the session's budget",
    who: "the session's tasks",
    goesTo: "this session's tasks",
  },
  {
    code: "budget",
    source: "option maxTokensPerSession",
    allowed: (limits) => limits.maxTokensPerSession,
    used: ({ session }) => session,
    unit: TOKENS,
    whose: "the session's token limit",
    who: "the session's tasks",
    goesTo: "this session's tasks",
  },
  {
    code: "budget",
    source: "option maxCostPerDay",
    allowed: (limits) => limits.maxCostPerDay,
    used: ({ day }) => day,
    unit: MONEY,
    whose: "the day's budget",
    who: "the project's tasks of the last 24 hours",
    goesTo: "the project's tasks within 24 hours",
  },
  {
    code: "purse",
    source: "tasks_purse",
    allowed: ({ purse }) => purse?.max ?? 0,
    used: ({ purse }) => purse?.used,
    reserve: ({ purse }) => purse?.reserve,
    unit: MONEY,
    whose: "the board's purse",
    who: "the board's tasks",
    goesTo: "the board's tasks",
  },
]

const without = (usage: Usage, cost: number): Usage => ({ ...usage, cost: usage.cost - cost })

/** `the session's tasks spent $0.1012 of $0.10 (option maxCostPerSession)`. */
export const spentText = ({ who, unit, source }: Amount, usage: Usage, allowed: number): string =>
  `${who} ${unit.told(usage, allowed, source)}`

/** Part of a limit that is left when a run is asked for its last word: nothing new begins with it. */
const LEFT_FOR_LAST_WORD = 0.1

/** What is left of a limit when a run is asked for its last word. */
export const keptOf = ({ reserve }: Pick<Amount, "reserve">, allowed: number, spent: Spent): number =>
  Math.max(allowed * LEFT_FOR_LAST_WORD, reserve?.(spent) ?? 0)

/**
 * Why no run may begin: of a limit that it would come under so little is left, if anything, that it would be asked for
 * its last word at once. `spent` is what it would join, with its own task where that is resumed; undefined where it may
 * begin.
 */
export function refusalOf(limits: SpendingLimits, spent: Spent): string | undefined {
  for (const amount of AMOUNTS) {
    const allowed = amount.allowed(limits)
    const used = amount.used(spent)
    if (!used || allowed === 0) continue
    const left = allowed - amount.unit.of(used)
    if (left > keptOf(amount, allowed, spent) + SAME_USD) continue
    const text = spentText(amount, used, allowed)
    return left > SAME_USD ? `${text}, and what is left, ${amount.unit.plain(left)}, is too little to begin with` : text
  }
  return undefined
}

/** What a run that is about to begin may spend, by each limit that it comes under. */
export function allowanceOf(limits: SpendingLimits, spent: Spent, task: Task): readonly string[] {
  return AMOUNTS.flatMap((amount) => {
    const allowed = amount.allowed(limits, task)
    const used = amount.used(spent, { task, progress: { usage: NO_USAGE } })
    if (!used || allowed === 0) return []
    return `${amount.unit.left(Math.max(0, allowed - amount.unit.of(used)), allowed)} for ${amount.goesTo}`
  })
}

/** The reason that a limit gave for a last word, with what has been spent since. */
export function atItsEnd(reason: Reason, limits: SpendingLimits, spent: Spent, run: Run): Reason {
  const amount = AMOUNTS.find(({ source }) => reason.text.includes(source))
  const used = amount?.used(spent, run)
  if (!amount || !used || reason.text.includes(spentText(amount, used, amount.allowed(limits, run.task)))) return reason
  const told = `when it was asked for its last word, and ${amount.unit.amount(used)} by its end`
  return { ...reason, text: `${reason.text.replace(/\.$/, "")} ${told}.` }
}

/** True where a limit is on that several tasks share, or that counts a task's own tasks: what it needs is a bill. */
export const needsBill = (limits: SpendingLimits, task?: Task): boolean =>
  limits.maxCostPerTask + limits.maxCostPerSession + limits.maxTokensPerSession + limits.maxCostPerDay > 0 ||
  limits.purse !== undefined ||
  task?.run.budget !== undefined
