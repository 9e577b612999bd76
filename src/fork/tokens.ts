import { byteLength, estimateTokens } from "./estimate.ts"
import type { HistoryMessage, HistoryPart, Media } from "./ports.ts"

/**
 * What a history weighs, in tokens.
 *
 * No tokenizer is loaded, for three reasons. Importing the o200k one blocks the host's one thread for more than 400 ms
 * and keeps some 150 MB. It is exact for one family of models only. And there is a better witness: the provider counted
 * the very same history when it gave its last answer. So a text is weighed three ways, and the tests hold the second
 * against o200k:
 *
 * 1. Its UTF-8 bytes bound it from above: a token is at least one byte.
 * 2. `estimateTokens` guesses by words, numbers and signs: linear, and erring upwards.
 * 3. `calibration` scales the estimate by the provider's count, where there is a believable one.
 */

/** What a message, and a tool call in it, cost beside their texts. */
const MESSAGE_TOKENS = 6
const CALL_TOKENS = 16
const IMAGE_TOKENS = 2000
/** Documents are read as text and as images of their pages. */
const BYTES_PER_DOCUMENT_TOKEN = 20

/** A count below half or above thrice the estimate is of something else: another model's, or no true count at all. */
const LEAST_FACTOR = 0.5
const MOST_FACTOR = 3
/** What rounding may add to a sum of estimates that just fitted. */
const ROUNDING = 1e-6

/** Weight of a message, by its bytes and by the estimate. */
export type Weight = { readonly bytes: number; readonly estimate: number }

export const NO_WEIGHT: Weight = { bytes: 0, estimate: 0 }

export const addWeights = (a: Weight, b: Weight): Weight => ({
  bytes: a.bytes + b.bytes,
  estimate: a.estimate + b.estimate,
})

/** Tokens that something weighs at most. `factor` is the calibration. */
export const tokensOf = (weight: Weight, factor: number): number =>
  Math.ceil(Math.min(weight.bytes, weight.estimate * factor) - ROUNDING)

export function weighMessage(message: HistoryMessage): Weight {
  return message.parts.reduce((sum, part) => addWeights(sum, weighPart(part)), flat(MESSAGE_TOKENS))
}

export function weighText(text: string): Weight {
  return { bytes: byteLength(text), estimate: estimateTokens(text) }
}

function weighPart(part: HistoryPart): Weight {
  if (part.type === "text" || part.type === "reasoning") return weighText(part.text)
  if (part.type === "file") return addWeights(weighText(part.name), weighMedia(part.media))
  if (part.type === "other") return NO_WEIGHT
  const texts = [part.tool, part.callID, asText(part.input), part.result].map(weighText)
  return [...texts, ...part.media.map(weighMedia)].reduce(addWeights, flat(CALL_TOKENS))
}

const weighMedia = ({ mime, bytes }: Media): Weight =>
  flat(mime.startsWith("image/") ? IMAGE_TOKENS : Math.max(IMAGE_TOKENS, Math.ceil(bytes / BYTES_PER_DOCUMENT_TOKEN)))

const flat = (tokens: number): Weight => ({ bytes: tokens, estimate: tokens })

/** A message as it may be kept, its weight, and the weight of what it was before its results were cut. */
export type Weighed = { readonly message: HistoryMessage; readonly weight: Weight; readonly whole: Weight }

/** Whether this is over the limit under every calibration there can be. */
export const isSurelyOver = (weight: Weight, limit: number): boolean => tokensOf(weight, LEAST_FACTOR) > limit

/**
 * By what to multiply estimates of this history: what the provider counted from the first answer here to the last, over
 * the estimate for the same. `isWhole`: there is nothing before, so that all that was counted is here, but for system
 * prompt and tools. 1 where there is no believable count.
 */
export function calibration(newest: readonly Weighed[], isWhole: boolean): number {
  const isCounted = ({ message }: Weighed) => message.counted !== undefined
  const last = newest.findLastIndex(isCounted)
  const first = isWhole ? -1 : newest.findIndex(isCounted)
  const counted = (newest[last]?.message.counted ?? 0) - (newest[first]?.message.counted ?? 0)
  const { estimate } = newest.slice(first + 1, last + 1).reduce((sum, { whole }) => addWeights(sum, whole), NO_WEIGHT)
  if (estimate === 0) return 1
  const factor = counted / estimate
  return factor < LEAST_FACTOR - ROUNDING || factor > MOST_FACTOR + ROUNDING ? 1 : factor
}

/** Arguments of a call as the model sees them. */
function asText(value: unknown): string {
  if (typeof value === "string") return value
  return JSON.stringify(value) ?? ""
}
