import type { Block, BlockSource } from "../../core/blocks.ts"
import {
  answered,
  type Breaker,
  freeRequests,
  isClosedFor,
  mustWaitForBreaker,
  nextProbe,
  recordRefusal,
  sentThrough,
  underWay,
  withdraw,
  withoutUnheard,
} from "../../core/breaker.ts"
import { modelKey, modelKeyOf } from "../../core/limits.ts"
import { type Parked, type PauseView, waitsForText } from "../../core/pause.ts"
import type { OpencodeEvent } from "../../core/ports.ts"
import { classifyRefusal, conditionOf, type Refusal } from "../../core/refusal.ts"
import { isHeldUp } from "../../core/run/active-run.ts"
import { isActive, isParked, isQueued, type Model, modelOf, type Reason, type Task } from "../../core/task.ts"
import { duration } from "../../lib/duration.ts"
import { formatTime } from "../../lib/format-time.ts"
import { oneLine } from "../../lib/text.ts"
import type { Dispatcher } from "../../runtime/dispatcher.ts"
import { LimitNotices, notParkedText } from "../../runtime/mailbox/limit-notices.ts"
import type { Parts } from "../../runtime/parts.ts"
import { DeferredWakes } from "./deferred-wakes.ts"
import { FallbackModels, LONG_CLOSED_MS } from "./fallback-models.ts"
import type { Pauser } from "./pausers.ts"
import { refusalIn } from "./refusal-event.ts"
import { UnpaidModels } from "./unpaid-models.ts"

export type BreakerPorts = {
  readonly dispatcher: Dispatcher
  /** Called when a block may have ended. */
  readonly reschedule: () => void
  /** Whether a run waits for other tasks before it asks its model. */
  readonly waitsForTasks: (task: Task) => boolean
  readonly at: (time: number) => void
  /** Wakes the task's parent by its notification now. */
  readonly wakeAgain: (task: Task) => void
}

/** A model counts as overloaded or unreachable at the second refusal of that kind within this time, in ms. */
const TWICE_WITHIN_MS = 10_000

/** Queued runs are stored as parked only for longer limits. */
const WORTH_KEEPING_MS = 5000

/**
 * Circuit breakers by `provider/model`: runs that meet an open one are parked and continue when it resets. Models that
 * never refused have no state.
 */
export class Breakers implements Pauser<"parked">, BlockSource {
  readonly #parts: Parts
  readonly #ports: BreakerPorts
  readonly #breakers = new Map<string, Breaker>()
  /** Models that have answered in this process: a failed connection to them is no wrong address. */
  readonly #answering = new Set<string>()
  readonly #unpaid = new UnpaidModels()
  readonly #notices: LimitNotices
  readonly #fallbackModels: FallbackModels
  readonly #deferredWakes = new DeferredWakes()
  /** Last overload or failed connection of each model without a breaker. */
  readonly #failedAt = new Map<string, number>()

