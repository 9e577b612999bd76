import { neverBegan } from "../../core/outcome.ts"
import type { PauseView } from "../../core/pause.ts"
import type { Clock } from "../../core/ports.ts"
import { receiptLine } from "../../core/receipt.ts"
import { isActive, isQueued, isUnattended, NOBODY } from "../../core/task.ts"
import type { TaskView } from "../../present/view.ts"
import type { TaskManager } from "../../runtime/task-manager.ts"
import type { RunResult } from "./rules/command.ts"
import { LOOK_BACK_MS } from "./state.ts"
import { Unattended } from "./unattended.ts"

/** The active or last run of a task in its thread. */
export type RunView = {
  /** Time at which the run was requested, in ms. */
  readonly createdAt: number
  /** Time at which the run ended, in ms. */
  readonly endedAt?: number
  readonly state: "queued" | "running" | "ended"
  /** Pause of the run, during which it holds no slot. */
  readonly pause?: PauseView
  /** Whether a user's message in the thread started the run. */
  readonly byPerson?: boolean
  /** Questions of the active run that are open, or that nobody answered in time. */
  readonly asks: readonly string[]
  readonly result?: {
    readonly status: "completed" | "error" | "cancelled"
    readonly reason?: string
    /** False where an interruption or a budget ended the run before its prompt reached the model. */
    readonly begun: boolean
    /** Whether a spending limit ended the run. */
    readonly overBudget?: boolean
    /** Questions of the run that were refused because nobody answered, and not answered since. */
    readonly refused: readonly string[]
  }
}

export type RunSummary = { readonly receipt: string; readonly lastWord?: string }

/** Runs in threads, supervised like background tasks but without notifications. */
export type Runs = Pick<ManagerRuns, Exclude<keyof ManagerRuns, "sessionOf">>

/** Carries out the board's runs with the task manager. */
export class ManagerRuns extends Unattended {
  readonly #manager: TaskManager
  readonly #recovered: Promise<void>
  readonly #clock: Clock
  /**
   * Last state reported for each thread. An unchanged state is not reported again: most changes of tasks do not concern
   * the board.
   */
  readonly #told = new Map<string, string>()

  /** `recovered`: resolves when the manager has recovered earlier tasks. */
  constructor(manager: TaskManager, recovered: Promise<void>, clock: Clock) {
    super(manager.parts)
    this.#manager = manager
    this.#recovered = recovered
    this.#clock = clock
  }

  /** Resolves when the plugin has recovered the runs of earlier processes. Never rejects. */
  ready(): Promise<void> {
    return this.#recovered
  }

  /**
   * Reads the runs of other processes again, and waits a moment until those of dead processes are settled: only then they
   * can be stopped, and their cost is known. Never rejects.
   */
  async refresh(): Promise<void> {
    const { recovery } = this.#manager.parts
    await recovery.discover(this.#clock.now() - LOOK_BACK_MS)
    await recovery.refreshForeign()
    await recovery.settled(NOBODY)
  }

  /** Reads the tasks that the thread has launched, however long ago, so that their usage is known. Never rejects. */
  know(sessionID: string): Promise<void> {
    return this.#manager.ready(sessionID)
  }

  /** Newest known run of the thread. */
  of(sessionID: string): RunView | undefined {
    const view = this.#manager.taskIn(sessionID)
    if (!view || !isUnattended(view.task)) return undefined
    const { run } = view.task
    // A queued run may wait because of its model's limit: such a run counts as paused, too.
    const pause = view.pause ?? (isQueued(view.task) ? this.#manager.parts.waits.limitOf(view.task) : undefined)
    return toRun({ ...view, pause }, !this.wrote(run.promptID), this.refusedIn(view.task))
  }

  /** Summary of the thread's last run in one line, and its last word if there is one. */
  async account(sessionID: string): Promise<RunSummary> {
    const { outcome, id } = this.#manager.taskIn(sessionID)?.task ?? {}
    const receipt = outcome?.receipt ? receiptLine(outcome.receipt) : ""
    if (id === undefined || !outcome?.saidLastWord) return { receipt }
    return { receipt, lastWord: await this.#manager.parts.reports.answer(id).catch(() => "") }
  }

  /** Calls `changed` when a run begins, ends, asks a question or gets an answer. `changed` must not throw. */
  listen(changed: (sessionID: string) => void): void {
    this.#manager.parts.reports.subscribe((taskID) => {
      const sessionID = this.sessionOf(taskID)
      if (sessionID === undefined) return
      const { state, asks, createdAt, pause } = this.of(sessionID) ?? {}
      const news = JSON.stringify([
        state,
        asks,
        createdAt,
        pause && "parked",
        pause?.until ?? pause?.next ?? pause?.waitsFor,
      ])
      if (this.#told.get(sessionID) === news) return
      this.#told.set(sessionID, news)
      changed(sessionID)
    })
  }
}

function toRun(
  { task, elapsed, asks, pause }: Omit<TaskView, "pause"> & Pick<RunView, "pause">,
  byPerson: boolean,
  refused: readonly string[],
): RunView {
  const { run, outcome, status } = task
  const common = { createdAt: run.createdAt, byPerson, asks: asks.map(({ what }) => what) }
  // A run that its model's limit keeps from beginning is parked and has worked for no time: it counts as queued.
  const isUnbegun = isQueued(task) || (pause !== undefined && elapsed === 0)
  if (isActive(task)) return { ...common, state: isUnbegun ? "queued" : "running", ...(pause && { pause }) }
  const reason = outcome?.reason
  const overBudget = reason?.code === "budget" || reason?.code === "purse"
  const neverAsked = reason !== undefined && (neverBegan(reason) || (overBudget && run.startedAt === undefined))
  return {
    ...common,
    state: "ended",
    endedAt: run.endedAt,
    asks: [],
    result: {
      status: status === "completed" || status === "cancelled" ? status : "error",
      reason: reason?.text,
      begun: !neverAsked,
      overBudget,
      refused,
    },
  }
}

/** Result of an ended run, as the rules record it for the task. */
export function resultOf({ result, byPerson }: RunView): RunResult {
  const [needs] = result?.refused ?? []
  const asked = needs === undefined ? {} : { needs }
  // A user's message started this run, so the task's own run is still due.
  if (byPerson) return { kind: "unbegun", ...asked }
  if (result?.status === "completed") return { kind: "completed", ...asked }
  if (result?.status === "cancelled") return { kind: "stopped", ...asked }
  if (result?.begun === false) return { kind: "unbegun", ...asked }
  // A run that a spending limit ended is no failure: further runs are refused until there is budget.
  if (result?.overBudget) return { kind: "stopped", ...asked }
  return { kind: "failed", reason: result?.reason ?? "it ended without saying why", ...asked }
}
