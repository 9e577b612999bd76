import type { Undone } from "../../core/ports.ts"
import type { ActiveRun } from "../../core/run/active-run.ts"
import { type Figures, NO_FIGURES, type Task } from "../../core/task.ts"
import type { Answer } from "../../present/notification.ts"

export type KeptAnswer = Answer & { readonly generation: number; readonly keptAt: number; readonly until: number }

/** All that this process knows of a task. Forgetting the task means dropping this object. */
export class TaskHandle {
  task: Task
  run: ActiveRun | undefined
  /** Another living process writes its record. */
  borrowed = false
  answer?: KeptAnswer
  /** For a foreign task: its last message at the last read. */
  seen?: string
  /** Calls waiting for the end of its run. */
  readonly waiters = new Set<() => void>()
  /** Callers waiting for a state of its run. */
  readonly watchers = new Set<{
    readonly until: (run: ActiveRun | undefined) => boolean
    readonly resolve: () => void
  }>()
  /** Queued inputs; not empty while one is handled. */
  readonly inputs: (() => void)[] = []
  isBusy = false
  /** Messages of ended runs, and of what went on after them, whose usage the task has. */
  readonly counted = new Set<string>()
  /** Index among the ends of this process. */
  endIndex = 0
  /** Stops its check or preparation; `preparation` resolves when that is over. */
  stop?: AbortController
  preparation?: Promise<unknown>
  /** The launching call named its model. */
  isModelNamed = false
  /** Missing dependencies of its place, found at the launch. */
  lacks?: string
  /** Items of an active map. */
  items?: readonly unknown[]
  /** Hashes of rows that this process wrote to the ledger, by index: others can write there, too. */
  noted?: Map<number, string>
  /** Resolves when all members under creation exist. */
  creatingMembers?: Promise<unknown>
  /** Record writes: the pending one, the next one, and a function that starts a deferred one now. */
  writing?: Promise<void>
  writeAgain?: Promise<void>
  writeNow?: () => void

  constructor(task: Task, run?: ActiveRun) {
    this.task = task
    this.run = run
  }

  until(until: (run: ActiveRun | undefined) => boolean): Promise<void> {
    if (until(this.run)) return Promise.resolve()
    return new Promise((resolve) => void this.watchers.add({ until, resolve }))
  }

  /** Releases calls that wait for the end of its run. */
  releaseWaiters(): void {
    for (const finish of [...this.waiters]) finish()
  }

  /** Releases callers whose awaited state is reached. */
  notifyWatchers(): void {
    for (const watcher of [...this.watchers]) {
      if (!watcher.until(this.run)) continue
      this.watchers.delete(watcher)
      watcher.resolve()
    }
  }
}

/** An end to be told, in the order of the ends. */
export type PendingNotification = { readonly task: Task; readonly maybeDelivered: boolean; readonly endIndex: number }

/** State of a session with tasks, beside the tasks themselves. */
export class ParentState {
  readonly children = new Set<string>()
  pendingNotifications: readonly PendingNotification[] = []
  /** Usage of its cleared tasks. */
  forgottenUsage: Figures = NO_FIGURES
  /** Cleared tasks that a limit still counts. */
  forgotten: Task[] = []
  /** Times of recent launches. */
  launches: readonly number[] = []
  /** Launches in progress by fingerprint, so that an identical one can wait. */
  readonly launching = new Map<string, Promise<Task>>()
  /** Its user stopped its turn and has not written since. */
  isStopped = false
  /** Undo by its user. `restores` ends once they were told what a redo would reset. */
  undone?: Undone
  /** Ended tasks dropped unread. */
  droppedUnread = 0
  /** Resolves when its tasks of earlier processes are recovered. */
  loaded?: Promise<void>
  /** Cancels the pending write of its tasks' ends. */
  cancelRecordWrite?: () => void

  /** The session's own task was cleared: its usage counts for the payer above. */
  transferUsage(heir: ParentState | undefined): void {
    if (heir) heir.forgotten = [...heir.forgotten, ...this.forgotten]
    this.forgotten = []
    this.forgottenUsage = NO_FIGURES
  }

  reset(): void {
    this.launches = []
    this.droppedUnread = 0
    this.loaded = undefined
  }
}
