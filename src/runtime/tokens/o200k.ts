import { countTokens } from "gpt-tokenizer/encoding/o200k_base"

/**
 * Longest piece counted at once, in UTF-16 units, because the tokenizer's time grows with the square of a word's
 * length.
 */
const PIECE_CHARS = 2000

/** Counts special tokens as plain text. */
const AS_TEXT = { disallowedSpecial: new Set<string>() }

/**
 * Number of tokens in the encoding o200k. A text is split before white space, or anywhere within long words, where each
 * cut may add one token for some 2,000 characters.
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
