import { spawn } from "node:child_process"
import { homedir } from "node:os"
import { join } from "node:path"
import { messageOf } from "../../../core/errors.ts"
import type { Processes } from "../../../lib/lock.ts"
import { killGroup } from "../../../runtime/places/process.ts"
import { bytesOf, Credit, encode, type Frame, Frames, HEAD_BYTES, Intake, inFrames, MARKER, textOf } from "../frames.ts"
import type { CallEnd, CallHead, Order, PingReply, RelayHello, RelaySettings } from "../orders.ts"
import { runFilesOrder } from "./files.ts"
import { type Call, listen, Server } from "./server.ts"

type Streams = { readonly input: NodeJS.ReadableStream; readonly output: NodeJS.WritableStream }

type Open = {
  readonly stop: AbortController
  readonly feed: (body: Uint8Array | undefined) => void
  readonly credit: Credit
}

/** Creates the state of a call. `over`: aborted when the connection ends. */
function opened(
  number: number,
  write: (bytes: Uint8Array) => Promise<void>,
  over: AbortSignal,
): Open & { readonly call: Call } {
  const stop = new AbortController()
  const signal = AbortSignal.any([stop.signal, over])
  const credit = new Credit()
  signal.addEventListener("abort", () => credit.end())
  const { feed, iterable } = feeding(new Intake((body) => void write(encode("more", number, body))))
  const send: Call["send"] = async (kind, body) => {
    for (const frame of inFrames(kind, number, body)) {
      if (kind !== "head") await credit.spend(frame.length - HEAD_BYTES)
      // The caller has cancelled the call, or the connection has ended.
      if (signal.aborted) return
      await write(frame)
    }
  }
  return { stop, feed, credit, call: { signal, input: iterable, send } }
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
    if (kind === "data") calls.get(call)?.feed(body)
    if (kind === "end") calls.get(call)?.feed(undefined)
    if (kind === "more") calls.get(call)?.credit.give(body)
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

/** Creates an iterable of the chunks that are passed to `feed`, up to the first `undefined`. */
function feeding(intake: Intake) {
  const waiting: (Uint8Array | undefined)[] = []
  let wake = () => {}
  const feed = (body: Uint8Array | undefined) => {
    intake.arrive(body?.length ?? 0)
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
      intake.take(body.length)
    }
  }
  return { feed, iterable: iterate() }
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

/** Time between SIGTERM and SIGKILL, in ms. */
const GRACE_MS = 2000

/**
 * Runs a shell line, and streams its input and output. Cancelling the call ends all processes that the line has
 * started.
 */
function run({ line }: Extract<Order, { do: "run" }>, call: Call): Promise<CallEnd> {
  return new Promise((resolve) => {
    const child = spawn("/bin/sh", ["-c", line], { detached: true, stdio: ["pipe", "pipe", "pipe"] })
    const stop = () => {
      killGroup(child, "SIGTERM")
      setTimeout(() => killGroup(child), GRACE_MS).unref()
    }
    call.signal.addEventListener("abort", stop, { once: true })
    // Ignore the error: the command may close stdin before all data is written.
    child.stdin.on("error", () => {})
    void feed(child.stdin, call)
    const passed = [pass(child.stdout, "data", call), pass(child.stderr, "errors", call)]
    child.on("error", (error) => resolve({ problem: error.message }))
    child.on("close", (code) => {
      call.signal.removeEventListener("abort", stop)
      void Promise.all(passed).then(() => resolve({ code }))
    })
  })
}

async function feed(stdin: NodeJS.WritableStream, { input }: Call): Promise<void> {
  for await (const body of input)
    if (!stdin.write(body)) await new Promise<void>((resolve) => void stdin.once("drain", resolve))
  stdin.end()
}

async function pass(stream: AsyncIterable<Uint8Array>, kind: "data" | "errors", call: Call): Promise<void> {
  for await (const chunk of stream) await call.send(kind, chunk)
}
