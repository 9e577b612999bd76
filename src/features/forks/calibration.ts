import type { Model } from "../../core/task.ts"
import type { HistoryMessage } from "./ports.ts"
import { type Load, loadOf, type Meter, sumWeights, weightOf, type Yield } from "./tokens.ts"

/**
 * Bounds of a credible ratio. A ratio outside them compares different texts, for example after pruning, and is ignored.
 */
const LEAST_FACTOR = 0.5
const MOST_FACTOR = 3
/** Amount of recent history compared with the provider's counts, in bytes and tokens. */
const ENOUGH_BYTES = 100_000
const LEAST_COUNT = 2000
const ROUNDING = 1e-6

/**
 * Returns the provider's token count divided by the meter's, measured between two requests of this history. System
 * prompt and tools cancel out; without two credible counts the factor is 1.
 */
export async function calibrate(
  messages: readonly HistoryMessage[],
  model: Model | undefined,
  meter: Meter,
  pause: Yield,
): Promise<number> {
  const countOf = ({ counted }: HistoryMessage): number | undefined =>
    model && counted?.model.provider === model.provider && counted.model.id === model.id ? counted.tokens : undefined
  const last = messages.findLastIndex((message) => countOf(message) !== undefined)
  const between: Load[] = []
  let first = last
  let taken = 0
  for (let at = last - 1, bytes = 0; at >= 0 && bytes < ENOUGH_BYTES; at--) {
    const message = messages[at] as HistoryMessage
    const load = loadOf(message)
    between.push(load)
    bytes += load.bytes
    if (countOf(message) !== undefined) {
      first = at
      taken = between.length
    }
    await pause()
  }
  if (first === last) return 1
  const loads = between.slice(0, taken)
  const counts = await meter(loads.map(({ text }) => text))
  const { count } = sumWeights(loads.map((load, index) => weightOf(load, counts[index] ?? 0)))
  const counted = (countOf(messages[last] as HistoryMessage) ?? 0) - (countOf(messages[first] as HistoryMessage) ?? 0)
  const factor = counted / count
  return count < LEAST_COUNT || factor < LEAST_FACTOR - ROUNDING || factor > MOST_FACTOR + ROUNDING ? 1 : factor
}