  constructor(parts: Parts, ports: BreakerPorts) {
    this.#parts = parts
    this.#ports = ports
    this.#notices = new LimitNotices(parts, { breakerOf: (model) => this.#breakerOf(model), at: ports.at })
    this.#fallbackModels = new FallbackModels(parts, {
      isOpen: (model) => {
        const breaker = this.#breakerOf(model)
        return breaker === undefined || breaker.recovery !== undefined || freeRequests(breaker, parts.clock.now()) > 0
      },
      switched: (task) => this.#switched(task),
    })
  }

  /**
   * Handles an event of the run's own session: temporary refusals trip its model's breaker, the first part of an answer
   * resets it.
   */
  hear(task: Task, event: OpencodeEvent): void {
    if (!this.#parts.options.gate) return
    const said = event.type === "answered" ? event.model : undefined
    const key = said ? modelKey(said) : (this.#parts.store.handle(task.id)?.compaction?.model ?? modelKeyOf(task))
    if (key === undefined) return
    if (event.type === "began" || event.type === "answered")
      return this.#heardAnswer(task, key, event.type === "answered")
    const refusal = refusalIn(event, () => this.#parts.host.refusal(task.sessionID))
    if (refusal) this.#heardRefusal(task, key, refusal)
  }

  /** Why a model is not used: its provider refuses for lack of credit. Undefined where it may be. */
  unpaid(model: Model | undefined): string | undefined {
    return model && this.#unpaid.reason(modelKey(model), this.#parts.clock.now())
  }

  /**
   * Whether the session's model is at its limit. Notifications then start no turn, and `task` is told again when it is
   * over.
   */
  keepsFromWaking(task: Task, model: Model | undefined): boolean {
    const breaker = model && this.#breakerOf(modelKey(model))
    if (!model || !breaker || breaker.recovery) return false
    this.#deferredWakes.note(modelKey(model), task)
    this.#ports.at(breaker.opensAt)
    return true
  }

  /** Whether sessions wait to be woken when a model is available again. */
  get owesWaking(): boolean {
    return !this.#deferredWakes.isEmpty
  }

  /** Whether this session is to be woken when its model is available. */
  owes(sessionID: string): boolean {
    return this.#deferredWakes.owes(sessionID)
  }

  #heardRefusal(task: Task, key: string, refusal: Refusal): void {
    const now = this.#parts.clock.now()
    const { kind, until } = classifyRefusal(refusal, now, this.#answering.has(key))
    const why = oneLine(refusal.message)
    if (kind === "money") {
      this.#unpaid.refused(key, { at: now, why })
      this.#end(task, { code: "provider", text: `${why.replace(/\.$/, "")}. This does not pass by waiting.` })
      return this.#ports.reschedule()
    }
    if (kind === "other") return
    const before = this.#breakerOf(key)
    // OpenCode reports a refusal by its event and by every poll until its next attempt.
    const isKnown = this.#isKnown(task, refusal)
    if (isKnown && before && underWay(before).includes(task.id)) return
    if (!before && (isKnown || (kind !== "limit" && until === undefined && !this.#failsAgain(key, refusal, now))))
      return
    const breaker = recordRefusal(before, { kind, why, until }, now, isKnown ? 0 : this.#askedAt(task))
    this.#breakers.set(key, breaker)
    this.#ports.at(nextProbe(breaker))
    this.#park(task, key, breaker)
    this.#parkUnbegun(key, breaker, now)
    if (breaker !== before) this.#notices.closed(key, before)
  }

  #isKnown(task: Task, { attempt }: Refusal): boolean {
    const request = `${task.run.generation}/${this.#askedAt(task)}/${attempt}`
    const handle = this.#parts.store.handle(task.id)
    if (attempt !== undefined && handle?.refused === request) return true
    if (handle) handle.refused = request
    return false
  }

  /** A single overload or broken connection is left to OpenCode's retry, unless that has ended. */
  #failsAgain(key: string, { attempt }: Refusal, now: number): boolean {
    const before = this.#failedAt.get(key) ?? Number.NEGATIVE_INFINITY
    this.#failedAt.set(key, now)
    return attempt === undefined || now - before <= TWICE_WITHIN_MS
  }

  /**
   * Called before each request of a run; `other`: model of a compaction. True where the request must not be sent: the
   * run is then parked.
   */
  blocksRequest(task: Task, other?: Model): boolean {
    const now = this.#parts.clock.now()
    const key = other ? modelKey(other) : modelKeyOf(task)
    const handle = this.#parts.store.handle(task.id)
    if (handle) handle.compaction = other && { model: modelKey(other), at: now }
    const breaker = key === undefined ? undefined : this.#breakerOf(key)
    if (key === undefined || !breaker || !isClosedFor(breaker, task.id)) return false
    // Due, with no probe under way.
    if (freeRequests(breaker, now) > 0) {
      this.#breakers.set(key, sentThrough(breaker, task.id, now))
      this.#ports.at(nextProbe(sentThrough(breaker, task.id, now)))
      return false
    }
    this.#park(task, key, breaker)
    // Requests that cannot be parked (a user's turn) are retried by OpenCode.
    const after = this.#parts.store.get(task.id)
    return !after || !isActive(after) || isParked(after)
  }

  /** While a breaker is tripped, runs that wait for its model go one by one: as the probe, then in waves. */
  blocks(task: Task): Block | undefined {
    if (task.group || !(isQueued(task) || isParked(task))) return undefined
    const key = this.#modelOf(task)
    const breaker = key === undefined ? undefined : this.#breakerOf(key)
    if (breaker && !this.#letsGo(breaker, task)) return { by: "rate limit", behind: key, until: nextProbe(breaker) }
    const isUnbegun = isQueued(task) || this.#parts.store.run(task.id)?.notStarted === true
    const unpaid = isUnbegun ? this.unpaid(modelOf(task)) : undefined
    if (unpaid === undefined) return undefined
    return { by: "rate limit", ends: { type: "failed", reason: { code: "provider", text: `Not begun: ${unpaid}` } } }
  }

  #letsGo(breaker: Breaker, task: Task): boolean {
    // Whose session is still being made would go to see too late.
    if (!this.#parts.store.get(task.id)) return false
    return !mustWaitForBreaker(breaker, task.id) || freeRequests(breaker, this.#parts.clock.now()) > 0
  }

  admitted(task: Task): void {
    const key = this.#modelOf(task)
    const breaker = key === undefined ? undefined : this.#breakerOf(key)
    this.#markSwitched(task, false)
    if (key === undefined || !breaker || task.group) return
    const next = sentThrough(breaker, task.id, this.#parts.clock.now())
    this.#breakers.set(key, next)
    this.#ports.at(nextProbe(next))
  }

  /** Current limit of a task's model, where requests are blocked. */
  limitOf(task: Task): PauseView | undefined {
    const model = modelKeyOf(task)
    const breaker = model && this.#breakerOf(model)
    if (!breaker || !isActive(task) || !isClosedFor(breaker, task.id)) return undefined
    return { pauseKind: "parked", waitsFor: model, ...tellingOf(breaker) }
  }

  /** Text of the limit that a task waits for before it begins; undefined for none. */
  holdsBack(task: Task): string | undefined {
    const model = modelKeyOf(task)
    const breaker = model && isQueued(task) ? this.#breakerOf(model) : undefined
    if (!model || !breaker || !mustWaitForBreaker(breaker, task.id)) return undefined
    return waitsForText({ waitsFor: model, ...tellingOf(breaker) }, this.#parts.clock.now())
  }

  survivesRestart(): boolean {
    return this.#parts.options.gate !== false
  }

  /** Restores a run that was parked by an earlier process, with its breaker. A run on a fallback model stays on it. */
  restore(task: Task, { at, until, model, why, kind = "limit" }: Parked): void {
    if (modelKeyOf(task) !== model) return this.#switched(task)
    const breaker = recordRefusal(this.#breakers.get(model), { kind, why, until }, at, at)
    this.#breakers.set(model, breaker)
    this.#notices.wasTold(model, { at, opensAt: breaker.opensAt })
    this.#ports.at(breaker.opensAt)
  }

  /** A user wants it tried now. */
  retryNow(task: Task, parked: Parked, model?: Model): { readonly model: string; readonly others: number } {
    if (model) {
      const others = this.#waiting(parked.model).length - 1
      this.#fallbackModels.give(task, model, parked.kind ?? "limit")
      return { model: modelKey(model), others: modelKey(model) === parked.model ? others : 0 }
    }
    const breaker = this.#breakers.get(parked.model)
    if (breaker) this.#breakers.set(parked.model, sentThrough(breaker, task.id, this.#parts.clock.now()))
    this.#ports.reschedule()
    return { model: parked.model, others: this.#waiting(parked.model).filter(({ id }) => id !== task.id).length }
  }

  /** Ends who has waited for too long, and keeps what has not begun. */
  review(): void {
    const now = this.#parts.clock.now()
    this.#notices.look()
    for (const key of this.#breakers.keys()) {
      this.#endOverdue(key, now)
      this.#review(key, now)
    }
  }

  /** An unused breaker is dropped when its time has come, whether or not the clock ran until then. */
  #breakerOf(key: string): Breaker | undefined {
    const breaker = this.#breakers.get(key)
    if (!breaker?.deserted || this.#deferredWakes.has(key) || freeRequests(breaker, this.#parts.clock.now()) === 0)
      return breaker
    this.#breakers.delete(key)
    return undefined
  }

  #switched(task: Task): void {
    for (const [key, breaker] of this.#breakers)
      if (key !== modelKeyOf(task)) this.#breakers.set(key, withdraw(breaker, task.id))
    this.#markSwitched(task, isParked(task))
    this.#ports.reschedule()
  }

  #markSwitched({ id }: Task, isSwitched: boolean): void {
    const handle = this.#parts.store.handle(id)
    if (handle) handle.isSwitched = isSwitched
  }

  #heardAnswer(task: Task, key: string, isWhole: boolean): void {
    this.#answering.add(key)
    this.#unpaid.answered(key)
    const breaker = this.#breakerOf(key)
    if (!breaker) return
    this.#breakers.set(key, answered(breaker, { taskID: task.id, sentAt: this.#askedAt(task), isWhole }))
    this.#ports.reschedule()
  }

  /** Send time of the request under way. */
  #askedAt({ id, run }: Task): number {
    const { store } = this.#parts
    return store.handle(id)?.compaction?.at ?? store.run(id)?.requestedAt ?? run.startedAt ?? 0
  }

  #park(task: Task, model: string, breaker: Breaker): void {
    const { clock, options } = this.#parts
    const now = clock.now()
    const parked = { at: now, model, why: breaker.why, ...tellingOf(breaker) }
    const patience = options.maxParked - (task.run.parkedMs ?? 0)
    if (options.maxParked > 0 && breaker.told && breaker.opensAt - now > patience && !this.#isGoneRound(task, model))
      return void this.#end(task, { code: "limit", text: notParkedText(model, breaker, now) })
    this.#markSwitched(task, false)
    this.#ports.dispatcher.deliver(task.id, { type: "refused", parked })
    if (options.maxParked > 0) this.#ports.at(now + patience)
    if (this.#fallbackModels.has(task) && modelKeyOf(task) === model) {
      this.#ports.at(now + LONG_CLOSED_MS)
      this.#goRound(model, breaker, now)
    }
    // Another run may probe the provider.
    const next = withdraw(this.#breakers.get(model) ?? breaker, task.id)
    this.#breakers.set(model, next)
    this.#ports.at(nextProbe(next))
  }

  /** Stores queued runs as parked, so that a restart does not lose them. */
  #parkUnbegun(key: string, breaker: Breaker, now: number): void {
    if (breaker.recovery || breaker.probe || breaker.opensAt - now < WORTH_KEEPING_MS) return
    for (const task of this.#waiting(key).filter(isQueued)) this.#park(task, key, breaker)
  }

  #review(key: string, now: number): void {
    const found = this.#breakerOf(key)
    if (!found) return
    let breaker = withoutUnheard(found, now)
    for (const id of underWay(breaker)) if (!this.#isAsking(id)) breaker = withdraw(breaker, id)
    const waiting = this.#waiting(key)
    breaker = { ...breaker, deserted: waiting.length === 0 && breaker.probe === undefined }
    this.#breakers.set(key, breaker)
    this.#goRound(key, breaker, now)
    // Without a parked run, a woken session is the probe.
    const isOpen =
      breaker.recovery !== undefined || (waiting.length === 0 && now >= breaker.opensAt && this.#deferredWakes.has(key))
    if (isOpen) for (const task of this.#deferredWakes.take(key)) this.#ports.wakeAgain(task)
    // Nobody waits for it: it is forgotten once it has reset, or has had whoever is to be woken at its time woken.
    if (waiting.length === 0 && isOpen) this.#breakers.delete(key)
    else if (waiting.length === 0 && this.#deferredWakes.has(key)) this.#ports.at(breaker.opensAt)
    if (waiting.length === 0 || freeRequests(breaker, now) > 0) return
    this.#parkUnbegun(key, breaker, now)
    this.#ports.at(nextProbe(breaker))
  }

  /** Whether a run that went still asks a model before long: one whose place is made ready first does not. */
  #isAsking(id: string): boolean {
    const { store } = this.#parts
    const task = store.get(id)
    const run = store.run(id)
    return task !== undefined && isActive(task) && !this.#ports.waitsForTasks(task) && !(run && isHeldUp(run))
  }

  /** Gives runs with fallback models another one where this model stays closed for long. */
  #goRound(key: string, breaker: Breaker, now: number): void {
    if (breaker.recovery) return
    const isLong = breaker.told && breaker.opensAt - now > LONG_CLOSED_MS
    const waited = ({ run }: Task) => (run.parked ? now - run.parked.at : 0) + (run.parkedMs ?? 0)
    const own = this.#waiting(key).filter((task) => modelKeyOf(task) === key)
    const tired = own.filter((task) => isLong || waited(task) >= LONG_CLOSED_MS)
    this.#fallbackModels.choose(
      tired,
      breaker.told ? `${breaker.kind} until ${formatTime(breaker.opensAt, now)}` : breaker.kind,
    )
  }

  #isGoneRound(task: Task, model: string): boolean {
    return modelKeyOf(task) === model && this.#fallbackModels.isDue(task)
  }

  /** Those that wait for a model, derived from the tasks at each look. */
  #waiting(key: string): readonly Task[] {
    const waits = (task: Task) => isParked(task) || (isQueued(task) && !task.group && !this.#ports.waitsForTasks(task))
    return this.#parts.store.active().filter((task) => this.#modelOf(task) === key && waits(task))
  }

  /** The model for which a task waits, or would: its own, but for one that another model has refused, and that stands still. */
  #modelOf(task: Task): string | undefined {
    const { parked } = task.run
    return parked && !this.#parts.store.handle(task.id)?.isSwitched ? parked.model : modelKeyOf(task)
  }

  #endOverdue(key: string, now: number): void {
    const { maxParked } = this.#parts.options
    const breaker = this.#breakerOf(key)
    // A probe is due, perhaps after a long sleep: only runs refused then have waited too long.
    if (maxParked === 0 || !breaker || breaker.recovery || breaker.probe || freeRequests(breaker, now) > 0) return
    for (const task of this.#waiting(key)) {
      const { parked, parkedMs = 0 } = task.run
      const waited = parked ? now - parked.at + parkedMs : 0
      if (!parked || waited < maxParked) continue
      const text = `Parked for ${duration(waited)}: ${key} ${conditionOf(breaker.kind)}: ${parked.why}`
      this.#end(task, { code: "limit", text })
    }
  }

  #end({ id, run }: Task, reason: Reason): boolean {
    return this.#ports.dispatcher.end(id, run.generation, { type: "failed", reason })
  }
}

const tellingOf = ({ told, opensAt, kind }: Breaker) => ({ kind, ...(told ? { until: opensAt } : { next: opensAt }) })
