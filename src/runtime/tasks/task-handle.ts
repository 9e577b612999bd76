import type { ActiveRun } from "../../core/run/active-run.ts"
import { type Figures, NO_FIGURES, type Task } from "../../core/task.ts"
import type { Answer } from "../../present/notification.ts"

/** The answer of an ended run, as it was read. */
export type KeptAnswer = Answer & { readonly generation: number; readonly keptAt: number; readonly until: number }

/** All that this process knows of a task. To forget the task is to drop this one object. */
export class TaskHandle {
  task: Task
  run: ActiveRun | undefined
  /** Another living process writes its record. */
  borrowed = false
  answer?: KeptAnswer
  /** Its request that was refused last: the host tells of it several times. */
  refused?: string
  /** The request that compacts its session, while that is the last one; its agent may have another model. */
  compaction?: { readonly model: string; readonly at: number }
  /** It was given another model since it was parked. */
  isSwitched = false
  /** Of another process's task: its last message when its messages were read. */
  seen?: string
  /** Calls that wait for the end of its run. */
  readonly waiters = new Set<() => void>()
  /** What waits until its run is so far. */
  readonly watchers = new Set<{
    readonly until: (run: ActiveRun | undefined) => boolean
    readonly resolve: () => void
  }>()
  /** Inputs that came while an earlier one was dealt with, and that this is so. */
  readonly inputs: (() => void)[] = []
  isBusy = false
  /** Messages of ended runs, and of what went on after them, whose usage its outcome has. */
  readonly counted = new Set<string>()
  /** Its place among the ends of this process. */
  endIndex = 0
  /** Stops its check, or what makes its place ready; and when that is over. */
  stop?: AbortController
  preparation?: Promise<unknown>
  /** The call that launched it named its model. */
  isModelNamed = false
  /** What its place will lack, as it was found at its launch. */
  lacks?: string
  /** Of a map at work: its items. */
  items?: readonly unknown[]
  /** What we have written of them into the ledger, by their index, as hashes: others can write there, too. */
  noted?: Map<number, string>
  /** Of a team: resolves when all of its parts are made that were begun to be. */
  creatingMembers?: Promise<unknown>
  /** The write of its record that is under way, the one that follows it, and the end of the wait for one that can wait. */
  writing?: Promise<void>
  writeAgain?: Promise<void>
  writeNow?: () => void

  constructor(task: Task, run?: ActiveRun) {
    this.task = task
    this.run = run
  }

  /** Resolves when its run is so far. */
  until(until: (run: ActiveRun | undefined) => boolean): Promise<void> {
    if (until(this.run)) return Promise.resolve()
    return new Promise((resolve) => void this.watchers.add({ until, resolve }))
  }

  /** Lets the calls go that wait for the end of its run. */
  releaseWaiters(): void {
    for (const finish of [...this.waiters]) finish()
  }

  /** Lets go what waits for its run to be so far. */
  notifyWatchers(): void {
    for (const watcher of [...this.watchers]) {
      if (!watcher.until(this.run)) continue
      this.watchers.delete(watcher)
      watcher.resolve()
    }
  }
}

/** An end that is to be told, in the order of the ends. */
export type PendingNotification = { readonly task: Task; readonly maybeDelivered: boolean; readonly endIndex: number }

/** What is known of a session beside its tasks. */
export class ParentState {
  readonly children = new Set<string>()
  /** Ends that are to be told to it when their turn has come. */
  pendingNotifications: readonly PendingNotification[] = []
  /** What its forgotten tasks took. */
  forgottenUsage: Figures = NO_FIGURES
  /** Those of them that a limit still counts. */
  forgotten: Task[] = []
  /** When it launched tasks of late. */
  launches: readonly number[] = []
  /** Launches under way that an identical one may wait for, by what they ask. */
  readonly launching = new Map<string, Promise<Task>>()
  /** Its user has stopped its turn, and not written since. */
  isStopped = false
  /** Ended tasks that were dropped unread. */
  droppedUnread = 0
  /** Its tasks of earlier processes are brought back. */
  loaded?: Promise<void>
  /** Takes back the writing of its tasks' ends that is about to come. */
  cancelRecordWrite?: () => void

  /** The session's own task is forgotten: what was paid for it counts for whoever pays for the session above. */
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
