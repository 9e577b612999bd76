import type { HostConnection } from "./connection.ts"
import type { CallHead, Order } from "./orders.ts"

/** Placeholder address for OpenCode's client, which sends all its requests over the connection. */
export const BASE_URL = "http://host.invalid"

/** Longest accepted response or output. */
const MOST_ANSWER_BYTES = 64 * 2 ** 20
const MOST_OUTPUT_BYTES = 16 * 2 ** 20
/** Most bytes of all answers of one host together whose calls are not over yet. */
const MOST_IN_FLIGHT_BYTES = 256 * 2 ** 20

/** Receives a chunk; a returned promise delays the next one. */
type Take = (body: Uint8Array) => void | Promise<void>

/** For each connection: number of received bytes of answers whose calls are not over yet. */
const inFlight = new WeakMap<object, number>()

/**
 * Wraps `take` so that it throws after `most` bytes of one answer, or after too many bytes of all answers of the
 * connection. `over`: call it when the answer is no longer kept.
 */
function within(link: object, most: number, take: Take): { take: Take; over: () => void } {
  let size = 0
  const add = (bytes: number) => {
    size += bytes
    const all = (inFlight.get(link) ?? 0) + bytes
    inFlight.set(link, all)
    return all
  }
  return {
    take: (body) => {
      const all = add(body.length)
      if (size > most) throw new Error(`more than ${most / 2 ** 20} MB came for one answer`)
      if (all > MOST_IN_FLIGHT_BYTES)
        throw new Error(`more than ${MOST_IN_FLIGHT_BYTES / 2 ** 20} MB came for all answers together`)
      return take(body)
    },
    over: () => void add(-size),
  }
}

/** `fetch` for a host's OpenCode server. Rejects with `NoContact` without contact. */
export const fetchOver =
  (link: Pick<HostConnection, "call">) =>
  async (request: Request): Promise<Response> => {
    const { method, url, signal } = request
    const { pathname, search } = new URL(url)
    const headers = Object.fromEntries(request.headers)
    const input = request.body ? new Uint8Array(await request.arrayBuffer()) : undefined
    const stop = new AbortController()
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>()
    const writer = writable.getWriter()
    // Rejects if the reader has cancelled, or the call has failed.
    writer.closed.catch(() => stop.abort())
    return new Promise<Response>((resolve, reject) => {
      const head = (text: string) => {
        const { status, headers: hostHeaders } = JSON.parse(text) as CallHead
        // Drop headers that no longer apply: the body arrives decoded.
        const { "content-encoding": _encoding, "content-length": _length, ...rest } = hostHeaders
        const empty = status === 204 || status === 304
        resolve(new Response(empty ? null : readable, { status, headers: rest }))
      }
      const failed = (error: unknown) => {
        reject(error)
        void writer.abort(error).catch(() => {})
      }
      // A chunk counts as taken once it is read. Until then, the host gets no new credit.
      const { take, over } = within(link, MOST_ANSWER_BYTES, (chunk) => writer.write(chunk).catch(() => {}))
      const order = { do: "request", method, path: `${pathname}${search}`, headers } as const
      const refused = (error: unknown) => {
        failed(error)
        stop.abort()
      }
      const receiver = { head, data: untilRefused(take, refused) }
      link
        .call(order, { input, signal: AbortSignal.any([signal, stop.signal]), receiver })
        .finally(over)
        .then(
          ({ problem }) => (problem === undefined ? writer.close().catch(() => {}) : failed(new Error(problem))),
          failed,
        )
    })
  }

/** Passes chunks on until `take` throws; `refused` gets the error, and later chunks are dropped. */
function untilRefused(take: Take, refused: (error: unknown) => void): Take {
  let isOver = false
  return (chunk) => {
    if (isOver) return undefined
    try {
      return take(chunk)
    } catch (error) {
      isOver = true
      refused(error)
    }
  }
}

export type RunOptions = {
  /** Receives the output in chunks, which are not collected then. If `take` throws, the order is stopped. */
  readonly take?: Take
  readonly input?: Uint8Array | AsyncIterable<Uint8Array>
  readonly signal?: AbortSignal
}

/** Result of an order: output, or its error on the host. */
export type OrderResult = { readonly out: Uint8Array; readonly problem?: string }

/** Sends an order to a host and collects what it prints. Rejects with `NoContact` without contact, also during it. */
export async function callOver(
  link: Pick<HostConnection, "call">,
  order: Order,
  { input, signal, take }: RunOptions = {},
): Promise<OrderResult> {
  const out: Uint8Array[] = []
  const kept = within(link, MOST_OUTPUT_BYTES, (body) => void out.push(body))
  const stop = new AbortController()
  let refused: unknown
  const data = untilRefused(take ?? kept.take, (error) => {
    refused = error
    stop.abort()
  })
  const both = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal
  const { problem } = await link.call(order, { input, signal: both, receiver: { data } }).finally(kept.over)
  if (refused) throw refused
  return { out: Buffer.concat(out), ...(problem !== undefined && { problem }) }
}
