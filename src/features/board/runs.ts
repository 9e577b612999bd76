import { neverBegan } from "../../core/outcome.ts"
import type { PauseView } from "../../core/pause.ts"
import type { Clock } from "../../core/ports.ts"
import { receiptLine } from "../../core/receipt.ts"
import { isActive, isQueued, isUnattended, type Usage } from "../../core/task.ts"
import type { Purse } from "../../runtime/budgets/ledger.ts"
import type { UnattendedRequest } from "../../runtime/launch/unattended.ts"
import type { TaskManager } from "../../runtime/task-manager.ts"
import type { TaskView } from "../../runtime/tasks/view.ts"
import type { RunResult } from "./rules/command.ts"
import { LOOK_BACK_MS } from "./state.ts"

/** One run of a task in its thread: the last one there was, or the one that is. */
export type RunView = {
  /** When it was asked for, in ms. */
  readonly createdAt: number
  /** When it ended, in ms. */
  readonly endedAt?: number
  /** `elsewhere`: another living process runs it. */
  readonly state: "queued" | "running" | "ended"
  readonly elsewhere: boolean
  /** It stands still: it holds nothing, and goes on later. */
  readonly stand?: PauseView
  /** A person has begun it, by writing in the thread. */
  readonly byPerson?: boolean
  /** What it waits for a person to answer, or nobody answered in time. */
  readonly asks: readonly string[]
  readonly result?: {
    readonly status: "completed" | "error" | "cancelled"
    readonly reason?: string
    /** False where it ended before its prompt reached the model: interrupted, or for want of money. */
    readonly begun: boolean
    /** A limit on what is spent has ended it. */
    readonly overBudget?: boolean
    /** Questions that were refused because nobody answered. */
    readonly refused: readonly string[]
  }
}

export type RunSummary = { readonly receipt: string; readonly lastWord?: string }

/**
 * Runs in threads, as the manager of background tasks has them: judged, watched, limited and counted there. What they
 * say goes to nobody.
 */
export interface Runs {
  /** Resolves when the runs of an earlier process are known and settled. Never rejects. */
  ready(): Promise<void>
  /** Looks again at what other processes run. Never rejects. */
  refresh(): Promise<void>
  /** The thread's newest run that is known. */
  of(sessionID: string): RunView | undefined
  /** Begins a run; rejects, with nothing begun, where that is refused. */
  start(request: UnattendedRequest): Promise<void>
  /** A person has written this message in a thread: that is a run as well, unless one goes on there. Never rejects. */
  adopt(request: Omit<UnattendedRequest, "prompt">, messageID: string): Promise<void>
  /**
   * Why no run may begin in a thread now, or in one that is still to be made, by the limits on what is spent; undefined
   * where one may. Never rejects.
   */
  refusals(): Promise<(sessionID: string | undefined) => string | undefined>
  /** Stops the thread's run, if there is one; `why`: the purse that pays it has ended. Never rejects. */
  stop(sessionID: string, why?: "purse"): Promise<void>
  /** Has all runs in these threads paid from one purse; undefined where there is none (any more). */
  usePurse(purse: Purse | undefined): void
  /** What the purse's runs took since it was opened, and what those at work may need for their last words, in US dollars. */
  ofPurse(): { readonly used: Usage; readonly reserve: number }
  /** What all runs in a thread took, with the tasks that they launched. */
  took(sessionID: string): Usage
  /** What is to be told of the thread's last run: what it did, in a line, and its last word where it was asked for that. */
  account(sessionID: string): Promise<RunSummary>
  /** Whether a message in a thread is one that this plugin wrote. */
  wrote(messageID: string): boolean
  /** Called when a run began, ended, was asked something or was answered. Must not throw. */
  listen(changed: (sessionID: string) => void): void
}

/** The board's runs as the manager of background tasks has them. */
export class ManagerRuns implements Runs {
  readonly #manager: TaskManager
  readonly #recovered: Promise<void>
  readonly #clock: Clock
  /** What was last told of each thread: most of what happens in a run does not concern the board. */
  readonly #told = new Map<string, string>()

  /** `recovered` resolves when the manager has brought back the tasks of an earlier process. */
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
    // One that has not begun waits for its model, too.
    const stand = view.stand ?? (isQueued(view.task) ? this.#manager.limitOf(view.task) : undefined)
    return toRun(
      { ...view, stand },
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

  usePurse(purse: Purse | undefined): void {
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
      const { state, asks, createdAt, stand } = this.of(sessionID) ?? {}
      const news = JSON.stringify([
        state,
        asks,
        createdAt,
        stand?.pauseKind,
        stand?.until ?? stand?.next ?? stand?.waitsFor,
      ])
      if (this.#told.get(sessionID) === news) return
      this.#told.set(sessionID, news)
      changed(sessionID)
    })
  }
}

function toRun(
  { task, elapsed, asks, stand }: Omit<TaskView, "stand"> & Pick<RunView, "stand">,
  elsewhere: boolean,
  byPerson: boolean,
): RunView {
  const { run, outcome, status } = task
  const common = { createdAt: run.createdAt, elsewhere, byPerson, asks: asks.map(({ what }) => what) }
  // One that its model's limit keeps from beginning is parked with no time of its own.
  const isUnbegun = isQueued(task) || (stand !== undefined && elapsed === 0)
  if (isActive(task)) return { ...common, state: isUnbegun ? "queued" : "running", ...(stand && { stand }) }
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

/** What a run that has ended comes to for its task. */
export function resultOf({ result, byPerson }: RunView): RunResult {
  const [needs] = result?.refused ?? []
  const asked = needs === undefined ? {} : { needs }
  // It was a person's: what is owed to the task still is.
  if (byPerson) return { kind: "unbegun", ...asked }
  if (result?.status === "completed") return { kind: "completed", ...asked }
  if (result?.status === "cancelled") return { kind: "stopped", ...asked }
  if (result?.begun === false) return { kind: "unbegun", ...asked }
  // Nothing of it has failed: the next one is refused until there is money.
  if (result?.overBudget) return { kind: "stopped", ...asked }
  return { kind: "failed", reason: result?.reason ?? "it ended without saying why", ...asked }
}
