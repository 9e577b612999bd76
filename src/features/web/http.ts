import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { type Body, lazyBody } from "./body.ts"

/** Answers a request; must not reject. The body is read only on demand. */
export type Fetch = (request: Request) => Response | Promise<Response>

export type Listener = { readonly port: number; close(): Promise<void> }

/** Most simultaneous requests, streams included. */
const MOST_AT_ONCE = 128
/** Time limit for a body, and for a reader that accepts no data, in ms. */
const BODY_MS = 10_000
const STALL_MS = 30_000

export type HttpLimits = { readonly bodyMs: number; readonly stallMs: number; readonly atOnce: number }

const LIMITS: HttpLimits = { bodyMs: BODY_MS, stallMs: STALL_MS, atOnce: MOST_AT_ONCE }

/**
 * Server on `node:http`, which OpenCode's Bun and Node both have; undefined for a port in use. Does not keep the
 * process alive.
 */
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
  // Connections that upgrade would stay open for ever.
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
      resolve({ port: (server.address() as AddressInfo).port, close: () => close(server) })
    })
  })
}

function close(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve())
    server.closeAllConnections()
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
  // Bun does not emit "close" on the response.
  const leave = () => gone.abort()
  socket.once("close", leave)
  try {
    outgoing.on("error", leave)
    const body = lazyBody(incoming, bodyMs)
    const response = await fetch(requestOf(incoming, body, gone.signal))
    // After an unread body the connection cannot be used again.
    const isLast = !body.isWhole()
    if (isLast) outgoing.setHeader("connection", "close")
    await send(response, outgoing, gone.signal, stallMs)
    if (isLast) outgoing.end(() => socket.destroy())
    else outgoing.end()
  } finally {
    socket.off("close", leave)
    // Ends the response too, which may be a stream that nobody read, as for HEAD.
    leave()
  }
}

function requestOf(incoming: IncomingMessage, { stream }: Body, signal: AbortSignal): Request {
  const { method } = incoming
  const hasBody = method !== "GET" && method !== "HEAD" && stream !== undefined
  return new Request(`http://${hostOf(incoming)}${pathOf(incoming)}`, {
    method,
    headers: headersOf(incoming),
    signal,
    ...(hasBody && { body: stream, duplex: "half" }),
  })
}

/** Only for the request's address: guards check the original header. */
const hostOf = ({ headers }: IncomingMessage): string =>
  /^[\w.:[\]-]+$/.test(headers.host ?? "") ? `${headers.host}` : "x"

const pathOf = ({ url = "/" }: IncomingMessage): string => (url.startsWith("/") ? url : "/")

function headersOf(incoming: IncomingMessage): Headers {
  const headers = new Headers()
  for (const [name, value] of Object.entries(incoming.headers))
    for (const each of [value].flat()) if (each !== undefined) headers.append(name, each)
  return headers
}

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

/** Rejects where the reader accepts no data for too long. */
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
