import { type Entry, Stranger } from "./pass.ts"
import { eventReader } from "./sse.ts"

/** Nothing for so long, in ms, and the connection counts as lost: the server says something every 15 s. */
const SILENCE_MS = 40_000
const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 10_000

export type Heard = {
  /** An event with its data, parsed. */
  event(name: string, data: unknown): void
  /** The connection is gone; the next attempt is in `retryIn` ms. */
  lost(retryIn: number): void
  /** Somebody else answers; the attempts go on. */
  stranger(message: string): void
  /** The server itself has ended the session. There will be no more attempts. */
  ended(): void
}

type Timers = {
  readonly after: (ms: number, run: () => void) => () => void
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>
}

/**
 * Listens to the server's events for as long as the page is open: after a lost connection it comes back by itself, and
 * the first event then has the whole state. Returns how to end it and how to try again at once.
 */
export function connect(enter: Entry, heard: Heard, { after, fetch }: Timers): { end(): void; again(): void } {
  let attempt = 0
  let ended = false
  let stop = new AbortController()
  let cancelPause = () => {}

  void listen()
  return {
    end() {
      ended = true
      cancelPause()
      stop.abort()
    },
    again() {
      if (ended) return
      cancelPause()
      stop.abort()
    },
  }

  async function listen(): Promise<void> {
    while (!ended) {
      stop = new AbortController()
      const outcome = await once(stop).catch((error) => error)
      if (ended || outcome === "ended") return
      const pause = Math.min(FIRST_PAUSE_MS * 2 ** attempt++, LONGEST_PAUSE_MS)
      if (outcome instanceof Stranger) heard.stranger(outcome.message)
      else heard.lost(pause)
      await pausing(pause)
    }
  }

  async function once(current: AbortController): Promise<"lost" | "ended"> {
    let watch = after(SILENCE_MS, () => current.abort())
    try {
      const entered = await enter(current.signal)
      if (current.signal.aborted) return "lost"
      if ("ended" in entered) {
        heard.ended()
        return "ended"
      }
      const headers = { authorization: `Bearer ${entered.bearer}` }
      const response = await fetch("/api/events", { headers, signal: current.signal })
      if (!response.ok || !response.body) return "lost"
      const read = eventReader()
      const reader = response.body.pipeThrough(new TextDecoderStream() as never).getReader() as {
        read(): Promise<{ done: boolean; value?: string }>
      }
      for (;;) {
        const { done, value = "" } = await reader.read()
        if (done) return "lost"
        watch()
        watch = after(SILENCE_MS, () => current.abort())
        for (const { event, data } of read(value)) {
          attempt = 0
          heard.event(event, JSON.parse(data))
        }
      }
    } finally {
      watch()
    }
  }

  function pausing(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = after(ms, resolve)
      cancelPause = () => {
        cancel()
        resolve()
      }
    })
  }
}
