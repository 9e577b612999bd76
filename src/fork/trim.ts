import type { HistoryMessage, HistoryPart, ToolHistoryPart } from "./ports.ts"
import { addWeights, calibration, NO_WEIGHT, tokensOf, type Weight, weighMessage } from "./tokens.ts"

/** Lengths in UTF-16 units, as JavaScript counts characters; limits in tokens. */
export type TrimLimits = { readonly maxToolResultChars: number; readonly maxTokens: number }

/** A tool result that was cut, by how long it was and is. */
export type CutResult = { readonly callID: string; readonly tool: string; readonly from: number; readonly to: number }

export type Trimmed = {
  /** What is kept, oldest first. */
  readonly kept: readonly HistoryMessage[]
  /** What is left out, oldest first. */
  readonly dropped: readonly HistoryMessage[]
  /** The results that were cut among those kept. */
  readonly cut: readonly CutResult[]
  /** What is kept weighs this many tokens at most. */
  readonly tokens: number
  /** The calibration, for texts that are added to the history. */
  readonly factor: number
}

/** A user's message that alone would take more than this share of the limit is cut to it. */
const ANCHOR_SHARE = 0.25

/**
 * Makes a history fit: results over `maxToolResultChars` are cut, then the oldest messages go until the rest weighs at
 * most `maxTokens`. Order stays; a call and its result are one part and never part; what is left begins with a user's
 * message: where a turn had to be broken, with the one that began the turn. Trimming what was trimmed changes nothing.
 * `pause` is awaited after every message, so that the caller can let others run.
 */
export async function trim(
  messages: readonly HistoryMessage[],
  limits: TrimLimits,
  pause: () => Promise<void> | void = () => {},
): Promise<Trimmed> {
  const whole: Weight[] = []
  const weights: Weight[] = []
  const short: HistoryMessage[] = []
  for (const message of messages) {
    const fitted = cutResults(message, limits.maxToolResultChars)
    const weight = weighMessage(fitted)
    short.push(fitted)
    weights.push(weight)
    whole.push(fitted === message ? weight : weighMessage(message))
    await pause()
  }
  const factor = calibration(messages, whole)
  const { kept, from } = newest(short, weights, factor, limits.maxTokens)
  const keptIDs = new Set(kept.map(({ id }) => id))
  return {
    kept: recount(kept, factor),
    dropped: messages.slice(0, from).filter(({ id }) => !keptIDs.has(id)),
    cut: cutsIn(messages, kept),
    tokens: tokensOf(sum(kept.map(weighMessage)), factor),
    factor,
  }
}

const sum = (weights: readonly Weight[]): Weight => weights.reduce(addWeights, NO_WEIGHT)

/**
 * The provider's counts are of the history as it was. Only the last answer keeps one, made to fit what is left: the
 * host reads it to see whether a session has to be compacted, and a fork of the fork calibrates by it.
 */
function recount(kept: readonly HistoryMessage[], factor: number): readonly HistoryMessage[] {
  const last = kept.findLastIndex(({ role }) => role === "assistant")
  const counted = sum(kept.slice(0, last + 1).map(weighMessage)).estimate * factor
  return kept.map((message, index) => ({ ...message, counted: index === last ? counted : undefined }))
}

/** The newest messages that fit, and the index before which the others were dropped. */
function newest(messages: readonly HistoryMessage[], weights: readonly Weight[], factor: number, limit: number): Kept {
  let from = firstThatFits(weights, factor, limit, NO_WEIGHT)
  if (from === 0) return startingAtUser(messages)
  for (;;) {
    if (messages[from]?.role === "user") return { kept: messages.slice(from), from }
    const anchorAt = userBefore(messages, from)
    const anchor = messages[anchorAt]
    if (!anchor) return startingAtUser(messages, from)
    const opening = shorten(anchor, factor, limit * ANCHOR_SHARE)
    from = Math.max(from, firstThatFits(weights, factor, limit, weighMessage(opening)))
    if (messages[from]?.role === "user" || userBefore(messages, from) !== anchorAt) continue
    if (tokensOf(weighMessage(opening), factor) > limit) return { kept: [], from: messages.length }
    return { kept: [opening, ...messages.slice(from)], from }
  }
}

type Kept = { readonly kept: readonly HistoryMessage[]; readonly from: number }

const userBefore = (messages: readonly HistoryMessage[], index: number): number =>
  messages.slice(0, index).findLastIndex(({ role }) => role === "user")

function startingAtUser(messages: readonly HistoryMessage[], from = 0): Kept {
  const start = messages.findIndex(({ role }, index) => index >= from && role === "user")
  return start < 0 ? { kept: [], from: messages.length } : { kept: messages.slice(start), from: start }
}

/** The lowest index from which on everything fits beside `taken`. */
function firstThatFits(weights: readonly Weight[], factor: number, limit: number, taken: Weight): number {
  let total = taken
  for (let index = weights.length - 1; index >= 0; index--) {
    total = addWeights(total, weights[index] ?? NO_WEIGHT)
    if (tokensOf(total, factor) > limit) return index + 1
  }
  return 0
}

/** The same message without its media, its texts cut so that it weighs at most `tokens` if that can be had. */
function shorten(message: HistoryMessage, factor: number, tokens: number): HistoryMessage {
  if (tokensOf(weighMessage(message), factor) <= tokens) return message
  const texts = message.parts.filter((part) => part.type === "text")
  let chars = Math.floor(tokens * 4)
  for (; chars > 0; chars = Math.floor(chars / 2)) {
    const each = Math.floor(chars / Math.max(1, texts.length))
    const parts = message.parts.flatMap((part): HistoryPart[] => {
      if (part.type === "file") return []
      return part.type === "text" ? [{ ...part, text: cutText(part.text, each) }] : [part]
    })
    const shorter = { ...message, parts }
    if (tokensOf(weighMessage(shorter), factor) <= tokens) return shorter
  }
  return { ...message, parts: texts.map((part) => ({ ...part, text: cutText(part.text, 0) })) }
}

function cutResults(message: HistoryMessage, most: number): HistoryMessage {
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

function cutsIn(before: readonly HistoryMessage[], kept: readonly HistoryMessage[]): readonly CutResult[] {
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
