import {
  answered,
  close,
  type Gate,
  isClosedFor,
  isHeldBack,
  mayGo,
  nextProbe,
  underWay,
  went,
  withdrawn,
  withoutUnheard,
} from "../../core/gate.ts"
import { modelKey, modelKeyOf } from "../../core/limits.ts"
import type { HostEvent } from "../../core/ports.ts"
import { conditionOf, type Refusal, sortRefusal } from "../../core/refusal.ts"
import { type Parked, type Standing, standOf, whenOf } from "../../core/standstill.ts"
import { isActive, isParked, isQueued, type Model, type Reason, type Task } from "../../core/task.ts"
import { duration } from "../../lib/duration.ts"
import { moment } from "../../lib/moment.ts"
import { oneLine } from "../../lib/text.ts"
import type { Conductor } from "../conductor/conductor.ts"
import { Instead, LONG_CLOSED_MS } from "../conductor/instead.ts"
import { beyond, Notices } from "../conductor/notices.ts"
import type { Parts } from "../parts.ts"
import type { Keeper } from "./keepers.ts"
import { firstOf, Line } from "./line.ts"
import { refusalIn } from "./refused.ts"
import { Unpaid } from "./unpaid.ts"
import { Unwoken } from "./unwoken.ts"

export type GatePorts = {
  readonly conductor: Conductor
  /** Runs wait that may begin now. */
  readonly pump: () => void
  /** Whether a run could begin now, or go on, if its model were open. */
  readonly hasSlot: (taskID: string) => boolean
  readonly at: (time: number) => void
  /** What was told of a task is to start its parent's model now. */
  readonly rouse: (task: Task) => void
}

/** A model is taken for overloaded, or out of reach, at the second refusal of that kind within so long, in ms. */
const TWICE_WITHIN_MS = 10_000

/** What has not begun is not written down for a gate that is closed for less. */
const WORTH_KEEPING_MS = 5000

/**
 * The circuit breakers of the models that refused, one for each `provider/model`: who meets a tripped one is parked, and
 * goes on when it resets. Nothing is kept of a model that was never refused.
 */
export class Gates implements Keeper<"parked"> {
  readonly #parts: Parts
  readonly #ports: GatePorts
  readonly #gates = new Map<string, Gate>()
  /** Models that have answered in this process: a connection to them that fails is no wrong address. */
  readonly #answering = new Set<string>()
  readonly #unpaid = new Unpaid()
  readonly #notices: Notices
  readonly #instead: Instead
  readonly #unwoken = new Unwoken()
  readonly #line: Line
  /** By model: when it was last overloaded or out of reach without a breaker. */
  readonly #failedAt = new Map<string, number>()

