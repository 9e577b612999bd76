import type { FeatureBody, Pauser, Runtime } from "../../core/feature.ts"
import { type Block, modelKey, requestKey, requestKeyOf } from "../../core/limits.ts"
import { classify } from "../../core/outcome.ts"
import { conditionOf, type Pause, type PauseView, type Refusal } from "../../core/pause.ts"
import type { OpencodeEvent } from "../../core/ports.ts"
import type { Parked } from "../../core/record.ts"
import { isWithoutAgent } from "../../core/run/active-run.ts"
import { mayHaveAnswered } from "../../core/run/progress.ts"
import { isActive, isPaused, isQueued, type Model, machineOf, type Reason, type Task } from "../../core/task.ts"
import { duration, formatTime } from "../../lib/format.ts"
import { oneLine } from "../../lib/text.ts"
import {
  answered,
  type Breaker,
  freeRequests,
  inPresent,
  isClosedFor,
  MOST_WAIT_MS,
  mustWaitForBreaker,
  nextProbe,
  recordRefusal,
  resetting,
  sentThrough,
  underWay,
  withdraw,
  withoutUnheard,
} from "./breaker.ts"
import { classifyRefusal, refusalIn } from "./classify.ts"
import { FallbackModels, LONG_CLOSED_MS, NO_CREDIT } from "./fallback-models.ts"
import { LimitNotices, notParkedText } from "./limit-notices.ts"

/** Requests of a task. The entry lives as long as the task's handle in the store. */
type Requests = {
  /** Last refused request of the task. OpenCode reports the same refusal several times. */
  readonly refused?: string
  /**
   * The session's last request, if it is a compaction, whose agent may use another model, or asks a model that the
   * session's user chose.
   */
  readonly other?: { readonly model: string; readonly at: number }
  /** Set if the task's model was replaced while the task was parked. */
  readonly isSwitched?: boolean
}

/** A model counts as overloaded or unreachable at the second refusal of that kind within this time, in ms. */
const TWICE_WITHIN_MS = 10_000

/** After a refusal for lack of credit, the model is not tried again for this long, in ms. */
const UNPAID_MS = 60_000

/** Queued runs are stored as parked only if the breaker opens later than this, in ms. */
const WORTH_KEEPING_MS = 5000

/**
 * Circuit breakers by `provider/model`. Runs that use a model with an open breaker are parked, and continue when it
 * resets; a model that never refused has no breaker.
 */
export class Breakers implements FeatureBody, Pauser {
  readonly pauser = this
  readonly #runtime: Runtime
  readonly #breakers = new Map<string, Breaker>()
  /**
   * When the last request was sent that a model has answered in this process. If a connection to such a model fails, its
   * address is not wrong.
   */
  readonly #answering = new Map<string, number>()
  /**
   * Last refusal of models for lack of credit, which waiting does not change. One refusal counts for all runs.
   */
  readonly #unpaid = new Map<string, { readonly at: number; readonly why: string }>()
  readonly #notices: LimitNotices
  readonly #fallbackModels: FallbackModels
  /** Time of the last overload or failed connection, for each model without a breaker. */
  readonly #failedAt = new Map<string, number>()
  /** Requests of each task, by its handle in the store. */
  readonly #requests = new WeakMap<object, Requests>()

