import { type Account, type Bill, billOf, DAY_MS, payer, remainsOf } from "../../core/bill.ts"
import type { TaskRecord } from "../../core/ports.ts"
import type { ActiveRun } from "../../core/run/active-run.ts"
import {
  NOTHING_SPENT,
  needsBill,
  type PurseLimit,
  refusalOf,
  type SpendingLimits,
  type Spent,
} from "../../core/spending.ts"
import {
  addUsage,
  isActive,
  isPaused,
  isQueued,
  lessUsage,
  NO_FIGURES,
  NO_USAGE,
  NOBODY,
  type Task,
  type Usage,
} from "../../core/task.ts"
import type { Parts } from "../parts.ts"

/** A purse, with the sessions whose tasks it pays, and what each had taken before. */
export type Purse = PurseLimit & { readonly threads: Readonly<Record<string, Usage>> }

type Elsewhere = { readonly task: Task; readonly cost?: number }

/**
 * What tasks have cost, for the limits that several of them share: those of this process as they stand, those of others
 * as their records say, and those that were forgotten here, which are paid for all the same.
 */
export class Ledger {
  readonly #parts: Parts
  /** Other processes' tasks, and what their running ones have cost. */
  #elsewhere: readonly Elsewhere[] = []
  #purse: Purse | undefined
  /** The bill of this moment, while several runs are looked at. */
  #shown: Bill | undefined

  constructor(parts: Parts) {
    this.#parts = parts
  }

  /** Whether a limit is on that several tasks share. */
  get isShared(): boolean {
    return this.#purse !== undefined || needsBill(this.#parts.options)
  }

  /** From now on these sessions are paid from a purse; undefined where there is none any more. */
  usePurse(purse: Purse | undefined): void {
    this.#purse = purse
  }

  /** The purse that pays a task: that of the thread which it works in, or which launched it. */
  purseOf({ sessionID, parentID }: Pick<Task, "sessionID" | "parentID">): PurseLimit | undefined {
    return this.#paid(parentID === NOBODY ? sessionID : parentID)
  }

  /** The limits that a session's next run comes under; `taskID` names the task where it has one. */
  limitsIn(sessionID: string, taskID?: string): SpendingLimits {
    const { options, store } = this.#parts
    const own = taskID === undefined ? undefined : store.get(taskID)
    const purse = own ? this.purseOf(own) : this.#paid(sessionID)
    return purse ? { ...options, purse } : options
  }

  /** What the purse's runs took since it was opened, and what those at work may need for their last words. */
  ofPurse(): NonNullable<Spent["purse"]> {
    return this.#ofPurse(this.#shown ?? this.#bill())
  }

  /** Of a limit that a task shares so much is used that nothing new may begin, and the others' last words are due. */
  isNear(task: Task): boolean {
    return this.isShared && refusalOf(this.limitsIn(task.parentID, task.id), this.spentBy(task)) !== undefined
  }

  /** What has been spent that counts for a run's limits. */
  spentBy({ parentID, id }: Task): Spent {
    return this.#spent(this.#shown ?? this.#bill(), parentID, id)
  }

  /** Several runs are looked at in one moment: what they share is added up once. */
  once(look: () => void): void {
    this.#shown ??= this.isShared ? this.#bill() : undefined
    try {
      look()
    } finally {
      this.#shown = undefined
    }
  }

  /** What a run would join that a session begins; `taskID` names the task where it is resumed. */
  spentBefore(sessionID: string, taskID?: string): Spent {
    return this.isShared ? this.#spent(this.#bill(), sessionID, taskID) : NOTHING_SPENT
  }

  /** What all runs took of the tasks whose own session this is, the tasks below them and forgotten ones included. */
  ofSession(sessionID: string): Usage {
    return this.#ofSession(this.#shown ?? this.#bill(), sessionID)
  }

  /** What a task and those below it took. */
  ofTask(taskID: string): Usage {
    return this.#bill().task(taskID)
  }

  /** The task leaves the list; what it cost stays on the bill. Returns what is to be written down of it. */
  keep(task: Task): Task | undefined {
    const { store } = this.#parts
    const household = store.parentState(task.parentID)
    // What a task has launched counts for what a call allowed to it.
    if (this.isShared || store.bySession(task.parentID))
      household.forgotten = [...household.forgotten.filter(({ id }) => id !== task.id), task]
    return this.isShared ? remainsOf(task) : undefined
  }

