import type { GroupKind } from "../core/feature.ts"
import type { SlotLimits } from "../core/limits.ts"
import { type Clock, type OpencodeApi, OpencodeError } from "../core/ports.ts"
import type { Ask, Task } from "../core/task.ts"
import { askTimeoutAt, type Presence } from "../core/watchdog.ts"
import type { Background } from "../lib/background.ts"
import { retry } from "../lib/clock.ts"
import { SerialQueue } from "../lib/promises.ts"
import type { Options } from "../options/options.ts"
import type { Toaster } from "./mailbox/toaster.ts"
import type { CommandMarks } from "./places/process.ts"
import type { TaskStore } from "./tasks/store.ts"
import type { TaskHandle } from "./tasks/task-handle.ts"

/** Services that every part of the engine uses. */
export type Services = {
  readonly opencode: OpencodeApi
  readonly clock: Clock
  readonly options: Options
  /** Limits on slots, with those of the features. */
  readonly slotLimits: SlotLimits
  /** Tools that the features deny to tasks. */
  readonly deniedTools: readonly string[]
  readonly store: TaskStore
  readonly journal: Journal
  readonly toaster: Toaster
  readonly background: Background
  readonly presence: PresenceTracker
  /** Kind of a group, or of a member's group. */
  readonly groupKindOf: (task: Pick<Task, "group" | "member">) => GroupKind | undefined
  /** Where running commands are recorded. */
  readonly commands?: CommandMarks
  /** Aborted when the plugin stops: nothing is started, ended, sent or written afterwards. */
  readonly stopped: AbortSignal
}

/** Knows whether a user is present. A question stays open longer while a user could answer it. */
export class PresenceTracker {
  readonly #clock: Clock
  readonly #timeout: number | null
  readonly #isTerminal: () => Promise<boolean>
  #terminal: Promise<void> | undefined
  #inTerminal = false
  #pages = 0
  #wroteAt = Number.NEGATIVE_INFINITY

  /** `timeout`: option `permissionTimeout`. `isTerminal` is called once, at the first question. */
  constructor(clock: Clock, timeout: number | null, isTerminal: () => Promise<boolean> = async () => false) {
    this.#clock = clock
    this.#timeout = timeout
    this.#isTerminal = isTerminal
  }

  get now(): Presence {
    return { isOpen: this.#inTerminal || this.#pages > 0, wroteAt: this.#wroteAt }
  }

  /** When an unanswered question is refused. */
  refusedAt(ask: Ask): number {
    return askTimeoutAt(ask, this.#timeout, this.now)
  }

  /** Called when a user has written or acted. */
  wrote(): void {
    this.#wroteAt = this.#clock.now()
  }

  /** Called when a page was opened. Returns a function to call when the page is closed. */
  opened(): () => void {
    this.#pages++
    let isOpen = true
    return () => {
      if (isOpen) this.#pages--
      isOpen = false
    }
  }

  /** Finds out whether OpenCode has a screen. Never rejects. */
  look(): Promise<void> {
    this.#terminal ??= this.#isTerminal().then(
      (isTerminal) => {
        this.#inTerminal = isTerminal
      },
      () => {},
    )
    return this.#terminal
  }
}

/** Longest delay of a record that nothing depends on, in ms. Any earlier write of the task includes the record. */
export const LATER_MS = 10_000
/** Delay of a record, in ms, where the session's messages prove the facts anyway. */
const PROVEN_RECORD_MS = 1000

export type JournalPorts = {
  readonly opencode: OpencodeApi
  readonly clock: Clock
  readonly stopped: AbortSignal
  readonly store: TaskStore
  /** Whether notifications to this parent are being sent. */
  readonly isSending: (parentID: string) => boolean
  /** Whether the task's parent holds the notification and is still to be woken with it. */
  readonly isUnread: (task: Task) => boolean
  /** Called when another process has taken the task over. */
  readonly takenOver: (taskID: string) => void
}

/**
 * Writes tasks into their sessions' metadata: one write at a time per session, always the newest state, so that a burst
 * costs two writes. Never rejects: failures are logged.
 */
export class Journal {
  readonly #ports: JournalPorts
  /** Writes into each session, one at a time: OpenCode could store two writes at once in any order. */
  readonly #writes = new SerialQueue()
  /** Resolves once it is known which tasks another machine took over while this machine slept. Never rejects. */
  takenUp: Promise<unknown> = Promise.resolve()
  /** When this process last woke from sleep. A lease counts from then on, because its owner may have slept, too. */
  wokenAt = 0

