import type { HistoryMessage, ToolHistoryPart } from "./ports.ts"

/** A tool result that was cut: the length it had at first and has now, in UTF-16 units. */
export type CutResult = { readonly callID: string; readonly tool: string; readonly from: number; readonly to: number }

/** The message with its tool results cut to `most` characters; the very same one where none is longer. */
export function cutResults(message: HistoryMessage, most: number): HistoryMessage {
  if (!message.parts.some((part) => part.type === "tool" && part.result.length > most)) return message
  return { ...message, parts: message.parts.map((part) => (part.type === "tool" ? cutResult(part, most) : part)) }
}

const cutResult = (part: ToolHistoryPart, most: number): ToolHistoryPart =>
  part.result.length > most ? { ...part, result: cutText(part.result, most) } : part

const NOTE = /\n\[Cut: (\d+) characters originally, the first \d+ kept\.\]$/

/** The length a text had before anything was cut from it. */
export const originalLength = (text: string): number => Number(NOTE.exec(text)?.[1] ?? text.length)

/** The beginning of a text and a note of its original length, together at most `most` characters where that can be. */
export function cutText(text: string, most: number): string {
  if (text.length <= most) return text
  const original = originalLength(text)
  const room = Math.max(0, most - note(original, text.length).length)
  const body = text.replace(NOTE, "")
  const head = body.slice(0, splitsPair(body, room) ? room - 1 : room)
  return head + note(original, head.length)
}

const note = (original: number, kept: number): string =>
  `\n[Cut: ${original} characters originally, the first ${kept} kept.]`

const splitsPair = (text: string, at: number): boolean => at > 0 && /[\ud800-\udbff]/.test(text.charAt(at - 1))

/** The results that are shorter in `kept` than they were in `before`. */
export function cutsIn(before: readonly HistoryMessage[], kept: readonly HistoryMessage[]): readonly CutResult[] {
  const originals = new Map(before.map((message) => [message.id, message]))
  return kept.flatMap((message) => {
    const original = originals.get(message.id)
    return message.parts.flatMap((part, index) => {
      const was = original?.parts[index]
      if (part.type !== "tool" || was?.type !== "tool" || was.result === part.result) return []
      const { callID, tool } = part
      return [{ callID, tool, from: originalLength(was.result), to: part.result.length }]
    })
  })
}
