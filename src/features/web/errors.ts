import type { Context } from "hono"
import type { ContentfulStatusCode } from "hono/utils/http-status"
import { CallError } from "../../core/errors.ts"
import { OpencodeError } from "../../core/ports.ts"
import type { BoardError, BoardErrorCode } from "../board/service.ts"
import type { Log } from "./ports.ts"

/** HTTP error. The text is for the reader and never repeats input. */
export class WebError extends Error {
  override readonly name = "WebError"
  readonly status: ContentfulStatusCode
  constructor(status: ContentfulStatusCode, message: string) {
    super(message)
    this.status = status
  }
}

/** HTTP status of each board error. */
const BOARD_STATUS: Readonly<Record<BoardErrorCode, ContentfulStatusCode>> = {
  invalid: 400,
  "not found": 404,
  conflict: 409,
  unavailable: 503,
}

/** Converts errors of routes into `{"error": "…"}` with a status. */
export function errorHandler(log: Log) {
  return (error: Error, context: Context): Response => {
    const { status, message } = told(error, log)
    return context.json({ error: message }, status)
  }
}

function told(error: Error, log: Log): { status: ContentfulStatusCode; message: string } {
  if (error instanceof WebError) return error
  // Compared by name: another copy of the plugin in this process may have thrown it.
  if (error.name === "BoardError") return { status: BOARD_STATUS[(error as BoardError).code], message: error.message }
  if (error instanceof CallError) return { status: 409, message: error.message }
  if (error instanceof OpencodeError) return { status: 502, message: `OpenCode did not do its part: ${error.message}` }
  log("error", "a request of the page failed", { error: error.message })
  return { status: 500, message: "That failed unexpectedly; OpenCode's log says why." }
}

export const notFound = (context: Context): Response => context.json({ error: "There is nothing here." }, 404)
