import { homedir } from "node:os"
import { join } from "node:path"
import { bytesOf, encode, type Frame, Frames, inFrames, MARKER, textOf } from "../frames.ts"
import type { CallEnd, Hello, Order, Pong, RelaySettings } from "../orders.ts"
import type { Call } from "./call.ts"
import { listen } from "./listen.ts"
import { request } from "./request.ts"
import { run } from "./run.ts"
import { Server } from "./server.ts"

export type Streams = { readonly input: NodeJS.ReadableStream; readonly output: NodeJS.WritableStream }

const hello = (): Hello => ({
  now: Date.now(),
  cache: process.env.XDG_CACHE_HOME || join(homedir(), ".cache"),
  pid: process.pid,
})

/**
 * The far end: carries out what comes over the stream until that ends, or nothing was heard for too long. Resolves then;
 * what it had begun is ended with it.
 */
export async function serve({ input, output }: Streams, settings: RelaySettings): Promise<void> {
  const server = new Server(settings)
  const calls = new Map<number, { stop: AbortController; feed: (body: Uint8Array | undefined) => void }>()
  const over = new AbortController()
  let heardAt = Date.now()
  const write = (bytes: Uint8Array): Promise<void> =>
    over.signal.aborted || output.write(bytes) ? Promise.resolve() : drained(output, over.signal)

  const perform = async (number: number, order: Order) => {
    const stop = new AbortController()
    const { feed, iterable } = feeding()
    calls.set(number, { stop, feed })
    const call: Call = {
      signal: AbortSignal.any([stop.signal, over.signal]),
      input: iterable,
      send: async (kind, body) => {
        for (const frame of inFrames(kind, number, body)) await write(frame)
      },
    }
    const end: CallEnd = await carryOut(order, call, server).catch((error) => ({ problem: messageOf(error) }))
    const isServerGone = !call.signal.aborted && mayBeGone(order, end) && (await server.isGone())
    calls.delete(number)
    await write(encode("end", number, bytesOf(JSON.stringify({ ...end, ...(isServerGone && { isServerGone }) }))))
  }

  const take = ({ kind, call, body }: Frame) => {
    heardAt = Date.now()
    if (kind === "open") void perform(call, JSON.parse(textOf(body)) as Order)
    if (kind === "data") calls.get(call)?.feed(body)
    if (kind === "end") calls.get(call)?.feed(undefined)
    if (kind === "cancel") calls.get(call)?.stop.abort()
    if (kind === "ping") {
      server.seen()
      const pong: Pong = { now: Date.now(), server: server.answers }
      void write(encode("pong", call, bytesOf(JSON.stringify(pong))))
    }
  }

  const frames = new Frames(false)
  output.write(MARKER)
  output.write(encode("hello", 0, bytesOf(JSON.stringify(hello()))))
  const watch = setInterval(() => {
    if (Date.now() - heardAt > settings.patience) over.abort()
  }, 1000)
  await new Promise<void>((resolve) => {
    over.signal.addEventListener("abort", () => resolve())
    output.on("error", () => over.abort())
    input.on("end", () => over.abort())
    input.on("error", () => over.abort())
    input.on("data", (chunk: Uint8Array) => {
      try {
        for (const frame of frames.take(chunk)) take(frame)
      } catch {
        over.abort()
      }
    })
  })
  clearInterval(watch)
  for (const { stop } of calls.values()) stop.abort()
}

/** Where a request fails, or what is listened to ends, its server may have died. */
const mayBeGone = ({ do: what }: Order, { problem }: CallEnd): boolean =>
  what === "listen" || (what === "request" && problem !== undefined)

async function carryOut(order: Order, call: Call, server: Server): Promise<CallEnd> {
  switch (order.do) {
    case "run":
      return run(order, call)
    case "request":
      return request(order, call, server)
    case "serve":
      await call.send("data", bytesOf(JSON.stringify(await server.start())))
      return {}
    case "listen":
      return listen(call, server)
    case "rest":
      server.rest()
      return {}
  }
}

function drained(output: NodeJS.WritableStream, over: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    output.once("drain", resolve)
    over.addEventListener("abort", () => resolve(), { once: true })
  })
}

/** What is fed comes out of the iterable, up to the first `undefined`. */
function feeding() {
  const waiting: (Uint8Array | undefined)[] = []
  let wake = () => {}
  const feed = (body: Uint8Array | undefined) => {
    waiting.push(body)
    wake()
  }
  async function* iterate() {
    for (;;) {
      if (waiting.length === 0)
        await new Promise<void>((resolve) => {
          wake = resolve
        })
      const body = waiting.shift()
      if (!body) return
      yield body
    }
  }
  return { feed, iterable: iterate() }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
