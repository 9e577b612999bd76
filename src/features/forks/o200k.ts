import { countTokens } from "gpt-tokenizer/encoding/o200k_base"

/** Longest piece that is counted at once, in UTF-16 units: the tokenizer's cost grows with the square of a word. */
const PIECE_CHARS = 2000

/** A text that spells a special token is a text. */
const AS_TEXT = { disallowedSpecial: new Set<string>() }

/**
 * How many o200k tokens a text is. It is counted in pieces that end before white space, where words begin, and only
 * within an unbroken run anywhere: that may cost one token for each 2,000 characters of the run.
 */
export function countO200k(text: string): number {
  let tokens = 0
  for (let at = 0; at < text.length; ) {
    const end = endOfPiece(text, at)
    tokens += countTokens(text.slice(at, end), AS_TEXT)
    at = end
  }
  return tokens
}

const WHITE = /\s/

function endOfPiece(text: string, start: number): number {
  const most = start + PIECE_CHARS
  if (most >= text.length) return text.length
  for (let at = most; at > start + PIECE_CHARS / 2; at--)
    if (WHITE.test(text.charAt(at)) && !WHITE.test(text.charAt(at - 1))) return at
  return isHighSurrogate(text.charCodeAt(most - 1)) ? most - 1 : most
}

const isHighSurrogate = (code: number): boolean => code >= 0xd800 && code <= 0xdbff
