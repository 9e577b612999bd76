import type { HistoryMessage, HistoryPart, Media } from "./ports.ts"

/**
 * Measures the weight of texts in tokens: by the number of bytes, as an upper bound, and by a meter (o200k in a worker
 * thread, else `estimateTokens`). Other models count up to a third more.
 */

/** Tokens added for each message, and for each tool call. */
const MESSAGE_TOKENS = 6
const CALL_TOKENS = 16
const IMAGE_TOKENS = 2000
/** Bytes per token of a document. Models read a document as text and as page images. */
const BYTES_PER_DOCUMENT_TOKEN = 20
/** Tolerance for rounding in sums. */
const ROUNDING = 1e-6

/** Token count of each text. Must not reject. */
export type Meter = (texts: readonly string[]) => Promise<readonly number[]>

/** Long work awaits this function between its slices, so that other work can run. */
export type Yield = () => Promise<void> | void

/** Weight of a text: its bytes, and the count of a meter. */
export type Weight = { readonly bytes: number; readonly count: number }

export const NO_WEIGHT: Weight = { bytes: 0, count: 0 }

export const addWeights = (a: Weight, b: Weight): Weight => ({ bytes: a.bytes + b.bytes, count: a.count + b.count })

export const sumWeights = (weights: Iterable<Weight>): Weight => {
  let sum = NO_WEIGHT
  for (const weight of weights) sum = addWeights(sum, weight)
  return sum
}

/** Upper bound in tokens. */
export const tokensOf = ({ bytes, count }: Weight): number => Math.ceil(Math.min(bytes, count) - ROUNDING)

/** Characters estimated without a pause: this takes some 2 ms. */
const SLICE_CHARS = 100_000

/** A meter that estimates, and awaits `pause` after each slice of a text. */
export const estimating =
  (pause: Yield = () => {}): Meter =>
  async (texts) => {
    const counts: number[] = []
    for (const text of texts) {
      let count = 0
      for (let at = 0; at < text.length; at += SLICE_CHARS) {
        count += estimateTokens(text.slice(at, at + SLICE_CHARS))
        await pause()
      }
      counts.push(count)
    }
    return counts
  }

export const guessText = (text: string): Weight => ({ bytes: byteLength(text), count: estimateTokens(text) })

export async function weighText(text: string, meter: Meter): Promise<Weight> {
  const [count = 0] = await meter([text])
  return { bytes: byteLength(text), count }
}

/** Content of a message: its joined texts, and a fixed weight for all other parts. */
export type Load = { readonly text: string; readonly flat: number; readonly bytes: number }

export function loadOf(message: HistoryMessage): Load {
  const loads = message.parts.map(partLoad)
  const text = loads.flatMap(({ texts }) => texts).join("\n")
  const flat = loads.reduce((sum, load) => sum + load.flat, MESSAGE_TOKENS)
  return { text, flat, bytes: byteLength(text) + flat }
}

export const weightOf = ({ flat, bytes }: Load, count: number): Weight => ({ bytes, count: count + flat })

export async function weighMessage(message: HistoryMessage, meter: Meter): Promise<Weight> {
  const load = loadOf(message)
  const [count = 0] = await meter([load.text])
  return weightOf(load, count)
}

function partLoad(part: HistoryPart): { texts: readonly string[]; flat: number } {
  if (part.type === "text" || part.type === "reasoning") return { texts: [part.text], flat: 0 }
  if (part.type === "file") return { texts: [part.name], flat: mediaTokens(part.media) }
  if (part.type === "other") return { texts: [], flat: 0 }
  const texts = [part.tool, part.callID, asText(part.input), part.result]
  return { texts, flat: part.media.reduce((sum, media) => sum + mediaTokens(media), CALL_TOKENS) }
}

const mediaTokens = ({ mime, bytes }: Media): number =>
  mime.startsWith("image/") ? IMAGE_TOKENS : Math.max(IMAGE_TOKENS, Math.ceil(bytes / BYTES_PER_DOCUMENT_TOKEN))

/** Arguments as the model sees them. */
function asText(value: unknown): string {
  if (typeof value === "string") return value
  return JSON.stringify(value) ?? ""
}

