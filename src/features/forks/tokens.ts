import { byteLength, estimateTokens } from "./estimate.ts"
import type { HistoryMessage, HistoryPart, Media } from "./ports.ts"

/**
 * What texts weigh, in tokens. Three witnesses, each asked only where the one before cannot decide:
 *
 * 1. The UTF-8 bytes bound a text from above: a token is at least one byte. What fits by its bytes fits.
 * 2. A meter counts: o200k's tokens, in a thread of its own. Where there is none, `estimateTokens` guesses, linear and
 *    erring upwards.
 * 3. The provider's own count of the same history scales the meter's, where there is a believable one (`calibration.ts`).
 */

/** What a message, and a tool call in it, cost beside their texts. */
const MESSAGE_TOKENS = 6
const CALL_TOKENS = 16
const IMAGE_TOKENS = 2000
/** Documents are read as text and as images of their pages. */
const BYTES_PER_DOCUMENT_TOKEN = 20
/** What rounding may add to a sum that just fitted. */
const ROUNDING = 1e-6

/** How many tokens each text is, before the provider's count scales it. Must not reject. */
export type Meter = (texts: readonly string[]) => Promise<readonly number[]>

/** Awaited between two steps of a long work, so that others can run. */
export type Pause = () => Promise<void> | void

/** A weight by its bytes and by a meter. */
export type Weight = { readonly bytes: number; readonly count: number }

export const NO_WEIGHT: Weight = { bytes: 0, count: 0 }

export const addWeights = (a: Weight, b: Weight): Weight => ({ bytes: a.bytes + b.bytes, count: a.count + b.count })

export const sumWeights = (weights: Iterable<Weight>): Weight => {
  let sum = NO_WEIGHT
  for (const weight of weights) sum = addWeights(sum, weight)
  return sum
}

/** Tokens that something weighs at most. `factor` is the calibration. */
export const tokensOf = (weight: Weight, factor: number): number =>
  Math.ceil(Math.min(weight.bytes, weight.count * factor) - ROUNDING)

/** As much as is estimated at a time: some 2 ms. */
const SLICE_CHARS = 100_000

/** The estimate as a meter; `pause` is awaited after every slice of a text, so that the caller can let others run. */
export const estimating =
  (pause: Pause = () => {}): Meter =>
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

/** What there is to weigh in a message: its texts as one, and what the rest of it weighs. */
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

/** Arguments of a call as the model sees them. */
function asText(value: unknown): string {
  if (typeof value === "string") return value
  return JSON.stringify(value) ?? ""
}
