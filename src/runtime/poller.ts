import type { FeatureBody } from "../core/feature.ts"
import { type Activity, LEASE_MS } from "../core/ports.ts"
import { type ActiveRun, isWithoutAgent } from "../core/run/active-run.ts"
import { isPaused, isQueued, type Task } from "../core/task.ts"
import { Ticker } from "../lib/background.ts"
import type { CostLedger } from "./budgets.ts"
import type { Dispatcher } from "./dispatcher.ts"
import type { Outbox } from "./mailbox/outbox.ts"
import type { RemoteActivity } from "./places/place.ts"
import type { Places } from "./places/places.ts"
import type { Recovery } from "./recovery/recovery.ts"
import type { Services } from "./services.ts"

/** Default poll interval while events arrive, in ms; each poll costs OpenCode's thread some 25 ms. */
const HEARD_POLL_MS = 12_000
const UNHEARD_POLL_MS = 2000
/** Shortest interval between looks at remote tasks, in ms. */
const LEAST_POLL_MS = 200
/** Interval for reading tasks of other processes, in ms. */
const FOREIGN_LOOK_MS = 10_000
/** Interval for renewing leases of running tasks. */
const RENEW_MS = LEASE_MS / 3
/** A tick later than this, in ms, means that the process slept. */
const SLEPT_MS = 5000

/** Silence after which a working agent may be waiting for an answer, in ms. */
const QUIET_MS = 60_000

/**
 * Whether to look for a run's open questions: always for a run without events, otherwise once in each silence, or while
 * a question is open.
 */
const isUnheard = (run: ActiveRun | undefined, now: number): boolean =>
  !run?.observed.hasEvents ||
  (now - run.lastSignAt >= QUIET_MS && (run.asks.length > 0 || run.askedOfSilence !== run.lastSignAt))

export type PollerPorts = {
  readonly dispatcher: Dispatcher
  readonly recovery: Recovery
  readonly ledger: CostLedger
  /** Bodies of the features, which get refusals that may have sent no event. */
  readonly bodies: readonly FeatureBody[]
  readonly outbox: Outbox
  readonly reschedule: () => void
  readonly places: Places
}

/**
 * Periodic work while tasks run: polling OpenCode, deadlines of runs, leases. It has the engine's only timer for runs.
 */
export class Poller {
  readonly #services: Services
  readonly #ports: PollerPorts
  readonly #ticker: Ticker
  #leasesRenewedAt: number
  #foreignLookedAt = 0
  #seenAt = 0
  #lookedAt = 0
  /** A remote task was active since the last look. */
  #hasRemoteActivity = false

  constructor(services: Services, ports: PollerPorts) {
    this.#services = services
    this.#ports = ports
    this.#leasesRenewedAt = services.clock.now()
    this.#ticker = new Ticker(services.clock, (late) => this.tick(late))
  }

