import {
  type Block,
  type BlockSource,
  byAdmissionOrder,
  type Held,
  SLOTS,
  type Slots,
  slotsHeld,
  takesSlot,
} from "../core/limits.ts"
import { progressOf } from "../core/run/active-run.ts"
import { isActive, isPaused, isQueued, slotSessionOf, type Task } from "../core/task.ts"
import { hasWorked } from "../core/watchdog.ts"
import type { Allowance } from "./budgets.ts"
import type { Dispatcher } from "./dispatcher.ts"
import type { Outbox } from "./mailbox/outbox.ts"
import type { Places } from "./places/places.ts"
import type { Services } from "./services.ts"

export type AdmissionPorts = {
  readonly dispatcher: Dispatcher
  readonly places: Pick<Places, "kindNamed">
  readonly allowance: Allowance
  /** Sources of blocks, in the order in which the scheduler asks them. */
  readonly sources: readonly Partial<BlockSource>[]
  readonly outbox: Pick<Outbox, "hasPending">
  /** Called when a run was admitted, so that it is watched from then on. */
  readonly watch: () => void
  /** Called before a run takes a slot: sleep of the process, or a clock that was set back, concerns earlier runs only. */
  readonly noticeSleep: () => void
}

const STOPPING: Block = { by: "stopping", behind: "the end of its last turn" }

/** Most members of a group that begin in one pass, where no limit allows fewer. */
const MOST_AT_ONCE = 50

/**
 * Admits runs; no other part does. A pass goes through the waiting runs in the order of `byAdmissionOrder`, with slots
 * derived from the tasks, and admits a run that nothing blocks before it looks at the next, so that a slot or a probe
 * is given once.
 */
export class Scheduler {
  readonly #services: Services
  readonly #ports: AdmissionPorts
  #isPassing = false
  #isAsked = false

  constructor(services: Services, ports: AdmissionPorts) {
    this.#services = services
    this.#ports = ports
  }

