import type { Clock, OpencodeApi } from "../../core/ports.ts"
import { quietUntil } from "./rules/purse.ts"
import type { Schedule } from "./schedule.ts"
import type { BoardState } from "./state.ts"

/** Later rounds count as missed, which is reported. */
const LATE_MS = 120_000

export type RoundTimerPorts = {
  readonly schedule: Schedule
  readonly clock: Clock
  readonly host: Pick<OpencodeApi, "toast" | "log">
}

/** Rounds of the board's schedule. */
export class RoundTimer {
  readonly #ports: RoundTimerPorts
  /** Rounds count from here while the file has no valid last one, for example after the clock was set back. */
  #countedFrom = Number.POSITIVE_INFINITY

  constructor(ports: RoundTimerPorts) {
    this.#ports = ports
  }

  /** Starts a round if one is due. */
  async beginDue(state: BoardState, begin: () => Promise<unknown>): Promise<void> {
    const { clock, schedule } = this.#ports
    const now = clock.now()
    // A purse starts tasks by itself: rounds during its time are skipped, not made up for.
    if (quietUntil(state, now) !== undefined) return
    const silent = Date.parse(state.quiet?.until ?? "") || 0
    const due = schedule.next(Math.max(silent, this.#last(state.tick, now)))
    if (due === undefined || due > now) return
    await begin()
    if (now - due > LATE_MS) this.#sayMissed(due, now)
  }

  /** Time of the last round. Without a valid one, rounds count from now on. */
  #last(tick: string | undefined, now: number): number {
    const told = tick === undefined ? Number.NaN : Date.parse(tick)
    // A small correction of the clock must not repeat a round.
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
