import type { Task } from "../../src/core/task.ts"
import { isActive, isUnattended } from "../../src/core/task.ts"
import { Unattended } from "../../src/features/board/unattended.ts"
import type { LedgerPurse } from "../../src/runtime/budgets.ts"
import type { StoredSession } from "../support/fake-database.ts"
import type { Rig } from "../support/rig.ts"
import { purseOf } from "../support/tasks.ts"
import { INPUTS, type Input, launchFrom } from "./inputs.ts"
import { STEP_USD } from "./kinds.ts"
import type { World } from "./world.ts"

/** Lives with a purse: sessions that stand by themselves, as a board's threads do, and whose runs it pays. */

const THREADS = 2
const SAME_USD = 1e-9
/** The kinds of work whose steps cost something, and those that launch. */
const WORK = ["working", "working", "quick", "slow", "launching", "launching twice", "asking", "building"] as const

/** The threads, and the purse that pays them while one is open. */
export class Bursar {
  readonly threads: readonly string[]
  readonly #world: World
  #purse: LedgerPurse | undefined
  /** Since when all of it is spent. */
  #emptySince: number | undefined
  /** Most of its runs that were at work at once since it was opened. */
  #mostAtWork = 0
  #turns = 0
  #isReady = true
  /** When it was opened, or became another one. */
  #changedAt = 0

  constructor(world: World) {
    this.#world = world
    this.threads = Array.from({ length: THREADS }, () => world.opencode.openSession({ title: "a thread" }))
    for (const [index, thread] of this.threads.entries()) world.history.name(thread, `thread ${index + 1}`)
  }

  get isOpen(): boolean {
    return this.#purse !== undefined
  }

