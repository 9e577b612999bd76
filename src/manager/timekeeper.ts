import { messageID, partID } from "../core/ids.ts"
import { type Clock, type Host, LEASE_MS } from "../core/ports.ts"
import { type Ask, isQueued, type Task } from "../core/task.ts"
import { nextDeadline } from "../core/watchdog.ts"
import type { Options } from "../options.ts"
import type { Background } from "./background.ts"
import type { Recovery } from "./recovery.ts"
import type { TaskStore } from "./store.ts"
import { Ticker } from "./ticker.ts"
import type { Watcher } from "./watcher.ts"

/** A limit that has just been passed is being dealt with: the next look at it may wait a moment, in ms. */
const MIN_TICK_MS = 100
/** How often the tasks that another process runs are looked at, in ms. */
const FOREIGN_LOOK_MS = 10_000
/** How long a question may stay open before the parent's model hears of it, in ms. */
const HINT_AFTER_MS = 15_000

export type TimekeeperPorts = {
  readonly host: Host
  readonly clock: Clock
  readonly options: Options
  readonly store: TaskStore
  readonly watcher: Watcher
  readonly recovery: Recovery
  readonly background: Background
  /** Writes a task's record. */
  readonly save: (task: Task) => Promise<void>
}

/**
 * What happens by the clock, and only while tasks run: the look at the host, the limits of runs, questions that stay
 * open too long, the lease of what runs here.
 */
export class Timekeeper {
  readonly #ports: TimekeeperPorts
  readonly #ticker: Ticker
  #leasesRenewedAt: number
  #foreignLookedAt = 0

  constructor(ports: TimekeeperPorts) {
    this.#ports = ports
    this.#leasesRenewedAt = ports.clock.now()
    this.#ticker = new Ticker(ports.clock, ports.options.pollInterval, () => this.tick())
  }

  /** Tasks run: a tick comes within the poll interval, and where a limit is reached. */
  wake(): void {
    this.#ticker.wake()
    this.at(Math.min(...this.#deadlines()))
  }

  /** Something is due at `time`: a tick comes then at the latest. */
  at(time: number): void {
    this.#ticker.at(time)
  }

  /** Stops the clock where there is nothing left to look after. */
  rest(): void {
    if (this.#isIdle()) this.#ticker.stop()
  }

  stop(): void {
    this.#ticker.stop()
  }

  /** One look at the host and at the limits: one call, however many tasks there are. Never rejects. */
  async tick(): Promise<void> {
    const { host, options, store, watcher } = this.#ports
    try {
      const running = store.active().filter((task) => !isQueued(task))
      const looks = running.length > 0 && options.pollInterval > 0
      if (looks) this.#compare(running, await host.activity())
      else for (const task of running) if (store.tracker(task.id)?.lingers) watcher.inspect(task.id)
      for (const task of running) this.#checkLimits(task)
    } catch (error) {
      host.log("warn", "could not look at the host", { error: String(error) })
    }
    this.#lookAtForeign()
    if (this.#isIdle()) return
    this.#renewLeases()
    this.wake()
  }

  /** A session that does nothing is looked at closely: its end may have been missed. */
  #compare(running: readonly Task[], activity: Awaited<ReturnType<Host["activity"]>>): void {
    const { store, watcher } = this.#ports
    for (const task of running) {
      const doing = activity.get(task.sessionID)
      if (doing) store.tracker(task.id)?.retrying(doing.type === "retry" ? doing : undefined)
      else watcher.inspect(task.id)
    }
  }

  #checkLimits(task: Task): void {
    const { store, watcher } = this.#ports
    const tracker = store.tracker(task.id)
    if (!tracker) return
    watcher.checkLimits(task, tracker)
    for (const ask of tracker.snapshot().asks) this.#lookAtAsk(task, ask)
  }

  #lookAtAsk(task: Task, ask: Ask): void {
    const { clock, options, host, store, background } = this.#ports
    const age = clock.now() - ask.askedAt
    const tracker = store.tracker(task.id)
    if (options.permissionTimeout > 0 && age >= options.permissionTimeout) {
      tracker?.replied(ask.id)
      host.log("warn", "a question was refused because nobody answered", { task: task.id, session: ask.sessionID })
      background.run("refuse", () => host.refuse(ask, REFUSAL))
      return
    }
    if (age < HINT_AFTER_MS) return this.at(ask.askedAt + HINT_AFTER_MS)
    if (!tracker || tracker.hinted) return
    tracker.hinted = true
    background.run("hint", () => this.#hint(task, ask))
  }

  /** Tells the parent's model, without starting it, that a task waits for somebody: once a run. */
  async #hint(task: Task, ask: Ask): Promise<void> {
    const { host, store } = this.#ports
    const { generation, startedAt = 0 } = task.run
    // A message that is stored in mid-turn makes the host take another step: a busy parent hears of it at a later tick.
    if ((await host.activity()).has(task.parentID)) {
      const tracker = store.tracker(task.id)
      if (tracker) tracker.hinted = false
      return
    }
    const persona = await host.persona(task.parentID)
    const text = `Background task ${task.id} (${task.description}) waits for the user's answer to a ${ask.kind}: ${ask.what}. Tell the user when you next speak to them.`
    await host.prompt({
      sessionID: task.parentID,
      messageID: messageID("hint", task.id, generation, startedAt),
      agent: persona?.agent,
      model: persona?.model,
      noReply: true,
      parts: [{ id: partID("hint", task.id, generation, startedAt, 0), text, synthetic: true }],
    })
  }

  #lookAtForeign(): void {
    const { clock, store, background, recovery } = this.#ports
    if (store.foreignCount === 0 || clock.now() - this.#foreignLookedAt < FOREIGN_LOOK_MS) return
    this.#foreignLookedAt = clock.now()
    background.run("look at other processes' tasks", () => recovery.refreshForeign())
  }

  /** Tells other processes, by a write now and then, that what runs here is still looked after. */
  #renewLeases(): void {
    const { clock, store, background, save } = this.#ports
    if (clock.now() - this.#leasesRenewedAt < LEASE_MS / 3) return
    this.#leasesRenewedAt = clock.now()
    for (const task of store.active()) background.run("renew a lease", () => save(task))
  }

  *#deadlines(): Iterable<number> {
    const { store, options, clock } = this.#ports
    const soon = clock.now() + MIN_TICK_MS
    for (const task of store.active()) {
      const tracker = store.tracker(task.id)
      if (!tracker || isQueued(task)) continue
      const ownTasks = store.hasActive(task.sessionID)
      yield Math.max(soon, nextDeadline(task, tracker.snapshot(), options, ownTasks))
    }
  }

  #isIdle(): boolean {
    const { store } = this.#ports
    return store.activeCount + store.foreignCount === 0
  }
}

const REFUSAL = "Nobody answered in time. Go on without it, and say in your answer what you could not do."
