import { choose, type Shortened } from "./choose.ts"
import { type CutResult, cutsIn } from "./cut.ts"
import type { HistoryMessage } from "./ports.ts"
import { type Meter, sumWeights, tokensOf } from "./tokens.ts"
import { type Scales, weighNewest } from "./weigh.ts"

/** Lengths in UTF-16 units, as JavaScript counts characters; limits in tokens. */
export type TrimLimits = { readonly maxToolResultChars: number; readonly maxTokens: number }

export type Trimmed = {
  /** What is kept, oldest first. */
  readonly kept: readonly HistoryMessage[]
  /** What is left out, oldest first. */
  readonly dropped: readonly HistoryMessage[]
  /** The results that were cut among those kept. */
  readonly cut: readonly CutResult[]
  /** What had to be taken from the message that opens what is kept. */
  readonly shortened?: Shortened
  /** What is kept weighs this many tokens at most. */
  readonly tokens: number
  /** The calibration, and what weighed, for texts that are added to the history. */
  readonly factor: number
  readonly meter: Meter
}

/**
 * Makes a history fit: long results are cut, then the oldest messages go until the rest weighs, with what `beside` says
 * that stands beside it, at most `maxTokens`. Order stays; a call and its result are one part and never part; what is
 * left begins as `choose` says. The cost is of what may be kept, not of the whole history.
 */
export async function trim(
  messages: readonly HistoryMessage[],
  limits: TrimLimits,
  scales: Scales,
  beside: (trimmed: Trimmed) => Promise<number> = async () => 0,
): Promise<Trimmed> {
  const weighed = await weighNewest(messages, limits, scales)
  const { factor, meter } = weighed
  for (let room = limits.maxTokens; ; ) {
    const { kept, from, shortened } = await choose(messages, weighed, room)
    const keptIDs = new Set(kept.map(({ message }) => message.id))
    const trimmed: Trimmed = {
      kept: kept.map(({ message }) => message),
      dropped: messages.slice(0, from).filter(({ id }) => !keptIDs.has(id)),
      cut: cutsIn(
        messages,
        kept.map(({ message }) => message),
      ),
      shortened,
      tokens: tokensOf(sumWeights(kept.map(({ weight }) => weight)), factor),
      factor,
      meter,
    }
    const over = trimmed.tokens + (await beside(trimmed)) - limits.maxTokens
    if (over <= 0 || kept.length === 0) return trimmed
    room = Math.min(room, trimmed.tokens) - Math.ceil(over)
  }
}
