import { head } from "../../lib/text.ts"
import type { HistoryMessage, HistoryPart, ToolHistoryPart } from "./ports.ts"
import {
  estimate,
  type Load,
  loadOf,
  type Meter,
  sum,
  weighMessage,
  weighText,
  wholeTokens,
  type Yield,
} from "./tokens.ts"

/** Lengths in UTF-16 units, limits in tokens. */
export type TrimLimits = { readonly maxToolResultChars: number; readonly maxTokens: number }

export type Trimmed = {
  /** Kept messages, oldest first. */
  readonly kept: readonly HistoryMessage[]
  /** Dropped messages, oldest first. */
  readonly dropped: readonly HistoryMessage[]
  /** Shortened results among the kept messages. */
  readonly cut: readonly CutResult[]
  /** Set where the first kept message had to be shortened. */
  readonly shortened?: Shortened
  /** Upper bound of the kept messages' tokens. */
  readonly tokens: number
  /** Weighs texts that are added to the history. */
  readonly meter: Meter
}

/**
 * Fits a history and the text of `beside` into `maxTokens`: cuts long results, then drops the oldest messages, but
 * never a call without its result. The time needed depends on the messages that may be kept, not on the whole history.
 */
export async function trim(
  messages: readonly HistoryMessage[],
  limits: TrimLimits,
  scales: WeighingPorts,
  beside: (trimmed: Trimmed) => Promise<number> = async () => 0,
): Promise<Trimmed> {
  const weighed = await weighNewest(messages, limits, scales)
  const { meter } = weighed
  for (let room = limits.maxTokens; ; ) {
    const { kept, from, shortened } = await selectMessages(messages, weighed, room)
    const keptIDs = new Set(kept.map(({ message }) => message.id))
    const trimmed: Trimmed = {
      kept: kept.map(({ message }) => message),
      dropped: messages.slice(0, from).filter(({ id }) => !keptIDs.has(id)),
      cut: cutsIn(
        messages,
        kept.map(({ message }) => message),
      ),
      shortened,
      tokens: wholeTokens(sum(kept.map(({ weight }) => weight))),
      meter,
    }
    const over = trimmed.tokens + (await beside(trimmed)) - limits.maxTokens
    if (over <= 0 || kept.length === 0) return trimmed
    room = Math.min(room, trimmed.tokens) - Math.ceil(over)
  }
}

/** Share of the limit that a single user message may fill. A longer message is shortened to this share. */
const ANCHOR_SHARE = 0.25
/**
 * Characters per token, assumed for a first guess of the length that fits. A text with more than `MOST_CHARS_PER_TOKEN`
 * is not counted whole.
 */
const USUAL_CHARS_PER_TOKEN = 4
const MOST_CHARS_PER_TOKEN = 20

/** The message that begins the history was shortened: `kept` of its `of` characters are left, in UTF-16 units. */
type Shortened = { readonly kept: number; readonly of: number; readonly files: readonly string[] }

type MessageSelection = {
  readonly kept: readonly Weighed[]
  /** Messages before this index are dropped unless they are in `kept`. */
  readonly from: number
  readonly shortened?: Shortened
}

/**
 * Selects the newest messages that fit into `limit` tokens. They begin at the history's start, at a compaction's kept
 * tail, or with a user's message; where a turn must be split, its user message is put first.
 */
async function selectMessages(
  messages: readonly HistoryMessage[],
  { newest, meter }: NewestMessages,
  limit: number,
): Promise<MessageSelection> {
  const offset = messages.length - newest.length
  const opener = messages.findLastIndex(({ opens }) => opens)
  const keep = (from: number): MessageSelection => ({ kept: newest.slice(from - offset), from })
  const firstThatFits = (taken: number) => offset + countTooMany(newest, limit, taken)
  let from = firstThatFits(0)
  if (from === 0 || from <= opener) return keep(from)
  for (;;) {
    if (messages[from]?.role === "user") return keep(from)
    const anchorAt = userBefore(messages, from)
    const anchor = messages[anchorAt]
    if (!anchor) return keep(nextUser(messages, from))
    const { weighed, shortened } = await shorten(anchor, meter, limit * ANCHOR_SHARE)
    from = Math.max(from, firstThatFits(weighed.weight))
    if (messages[from]?.role === "user" || userBefore(messages, from) !== anchorAt) continue
    if (wholeTokens(weighed.weight) > limit) return keep(messages.length)
    const { kept } = keep(from)
    return { kept: [weighed, ...kept], from, shortened }
  }
}

const userBefore = (messages: readonly HistoryMessage[], index: number): number =>
  messages.findLastIndex(({ role }, at) => at < index && role === "user")

function nextUser(messages: readonly HistoryMessage[], from: number): number {
  const next = messages.findIndex(({ role }, index) => index >= from && role === "user")
  return next < 0 ? messages.length : next
}

/** Number of oldest messages to drop so that the others fit beside `taken`. */
function countTooMany(newest: readonly Weighed[], limit: number, taken: number): number {
  let total = taken
  for (let index = newest.length - 1; index >= 0; index--) {
    total += newest[index]?.weight ?? 0
    if (wholeTokens(total) > limit) return index + 1
  }
  return 0
}

type Opening = { readonly weighed: Weighed; readonly shortened?: Shortened }

/** Drops a message's files and cuts its texts if the message exceeds `tokens`. */
async function shorten(message: HistoryMessage, meter: Meter, tokens: number): Promise<Opening> {
  const load = loadOf(message)
  if (load.text.length <= tokens * MOST_CHARS_PER_TOKEN) {
    const weight = load.flat + (await weighText(load.text, meter))
    if (wholeTokens(weight) <= tokens) return { weighed: { message, weight } }
  }
  const texts = message.parts.filter((part) => part.type === "text")
  let chars = Math.floor((tokens * USUAL_CHARS_PER_TOKEN) / Math.max(1, texts.length))
  for (;;) {
    const short = withTexts(message, chars)
    const weight = await weighMessage(short, meter)
    if (chars === 0 || wholeTokens(weight) <= tokens)
      return { weighed: { message: short, weight }, shortened: difference(message, short) }
    chars = Math.floor(chars / 2)
  }
}

