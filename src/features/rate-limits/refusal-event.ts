import type { Refusal } from "../../core/pause.ts"
import type { OpencodeEvent } from "../../core/ports.ts"

/** Refusal in an event; undefined for other events. */
export function refusalIn(event: OpencodeEvent): Refusal | undefined {
  if (event.type === "active") return event.activity.type === "retry" ? event.activity : undefined
  if (event.type !== "error" || event.error.aborted) return undefined
  return { message: event.error.message, ...event.refusal }
}
