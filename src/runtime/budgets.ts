import { CallError } from "../core/errors.ts"
import { type Block, launchDelay } from "../core/limits.ts"
import type { TaskRecord } from "../core/ports.ts"
import type { ActiveRun } from "../core/run/active-run.ts"
import {
  allowanceOf,
  type Bill,
  billOf,
  NOTHING_SPENT,
  needsBill,
  type OwnUsage,
  type PurseLimit,
  payer,
  remainsOf,
  type SpendingLimits,
  type Spent,
  spendingRefusal,
  TASKS_LIMIT,
} from "../core/spending.ts"
import {
  addUsage,
  isActive,
  isPaused,
  isQueued,
  NO_FIGURES,
  NO_USAGE,
  NOBODY,
  type Run,
  type Task,
  type Usage,
  usageSince,
} from "../core/task.ts"
import { tooLateFor } from "../core/watchdog.ts"
import { DAY_MS, MINUTE_MS } from "../lib/format.ts"
import type { Services } from "./services.ts"

/** A purse with the sessions whose tasks it pays for, and each session's usage before the purse was opened. */
export type LedgerPurse = PurseLimit & { readonly threads: Readonly<Record<string, Usage>> }

type ForeignTask = Pick<TaskRecord, "task" | "cost">

/**
 * Time for which the costs of other processes stay valid, in ms. They are not read more often, because OpenCode lists a
 * day's sessions each time.
 */
const KNOWN_MS = 30_000

/**
 * Adds up the cost of tasks for shared limits. Other processes' tasks count by their records, and forgotten tasks count
 * because they were paid, too.
 */
export class CostLedger {
  readonly #services: Services
  /** Tasks of other processes. */
  #foreignTasks: ReadonlyMap<string, ForeignTask> = new Map()
  #foreignLookedAt = Number.NEGATIVE_INFINITY
  #lookingAtForeign: Promise<void> = Promise.resolve()
  #purse: LedgerPurse | undefined
  /** Bill reused while several runs are checked at once. */
  #cachedBill: Bill | undefined

  constructor(services: Services) {
    this.#services = services
  }

  get isShared(): boolean {
    return this.#purse !== undefined || needsBill(this.#services.options)
  }

  /** Sets the purse that pays; undefined for none. */
  usePurse(purse: LedgerPurse | undefined): void {
    this.#purse = purse
  }

  /** Purse of the thread that the task works in or was launched from. */
  purseOf({ sessionID, parentID }: Pick<Task, "sessionID" | "parentID">): PurseLimit | undefined {
    return this.#paid(parentID === NOBODY ? sessionID : parentID)
  }

  /** Limits on the session's next run; `taskID` is set for a resume. */
  limitsIn(sessionID: string, taskID?: string): SpendingLimits {
    const { options, store } = this.#services
    const own = taskID === undefined ? undefined : store.get(taskID)
    const purse = own ? this.purseOf(own) : this.#paid(sessionID)
    return purse ? { ...options, purse } : options
  }

  /** Usage since the purse was opened, and the reserve for last words of active runs. */
  ofPurse(): NonNullable<Spent["purse"]> {
    return this.#ofPurse(this.#cachedBill ?? this.#bill())
  }

  /** True where a shared limit is used so far that no run may begin and active runs must say their last word. */
  isNear(task: Task): boolean {
    return this.isShared && spendingRefusal(this.limitsIn(task.parentID, task.id), this.spentBy(task)) !== undefined
  }

  /** Usage that counts for a run's limits. */
  spentBy({ parentID, id }: Task): Spent {
    return this.#spent(this.#cachedBill ?? this.#bill(), parentID, id)
  }

  /** Runs `look`. All checks in it use one shared bill, which is computed once. */
  once(look: () => void): void {
    this.#cachedBill ??= this.isShared ? this.#bill() : undefined
    try {
      look()
    } finally {
      this.#cachedBill = undefined
    }
  }

  /**
   * Returns the usage that a new run of a session would add to; the task is given for a resume. The usage that sessions
   * share is computed once, now.
   */
  spentBefore(): (sessionID: string, taskID?: string) => Spent {
    if (!this.isShared) return () => NOTHING_SPENT
    const bill = this.#bill()
    const shared = this.#shared(bill)
    return (sessionID, taskID) => this.#spent(bill, sessionID, taskID, shared)
  }

  /** Usage of all tasks that work in this session, with their descendants. Forgotten tasks are included. */
  ofSession(sessionID: string): Usage {
    return this.#ofSession(this.#cachedBill ?? this.#bill(), sessionID)
  }

  /** Usage of a task and its descendants. */
  ofTask(taskID: string): Usage {
    return this.#bill().task(taskID)
  }

