import type { HostEvent } from "../../core/ports.ts"
import type { Answer, Refusal } from "../../core/refusal.ts"

/** What an event tells of a refusal, with the `answer` where that was read; undefined where it tells of none. */
export function refusalIn(event: HostEvent, answer: () => Answer | undefined): Refusal | undefined {
  if (event.type === "active") return event.activity.type === "retry" ? { ...event.activity, ...answer() } : undefined
  if (event.type !== "error" || event.error.aborted) return undefined
  return { message: event.error.message, ...event.refusal }
}
