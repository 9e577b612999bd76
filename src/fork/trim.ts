import { type CutResult, cutResults, cutsIn, cutText } from "./cut.ts"
import type { HistoryMessage, HistoryPart } from "./ports.ts"
import {
  addWeights,
  calibration,
  isSurelyOver,
  NO_WEIGHT,
  tokensOf,
  type Weighed,
  type Weight,
  weighMessage,
} from "./tokens.ts"

/** Lengths in UTF-16 units, as JavaScript counts characters; limits in tokens. */
export type TrimLimits = { readonly maxToolResultChars: number; readonly maxTokens: number }

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
 * `pause` is awaited after every message, so that the caller can let others run. The cost is of what may be kept, not
 * of the whole history.
 */
export async function trim(
  messages: readonly HistoryMessage[],
  limits: TrimLimits,
  pause: () => Promise<void> | void = () => {},
): Promise<Trimmed> {
  const { maxTokens } = limits
  const newest = await weighNewest(messages, limits, pause)
  const measured = calibration(newest, newest.length === messages.length)
  const first = choose(messages, newest, measured, maxTokens)
  // The count goes with the last answer: what keeps none has to fit for someone who cannot calibrate it.
  const factor = first.kept.some(({ message }) => message.role === "assistant") ? measured : Math.max(1, measured)
  const { kept, from } = factor === measured ? first : choose(messages, newest, factor, maxTokens)
  const keptIDs = new Set(kept.map(({ message }) => message.id))
  const recounted = recount(kept, factor)
  return {
    kept: recounted,
    dropped: messages.slice(0, from).filter(({ id }) => !keptIDs.has(id)),
    cut: cutsIn(messages, recounted),
    tokens: tokensOf(sum(kept), factor),
    factor,
  }
}

const sum = (all: readonly Weighed[]): Weight => all.reduce((total, { weight }) => addWeights(total, weight), NO_WEIGHT)

/** The newest messages, cut and weighed, oldest first: as far back as any calibration might let them be kept. */
async function weighNewest(
  messages: readonly HistoryMessage[],
  { maxToolResultChars, maxTokens }: TrimLimits,
  pause: () => Promise<void> | void,
): Promise<readonly Weighed[]> {
  const newest: Weighed[] = []
  let total = NO_WEIGHT
  for (const original of messages.toReversed()) {
    const message = cutResults(original, maxToolResultChars)
    const weight = weighMessage(message)
    newest.push({ message, weight, whole: message === original ? weight : weighMessage(original) })
    await pause()
    total = addWeights(total, weight)
    if (isSurelyOver(total, maxTokens)) break
  }
  return newest.reverse()
}

/**
 * The provider's counts are of the history as it was. Only the last answer keeps one, made to fit what is left: the
 * host reads it to see whether a session has to be compacted, and a fork of the fork calibrates by it.
 */
function recount(kept: readonly Weighed[], factor: number): readonly HistoryMessage[] {
  const last = kept.findLastIndex(({ message }) => message.role === "assistant")
  const counted = sum(kept.slice(0, last + 1)).estimate * factor
  return kept.map(({ message }, index) => ({ ...message, counted: index === last ? counted : undefined }))
}

type Chosen = {
  readonly kept: readonly Weighed[]
  /** What is before this index and not kept is dropped. */
  readonly from: number
}

/** The newest messages that fit, beginning with a user's. */
function choose(
  messages: readonly HistoryMessage[],
  newest: readonly Weighed[],
  factor: number,
  limit: number,
): Chosen {
  const offset = messages.length - newest.length
  const keep = (from: number, opening: readonly Weighed[] = []): Chosen => ({
    kept: [...opening, ...newest.slice(from - offset)],
    from,
  })
  const firstThatFits = (taken: Weight) => offset + countTooMany(newest, factor, limit, taken)
  let from = firstThatFits(NO_WEIGHT)
  if (from === 0) return keep(nextUser(messages, 0))
  for (;;) {
    if (messages[from]?.role === "user") return keep(from)
    const anchorAt = userBefore(messages, from)
    const anchor = messages[anchorAt]
    if (!anchor) return keep(nextUser(messages, from))
    const opening = shorten(anchor, factor, limit * ANCHOR_SHARE)
    from = Math.max(from, firstThatFits(opening.weight))
    if (messages[from]?.role === "user" || userBefore(messages, from) !== anchorAt) continue
    return tokensOf(opening.weight, factor) > limit ? keep(messages.length) : keep(from, [opening])
  }
}

const userBefore = (messages: readonly HistoryMessage[], index: number): number =>
  messages.findLastIndex(({ role }, at) => at < index && role === "user")

function nextUser(messages: readonly HistoryMessage[], from: number): number {
  const next = messages.findIndex(({ role }, index) => index >= from && role === "user")
  return next < 0 ? messages.length : next
}

/** How many of the oldest have to go for the others to fit beside `taken`. */
function countTooMany(newest: readonly Weighed[], factor: number, limit: number, taken: Weight): number {
  let total = taken
  for (let index = newest.length - 1; index >= 0; index--) {
    total = addWeights(total, newest[index]?.weight ?? NO_WEIGHT)
    if (tokensOf(total, factor) > limit) return index + 1
  }
  return 0
}

/** The same message; without its media and with its texts cut where it weighs more than `tokens`. */
function shorten(message: HistoryMessage, factor: number, tokens: number): Weighed {
  const weighed = (each: HistoryMessage): Weighed => {
    const weight = weighMessage(each)
    return { message: each, weight, whole: weight }
  }
  const whole = weighed(message)
  if (tokensOf(whole.weight, factor) <= tokens) return whole
  const texts = message.parts.filter((part) => part.type === "text")
  const cutTo = (chars: number): Weighed =>
    weighed({
      ...message,
      parts: message.parts.flatMap((part): HistoryPart[] => {
        if (part.type === "file") return []
        return part.type === "text" ? [{ ...part, text: cutText(part.text, chars) }] : [part]
      }),
    })
  let chars = Math.floor((tokens * MOST_CHARS_PER_TOKEN) / Math.max(1, texts.length))
  let short = cutTo(chars)
  while (chars > 0 && tokensOf(short.weight, factor) > tokens) {
    chars = Math.floor(chars / 2)
    short = cutTo(chars)
  }
  return short
}

/** Where the search for a length that fits begins. */
const MOST_CHARS_PER_TOKEN = 4
