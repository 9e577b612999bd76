import { textOf } from "./frames.ts"
import type { Link } from "./link.ts"
import type { CallHead } from "./orders.ts"

/** An address that a client of OpenCode's can be made with: what is asked there goes over the link, and nowhere else. */
export const BASE_URL = "http://host.invalid"

/** The longest answer of a server, and what one command may print: more is no answer of ours. */
const MOST_ANSWER_BYTES = 64 * 2 ** 20
const MOST_OUTPUT_BYTES = 16 * 2 ** 20

/** Throws where more comes than so many bytes. */
function within(most: number, take: (body: Uint8Array) => void): (body: Uint8Array) => void {
  let size = 0
  return (body) => {
    size += body.length
    if (size > most) throw new Error(`more than ${most / 2 ** 20} MB came for one answer`)
    take(body)
  }
}

/** `fetch` to OpenCode's server on a host. Rejects with `NoContact` where there is none. */
export const fetchOver =
  (link: Pick<Link, "call">) =>
  async (request: Request): Promise<Response> => {
    const { method, url, signal } = request
    const { pathname, search } = new URL(url)
    const headers = Object.fromEntries(request.headers)
    const input = request.body ? new Uint8Array(await request.arrayBuffer()) : undefined
    const stop = new AbortController()
    signal.addEventListener("abort", () => stop.abort(), { once: true })
    return new Promise<Response>((resolve, reject) => {
      let body: ReadableStreamDefaultController<Uint8Array> | undefined
      const stream = new ReadableStream<Uint8Array>({
        start: (controller) => {
          body = controller
        },
        cancel: () => stop.abort(),
      })
      const head = (text: string) => {
        const { status, headers: told } = JSON.parse(text) as CallHead
        // It came as plain bytes, however it was sent there.
        const { "content-encoding": _encoding, "content-length": _length, ...rest } = told
        const empty = status === 204 || status === 304
        resolve(new Response(empty ? null : stream, { status, headers: rest }))
      }
      const enqueue = within(MOST_ANSWER_BYTES, (chunk) => body?.enqueue(chunk))
      // Nobody reads it any more, or it is too much.
      const data = untilRefused(enqueue, (error) => {
        ended(() => body?.error(error))
        stop.abort()
      })
      const order = { do: "request", method, path: `${pathname}${search}`, headers } as const
      link.call(order, { input, signal: stop.signal, receiver: { head, data } }).then(
        ({ problem }) => {
          if (problem === undefined) return ended(() => body?.close())
          const error = new Error(problem)
          reject(error)
          ended(() => body?.error(error))
        },
        (error) => {
          reject(error)
          ended(() => body?.error(error))
        },
      )
    })
  }

/** Nobody may read it any more. */
function ended(close: () => void): void {
  try {
    close()
  } catch {
    // It is closed already.
  }
}

/** Hands on what comes until `take` throws: `refused` hears why, and of the rest nothing is handed on. */
function untilRefused(take: (chunk: Uint8Array) => void, refused: (error: unknown) => void) {
  let isOver = false
  return (chunk: Uint8Array): void => {
    if (isOver) return
    try {
      take(chunk)
    } catch (error) {
      isOver = true
      refused(error)
    }
  }
}

/** What a command on a host printed, and how it ended. */
export type Ran = { readonly code: number | null; readonly out: Uint8Array; readonly errors: string }

export type RunOptions = {
  readonly cwd?: string
  /** Gets its output as it comes, in place of the answer. Where it throws, the command is ended. */
  readonly take?: (body: Uint8Array) => void
  readonly input?: Uint8Array | AsyncIterable<Uint8Array>
  readonly signal?: AbortSignal
}

/** Runs a line of shell on a host. Rejects with `NoContact` where it cannot be reached, or is cut off meanwhile. */
export async function runOver(link: Pick<Link, "call">, line: string, options: RunOptions = {}): Promise<Ran> {
  const { cwd, input, signal } = options
  const out: Uint8Array[] = []
  const { take = within(MOST_OUTPUT_BYTES, (body) => void out.push(body)) } = options
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
  const order = { do: "run", line, cwd } as const
  const both = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal
  const { code = null, problem } = await link.call(order, { input, signal: both, receiver })
  if (refused) throw refused
  if (problem !== undefined) throw new Error(problem)
  return { code, out: Buffer.concat(out), errors }
}
