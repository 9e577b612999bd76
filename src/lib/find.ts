/** Whether all words of a filter occur in the texts. `#5` finds that number, not `#50`. */
export function matches(filter: string, texts: readonly (string | undefined)[]): boolean {
  const hay = texts.join("\n").toLowerCase()
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every((word) => (/^#\d+$/.test(word) ? new RegExp(`${word}(?!\\d)`).test(hay) : hay.includes(word)))
}

/** A place in a text where a filter's first word stands, with the words around it. */
export type Hit = { readonly before: string; readonly hit: string; readonly after: string }

const AROUND_CHARS = 80

/** Undefined where not all words of the filter occur in the text. */
export function hitIn(filter: string, text: string): Hit | undefined {
  if (!matches(filter, [text])) return undefined
  const [word = ""] = filter.trim().toLowerCase().split(/\s+/)
  const at = text.toLowerCase().indexOf(word)
  const end = at + word.length
  const [from, to] = [at - AROUND_CHARS, end + AROUND_CHARS]
  // The spaces beside the word stay: they are in a line with it.
  const line = (part: string) => part.replace(/\s+/g, " ")
  return {
    before: `${from > 0 ? "…" : ""}${line(text.slice(Math.max(0, from), at))}`,
    hit: line(text.slice(at, end)),
    after: `${line(text.slice(end, to))}${to < text.length ? "…" : ""}`,
  }
}
