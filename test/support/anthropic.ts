import { randomUUID } from "node:crypto"
import type { ServerResponse } from "node:http"
import type { Usage } from "./model.ts"

type Part = {
  type: string
  text?: string
  id?: string
  name?: string
  input?: unknown
  tool_use_id?: string
  content?: unknown
}
type Said = { role: string; content: string | Part[] }

/** The parts of Anthropic's request that scripts look at, as OpenAI's has them. */
export const asOpenAI = (body: Record<string, unknown>): Record<string, unknown> => {
  const { system = [], messages = [], tools = [] } = body as { system?: Part[]; messages?: Said[]; tools?: Part[] }
  return {
    ...body,
    tools: tools.map(({ name }) => ({ type: "function", function: { name } })),
    messages: [...system.map(({ text }) => ({ role: "system", content: text })), ...messages.flatMap(toMessages)],
  }
}

const toMessages = ({ role, content }: Said) => {
  const parts = typeof content === "string" ? [{ type: "text", text: content } as Part] : content
  const texts = parts.filter(({ type }) => type === "text").map(({ text }) => ({ type: "text", text }))
  const results = parts
    .filter(({ type }) => type === "tool_result")
    .map(({ tool_use_id, content: result }) => ({ role: "tool", tool_call_id: tool_use_id, content: result }))
  const calls = parts
    .filter(({ type }) => type === "tool_use")
    .map(({ id, name, input }) => ({ id, function: { name, arguments: JSON.stringify(input) } }))
  if (role === "assistant") return [{ role, content: texts, ...(calls.length > 0 && { tool_calls: calls }) }]
  return [...results, ...(texts.length > 0 ? [{ role, content: texts }] : [])]
}

const STOPS: Readonly<Record<string, string>> = { stop: "end_turn", tool_calls: "tool_use", length: "max_tokens" }

/** Answers as Anthropic streams it; takes what OpenAI's stream takes. */
export const anthropicStream = (response: ServerResponse, model: string, usage: Required<Usage>) => {
  let open: number | undefined
  let next = 0
  const write = (type: string, more: object) =>
    response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`)
  const counts = {
    input_tokens: usage.input,
    cache_read_input_tokens: usage.cached,
    cache_creation_input_tokens: usage.written,
    output_tokens: 1,
  }
  const message = { id: `msg_${randomUUID()}`, type: "message", role: "assistant", model, content: [] }
  write("message_start", { message: { ...message, stop_reason: null, stop_sequence: null, usage: counts } })
  const close = () => {
    if (open !== undefined) write("content_block_stop", { index: open })
    open = undefined
  }
  const block = (content_block: object) => {
    close()
    open = next++
    write("content_block_start", { index: open, content_block })
  }
  let inText = false
  const delta = (given: Record<string, unknown>) => {
    const { content, tool_calls } = given as {
      content?: string
      tool_calls?: { id: string; function: { name: string; arguments: string } }[]
    }
    if (content) {
      if (!inText) block({ type: "text", text: "" })
      inText = true
      write("content_block_delta", { index: open, delta: { type: "text_delta", text: content } })
    }
    for (const { id, function: called } of tool_calls ?? []) {
      inText = false
      block({ type: "tool_use", id, name: called.name, input: {} })
      write("content_block_delta", { index: open, delta: { type: "input_json_delta", partial_json: called.arguments } })
    }
  }
  const end = (finish: string) => {
    close()
    const output_tokens = usage.output + usage.reasoning
    write("message_delta", {
      delta: { stop_reason: STOPS[finish] ?? finish, stop_sequence: null },
      usage: { output_tokens },
    })
    write("message_stop", {})
    response.end()
  }
  return { delta, end }
}
