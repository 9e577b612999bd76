import { type Shortened, selectMessages } from "./choose.ts"
import { type CutResult, cutsIn } from "./cut.ts"
import type { HistoryMessage } from "./ports.ts"
import { type Meter, sumWeights, tokensOf } from "./tokens.ts"
import { type WeighingPorts, weighNewest } from "./weigh.ts"

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
      tokens: tokensOf(sumWeights(kept.map(({ weight }) => weight))),
      meter,
    }
    const over = trimmed.tokens + (await beside(trimmed)) - limits.maxTokens
    if (over <= 0 || kept.length === 0) return trimmed
    room = Math.min(room, trimmed.tokens) - Math.ceil(over)
  }
}
