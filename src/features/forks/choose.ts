import { cutText, keptLength, originalLength } from "./cut.ts"
import type { HistoryMessage, HistoryPart } from "./ports.ts"
import { addWeights, loadOf, type Meter, NO_WEIGHT, tokensOf, type Weight, weighMessage, weightOf } from "./tokens.ts"
import type { NewestMessages, Weighed } from "./weigh.ts"

/** Share of the limit that a single user message may fill. A longer message is shortened to this share. */
const ANCHOR_SHARE = 0.25
/**
 * Characters per token, assumed for a first guess of the length that fits. A text with more than `MOST_CHARS_PER_TOKEN`
 * is not counted whole.
 */
const USUAL_CHARS_PER_TOKEN = 4
const MOST_CHARS_PER_TOKEN = 20

/** The message that begins the history was shortened: `kept` of its `of` characters are left, in UTF-16 units. */
export type Shortened = { readonly kept: number; readonly of: number; readonly files: readonly string[] }

export type MessageSelection = {
  readonly kept: readonly Weighed[]
  /** Messages before this index are dropped unless they are in `kept`. */
  readonly from: number
  readonly shortened?: Shortened
}

/**
 * Selects the newest messages that fit into `limit` tokens. They begin at the history's start, at a compaction's kept
 * tail, or with a user's message; where a turn must be split, its user message is put first.
 */
export async function selectMessages(
  messages: readonly HistoryMessage[],
  { newest, meter }: NewestMessages,
  limit: number,
): Promise<MessageSelection> {
  const offset = messages.length - newest.length
  const opener = messages.findLastIndex(({ opens }) => opens)
  const keep = (from: number): MessageSelection => ({ kept: newest.slice(from - offset), from })
  const firstThatFits = (taken: Weight) => offset + countTooMany(newest, limit, taken)
  let from = firstThatFits(NO_WEIGHT)
  if (from === 0 || from <= opener) return keep(from)
  for (;;) {
    if (messages[from]?.role === "user") return keep(from)
    const anchorAt = userBefore(messages, from)
    const anchor = messages[anchorAt]
    if (!anchor) return keep(nextUser(messages, from))
    const { weighed, shortened } = await shorten(anchor, meter, limit * ANCHOR_SHARE)
    from = Math.max(from, firstThatFits(weighed.weight))
    if (messages[from]?.role === "user" || userBefore(messages, from) !== anchorAt) continue
    if (tokensOf(weighed.weight) > limit) return keep(messages.length)
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
function countTooMany(newest: readonly Weighed[], limit: number, taken: Weight): number {
  let total = taken
  for (let index = newest.length - 1; index >= 0; index--) {
    total = addWeights(total, newest[index]?.weight ?? NO_WEIGHT)
    if (tokensOf(total) > limit) return index + 1
  }
  return 0
}

type Opening = { readonly weighed: Weighed; readonly shortened?: Shortened }

/** Drops a message's files and cuts its texts if the message exceeds `tokens`. */
async function shorten(message: HistoryMessage, meter: Meter, tokens: number): Promise<Opening> {
  const load = loadOf(message)
  if (load.text.length <= tokens * MOST_CHARS_PER_TOKEN) {
    const [count = 0] = await meter([load.text])
    const weight = weightOf(load, count)
    if (tokensOf(weight) <= tokens) return { weighed: { message, weight } }
  }
  const texts = message.parts.filter((part) => part.type === "text")
  let chars = Math.floor((tokens * USUAL_CHARS_PER_TOKEN) / Math.max(1, texts.length))
  for (;;) {
    const short = withTexts(message, chars)
    const weight = await weighMessage(short, meter)
    if (chars === 0 || tokensOf(weight) <= tokens)
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
