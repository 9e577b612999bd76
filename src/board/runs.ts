import type { Clock } from "../core/ports.ts"
import { isActive, isUnattended } from "../core/task.ts"
import { neverBegan } from "../core/verdict.ts"
import type { TaskManager } from "../engine/task-manager.ts"
import type { TaskView } from "../engine/tasks/view.ts"
import { LOOK_BACK_MS } from "./state.ts"

/** One run of a task in its thread: the last one there was, or the one that is. */
export type RunView = {
  /** When it was asked for, in ms. */
  readonly createdAt: number
  /** `elsewhere`: another living process runs it. */
  readonly state: "queued" | "running" | "ended"
  readonly elsewhere: boolean
  /** What it waits for a person to answer, or nobody answered in time. */
  readonly asks: readonly string[]
  readonly result?: {
    readonly status: "completed" | "error" | "cancelled"
    readonly reason?: string
    /** False where it was interrupted before its prompt reached the model. */
    readonly begun: boolean
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
  const common = { createdAt: run.createdAt, elsewhere, asks: asks.map(({ what }) => what) }
  if (isActive(task)) return { ...common, state: phase === "queued" ? "queued" : "running" }
  const reason = outcome?.reason
  return {
    ...common,
    state: "ended",
    asks: [],
    result: {
      status: status === "completed" || status === "cancelled" ? status : "error",
      reason: reason?.text,
      begun: reason === undefined || !neverBegan(reason),
      refused: outcome?.unanswered ?? [],
    },
  }
}