  constructor(ports: JournalPorts) {
    this.#ports = ports
    ports.stopped.addEventListener("abort", () => {
      for (const handle of ports.store.entries()) drop(handle)
    })
  }

  /** Resolves once this state or a newer one is stored, or the write has failed several times: it is repeated later. */
  save(task: Task): Promise<void> {
    const handle = this.#ports.store.handle(task.id)
    if (!handle) return Promise.resolve()
    handle.nextWrite ??= this.#writes.take(() => this.#save(handle), handle.task.sessionID)
    return handle.nextWrite
  }

  /** Stores the current or a newer state with the next write or `flush`, at most `LATER_MS` later. */
  saveLater(task: Task): void {
    const { stopped, clock, store } = this.#ports
    const handle = store.handle(task.id)
    if (!handle || stopped.aborted || handle.cancelWrite) return
    handle.cancelWrite = clock.after(LATER_MS, () => void this.save(task))
  }

  /**
   * Stores the task once this parent's tasks have been quiet for a moment, so that one write holds both end and
   * delivery.
   */
  saveSoon(task: Task): void {
    this.saveLater(task)
    this.#recordSoon(task.parentID)
  }

  /** Writes the task's delivery with the next write for its parent's tasks. */
  saveDelivery(task: Task): void {
    this.saveLater(task)
    if (this.#ports.store.parentState(task.parentID).cancelRecordWrite) this.#recordSoon(task.parentID)
  }

  /**
   * Performs pending writes now: all, or those of one parent's tasks. The latter wait while notifications are being sent
   * to this parent: each would have its task's record written again.
   */
  flush(parentID?: string): void {
    if (parentID !== undefined && this.#ports.isSending(parentID)) return this.#recordSoon(parentID)
    for (const { task, cancelWrite } of [...this.#ports.store.entries()])
      if (cancelWrite && (parentID === undefined || task.parentID === parentID)) void this.save(task)
  }

  /** Writes this process into the record of a dead one's task. Rejects where that fails, or the task was cleared. */
  claim(task: Task): Promise<void> {
    const { opencode, store } = this.#ports
    const write = async () => {
      if (store.wasCleared(task.id)) throw new OpencodeError(`task ${task.id} was cleared`, { notFound: true })
      await opencode.saveRecord(task.sessionID, task)
    }
    return this.#writes.take(write, task.sessionID)
  }

  /** Removes a cleared task's record after pending writes; `remains` replaces it where its cost still counts. */
  async erase(handle: TaskHandle, remains?: Task): Promise<void> {
    drop(handle)
    const { sessionID } = handle.task
    const write = () => this.#write(handle.task, () => this.#ports.opencode.saveRecord(sessionID, remains))
    await this.#writes.take(write, sessionID)
  }

  #recordSoon(parentID: string): void {
    const { clock, store } = this.#ports
    const parentState = store.parentState(parentID)
    parentState.cancelRecordWrite?.()
    parentState.cancelRecordWrite = clock.after(PROVEN_RECORD_MS, () => {
      parentState.cancelRecordWrite = undefined
      this.flush(parentID)
    })
  }

  #save(handle: TaskHandle): Promise<void> {
    const { opencode, store, isUnread } = this.#ports
    drop(handle)
    handle.nextWrite = undefined
    return this.#write(handle.task, async () => {
      const { task, isForeign } = handle
      // Skipped if the task was cleared, or belongs to another process, by now.
      if (isForeign || !store.get(task.id)) return
      const { delivery } = task
      const isPending = delivery.state === "confirmed" && isUnread(task)
      const recorded = isPending ? { ...task, delivery: { ...delivery, state: "pending" as const } } : task
      await opencode.saveRecord(task.sessionID, recorded)
    })
  }

  /** Writes, a few times if need be. After that the task's record is written again later, if the task is still known. */
  async #write(task: Task, write: () => Promise<void>): Promise<void> {
    const { opencode, clock, stopped, takenOver } = this.#ports
    const { id, sessionID } = task
    try {
      if (!stopped.aborted) await retry(clock, stopped, write)
    } catch (error) {
      if (stopped.aborted || (error instanceof OpencodeError && error.notFound)) return
      if (error instanceof OpencodeError && error.takenOver) return takenOver(id)
      opencode.log("error", "task record not written", { task: id, session: sessionID, error: String(error) })
      this.saveLater(task)
    }
  }
}

function drop(handle: TaskHandle): void {
  handle.cancelWrite?.()
  handle.cancelWrite = undefined
}
