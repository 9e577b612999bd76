import type { LogFields } from "../core/ports.ts"

type Fetch = (request: Request) => Promise<Response>

/** Route for log lines: tracing it would log without end. */
const OWN_LOG = "/log"

/**
 * Logs each call with method, path, status and milliseconds. Bodies and queries are left out, so that no prompt or
 * secret is logged; `tell` must not throw.
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
