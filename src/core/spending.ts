import { budget, DAY_MS, dollars, HOUR_MS, SAME_USD, spentOf } from "../lib/format.ts"
import { count, formatInteger, oneLine } from "../lib/text.ts"
import { MOST_COMMAND_CHARS, quoted } from "./receipt.ts"
import {
  addFigures,
  addUsage,
  billedTokens,
  isActive,
  NO_FIGURES,
  NO_USAGE,
  type Progress,
  type Reason,
  type Task,
  type Usage,
} from "./task.ts"

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
  /** `most`: `at most ` where the usage is a lower bound. */
  readonly left: (left: number, allowed: number, most: string) => string
  readonly plain: (amount: number) => string
}

const TOKENS: Unit = {
  of: billedTokens,
  told: (usage, allowed, source) =>
    `used ${usage.atLeast ? "at least " : ""}${billedTokens(usage)} tokens, the ${source} allows ${allowed}`,
  amount: (usage) => `${usage.atLeast ? "at least " : ""}${billedTokens(usage)} tokens`,
  left: (left, allowed, most) =>
    left < allowed
      ? `${most}${formatInteger(left)} of ${formatInteger(allowed)} tokens left`
      : `${formatInteger(allowed)} tokens`,
  plain: (tokens) => count(tokens, "token"),
}

const MONEY: Unit = {
  of: ({ cost }) => cost,
  told: ({ cost, atLeast }, allowed, source) => `spent ${spentOf(cost, allowed, atLeast)} (${source})`,
  amount: ({ cost, atLeast }) => dollars(cost, atLeast),
  // An amount that rounds to the whole limit is shown as all of it.
  left: (left, allowed, most) =>
    left < allowed && dollars(left) !== dollars(allowed)
      ? `${most}${dollars(left)} of ${budget(allowed)} left`
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
    source: "argument max_cost, or option agents",
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
 * which the run would add; in a resume it includes the run's own task. `group`: the group at work of which the run would
 * be a member.
 */
export function spendingRefusal(limits: SpendingLimits, spent: Spent, group?: Task): string | undefined {
  for (const amount of spendingRules(limits)) {
    const allowed = amount.allowed(limits, group)
    const used = amount.used(spent, group && { task: group, progress: { usage: NO_USAGE } })
    if (!used || allowed === 0) continue
    const left = allowed - amount.unit.of(used)
    if (left > lastWordReserve(allowed, amount.reserve?.(spent)) + SAME_USD) continue
    const text = spentText(amount, used, allowed)
    if (left <= SAME_USD) return text
    return `${text}, and what is left, ${atMost(used)}${amount.unit.plain(left)}, is too little to begin with`
  }
  return undefined
}

/** Names the limit that counts all runs of a task, so that only a new task may begin. */
export const TASKS_LIMIT = /\boption maxCostPerTask\b/

/** Names the limit that counts one run. */
export const RUNS_LIMIT = "(argument max_cost"

/** Argument of a resume after a run that this reason has ended: no run has the limit of the run before. */
export const limitAgain = ({ text }: Reason): string => (text.includes(RUNS_LIMIT) ? ", max_cost" : "")

/** Before what is left of a limit, where more may have been used than is known. */
const atMost = ({ atLeast }: Usage): string => (atLeast ? "at most " : "")

/** Allowances of a run about to begin, one line for each limit. */
export function allowanceOf(limits: SpendingLimits, spent: Spent, task: Task): readonly string[] {
  return spendingRules(limits).flatMap((amount) => {
    const allowed = amount.allowed(limits, task)
    const used = amount.used(spent, { task, progress: { usage: NO_USAGE } })
    if (!used || allowed === 0) return []
    // A group makes no requests of its own, so its members have this limit each.
    const goesTo = task.group && amount.code === "tokens" ? "each" : amount.goesTo
    const left = Math.max(0, allowed - amount.unit.of(used))
    return `${amount.unit.left(left, allowed, left > 0 ? atMost(used) : "")} for ${goesTo}`
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
            : `When you have ended your turn, ${named} is run here: your work counts as done only when that succeeds, and you may be asked again when it does not.`,
        ]),
    ...(merged ? [check === undefined ? `When you have completed, ${merged}.` : `Then ${merged}.`] : []),
    ...(allowed ? [`You may spend ${budget(allowed.max)}; near that you are asked for your last word.`] : []),
  ].join(" ")
}

/** Cost of tasks, for limits that several tasks share. The cost of a task also counts for every task above it. */
export type Bill = {
  /** Usage of all runs of a task and of the tasks below it. */
  task(id: string): Usage
  /** Usage of all tasks that a session launched, and of the tasks below them. */
  session(sessionID: string): Usage
  /** The cost of all tasks in the last 24 hours; tokens are not counted. */
  day(): Usage
}

/** Usage of a task's own session as far as it is known now: the last run, and all runs before it. */
export type OwnUsage = { readonly lastRun: Usage; readonly before: Usage }