  /** Called when a run may not be blocked any more: starts a pass. During a pass, another pass follows. */
  reschedule(): void {
    this.#isAsked = true
    if (this.#isPassing) return
    this.#isPassing = true
    try {
      while (this.#isAsked && !this.#services.stopped.aborted) this.#pass()
    } finally {
      this.#isPassing = false
    }
  }

  /** Takes a slot for a task that is about to be made, or leaves the task queued. */
  reserve(task: Task): Task {
    const { store, clock } = this.#services
    this.#ports.noticeSleep()
    const now = clock.now()
    let reserved = task
    let held: Held | undefined
    for (const [each, block] of this.#walk(this.#slots(), [task])) {
      if (each !== task || !takesSlot(block)) continue
      reserved = { ...task, run: { ...task.run, startedAt: now } }
      if (block && !("ends" in block) && block.keepsSlot) held = block
    }
    store.make(reserved, now, held)
    return reserved
  }

  /** Takes back the slot of a task whose session could not be made. */
  release({ id }: Task): void {
    this.#services.store.unmake(id)
    this.reschedule()
  }

  /** Why a waiting run may not begin or go on now, or why the next member of a group may not begin. */
  blockOf(task: Task): Block | undefined {
    return this.#blockOf(task.group && !isQueued(task) ? memberOf(task) : task, this.#slots())
  }

  /**
   * Number of further members of a group that may begin at once. Zero while another launch of its parent needs a slot,
   * because such launches go first.
   */
  freeSlotsFor(group: Task): number {
    const slots = this.#slots()
    for (const [task, block] of this.#walk(slots)) {
      const goesFirst = isQueued(task) && !task.group && !task.member && slotSessionOf(task) === group.parentID
      if (goesFirst && (block === undefined || block.by === SLOTS)) return 0
    }
    const member = memberOf(group)
    let room = 0
    for (; room < MOST_AT_ONCE && takesSlot(this.#blockOf(member, slots)); room++) slots.take(member)
    const hasMembers = this.#known().some(({ member: part }) => part?.of === group.id)
    if (room > 0 || hasMembers || slots.fullLimit(member)) return room
    // At the model's limit, one member is made and waits like any launch: otherwise nothing would notice the limit's
    // end.
    return 1
  }

  #pass(): void {
    this.#isAsked = false
    this.#ports.noticeSleep()
    const { store, groupKindOf } = this.#services
    for (const source of this.#ports.sources) source.review?.()
    for (const [task, block] of this.#walk(this.#slots())) this.#settle(task, block)
    // The slots that are left go to members of groups in which each member counts.
    for (const task of store.active())
      if (task.group && !groupKindOf(task)?.picksOne) this.#ports.dispatcher.deliver(task.id, { type: "members" })
  }

  #settle(task: Task, waits: Block | undefined): void {
    const { id, run } = task
    const { store } = this.#services
    const { dispatcher, sources, allowance, watch } = this.#ports
    const active = store.run(id)
    if (active?.prompt === undefined || active.stage === "creating") return
    // A run that has worked is not ended here: its own limits leave it its last word.
    const isLimited = holdsSlot(task) || hasWorked(progressOf(active))
    const block = waits ?? (isLimited ? undefined : allowance.blocks(task))
    if (block && "ends" in block) dispatcher.end(id, run.generation, block.ends)
    if (block) return
    for (const source of sources) source.admitted?.(task)
    dispatcher.deliver(id, { type: "admitted" })
    watch()
    // A run that begins at once may change what blocks others: ask for another pass.
    if (store.run(id)?.stage !== active.stage) this.#isAsked = true
  }

  /**
   * Yields each waiting run with its block. A run that nothing blocks takes its slot before the next run is looked at.
   */
  *#walk(slots: Slots, more: readonly Task[] = []): Iterable<readonly [Task, Block | undefined]> {
    const waiting = [...this.#known(), ...more].filter((task) => this.#waits(task))
    for (const { id } of waiting.sort(byAdmissionOrder)) {
      const task = more.find((each) => each.id === id) ?? this.#services.store.handle(id)?.task
      if (!task || !this.#waits(task)) continue
      const block = this.#blockOf(task, slots)
      if (!holdsSlot(task) && takesSlot(block)) slots.take(task)
      yield [task, block]
    }
  }

  #blockOf(task: Task, slots: Slots): Block | undefined {
    let last: Block | undefined
    for (const source of this.#ports.sources) {
      const block = source.blocks?.(task)
      if (!takesSlot(block)) return block
      last ??= block
    }
    const { calls = 0 } = this.#services.store.run(task.id) ?? {}
    // The paused session is still being stopped: a prompt sent now would be stopped with it.
    if (isPaused(task) && calls > 0) return STOPPING
    const full = holdsSlot(task) ? undefined : slots.fullLimit(task)
    return full ? { by: SLOTS, ...(full.of !== undefined && { behind: full.of }) } : last
  }

  #waits(task: Task): boolean {
    return isActive(task) && (!holdsSlot(task) || this.#services.store.run(task.id)?.stage === "waiting")
  }

  #known(): readonly Task[] {
    return [...this.#services.store.active(), ...this.#services.store.making()]
  }

  #slots(): Slots {
    const { store, slotLimits } = this.#services
    const { outbox } = this.#ports
    // A task whose wake is deferred until its model takes requests must not keep the slot of the request that tries it.
    const waitsForOwn = ({ id, sessionID }: Task) =>
      store.run(id)?.idle === true && (store.hasOpen(sessionID) || outbox.hasPending(sessionID))
    const mostIn = (place: string) => this.#ports.places.kindNamed(place)?.most?.(place) ?? 0
    return slotsHeld(this.#known().filter(holdsSlot), slotLimits, waitsForOwn, mostIn)
  }
}

const holdsSlot = (task: Task): boolean => !isQueued(task) && !isPaused(task)

/** The next member of a group, before it is made. */
function memberOf({ group: plan, ...group }: Task): Task {
  const { id, parentID: caller, sessionID: under, run } = group
  const { startedAt: _slot, ...waiting } = run
  return {
    ...group,
    id: `${id}/0`,
    run: waiting,
    member: { kind: plan?.kind ?? "", of: id, nth: 0, run: run.generation, caller, under },
  }
}
