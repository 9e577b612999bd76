import { listed } from "../core/errors.ts"
import type { Clock, Runs, Surroundings } from "./ports.ts"
import type { Schedule } from "./schedule.ts"
import { type BoardAgent, BoardError } from "./service.ts"
import { isInFlight, type Moment } from "./status.ts"
import type { BoardTask } from "./task.ts"

export type PresentPorts = {
  readonly runs: Runs
  readonly surroundings: Surroundings
  readonly clock: Clock
  readonly schedule: Schedule
  /** The agents that may own tasks; undefined for all that are not hidden. */
  readonly agents?: readonly string[]
}

/** What other processes run is looked at no more often than this. */
const REFRESH_MS = 2000

/** What goes on beside the files: which agents there are, what runs, what the clock says. */
export class Present {
  readonly #ports: PresentPorts
  /** As last read, for answers that cannot wait. */
  #agents: readonly BoardAgent[] = []
  #saidMissing = false
  #refreshedAt = 0
  /** The clock's next round as last looked for. */
  #round = { minute: Number.NaN, at: 0, text: "" }

  constructor(ports: PresentPorts) {
    this.#ports = ports
  }

  async agents(): Promise<readonly BoardAgent[]> {
    const { surroundings, agents: allowed } = this.#ports
    try {
      const all = await surroundings.agents()
      this.#sayMissing(all.map(({ name }) => name))
      this.#agents = all
        .filter(({ name }) => allowed?.includes(name) ?? true)
        .map(({ name, description }) => Object.freeze({ name, description }))
    } catch (error) {
      throw new BoardError("unavailable", `OpenCode did not tell which agents there are: ${String(error)}`)
    }
    return this.#agents
  }

  #sayMissing(all: readonly string[]): void {
    const missing = this.#ports.agents?.filter((name) => !all.includes(name)) ?? []
    if (missing.length === 0 || this.#saidMissing) return
    this.#saidMissing = true
    const message = `Option "board.agents": OpenCode has no agent ${listed(missing.map((name) => `"${name}"`))}. It has: ${listed(all, 20)}.`
    this.#ports.surroundings.log("warn", message)
  }

  /** Looks at what other processes run, of which nothing is heard here. Never rejects. */
  async refresh(): Promise<void> {
    const { clock, runs } = this.#ports
    if (Math.abs(clock.now() - this.#refreshedAt) < REFRESH_MS) return
    this.#refreshedAt = clock.now()
    await runs.refresh()
  }

  isRunning({ threadId }: BoardTask): boolean {
    return threadId !== undefined && isInFlight(this.#ports.runs.of(threadId))
  }

  moment(): Moment {
    const { clock, runs } = this.#ports
    const now = clock.now()
    return {
      runOf: ({ threadId }) => (threadId === undefined ? undefined : runs.of(threadId)),
      agents: this.#agents.map(({ name }) => name),
      now: new Date(now).toISOString(),
      nextTick: this.#nextTick(now),
    }
  }

  /** Looked for once a minute: it is asked for each of a thousand tasks, and to find a round that never comes takes ms. */
  #nextTick(now: number): string {
    const minute = Math.floor(now / 60_000)
    if (this.#round.minute !== minute || this.#round.at <= now)
      this.#round = { minute, ...this.#ports.schedule.round(now) }
    return this.#round.text
  }
}
