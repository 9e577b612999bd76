import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import type { Context, MiddlewareHandler } from "hono"
import type { ContentfulStatusCode } from "hono/utils/http-status"
import type { z } from "zod"
import { CallError } from "../../core/errors.ts"
import { OpencodeError } from "../../core/ports.ts"
import { cut, formatInteger } from "../../lib/text.ts"
import type { WebPart } from "./part.ts"
import type { Log } from "./ports.ts"

const MOST_BODY_BYTES = 1_048_576
const MOST_PROBLEM_CHARS = 1000

type Body = {
  /** The body's data; undefined for a request without a body. */
  readonly stream?: ReadableStream<Uint8Array<ArrayBuffer>>
  /** Whether the body has been read completely. */
  readonly isWhole: () => boolean
}

/** Read only on demand, so that a refused request costs nothing. Fails where it is too long or takes over `ms`. */
function lazyBody(incoming: IncomingMessage, ms: number): Body {
  const { headers } = incoming
  if (headers["transfer-encoding"] === undefined && Number(headers["content-length"] ?? 0) === 0)
    return { isWhole: () => true }
  const chunks = incoming.iterator({ destroyOnReturn: false })
  let size = 0
  let isWhole = false
  let late: Promise<never> | undefined
  let timer: NodeJS.Timeout | undefined
  const stream = new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      async pull(controller) {
        late ??= new Promise((_resolve, reject) => {
          timer = setTimeout(() => reject(tooSlow(ms)), ms)
          timer.unref()
        })
        try {
          const { done, value } = await Promise.race([chunks.next(), late])
          if (!done) {
            size += value.length
            if (size > MOST_BODY_BYTES) throw tooLarge()
            return controller.enqueue(new Uint8Array(value))
          }
          isWhole = true
          clearTimeout(timer)
          controller.close()
        } catch (error) {
          clearTimeout(timer)
          controller.error(error)
        }
      },
      cancel: () => clearTimeout(timer),
    },
    { highWaterMark: 0 },
  )
  return { stream, isWhole: () => isWhole }
}

const tooLarge = () => new WebError(413, `A body may have ${formatInteger(MOST_BODY_BYTES)} bytes; this one has more.`)
const tooSlow = (ms: number) => new WebError(408, `A body must come within ${ms / 1000} s; this one did not.`)

/** Refuses a request whose declared length is too long, without reading its body. */
export const limitBody: MiddlewareHandler = async (context, next) => {
  if (Number(context.req.header("content-length") ?? 0) > MOST_BODY_BYTES) throw tooLarge()
  await next()
}

/** Parses the body by `schema`. */
export async function bodyOf<Schema extends z.ZodType>(context: Context, schema: Schema): Promise<z.output<Schema>> {
  if (!/^application\/json\s*(;|$)/i.test(context.req.header("content-type") ?? ""))
    throw new WebError(400, 'A body must be JSON, and say so: "content-type: application/json".')
  return parsed(schema, await json(context))
}

export function parsed<Schema extends z.ZodType>(schema: Schema, given: unknown): z.output<Schema> {
  const { data, error } = schema.safeParse(given)
  if (error) throw new WebError(400, cut(problemsOf(error), MOST_PROBLEM_CHARS))
  return data as z.output<Schema>
}

async function json(context: Context): Promise<unknown> {
  const bytes = await context.req.arrayBuffer().catch((error) => {
    throw error instanceof WebError ? error : new WebError(400, "The body ended before it was whole.")
  })
  if (bytes.byteLength > MOST_BODY_BYTES) throw tooLarge()
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes))
  } catch {
    throw new WebError(400, "The body is not valid JSON in UTF-8.")
  }
}

/** Example: `"title": Invalid input: expected string, received undefined`, one for each problem. */
const problemsOf = ({ issues }: z.ZodError): string =>
  issues.map(({ path, message }) => (path.length > 0 ? `"${path.join(".")}": ${message}` : message)).join("; ")

/** Answers a request; must not reject. The body is read only on demand. */
export type Fetch = (request: Request) => Response | Promise<Response>

export type Listener = { readonly port: number; close(): Promise<void> }

/** For a body and for a reader that accepts no data, in ms. `atOnce`: most simultaneous requests, streams included. */
const LIMITS = { bodyMs: 10_000, stallMs: 30_000, atOnce: 128 }

export type HttpLimits = Readonly<typeof LIMITS>

