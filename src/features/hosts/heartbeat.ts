import type { Clock } from "../../core/ports.ts"
import type { Channel } from "./channel.ts"
import type { Pong } from "./orders.ts"

/** Interval and time limit of pings, in ms. */
const PING_MS = 4000
const PONG_LIMIT_MS = 10_000

export const SILENT = "OpenCode there does not answer any more"

/**
 * Pings a connection until it is stopped. `died` is called once with the reason; OpenCode's server is watched
 * separately, because it may hang while the connection works.
 */
export class Pulse {
  readonly #line: Pick<Channel, "ping">
  readonly #clock: Clock
  readonly #died: (why: string) => void
  #silentSince: number | undefined
  #cancel: () => void = () => {}
  #isOver = false

  constructor(line: Pick<Channel, "ping">, clock: Clock, died: (why: string) => void) {
    this.#line = line
    this.#clock = clock
    this.#died = died
    this.#ask()
  }

  stop(): void {
    this.#isOver = true
    this.#cancel()
  }

  #ask(): void {
    const limit = this.#clock.after(PONG_LIMIT_MS, () => this.#end("it does not answer any more"))
    this.#cancel = limit
    this.#line.ping((pong) => {
      limit()
      if (this.#isOver) return
      if (this.#isSilent(pong)) return this.#end(SILENT)
      this.#cancel = this.#clock.after(PING_MS, () => this.#ask())
    })
  }

  #isSilent({ server }: Pong): boolean {
    const now = this.#clock.now()
    if (server !== false) this.#silentSince = undefined
    else this.#silentSince ??= now
    return this.#silentSince !== undefined && now - this.#silentSince >= PING_MS
  }

  #end(why: string): void {
    if (this.#isOver) return
    this.stop()
    this.#died(why)
  }
}
