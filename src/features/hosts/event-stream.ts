import type { Clock } from "../../core/ports.ts"
import type { CallOptions } from "./channel.ts"
import { textOf } from "./frames.ts"
import { type CallEnd, type Hint, hintIn, type Order } from "./orders.ts"

/** Where nothing can be heard it is tried again after the first of these, then less and less often, in ms. */
const FIRST_PAUSE_MS = 10_000
const LONGEST_PAUSE_MS = 300_000

export type RemoteEventStreamPorts = {
  readonly clock: Clock
  /** Rejects where there is no contact. */
  readonly call: (order: Order, options: CallOptions) => Promise<CallEnd>
  /** Something happened there; undefined: from now on it is heard, and what was before may have been missed. */
  readonly heard: (hint: Hint | undefined) => void
}

/**
 * Hears of a host's server when something happens there that is worth a look. What it hears are hints: where none comes,
 * say since nothing can be heard, polling finds out the same. Nothing wakes anybody while nothing happens.
 */
export class RemoteEventStream {
  readonly #ports: RemoteEventStreamPorts
  #stop: AbortController | undefined
  #cancelPause: () => void = () => {}
  #pause = FIRST_PAUSE_MS
  #hears = false

  constructor(ports: RemoteEventStreamPorts) {
    this.#ports = ports
  }

  /** True while what happens there is told. */
  get hears(): boolean {
    return this.#hears
  }

  /** There is contact: it listens until `rest`, or until that is lost. */
  listen(): void {
    this.rest()
    this.#pause = FIRST_PAUSE_MS
    void this.#listen()
  }

  rest(): void {
    this.#cancelPause()
    this.#hears = false
    this.#stop?.abort()
    this.#stop = undefined
  }

  /** Never rejects. */
  async #listen(): Promise<void> {
    const stop = new AbortController()
    this.#stop = stop
    const isOurs = () => this.#stop === stop
    const receiver = {
      head: () => {
        if (!isOurs()) return
        this.#hears = true
        this.#pause = FIRST_PAUSE_MS
        this.#ports.heard(undefined)
      },
      data: (body: Uint8Array) => {
        const hint = isOurs() ? hintIn(textOf(body)) : undefined
        if (hint) this.#ports.heard(hint)
      },
    }
    try {
      await this.#ports.call({ do: "listen" }, { receiver, signal: stop.signal })
    } catch {
      // Without contact there is nothing to be heard; with the next one somebody has it listen again.
      if (isOurs()) this.rest()
    }
    if (!isOurs()) return
    this.#hears = false
    this.#cancelPause = this.#ports.clock.after(this.#pause, () => void this.#listen())
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE_MS)
  }
}
