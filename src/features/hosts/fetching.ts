import type { HostConnection } from "./connection.ts"
import { textOf } from "./frames.ts"
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
    signal.addEventListener("abort", () => stop.abort(), { once: true })
    return new Promise<Response>((resolve, reject) => {
      let body: ReadableStreamDefaultController<Uint8Array> | undefined
      let wants = () => {}
      const stream = new ReadableStream<Uint8Array>({
        start: (controller) => {
          body = controller
        },
        pull: () => wants(),
        cancel: () => stop.abort(),
      })
      let isWanted: Promise<void> | undefined
      // The promise resolves when the reader wants more. Until then, the host gets no new credit.
      const enqueue = (chunk: Uint8Array): Promise<void> | undefined => {
        body?.enqueue(chunk)
        if ((body?.desiredSize ?? 1) > 0) return undefined
        isWanted ??= new Promise<void>((resolve) => {
          wants = resolve
        }).then(() => {
          isWanted = undefined
        })
        return isWanted
      }
      const head = (text: string) => {
        const { status, headers: hostHeaders } = JSON.parse(text) as CallHead
        // Drop headers that no longer apply: the body arrives decoded.
        const { "content-encoding": _encoding, "content-length": _length, ...rest } = hostHeaders
        const empty = status === 204 || status === 304
        resolve(new Response(empty ? null : stream, { status, headers: rest }))
      }
      // `take` throws if the reader has cancelled, or the body is too long.
      const { take, over } = within(link, MOST_ANSWER_BYTES, enqueue)
      const data = untilRefused(take, (error) => {
        ended(() => body?.error(error))
        stop.abort()
      })
      const order = { do: "request", method, path: `${pathname}${search}`, headers } as const
      const failed = (error: unknown) => {
        reject(error)
        ended(() => body?.error(error))
      }
      link
        .call(order, { input, signal: stop.signal, receiver: { head, data } })
        .finally(over)
        .then(
          ({ problem }) => (problem === undefined ? ended(() => body?.close()) : failed(new Error(problem))),
          failed,
        )
    })
  }

/** Calls `close`, and ignores the error if the stream was closed before. */
function ended(close: () => void): void {
  try {
    close()
  } catch {
    // The stream was closed before.
  }
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

/** Output and exit of a command on a host. */
export type HostCommandResult = { readonly code: number | null; readonly out: Uint8Array; readonly errors: string }

export type RunOptions = {
  /** Receives the output in chunks, which are not collected then. If `take` throws, the command is stopped. */
  readonly take?: Take
  readonly input?: Uint8Array | AsyncIterable<Uint8Array>
  readonly signal?: AbortSignal
}

/** Runs a shell line on a host. Rejects with `NoContact` without contact, also during the run. */
export async function runOnHost(
  link: Pick<HostConnection, "call">,
  line: string,
  options: RunOptions = {},
): Promise<HostCommandResult> {
  const { code, out, errors, problem } = await callOver(link, { do: "run", line }, options)
  if (problem !== undefined) throw new Error(problem)
  return { code, out, errors }
}

/** Result of an order: output, or its error on the host. */
export type OrderResult = { readonly out: Uint8Array; readonly problem?: string }

/** Sends an order to a host and collects what it prints. Rejects as `runOnHost` does. */
export async function callOver(
  link: Pick<HostConnection, "call">,
  order: Order,
  options: RunOptions = {},
): Promise<HostCommandResult & { readonly problem?: string }> {
  const { input, signal } = options
  const out: Uint8Array[] = []
  const kept = within(link, MOST_OUTPUT_BYTES, (body) => void out.push(body))
  const { take = kept.take } = options
  let errors = ""
  const stop = new AbortController()
  let refused: unknown
  const data = untilRefused(take, (error) => {
    refused = error
    stop.abort()
  })
  const receiver = {
    data,
    errors: (body: Uint8Array) => {
      errors = (errors + textOf(body)).slice(-4000)
    },
  }
  const both = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal
  const { code = null, problem } = await link.call(order, { input, signal: both, receiver }).finally(kept.over)
  if (refused) throw refused
  return { code, out: Buffer.concat(out), errors, ...(problem !== undefined && { problem }) }
}
