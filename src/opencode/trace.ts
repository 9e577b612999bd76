import type { LogFields } from "../core/ports.ts"

type Fetch = (request: Request) => Promise<Response>

/** Writing a line of the log is a call, too: it would be told by another line, without end. */
const OWN_LOG = "/log"

/**
 * The same transport, with a line for each call: method, path, status and milliseconds. Neither bodies nor queries are
 * told, so no prompt, no answer and no secret is. `tell` must not throw.
 */
export function traced(fetch: Fetch, tell: (fields: LogFields) => void): Fetch {
  return async (request) => {
    const { pathname } = new URL(request.url)
    if (pathname === OWN_LOG) return fetch(request)
    const begin = performance.now()
    const done = (status: number | string) =>
      tell({ method: request.method, path: pathname, status, ms: Math.round(performance.now() - begin) })
    try {
      const response = await fetch(request)
      done(response.status)
      return response
    } catch (error) {
      done("no answer")
      throw error
    }
  }
}
