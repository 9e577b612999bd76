import { cutResults } from "./cut.ts"
import type { HistoryMessage } from "./ports.ts"
import {
  addWeights,
  estimating,
  type Load,
  loadOf,
  type Meter,
  NO_WEIGHT,
  tokensOf,
  type Weight,
  weightOf,
  type Yield,
} from "./tokens.ts"

/** Characters passed to the meter at once. */
const BATCH_CHARS = 200_000

export type Weighed = { readonly message: HistoryMessage; readonly weight: Weight }

export type WeighingPorts = { readonly meter: Meter; readonly pause: Yield }

export type NewestMessages = {
  /** Newest messages, cut and weighed, oldest first: all that can fit, and one more message if the history has one. */
  readonly newest: readonly Weighed[]
  /** Meter for added texts. */
  readonly meter: Meter
}

/**
 * Weighs the newest messages of a history, as far as they can fit into `maxTokens`. If all fit by their bytes, their
 * tokens are estimated, not counted.
 */
export async function weighNewest(
  messages: readonly HistoryMessage[],
  { maxToolResultChars, maxTokens }: { readonly maxToolResultChars: number; readonly maxTokens: number },
  { meter, pause }: WeighingPorts,
): Promise<NewestMessages> {
  const walk = newestFirst(messages, maxToolResultChars)
  const looked: Loaded[] = []
  for (let bytes = 0; bytes <= maxTokens; ) {
    const { value, done } = walk.next()
    if (done) return guessed(looked, pause)
    looked.push(value)
    bytes += value.load.bytes
    await pause()
  }
  const newest: Weighed[] = []
  let total = NO_WEIGHT
  while (tokensOf(total) <= maxTokens) {
    const batch = await nextBatch(looked, walk, pause)
    if (batch.length === 0) break
    for (const weighed of await weighBatch(batch, meter)) {
      newest.push(weighed)
      total = addWeights(total, weighed.weight)
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

async function guessed(looked: readonly Loaded[], pause: Yield): Promise<NewestMessages> {
  const meter = estimating(pause)
  return { newest: (await weighBatch(looked, meter)).reverse(), meter }
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
  return batch.map(({ message, load }, index) => ({ message, weight: weightOf(load, counts[index] ?? 0) }))
}
