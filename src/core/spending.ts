import { budget, dollars, SAME_USD, spentOf } from "../lib/format.ts"
import { count, formatInteger, oneLine } from "../lib/text.ts"
import { MOST_COMMAND_CHARS, quoted } from "./receipt.ts"
import { billedTokens, NO_USAGE, type Progress, type Reason, type Task, type Usage } from "./task.ts"

/** Limits on spending; 0 turns one off. Tokens as counted by `billedTokens`, costs in US dollars. */
export type SpendingLimits = {
  readonly maxTokensPerTask: number
  readonly maxTokensPerSession: number
  readonly maxCostPerTask: number
  readonly maxCostPerSession: number
  readonly maxCostPerDay: number
  readonly purse?: PurseLimit
}

/** Shared budget, and the time in which it may be spent. `words`: how its feature names it in texts. */
export type PurseLimit = {
  readonly max: number
  readonly openedAt: number
  readonly until: number
  readonly words: Pick<SpendingRule, "whose" | "who" | "source">
}

/** Spending as a run's limits see it: its task with children, its session, the project's last day. */
export type Spent = {
  readonly task: Usage
  readonly session: Usage
  readonly day: Usage
  /** The purse that pays the run, with its usage. `reserve`: amount kept for the last words of active runs. */
  readonly purse?: { readonly used: Usage; readonly reserve: number }
}

export const NOTHING_SPENT: Spent = Object.freeze({ task: NO_USAGE, session: NO_USAGE, day: NO_USAGE })

type Run = { readonly task: Task; readonly progress: Pick<Progress, "usage"> }

/** A limit on spending. */
export type SpendingRule = {
  readonly code: "tokens" | "budget" | "purse"
  /** Option or argument that sets the limit. */
  readonly source: string
  /** Amount that the limit allows; 0 for no limit. `task` is undefined before the task exists. */
  readonly allowed: (limits: SpendingLimits, task?: Task) => number
  /** Usage that counts against the limit; undefined for a run's own limit before the run exists. */
  readonly used: (spent: Spent, run?: Run) => Usage | undefined
  /** Amount kept for last words; absent for a tenth of the limit. */
  readonly reserve?: (spent: Spent) => number | undefined
  readonly unit: Unit
  /** Words for texts. `whose`: for example `the session's`; `who`: the subject that spent. */
  readonly whose: string
  readonly who: string
  /** Purpose of the reserve, in texts. */
  readonly goesTo: string
}

type Unit = {
  readonly of: (usage: Usage) => number
  readonly told: (usage: Usage, allowed: number, source: string) => string
  readonly amount: (usage: Usage) => string
  readonly left: (left: number, allowed: number) => string
  readonly plain: (amount: number) => string
}

const TOKENS: Unit = {
  of: billedTokens,
  told: (usage, allowed, source) =>
    `used ${usage.atLeast ? "at least " : ""}${billedTokens(usage)} tokens, the ${source} allows ${allowed}`,
  amount: (usage) => `${usage.atLeast ? "at least " : ""}${billedTokens(usage)} tokens`,
  left: (left, allowed) =>
    left < allowed
      ? `${formatInteger(left)} of ${formatInteger(allowed)} tokens left`
      : `${formatInteger(allowed)} tokens`,
  plain: (tokens) => count(tokens, "token"),
}

const MONEY: Unit = {
  of: ({ cost }) => cost,
  told: ({ cost, atLeast }, allowed, source) => `spent ${spentOf(cost, allowed, atLeast)} (${source})`,
  amount: ({ cost, atLeast }) => dollars(cost, atLeast),
  // An amount that rounds to the whole limit is shown as all of it.
  left: (left, allowed) =>
    left < allowed && dollars(left) !== dollars(allowed)
      ? `${dollars(left)} of ${budget(allowed)} left`
      : budget(allowed),
  plain: (amount) => dollars(amount),
}

const RULES: readonly SpendingRule[] = [
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
]

const purseRule = ({ max, words }: PurseLimit): SpendingRule => ({
  code: "purse",
  allowed: () => max,
  used: ({ purse }) => purse?.used,
  reserve: ({ purse }) => purse?.reserve,
  unit: MONEY,
  ...words,
  goesTo: words.who,
})