/** Tasks that a bill counts, each once. Only `all` may take long. */
export type BilledTasks = {
  get(id: string): Task | undefined
  /** Tasks that this session launched. */
  ofParent(sessionID: string): readonly Task[]
  all(): readonly Task[]
}

/**
 * Makes a bill. It reads a task when it first counts it, so a session's bill reads no other session's tasks.
 * For the cost of the day, a run counts until 24 hours after its end.
 */
export function billOf(tasks: BilledTasks, summaryOf: (task: Task) => OwnUsage, now: number): Bill {
  const usages = new Map<string, OwnUsage>()
  // `summaryOf` is called only once for each task: its result changes when a caller ends runs because of this bill.
  const usageOf = (task: Task): OwnUsage => {
    const usage = usages.get(task.id) ?? summaryOf(task)
    usages.set(task.id, usage)
    return usage
  }
  const session = (sessionID: string): Usage => tasks.ofParent(sessionID).map(whole).reduce(addUsage, NO_USAGE)
  const whole = (task: Task): Usage => {
    const { lastRun, before } = usageOf(task)
    return addUsage(addUsage(lastRun, before), session(task.sessionID))
  }
  return {
    task: (id) => {
      const task = tasks.get(id)
      return task ? whole(task) : NO_USAGE
    },
    session,
    day: () => tasks.all().reduce((sum, task) => addUsage(sum, costOfDay(task, usageOf(task).lastRun, now)), NO_USAGE),
  }
}

/** Cost of the task's own runs that had not ended 24 hours ago; the tasks that it launched are not included. */
export function costOfDay(task: Task, { cost: latest, atLeast }: Usage, now: number): Usage {
  const { run } = task
  const since = now - DAY_MS
  const counts = isActive(task) || (run.endedAt ?? 0) > since
  const earlier = (run.recent ?? []).filter(({ endedAt }) => endedAt > since)
  const cost = earlier.reduce((total, each) => total + each.cost, counts ? latest : 0)
  const isLess = (counts && atLeast) || (earlier.length > 0 && task.earlier.usage.atLeast)
  return { ...NO_USAGE, cost, ...(isLess && { atLeast: true }) }
}

type Recent = NonNullable<Task["run"]["recent"]>

/** Costs of the runs that ended within the last day. The task keeps them when a resume replaces its run. */
export function recentRuns({ run, outcome }: Task, now: number): Recent | undefined {
  const { endedAt = now, recent = [] } = run
  const { cost, atLeast } = outcome?.usage ?? NO_USAGE
  const ran = cost > 0 || atLeast ? [{ endedAt, cost }] : []
  const kept = [...recent, ...ran].filter((each) => each.endedAt > now - DAY_MS)
  return kept.length > 0 ? kept : undefined
}

const hourOf = (at: number): number => Math.floor(at / HOUR_MS)

/** Adds a cost, to the last stored one where both are of the same hour. */
export function alsoRecent(recent: Recent = [], { endedAt, cost }: Recent[number]): Recent {
  const last = recent.at(-1)
  if (last && hourOf(last.endedAt) === hourOf(endedAt))
    return [...recent.slice(0, -1), { endedAt, cost: last.cost + cost }]
  return [...recent, { endedAt, cost }].filter((each) => each.endedAt > endedAt - DAY_MS)
}

/**
 * A forgotten task reduced to its cost, so that shared limits still count this cost. Undefined where the task cost
 * nothing; a group costs nothing itself, but what its members cost is found through it.
 */
export function remainsOf(task: Task): Task | undefined {
  const { usage } = addFigures(task.earlier, task.outcome ?? NO_FIGURES)
  if (!task.group && usage.cost === 0 && billedTokens(usage) === 0) return undefined
  const { id, sessionID, parentID, parentMessageID, agent, model, member, depth, createdAt, earlier, status } = task
  const { run, outcome } = task
  const { generation, promptID, startedAt, endedAt, recent } = run
  const whose = { id, sessionID, parentID, parentMessageID, agent, model, member, depth, createdAt, status }
  // Each field is named, so that no field added later keeps what a user wanted to forget.
  return {
    ...whose,
    description: "",
    fingerprint: "",
    batch: `auto:${id}`,
    delivery: { state: "none" },
    forgotten: true,
    earlier,
    run: { generation, promptID, createdAt: run.createdAt, startedAt, endedAt, timeout: 0, recent },
    outcome: outcome && { ...NO_WORK, toolCalls: outcome.toolCalls, usage: outcome.usage },
  }
}

const NO_WORK = { recentTools: [], openTodos: 0, filesChanged: [], moreFiles: 0 } as const

/** Returns the topmost session above a task. All tasks below that session share the session's budget. */
export function payer(parentID: string, taskIn: (sessionID: string) => Task | undefined): string {
  let sessionID = parentID
  for (const seen = new Set<string>(); !seen.has(sessionID); ) {
    seen.add(sessionID)
    // A task that nobody launched has no parent: its own session pays.
    sessionID = taskIn(sessionID)?.parentID || sessionID
  }
  return sessionID
}
