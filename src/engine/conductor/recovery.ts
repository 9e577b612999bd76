import type { Message, TaskRecord } from "../../core/ports.ts"
import { type Ending, hostParentOf, isActive, standsStill, type Task } from "../../core/task.ts"
import { invalidReason } from "../../core/value.ts"
import { answerText, keptTodos } from "../../core/verdict.ts"
import type { Outbox } from "../../delivery/outbox.ts"
import { persistently } from "../../lib/retry.ts"
import type { Keepers } from "../gate/keepers.ts"
import type { Ledger } from "../limits/ledger.ts"
import type { Parts } from "../parts.ts"
import {
  askedOf,
  endOf,
  hasWon,
  isUnclosed,
  lastLaunchBy,
  mayBeElsewhere,
  mayLaunch,
  teamEndOf,
  triesGoOn,
} from "../recover/orphan.ts"
import { rank, remove, takeIn } from "../recover/records.ts"
import { newRun } from "../run/active-run.ts"
import { membersOf } from "../tasks/members.ts"
import type { Conductor } from "./conductor.ts"
import { homeOf } from "./home.ts"
import type { Places } from "./places.ts"
import { leftIn, takeBack } from "./stopping.ts"
import { untilTold } from "./until-told.ts"
import type { Values } from "./values.ts"

/** How far back the start looks. Older tasks are found when their parent's session is used. */
const LOOK_BACK_MS = 7 * 24 * 3_600_000
/** Between writing itself down as a task's owner and looking whether another process wrote last, in ms. */
const CLAIM_MS = 300
/** A parent that waited this recently is woken by what is told after a restart; an older one finds it when it is used. */
const WAKE_WINDOW_MS = 900_000

export type RecoveryPorts = {
  readonly conductor: Conductor
  readonly keepers: Keepers
  readonly places: Places
  readonly outbox: Outbox
  readonly ledger: Ledger
  readonly values: Values
  /** Called when other processes' tasks have ended or gone: some here may have waited for them. */
  readonly changed: () => void
  /** Called when there may be something new to look after. */
  readonly watch: () => void
}

/**
 * Brings tasks back after a crash or a restart from the records in their sessions:
 *
 * - ended and told: known again;
 * - ended and not told: told, unless the parent has the message;
 * - active when its process died: judged by its messages, a finished one told as finished, any other as interrupted;
 * - looked after by another process that lives: shown and left alone, taken over when that process dies.
 * Nothing is started: what a queued task was to do is told as interrupted before it began.
 */
export class Recovery {
  readonly #parts: Parts
  readonly #ports: RecoveryPorts

  constructor(parts: Parts, ports: RecoveryPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /** Takes in the tasks of all sessions that changed lately. Never rejects. */
  async recover(): Promise<void> {
    const { host, clock, stopped } = this.#parts
    try {
      this.#takeIn(await persistently(clock, stopped, () => host.recordsSince(clock.now() - LOOK_BACK_MS)))
    } catch (error) {
      host.log("warn", "could not look for earlier tasks", { error: String(error) })
    }
    this.#ports.watch()
  }

  /** Takes in what other processes have launched or ended since then. Never rejects. */
  async discover(since: number): Promise<void> {
    const { host } = this.#parts
    try {
      this.#takeIn(await host.recordsSince(since))
    } catch (error) {
      host.log("warn", "could not look for other processes' tasks", { error: String(error) })
    }
    this.#ports.watch()
  }

  /** Takes in the tasks of a session at its first use; reads again what another process runs. Never rejects. */
  async ready(parentID: string): Promise<void> {
    const household = this.#parts.store.household(parentID)
    household.loaded ??= this.#load(parentID)
    await household.loaded
    await this.refreshForeign(parentID)
  }

  /**
   * Looks at the tasks that other processes look after, of one parent or of all: did they end, were they told, did their
   * process die? What cannot be read is looked at again. Never rejects.
   */
  async refreshForeign(parentID?: string): Promise<void> {
    const { store, host, stopped } = this.#parts
    for (const task of store.foreign()) {
      if (stopped.aborted) return
      if (parentID !== undefined && task.parentID !== parentID) continue
      try {
        const record = await this.#recordOf(task)
        if (record) this.#takeIn([record])
        // Deleted, or cleared by its own process.
        else if (store.isForeign(task.id)) this.#remove(task.id)
        if (record && isActive(record.task) && !task.place)
          store.readForeign(task.id, await host.messagesSince(task.sessionID, record.task.run.promptID))
      } catch (error) {
        host.log("warn", "could not look at another process's task", { task: task.id, error: String(error) })
      }
    }
    this.#ports.watch()
  }

  #remove(taskID: string): void {
    remove(this.#parts, taskID)
    this.#ports.changed()
  }

  /** One that works in a folder of its own is looked for below its parent: to ask for it starts an instance there. */
  async #recordOf(task: Task): Promise<TaskRecord | undefined> {
    const { host } = this.#parts
    if (!task.place) return (await host.session(task.sessionID))?.record
    return (await host.recordsOf(hostParentOf(task))).find((record) => record.task.id === task.id)
  }

