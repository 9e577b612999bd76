import { randomUUID } from "node:crypto"
import type { ServerResponse } from "node:http"
import { setTimeout as sleep } from "node:timers/promises"
import { anthropicStream } from "./anthropic.ts"
import type { BegunCall, HangReply, ModelRequest, Reply, TextReply, ToolReply, Usage } from "./model.ts"

const JSON_HEADERS = { "content-type": "application/json" }
const STREAM_HEADERS = { "content-type": "text/event-stream", "cache-control": "no-cache" }

const DEFAULT_USAGE = { input: 100, output: 20, reasoning: 0, cached: 0, written: 0 }

/** What a reply says of it, or the played cache, or nobody. */
const usageOf = ({ counted }: ModelRequest, usage: Usage = {}) => {
  const played = counted && { input: counted.input, cached: counted.read, written: counted.written }
  return { ...DEFAULT_USAGE, ...played, ...usage }
}

/** Providers count cached tokens into the prompt and reasoning into the completion. */
const wireUsage = ({ input, output, reasoning, cached }: Required<Usage>) => {
  return {
    prompt_tokens: input + cached,
    completion_tokens: output + reasoning,
    total_tokens: input + cached + output + reasoning,
    prompt_tokens_details: { cached_tokens: cached },
    completion_tokens_details: { reasoning_tokens: reasoning },
  }
}

const KEEP_ALIVE_MS = 500

const split = (text: string, count: number) => {
  const size = Math.max(1, Math.ceil(text.length / Math.max(1, count)))
  return text.match(new RegExp(`[^]{1,${size}}`, "g")) ?? []
}

const stream = (response: ServerResponse, request: ModelRequest, usage?: Usage) => {
  const { model, form } = request
  const used = usageOf(request, usage)
  if (form === "anthropic") {
    response.writeHead(200, STREAM_HEADERS)
    return anthropicStream(response, model, used)
  }
  const head = { id: `chatcmpl-${randomUUID()}`, object: "chat.completion.chunk", created: 1, model }
  response.writeHead(200, STREAM_HEADERS)
  response.flushHeaders()
  const write = (value: unknown) => response.write(`data: ${JSON.stringify(value)}\n\n`)
  const delta = (delta: Record<string, unknown>, finish: string | null = null) =>
    write({ ...head, choices: [{ index: 0, delta, finish_reason: finish }] })
  const end = (finish: string) => {
    delta({}, finish)
    write({ ...head, choices: [], usage: wireUsage(used) })
    response.end("data: [DONE]\n\n")
  }
  return { delta, end }
}

const sendText = async (response: ServerResponse, request: ModelRequest, reply: TextReply) => {
  const { delta, end } = stream(response, request, reply.usage)
  if (reply.reasoning) delta({ role: "assistant", reasoning_content: reply.reasoning })
  const pieces = split(reply.text, reply.chunks ?? 1)
  for (const [index, content] of pieces.entries()) {
    if (index === pieces.length - 1) await reply.until
    if (index && reply.pace) await sleep(reply.pace, undefined, { signal: request.aborted })
    delta({ role: "assistant", content })
  }
  end(reply.finish ?? "stop")
}

const sendTools = (response: ServerResponse, request: ModelRequest, reply: ToolReply) => {
  const { delta, end } = stream(response, request, reply.usage)
  if (reply.text) delta({ role: "assistant", content: reply.text })
  for (const [index, { name, args, id }] of reply.tools.entries()) {
    const text = typeof args === "string" ? args : JSON.stringify(args)
    const call = { index, id: id ?? `call_${randomUUID()}`, type: "function", function: { name, arguments: text } }
    delta({ role: "assistant", tool_calls: [call] })
  }
  end(reply.finish ?? "tool_calls")
}

const beginOf = ({ name, args }: BegunCall) => ({
  role: "assistant",
  tool_calls: [{ index: 0, id: `call_${randomUUID()}`, type: "function", function: { name, arguments: args } }],
})

const hang = async (response: ServerResponse, request: ModelRequest, { text, call }: HangReply) => {
  const { delta } = stream(response, request)
  if (text) delta({ role: "assistant", content: text })
  if (!call) return
  delta(beginOf(call))
  for (;;) {
    await sleep(KEEP_ALIVE_MS, undefined, { signal: request.aborted })
    response.write(": keep-alive\n\n")
  }
}

const answer = async (response: ServerResponse, request: ModelRequest, reply: Reply, begun: () => void) => {
  if (reply.delay) await sleep(reply.delay, undefined, { signal: request.aborted })
  if (!("status" in reply)) begun()
  if ("status" in reply) {
    const body = reply.body ?? { error: { message: `scripted status ${reply.status}`, type: "scripted" } }
    response.writeHead(reply.status, { ...JSON_HEADERS, ...reply.headers })
    return response.end(typeof body === "string" ? body : JSON.stringify(body))
  }
  if ("empty" in reply) {
    response.writeHead(200, STREAM_HEADERS)
    return response.end()
  }
  if ("hang" in reply) {
    return hang(response, request, reply)
  }
  if ("cut" in reply) {
    const { delta } = stream(response, request)
    delta({ role: "assistant", content: reply.text })
    await sleep(20, undefined, { signal: request.aborted })
    return response.destroy()
  }
  if ("fails" in reply) {
    const { delta } = stream(response, request)
    if (reply.text) delta({ role: "assistant", content: reply.text })
    if (reply.call) delta(beginOf(reply.call))
    return response.end(`data: ${JSON.stringify({ error: reply.fails })}\n\n`)
  }
  if ("tools" in reply) return sendTools(response, request, reply)
  return sendText(response, request, reply)
}

/** Sends the reply, and stops without a word when the client goes away meanwhile. `begun`: its first byte goes out. */
export const send = async (response: ServerResponse, request: ModelRequest, reply: Reply, begun = () => {}) => {
  try {
    await answer(response, request, reply, begun)
  } catch (error) {
    if (!request.aborted.aborted) throw error
  }
}