/**
 * Estimates tokens without a tokenizer, fitted against o200k. Estimates are 5 to 30 % too high for prose and code, up
 * to three times too high for other scripts, and too low for rare ideographs only.
 */

export const byteLength = (text: string): number => Buffer.byteLength(text)

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
  return code < 128 ? (KINDS[code] ?? OTHER) : WIDE
}

/**
 * Letters that commonly follow each letter in English words and identifiers (96 % of all pairs). Tokenizers keep common
 * words whole and split other words at uncommon pairs.
 */
const FOLLOWERS = (
  "bcdfgiklmnprstuvwy aeijlorsuy acehiklorstu adeilosu abcdefgilmnopqrstvwxy aefilortu aehilnrsu aeiortu " +
  "abcdefglmnoprstvxz es aeis adeilostuvy abeilmopsu acdefgiklnopstuvy abcdfgiklmnoprstuvw aeilmoprstu u " +
  "acdegiklmnorstuy acehiklopstuy acehiloprstuy abcdegilmnprst aei aehinors aipt nops e"
).split(" ")

const LETTERS = 26
const COMMON_PAIRS = new Uint8Array(LETTERS * LETTERS)
for (const [first, followers] of FOLLOWERS.entries())
  for (const second of followers) COMMON_PAIRS[first * LETTERS + letterIndex(second.charCodeAt(0))] = 1

/** Index of a letter, 0 to 25. Upper and lower case have the same index. */
function letterIndex(code: number): number {
  return (code | 32) - 97
}

/** Splits the text as BPE tokenizers do and adds up the pieces. Linear, some 50 MB a second. */
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

/** End of a piece: a word with its capital, equal blanks, or characters of one kind. */
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
    case UPPER: {
      const joint = start > 0 && isLetter(kindAt(text, start - 1)) ? JOINT_COST : 0
      const isWord = length === 1 || kindAt(text, start + 1) === LOWER
      return joint + (isWord ? wordCost(text, start, end) : Math.max(1, length * 0.6))
    }
    case DIGIT:
      return Math.ceil(length / 3)
    case BLANK:
      return joinsNext(text, start, end) ? 0 : 1 + length / 40
    case BREAK:
      return 1 + length / 16
    case SIGN:
      return 0.25 + 0.55 * changes(text, start, end) + length / 30
    case WIDE:
      return wideCost(text.charCodeAt(start))
    default:
      return 1
  }
}

/** Extra cost of a capital after another letter, as in camel case or base64. */
const JOINT_COST = 0.15

const isLetter = (kind: number): boolean => kind === LOWER || kind === UPPER

/** Whether a blank costs nothing: tokenizers join a single blank to the word or signs after it. */
function joinsNext(text: string, start: number, end: number): boolean {
  if (end - start !== 1 || text.charCodeAt(start) !== 32 || end >= text.length) return false
  const next = kindAt(text, end)
  return isLetter(next) || next === SIGN
}

function wordCost(text: string, start: number, end: number): number {
  const length = end - start
  if (length < 3) return 1
  let uncommon = 0
  for (let at = start; at + 1 < end; at++) {
    const pair = letterIndex(text.charCodeAt(at)) * LETTERS + letterIndex(text.charCodeAt(at + 1))
    if (COMMON_PAIRS[pair] === 0) uncommon++
  }
  if (length === 3) return 1 + 0.3 * uncommon
  return Math.max(1, Math.min(0.3 + length * 0.62, (length < 8 ? 1 : length / 7.5) + uncommon))
}

function changes(text: string, start: number, end: number): number {
  let count = 1
  for (let at = start + 1; at < end; at++) if (text.charCodeAt(at) !== text.charCodeAt(at - 1)) count++
  return count
}

/** Cost of one UTF-16 unit by Unicode block. An astral character has two units. */
function wideCost(code: number): number {
  if (code < 0x250) return 1.05
  if (code < 0x800) return 0.7
  if (code >= 0x3000 && code < 0xd7b0) return 1.2
  return code >= 0xd800 && code < 0xe000 ? 1.5 : 2
}
