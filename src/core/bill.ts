import { DAY_MS, HOUR_MS } from "../lib/time.ts"
import { addFigures, addUsage, billedTokens, isActive, NO_FIGURES, NO_USAGE, type Task, type Usage } from "./task.ts"

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

/** Makes the bill of the given tasks. For the cost of the day, a run counts until 24 hours after its end. */
export function billOf(tasks: readonly Task[], summaryOf: (task: Task) => OwnUsage, now: number): Bill {
  const byID = new Map(tasks.map((task) => [task.id, task]))
  // `summaryOf` is called only once for each task: its result changes when a caller ends runs because of this bill.
  const usages = new Map(tasks.map((task) => [task, summaryOf(task)]))
  const byParent = new Map<string, Task[]>()
  for (const task of tasks) {
    const siblings = byParent.get(task.parentID)
    if (siblings) siblings.push(task)
    else byParent.set(task.parentID, [task])
  }
  const session = (sessionID: string): Usage => {
    const below = byParent.get(sessionID)
    return below ? below.map(whole).reduce(addUsage, NO_USAGE) : NO_USAGE
  }
  const whole = (task: Task): Usage => {
    const { lastRun, before } = usages.get(task) as OwnUsage
    const own = addUsage(lastRun, before)
    return byParent.has(task.sessionID) ? addUsage(own, session(task.sessionID)) : own
  }
  return {
    task: (id) => {
      const task = byID.get(id)
      return task ? whole(task) : NO_USAGE
    },
    session,
    day: () => [...usages].map(([task, { lastRun }]) => costOfDay(task, lastRun, now)).reduce(addUsage, NO_USAGE),
  }
}

/** Cost of the task's own runs that had not ended 24 hours ago; the tasks that it launched are not included. */
export function costOfDay(task: Task, { cost: latest, atLeast }: Usage, now: number): Usage {
  const { run } = task
  const since = now - DAY_MS
  const counts = isActive(task) || (run.endedAt ?? 0) > since
  const earlier = (run.recent ?? []).filter(({ endedAt }) => endedAt > since)
  const cost = earlier.reduce((total, each) => total + each.cost, counts ? latest : 0)
  return { ...NO_USAGE, cost, ...(counts && atLeast && { atLeast }) }
}

type Recent = NonNullable<Task["run"]["recent"]>

/** Costs of the runs that ended within the last day. The task keeps them when a resume replaces its run. */
export function recentRuns({ run, outcome }: Task, now: number): Recent | undefined {
  const { endedAt = now, recent = [] } = run
  const { cost } = outcome?.usage ?? NO_USAGE
  const kept = [...recent, { endedAt, cost }].filter((each) => each.cost > 0 && each.endedAt > now - DAY_MS)
  return kept.length > 0 ? kept : undefined
}

/** A new cost is added to the last stored cost if it follows within this time, in ms. */
const TOGETHER_MS = HOUR_MS

export function alsoRecent(recent: Recent = [], cost: Recent[number]): Recent {
  const last = recent.at(-1)
  if (!last || cost.endedAt - last.endedAt > TOGETHER_MS)
    return [...recent, cost].filter(({ endedAt }) => endedAt > cost.endedAt - DAY_MS)
  return [...recent.slice(0, -1), { endedAt: cost.endedAt, cost: last.cost + cost.cost }]
}

/**
 * A forgotten task reduced to its cost, so that shared limits still count this cost. Undefined where the task cost
 * nothing.
 */
export function remainsOf(task: Task): Task | undefined {
  const { usage } = addFigures(task.earlier, task.outcome ?? NO_FIGURES)
  if (usage.cost === 0 && billedTokens(usage) === 0) return undefined
  const { outcome, retrievedAt: _retrieved, fork: _fork, place: _place, ...rest } = task
  return {
    ...rest,
    description: "",
    fingerprint: "",
    delivery: { state: "none" },
    outcome: outcome && { ...outcome, ...NO_WORK },
    forgotten: true,
  }
}

const NO_WORK = {
  reason: undefined,
  note: undefined,
  recentTools: [],
  filesChanged: [],
  moreFiles: 0,
  meanwhile: undefined,
  unanswered: undefined,
  receipt: undefined,
  work: undefined,
} as const

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
