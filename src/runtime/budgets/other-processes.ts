import { DAY_MS } from "../../core/bill.ts"
import type { Parts } from "../parts.ts"
import type { CostLedger } from "./ledger.ts"

/** How long these costs stay valid, in ms: reading them makes OpenCode list a day's sessions. */
const KNOWN_MS = 30_000

/** Reads the cost of other processes' tasks for the ledger, where a daily limit needs it. */
export class ForeignCosts {
  readonly #parts: Parts
  readonly #ledger: CostLedger
  #lookedAt = Number.NEGATIVE_INFINITY
  #looking: Promise<void> = Promise.resolve()

  constructor(parts: Parts, ledger: CostLedger) {
    this.#parts = parts
    this.#ledger = ledger
  }

  /** Resolves when the costs are recent enough. Never rejects. */
  look(): Promise<void> {
    const { options, clock } = this.#parts
    if (options.maxCostPerDay === 0) return Promise.resolve()
    const now = clock.now()
    if (Math.abs(now - this.#lookedAt) >= KNOWN_MS) {
      this.#lookedAt = now
      this.#looking = this.#read(now)
    }
    return this.#looking
  }

  async #read(now: number): Promise<void> {
    const { host } = this.#parts
    try {
      this.#ledger.readElsewhere(await host.recordsSince(now - DAY_MS, "project"))
    } catch (error) {
      host.log("warn", "could not read what other tasks have cost", { error: String(error) })
    }
  }
}