  constructor(parts: Parts, ports: GatePorts) {
    this.#parts = parts
    this.#ports = ports
    this.#line = new Line(parts.store)
    this.#notices = new Notices(parts, { gateOf: (model) => this.#gateOf(model), at: ports.at })
    this.#instead = new Instead(parts, {
      isOpen: (model) => {
        const gate = this.#gateOf(model)
        return gate === undefined || gate.opening !== undefined || mayGo(gate, parts.clock.now()) > 0
      },
      switched: (task) => this.#switched(task),
    })
  }

  /**
   * What its own session's host tells of a run: refusals that pass trip its model's breaker, the first part of an answer
   * resets it.
   */
  hear(task: Task, event: HostEvent): void {
    if (!this.#parts.options.gate) return
    const said = event.type === "answered" ? event.model : undefined
    const key = said ? modelKey(said) : (this.#parts.store.entry(task.id)?.compaction?.model ?? modelKeyOf(task))
    if (key === undefined) return
    if (event.type === "began" || event.type === "answered")
      return this.#heardAnswer(task, key, event.type === "answered")
    const refusal = refusalIn(event, () => this.#parts.host.refusal(task.sessionID))
    if (refusal) this.#heardRefusal(task, key, refusal)
  }

  /** Why a model is not to be asked at all: nobody pays for it. Undefined where it may be. */
  unpaid(model: Model | undefined): string | undefined {
    return model && this.#unpaid.reason(modelKey(model), this.#parts.clock.now())
  }

  /** Whether a session's model is at its limit: news start nothing there, and `task` is told anew when it opens. */
  keepsFromWaking(task: Task, model: Model | undefined): boolean {
    const gate = model && this.#gateOf(modelKey(model))
    if (!model || !gate || gate.opening) return false
    this.#unwoken.note(modelKey(model), task)
    this.#ports.at(gate.opensAt)
    return true
  }

  /** Whether sessions are to be woken when a model opens. */
  get owesWaking(): boolean {
    return !this.#unwoken.isEmpty
  }

  /** Whether this session is to be woken when its model opens. */
  owes(sessionID: string): boolean {
    return this.#unwoken.owes(sessionID)
  }

  #heardRefusal(task: Task, key: string, refusal: Refusal): void {
    const now = this.#parts.clock.now()
    const { kind, until } = sortRefusal(refusal, now, this.#answering.has(key))
    const why = oneLine(refusal.message)
    if (kind === "money") {
      this.#unpaid.refused(key, { at: now, why })
      this.#end(task, { code: "provider", text: `${why.replace(/\.$/, "")}. This does not pass by waiting.` })
      return this.#ports.pump()
    }
    if (kind === "other") return
    const before = this.#gateOf(key)
    // One refusal is told of by its event and by each look at the host until that asks again.
    const isKnown = this.#isKnown(task, refusal)
    if (isKnown && before && underWay(before).includes(task.id)) return
    if (!before && (isKnown || (kind !== "limit" && until === undefined && !this.#failsAgain(key, refusal, now))))
      return
    const gate = close(before, { kind, why, until }, now, isKnown ? 0 : this.#askedAt(task))
    this.#gates.set(key, gate)
    this.#ports.at(nextProbe(gate))
    this.#park(task, key, gate)
    this.#parkUnbegun(key, gate, now)
    if (gate !== before) this.#notices.closed(key, before)
  }

  #isKnown(task: Task, { attempt }: Refusal): boolean {
    const request = `${task.run.generation}/${this.#askedAt(task)}/${attempt}`
    const entry = this.#parts.store.entry(task.id)
    if (attempt !== undefined && entry?.refused === request) return true
    if (entry) entry.refused = request
    return false
  }

  /** One overload, or one broken connection, is left to the host, which asks again by itself; unless it has given up. */
  #failsAgain(key: string, { attempt }: Refusal, now: number): boolean {
    const before = this.#failedAt.get(key) ?? Number.NEGATIVE_INFINITY
    this.#failedAt.set(key, now)
    return attempt === undefined || now - before <= TWICE_WITHIN_MS
  }

  /**
   * A request of a run is about to be sent, or with `other` one to that model which compacts its session. True where it
   * must not be: then the run is parked.
   */
  holds(task: Task, other?: Model): boolean {
    const now = this.#parts.clock.now()
    const key = other ? modelKey(other) : modelKeyOf(task)
    const entry = this.#parts.store.entry(task.id)
    if (entry) entry.compaction = other && { model: modelKey(other), at: now }
    const gate = key === undefined ? undefined : this.#gateOf(key)
    if (key === undefined || !gate || !isClosedFor(gate, task.id)) return false
    // Its time has come, and nobody is on the way to see.
    if (mayGo(gate, now) > 0) {
      this.#gates.set(key, went(gate, task.id, now))
      this.#ports.at(nextProbe(went(gate, task.id, now)))
      return false
    }
    this.#park(task, key, gate)
    // What cannot be parked (its user's own turn, one that has not begun) the host tries again by itself.
    const after = this.#parts.store.get(task.id)
    return !after || !isActive(after) || isParked(after)
  }

  /** Whether a task that waits for a slot may have none: its model's gate does not let it go. */
  closedFor(task: Task): boolean {
    const key = this.#line.modelOf(task)
    if (key === undefined) return false
    const gate = this.#gateOf(key)
    // A parked one was let go before it asks for a slot; who stood still for another reason meets the gate at its request.
    return task.run.parked ? isClosedFor(gate, task.id) : !standOf(task.run) && isHeldBack(gate, task.id)
  }

  /** The limit that a task's model is at, for who is not to send requests now. */
  limitOf(task: Task): Standing | undefined {
    const model = modelKeyOf(task)
    const gate = model && this.#gateOf(model)
    if (!gate || !isActive(task) || !isClosedFor(gate, task.id)) return undefined
    return { way: "parked", behind: model, ...tellingOf(gate) }
  }

  /** The limit for which a task waits that has not begun, in words; undefined where it waits for none. */
  holdsBack(task: Task): string | undefined {
    const model = modelKeyOf(task)
    const gate = model && isQueued(task) ? this.#gateOf(model) : undefined
    if (!model || !gate || !isHeldBack(gate, task.id)) return undefined
    const when = whenOf(tellingOf(gate), this.#parts.clock.now())
    return when ? `${model}, which ${conditionOf(gate.kind)} (${when.text})` : `${model} (others try it first)`
  }

  outlivesRestart(): boolean {
    return this.#parts.options.gate !== false
  }

  /** A parked run that an earlier process left: its gate is as it was. One that was given another model goes on with that. */
  rebuild(task: Task, { at, until, model, why, kind = "limit" }: Parked): void {
    if (modelKeyOf(task) !== model) return this.#switched(task)
    const gate = close(this.#gates.get(model), { kind, why, until }, at, at)
    this.#gates.set(model, gate)
    this.#notices.wasTold(model, { at, opensAt: gate.opensAt })
    this.#ports.at(gate.opensAt)
  }

  /** Somebody wants it tried now. */
  tryNow(task: Task, parked: Parked, model?: Model): { readonly model: string; readonly others: number } {
    if (model) {
      const others = this.#waiting(parked.model).length - 1
      this.#instead.give(task, model, parked.kind ?? "limit")
      return { model: modelKey(model), others: modelKey(model) === parked.model ? others : 0 }
    }
    const gate = this.#gates.get(parked.model)
    if (gate) this.#gates.set(parked.model, went(gate, task.id, this.#parts.clock.now()))
    this.#ports.conductor.deliver(task.id, { type: "opened" })
    return { model: parked.model, others: this.#waiting(parked.model).filter(({ id }) => id !== task.id).length }
  }

  /** Lets go who may, and ends who has waited for too long. Called by the clock, and when a run has come, ended or answered. */
  look(): void {
    const now = this.#parts.clock.now()
    this.#notices.look()
    for (const key of this.#gates.keys()) {
      this.#endOverdue(key, now)
      this.#letGo(key, now)
    }
  }

  /** A breaker for which nobody waits is forgotten when its time has come, whether or not the clock went on until then. */
  #gateOf(key: string): Gate | undefined {
    const gate = this.#gates.get(key)
    if (!gate?.deserted || this.#unwoken.has(key) || mayGo(gate, this.#parts.clock.now()) === 0) return gate
    this.#gates.delete(key)
    return undefined
  }

  #switched(task: Task): void {
    for (const [key, gate] of this.#gates) if (key !== modelKeyOf(task)) this.#gates.set(key, withdrawn(gate, task.id))
    if (isParked(task)) this.#ports.conductor.deliver(task.id, { type: "opened" })
    this.#ports.pump()
  }

  #heardAnswer(task: Task, key: string, isWhole: boolean): void {
    this.#answering.add(key)
    this.#unpaid.answered(key)
    const gate = this.#gateOf(key)
    if (!gate) return
    this.#gates.set(key, answered(gate, { taskID: task.id, sentAt: this.#askedAt(task), isWhole }))
    this.#letGo(key, this.#parts.clock.now())
  }

  /** When the request was sent that is under way. */
  #askedAt({ id, run }: Task): number {
    const { store } = this.#parts
    return store.entry(id)?.compaction?.at ?? store.run(id)?.requestedAt ?? run.startedAt ?? 0
  }

  #park(task: Task, model: string, gate: Gate): void {
    const { clock, options } = this.#parts
    const now = clock.now()
    const parked = { at: now, model, why: gate.why, ...tellingOf(gate) }
    const patience = options.maxParked - (task.run.parkedMs ?? 0)
    if (options.maxParked > 0 && gate.told && gate.opensAt - now > patience && !this.#isGoneRound(task, model))
      return void this.#end(task, { code: "limit", text: beyond(model, gate, now) })
    this.#ports.conductor.deliver(task.id, { type: "refused", parked })
    if (options.maxParked > 0) this.#ports.at(now + patience)
    if (this.#instead.has(task) && modelKeyOf(task) === model) {
      this.#ports.at(now + LONG_CLOSED_MS)
      this.#goRound(model, gate, now)
    }
    // Another may see whether it has opened.
    const next = withdrawn(this.#gates.get(model) ?? gate, task.id)
    this.#gates.set(model, next)
    this.#ports.at(nextProbe(next))
  }

  /** What waits for a slot would be lost with this process; it is kept where it is worth that. */
  #parkUnbegun(key: string, gate: Gate, now: number): void {
    if (gate.opening || gate.probe || gate.opensAt - now < WORTH_KEEPING_MS) return
    for (const task of this.#line.unbegun(key, gate)) this.#park(task, key, gate)
  }

  #letGo(key: string, now: number): void {
    const found = this.#gateOf(key)
    if (!found) return
    let gate = withoutUnheard(found, now)
    for (const id of underWay(gate)) if (!this.#line.has(id)) gate = withdrawn(gate, id)
    const waiting = this.#line.at(key, gate)
    gate = { ...gate, deserted: waiting.length === 0 && gate.probe === undefined }
    this.#gates.set(key, gate)
    this.#goRound(key, gate, now)
    // Where nobody is parked who could try, a session that is woken does.
    const isOpen = gate.opening !== undefined || (waiting.length === 0 && now >= gate.opensAt && this.#unwoken.has(key))
    if (isOpen) for (const task of this.#unwoken.take(key)) this.#ports.rouse(task)
    if (waiting.length === 0) return this.#settle(key, gate, isOpen)
    const many = mayGo(gate, now)
    if (many === 0) {
      this.#parkUnbegun(key, gate, now)
      return this.#ports.at(nextProbe(gate))
    }
    const going = firstOf(waiting, many, ({ id }) => this.#ports.hasSlot(id))
    if (going.length === 0) return
    // All of them are noted before the first goes: its going is a reason to look again.
    for (const { id } of going) gate = went(gate, id, now)
    this.#gates.set(key, gate)
    this.#ports.at(nextProbe(gate))
    for (const { id } of going) this.#ports.conductor.deliver(id, { type: "opened" })
    this.#ports.pump()
    // One that makes its place ready first is no probe: another goes meanwhile.
    if (going.some(({ id }) => !this.#line.has(id))) this.#letGo(key, now)
  }

  /** Nobody waits for it: it is forgotten once it has reset. */
  #settle(key: string, gate: Gate, isOpen: boolean): void {
    if (isOpen) {
      this.#gates.delete(key)
      return this.#ports.pump()
    }
    // Whoever is to be woken at its time.
    if (this.#unwoken.has(key)) this.#ports.at(gate.opensAt)
  }

  /** Those for whom the user named other models do not wait for one that stays closed for long. */
  #goRound(key: string, gate: Gate, now: number): void {
    if (gate.opening) return
    const isLong = gate.told && gate.opensAt - now > LONG_CLOSED_MS
    const waited = ({ run }: Task) => (run.parked ? now - run.parked.at : 0) + (run.parkedMs ?? 0)
    const own = this.#waiting(key).filter((task) => modelKeyOf(task) === key)
    const tired = own.filter((task) => isLong || waited(task) >= LONG_CLOSED_MS)
    this.#instead.choose(tired, gate.told ? `${gate.kind} until ${moment(gate.opensAt, now)}` : gate.kind)
  }

  #isGoneRound(task: Task, model: string): boolean {
    return modelKeyOf(task) === model && this.#instead.isDue(task)
  }

  #waiting(key: string): readonly Task[] {
    return this.#line.at(key, this.#gates.get(key))
  }

  #endOverdue(key: string, now: number): void {
    const { maxParked } = this.#parts.options
    const gate = this.#gateOf(key)
    // Whether it has opened is about to be seen, perhaps after a long sleep: who is refused then has waited for too long.
    if (maxParked === 0 || !gate || gate.opening || gate.probe || mayGo(gate, now) > 0) return
    for (const task of this.#waiting(key)) {
      const { parked, parkedMs = 0 } = task.run
      const waited = parked ? now - parked.at + parkedMs : 0
      if (!parked || waited < maxParked) continue
      const text = `Parked for ${duration(waited)}: ${key} ${conditionOf(gate.kind)}: ${parked.why}`
      this.#end(task, { code: "limit", text })
    }
  }

  #end({ id, run }: Task, reason: Reason): boolean {
    return this.#ports.conductor.end(id, run.generation, { type: "failed", reason })
  }
}

const tellingOf = ({ told, opensAt, kind }: Gate) => ({ kind, ...(told ? { until: opensAt } : { next: opensAt }) })
