import type { HistoryMessage, HistoryPart } from "../../src/features/forks/ports.ts"
import { estimate, type Meter } from "../../src/features/forks/tokens.ts"
import type { WeighingPorts } from "../../src/features/forks/trim.ts"

/** Messages of a history for tests, in the words of `src/features/forks`. */
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

/** The model that is said to read these histories. */
export const READER = { provider: "scripted", id: "alpha" }

/** An answer to a request for which the provider counted so many tokens. */
export const counted = (base: HistoryMessage, tokens: number, model = READER, cached = 0): HistoryMessage => ({
  ...base,
  counted: { model, tokens, cached },
})

/** Weighs by the estimate, without a pause. */
export const ESTIMATE: WeighingPorts = { meter: estimate, pause: () => {} }

/** Weighs by the length of texts, and remembers them. */
export const byLength = (tokensPerChar = 0.25) => {
  const texts: string[] = []
  const meter: Meter = async (given) => {
    texts.push(...given)
    return given.map(({ length }) => length * tokensPerChar)
  }
  return { texts, scales: { ...ESTIMATE, meter } }
}

const message = (id: string, role: "user" | "assistant", parts: (HistoryPart | string)[]): HistoryMessage => ({
  id,
  role,
  parts: parts.map((part) => (typeof part === "string" ? text(part) : part)),
  handle: id,
})

export const textsOf = (messages: readonly HistoryMessage[]): string[] =>
  messages.flatMap(({ parts }) => parts.flatMap((part) => (part.type === "text" ? [part.text] : [])))
