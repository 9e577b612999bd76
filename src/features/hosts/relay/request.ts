import { bytesOf } from "../frames.ts"
import type { CallEnd, CallHead, Order } from "../orders.ts"
import type { Call } from "./call.ts"
import type { Server } from "./server.ts"

/** Forwards a request to OpenCode's server and streams its answer. */
export async function request(order: Extract<Order, { do: "request" }>, call: Call, server: Server): Promise<CallEnd> {
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
