import { head } from "../../lib/text.ts"
import type { HistoryMessage, ToolHistoryPart } from "./ports.ts"

/** A shortened tool result, in UTF-16 units: `kept` of the original `of`. */
export type CutResult = {
  readonly callID: string
  readonly tool: string
  readonly input: unknown
  readonly kept: number
  readonly of: number
}

/** Tool whose results are answers of agents. */
const ANSWER_TOOL = "superagents_output"
/** Most characters kept of an agent's answer in a fork's history, in UTF-16 units. */
export const MOST_ANSWER_CHARS = 20_000

export const isAnswer = (tool: string): boolean => tool === ANSWER_TOOL

/** Most characters kept of a result of this tool. `most` applies to every tool, but answers of agents keep more. */
const limitOf = (tool: string, most: number): number => (isAnswer(tool) ? Math.max(most, MOST_ANSWER_CHARS) : most)

/** Cuts tool results to `most` characters; returns the same object where none is longer. */
export function cutResults(message: HistoryMessage, most: number): HistoryMessage {
  const isLong = (part: ToolHistoryPart) => part.result.length > limitOf(part.tool, most)
  if (!message.parts.some((part) => part.type === "tool" && isLong(part))) return message
  const parts = message.parts.map((part) =>
    part.type === "tool" && isLong(part) ? { ...part, result: cutText(part.result, limitOf(part.tool, most)) } : part,
  )
  return { ...message, parts }
}

const NOTE = /\n\[Cut: (\d+) characters originally, the first (\d+) kept\.\]$/

/** Length of a text before the plugin first cut it. */
export const originalLength = (text: string): number => Number(NOTE.exec(text)?.[1] ?? text.length)

/** Length of the original text that is left. */
export const keptLength = (text: string): number => Number(NOTE.exec(text)?.[2] ?? text.length)

/** Beginning of a text and a note of its original length, together at most `most` characters if possible. */
export function cutText(text: string, most: number): string {
  if (text.length <= most) return text
  const original = originalLength(text)
  const room = Math.max(0, most - note(original, text.length).length)
  const beginning = head(text.replace(NOTE, ""), room)
  return beginning + note(original, beginning.length)
}

const note = (original: number, kept: number): string =>
  `\n[Cut: ${original} characters originally, the first ${kept} kept.]`

/** Results that are shorter in `kept` than in `before`. */
export function cutsIn(before: readonly HistoryMessage[], kept: readonly HistoryMessage[]): readonly CutResult[] {
  const originals = new Map(before.map((message) => [message.id, message]))
  return kept.flatMap((message) => {
    const original = originals.get(message.id)
    if (original === message) return []
    return message.parts.flatMap((part, index) => {
      const was = original?.parts[index]
      if (part.type !== "tool" || was?.type !== "tool" || was.result === part.result) return []
      const { callID, tool, input } = part
      return [{ callID, tool, input, kept: keptLength(part.result), of: originalLength(was.result) }]
    })
  })
}
