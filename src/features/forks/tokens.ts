import type { HistoryMessage, HistoryPart, Media } from "./ports.ts"

/**
 * Measures texts in tokens by a meter: o200k in a worker thread, else an estimate. Other models count up to a third
 * more.
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

export const sum = (counts: readonly number[]): number => counts.reduce((total, count) => total + count, 0)

/** A count in whole tokens. */
export const wholeTokens = (count: number): number => Math.ceil(count - ROUNDING)

const BYTES_PER_TOKEN = 3

/**
 * Estimates tokens from the bytes alone: some 1.4 times o200k's count for code, up to 2.7 times for prose, and down to
 * 0.45 times for JSON, base64 and the like.
 */
export const guessText = (text: string): number => Math.ceil(byteLength(text) / BYTES_PER_TOKEN)

export const estimate: Meter = async (texts) => texts.map(guessText)

export const byteLength = (text: string): number => Buffer.byteLength(text)

export const weighText = async (text: string, meter: Meter): Promise<number> => sum(await meter([text]))

/**
 * Content of a message: its joined texts, and a fixed weight for all other parts. `bytes`: upper bound of its tokens.
 */
export type Load = { readonly text: string; readonly flat: number; readonly bytes: number }

export function loadOf(message: HistoryMessage): Load {
  const loads = message.parts.map(partLoad)
  const text = loads.flatMap(({ texts }) => texts).join("\n")
  const flat = loads.reduce((sum, load) => sum + load.flat, MESSAGE_TOKENS)
  return { text, flat, bytes: byteLength(text) + flat }
}

export async function weighMessage(message: HistoryMessage, meter: Meter): Promise<number> {
  const { text, flat } = loadOf(message)
  return flat + (await weighText(text, meter))
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