const withTexts = (message: HistoryMessage, chars: number): HistoryMessage => ({
  ...message,
  parts: message.parts.flatMap((part): HistoryPart[] => {
    if (part.type === "file") return []
    return part.type === "text" ? [{ ...part, text: cutText(part.text, chars) }] : [part]
  }),
})

function difference(before: HistoryMessage, after: HistoryMessage): Shortened {
  const lengthOf = ({ parts }: HistoryMessage, length: (text: string) => number) =>
    parts.reduce((sum, part) => sum + (part.type === "text" ? length(part.text) : 0), 0)
  return {
    kept: lengthOf(after, keptLength),
    of: lengthOf(before, originalLength),
    files: before.parts.flatMap((part) => (part.type === "file" ? [part.name] : [])),
  }
}

/** Characters passed to the meter at once. */
const BATCH_CHARS = 200_000

type Weighed = { readonly message: HistoryMessage; readonly weight: number }

export type WeighingPorts = { readonly meter: Meter; readonly pause: Yield }

type NewestMessages = {
  /** Newest messages, cut and weighed, oldest first: all that can fit, and one more message if the history has one. */
  readonly newest: readonly Weighed[]
  /** Meter for added texts. */
  readonly meter: Meter
}

/**
 * Weighs the newest messages of a history, as far as they can fit into `maxTokens`. If all fit by their bytes, their
 * tokens are estimated, not counted.
 */
async function weighNewest(
  messages: readonly HistoryMessage[],
  { maxToolResultChars, maxTokens }: TrimLimits,
  { meter, pause }: WeighingPorts,
): Promise<NewestMessages> {
  const walk = newestFirst(messages, maxToolResultChars)
  const looked: Loaded[] = []
  for (let bytes = 0; bytes <= maxTokens; ) {
    const { value, done } = walk.next()
    if (done) return { newest: (await weighBatch(looked, estimate)).reverse(), meter: estimate }
    looked.push(value)
    bytes += value.load.bytes
    await pause()
  }
  const newest: Weighed[] = []
  let total = 0
  while (wholeTokens(total) <= maxTokens) {
    const batch = await nextBatch(looked, walk, pause)
    if (batch.length === 0) break
    for (const weighed of await weighBatch(batch, meter)) {
      newest.push(weighed)
      total += weighed.weight
    }
  }
  return { newest: newest.reverse(), meter }
}

type Loaded = { readonly message: HistoryMessage; readonly load: Load }

function* newestFirst(messages: readonly HistoryMessage[], most: number): Generator<Loaded, void> {
  for (let at = messages.length - 1; at >= 0; at--) {
    const message = cutResults(messages[at] as HistoryMessage, most)
    yield { message, load: loadOf(message) }
  }
}

/** Takes the next messages to weigh: first those that are loaded already, then the rest. */
async function nextBatch(looked: Loaded[], walk: Generator<Loaded, void>, pause: Yield): Promise<readonly Loaded[]> {
  const batch: Loaded[] = []
  for (let chars = 0; chars < BATCH_CHARS; ) {
    const next = looked.shift() ?? walk.next().value
    if (!next) break
    batch.push(next)
    chars += next.load.text.length
    await pause()
  }
  return batch
}

async function weighBatch(batch: readonly Loaded[], meter: Meter): Promise<Weighed[]> {
  const counts = await meter(batch.map(({ load }) => load.text))
  return batch.map(({ message, load }, index) => ({ message, weight: load.flat + (counts[index] ?? 0) }))
}

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
function cutResults(message: HistoryMessage, most: number): HistoryMessage {
  const isLong = (part: ToolHistoryPart) => part.result.length > limitOf(part.tool, most)
  if (!message.parts.some((part) => part.type === "tool" && isLong(part))) return message
  const parts = message.parts.map((part) =>
    part.type === "tool" && isLong(part) ? { ...part, result: cutText(part.result, limitOf(part.tool, most)) } : part,
  )
  return { ...message, parts }
}

const NOTE = /\n\[Cut: (\d{1,15}) characters originally, the first (\d{1,15}) kept\.\]$/

/** Lengths of a text before the plugin first cut it, and now. A note is believed only where both can be right. */
function lengthsOf(text: string): { readonly original: number; readonly kept: number } {
  const found = NOTE.exec(text)
  const [original, kept] = (found ?? []).slice(1).map(Number)
  return found && original !== undefined && kept === found.index && original > kept
    ? { original, kept }
    : { original: text.length, kept: text.length }
}

/** Length of a text before the plugin first cut it. */
export const originalLength = (text: string): number => lengthsOf(text).original

/** Length of the original text that is left. */
const keptLength = (text: string): number => lengthsOf(text).kept

/** Beginning of a text and a note of its original length, together at most `most` characters if possible. */
export function cutText(text: string, most: number): string {
  if (text.length <= most) return text
  const { original, kept } = lengthsOf(text)
  const room = Math.max(0, most - note(original, text.length).length)
  const beginning = head(text.slice(0, kept), room)
  return beginning + note(original, beginning.length)
}

const note = (original: number, kept: number): string =>
  `\n[Cut: ${original} characters originally, the first ${kept} kept.]`

/** Results that are shorter in `kept` than in `before`. */
function cutsIn(before: readonly HistoryMessage[], kept: readonly HistoryMessage[]): readonly CutResult[] {
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
