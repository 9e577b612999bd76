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
} from "../../core/gate.ts"
import { modelKey, modelKeyOf } from "../../core/limits.ts"
import type { HostEvent } from "../../core/ports.ts"
import { type Refusal, sortRefusal } from "../../core/refusal.ts"
import { type Parked, type Standing, standOf } from "../../core/standstill.ts"
import { isActive, isParked, type Model, type Reason, type Task } from "../../core/task.ts"
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

/** What has not begun is not written down for a gate that is closed for less. */
const WORTH_KEEPING_MS = 5000

/**
 * The gates of the models that refused, one for each `provider/model`: who meets a closed one is parked, and goes on
 * when it opens. Nothing is kept of a model that was never refused.
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

  constructor(parts: Parts, ports: GatePorts) {
    this.#parts = parts
    this.#ports = ports
    this.#line = new Line(parts.store)
    this.#notices = new Notices(parts, { gateOf: (model) => this.#gates.get(model), at: ports.at })
    this.#instead = new Instead(parts, {
      isOpen: (model) => {
        const gate = this.#gates.get(model)
        return gate === undefined || gate.opening !== undefined || mayGo(gate, parts.clock.now()) > 0
      },
      switched: (task) => this.#switched(task),
    })
  }

  /** What its own session's host tells of a run: a refusal that passes closes its model's gate, an answer opens it. */
  hear(task: Task, event: HostEvent): void {
    const key = modelKeyOf(task)
    if (!this.#parts.options.gate || key === undefined) return
    if (event.type === "answered") return this.#heardAnswer(task, key)
    const refusal = refusalIn(event, () => this.#parts.host.refusal(task.sessionID))
    if (refusal) this.#heardRefusal(task, key, refusal)
  }

  /** Why a model is not to be asked at all: nobody pays for it. Undefined where it may be. */
  unpaid(model: Model | undefined): string | undefined {
    return model && this.#unpaid.reason(modelKey(model), this.#parts.clock.now())
  }

  /** Whether a session's model is at its limit: news start nothing there, and `task` is told anew when it opens. */
  keepsFromWaking(task: Task, model: Model | undefined): boolean {
    const gate = model && this.#gates.get(modelKey(model))
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
    const before = this.#gates.get(key)
    const gate = close(before, { kind, why, until }, now, this.#askedAt(task))
    this.#gates.set(key, gate)
    this.#ports.at(gate.opensAt)
    this.#park(task, key, gate)
    this.#parkUnbegun(key, gate, now)
    if (gate !== before) this.#notices.closed(key, before)
  }

  /** A request of a run is about to be sent. True where it must not be: then the run is parked. */
  holds(task: Task): boolean {
    const key = modelKeyOf(task)
    const gate = key === undefined ? undefined : this.#gates.get(key)
    if (key === undefined || !gate || !isClosedFor(gate, task.id)) return false
    this.#park(task, key, gate)
    // What cannot be parked (its user's own turn, one that has not begun) the host tries again by itself.
    const after = this.#parts.store.get(task.id)
    return !after || !isActive(after) || isParked(after)
  }

  /** Whether a task that waits for a slot may have none: its model's gate does not let it go. */
  closedFor(task: Task): boolean {
    const key = modelKeyOf(task)
    if (key === undefined) return false
    const gate = this.#gates.get(key)
    // A parked one was let go before it asks for a slot; who stood still for another reason meets the gate at its request.
    return task.run.parked ? isClosedFor(gate, task.id) : !standOf(task.run) && isHeldBack(gate, task.id)
  }

  /** The limit that a task's model is at, for who is not to send requests now. */
  limitOf(task: Task): Standing | undefined {
    const model = modelKeyOf(task)
    const gate = model && this.#gates.get(model)
    if (!gate || !isActive(task) || !isClosedFor(gate, task.id)) return undefined
    return { way: "parked", behind: model, ...(gate.told ? { until: gate.opensAt } : { next: gate.opensAt }) }
  }

  outlivesRestart(): boolean {
    return this.#parts.options.gate !== false
  }

  /** A parked run that an earlier process left: its gate is as it was. One that was given another model goes on with that. */
  rebuild(task: Task, { at, until, model, why }: Parked): void {
    if (modelKeyOf(task) !== model) return this.#switched(task)
    const gate = close(this.#gates.get(model), { kind: "limit", why, until }, at, at)
    this.#gates.set(model, gate)
    this.#notices.wasTold(model, { at, opensAt: gate.opensAt })
    this.#ports.at(gate.opensAt)
  }

  /** Somebody wants it tried now. */
  tryNow(task: Task, parked: Parked, model?: Model): { readonly model: string; readonly others: number } {
    if (model) {
      const others = this.#waiting(parked.model).length - 1
      this.#instead.give(task, model, "limit")
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

  #switched(task: Task): void {
    if (isParked(task)) this.#ports.conductor.deliver(task.id, { type: "opened" })
    this.#ports.pump()
  }

  #heardAnswer(task: Task, key: string): void {
    this.#answering.add(key)
    this.#unpaid.answered(key)
    const gate = this.#gates.get(key)
    if (!gate) return
    this.#gates.set(key, answered(gate, task.id, this.#askedAt(task)))
    this.#letGo(key, this.#parts.clock.now())
  }

  /** When the request was sent that is under way. */
  #askedAt({ id, run }: Task): number {
    return this.#parts.store.run(id)?.requestedAt ?? run.startedAt ?? 0
  }

  #park(task: Task, model: string, gate: Gate): void {
    const { clock, options } = this.#parts
    const now = clock.now()
    const when = gate.told ? { until: gate.opensAt } : { next: gate.opensAt }
    const parked = { at: now, model, why: gate.why, ...when }
    const patience = options.maxParked - (task.run.parkedMs ?? 0)
    if (options.maxParked > 0 && gate.told && gate.opensAt - now > patience && !this.#instead.isDue(task))
      return void this.#end(task, { code: "limit", text: beyond(model, gate, now) })
    this.#ports.conductor.deliver(task.id, { type: "refused", parked })
    if (options.maxParked > 0) this.#ports.at(now + patience)
    if (this.#instead.has(task)) {
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
    let gate = this.#gates.get(key)
    if (!gate) return
    for (const id of underWay(gate)) if (!this.#line.has(id, key)) gate = withdrawn(gate, id)
    this.#gates.set(key, gate)
    const waiting = this.#waiting(key)
    this.#goRound(key, gate, now)
    // Where nobody is parked who could try, a session that is woken does.
    const isOpen = gate.opening !== undefined || (waiting.length === 0 && now >= gate.opensAt && this.#unwoken.has(key))
    if (isOpen) for (const task of this.#unwoken.take(key)) this.#ports.rouse(task)
    if (waiting.length === 0) {
      // Where it is still closed its time may be over: whoever comes is looked at then, and who is to be woken at its time.
      if (!isOpen) return this.#unwoken.has(key) ? this.#ports.at(gate.opensAt) : undefined
      this.#gates.delete(key)
      return this.#ports.pump()
    }
    const many = mayGo(gate, now)
    if (many === 0) {
      this.#parkUnbegun(key, gate, now)
      return this.#ports.at(nextProbe(gate))
    }
    const going = firstOf(waiting, many, ({ id }) => this.#ports.hasSlot(id))
    // All of them are noted before the first goes: its going is a reason to look again.
    for (const { id } of going) gate = went(gate, id, now)
    this.#gates.set(key, gate)
    for (const { id } of going) this.#ports.conductor.deliver(id, { type: "opened" })
    if (going.length > 0) this.#ports.pump()
  }

  /** Those for whom the user named other models do not wait for one that stays closed for long. */
  #goRound(key: string, gate: Gate, now: number): void {
    if (gate.opening) return
    const isLong = gate.told && gate.opensAt - now > LONG_CLOSED_MS
    const waited = ({ run }: Task) => (run.parked ? now - run.parked.at : 0) + (run.parkedMs ?? 0)
    const tired = this.#waiting(key).filter((task) => isLong || waited(task) >= LONG_CLOSED_MS)
    this.#instead.choose(tired, gate.told ? `limit until ${moment(gate.opensAt, now)}` : "limit")
  }

  #waiting(key: string): readonly Task[] {
    return this.#line.at(key, this.#gates.get(key))
  }

  #endOverdue(key: string, now: number): void {
    const { maxParked } = this.#parts.options
    const gate = this.#gates.get(key)
    // Whether it has opened is about to be seen, perhaps after a long sleep: who is refused then has waited for too long.
    if (maxParked === 0 || !gate || gate.opening || gate.probe || mayGo(gate, now) > 0) return
    for (const task of this.#waiting(key)) {
      const { parked, parkedMs = 0 } = task.run
      if (!parked || now - parked.at + parkedMs < maxParked) continue
      const text = `Parked for ${duration(maxParked)}: ${key} is at its limit: ${parked.why}`
      this.#end(task, { code: "limit", text })
    }
  }

  #end({ id, run }: Task, reason: Reason): boolean {
    return this.#ports.conductor.end(id, run.generation, { type: "failed", reason })
  }
}
