import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { MOST_BODY_BYTES } from "./body.ts"

/** Answers a request; must not reject. */
export type Fetch = (request: Request) => Response | Promise<Response>

export type Listener = { readonly port: number; close(): Promise<void> }

/**
 * Listens, or returns undefined where the port is taken. On `node:http`, which OpenCode's Bun and Node both have. Does
 * not keep the process alive.
 */
export function listen(fetch: Fetch, port: number, host: string): Promise<Listener | undefined> {
  const server = createServer((incoming, outgoing) => {
    answer(fetch, incoming, outgoing).catch(() => outgoing.destroy())
  })
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

async function answer(fetch: Fetch, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  const gone = new AbortController()
  const { socket } = incoming
  // Not the response's "close", which the host's Bun does not tell.
  const leave = () => gone.abort()
  socket.once("close", leave)
  try {
    outgoing.on("error", leave)
    const { body, whole } = await bodyOf(incoming)
    // What is not read to its end cannot be followed by another request.
    if (!whole) outgoing.setHeader("connection", "close")
    const request = new Request(`http://${hostOf(incoming)}${pathOf(incoming)}`, {
      method: incoming.method,
      headers: headersOf(incoming),
      body,
      signal: gone.signal,
    })
    await send(await fetch(request), outgoing, gone.signal)
    if (!whole) socket.destroy()
  } finally {
    socket.off("close", leave)
    // Over for its answer too, which may be a stream that nobody read: that of a HEAD.
    leave()
  }
}

/** The body, or as much of it as shows that it is too long. */
async function bodyOf(incoming: IncomingMessage): Promise<{ body?: Uint8Array<ArrayBuffer>; whole: boolean }> {
  if (incoming.method === "GET" || incoming.method === "HEAD") return { whole: true }
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of incoming.iterator({ destroyOnReturn: false })) {
    chunks.push(chunk)
    size += chunk.length
    if (size > MOST_BODY_BYTES) break
  }
  return { body: new Uint8Array(Buffer.concat(chunks)), whole: size <= MOST_BODY_BYTES }
}

/** For the address alone: guards look at the header as it came. */
const hostOf = ({ headers }: IncomingMessage): string =>
  /^[\w.:[\]-]+$/.test(headers.host ?? "") ? `${headers.host}` : "x"

const pathOf = ({ url = "/" }: IncomingMessage): string => (url.startsWith("/") ? url : "/")

function headersOf(incoming: IncomingMessage): Headers {
  const headers = new Headers()
  for (const [name, value] of Object.entries(incoming.headers))
    for (const each of [value].flat()) if (each !== undefined) headers.append(name, each)
  return headers
}

async function send(response: Response, outgoing: ServerResponse, gone: AbortSignal): Promise<void> {
  outgoing.writeHead(response.status, Object.fromEntries(response.headers))
  const reader = response.body?.getReader()
  if (!reader) {
    outgoing.end()
    return
  }
  const stop = () => void reader.cancel().catch(() => {})
  gone.addEventListener("abort", stop, { once: true })
  if (gone.aborted) stop()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) break
    if (!outgoing.write(value)) await drained(outgoing, gone)
  }
  outgoing.end()
}

function drained(outgoing: ServerResponse, gone: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      outgoing.off("drain", end)
      gone.removeEventListener("abort", end)
      resolve()
    }
    outgoing.on("drain", end)
    gone.addEventListener("abort", end)
  })
}
