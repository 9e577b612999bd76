import { textOf } from "./frames.ts"
import type { Link } from "./link.ts"
import type { CallHead } from "./orders.ts"

/** An address that a client of OpenCode's can be made with: what is asked there goes over the link, and nowhere else. */
export const BASE_URL = "http://host.invalid"

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
      const data = (chunk: Uint8Array) => body?.enqueue(chunk)
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

/** What a command on a host printed, and how it ended. */
export type Ran = { readonly code: number | null; readonly out: Uint8Array; readonly errors: string }

export type RunOptions = {
  readonly cwd?: string
  readonly input?: Uint8Array | AsyncIterable<Uint8Array>
  readonly signal?: AbortSignal
}

/** Runs a line of shell on a host. Rejects with `NoContact` where it cannot be reached, or is cut off meanwhile. */
export async function runOver(link: Pick<Link, "call">, line: string, options: RunOptions = {}): Promise<Ran> {
  const { cwd, input, signal } = options
  const out: Uint8Array[] = []
  let errors = ""
  const receiver = {
    data: (body: Uint8Array) => void out.push(body),
    errors: (body: Uint8Array) => {
      errors = (errors + textOf(body)).slice(-4000)
    },
  }
  const { code = null, problem } = await link.call({ do: "run", line, cwd }, { input, signal, receiver })
  if (problem !== undefined) throw new Error(problem)
  return { code, out: Buffer.concat(out), errors }
}
