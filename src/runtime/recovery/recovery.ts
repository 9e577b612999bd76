import type { Clock, OpencodeApi, TaskRecord } from "../../core/ports.ts"
import { isActive, NOBODY, parentSessionOf, type Task } from "../../core/task.ts"
import { retry, sleepFor } from "../../lib/clock.ts"
import { DAY_MS } from "../../lib/format.ts"
import type { CostLedger } from "../budgets.ts"
import { IS_RUN } from "../record/identity.ts"
import type { Services } from "../services.ts"
import { importRecords, OrphanSettler, remove, type SettlingPorts } from "./takeover.ts"

/** How far back the search at startup goes, in ms. Older tasks are found when their parent's session is used. */
const LOOK_BACK_MS = 7 * DAY_MS

/** Longest time for which a call waits until the tasks of a dead process are settled, in ms. */
const SETTLED_MS = 3000

/** A session's tasks are brought up to date when they were read longer ago than this, in ms. */
const LOADED_MS = 10_000

const REST_LOOK_MS = 1000
const MOST_REST_LOOKS = 5

/**
 * Waits for a second, and for a few more while a session is at work: OpenCode loads plugins during its user's first
 * request, and the search for earlier tasks would slow down the answer. A session that is used meanwhile reads its own
 * tasks itself. Never rejects.
 */
export async function untilAtRest(opencode: Pick<OpencodeApi, "activity">, clock: Clock): Promise<void> {
  for (let look = 1; look <= MOST_REST_LOOKS; look++) {
    await sleepFor(clock, REST_LOOK_MS)
    const working = await opencode.activity().catch(() => new Map())
    if (working.size === 0) return
  }
}

export type RecoveryPorts = SettlingPorts & {
  readonly ledger: CostLedger
  /** Called when there may be tasks to supervise. */
  readonly watch: () => void
}

/**
 * Recovers tasks after a restart from the records in their sessions:
 * - A notification that was not sent is sent.
 * - An active task of a dead process is classified by its messages; a queued one ends as interrupted.
 * - A task of a process that still exists is only shown.
 */
export class Recovery {
  readonly #services: Services
  readonly #ports: RecoveryPorts
  readonly #settling: OrphanSettler

  constructor(services: Services, ports: RecoveryPorts) {
    this.#services = services
    this.#ports = ports
    this.#settling = new OrphanSettler(services, ports, (records) => this.#takeIn(records))
  }

  /** Reads the tasks of all recently changed sessions. Never rejects. */
  async recover(): Promise<void> {
    const { opencode, clock, stopped } = this.#services
    try {
      this.#takeIn(await retry(clock, stopped, () => opencode.recordsSince(clock.now() - LOOK_BACK_MS)))
    } catch (error) {
      opencode.log("warn", "could not look for earlier tasks", { error: String(error) })
    }
    this.#ports.watch()
  }

  /** Reads tasks that other processes launched or ended after `since`. Resolves to whether that was possible. */
  async discover(since: number): Promise<boolean> {
    const { opencode } = this.#services
    try {
      this.#takeIn(await opencode.recordsSince(since))
      return true
    } catch (error) {
      opencode.log("warn", "could not look for other processes' tasks", { error: String(error) })
      return false
    } finally {
      this.#ports.watch()
    }
  }

  /**
   * Recovers a session's tasks at its first use. At a later one, reads what has changed since: another process may use the
   * session, too. Updates foreign tasks. Never rejects.
   */
  async ready(parentID: string): Promise<void> {
    const parentState = this.#services.store.parentState(parentID)
    const { loaded } = parentState
    const at = this.#services.clock.now()
    if (!loaded) parentState.loaded = { at, tasks: this.#load(parentID) }
    else if (Math.abs(at - loaded.at) >= LOADED_MS) {
      const tasks = this.discover(loaded.at - LOADED_MS).then((isRead) => {
        if (!isRead) parentState.loaded = loaded
      })
      parentState.loaded = { at, tasks }
    }
    await parentState.loaded?.tasks
    await this.look(parentID)
  }

  /**
   * Waits, for a moment at most, until the session's tasks of dead processes are settled: a task that is shown before
   * seems to run. Never rejects.
   */
  async settled(parentID: string): Promise<void> {
    const { store, clock } = this.#services
    const works = store.ofParent(parentID).flatMap(({ id }) => store.handle(id)?.recovering ?? [])
    if (works.length > 0) await Promise.race([Promise.all(works), sleepFor(clock, SETTLED_MS)])
  }

  /** Updates other processes' tasks, so that a caller can show their current state. Never rejects. */
  async look(parentID?: string): Promise<void> {
    await this.refreshForeign(parentID)
    const { store, opencode, stopped } = this.#services
    for (const task of store.foreign()) {
      if (stopped.aborted) return
      if ((parentID !== undefined && task.parentID !== parentID) || !isActive(task) || task.place) continue
      try {
        await this.#readForeign(task)
      } catch (error) {
        opencode.log("warn", "could not read another process's task", { task: task.id, error: String(error) })
      }
    }
  }

  /** Reads the messages of another process's task, unless its last message is unchanged since the last time. */
  async #readForeign({ id, sessionID, run }: Task): Promise<void> {
    const { store, opencode } = this.#services
    const last = JSON.stringify([run.promptID, await opencode.lastMessage(sessionID)])
    const handle = store.handle(id)
    if (!handle || handle.seen === last) return
    store.readForeign(id, await opencode.messagesSince(sessionID, run.promptID))
    handle.seen = last
  }

