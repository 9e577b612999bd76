export type StreamEvent = { readonly event: string; readonly data: string }

/** Matches across U+2028, which JSON leaves in texts and which does not end a line of a stream. */
const FIELD = /^(\w+): ?(.*)$/s

/**
 * Incremental parser: each call returns the events completed by the chunk. Events longer than `most` characters are
 * dropped.
 */
export function eventReader(most = Number.POSITIVE_INFINITY): (chunk: string) => StreamEvent[] {
  let rest = ""
  let isTooLong = false
  return (chunk) => {
    const blocks = (rest + chunk).split("\n\n")
    rest = blocks.pop() ?? ""
    const events = blocks.slice(isTooLong ? 1 : 0).map(parse)
    if (blocks.length > 0) isTooLong = false
    if (rest.length > most) {
      // The last character may be half of the separator.
      rest = rest.slice(-1)
      isTooLong = true
    }
    return events
  }
}

function parse(block: string): StreamEvent {
  const fields = block.split("\n").map((line) => FIELD.exec(line))
  const all = (name: string) => fields.flatMap((field) => (field?.[1] === name ? (field[2] ?? "") : []))
  return { event: all("event")[0] ?? "message", data: all("data").join("\n") }
}
