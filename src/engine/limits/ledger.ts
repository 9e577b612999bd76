import { type Account, type Bill, billOf, DAY_MS, payer, remainsOf } from "../../core/bill.ts"
import { NOTHING_SPENT, needsBill, type Spent } from "../../core/spending.ts"
import { addUsage, isActive, NO_FIGURES, NO_USAGE, NOBODY, type Task, type Usage } from "../../core/task.ts"
import type { Watched } from "../../core/watchdog.ts"
import type { Parts } from "../parts.ts"
import type { ProgressTracker } from "../run/progress.ts"

/** How long what other processes' tasks have cost is taken for known, in ms: to read it, the host lists a day's sessions. */
const ELSEWHERE_MS = 30_000

/**
 * What tasks have cost, for the limits that several of them share: those of this process as they stand, those of others
 * as their records say, and those that were forgotten here, which are paid for all the same.
 */
export class Ledger {
  readonly #parts: Parts
  readonly #forgotten = new Map<string, Task>()
  /** Other processes' tasks, and what their running ones have cost. */
  #elsewhere: readonly Task[] = []
  #costs: ReadonlyMap<string, number> = new Map()
  #lookedAt = Number.NEGATIVE_INFINITY
  #looking: Promise<void> = Promise.resolve()

  constructor(parts: Parts) {
    this.#parts = parts
  }

  /**
   * A run as its limits see it; nothing is added up where no limit asks for it. `bill` is that of this moment: who looks
   * at several runs has it added up once.
   */
  watched(task: Task, tracker: ProgressTracker, bill?: Bill): Watched {
    const { store, options: limits, clock } = this.#parts
    const spent = needsBill(limits, task) ? this.#spent(bill ?? this.#bill(), task.parentID, task.id) : NOTHING_SPENT
    const ownTasks = store.hasOpen(task.sessionID)
    return { task: awake(task, tracker), progress: tracker.snapshot(), limits, spent, ownTasks, now: clock.now() }
  }

  /** The bill of this moment, where one is needed for all runs. */
  now(): Bill | undefined {
    return needsBill(this.#parts.options) ? this.#bill() : undefined
  }

  /** What a run would join that a session begins; `taskID` names the task where it is resumed. */
  spentBefore(sessionID: string, taskID?: string): Spent {
    return needsBill(this.#parts.options) ? this.#spent(this.#bill(), sessionID, taskID) : NOTHING_SPENT
  }

  /** What a task and those below it took. */
  ofTask(taskID: string): Usage {
    return this.#bill().task(taskID)
  }

  /** The task leaves the list; what it cost stays on the bill. Returns what is to be written down of it. */
  keep(task: Task): Task | undefined {
    const { options, store } = this.#parts
    const isShared = needsBill(options)
    // What a task has launched counts for what a call allowed to it.
    if (isShared || store.bySession(task.parentID)) this.#forgotten.set(task.id, task)
    return isShared ? remainsOf(task) : undefined
  }

  /** Where the day's budget asks for it, reads what other processes' tasks have cost. Never rejects. */
  async lookElsewhere(): Promise<void> {
    const { options, clock } = this.#parts
    if (options.maxCostPerDay === 0) return
    const now = clock.now()
    if (Math.abs(now - this.#lookedAt) >= ELSEWHERE_MS) {
      this.#lookedAt = now
      this.#looking = this.#look(now)
    }
    await this.#looking
  }

  async #look(now: number): Promise<void> {
    const { host, store } = this.#parts
    try {
      const records = await host.recordsSince(now - DAY_MS, "project")
      const others = records.filter(({ task }) => !store.get(task.id) || store.isForeign(task.id))
      this.#elsewhere = others.map(({ task }) => task)
      // No record tells what a run costs that goes on; its session does.
      const running = others.filter(({ task }) => isActive(task))
      this.#costs = new Map(running.map(({ task, cost = 0 }) => [task.id, cost - task.earlier.usage.cost]))
    } catch (error) {
      host.log("warn", "could not read what other tasks have cost", { error: String(error) })
    }
  }

  #spent(bill: Bill, sessionID: string, taskID: string | undefined): Spent {
    const { store } = this.#parts
    const above = payer(sessionID, (id) => store.bySession(id))
    // Those that nobody launched have no session in common.
    const session = above === NOBODY ? NO_USAGE : bill.session(above)
    return { task: taskID ? bill.task(taskID) : NO_USAGE, session, day: bill.day }
  }

  #bill(): Bill {
    const { store, clock } = this.#parts
    const tasks = [...this.#elsewhere, ...this.#forgotten.values(), ...store.all()]
    const known = new Map(tasks.map((task) => [task.id, task]))
    const bill = billOf([...known.values()], (task) => this.#accountOf(task), clock.now())
    return { ...bill, day: addUsage(bill.day, { ...NO_USAGE, cost: this.#unbelieved() }) }
  }

  /** What sessions cost of which no record tells that is believed: without this, the loss of the key would reset the day. */
  #unbelieved(): number {
    const { host, store, clock } = this.#parts
    const since = clock.now() - DAY_MS
    const others = host.unbelieved().filter(({ sessionID }) => !store.bySession(sessionID))
    return others.reduce((sum, { changedAt, cost }) => (changedAt > since ? sum + cost : sum), 0)
  }

  #accountOf(task: Task): Account {
    const { usage } = this.#parts.store.tracker(task.id)?.snapshot() ?? task.outcome ?? NO_FIGURES
    const lastRun = isActive(task) ? { ...usage, cost: Math.max(usage.cost, this.#costs.get(task.id) ?? 0) } : usage
    return { lastRun, before: task.earlier.usage }
  }
}

/** The task as its limits see it: the time for which this process slept does not count. */
const awake = (task: Task, { asleep }: ProgressTracker): Task => {
  const { startedAt } = task.run
  return startedAt === undefined || asleep === 0
    ? task
    : { ...task, run: { ...task.run, startedAt: startedAt + asleep } }
}
