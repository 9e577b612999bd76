import { connect, type Socket } from "node:net"
import { Hono } from "hono"
import { afterEach, expect, test, vi } from "vitest"
import { eventsRoute } from "../../../src/features/web/app.ts"
import type { Env } from "../../../src/features/web/auth.ts"
import { type Fetch, type HttpLimits, type Listener, listen } from "../../../src/features/web/http.ts"
import { eventually } from "../../support/eventually.ts"

const open: Listener[] = []

afterEach(async () => {
  vi.restoreAllMocks()
  for (const listener of open.splice(0)) await listener.close()
})

const LIMITS: HttpLimits = { bodyMs: 60_000, stallMs: 60_000, atOnce: 100 }

async function start(fetch: Fetch, limits: Partial<HttpLimits> = {}): Promise<string> {
  const listener = await listen(fetch, 0, "127.0.0.1", { ...LIMITS, ...limits })
  if (!listener) throw new Error("no port")
  open.push(listener)
  return `http://127.0.0.1:${listener.port}`
}

test("the server passes on method, path, headers and body, and returns status and headers", async () => {
  const url = await start(async (request) => {
    const { pathname, search } = new URL(request.url)
    const told = [request.method, pathname, search, request.headers.get("x-one"), await request.text()]
    return Response.json(told, { status: 201, headers: { "x-two": "2" } })
  })
  const response = await fetch(`${url}/a/b?c=d`, { method: "POST", headers: { "x-one": "1" }, body: "körper" })
  expect([response.status, response.headers.get("x-two")]).toEqual([201, "2"])
  expect(await response.json()).toEqual(["POST", "/a/b", "?c=d", "1", "körper"])
})

test("a taken port gives no server, and an address that cannot be used is an error", async () => {
  const url = await start(() => new Response())
  expect(await listen(() => new Response(), Number(new URL(url).port), "127.0.0.1")).toBeUndefined()
  await expect(listen(() => new Response(), 0, "192.0.2.1")).rejects.toThrow(/EADDRNOTAVAIL/)
})

test("a stream is sent piece by piece, and its request is aborted when the reader leaves", async () => {
  let aborted = false
  let send = (_text: string) => {}
  const url = await start((request) => {
    request.signal.addEventListener("abort", () => {
      aborted = true
    })
    const encoder = new TextEncoder()
    const body = new ReadableStream({
      start(controller) {
        send = (text) => controller.enqueue(encoder.encode(text))
        send("one")
      },
    })
    return new Response(body)
  })
  const stop = new AbortController()
  const response = await fetch(url, { signal: stop.signal })
  const reader = response.body?.getReader()
  const next = async () => new TextDecoder().decode((await reader?.read())?.value)
  expect(await next()).toBe("one")
  send("two")
  expect(await next()).toBe("two")
  stop.abort()
  await eventually(() => aborted)
})

test("a long stream does not collect event listeners while it goes on", async () => {
  const added = vi.spyOn(AbortSignal.prototype, "addEventListener")
  const removed = vi.spyOn(AbortSignal.prototype, "removeEventListener")
  const chunk = new Uint8Array(1_000_000)
  let left = 30
  const url = await start(() => {
    const pull = (controller: ReadableStreamDefaultController) => (left-- > 0 ? controller.enqueue(chunk) : undefined)
    return new Response(new ReadableStream({ pull }))
  })
  const socket = await dial(url)
  let size = 0
  socket.on("data", (data) => {
    size += data.length
  })
  socket.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n")
  await eventually(() => size > 30_000_000)
  expect(added.mock.calls.length - removed.mock.calls.length).toBeLessThan(10)
  socket.destroy()
})

test("a HEAD request for the events does not stay as a reader", async () => {
  const feed = {
    readers: 0,
    async join() {
      feed.readers++
      return () => void feed.readers--
    },
  }
  const joins = vi.spyOn(feed, "join")
  const app = new Hono<Env>()
  app.use(async (context, next) => {
    context.set("caller", { kind: "script" })
    await next()
  })
  const url = await start(app.get("/", eventsRoute(feed, { open: () => () => {}, use: () => {} })).fetch as Fetch)
  const socket = await dial(url)
  socket.write("HEAD / HTTP/1.1\r\nhost: x\r\n\r\n")
  expect(await read(socket)).toMatch(/^HTTP\/1\.1 200[\s\S]*text\/event-stream/)
  expect(joins).toHaveBeenCalled()
  await eventually(() => feed.readers === 0)
  expect(socket.destroyed).toBe(false)
  socket.destroy()
})

/** Reads the body, and says why it could not be read. */
const reading: Fetch = (request) =>
  request.arrayBuffer().then(
    (body) => Response.json({ size: body.byteLength }),
    (error) => new Response(error.message, { status: error.status }),
  )

