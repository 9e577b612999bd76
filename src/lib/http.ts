/**
 * Sends a request to this machine without the environment's proxy, which OpenCode's Bun uses even for loopback
 * addresses. Bun connects directly if the request names its own address as the proxy.
 */
export function pastProxy(request: Request): Request {
  const { protocol, origin } = new URL(request.url)
  const isProxied = Boolean(process.env.http_proxy || process.env.HTTP_PROXY)
  return isProxied && protocol === "http:" ? Object.assign(request, { proxy: origin }) : request
}

export const fetchDirectly = (url: string | URL, init?: RequestInit): Promise<Response> =>
  fetch(pastProxy(new Request(url, init)))

export type StreamEvent = { readonly event: string; readonly data: string }

/**
 * A field of an event stream. `s` lets `.` match U+2028, which JSON does not escape and which does not end a line here.
 */
const FIELD = /^(\w+): ?(.*)$/s

/**
 * Makes a parser that takes a stream in chunks and returns the events that each chunk completes. Events longer than
 * `most` characters are dropped.
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
      // The last character may be the first half of a separator, so it is kept.
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
