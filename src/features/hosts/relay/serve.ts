import { homedir } from "node:os"
import { join } from "node:path"
import { Readable } from "node:stream"
import { messageOf } from "../../../core/errors.ts"
import type { Processes } from "../../../lib/lock.ts"
import { bytesOf, encode, Flow, type Frame, Frames, MARKER, textOf } from "../frames.ts"
import type { CallEnd, CallHead, Order, PingReply, RelayHello, RelaySettings } from "../orders.ts"
import { runFilesOrder } from "./files.ts"
import { job } from "./jobs.ts"
import { type Call, listen, Server } from "./server.ts"

type Streams = { readonly input: NodeJS.ReadableStream; readonly output: NodeJS.WritableStream }

type Open = { readonly stop: AbortController; readonly input: Readable; readonly flow: Flow }

/** Creates the state of a call. `over`: aborted when the connection ends. */
function opened(
  number: number,
  write: (bytes: Uint8Array) => Promise<void>,
  over: AbortSignal,
): Open & { readonly call: Call } {
  const stop = new AbortController()
  const signal = AbortSignal.any([stop.signal, over])
  const flow = new Flow(number, write)
  signal.addEventListener("abort", () => flow.end())
  const input = new Readable({ objectMode: true, read() {} })
  // A caller may send more after the end, which nobody reads.
  input.on("error", () => {})
  const send: Call["send"] = (kind, body) => (kind === "data" ? flow.send(body) : write(encode(kind, number, body)))
  return { stop, input, flow, call: { signal, input: taken(input, flow), send } }
}

async function* taken(input: AsyncIterable<Uint8Array>, flow: Flow): AsyncIterable<Uint8Array> {
  for await (const body of input) {
    yield body
    flow.take(body.length)
  }
}

const hello = (): RelayHello => ({
  now: Date.now(),
  cache: process.env.XDG_CACHE_HOME || join(homedir(), ".cache"),
})

/** Runs a relay: carries out orders until the stream ends or is silent for too long, then stops all running calls. */
export async function serve({ input, output }: Streams, settings: RelaySettings, processes: Processes): Promise<void> {
  const server = new Server(settings, processes)
  const calls = new Map<number, Open>()
  const over = new AbortController()
  let lastMessageAt = Date.now()
  const write = (bytes: Uint8Array): Promise<void> =>
    over.signal.aborted || output.write(bytes) ? Promise.resolve() : drained(output, over.signal)

  const perform = async (number: number, order: Order) => {
    const { call, ...open } = opened(number, write, over.signal)
    calls.set(number, open)
    const end: CallEnd = await carryOut(order, call, server, processes).catch((error) => ({
      problem: messageOf(error),
    }))
    const isServerGone = !call.signal.aborted && mayBeGone(order, end) && (await server.isGone())
    calls.delete(number)
    await write(encode("end", number, bytesOf(JSON.stringify({ ...end, ...(isServerGone && { isServerGone }) }))))
  }

  const take = ({ kind, call, body }: Frame) => {
    lastMessageAt = Date.now()
    if (kind === "open") void perform(call, JSON.parse(textOf(body)) as Order)
    if (kind === "data") {
      calls.get(call)?.flow.arrive(body.length)
      calls.get(call)?.input.push(body)
    }
    if (kind === "end") calls.get(call)?.input.push(null)
    if (kind === "more") calls.get(call)?.flow.give(body)
    if (kind === "cancel") calls.get(call)?.stop.abort()
    if (kind === "ping") {
      server.seen()
      const pong: PingReply = { now: Date.now(), server: server.answers }
      void write(encode("pong", call, bytesOf(JSON.stringify(pong))))
    }
  }

  const frames = new Frames(false)
  output.write(MARKER)
  output.write(encode("hello", 0, bytesOf(JSON.stringify(hello()))))
  const watch = setInterval(() => {
    if (Date.now() - lastMessageAt > settings.patience) over.abort()
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

/** A failed request, or an ended event stream, may mean that the server died. */
const mayBeGone = ({ do: what }: Order, { problem }: CallEnd): boolean =>
  what === "listen" || (what === "request" && problem !== undefined)

async function carryOut(order: Order, call: Call, server: Server, processes: Processes): Promise<CallEnd> {
  switch (order.do) {
    case "job":
      await call.send("data", bytesOf(JSON.stringify(await job(order))))
      return {}
    case "request":
      return request(order, call, server)
    case "serve":
      await call.send("data", bytesOf(JSON.stringify(await server.start())))
      return {}
    case "listen":
      return listen(call, server)
    case "rest":
      server.releaseLease()
      return {}
    default:
      return runFilesOrder(order, call, processes)
  }
}

function drained(output: NodeJS.WritableStream, over: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    output.once("drain", resolve)
    over.addEventListener("abort", () => resolve(), { once: true })
  })
}

/** Forwards a request to OpenCode's server and streams its answer. */
async function request(order: Extract<Order, { do: "request" }>, call: Call, server: Server): Promise<CallEnd> {
  const chunks: Uint8Array[] = []
  for await (const chunk of call.input) chunks.push(chunk)
  const body = chunks.length === 0 ? undefined : Buffer.concat(chunks)
  const { method, path, headers } = order
  const answer = await server.fetch(path, { method, headers, body, signal: call.signal })
  const head: CallHead = { status: answer.status, headers: Object.fromEntries(answer.headers) }
  await call.send("head", bytesOf(JSON.stringify(head)))
  if (answer.body) for await (const chunk of answer.body as AsyncIterable<Uint8Array>) await call.send("data", chunk)
  return {}
}
