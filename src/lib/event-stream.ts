/** One event of a stream. */
export type StreamEvent = { readonly event: string; readonly data: string }

/** Up to the line's end, which for a stream is no U+2028: JSON leaves that in texts as it is. */
const FIELD = /^(\w+): ?(.*)$/s

/**
 * Reads an event stream piece by piece: each call returns the events that are complete by then. An event of which more
 * than `most` characters have come without its end is left out.
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
      // Its last character may be half of its end.
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
