/** Whether all words of a filter occur in the texts. `#5` matches that number, not `#50`. */
export function matches(filter: string, texts: readonly (string | undefined)[]): boolean {
  const hay = texts.join("\n").toLowerCase()
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every((word) => (/^#\d+$/.test(word) ? new RegExp(`${word}(?!\\d)`).test(hay) : hay.includes(word)))
}

/** First match of a filter's first word, with the text around it. */
export type Hit = { readonly before: string; readonly hit: string; readonly after: string }

const AROUND_CHARS = 80

/** The match to show; undefined where a word of the filter is missing in the text. */
export function hitIn(filter: string, text: string): Hit | undefined {
  if (!matches(filter, [text])) return undefined
  const [word = ""] = filter.trim().toLowerCase().split(/\s+/)
  const at = text.toLowerCase().indexOf(word)
  const end = at + word.length
  const [from, to] = [at - AROUND_CHARS, end + AROUND_CHARS]
  // Spaces next to the match are kept, since the parts are shown in one line.
  const line = (part: string) => part.replace(/\s+/g, " ")
  return {
    before: `${from > 0 ? "…" : ""}${line(text.slice(Math.max(0, from), at))}`,
    hit: line(text.slice(at, end)),
    after: `${line(text.slice(end, to))}${to < text.length ? "…" : ""}`,
  }
}