  /**
   * Checks other processes' tasks for ends, deliveries and dead processes, for one parent or all. Failures are retried
   * later; never rejects.
   */
  async refreshForeign(parentID?: string): Promise<void> {
    const { store, opencode, stopped } = this.#services
    const foreign = store.foreign().filter((task) => parentID === undefined || task.parentID === parentID)
    for (const parent of new Set(foreign.map(parentSessionOf))) {
      if (stopped.aborted) return
      const tasks = foreign.filter((task) => parentSessionOf(task) === parent)
      try {
        const sessions = new Set(tasks.map(({ sessionID }) => sessionID))
        const records = (await this.#recordsOf(parent, tasks)).filter(({ task }) => sessions.has(task.sessionID))
        // Taken in before the next read: the owner may end a task and die meanwhile.
        this.#takeIn(records)
        const found = new Set(records.map(({ task }) => task.id))
        // The session was deleted, or its own process has cleared the task; the session may have another task by now.
        for (const { id } of tasks) if (!found.has(id) && store.isForeign(id)) this.#remove(id)
      } catch (error) {
        opencode.log("warn", "could not look at another process's tasks", { session: parent, error: String(error) })
      }
    }
    this.#ports.watch()
  }

  #remove(taskID: string): void {
    remove(this.#services, taskID)
    this.#ports.changed()
  }

  /**
   * Reads the records of a parent's tasks with one call. A session in another folder is searched below its parent,
   * because reading it directly starts an OpenCode instance there.
   */
  async #recordsOf(parent: string, tasks: readonly Task[]): Promise<readonly TaskRecord[]> {
    const { opencode } = this.#services
    const isListed = tasks.length > 1 || tasks.some(({ place }) => place)
    if (isListed && parent !== NOBODY) return opencode.recordsOf(parent)
    const sessions = await Promise.all(tasks.map(({ sessionID }) => opencode.session(sessionID)))
    return sessions.flatMap((session) => session?.record ?? [])
  }

  async #load(parentID: string): Promise<void> {
    const { opencode } = this.#services
    try {
      this.#takeIn(await opencode.recordsOf(parentID))
    } catch (error) {
      this.#services.store.parentState(parentID).loaded = undefined
      opencode.log("warn", "could not read a session's tasks", { session: parentID, error: String(error) })
    }
  }

  #takeIn(records: readonly TaskRecord[]): void {
    const { store } = this.#services
    this.#ports.noticeSleep()
    const isOwn = ({ task: { id } }: TaskRecord) => store.isOwn(id)
    const others = records.filter((record) => !isOwn(record))
    const orphans = importRecords(this.#services, this.#ports.ledger, records)
    this.#adopt(orphans)
    // What an ended task of a dead process has left on another machine is fetched by this one.
    for (const { task } of others.filter(isOwn))
      if (!isActive(task) && this.#ports.places.isAway(task)) this.#ports.places.rejoin(task)
    if (records.length > 0) this.#ports.changed()
  }

  /**
   * Takes over orphans, ended ones in the order of their ends. Called once all records are read, so that all parents are
   * known. An `opencode run` takes over none of other sessions: its end would cut off the parents that it wakes.
   */
  #adopt(orphans: readonly TaskRecord[]): void {
    const { store, background } = this.#services
    for (const orphan of orphans.toSorted((a, b) => endedAt(a) - endedAt(b))) {
      const { id, parentID } = orphan.task
      if (IS_RUN && !this.#isUsed(parentID)) continue
      const handle = store.handle(id)
      const adopting = background.run("recover a task", () => this.#settling.adopt(orphan))
      const closing = background.run("close a task", () => adopting.then(() => this.#ports.dispatcher.closed(id)))
      if (!handle) continue
      handle.adopting = Promise.all([handle.adopting, adopting])
      handle.recovering = Promise.all([handle.recovering, closing])
    }
  }

  /** Whether somebody has asked for the tasks of this session here, or of one that its task comes from. */
  #isUsed(sessionID: string): boolean {
    const { store } = this.#services
    const task = store.bySession(sessionID)
    return store.parentState(sessionID).loaded !== undefined || (task !== undefined && this.#isUsed(task.parentID))
  }
}

const endedAt = ({ task }: TaskRecord): number => task.run.endedAt ?? 0