  constructor(runtime: Runtime) {
    this.#runtime = runtime
    this.#notices = new LimitNotices(runtime, (model) => this.#breakerOf(model))
    this.#fallbackModels = new FallbackModels(runtime, {
      opensAt: (model, task) => {
        if (this.refusesModel(model, task) !== undefined) return Number.POSITIVE_INFINITY
        const breaker = this.#breakerOf(requestKey(model, task))
        const isOpen = !breaker || breaker.recovery || freeRequests(breaker, runtime.clock.now()) > 0
        return isOpen ? 0 : nextProbe(breaker)
      },
      switched: (task) => this.#switched(task),
    })
  }

  /**
   * A temporary refusal of a working run trips the breaker of the run's model. The first part of an answer resets the
   * breaker.
   */
  onEvent(event: OpencodeEvent, task: Task | undefined): void {
    if (!this.#runtime.options.gate || !task || !isActive(task) || isQueued(task)) return
    const said = event.type === "answered" ? event.model : undefined
    const key = said ? modelKey(said) : (this.#requestsOf(task)?.other?.model ?? requestKeyOf(task))
    if (key === undefined) return
    if (event.type === "began" || event.type === "answered")
      return this.#heardAnswer(task, key, event.type === "answered")
    const refusal = refusalIn(event)
    const { requestedAt } = this.#runtime.store.run(task.id) ?? {}
    // OpenCode reports a file that it cannot attach like this, before it asks a model.
    const isEarly = event.type === "error" && refusal?.status === undefined && requestedAt === undefined
    if (refusal && !isEarly) this.#heardRefusal(task, key, refusal)
  }

  /** Returns why the provider refuses the model for lack of credit, if it does. */
  refusesModel(model: Model, task?: Task): string | undefined {
    const key = requestKey(model, task)
    const { at, why } = this.#unpaid.get(key) ?? { at: Number.NEGATIVE_INFINITY, why: "" }
    const ago = this.#runtime.clock.now() - at
    // A time in the future is from before the system clock was set back.
    if (ago >= 0 && ago < UNPAID_MS) return `${key} refused another task ${duration(ago)} ago: ${why}`
    this.#unpaid.delete(key)
    return undefined
  }

  #heardRefusal(task: Task, key: string, refusal: Refusal): void {
    const now = this.#runtime.clock.now()
    const { kind, until } = classifyRefusal(refusal, now, this.#answering.has(key))
    const why = oneLine(refusal.message)
    if (kind === "money") {
      // A paused task asks nothing: this is the refusal for which it left another model.
      if (isPaused(task)) return
      this.#unpaid.set(key, { at: now, why })
      this.#stopUnlessAnswered(task, () => this.#leaveUnpaid(task, key, why))
      return this.#runtime.reschedule()
    }
    if (kind === "other") return
    const before = this.#breakerOf(key)
    // OpenCode reports one refusal several times: by an event, and by every poll until the next attempt.
    const isKnown = this.#isKnown(task, refusal)
    if (isKnown && before && underWay(before).includes(task.id)) return
    if (!before && (isKnown || (kind !== "limit" && until === undefined && !this.#failsAgain(key, refusal, now))))
      return
    // A breaker whose time has come blocks nothing, but doubles the wait.
    const kept = this.#breakers.get(key)
    const breaker = recordRefusal(kept, { kind, why, until }, now, isKnown ? 0 : this.#askedAt(task))
    this.#breakers.set(key, breaker)
    this.#runtime.wakeAt(nextProbe(breaker))
    this.#stopUnlessAnswered(task, () => {
      // The model may have answered while the run's messages were read.
      if (breaker.recovery || isClosedFor(this.#breakers.get(key), undefined)) this.#park(task, key, breaker)
    })
    this.#parkUnbegun(key, breaker, now)
    if (breaker !== kept) this.#notices.closed(key, kept)
  }

  /** Ends a task whose own model has no credit. Any other model is given up for the task's own. */
  #leaveUnpaid(task: Task, key: string, why: string): void {
    const { model: own } = task
    if (!own || key !== requestKeyOf(task) || key === requestKey(own, task)) {
      const text = `${why.replace(/\.$/, "")}. This does not pass by waiting.`
      return this.#end(task, { code: "provider", text })
    }
    this.#fallbackModels.give(task, own, NO_CREDIT)
    const now = this.#runtime.clock.now()
    const because = { kind: "limit", why: `no credit for ${key}` } as const
    const seen = this.#breakerOf(requestKey(own, task)) ?? recordRefusal(undefined, because, now)
    this.#park(this.#runtime.store.get(task.id) ?? task, requestKey(own, task), seen)
  }

  #isKnown(task: Task, { attempt }: Refusal): boolean {
    const request = `${task.run.generation}/${this.#askedAt(task)}/${attempt}`
    if (attempt !== undefined && this.#requestsOf(task)?.refused === request) return true
    this.#note(task, { refused: request })
    return false
  }

  /**
   * Whether a refusal trips the breaker. A first overload or broken connection does not, because OpenCode retries it,
   * unless OpenCode has stopped retrying.
   */
  #failsAgain(key: string, { attempt }: Refusal, now: number): boolean {
    const before = this.#failedAt.get(key) ?? Number.NEGATIVE_INFINITY
    this.#failedAt.set(key, now)
    return attempt === undefined || now - before <= TWICE_WITHIN_MS
  }

  blocksRequest(task: Task, other?: Model): boolean {
    const now = this.#runtime.clock.now()
    const key = other ? modelKey(other) : requestKeyOf(task)
    this.#note(task, { other: other && { model: modelKey(other), at: now } })
    if (!other) this.#leaveOthers(task)
    const breaker = key === undefined ? undefined : this.#breakerOf(key)
    if (key === undefined || !breaker || !isClosedFor(breaker, task.id)) return false
    // The breaker's time has come and no probe is under way: this request becomes the probe.
    if (freeRequests(breaker, now) > 0) {
      this.#breakers.set(key, sentThrough(breaker, task.id, now))
      this.#runtime.wakeAt(nextProbe(sentThrough(breaker, task.id, now)))
      return false
    }
    const looks = this.#stopUnlessAnswered(task, () => this.#park(task, key, breaker))
    // A request that cannot be parked, such as a user's turn, goes on: OpenCode retries it.
    if (looks) return this.#runtime.store.run(task.id)?.prompt !== undefined
    const after = this.#runtime.store.get(task.id)
    return !after || !isActive(after) || isPaused(after)
  }

  /**
   * While a breaker is tripped, runs that wait for its model are sent in order: one as the probe, then the others in
   * waves.
   */
  blocks(task: Task): Block | undefined {
    if (task.group || !(isQueued(task) || isPaused(task))) return undefined
    const key = this.#modelOf(task)
    const breaker = key === undefined ? undefined : this.#breakerOf(key)
    if (breaker && !this.#admits(breaker, task)) return { by: "rate limit", behind: key, until: nextProbe(breaker) }
    const model = this.#runtime.store.isUnbegun(task) && !task.run.model ? task.model : undefined
    const unpaid = model && this.refusesModel(model, task)
    if (unpaid === undefined) return undefined
    return { by: "rate limit", ends: { type: "failed", reason: { code: "provider", text: `Not begun: ${unpaid}` } } }
  }

  #admits(breaker: Breaker, task: Task): boolean {
    // A task whose session is still being created is not sent: its request would show too late whether the provider
    // answers.
    if (!this.#runtime.store.get(task.id)) return false
    return !mustWaitForBreaker(breaker, task.id) || freeRequests(breaker, this.#runtime.clock.now()) > 0
  }

  admitted(task: Task): void {
    const key = this.#modelOf(task)
    const breaker = key === undefined ? undefined : this.#breakerOf(key)
    this.#note(task, { isSwitched: false })
    if (key === undefined || !breaker || task.group) return
    const next = sentThrough(breaker, task.id, this.#runtime.clock.now())
    this.#breakers.set(key, next)
    this.#runtime.wakeAt(nextProbe(next))
  }

  limitOf(model: Model, task?: Task): PauseView | undefined {
    const waitsFor = requestKey(model, task)
    const breaker = this.#breakerOf(waitsFor)
    if (!breaker || (task && !isActive(task))) return undefined
    const isClosed = task && isQueued(task) ? mustWaitForBreaker(breaker, task.id) : isClosedFor(breaker, task?.id)
    return isClosed ? { waitsFor, ...tellingOf(breaker) } : undefined
  }

  afterRestart(task: Task): (() => void) | undefined {
    const { parked } = task.run
    return parked && this.#runtime.options.gate ? () => this.#restore(task, parked) : undefined
  }

  /**
   * Restores the breaker of a run that an earlier process parked. A run that already uses a fallback model keeps that
   * model.
   */
  #restore(task: Task, { at, until, model, why, kind = "limit" }: Parked): void {
    if (requestKeyOf(task) !== model) return this.#switched(task)
    const before = this.#breakers.get(model)
    // The runs of one breaker were parked one after the other: that is no series of refusals.
    const found = recordRefusal(before && at <= before.closedAt ? before : undefined, { kind, why, until }, at, at)
    const now = this.#runtime.clock.now()
    const isOver = found.opensAt <= now || (this.#answering.get(model) ?? 0) > at
    const breaker = isOver ? (before ?? resetting(found, now)) : found
    this.#breakers.set(model, breaker)
    this.#notices.recordReport(model, { at, opensAt: breaker.opensAt })
    this.#runtime.wakeAt(breaker.opensAt)
  }

  retryNow(task: Task, { waitsFor, kind = "limit" }: Pause, model?: Model) {
    const key = model ? requestKey(model, task) : waitsFor
    const breaker = this.#breakerOf(key)
    const others = breaker ? this.#waiting(key).filter(({ id }) => id !== task.id).length : 0
    if (breaker) this.#breakers.set(key, sentThrough(breaker, task.id, this.#runtime.clock.now()))
    if (model) this.#fallbackModels.give(task, model, kind)
    else this.#runtime.reschedule()
    return { model: key, others }
  }

  /** Ends runs that have been parked for too long, and stores queued runs that wait for a model as parked. */
  review(): void {
    const now = this.#runtime.clock.now()
    for (const key of this.#breakers.keys()) {
      this.#endOverdue(key, now)
      this.#review(key, now)
    }
  }

  /**
   * Returns a model's breaker. A breaker for which no run waits is none once its time has come, even if the clock did not
   * run in between. After a guessed time it is kept for a while, so that the wait doubles if the next request is refused.
   */
  #breakerOf(key: string): Breaker | undefined {
    const now = this.#runtime.clock.now()
    const found = this.#breakers.get(key)
    const breaker = found && inPresent(found, now)
    if (breaker && breaker !== found) this.#breakers.set(key, breaker)
    if (!breaker?.deserted || freeRequests(breaker, now) === 0) return breaker
    if (breaker.stated || now - breaker.opensAt >= MOST_WAIT_MS) this.#breakers.delete(key)
    return undefined
  }

  #switched(task: Task): void {
    this.#note(task, { isSwitched: isPaused(task) })
    this.#leaveOthers(task)
    this.#runtime.reschedule()
  }

  /** Lets other runs probe the models that are not the task's own: it does not ask them now. */
  #leaveOthers(task: Task): void {
    const own = requestKeyOf(task)
    const others = [...this.#breakers].filter(([key, breaker]) => key !== own && underWay(breaker).includes(task.id))
    for (const [key, breaker] of others) this.#breakers.set(key, withdraw(breaker, task.id))
    if (others.length > 0) this.#runtime.reschedule()
  }

  /** Returns the task's requests, also while its session is still being created. */
  #requestsOf({ id }: Task): Requests | undefined {
    const handle = this.#runtime.store.handle(id)
    return handle && this.#requests.get(handle)
  }

  /** Of most tasks there is nothing to note. They get no entry, since many ended tasks are kept. */
  #note(task: Task, noted: Requests): void {
    const handle = this.#runtime.store.handle(task.id)
    const known = this.#requestsOf(task)
    if (handle && (known || Object.values(noted).some(Boolean))) this.#requests.set(handle, { ...known, ...noted })
  }

  #heardAnswer(task: Task, key: string, isWhole: boolean): void {
    const sentAt = this.#askedAt(task)
    this.#answering.set(key, Math.max(sentAt, this.#answering.get(key) ?? 0))
    this.#unpaid.delete(key)
    const breaker = this.#breakerOf(key)
    if (!breaker && isWhole) this.#breakers.delete(key)
    if (!breaker) return
    this.#breakers.set(key, answered(breaker, { taskID: task.id, sentAt, isWhole }))
    this.#runtime.reschedule()
  }

  /**
   * Stops a run whose request is refused. A run that has answered already keeps its answer: OpenCode only compacts behind
   * it, so the session is stopped and the run's messages end the run. True while these messages are read. The answer of a
   * run with tasks of its own is not final, and its stopped session would not be woken.
   */
  #stopUnlessAnswered(task: Task, stop: () => void): boolean {
    const { background, opencode, store } = this.#runtime
    const { id, sessionID } = task
    const run = store.run(id)
    const isAnswered = run?.stage === "working" && mayHaveAnswered(run.observed)
    if (!run || !isAnswered || store.hasOpen(sessionID)) {
      stop()
      return false
    }
    background.run("look for an answer", async () => {
      try {
        const messages = await opencode.messagesSince(sessionID, task.run.promptID)
        // Also where the run is over by now: nothing else would stop a turn whose request is held.
        const now = store.run(id)
        if (now && now.generation !== run.generation) return
        const isOver = now?.stageCount !== run.stageCount
        if (isOver || classify(messages, "idle").type === "completed") return await opencode.abort(sessionID)
      } catch {
        // Without its messages, the run is stopped like any other.
      }
      stop()
    })
    return true
  }

  /** Time at which the task's current request was sent. */
  #askedAt(task: Task): number {
    const { id, run } = task
    // Of another machine's requests nothing is heard, so the time at which the run went on stands for the last one.
    const { requestedAt, continuedAt = 0 } = this.#runtime.store.run(id) ?? {}
    return this.#requestsOf(task)?.other?.at ?? requestedAt ?? Math.max(run.startedAt ?? 0, continuedAt)
  }

  /** `seen`: the breaker for which the run is parked. An answer may have reset it since: the run then goes on at once. */
  #park(task: Task, model: string, seen: Breaker): void {
    const { clock, options } = this.#runtime
    const now = clock.now()
    const breaker = this.#breakerOf(model)
    const parked = { at: now, model, why: seen.why, ...tellingOf(breaker ?? { ...seen, opensAt: now }) }
    const patience = options.maxParked - (task.run.parkedMs ?? 0)
    const isPresent = requestKeyOf(task) === model
    const others = isPresent ? this.#fallbackModels.opensAt(task) : Number.POSITIVE_INFINITY
    const isTooLong = breaker?.stated && !breaker.recovery && Math.min(breaker.opensAt, others) - now > patience
    if (options.maxParked > 0 && isTooLong)
      return this.#end(task, { code: "limit", text: notParkedText(model, breaker, now) })
    this.#note(task, { isSwitched: false })
    this.#runtime.pause(task, parked)
    if (options.maxParked > 0) this.#runtime.wakeAt(now + patience)
    if (!breaker) return
    if (this.#fallbackModels.has(task) && isPresent) {
      this.#runtime.wakeAt(now + LONG_CLOSED_MS)
      this.#goRound(model, breaker, now)
    }
    // The parked run is removed from the breaker, so that another run may probe the provider.
    const next = withdraw(this.#breakers.get(model) ?? breaker, task.id)
    this.#breakers.set(model, next)
    this.#runtime.wakeAt(nextProbe(next))
  }

  /** Stores queued runs as parked, so that a restart does not lose them. */
  #parkUnbegun(key: string, breaker: Breaker, now: number): void {
    if (breaker.recovery || breaker.probe || breaker.opensAt - now < WORTH_KEEPING_MS) return
    for (const task of this.#waiting(key).filter(isQueued)) this.#park(task, key, breaker)
  }

  #review(key: string, now: number): void {
    const found = this.#breakerOf(key)
    if (!found) return
    const [first] = underWay(found)
    const asking = first === undefined ? undefined : this.#runtime.store.get(first)
    let breaker = withoutUnheard(found, now, asking && machineOf(asking) !== undefined)
    for (const id of underWay(breaker)) if (!this.#isAsking(id)) breaker = withdraw(breaker, id)
    const waiting = this.#waiting(key)
    const isNeeded = waiting.length > 0 || this.#isDoubtful(key, breaker)
    breaker = { ...breaker, deserted: !isNeeded && breaker.probe === undefined }
    this.#breakers.set(key, breaker)
    this.#goRound(key, breaker, now)
    if (!isNeeded && breaker.recovery) this.#breakers.delete(key)
    // A wake may wait for the probe's result although no run does.
    if (waiting.length === 0 && breaker.probe) this.#runtime.wakeAt(nextProbe(breaker))
    if (waiting.length === 0 || freeRequests(breaker, now) > 0) return
    this.#parkUnbegun(key, breaker, now)
    this.#runtime.wakeAt(nextProbe(breaker))
  }

  /**
   * Whether a refused model has only begun to answer a run. If that answer breaks off, the wait must double, although
   * no other run waits.
   */
  #isDoubtful(key: string, { recovery, refused }: Breaker): boolean {
    if (!recovery || refused === 0) return false
    const isWorking = (task: Task) => !task.group && !isQueued(task) && !isPaused(task) && this.#isAsking(task.id)
    return this.#runtime.store.active().some((task) => this.#modelOf(task) === key && isWorking(task))
  }

  /** Whether a run that was sent will soon ask a model. A run whose place is still being prepared will not. */
  #isAsking(id: string): boolean {
    const { store } = this.#runtime
    const task = store.get(id)
    const run = store.run(id)
    return task !== undefined && isActive(task) && !this.#runtime.waitsForTasks(task) && !(run && isWithoutAgent(run))
  }

  /** Gives runs with fallback models another model if this one stays blocked for long. */
  #goRound(key: string, breaker: Breaker, now: number): void {
    if (breaker.recovery) return
    const isLong = breaker.stated && breaker.opensAt - now > LONG_CLOSED_MS
    const waited = ({ run }: Task) => (run.parked ? now - run.parked.at : 0) + (run.parkedMs ?? 0)
    const own = this.#waiting(key).filter((task) => requestKeyOf(task) === key)
    const tired = own.filter((task) => isLong || waited(task) >= LONG_CLOSED_MS)
    this.#fallbackModels.choose(
      tired,
      breaker.stated ? `${breaker.kind} until ${formatTime(breaker.opensAt, now)}` : breaker.kind,
    )
  }

  /** Tasks that wait for a model, found anew at each call. */
  #waiting(key: string): readonly Task[] {
    const waits = (task: Task) =>
      isPaused(task) || (isQueued(task) && !task.group && !this.#runtime.waitsForTasks(task))
    return this.#runtime.store.active().filter((task) => this.#modelOf(task) === key && waits(task))
  }

  /** The model for which a task waits, or would wait: its own, or, for a parked task, the model that refused it. */
  #modelOf(task: Task): string | undefined {
    const { parked } = task.run
    return parked && !this.#requestsOf(task)?.isSwitched ? parked.model : requestKeyOf(task)
  }

  #endOverdue(key: string, now: number): void {
    const { maxParked } = this.#runtime.options
    const breaker = this.#breakerOf(key)
    // If a probe is due, perhaps after a long sleep, no run ends yet: only a run that is then refused has waited too
    // long.
    if (maxParked === 0 || !breaker || breaker.recovery || breaker.probe || freeRequests(breaker, now) > 0) return
    for (const task of this.#waiting(key)) {
      const { parked, parkedMs = 0 } = task.run
      const waited = parked ? now - parked.at + parkedMs : 0
      if (!parked || waited < maxParked) continue
      const text = `Parked for ${duration(waited)}: ${key} ${conditionOf(breaker.kind)}: ${parked.why}`
      this.#end(task, { code: "limit", text })
    }
  }

  #end(task: Task, reason: Reason): void {
    this.#runtime.end(task, { type: "failed", reason })
  }
}

const tellingOf = ({ stated, opensAt, kind }: Breaker) => ({
  kind,
  ...(stated ? { until: opensAt } : { next: opensAt }),
})
