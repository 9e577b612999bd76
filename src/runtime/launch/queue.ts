import { admissible, modelKey } from "../../core/limits.ts"
import { pauseOf } from "../../core/pause.ts"
import { isActive, isMember, isQueued, modelOf, slotsOf, type Task } from "../../core/task.ts"
import type { Breakers } from "../../features/rate-limits/breakers.ts"
import type { Holding } from "../../features/shared-cache/warm-up.ts"
import type { Allowance } from "../budgets/allowance.ts"
import type { Dispatcher } from "../dispatcher.ts"
import type { Parts } from "../parts.ts"
import type { Places } from "../places/places.ts"
import type { Waiting } from "./dependencies.ts"

export type QueuePorts = {
  readonly dispatcher: Dispatcher
  readonly allowance: Allowance
  readonly waiting: Waiting
  readonly breakers: Breakers
  readonly holding: Holding
  readonly places: Places
  /** Tasks run: look after them. */
  readonly watch: () => void
}

/** Begins runs, at once or when there is a slot. Who may begin is derived from the tasks: no slot is counted here. */
export class Queue {
  readonly #parts: Parts
  readonly #ports: QueuePorts

  constructor(parts: Parts, ports: QueuePorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /** The tasks of a session whose own sessions are being made. */
  making(parentID: string): readonly Task[] {
    return this.#parts.store.making().filter((task) => task.parentID === parentID)
  }

  /** Takes a slot for a task that is being made, or leaves it queued. */
  reserve(task: Task): Task {
    const { store, clock } = this.#parts
    const free = this.#admissible([...store.active(), ...store.making(), task]).includes(task)
    const started = free ? { ...task, run: { ...task.run, startedAt: clock.now() } } : task
    const heldBehind = this.#ports.holding.leaderOf(started)
    const reserved = heldBehind === undefined ? started : { ...started, run: { ...started.run, heldBehind } }
    store.make(reserved, clock.now())
    return reserved
  }

  /** The session of such a task could not be made: others may have its slot. */
  release({ id }: Task): void {
    this.#parts.store.unmake(id)
    this.pump()
  }

  /** The session of a task is made, in the slot that was reserved for it: its run begins, or waits for its turn. */
  async begin(task: Task, prompt: string): Promise<boolean> {
    const { store, clock, journal, toaster } = this.#parts
    store.add(task, clock.now())
    if (task.fork) await journal.save(task)
    if (!store.runs(task)) return false
    // Not waited for: the host says nothing of a prompt but that it came, and the caller goes on all the sooner.
    this.#ports.dispatcher.deliver(task.id, { type: "begin", prompt })
    if (!isMember(task)) toaster.launched(task)
    this.#logLaunch(task)
    this.#ports.watch()
    this.pump()
    // One more waits that may be the one that tries.
    this.#ports.breakers.letContinue()
    // What it waits for may have failed while its session was made.
    this.#ports.waiting.endStranded()
    return true
  }

  /** Has a run begin that is in the store already, as soon as there is a slot; resolves when it is written down. */
  async enqueue(task: Task, prompt: string): Promise<void> {
    this.#ports.dispatcher.deliver(task.id, { type: "begin", prompt })
    this.pump()
    this.#ports.breakers.letContinue()
    await this.#parts.journal.save(task)
    this.#logLaunch(task)
    this.#ports.watch()
  }

  /** A run in the store is at work already. It asked nobody for its slot; others do not get one while it has it. */
  async adopt(task: Task): Promise<void> {
    this.#ports.dispatcher.deliver(task.id, { type: "begin" })
    await this.#parts.journal.save(task)
    this.#logLaunch(task)
    this.#ports.watch()
  }

  /** Starts what may start. Called whenever a slot may have become free. */
  pump(): void {
    const { store, stopped } = this.#parts
    if (stopped.aborted) return
    const { dispatcher, waiting, holding, watch } = this.#ports
    holding.review()
    for (const task of store.active())
      if (isQueued(task)) dispatcher.deliver(task.id, { type: "sorted", waits: waiting.waitsFor(task).length > 0 })
    for (const { id } of this.#admissible([...store.active(), ...store.making()])) {
      const { stage, prompt } = store.run(id) ?? {}
      const task = store.get(id)
      const isNext = stage === "parked" || (stage === "queued" && prompt !== undefined)
      if (!task || !isNext || this.#endBeyondLimits(task)) continue
      dispatcher.deliver(id, { type: "admitted" })
      watch()
    }
    // What is left is for the items of maps.
    for (const { id, team } of store.active()) if (team?.kind === "each") dispatcher.deliver(id, { type: "parts" })
  }

  /** How many more parts of a team may begin at once: any other launch goes before them. */
  roomFor(team: Task): number {
    const { store } = this.#parts
    const before = [...store.active(), ...store.making()]
    const others = before.filter((task) => isQueued(task) && !task.team && slotsOf(task) === team.parentID)
    const { waiting, breakers } = this.#ports
    if (others.some((task) => waiting.waitsFor(task).length === 0 && !breakers.closedFor(task))) return 0
    const { startedAt: _slot, ...run } = team.run
    const next = Array.from({ length: MOST_AT_ONCE }, (_none, nth): Task => {
      const { team: _plan, ...task } = team
      return { ...task, id: `${team.id}/${nth}`, run: { ...run, createdAt: LONG_MS * 1000 } }
    })
    const many = this.#admissible([...before, ...next]).filter((task) => next.includes(task)).length
    const [first] = next
    if (many > 0 || !first || before.some(({ part }) => part?.of === team.id)) return many
    // Where its model is closed, one waits like any launch: nobody else would see whether it has opened.
    return breakers.closedFor(team) && this.#admissible([...before, first], first.id).includes(first) ? 1 : 0
  }

  /** Whether a task could have a slot now if its model were open. */
  hasSlot(taskID: string): boolean {
    const { store } = this.#parts
    return this.#admissible([...store.active(), ...store.making()], taskID).some(({ id }) => id === taskID)
  }

  /** `opened`: taken as one whose model is open. */
  #admissible(active: Iterable<Task>, opened?: string): readonly Task[] {
    const { store, options } = this.#parts
    const { waiting, breakers, places } = this.#ports
    return admissible(
      [...active].flatMap((task) => this.#forSlot(task, opened)),
      options,
      (task) => store.run(task.id)?.idle === true && store.hasOpen(task.sessionID),
      (task) => waiting.waitsFor(task).length > 0 || (!task.team && task.id !== opened && breakers.closedFor(task)),
      (place) => places.mostIn(place),
    )
  }

  /** A run that stands still holds no slot; one that may go on waits for one, before all that have not begun. */
  #forSlot(task: Task, opened?: string): readonly Task[] {
    const stand = isActive(task) ? pauseOf(task.run) : undefined
    if (!stand) return [task]
    const { startedAt: _slot, after: _done, ...run } = task.run
    const goesOn = task.id === opened || this.#parts.store.run(task.id)?.mayContinue
    return goesOn ? [{ ...task, run: { ...run, createdAt: stand.at - LONG_MS } }] : []
  }

  /** A run that waited for its slot while others spent what there was ends. */
  #endBeyondLimits(task: Task): boolean {
    const { id, parentID, run } = task
    const { allowance, dispatcher, breakers } = this.#ports
    const isUnbegun = run.startedAt === undefined || this.#parts.store.run(id)?.notStarted === true
    const unasked = isUnbegun ? breakers.unpaid(modelOf(task)) : undefined
    if (unasked !== undefined) {
      const reason = { code: "provider", text: `Not begun: ${unasked}` } as const
      return dispatcher.end(id, run.generation, { type: "failed", reason })
    }
    const why = allowance.refusal(parentID, id)
    const text = isUnbegun ? `It never began: ${why}.` : `It did not go on: ${why}.`
    return why !== undefined && dispatcher.end(id, run.generation, { type: "failed", reason: { code: "budget", text } })
  }

  #logLaunch(task: Task): void {
    const { id, sessionID: session, parentID: parent, description, agent, model, run } = task
    this.#parts.host.log("info", run.generation > 0 ? "task resumed" : "task launched", {
      task: id,
      session,
      parent,
      description,
      agent,
      model: model && modelKey(model),
      queued: isQueued(task),
    })
  }
}

/** Parts that are begun in one go where no limit says less. */
const MOST_AT_ONCE = 50

/** Longer than anything has been queued. */
const LONG_MS = 365 * 24 * 3_600_000
