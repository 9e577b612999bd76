import { neverBegan } from "../../core/outcome.ts"
import type { PauseView } from "../../core/pause.ts"
import type { Clock } from "../../core/ports.ts"
import { receiptLine } from "../../core/receipt.ts"
import { isActive, isQueued, isUnattended, type Usage } from "../../core/task.ts"
import type { LedgerPurse } from "../../runtime/budgets.ts"
import type { UnattendedRequest } from "../../runtime/launch/unattended.ts"
import type { TaskManager } from "../../runtime/task-manager.ts"
import type { TaskView } from "../../runtime/tasks/view.ts"
import type { RunResult } from "./rules/command.ts"
import { LOOK_BACK_MS } from "./state.ts"

/** The active or last run of a task in its thread. */
export type RunView = {
  /** Time of the request, in ms. */
  readonly createdAt: number
  /** When it ended, in ms. */
  readonly endedAt?: number
  /** `elsewhere`: run by another living process. */
  readonly state: "queued" | "running" | "ended"
  readonly elsewhere: boolean
  /** Pause of the run, during which it holds no slot. */
  readonly pause?: PauseView
  /** Started by a user's message in the thread. */
  readonly byPerson?: boolean
  /** Open questions, or those not answered in time. */
  readonly asks: readonly string[]
  readonly result?: {
    readonly status: "completed" | "error" | "cancelled"
    readonly reason?: string
    /** False where it ended before its prompt reached the model: interrupted, or without budget. */
    readonly begun: boolean
    /** Ended by a spending limit. */
    readonly overBudget?: boolean
    /** Questions refused because nobody answered. */
    readonly refused: readonly string[]
  }
}

export type RunSummary = { readonly receipt: string; readonly lastWord?: string }

/** Runs in threads, supervised like background tasks but without notifications. */
export interface Runs {
  /** Resolves when runs of earlier processes are settled. Never rejects. */
  ready(): Promise<void>
  /** Updates runs of other processes. Never rejects. */
  refresh(): Promise<void>
  /** Newest known run of the thread. */
  of(sessionID: string): RunView | undefined
  /** Rejects where the run is refused, without side effects. */
  start(request: UnattendedRequest): Promise<void>
  /** A user's message in a thread starts a run, unless one is active. Never rejects. */
  adopt(request: Omit<UnattendedRequest, "prompt">, messageID: string): Promise<void>
  /**
   * Function that tells why no run may begin in a thread, or in a new one, for lack of budget; undefined where one may.
   * Never rejects.
   */
  refusals(): Promise<(sessionID: string | undefined) => string | undefined>
  /** Stops the thread's run, if any; `why`: its purse has ended. Never rejects. */
  stop(sessionID: string, why?: "purse"): Promise<void>
  /** Sets the purse that pays runs in its threads; undefined for none. */
  usePurse(purse: LedgerPurse | undefined): void
  /** Usage since the purse was opened, and the reserve for last words of active runs, in US dollars. */
  ofPurse(): { readonly used: Usage; readonly reserve: number }
  /** Usage of all runs in a thread, with the tasks they launched. */
  took(sessionID: string): Usage
  /** Summary of the thread's last run in one line, and its last word if there is one. */
  account(sessionID: string): Promise<RunSummary>
  /** Whether this plugin wrote the message. */
  wrote(messageID: string): boolean
  /** Called when a run began, ended, asked or was answered. Must not throw. */
  listen(changed: (sessionID: string) => void): void
}

/** Board runs on top of the task manager. */
export class ManagerRuns implements Runs {
  readonly #manager: TaskManager
  readonly #recovered: Promise<void>
  readonly #clock: Clock
  /** Last state reported for each thread: most changes do not concern the board. */
  readonly #told = new Map<string, string>()

  /** `recovered`: resolves when the manager has recovered earlier tasks. */
  constructor(manager: TaskManager, recovered: Promise<void>, clock: Clock) {
    this.#manager = manager
    this.#recovered = recovered
    this.#clock = clock
  }

  ready(): Promise<void> {
    return this.#recovered
  }

  refresh(): Promise<void> {
    return this.#manager.unattended.refresh(this.#clock.now() - LOOK_BACK_MS)
  }

  of(sessionID: string): RunView | undefined {
    const view = this.#manager.taskIn(sessionID)
    if (!view || !isUnattended(view.task)) return undefined
    const { id, run } = view.task
    // A run that has not begun may wait for its model, too.
    const pause = view.pause ?? (isQueued(view.task) ? this.#manager.limitOf(view.task) : undefined)
    return toRun(
      { ...view, pause },
      this.#manager.overview.isForeign(id),
      !this.#manager.unattended.wrote(run.promptID),
    )
  }

  async start(request: UnattendedRequest): Promise<void> {
    await this.#manager.unattended.run(request)
  }

  async adopt(request: Omit<UnattendedRequest, "prompt">, messageID: string): Promise<void> {
    await this.#manager.unattended.adopt(request, messageID)
  }

  refusals(): Promise<(sessionID: string | undefined) => string | undefined> {
    return this.#manager.unattended.refusals()
  }

  async stop(sessionID: string, why?: "purse"): Promise<void> {
    await this.#manager.unattended.stop(sessionID, why)
  }

  usePurse(purse: LedgerPurse | undefined): void {
    this.#manager.unattended.usePurse(purse)
  }

  ofPurse() {
    return this.#manager.unattended.ofPurse()
  }

  took(sessionID: string): Usage {
    return this.#manager.unattended.took(sessionID)
  }

  async account(sessionID: string): Promise<RunSummary> {
    const { outcome, id } = this.#manager.taskIn(sessionID)?.task ?? {}
    const receipt = outcome?.receipt ? receiptLine(outcome.receipt) : ""
    if (id === undefined || !outcome?.saidLastWord) return { receipt }
    return { receipt, lastWord: await this.#manager.overview.answer(id).catch(() => "") }
  }

  wrote(messageID: string): boolean {
    return this.#manager.unattended.wrote(messageID)
  }

  listen(changed: (sessionID: string) => void): void {
    this.#manager.overview.subscribe((taskID) => {
      const sessionID = this.#manager.unattended.sessionOf(taskID)
      if (sessionID === undefined) return
      const { state, asks, createdAt, pause } = this.of(sessionID) ?? {}
      const news = JSON.stringify([
        state,
        asks,
        createdAt,
        pause?.pauseKind,
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
  elsewhere: boolean,
  byPerson: boolean,
): RunView {
  const { run, outcome, status } = task
  const common = { createdAt: run.createdAt, elsewhere, byPerson, asks: asks.map(({ what }) => what) }
  // One that its model's limit keeps from beginning is parked with no time of its own.
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
      refused: outcome?.unanswered ?? [],
    },
  }
}

/** Result of an ended run for its task. */
export function resultOf({ result, byPerson }: RunView): RunResult {
  const [needs] = result?.refused ?? []
  const asked = needs === undefined ? {} : { needs }
  // A user's turn: the task's own run is still due.
  if (byPerson) return { kind: "unbegun", ...asked }
  if (result?.status === "completed") return { kind: "completed", ...asked }
  if (result?.status === "cancelled") return { kind: "stopped", ...asked }
  if (result?.begun === false) return { kind: "unbegun", ...asked }
  // Not a failure: further runs are refused until there is budget.
  if (result?.overBudget) return { kind: "stopped", ...asked }
  return { kind: "failed", reason: result?.reason ?? "it ended without saying why", ...asked }
}
