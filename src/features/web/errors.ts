import type { Context } from "hono"
import type { ContentfulStatusCode } from "hono/utils/http-status"
import { CallError } from "../../core/errors.ts"
import { OpencodeError } from "../../core/ports.ts"
import type { WebPart } from "./part.ts"
import type { Log } from "./ports.ts"

/** Error of a route with its HTTP status. The text is for the reader and never repeats input. */
export class WebError extends Error {
  override readonly name = "WebError"
  readonly status: ContentfulStatusCode
  constructor(status: ContentfulStatusCode, message: string) {
    super(message)
    this.status = status
  }
}

/** Converts an error of a route into the answer `{"error": "…"}` with an HTTP status. */
export function errorHandler(log: Log, parts: readonly WebPart[]) {
  return (error: Error, context: Context): Response => {
    const { status, message } = errorResponse(error, log, parts)
    return context.json({ error: message }, status)
  }
}

function errorResponse(
  error: Error,
  log: Log,
  parts: readonly WebPart[],
): { status: ContentfulStatusCode; message: string } {
  if (error instanceof WebError) return error
  const own = parts.flatMap((part) => part.status(error) ?? [])[0]
  if (own) return { status: own, message: error.message }
  if (error instanceof CallError) return { status: 409, message: error.message }
  if (error instanceof OpencodeError) return { status: 502, message: `OpenCode did not do its part: ${error.message}` }
  log("error", "a request of the page failed", { error: error.message })
  return { status: 500, message: "That failed unexpectedly; OpenCode's log says why." }
}

export const notFound = (context: Context): Response => context.json({ error: "There is nothing here." }, 404)