/** On `node:http`, as Bun and Node have it. Undefined where the port is in use; keeps no process alive. */
export function listen(
  fetch: Fetch,
  port: number,
  host: string,
  limits: HttpLimits = LIMITS,
): Promise<Listener | undefined> {
  let underWay = 0
  const server = createServer((incoming, outgoing) => {
    const { socket } = incoming
    if (underWay >= limits.atOnce) {
      outgoing.writeHead(503, { connection: "close" })
      outgoing.end(() => socket.destroy())
      return
    }
    underWay++
    answer(fetch, incoming, outgoing, limits)
      .catch(() => socket.destroy())
      .finally(() => underWay--)
  })
  // Upgraded connections would stay open for ever, so they are closed.
  server.on("upgrade", (_incoming, socket) => socket.destroy())
  server.on("connect", (_incoming, socket) => socket.destroy())
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") resolve(undefined)
      else reject(error)
    })
    server.listen(port, host, () => {
      server.on("error", () => {})
      server.unref()
      const close = () =>
        new Promise<void>((closed) => {
          server.close(() => closed())
          server.closeAllConnections()
        })
      resolve({ port: (server.address() as AddressInfo).port, close })
    })
  })
}

async function answer(
  fetch: Fetch,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  { bodyMs, stallMs }: HttpLimits,
): Promise<void> {
  const gone = new AbortController()
  const { socket } = incoming
  // Bun emits no "close" on the response, so the connection's end is used.
  const leave = () => gone.abort()
  socket.once("close", leave)
  try {
    outgoing.on("error", leave)
    const body = lazyBody(incoming, bodyMs)
    const response = await fetch(requestOf(incoming, body, gone.signal))
    // If the body was not read to its end, the connection cannot be used for another request.
    const isLast = !body.isWhole()
    if (isLast) outgoing.setHeader("connection", "close")
    await send(response, outgoing, gone.signal, stallMs)
    if (isLast) outgoing.end(() => socket.destroy())
    else outgoing.end()
  } finally {
    socket.off("close", leave)
    // Also ends the response, because nobody may have read its stream, as after a HEAD request.
    leave()
  }
}

function requestOf(incoming: IncomingMessage, { stream }: Body, signal: AbortSignal): Request {
  const { method } = incoming
  const hasBody = method !== "GET" && method !== "HEAD" && stream !== undefined
  return new Request(`http://${hostOf(incoming)}${pathOf(incoming)}`, {
    method,
    headers: new Headers(incoming.headers as Record<string, string>),
    signal,
    ...(hasBody && { body: stream, duplex: "half" }),
  })
}

/** Host for the request's URL only. Guards check the original header. */
const hostOf = ({ headers }: IncomingMessage): string =>
  /^[\w.:[\]-]+$/.test(headers.host ?? "") ? `${headers.host}` : "x"

const pathOf = ({ url = "/" }: IncomingMessage): string => (url.startsWith("/") ? url : "/")

/** Sends all but the end of the response. */
async function send(response: Response, outgoing: ServerResponse, gone: AbortSignal, stallMs: number): Promise<void> {
  outgoing.writeHead(response.status, Object.fromEntries(response.headers))
  const reader = response.body?.getReader()
  if (!reader) return
  const stop = () => void reader.cancel().catch(() => {})
  gone.addEventListener("abort", stop, { once: true })
  if (gone.aborted) stop()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) break
    if (!outgoing.write(value)) await drained(outgoing, gone, stallMs)
  }
}

/** Resolves when the reader accepts data again. Rejects where this takes too long. */
function drained(outgoing: ServerResponse, gone: AbortSignal, stallMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("The reader does not read.")), stallMs)
    timer.unref()
    const end = () => {
      clearTimeout(timer)
      outgoing.off("drain", end)
      gone.removeEventListener("abort", end)
      resolve()
    }
    outgoing.on("drain", end)
    gone.addEventListener("abort", end)
  })
}

/** Error of a route with its HTTP status. The text is for the reader and never repeats input. */
export class WebError extends Error {
  override readonly name = "WebError"
  readonly status: ContentfulStatusCode
  constructor(status: ContentfulStatusCode, message: string) {
    super(message)
    this.status = status
  }
}

/** Converts an error of a route into the answer `{"error": "…"}` with an HTTP status. */
export function errorHandler(log: Log, parts: readonly WebPart[]) {
  return (error: Error, context: Context): Response => {
    const refuse = (status: ContentfulStatusCode, text = error.message) => context.json({ error: text }, status)
    if (error instanceof WebError) return refuse(error.status)
    const own = parts.flatMap((part) => part.status(error) ?? [])[0]
    if (own) return refuse(own)
    if (error instanceof CallError) return refuse(409)
    if (error instanceof OpencodeError) return refuse(502, `OpenCode did not do its part: ${error.message}`)
    log("error", "a request of the page failed", { error: error.message })
    return refuse(500, "That failed unexpectedly; OpenCode's log says why.")
  }
}

export const notFound = (context: Context): Response => context.json({ error: "There is nothing here." }, 404)
