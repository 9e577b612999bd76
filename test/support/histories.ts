import type { HistoryMessage, HistoryPart } from "../../src/fork/ports.ts"

/** Messages of a history for tests, in the words of `src/fork`. */
export const text = (content: string): HistoryPart => ({ type: "text", text: content, handle: content })

export const call = (callID: string, result: string, input: unknown = { path: "/x" }, tool = "read"): HistoryPart => ({
  type: "tool",
  callID,
  tool,
  input,
  state: "completed",
  result,
  media: [],
  handle: callID,
})

export const user = (id: string, ...parts: (HistoryPart | string)[]): HistoryMessage => message(id, "user", parts)

export const agent = (id: string, ...parts: (HistoryPart | string)[]): HistoryMessage => message(id, "assistant", parts)

export const counted = (base: HistoryMessage, tokens: number): HistoryMessage => ({ ...base, counted: tokens })

const message = (id: string, role: "user" | "assistant", parts: (HistoryPart | string)[]): HistoryMessage => ({
  id,
  role,
  parts: parts.map((part) => (typeof part === "string" ? text(part) : part)),
  handle: id,
})

export const textsOf = (messages: readonly HistoryMessage[]): string[] =>
  messages.flatMap(({ parts }) => parts.flatMap((part) => (part.type === "text" ? [part.text] : [])))