  /** Whether a run may be begun in a thread, as a board sees it: not near the end of its purse. */
  get mayBegin(): boolean {
    if (!this.#isReady) return false
    return !this.#purse || this.#world.clock.now() < this.#purse.until - this.#lastWordIn(this.#purse)
  }

  open(max: number, ms: number): void {
    const now = this.#world.clock.now()
    const unattended = new Unattended(this.#world.manager.parts)
    const threads = Object.fromEntries(this.threads.map((thread) => [thread, unattended.usageOf(thread)]))
    this.#world.history.tell(() => `a purse of $${max} is opened for ${ms} ms`)
    this.#emptySince = undefined
    this.#mostAtWork = 0
    this.#use({ ...purseOf(now, now + ms), max, threads })
  }

  /** Its time is over at this moment. */
  end(): void {
    const now = this.#world.clock.now()
    if (this.#purse) this.#use({ ...this.#purse, openedAt: Math.min(this.#purse.openedAt, now - 1), until: now })
  }

  /** It has no more than was spent by now. */
  empty(): void {
    if (this.#purse) this.#use({ ...this.#purse, max: Math.max(SAME_USD, this.#used) })
  }

  /** Its runs are stopped with it. */
  close(): void {
    this.#use(undefined)
    const { manager } = this.#world
    for (const thread of this.threads)
      this.#world.track(
        "stop a thread",
        new Unattended(manager.parts).stop(thread, { code: "purse", text: "The purse has ended." }),
      )
  }

  /** A process that comes back finds it on the board, which begins nothing before it knows what there was. */
  known(rig: Rig, recovered: Promise<void>): void {
    if (this.#purse) new Unattended(rig.manager.parts).usePurse(this.#purse)
    if (rig !== this.#world.rig) return
    // What a run had cost since its record was written is known once this process has taken it over.
    this.#emptySince = undefined
    this.#isReady = false
    void recovered.then(() => {
      this.#isReady = true
    })
  }

  run(thread: string, kind: (typeof WORK)[number]): void {
    const description = `turn ${++this.#turns}`
    const request = { sessionID: thread, agent: "general", description, prompt: `DO ${kind}` }
    const { manager, history } = this.#world
    const running = new Unattended(manager.parts).start(request).then(() => {
      history.name(manager.taskIn(thread)?.task.id ?? "", history.nameOf(thread))
    })
    this.#world.track(`run ${this.#world.history.nameOf(thread)}`, running)
  }

  /** The thread that a session works for. */
  threadOf(sessionID: string): string | undefined {
    if (this.threads.includes(sessionID)) return sessionID
    const parentID = this.#world.opencode.database.sessions.get(sessionID)?.parentID
    return parentID === undefined ? undefined : this.threadOf(parentID)
  }

  /** The model of a session is asked: what it costs there is to be something to pay it. */
  requested(sessionID: string): void {
    if (!this.#purse || this.threadOf(sessionID) === undefined) return
    this.look()
    const { watch, history, endOptions, manager } = this.#world
    const task = manager.taskIn(sessionID)?.task
    // The purse stops runs. A turn that a user begins after one is theirs.
    if (task && !isActive(task) && watch.isUsers(task)) return
    if (watch.isLate(this.#purse.until))
      watch.breach(`the model of ${history.nameOf(sessionID)} is asked after its purse`)
    const lastWord = endOptions.options.lastWord ?? 0
    if (this.#emptySince !== undefined && watch.isLate(this.#emptySince + lastWord))
      watch.breach(`the model of ${history.nameOf(sessionID)} is asked, and its purse is empty`)
  }

  /** What must hold at every moment. */
  look(): void {
    const purse = this.#purse
    if (!purse) return
    const { manager, tasks, clock, watch, history } = this.#world
    const paid = tasks.filter(({ sessionID }) => this.threadOf(sessionID) !== undefined)
    const atWork = paid.filter((task) => isActive(task) && task.run.startedAt !== undefined && !task.run.parked)
    this.#mostAtWork = Math.max(this.#mostAtWork, atWork.length)
    if (this.#used > purse.max + SAME_USD) this.#emptySince ??= clock.now()
    for (const task of paid) {
      if (manager.parts.reports.isForeign(task.id) || isUnattended(task) || task.run.startedAt === undefined) continue
      const { startedAt } = task.run
      if (this.#emptySince !== undefined && startedAt > this.#emptySince)
        watch.breach(`${history.nameOf(task.id)} has begun, and its purse was empty`)
      if (startedAt > purse.until - this.#lastWordIn(purse) && startedAt > Math.max(this.#changedAt, watch.restartedAt))
        watch.breach(`${history.nameOf(task.id)} has begun too late for its purse`)
    }
  }

  /** What came of it when all is over. */
  checkBill(): void {
    const { watch, history, manager, opencode, endOptions } = this.#world
    // Nobody else bills for a process that is not known to be dead.
    const isOwned = !endOptions.strangers || watch.restarts === 0
    for (const thread of isOwned ? this.threads : []) {
      if (!manager.taskIn(thread)) continue
      const all = this.#costOf(opencode.stored(thread))
      const { cost } = new Unattended(manager.parts).usageOf(thread)
      // A turn whose stop was long on its way goes on meanwhile, and nobody looks at it.
      if (watch.held === 0 && cost < all - SAME_USD)
        watch.breach(`${history.nameOf(thread)} took $${all}, and its bill says $${cost}`)
    }
    if (!this.#purse || watch.held > 0 || watch.lostEvents || watch.restarts > 0) return
    const most = this.#purse.max + this.#mostAtWork * 2 * STEP_USD
    if (this.#used > most + SAME_USD) watch.breach(`$${this.#used} were spent of a purse of $${this.#purse.max}`)
  }

  #lastWordIn({ openedAt, until }: LedgerPurse): number {
    return Math.min(this.#world.endOptions.options.lastWord ?? 0, (until - openedAt) / 3)
  }

  get #used(): number {
    return new Unattended(this.#world.manager.parts).ofPurse().used.cost
  }

  #use(purse: LedgerPurse | undefined): void {
    this.#purse = purse
    this.#changedAt = this.#world.clock.now()
    for (const { manager } of [this.#world.rig, this.#world.other]) new Unattended(manager.parts).usePurse(purse)
  }

  /** What all that was answered in a session, and below it, has cost. */
  #costOf({ id, messages }: StoredSession): number {
    const own = messages.reduce((sum, { usage }) => sum + (usage?.cost ?? 0), 0)
    return this.#world.opencode.database.children(id).reduce((sum, child) => sum + this.#costOf(child), own)
  }
}

/** What costs something there is in no run: nobody of a board does it while it pays. */
const UNPAID: readonly string[] = ["its user writes to it", "its session is deleted", "it is resumed at the screen"]

const isPaid = (world: World, { sessionID }: Task): boolean => world.bursar?.threadOf(sessionID) !== undefined

/** An agent calls a tool while it runs. */
const mayCall = (world: World, { parentID }: Task): boolean => {
  const parent = world.manager.taskIn(parentID)?.task
  return parent === undefined || isActive(parent)
}

/** Whether a limit still counts what a cleared task cost; without one, its cost goes with it. */
const counts = ({ bursar, endOptions }: World): boolean =>
  bursar?.isOpen === true || (endOptions.options.maxCostPerSession ?? 0) > 0

const beside = (input: Input): Input => ({
  ...input,
  can: (world, task) => {
    if (isPaid(world, task) && /\bclear/.test(input.name) && !counts(world)) return false
    if (isPaid(world, task) && UNPAID.includes(input.name)) return false
    if (isPaid(world, task) && input.name.startsWith("its parent") && !mayCall(world, task)) return false
    return input.can?.(world, task) ?? true
  },
})

const idle = (world: World): readonly string[] =>
  (world.bursar?.threads ?? []).filter((thread) => {
    const task = world.manager.taskIn(thread)?.task
    return !task || !isActive(task)
  })

const opens = (max: number, ms: number): Input => ({
  name: `a purse of $${max} is opened for ${ms} ms`,
  weight: 3,
  can: (world) => world.bursar?.isOpen === false,
  give: (world) => world.bursar?.open(max, ms),
})

const isOpen: Input["can"] = (world) => world.bursar?.isOpen === true
const ENDS: readonly Pick<Input, "name" | "give">[] = [
  { name: "the time of the purse is over", give: (world) => world.bursar?.end() },
  { name: "what was left in the purse is gone", give: (world) => world.bursar?.empty() },
  { name: "the purse is closed", give: (world) => world.bursar?.close() },
]

/** At the next call that the engine makes, whichever that is. */
const atNextCall = ({ name, give }: (typeof ENDS)[number]): Input => ({
  name: `${name}, at the next call`,
  weight: 4,
  can: isOpen,
  give: (world, task) => {
    const before = world.meets
    world.meets = (call) => {
      world.meets = before
      void give(world, task)
      return before(call)
    }
  },
})

/** All that can come where there is a purse. */
export const INPUTS_PURSE: readonly Input[] = [
  ...INPUTS.map(beside),
  ...WORK.map(
    (kind): Input => ({
      name: `a thread is to be ${kind}`,
      weight: 6,
      can: (world) => world.bursar?.mayBegin === true && idle(world).length > 0,
      give: (world) => world.bursar?.run(idle(world)[0] ?? "", kind),
    }),
  ),
  {
    name: "its agent launches a task",
    weight: 10,
    can: (world, task) => isPaid(world, task) && isActive(task) && task.run.startedAt !== undefined,
    give: (world, { sessionID }) => launchFrom(world, sessionID, { prompt: "DO working" }),
  },
  opens(0.004, 120_000),
  opens(0.02, 120_000),
  opens(0.05, 120_000),
  opens(0.1, 20_000),
  opens(100, 8000),
  ...ENDS.map((end): Input => ({ ...end, weight: 3, can: isOpen })),
  ...ENDS.map(atNextCall),
]