  /**
   * Keeps the cost of a task that is cleared. Returns what to store in place of the task's record; undefined for
   * nothing.
   */
  keep(task: Task): Task | undefined {
    const { store } = this.#services
    const parentState = store.parentState(task.parentID)
    // If the parent is a task, its own budget still includes the cost of this child.
    if (this.isShared || store.bySession(task.parentID))
      parentState.forgotten = [...parentState.forgotten.filter(({ sessionID }) => sessionID !== task.sessionID), task]
    return this.isShared ? remainsOf(task) : undefined
  }

  /**
   * Reads again what other processes' tasks cost, where a daily limit needs it and the known costs are too old. Resolves
   * when they are recent enough. Never rejects.
   */
  lookAtForeign(): Promise<void> {
    const { options, clock } = this.#services
    if (options.maxCostPerDay === 0) return Promise.resolve()
    const now = clock.now()
    if (Math.abs(now - this.#foreignLookedAt) >= KNOWN_MS) {
      this.#foreignLookedAt = now
      this.#lookingAtForeign = this.#readForeign(now)
    }
    return this.#lookingAtForeign
  }

  async #readForeign(now: number): Promise<void> {
    const { opencode, store } = this.#services
    try {
      const records = await opencode.recordsSince(now - DAY_MS, "project")
      const others = records.filter(({ task }) => !store.get(task.id) || store.isForeign(task.id))
      this.#foreignTasks = new Map(others.map(({ task, cost }) => [task.id, { task, cost: isActive(task) ? cost : 0 }]))
    } catch (error) {
      opencode.log("warn", "could not read what other tasks have cost", { error: String(error) })
    }
  }

  #spent(bill: Bill, sessionID: string, taskID: string | undefined, shared = this.#shared(bill)): Spent {
    const above = payer(sessionID, (id) => this.#services.store.bySession(id))
    // Tasks that nobody launched share no session, so no session's usage counts for them.
    const session = above === NOBODY ? NO_USAGE : bill.session(above)
    return { task: taskID ? bill.task(taskID) : NO_USAGE, session, ...shared }
  }

  /** Usage that is the same for all runs. */
  #shared(bill: Bill): Pick<Spent, "day" | "purse"> {
    // Without a daily limit, the day's usage is not needed.
    const day = this.#services.options.maxCostPerDay > 0 ? addUsage(bill.day(), this.#unverified()) : NO_USAGE
    return this.#purse ? { day, purse: this.#ofPurse(bill) } : { day }
  }

  #paid(sessionID: string): PurseLimit | undefined {
    const purse = this.#purse
    if (!purse) return undefined
    const thread = payer(sessionID, (id) => this.#services.store.bySession(id))
    return Object.hasOwn(purse.threads, thread) ? purse : undefined
  }

  #ofPurse(bill: Bill): NonNullable<Spent["purse"]> {
    const { store } = this.#services
    const { threads = {} } = this.#purse ?? {}
    const used = Object.entries(threads).map(([sessionID, before]) =>
      usageSince(this.#ofSession(bill, sessionID), before),
    )
    const paid = store.active().filter((task) => !isQueued(task) && !isPaused(task) && this.purseOf(task))
    const reserve = paid.reduce((sum, { id }) => sum + costliestStep(store.run(id)), 0)
    return { used: used.reduce(addUsage, NO_USAGE), reserve }
  }

  #ofSession(bill: Bill, sessionID: string): Usage {
    const task = this.#services.store.latestIn(sessionID)
    return task ? bill.task(task.id) : bill.session(sessionID)
  }

  #bill(): Bill {
    const { store, clock } = this.#services
    const foreign = [...this.#foreignTasks.values()].map(({ task }) => task)
    // What a cleared task cost counts with the session's later task, if this process has one.
    const isLatest = ({ id, sessionID }: Task) => (store.bySession(sessionID)?.id ?? id) === id
    const others = [...foreign, ...store.forgotten()].filter(isLatest)
    const byID = new Map(others.flatMap((task) => (store.get(task.id) ? [] : [[task.id, task] as const])))
    const byParent = new Map<string, Task[]>()
    for (const task of byID.values()) {
      const siblings = byParent.get(task.parentID)
      if (siblings) siblings.push(task)
      else byParent.set(task.parentID, [task])
    }
    const tasks = {
      get: (id: string) => store.get(id) ?? byID.get(id),
      ofParent: (sessionID: string) => [...(byParent.get(sessionID) ?? []), ...store.ofParent(sessionID)],
      all: () => [...byID.values(), ...store.all().filter(isLatest)],
    }
    return billOf(tasks, (task) => this.#summaryOf(task), clock.now())
  }

  /**
   * Cost of the last day's sessions with unverified records. If they did not count, losing the key would reset the
   * daily limit.
   */
  #unverified(): Usage {
    const { opencode, store, clock } = this.#services
    const since = clock.now() - DAY_MS
    const others = opencode.unverified().filter(({ sessionID }) => !store.bySession(sessionID))
    const cost = others.reduce((sum, each) => (each.changedAt > since ? sum + each.cost : sum), 0)
    return { ...NO_USAGE, cost }
  }

  #summaryOf(task: Task): OwnUsage {
    const { usage } = (isActive(task) ? this.#services.store.run(task.id)?.observed : task.outcome) ?? NO_FIGURES
    const { cost = 0 } = this.#foreignTasks.get(task.id) ?? {}
    // A record lacks what was spent since it was written: the cost of the sessions has it.
    const lastRun = isActive(task) ? { ...usage, cost: Math.max(usage.cost, cost - task.earlier.usage.cost) } : usage
    return { lastRun, before: task.earlier.usage }
  }
}