const POST = "POST / HTTP/1.1\r\nhost: x\r\n"

test("a body above the size limit is not read to its end", async () => {
  const url = await start(reading)
  const socket = await dial(url)
  socket.write(`${POST}content-length: 1000000000\r\n\r\n${"x".repeat(1_200_000)}`)
  expect(await read(socket)).toMatch(/^HTTP\/1\.1 413[\s\S]*1,048,576 bytes/)
  await eventually(() => socket.destroyed || socket.readableEnded)
})

test("an unwanted body is not read, and its connection serves no further request", async () => {
  let asked = 0
  const url = await start(() => {
    asked++
    return new Response("no", { status: 403 })
  })
  const socket = await dial(url)
  socket.write(`${POST}content-length: 1000\r\n\r\n{`)
  const answer = await read(socket)
  expect(answer).toMatch(/^HTTP\/1\.1 403/)
  expect(answer.toLowerCase()).toContain("connection: close")
  await eventually(() => socket.destroyed || socket.readableEnded)
  expect(asked).toBe(1)
})

test("a body that does not arrive is refused after the time limit", async () => {
  const url = await start(reading, { bodyMs: 50 })
  const socket = await dial(url)
  socket.write(`${POST}content-length: 1000\r\n\r\n{`)
  expect(await read(socket)).toMatch(/^HTTP\/1\.1 408[\s\S]*within 0\.05 s/)
  await eventually(() => socket.destroyed || socket.readableEnded)
})

test("a complete body leaves its connection open, with a length or in chunks", async () => {
  const url = await start(reading)
  const socket = await dial(url)
  for (const body of ["content-length: 3\r\n\r\nabc", "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]) {
    socket.write(`${POST}${body}`)
    expect(await read(socket)).toContain('{"size":3}')
  }
  socket.destroy()
})

test("a request to switch to another protocol is closed at once", async () => {
  const url = await start(() => new Response("fine"))
  for (const head of ["GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket", "CONNECT x:80 HTTP/1.1"]) {
    const socket = await dial(url)
    socket.write(`${head}\r\nhost: x\r\n\r\n`)
    expect(await read(socket)).toBe("")
  }
})

test("requests above the limit at once are refused, and accepted again when others have ended", async () => {
  const waiting: ((response: Response) => void)[] = []
  const url = await start(() => new Promise<Response>((resolve) => void waiting.push(resolve)), { atOnce: 2 })
  const held = [fetch(url), fetch(url)]
  await eventually(() => waiting.length === 2)
  expect((await fetch(url)).status).toBe(503)
  for (const answer of waiting.splice(0)) answer(new Response("fine"))
  for (const { status } of await Promise.all(held)) expect(status).toBe(200)
  const again = fetch(url)
  await eventually(() => waiting.length === 1)
  waiting[0]?.(new Response("fine"))
  expect((await again).status).toBe(200)
})

test("a reader that stops reading is disconnected", async () => {
  let aborted = false
  const chunk = new Uint8Array(1_000_000)
  const url = await start(
    (request) => {
      request.signal.addEventListener("abort", () => {
        aborted = true
      })
      return new Response(new ReadableStream({ pull: (controller) => controller.enqueue(chunk) }))
    },
    { stallMs: 50 },
  )
  const socket = await dial(url)
  socket.pause()
  socket.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n")
  await eventually(() => aborted)
  socket.destroy()
})

test("malformed requests do not stop the server", async () => {
  const url = await start((request) => new Response(new URL(request.url).pathname))
  for (const line of [
    "GARBAGE\r\n\r\n",
    "GET http://evil.example/ HTTP/1.1\r\nhost: a b\r\n\r\n",
    "GET * HTTP/1.1\r\nhost: <x>\r\n\r\n",
  ]) {
    const socket = await dial(url)
    socket.write(line)
    await read(socket)
    socket.destroy()
  }
  expect(await (await fetch(`${url}/still`)).text()).toBe("/still")
})

test("a failing handler closes only its own connection", async () => {
  const url = await start((request) => {
    if (request.url.endsWith("/bad")) throw new Error("no")
    return new Response("fine")
  })
  await expect(fetch(`${url}/bad`)).rejects.toThrow()
  expect(await (await fetch(`${url}/good`)).text()).toBe("fine")
})

async function dial(url: string): Promise<Socket> {
  const socket = connect(Number(new URL(url).port), "127.0.0.1")
  socket.on("error", () => {})
  await new Promise((resolve) => socket.once("connect", resolve))
  return socket
}

const read = (socket: Socket): Promise<string> =>
  new Promise((resolve) => {
    socket.once("data", (data) => resolve(String(data)))
    socket.once("close", () => resolve(""))
  })
