import type { Clock, Host } from "../../core/ports.ts"
import { quietUntil } from "./rules/purse.ts"
import type { Schedule } from "./schedule.ts"
import type { BoardState } from "./state.ts"

/** A round that comes later than this was missed, and that is said. */
const LATE_MS = 120_000

export type RoundsPorts = {
  readonly schedule: Schedule
  readonly clock: Clock
  readonly host: Pick<Host, "toast" | "log">
}

/** The rounds of the board's schedule. */
export class Rounds {
  readonly #ports: RoundsPorts
  /** The time from which rounds count while the file names no last one, or one from a clock that was set back. */
  #countedFrom = Number.POSITIVE_INFINITY

  constructor(ports: RoundsPorts) {
    this.#ports = ports
  }

  /** Has the round begin that is due, if one is. */
  async beginDue(state: BoardState, begin: () => Promise<unknown>): Promise<void> {
    const { clock, schedule } = this.#ports
    const now = clock.now()
    // While a purse is there, what it wakes is enough; and no round of that time is made up for.
    if (quietUntil(state, now) !== undefined) return
    const silent = Date.parse(state.quiet?.until ?? "") || 0
    const due = schedule.next(Math.max(silent, this.#last(state.tick, now)))
    if (due === undefined || due > now) return
    await begin()
    if (now - due > LATE_MS) this.#sayMissed(due, now)
  }

  /** When the last round was. Where the file does not say so in earnest, the rounds from now on count. */
  #last(tick: string | undefined, now: number): number {
    const told = tick === undefined ? Number.NaN : Date.parse(tick)
    // From a clock that has been set right by a little since: what it has begun is not begun again.
    const isTrue = told <= now + LATE_MS
    this.#countedFrom = isTrue ? Number.POSITIVE_INFINITY : Math.min(this.#countedFrom, now)
    return isTrue ? told : this.#countedFrom
  }

  #sayMissed(due: number, now: number): void {
    const { host, schedule } = this.#ports
    const message = `The round of ${schedule.text(due, now)} was missed; it is made up for now.`
    host.log("info", message)
    host.toast({ title: "Board", message, variant: "info" })
  }
}
