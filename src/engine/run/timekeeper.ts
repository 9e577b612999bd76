import { AUTOMATIC, nameOf } from "../../core/account.ts"
import type { Bill } from "../../core/bill.ts"
import { messageID, partID } from "../../core/ids.ts"
import { type Activity, LEASE_MS } from "../../core/ports.ts"
import { type Ask, isQueued, isUnattended, type Task } from "../../core/task.ts"
import { dueAt } from "../../core/watchdog.ts"
import { oneLine } from "../../lib/text.ts"
import { Ticker } from "../../lib/ticker.ts"
import type { Ledger } from "../limits/ledger.ts"
import type { Parts } from "../parts.ts"
import type { Recovery } from "../recover/recovery.ts"
import type { Watcher } from "./watcher.ts"

/** A limit that has just been passed is being dealt with: the next look at it may wait a moment, in ms. */
const MIN_TICK_MS = 100
/**
 * How often the host is looked at while events come, in ms: they tell what there is to know, and every wake-up costs
 * the host's thread some 25 ms.
 */
const HEARD_POLL_MS = 12_000
/** How often the tasks that another process looks after are looked at, in ms. */
const FOREIGN_LOOK_MS = 10_000
/** How often the lease of what runs here is renewed. */
const RENEW_MS = LEASE_MS / 3
/** How long a question may stay open before the parent's model hears of it, in ms. */
const HINT_AFTER_MS = 15_000
/** A tick that is so late, in ms, was not kept by work: the process slept. */
const SLEPT_MS = 5000

/**
 * What happens by the clock, and only while tasks run: the look at the host, the limits of runs, questions that stay
 * open too long, the lease of what runs here.
 */
export class Timekeeper {
  readonly #parts: Parts
  readonly #watcher: Watcher
  readonly #recovery: Recovery
  readonly #ledger: Ledger
  readonly #ticker: Ticker
  #leasesRenewedAt: number
  #foreignLookedAt = 0
  #wokenAt = 0
  #seenAt = 0

  constructor(parts: Parts, watcher: Watcher, recovery: Recovery, ledger: Ledger) {
    this.#parts = parts
    this.#watcher = watcher
    this.#recovery = recovery
    this.#ledger = ledger
    this.#leasesRenewedAt = parts.clock.now()
    this.#ticker = new Ticker(parts.clock, (late) => this.tick(late))
  }

