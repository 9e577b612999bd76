import type { Clock } from "../core/ports.ts"
import { isActive, isUnattended } from "../core/task.ts"
import { neverBegan } from "../core/verdict.ts"
import type { TaskManager } from "../engine/task-manager.ts"
import type { TaskView } from "../engine/tasks/view.ts"
import type { RunRequest, Runs, RunView } from "./ports.ts"
import { LOOK_BACK_MS } from "./status.ts"

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
