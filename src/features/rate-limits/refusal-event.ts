import type { OpencodeEvent } from "../../core/ports.ts"
import type { Refusal } from "../../core/refusal.ts"
import type { ProviderAnswer } from "./opencode/answers.ts"

/** Refusal in an event, completed from `answer` if that was read; undefined for other events. */
export function refusalIn(event: OpencodeEvent, answer: () => ProviderAnswer | undefined): Refusal | undefined {
  if (event.type === "active") return event.activity.type === "retry" ? { ...event.activity, ...answer() } : undefined
  if (event.type !== "error" || event.error.aborted) return undefined
  return { message: event.error.message, ...event.refusal }
}
