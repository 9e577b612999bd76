import type { Clock } from "../../core/ports.ts"
import type { CallOptions } from "./channel.ts"
import { textOf } from "./frames.ts"
import { type CallEnd, type Hint, hintIn, type Order } from "./orders.ts"

/** Delay after a failed connection, doubled each time, in ms. */
const FIRST_PAUSE_MS = 10_000
const LONGEST_PAUSE_MS = 300_000

export type RemoteEventStreamPorts = {
  readonly clock: Clock
  /** Rejects without contact. */
  readonly call: (order: Order, options: CallOptions) => Promise<CallEnd>
  /** Called with hints of activity; undefined: events arrive from now on, and earlier ones may be lost. */
  readonly heard: (hint: Hint | undefined) => void
}

/** Event stream of a remote server. Events are hints, and polling finds out the same without them. */
export class RemoteEventStream {
  readonly #ports: RemoteEventStreamPorts
  #stop: AbortController | undefined
  #cancelPause: () => void = () => {}
  #pause = FIRST_PAUSE_MS
  #hears = false

  constructor(ports: RemoteEventStreamPorts) {
    this.#ports = ports
  }

  /** True while events arrive. */
  get hears(): boolean {
    return this.#hears
  }

  /** Listens while there is contact, until `rest`. */
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
      // The next contact starts it again.
      if (isOurs()) this.rest()
    }
    if (!isOurs()) return
    this.#hears = false
    this.#cancelPause = this.#ports.clock.after(this.#pause, () => void this.#listen())
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE_MS)
  }
}
