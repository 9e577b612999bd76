import { taskOfMessage } from "../core/ids.ts"
import type { Clock } from "../core/ports.ts"
import { isActive, isUnattended } from "../core/task.ts"
import { neverBegan } from "../core/verdict.ts"
import type { TaskManager } from "../engine/task-manager.ts"
import type { TaskView } from "../engine/tasks/view.ts"
import type { RunResult } from "./rules/command.ts"
import { LOOK_BACK_MS } from "./state.ts"

/** One run of a task in its thread: the last one there was, or the one that is. */
export type RunView = {
  /** When it was asked for, in ms. */
  readonly createdAt: number
  /** `elsewhere`: another living process runs it. */
  readonly state: "queued" | "running" | "ended"
  readonly elsewhere: boolean
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

export type RunRequest = {
  readonly sessionID: string
  readonly agent: string
  readonly description: string
  readonly prompt: string
}

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
  start(request: RunRequest): Promise<void>
  /** A person has written this message in a thread: that is a run as well, unless one goes on there. Never rejects. */
  adopt(request: Omit<RunRequest, "prompt">, messageID: string): Promise<void>
  /**
   * Why no run may begin in a thread now, or in one that is still to be made, by the limits on what is spent; undefined
   * where one may. Never rejects.
   */
  refusals(): Promise<(sessionID: string | undefined) => string | undefined>
  /** Stops the thread's run, if there is one. Never rejects. */
  stop(sessionID: string): Promise<void>
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
    return this.#manager.refresh(this.#clock.now() - LOOK_BACK_MS)
  }

  of(sessionID: string): RunView | undefined {
    const view = this.#manager.taskIn(sessionID)
    return view && isUnattended(view.task) ? toRun(view, this.#manager.overview.isForeign(view.task.id)) : undefined
  }

  async start(request: RunRequest): Promise<void> {
    await this.#manager.run(request)
  }

  async adopt(request: Omit<RunRequest, "prompt">, messageID: string): Promise<void> {
    await this.#manager.adoptRun(request, messageID)
  }

  refusals(): Promise<(sessionID: string | undefined) => string | undefined> {
    return this.#manager.refusals()
  }

  async stop(sessionID: string): Promise<void> {
    await this.#manager.stopRun(sessionID)
  }

  wrote(messageID: string): boolean {
    return this.#manager.wrote(messageID)
  }

  listen(changed: (sessionID: string) => void): void {
    this.#manager.overview.subscribe((taskID) => {
      const sessionID = this.#manager.standing(taskID)
      if (sessionID === undefined) return
      const { state, asks, createdAt } = this.of(sessionID) ?? {}
      const news = JSON.stringify([state, asks, createdAt])
      if (this.#told.get(sessionID) === news) return
      this.#told.set(sessionID, news)
      changed(sessionID)
    })
  }
}

function toRun({ task, phase, asks }: TaskView, elsewhere: boolean): RunView {
  const { run, outcome, status } = task
  const byPerson = taskOfMessage(run.promptID) !== task.id
  const common = { createdAt: run.createdAt, elsewhere, byPerson, asks: asks.map(({ what }) => what) }
  if (isActive(task)) return { ...common, state: phase === "queued" ? "queued" : "running" }
  const reason = outcome?.reason
  const overBudget = reason?.code === "budget"
  const neverAsked = reason !== undefined && (neverBegan(reason) || (overBudget && run.startedAt === undefined))
  return {
    ...common,
    state: "ended",
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