/** Narrow limits come first: the reason of a refusal names the first limit that leaves too little. */
export const spendingRules = ({ purse }: Pick<SpendingLimits, "purse">): readonly SpendingRule[] =>
  purse ? [...RULES, purseRule(purse)] : RULES

const without = (usage: Usage, cost: number): Usage => ({ ...usage, cost: usage.cost - cost })

/** Example: `the session's tasks spent $0.1012 of $0.10 (option maxCostPerSession)`. */
export const spentText = ({ who, unit, source }: SpendingRule, usage: Usage, allowed: number): string =>
  `${who} ${unit.told(usage, allowed, source)}`

/** Share of a limit that is kept for last words. No run begins once only this share is left. */
const LEFT_FOR_LAST_WORD = 0.1

/** Amount of a limit that is kept for last words. `costs`: what the last words of active runs may cost, if known. */
export const lastWordReserve = (allowed: number, costs = 0): number => Math.max(allowed * LEFT_FOR_LAST_WORD, costs)

/**
 * Why no run may begin: within the reserve, the run would be asked for its last word at once. `spent`: spending to
 * which the run would add; in a resume it includes the run's own task.
 */
export function spendingRefusal(limits: SpendingLimits, spent: Spent): string | undefined {
  for (const amount of spendingRules(limits)) {
    const allowed = amount.allowed(limits)
    const used = amount.used(spent)
    if (!used || allowed === 0) continue
    const left = allowed - amount.unit.of(used)
    if (left > lastWordReserve(allowed, amount.reserve?.(spent)) + SAME_USD) continue
    const text = spentText(amount, used, allowed)
    return left > SAME_USD ? `${text}, and what is left, ${amount.unit.plain(left)}, is too little to begin with` : text
  }
  return undefined
}

/** Allowances of a run about to begin, one line for each limit. */
export function allowanceOf(limits: SpendingLimits, spent: Spent, task: Task): readonly string[] {
  return spendingRules(limits).flatMap((amount) => {
    const allowed = amount.allowed(limits, task)
    const used = amount.used(spent, { task, progress: { usage: NO_USAGE } })
    if (!used || allowed === 0) return []
    return `${amount.unit.left(Math.max(0, allowed - amount.unit.of(used)), allowed)} for ${amount.goesTo}`
  })
}

/** The reason for which the last word was asked, with spending updated. */
export function withFinalSpending(reason: Reason, limits: SpendingLimits, spent: Spent, run: Run): Reason {
  const amount = spendingRules(limits).find(({ source }) => reason.text.includes(source))
  const used = amount?.used(spent, run)
  if (!amount || !used || reason.text.includes(spentText(amount, used, amount.allowed(limits, run.task)))) return reason
  const told = `when it was asked for its last word, and ${amount.unit.amount(used)} by its end`
  return { ...reason, text: `${reason.text.replace(/\.$/, "")} ${told}.` }
}

/** True where a limit needs the cost of other tasks. */
export const needsBill = (limits: SpendingLimits, task?: Task): boolean =>
  limits.maxCostPerTask + limits.maxCostPerSession + limits.maxTokensPerSession + limits.maxCostPerDay > 0 ||
  limits.purse !== undefined ||
  task?.run.budget !== undefined

/**
 * Prompt text about how the run is judged and what it may cost; empty for nothing. `isLast`: the agent is not asked
 * again after a failed check.
 */
export function constraintsOf({ place, run }: Pick<Task, "place" | "run">, isLast: boolean): string {
  const { check, budget: allowed } = run
  const merged = place?.merge ? "what you changed is merged into the files of the agent that you work for" : undefined
  const named = quoted(oneLine(check ?? "", MOST_COMMAND_CHARS))
  return [
    ...(check === undefined
      ? []
      : [
          isLast
            ? `When you have ended your turn, ${named} is run here, once: your work passes only when that succeeds, and you are not asked again.`
            : `When you have ended your turn, ${named} is run here: your work counts as done only when that succeeds, and you are asked again when it does not.`,
        ]),
    ...(merged ? [check === undefined ? `When you have completed, ${merged}.` : `Then ${merged}.`] : []),
    ...(allowed ? [`You may spend ${budget(allowed.max)}; near that you are asked for your last word.`] : []),
  ].join(" ")
}
