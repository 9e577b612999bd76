import type { Handler } from "hono"
import { WebError } from "./errors.ts"
import type { Feed } from "./feed.ts"
import type { Env } from "./guard.ts"
import type { WebSessions } from "./web-sessions.ts"

export type JoinableFeed = Pick<Feed, "join">

const MOST_STREAMS = 64
/** A reader further behind is disconnected; it reconnects and starts with the whole state. */
const MOST_WAITING_BYTES = 8_388_608

/** Event stream. It starts with the whole state, so that a reconnected reader is up to date. */
export function eventsRoute(feed: JoinableFeed, sessions: Pick<WebSessions, "open">): Handler<Env> {
  let open = 0
  return (context) => {
    if (open >= MOST_STREAMS) throw new WebError(409, `${MOST_STREAMS} pages are open already; close one of them.`)
    const { signal } = context.req.raw
    if (signal.aborted) return new Response()
    // Counted before anything is awaited, so that the limit holds for simultaneous requests.
    open++
    signal.addEventListener("abort", () => open--, { once: true })
    const caller = context.get("caller")
    const hold = (end: () => void) => (caller.kind === "page" ? sessions.open(caller.pass, end) : () => {})
    return new Response(streamOf(feed, signal, hold), {
      headers: { "content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no" },
    })
  }
}

/** `hold`: resource kept while the stream is open; it receives a function that ends the stream. */
function streamOf(
  feed: JoinableFeed,
  signal: AbortSignal,
  hold: (end: () => void) => () => void,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder()
  let leave = () => {}
  let release = () => {}
  return new ReadableStream<Uint8Array>(
    {
      async start(controller) {
        const end = () => {
          leave()
          release()
          try {
            controller.close()
          } catch {
            // The reader closed it.
          }
        }
        const send = (event: string, data: string) => {
          // The reader left while the state was read.
          if (signal.aborted) return
          if ((controller.desiredSize ?? 0) < 0) return end()
          controller.enqueue(encoder.encode(`event: ${event}\ndata: ${data}\n\n`))
        }
        signal.addEventListener("abort", end, { once: true })
        release = hold(end)
        leave = await feed.join(send, end)
        if (signal.aborted) end()
      },
      cancel() {
        leave()
        release()
      },
    },
    new ByteLengthQueuingStrategy({ highWaterMark: MOST_WAITING_BYTES }),
  )
}