  /** Schedules the next tick, for polling or a limit. */
  wake(): void {
    for (const time of this.#deadlines()) this.at(time)
    this.#ports.dispatcher.wake()
  }

  /** Schedules a tick at `time` at the latest. */
  at(time: number): void {
    if (!this.#services.stopped.aborted && time < Number.POSITIVE_INFINITY) this.#ticker.at(time)
  }

  /**
   * Makes the next look at remote tasks come sooner. Called when a remote task was active, since OpenCode sends no
   * events of it.
   */
  onRemoteActivity({ urgent }: RemoteActivity): void {
    this.#hasRemoteActivity = true
    this.at(this.#lookedAt + (urgent ? LEAST_POLL_MS : UNHEARD_POLL_MS))
  }

  /** Stops the timer when nothing runs. */
  stopIfIdle(): void {
    if (this.#isIdle()) this.#ticker.stop()
  }

  stop(): void {
    this.#ticker.stop()
  }

  /** Excludes sleep of the process, and changes of its clock, from all limits. */
  noticeSleep(): void {
    this.#woke(this.#ticker.late)
  }

  /** Polls OpenCode once for all tasks and checks all limits. Never rejects. */
  async tick(late = 0): Promise<void> {
    const { opencode, options, store, journal, stopped } = this.#services
    this.#woke(late)
    try {
      await journal.takenUp
      const running = store.active().filter((task) => !isQueued(task) && !isPaused(task))
      const looks = running.length > 0 && (options.pollInterval !== 0 || this.#hasRemoteActivity)
      const activity = looks ? await this.#look(running) : undefined
      if (stopped.aborted) return
      this.#ports.ledger.once(() => {
        for (const { id, sessionID } of running)
          this.#ports.dispatcher.deliver(id, {
            type: "tick",
            doing: activity && (activity.get(sessionID) ?? "nothing"),
          })
        for (const task of running) {
          const doing = activity?.get(task.sessionID)
          if (doing?.type === "retry") this.#refused(task, doing)
        }
      })
      this.#ports.reschedule()
      if (running.length > 0)
        this.#services.background.run("look at what others spend", () => this.#ports.ledger.lookAtForeign())
      // OpenCode is awake now, so perform the deferred writes, too.
      if (looks) journal.flush()
    } catch (error) {
      opencode.log("error", "a tick failed", { error: String(error) })
    }
    if (this.#isIdle() || stopped.aborted) return
    this.#lookAtForeign()
    this.#renewLeases()
    this.wake()
  }

  /** Tells the features that OpenCode retries a request, because the refusal before the retry may have had no event. */
  #refused(task: Task, activity: Activity): void {
    const { store } = this.#services
    // If the task was paused during the call, its refusal is known already.
    if (isPaused(store.get(task.id) ?? task)) return
    // A user's own turn, before the run's, may have been refused: such a refusal trips no breaker.
    const run = store.run(task.id)
    if (run && isWithoutAgent(run)) return
    const event = { type: "active", sessionID: task.sessionID, activity } as const
    for (const body of this.#ports.bodies) body.onEvent?.(event, task)
  }

  /**
   * Reads the sessions' activity, and open questions where needed. Never rejects: undefined where OpenCode does not
   * answer, and limits are checked all the same.
   */
  async #look(running: readonly Task[]): Promise<ReadonlyMap<string, Activity> | undefined> {
    const { opencode, store, clock } = this.#services
    this.#lookedAt = clock.now()
    this.#hasRemoteActivity = false
    try {
      const activity = await opencode.activity()
      // Look for questions: OpenCode sends no event of a question where no plugin is loaded, and an event may be lost.
      const unheard = running.filter(({ id, group }) => !group && isUnheard(store.run(id), this.#lookedAt))
      if (unheard.length > 0) await this.#lookForAsks(unheard)
      return activity
    } catch (error) {
      opencode.log("warn", "could not ask OpenCode what its sessions do", { error: String(error) })
      return undefined
    }
  }

  async #lookForAsks(tasks: readonly Task[]): Promise<void> {
    const { opencode, store, clock } = this.#services
    const at = clock.now()
    const asks = await opencode.openAsks()
    for (const { id } of tasks) {
      const open = asks.filter(({ sessionID }) => store.responsibleFor(sessionID)?.id === id)
      this.#ports.dispatcher.deliver(id, { type: "questions", open, at })
    }
  }

  #lookAtForeign(): void {
    const { clock, store, background } = this.#services
    if (store.foreignCount === 0 || Math.abs(clock.now() - this.#foreignLookedAt) < FOREIGN_LOOK_MS) return
    this.#foreignLookedAt = clock.now()
    background.run("look at other processes' tasks", () => this.#ports.recovery.refreshForeign())
  }

  /** Shows other processes that running tasks are still supervised. */
  #renewLeases(): void {
    const { clock, store, background, journal } = this.#services
    if (clock.now() - this.#leasesRenewedAt < RENEW_MS) return
    this.#leasesRenewedAt = clock.now()
    for (const task of store.active()) background.run("renew a lease", () => journal.save(task))
  }

  /** Finds out whether another machine has taken over tasks. Limits are checked and ends are told only after that. */
  #takeUpLeases(): void {
    const { clock, store, journal } = this.#services
    this.#leasesRenewedAt = clock.now()
    journal.takenUp = Promise.all(store.active().map((task) => journal.save(task)))
  }

  #woke(late: number): void {
    const { clock, store, journal } = this.#services
    const now = clock.now()
    const setBack = now - this.#seenAt
    this.#seenAt = now
    const slept = Math.min(late, now - journal.wokenAt)
    const ms = setBack < 0 ? setBack : slept
    if (ms >= 0 && ms < SLEPT_MS) return
    journal.wokenAt = now
    for (const { id, run } of store.active()) {
      // Limit the sleep to the run's age without its pauses: a run that started after the wake-up has not slept.
      const age = now - (run.startedAt ?? run.createdAt) - (run.parkedMs ?? 0)
      this.#ports.dispatcher.deliver(id, { type: "slept", ms: Math.min(ms, Math.max(0, age)) })
    }
    if (now - this.#leasesRenewedAt >= LEASE_MS) this.#takeUpLeases()
  }

  *#deadlines(): Iterable<number> {
    const { store, options, clock } = this.#services
    const now = clock.now()
    const running = store.active().filter((task) => !isQueued(task) && !isPaused(task))
    const isHeard = running.every(
      ({ id, group, place }) =>
        group ||
        store.run(id)?.observed.hasEvents ||
        (place && this.#ports.places.kindNamed(place.kind)?.hasEvents?.(place.kind)),
    )
    const interval = options.pollInterval ?? (isHeard ? HEARD_POLL_MS : UNHEARD_POLL_MS)
    if (running.length > 0 && interval > 0) yield now + interval
    if (store.foreignCount > 0) yield now + FOREIGN_LOOK_MS
    if (store.activeCount > 0) yield now + RENEW_MS
  }

  #isIdle(): boolean {
    const { store } = this.#services
    return store.activeCount + store.foreignCount === 0 && !this.#ports.outbox.defersWake
  }
}
