import type { Undone } from "../../core/ports.ts"
import type { ActiveRun } from "../../core/run/active-run.ts"
import { type Figures, NO_FIGURES, type Task } from "../../core/task.ts"
import { SerialQueue } from "../../lib/promises.ts"
import type { Answer } from "../../present/notification.ts"

export type CachedAnswer = Answer & { readonly generation: number; readonly cachedAt: number; readonly until: number }

/** All that this process knows of a task. Forgetting the task means dropping this object. */
export class TaskHandle {
  task: Task
  run: ActiveRun | undefined
  /** Set while another process writes the task's record. */
  isForeign = false
  /** Another process has taken the task over. The record that is read next counts, even if it is of an earlier run. */
  isLost = false
  answer?: CachedAnswer
  /** For a foreign task: its last message when this process last read it. */
  seen?: string
  /** Calls that wait for the end of the task's run. */
  readonly waiters = new Set<() => void>()
  /** Callers that wait until the task's run has reached a state. */
  readonly watchers = new Set<{
    readonly until: (run: ActiveRun | undefined) => boolean
    readonly resolve: () => void
  }>()
  /** Queued inputs of the task. Not empty while an input is handled. */
  readonly inputs: (() => void)[] = []
  isBusy = false
  /** Ids of messages whose usage the task already contains: messages of ended runs, and of turns after them. */
  readonly counted: string[] = []
  /** Number of the task's end in the order in which tasks ended in this process. */
  endIndex = 0
  /** Stops the task's check or preparation. `preparation` resolves when the stopped work has ended. */
  stop?: AbortController
  preparation?: Promise<unknown>
  /** Resolves when it is known how the task, of a dead process, stands. */
  adopting?: Promise<unknown>
  /** Resolves when the task, of a dead process, is settled, and its end is closed. */
  recovering?: Promise<unknown>
  /** Whether the call that launched the task named its model. */
  isModelNamed = false
  /** Sentences on dependencies that the task's place lacks, found at the launch. */
  lacks?: string
  /** State that the feature of an active group keeps. */
  groupState?: unknown
  /** Resolves when all members under creation exist. */
  creatingMembers?: Promise<unknown>
  /** Record write that has not begun yet. */
  nextWrite?: Promise<void>
  /** Cancels a deferred record write. */
  cancelWrite?: () => void

  constructor(task: Task, run?: ActiveRun) {
    this.task = task
    this.run = run
  }

  until(until: (run: ActiveRun | undefined) => boolean): Promise<void> {
    if (until(this.run)) return Promise.resolve()
    return new Promise((resolve) => void this.watchers.add({ until, resolve }))
  }

  /** Lets all calls continue that wait for the end of the task's run. */
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

/** A notification that is not queued yet. `endIndex`: its position in the order of the ends. */
export type PendingNotification = { readonly task: Task; readonly maybeDelivered: boolean; readonly endIndex: number }

/** State of a session that has launched tasks, except the tasks themselves. */
export class ParentState {
  readonly children = new Set<string>()
  pendingNotifications: readonly PendingNotification[] = []
  /** Usage of the session's cleared tasks. */
  forgottenUsage: Figures = NO_FIGURES
  /** Cleared tasks that a limit still counts. */
  forgotten: Task[] = []
  /** Times of recent launches. */
  launches: readonly number[] = []
  /** Launches by fingerprint, so that an identical launch waits for the first. */
  readonly launching = new SerialQueue()
  /** Set if the user stopped the session's turn and has written nothing since. */
  isStopped = false
  /** Since then the session has been active, if only with a command of the shell. */
  isActiveAgain = false
  /**
   * Set while messages are undone. `restores` becomes false once the user is warned of changes that a redo would reset.
   */
  undone?: Undone
  /** Number of ended tasks that were dropped before the parent read them. */
  droppedUnread = 0
  /** When the session's records were last read. `tasks` resolves once tasks of earlier processes are recovered. */
  loaded?: { readonly at: number; readonly tasks: Promise<void> }
  /** Cancels the pending write of the records of the session's ended tasks. */
  cancelRecordWrite?: () => void

  /**
   * Called when the session's own task was cleared. Cleared tasks that a limit still counts move to `heir`, the session
   * above.
   */
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
