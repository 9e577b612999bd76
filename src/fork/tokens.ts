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
 * 2. `estimateTokens` looks at words, numbers and signs: linear, some 50 MB a second, and erring upwards.
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

/**
 * By what to multiply estimates of this history: the provider's last count over the estimate for what it counted. 1
 * where there is no believable count.
 */
export function calibration(messages: readonly HistoryMessage[], weights: readonly Weight[]): number {
  const last = messages.findLastIndex((message) => message.counted !== undefined)
  const counted = messages[last]?.counted
  if (counted === undefined) return 1
  const { estimate } = weights.slice(0, last + 1).reduce(addWeights, NO_WEIGHT)
  if (estimate === 0) return 1
  const factor = counted / estimate
  return factor < LEAST_FACTOR - ROUNDING || factor > MOST_FACTOR + ROUNDING ? 1 : factor
}

/** Arguments of a call as the model sees them. */
export function asText(value: unknown): string {
  if (typeof value === "string") return value
  return JSON.stringify(value) ?? ""
}

const encoder = new TextEncoder()
const byteLength = (text: string): number => encoder.encode(text).length

const OTHER = 0
const LOWER = 1
const UPPER = 2
const DIGIT = 3
const BLANK = 4
const BREAK = 5
const SIGN = 6
const WIDE = 7

const KINDS = Uint8Array.from({ length: 128 }, (_, code) => {
  const char = String.fromCharCode(code)
  if (/[a-z]/.test(char)) return LOWER
  if (/[A-Z]/.test(char)) return UPPER
  if (/[0-9]/.test(char)) return DIGIT
  if (/[ \t]/.test(char)) return BLANK
  if (/[\r\n]/.test(char)) return BREAK
  return /[!-~]/.test(char) ? SIGN : OTHER
})
const kindAt = (text: string, index: number): number => {
  const code = text.charCodeAt(index)
  return code < 128 ? (KINDS[code] ?? OTHER) : code >= 128 ? WIDE : OTHER
}

/**
 * Tokens of a text, erring upwards: by a third or so for prose and code, hardly for identifiers and noise. Cuts the
 * text where BPE tokenizers do (words with one leading blank, three digits, runs of signs) and guesses each piece.
 */
export function estimateTokens(text: string): number {
  let tokens = 0
  for (let at = 0; at < text.length; ) {
    const kind = kindAt(text, at)
    const end = endOfRun(text, at, kind)
    tokens += runCost(text, at, end, kind)
    at = end
  }
  return Math.ceil(tokens)
}

/** A capital begins a word of small letters; a blank's run is of the same blank; other kinds run as long as they go. */
function endOfRun(text: string, start: number, kind: number): number {
  let end = start + 1
  if (kind === OTHER || kind === WIDE) return end
  if (kind === BLANK) {
    while (end < text.length && text.charCodeAt(end) === text.charCodeAt(start)) end++
    return end
  }
  while (end < text.length && kindAt(text, end) === kind) end++
  if (kind === UPPER && end === start + 1) while (end < text.length && kindAt(text, end) === LOWER) end++
  return end
}

function runCost(text: string, start: number, end: number, kind: number): number {
  const length = end - start
  switch (kind) {
    case LOWER:
      return wordCost(text, start, end)
    case UPPER:
      return length === 1 || kindAt(text, start + 1) === LOWER ? wordCost(text, start, end) : Math.max(1, length * 0.6)
    case DIGIT:
      return Math.ceil(length / 3)
    case BLANK: {
      const next = end < text.length ? kindAt(text, end) : OTHER
      const joins = length === 1 && text.charCodeAt(start) === 32 && next !== DIGIT && next !== OTHER && next !== WIDE
      return joins ? 0 : 1 + length / 40
    }
    case BREAK:
      return 1 + length / 16
    case SIGN:
      return 0.3 + 0.68 * changes(text, start, end) + length / 30
    case WIDE:
      return wideCost(text.charCodeAt(start))
    default:
      return 1
  }
}

/** Words with few vowels are rarely words: noise takes about a token for two letters. */
function wordCost(text: string, start: number, end: number): number {
  const length = end - start
  if (length < 3) return 1
  let vowels = 0
  for (let at = start; at < end; at++) if (isVowel(text.charCodeAt(at) | 32)) vowels++
  if (length === 3) return vowels > 0 ? 1 : 1.6
  return Math.max(1, Math.min(length * 0.6, Math.max(length / 5, (length - 2.2 * vowels) * 1.05)))
}

const VOWELS = new Set(Array.from("aeiouy", (char) => char.charCodeAt(0)))
const isVowel = (code: number): boolean => VOWELS.has(code)

function changes(text: string, start: number, end: number): number {
  let count = 1
  for (let at = start + 1; at < end; at++) if (text.charCodeAt(at) !== text.charCodeAt(at - 1)) count++
  return count
}

/** By the block that a UTF-16 unit is from; an astral character is two of them. */
function wideCost(code: number): number {
  if (code < 0x250) return 1.05
  if (code < 0x800) return 0.7
  if (code >= 0x3000 && code < 0xd7b0) return 1.2
  return code >= 0xd800 && code < 0xe000 ? 1.5 : 2
}