  /** Takes in the project's records of the last day. */
  readElsewhere(records: readonly TaskRecord[]): void {
    const { store } = this.#parts
    const others = records.filter(({ task }) => !store.get(task.id) || store.isForeign(task.id))
    // No record tells what a run costs that goes on; its session does.
    this.#elsewhere = others.map(({ task, cost = 0 }) => ({
      task,
      ...(isActive(task) && { cost: cost - task.earlier.usage.cost }),
    }))
  }

  #spent(bill: Bill, sessionID: string, taskID: string | undefined): Spent {
    const { store, options } = this.#parts
    const above = payer(sessionID, (id) => store.bySession(id))
    // Those that nobody launched have no session in common.
    const session = above === NOBODY ? NO_USAGE : bill.session(above)
    // Nobody asks for the day where it has no limit.
    const day = options.maxCostPerDay > 0 ? addUsage(bill.day(), this.#unbelieved()) : NO_USAGE
    const spent = { task: taskID ? bill.task(taskID) : NO_USAGE, session, day }
    return this.#purse ? { ...spent, purse: this.#ofPurse(bill) } : spent
  }

  #paid(sessionID: string): PurseLimit | undefined {
    const purse = this.#purse
    if (!purse) return undefined
    const thread = payer(sessionID, (id) => this.#parts.store.bySession(id))
    return Object.hasOwn(purse.threads, thread) ? purse : undefined
  }

  #ofPurse(bill: Bill): NonNullable<Spent["purse"]> {
    const { store } = this.#parts
    const { threads = {} } = this.#purse ?? {}
    const used = Object.entries(threads).map(([sessionID, before]) => {
      const took = this.#ofSession(bill, sessionID)
      // What was forgotten before it was opened may be known no more.
      return took.cost < before.cost ? NO_USAGE : lessUsage(took, before)
    })
    const paid = store.active().filter((task) => !isQueued(task) && !isPaused(task) && this.purseOf(task))
    const reserve = paid.reduce((sum, { id }) => sum + dearestStep(store.run(id)), 0)
    return { used: used.reduce(addUsage, NO_USAGE), reserve }
  }

  #ofSession(bill: Bill, sessionID: string): Usage {
    const { store } = this.#parts
    const below = bill.session(sessionID)
    const known = [store.bySession(sessionID), ...store.forgotten()].filter((task) => task?.sessionID === sessionID)
    const ids = new Set(known.flatMap((task) => task?.id ?? []))
    return [...ids].reduce((sum, id) => addUsage(sum, lessUsage(bill.task(id), below)), below)
  }

  #bill(): Bill {
    const { store, clock } = this.#parts
    const elsewhere = this.#elsewhere.map(({ task }) => task)
    const tasks = [...elsewhere, ...store.forgotten(), ...store.all()]
    const known = new Map(tasks.map((task) => [task.id, task]))
    return billOf([...known.values()], (task) => this.#summaryOf(task), clock.now())
  }

  /** What sessions cost of which no record tells that is believed: without this, the loss of the key would reset the day. */
  #unbelieved(): Usage {
    const { host, store, clock } = this.#parts
    const since = clock.now() - DAY_MS
    const others = host.unbelieved().filter(({ sessionID }) => !store.bySession(sessionID))
    const cost = others.reduce((sum, each) => (each.changedAt > since ? sum + each.cost : sum), 0)
    return { ...NO_USAGE, cost }
  }

  #summaryOf(task: Task): Account {
    const { usage } = (isActive(task) ? this.#parts.store.run(task.id)?.observed : task.outcome) ?? NO_FIGURES
    const { cost = 0 } =
      this.#elsewhere.length === 0 ? {} : (this.#elsewhere.find((other) => other.task.id === task.id) ?? {})
    const lastRun = isActive(task) ? { ...usage, cost: Math.max(usage.cost, cost) } : usage
    return { lastRun, before: task.earlier.usage }
  }
}

const dearestStep = (run: ActiveRun | undefined): number =>
  Math.max(0, ...[...(run?.observed.answers.values() ?? [])].map(({ usage }) => usage?.cost ?? 0))