  /** There may be something to look after: a tick comes when the host is to be looked at, or a limit is reached. */
  wake(): void {
    for (const time of this.#deadlines()) this.at(time)
  }

  /** Something is due at `time`: a tick comes then at the latest. */
  at(time: number): void {
    if (!this.#parts.stopped.aborted && time < Number.POSITIVE_INFINITY) this.#ticker.at(time)
  }

  /** Stops the clock where there is nothing left to look after. */
  rest(): void {
    if (this.#isIdle()) this.#ticker.stop()
  }

  stop(): void {
    this.#ticker.stop()
  }

  /** The process may have slept since the last tick, or the clock been set back: then no limit counts that. */
  noticeSleep(): void {
    this.#woke(this.#ticker.late)
  }

  /** One look at the host and at the limits: one call, however many tasks there are. Never rejects. */
  async tick(late = 0): Promise<void> {
    const { host, options, store, journal, stopped } = this.#parts
    this.#woke(late)
    try {
      const running = store.active().filter((task) => !isQueued(task))
      const looks = running.length > 0 && options.pollInterval > 0
      const activity = looks ? await this.#look(running) : undefined
      if (stopped.aborted) return
      const bill = this.#ledger.now()
      for (const task of running) this.#lookAt(task, activity, bill)
      if (running.length > 0)
        this.#parts.background.run("look at what others spend", () => this.#ledger.lookElsewhere())
      // The host is awake now: what could wait goes along.
      if (looks) journal.flush()
    } catch (error) {
      host.log("error", "a tick failed", { error: String(error) })
    }
    if (this.#isIdle() || stopped.aborted) return
    this.#lookAtForeign()
    this.#renewLeases()
    this.wake()
  }

  /** What sessions do; undefined where the host does not say: limits hold all the same. Never rejects. */
  async #look(running: readonly Task[]): Promise<ReadonlyMap<string, Activity> | undefined> {
    const { host, store } = this.#parts
    try {
      const activity = await host.activity()
      // Where no plugin is loaded, nobody tells of a question.
      const unheard = running.filter(({ id, place }) => place && !store.tracker(id)?.heard)
      if (unheard.length > 0) await this.#watcher.lookForAsks(unheard)
      return activity
    } catch (error) {
      host.log("warn", "could not look at the host", { error: String(error) })
      return undefined
    }
  }

  /** A session that does nothing is looked at closely: its end may have been missed. */
  #lookAt(task: Task, activity: ReadonlyMap<string, Activity> | undefined, bill: Bill | undefined): void {
    const tracker = this.#parts.store.tracker(task.id)
    if (!tracker) return
    const doing = activity?.get(task.sessionID)
    if (doing) {
      tracker.retrying(doing.type === "retry" ? doing : undefined)
      if (!tracker.heard) this.#watcher.count(task, tracker)
    } else if (activity || tracker.lingers) this.#watcher.inspect(task.id)
    this.#watcher.checkLimits(task, tracker, bill)
    for (const ask of tracker.snapshot().asks) this.#lookAtAsk(task, ask)
  }

  #lookAtAsk(task: Task, ask: Ask): void {
    const { clock, options, host, store, background } = this.#parts
    const age = clock.now() - ask.askedAt
    const tracker = store.tracker(task.id)
    if (options.permissionTimeout > 0 && age >= options.permissionTimeout) {
      tracker?.replied(ask.id)
      tracker?.unanswered.push(ask.what)
      host.log("warn", "a question was refused because nobody answered", { task: task.id, session: ask.sessionID })
      background.run("refuse", () => host.refuse(ask, REFUSAL))
      return
    }
    if (age < HINT_AFTER_MS) return this.at(ask.askedAt + HINT_AFTER_MS)
    if (!tracker || tracker.hinted || isUnattended(task)) return
    tracker.hinted = true
    background.run("hint", async () => {
      tracker.hinted = await this.#hint(task, ask)
    })
  }

  /**
   * Tells the parent's model, without starting it, that a task waits for somebody: once a run. A message that is stored
   * in mid-turn makes the host take another step, and one in a session whose user has undone something deletes that for
   * good: such a parent hears of it at a later tick.
   */
  async #hint(task: Task, ask: Ask): Promise<boolean> {
    const { host } = this.#parts
    const { generation, startedAt = 0 } = task.run
    const persona = await host.persona(task.parentID)
    const [parent, activity] = await Promise.all([host.parent(task.parentID), host.activity()])
    if (parent?.reverted || activity.has(task.parentID)) return false
    const text = `${AUTOMATIC} Background task ${nameOf(task)} waits for the user's answer to a ${ask.kind}: ${oneLine(ask.what)}. Tell the user when you next speak to them.`
    await host.prompt({
      sessionID: task.parentID,
      messageID: messageID("hint", task.id, generation, startedAt),
      agent: persona?.agent,
      model: persona?.model,
      noReply: true,
      parts: [{ id: partID("hint", task.id, generation, startedAt, 0), text, synthetic: true }],
    })
    return true
  }

  #lookAtForeign(): void {
    const { clock, store, background } = this.#parts
    if (store.foreignCount === 0 || Math.abs(clock.now() - this.#foreignLookedAt) < FOREIGN_LOOK_MS) return
    this.#foreignLookedAt = clock.now()
    background.run("look at other processes' tasks", async () => {
      await this.#recovery.refreshForeign()
      this.wake()
    })
  }

  /** Tells other processes, by a write now and then, that what runs here is still looked after. */
  #renewLeases(): void {
    const { clock, store, background, journal } = this.#parts
    if (clock.now() - this.#leasesRenewedAt < RENEW_MS) return
    this.#leasesRenewedAt = clock.now()
    for (const task of store.active()) background.run("renew a lease", () => journal.save(task))
  }

  #woke(late: number): void {
    const { clock, store } = this.#parts
    const now = clock.now()
    const setBack = now - this.#seenAt
    this.#seenAt = now
    const slept = Math.min(late, now - this.#wokenAt)
    const jump = setBack < 0 ? setBack : slept
    if (jump >= 0 && jump < SLEPT_MS) return
    this.#wokenAt = now
    for (const task of store.active()) store.tracker(task.id)?.slept(jump)
  }

  *#deadlines(): Iterable<number> {
    const { store, options, clock } = this.#parts
    const now = clock.now()
    const bill = this.#ledger.now()
    let isHeard = true
    let isRunning = false
    for (const task of store.active()) {
      const tracker = store.tracker(task.id)
      if (!tracker || isQueued(task)) continue
      isRunning = true
      isHeard &&= tracker.heard
      yield Math.max(now + MIN_TICK_MS, dueAt(this.#ledger.watched(task, tracker, bill)))
    }
    const { pollInterval } = options
    if (isRunning && pollInterval > 0) yield now + (isHeard ? Math.max(pollInterval, HEARD_POLL_MS) : pollInterval)
    if (store.foreignCount > 0) yield now + FOREIGN_LOOK_MS
    if (store.activeCount > 0) yield now + RENEW_MS
  }

  #isIdle(): boolean {
    const { store } = this.#parts
    return store.activeCount + store.foreignCount === 0
  }
}

const REFUSAL = "Nobody answered in time. Go on without it, and say in your answer what you could not do."