  async #load(parentID: string): Promise<void> {
    const { host } = this.#parts
    try {
      this.#takeIn(await host.recordsOf(parentID))
    } catch (error) {
      this.#parts.store.household(parentID).loaded = undefined
      host.log("warn", "could not read a session's tasks", { session: parentID, error: String(error) })
    }
  }

  #takeIn(records: readonly TaskRecord[]): void {
    const { background } = this.#parts
    // Only now are the parents known of those that tasks have launched.
    const adopted = new Map<string, Promise<void>[]>()
    const adopt = async ({ task, owner }: TaskRecord) => {
      // What a team has come to is told by its parts.
      await Promise.all(task.team ? (adopted.get(task.id) ?? []) : [])
      await this.#adopt(task, owner.seenAt)
    }
    for (const orphan of takeIn(this.#parts, this.#ports.ledger, records).toSorted((a, b) => rank(a) - rank(b)))
      background.run("recover a task", () => {
        const done = adopt(orphan)
        const { part } = orphan.task
        if (part) adopted.set(part.of, [...(adopted.get(part.of) ?? []), done])
        return done
      })
    for (const { task } of records) if (this.#isLeftBehind(task)) this.#ports.places.rejoin(task)
    if (records.length > 0) this.#ports.changed()
  }

  /** It has ended, and what it changed is still on another machine. */
  #isLeftBehind(task: Task): boolean {
    const isOurs = this.#parts.store.get(task.id) && !this.#parts.store.isForeign(task.id) && !isActive(task)
    return isOurs === true && isUnclosed(task) && this.#ports.places.outlives(task)
  }

  /** Settles what a dead process left of a task. Never rejects: what fails is tried again. */
  async #adopt(task: Task, lastSeenAt: number): Promise<void> {
    const { host } = this.#parts
    const entry = this.#parts.store.entry(task.id)
    // It may have been settled since it was seen.
    if (!entry?.run || !this.#parts.store.isForeign(task.id) || entry.run.orphaned?.settling) return
    const { seenAt = lastSeenAt } = entry.run.orphaned ?? {}
    entry.run = { ...entry.run, custody: "orphan", orphaned: { seenAt, settling: true } }
    try {
      // Read where its folder was, a session would start the host's instance of that folder again.
      if (mayBeElsewhere(task) && !this.#ports.places.outlives(task))
        await host.move(task.sessionID, homeOf(this.#parts, task))
      const isMine = await this.#claim(task)
      if (isMine && mayLaunch(task, this.#parts.options)) this.#takeIn(await host.recordsOf(task.sessionID))
      if (isMine && isActive(task)) await this.#settle(task, seenAt)
      else if (isMine) this.#tell(task, seenAt)
      // Some here may have waited for it.
      this.#ports.changed()
      if (entry.run?.custody === "orphan") entry.run = { ...entry.run, custody: "foreign", orphaned: undefined }
    } catch (error) {
      host.log("warn", "could not recover a task", { task: task.id, session: task.sessionID, error: String(error) })
    } finally {
      if (entry.run?.orphaned) entry.run = { ...entry.run, orphaned: { seenAt, settling: false } }
    }
  }

  /**
   * Records this process as the task's owner. Another process may do so in the same moment. The last writer owns the
   * task; both read the record again a moment later to see who that is.
   */
  async #claim(task: Task): Promise<boolean> {
    const { host, clock } = this.#parts
    await host.saveRecord(task.sessionID, task)
    await new Promise<void>((resolve) => void clock.after(CLAIM_MS, resolve))
    const record = (await host.session(task.sessionID))?.record
    return record !== undefined && host.ownership(record.owner) === "ours"
  }

  #tell(task: Task, seenAt: number): void {
    const { delivery } = task
    this.#own(task)
    const mayWake = this.#wakes(task, seenAt) || delivery.state === "none"
    const owing = mayWake ? task : { ...task, delivery: { ...delivery, wake: false } }
    if (isUnclosed(task)) this.#ports.conductor.closeAgain(owing)
    else this.#ports.outbox.post(owing, true)
  }

  async #settle(task: Task, seenAt: number): Promise<void> {
    if (task.team) return this.#settleTeam(task, seenAt)
    const { host } = this.#parts
    if (this.#goesOn(task)) return
    const stored = await host.messagesSince(task.sessionID, task.run.promptID)
    // Deleted meanwhile: what it came to stood there alone, and its parent may have been told of it.
    if (stored.length === 0 && !(await host.session(task.sessionID))) return this.#remove(task.id)
    const messages = await untilTold(host, task, stored)
    if (await this.#standsOn(task, messages)) return
    const openTodos = keptTodos(messages) ? await host.openTodos(task.sessionID) : 0
    const lastSeen = Math.max(seenAt, lastLaunchBy(task, this.#parts.store))
    const found = endOf(task, messages, lastSeen, hasWon(task, this.#parts.store))
    if (!found || !this.#own(task)) return
    const ending = await this.#validated(task, found, messages)
    const circumstances = { messages, openTodos, wake: this.#wakes(task, seenAt), maybeTold: true }
    this.#ports.conductor.end(task.id, task.run.generation, ending, circumstances)
  }

  /** It goes on where its tries do; else it ends. */
  #settleTeam(task: Task, seenAt: number): void {
    if (!this.#own(task)) return
    const { store, clock } = this.#parts
    const entry = store.entry(task.id)
    const prompt = this.#ports.places.outlives(task) ? triesGoOn(task, membersOf(store, task)) : undefined
    if (entry && prompt !== undefined) {
      entry.run = { ...newRun(task, "leading", clock.now()), prompt }
      return this.#ports.conductor.deliver(task.id, { type: "parts" })
    }
    const circumstances = { messages: [], wake: this.#wakes(task, seenAt), maybeTold: true }
    this.#ports.conductor.end(task.id, task.run.generation, { at: seenAt, ...teamEndOf(task) }, circumstances)
  }

  /** Whether an answer that nobody had looked at is valid is found out now. */
  async #validated(task: Task, ending: Ending, messages: readonly Message[]): Promise<Ending> {
    if (ending.type !== "completed") return ending
    const found = await this.#ports.values.in(task, answerText(messages))
    if (!found) return ending
    const entry = this.#parts.store.entry(task.id)
    const value = found.valid ? { ...found, asked: 1 } : ({ valid: false, asked: 1 } as const)
    if (entry?.run) entry.run = { ...entry.run, value }
    return found.valid ? ending : { type: "failed", reason: invalidReason(1, found.problems), at: ending.at }
  }

  /** What works on another machine was not interrupted: the same run goes on, and nobody is told of it. */
  #goesOn(task: Task): boolean {
    const { store, clock } = this.#parts
    const mayGoOn = this.#ports.places.outlives(task) && task.run.startedAt !== undefined && !standsStill(task)
    if (!mayGoOn || hasWon(task, this.#parts.store) || !this.#own(task)) return false
    const entry = store.entry(task.id)
    const now = clock.now()
    if (entry) entry.run = newRun(task, "working", now)
    this.#ports.places.rejoin(task)
    this.#ports.conductor.deliver(task.id, { type: "contact", lost: now })
    return true
  }

  /** The one exception to "nothing is sent after a restart": what stood still goes on at its time, where it was. */
  async #standsOn(task: Task, messages: readonly Message[]): Promise<boolean> {
    const { store, clock } = this.#parts
    const goOn = this.#ports.keepers.afterRestart(task)
    const asked = askedOf(task, messages)
    if (!goOn || task.part || !asked) return false
    // Its process may have died before that was done.
    if (leftIn(messages)) await takeBack(this.#parts, task)
    if (!this.#own(task)) return false
    const entry = store.entry(task.id)
    if (entry) entry.run = { ...newRun(task, "parked", clock.now()), ...asked, ...(task.place && { reenters: true }) }
    goOn()
    return true
  }

  /** Takes a task over. False where it has changed since the dead process left it. */
  #own(task: Task): boolean {
    const { store, clock, stopped } = this.#parts
    if (stopped.aborted || !store.isForeign(task.id)) return false
    store.add(task, clock.now())
    return true
  }

  /** A task that launched it has ended with that process: it is not set to work again, now that nobody looks after it. */
  #wakes({ parentID }: Task, seenAt: number): boolean {
    return !this.#parts.store.bySession(parentID) && this.#parts.clock.now() - seenAt < WAKE_WINDOW_MS
  }
}