const costliestStep = (run: ActiveRun | undefined): number =>
  Math.max(0, ...[...(run?.observed.answers.values() ?? [])].map(({ usage }) => usage?.cost ?? 0))

/** Checks the limits on new runs: cost, tokens, and rate of launches. */
export class Allowance {
  readonly #services: Services
  readonly #ledger: CostLedger

  constructor(services: Services, ledger: CostLedger) {
    this.#services = services
    this.#ledger = ledger
  }

  /** Throws a `CallError` where a limit on the new run is used up. */
  refuseSpent(sessionID: string, taskID?: string): void {
    const why = this.refusal(sessionID, taskID)
    if (why === undefined) return
    const isGroup = this.#services.store.get(taskID ?? "")?.group !== undefined
    const next =
      TASKS_LIMIT.test(why) && !isGroup
        ? "Launch a new task, or tell the user."
        : "Only the user can raise it: do the rest yourself, or tell them."
    throw new CallError(`Nothing was launched: ${why}. ${next}`)
  }

  /** Returns why no run may begin in the session; undefined where a run may begin. */
  refusal(sessionID: string, taskID?: string): string | undefined {
    return this.refusals()(sessionID, taskID)
  }

  /** Like `refusal`, for many sessions at the same moment. */
  refusals(): Allowance["refusal"] {
    const spentBefore = this.#ledger.spentBefore()
    return (sessionID, taskID) =>
      this.#refusal(this.#ledger.limitsIn(sessionID, taskID), spentBefore(sessionID, taskID))
  }

  /** Returns why no further member of a group at work may begin; undefined where a member may begin. */
  refusalIn(group: Task): string | undefined {
    const limits = this.#ledger.limitsIn(group.parentID, group.id)
    return this.#refusal(limits, this.#spentBy(group, limits), group)
  }

  /** Returns a block that ends a run without work when its turn has come, if other runs have spent the budget meanwhile. */
  blocks(task: Task): Block | undefined {
    const why = this.refusal(task.parentID, task.id)
    if (why === undefined) return undefined
    return { by: "budget", ends: { type: "failed", reason: { code: "budget", text: `It never began: ${why}.` } } }
  }

  of(task: Task): readonly string[] {
    const limits = this.#ledger.limitsIn(task.parentID, task.id)
    return allowanceOf(limits, this.#spentBy(task, limits), task)
  }

  #spentBy(task: Task, limits: SpendingLimits): Spent {
    return needsBill(limits, task) ? this.#ledger.spentBy(task) : NOTHING_SPENT
  }

  #refusal(limits: SpendingLimits, spent: Spent, group?: Task): string | undefined {
    const { clock, options } = this.#services
    const late = tooLateFor({ ...limits, lastWord: options.lastWord }, clock.now())
    return late ?? spendingRefusal(limits, spent, group)
  }

  /** Budget of a run with the limit `max`; undefined without a limit, or with 0. */
  budget(max: number | undefined, taskID: string): Run["budget"] {
    return !max ? undefined : { max, before: this.#ledger.ofTask(taskID).cost }
  }

  /** Counts a launch. Throws where the session has launched too many tasks lately. */
  countLaunch(sessionID: string): void {
    const now = this.#services.clock.now()
    const { maxLaunchesPerMinute } = this.#services.options
    const parentState = this.#services.store.parentState(sessionID)
    const delay = launchDelay(parentState.launches, maxLaunchesPerMinute, now)
    if (delay > 0)
      throw new CallError(
        `Too many launches: the option maxLaunchesPerMinute allows ${maxLaunchesPerMinute} a minute. Try again in ${Math.ceil(delay / 1000)} s.`,
      )
    parentState.launches = [...parentState.launches.filter((at) => at > now - MINUTE_MS), now]
  }
}
