import { listed } from "../../core/errors.ts"
import type { Clock, OpencodeApi } from "../../core/ports.ts"
import { type BoardOptions, DEFAULT_SCHEDULE } from "./options.ts"
import { quietUntil } from "./rules/purse.ts"
import type { Runs } from "./runs.ts"
import { type Schedule, scheduleOf } from "./schedule.ts"
import { type BoardAgent, BoardError } from "./service.ts"
import { isInFlight, type StatusContext } from "./status.ts"
import type { Store } from "./store/store.ts"
import type { BoardTask } from "./task.ts"

export type BoardContextPorts = {
  readonly opencode: Pick<OpencodeApi, "agents" | "toast" | "log">
  readonly runs: Runs
  readonly clock: Clock
  readonly options: BoardOptions
  readonly store: Pick<Store, "latest">
}

/** Shortest time between two reads of other processes' runs, in ms. */
const REFRESH_MS = 2000

/** Provides facts that are not in the board's files: agents, runs and the time. */
export class BoardContext {
  readonly schedule: Schedule
  readonly #ports: BoardContextPorts
  /** Agents as they were last read, for calls that cannot wait. */
  #agents: readonly BoardAgent[] = []
  #saidMissing = false
  #refreshedAt = 0

  constructor(ports: BoardContextPorts) {
    this.#ports = ports
    const { options, opencode } = ports
    this.schedule = scheduleOf(options.schedule, (why) => {
      const message = `Option "board.schedule" is "${options.schedule}", which is no cron pattern (${why}). Using "${DEFAULT_SCHEDULE}".`
      opencode.log("warn", message)
      opencode.toast({ title: "superagents: check your options", message, variant: "warning" })
    })
  }

  /** Agents that may own tasks: all visible agents, or those of them that the option names. */
  async agents(): Promise<readonly BoardAgent[]> {
    const { agents: allowed } = this.#ports.options
    try {
      const all = (await this.#ports.opencode.agents()).filter(({ hidden }) => !hidden)
      this.#sayMissing(all.map(({ name }) => name))
      this.#agents = all
        .filter(({ name }) => allowed?.includes(name) ?? true)
        .map(({ name, description }) => Object.freeze({ name, description }))
    } catch (error) {
      throw new BoardError("unavailable", `OpenCode did not tell which agents there are: ${String(error)}`)
    }
    return this.#agents
  }

  /** Facts for the rules, read before the files are locked. */
  async facts() {
    const agents = (await this.agents()).map(({ name }) => name)
    const isRunning = (id: string) => {
      const task = this.#ports.store.latest.tasks.find((each) => each.id === id)
      return task !== undefined && this.isRunning(task)
    }
    return { now: this.#now(), agents, isRunning }
  }

  statusContext(): StatusContext {
    const { clock, runs, store } = this.#ports
    const now = clock.now()
    return {
      runOf: ({ threadId }) => (threadId === undefined ? undefined : runs.of(threadId)),
      agents: this.#agents.map(({ name }) => name),
      now: this.#now(),
      nextTick: this.schedule.round(now, quietUntil(store.latest, now)),
    }
  }

  isRunning({ threadId }: BoardTask): boolean {
    return threadId !== undefined && isInFlight(this.#ports.runs.of(threadId))
  }

  /** Reads the runs of other processes again, because this process gets no events of them. Never rejects. */
  async refresh(): Promise<void> {
    const { clock, runs } = this.#ports
    if (Math.abs(clock.now() - this.#refreshedAt) < REFRESH_MS) return
    this.#refreshedAt = clock.now()
    await runs.refresh()
  }

  #now(): string {
    return new Date(this.#ports.clock.now()).toISOString()
  }

  #sayMissing(all: readonly string[]): void {
    const missing = this.#ports.options.agents?.filter((name) => !all.includes(name)) ?? []
    if (missing.length === 0 || this.#saidMissing) return
    this.#saidMissing = true
    const message = `Option "board.agents": OpenCode has no agent ${listed(missing.map((name) => `"${name}"`))}. It has: ${listed(all, 20)}.`
    this.#ports.opencode.log("warn", message)
  }
}
