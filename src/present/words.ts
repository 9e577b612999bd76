import { billedTokens, endedUnanswered, type Figures, type Phase, type Task } from "../core/task.ts"
import { spentOf, spentShort } from "../lib/format.ts"
import { count, formatInteger, oneLine, short } from "../lib/text.ts"

/** Words and marks for the states of a task. */

/** `of`: model, place or agent that the slot belongs to, if not to the session. */
export const slotText = (of: string | undefined): string => `a free slot${of === undefined ? "" : ` of ${oneLine(of)}`}`

/** The phase in words that say what a task waits for. */
export const phaseText = (phase: Phase): string => (phase === "queued" ? `queued for ${slotText(undefined)}` : phase)

/** Example: `queued for a free slot (place 2)`. A group has no place in the queue: its members have. */
export const queueText = (phase: Phase, place: number | undefined): string =>
  `${phaseText(phase)}${place === undefined ? "" : ` (place ${place})`}`

/** Whether the task waits for a free slot. */
export const isInQueue = (phase: Phase | undefined): boolean => phase?.startsWith("queued") === true

/** Phase of an ended remote task until its changes are here. */
export const FETCHING_WORK = "fetching its work"

/** Example: `attempt 3: overloaded`. */
export const attemptText = ({ attempt, message }: { readonly attempt: number; readonly message: string }): string =>
  `attempt ${attempt}: ${oneLine(message)}`

/** Marks of tasks that have not ended. */
export const MARKS = { working: "●", waiting: "?", queued: "○" } as const

/** How a run ended. `unanswered`: its last message holds no text; `refused`: it stopped at a refused question. */
export type End = "completed" | "unanswered" | "error" | "cancelled" | "refused"

/** How an ended task is said and marked for a user. A model reads the status itself, by which it may list tasks. */
export const ENDS: Readonly<Record<End, { readonly text: string; readonly mark: string }>> = {
  completed: { text: "completed", mark: "✓" },
  unanswered: { text: "ended without an answer", mark: "⊖" },
  error: { text: "failed", mark: "✗" },
  cancelled: { text: "cancelled", mark: "⊘" },
  refused: { text: "stopped at a refusal", mark: "⊖" },
}

/** End of an ended task. */
export function endOf(task: Task): End {
  const { status, outcome } = task
  if (outcome?.reason?.code === "refused") return "refused"
  if (endedUnanswered(task)) return "unanswered"
  return status === "completed" || status === "error" ? status : "cancelled"
}

/** Figures of tasks: in sentences for models, with "at least" where more may have been used, and in rows of screens. */

/** Limits on usage; 0 for none. */
export type UsageLimits = { readonly tokens: number; readonly cost: number }

const ANY: UsageLimits = Object.freeze({ tokens: 0, cost: 0 })

/**
 * Examples: `12,345 tokens, $0.0123`, with `at least` before it where more may have been used; `12,345 of 50,000
 * tokens, $0.0123 of $0.50` where there are limits; `12,345 tokens + 16,403 from the cache, $0.0123` where a cache was
 * read. Empty where nothing is known of the usage: at least 0 says nothing.
 */
export function usageText({ usage }: Pick<Figures, "usage">, { tokens, cost }: UsageLimits = ANY): string {
  const used = billedTokens(usage)
  if (usage.atLeast && used + usage.cacheRead + usage.cost + tokens + cost === 0) return ""
  const counted = tokens > 0 ? `${formatInteger(used)} of ${count(tokens, "token")}` : count(used, "token")
  const cached = usage.cacheRead > 0 ? ` + ${formatInteger(usage.cacheRead)} from the cache` : ""
  return `${usage.atLeast ? "at least " : ""}${counted}${cached}, ${spentOf(usage.cost, cost)}`
}

/** Example: `2 tool calls, 12,345 tokens, $0.0123`. */
export const figuresText = (figures: Figures): string =>
  [count(figures.toolCalls, "tool call"), usageText(figures)].filter(Boolean).join(", ")

/** Figures for the notification; a resumed task shows its last run apart from the total. */
export const figuresLine = (whole: Figures, thisRun: Figures, resumed: boolean): string =>
  resumed ? `This run: ${figuresText(thisRun)}; in all: ${figuresText(whole)}.` : `Used: ${figuresText(whole)}.`

/** A figure in a row of a screen. `atLeast`: a part of it is unknown. */
const onScreen = (text: string, atLeast: boolean): string => `${atLeast ? "≥ " : ""}${text}`

/** Example: `≥ $0.8800 of $5.00`; only the first amount where `allowed` is 0. */
export const costText = (cost: number, atLeast = false, allowed = 0): string =>
  onScreen(spentOf(cost, allowed), atLeast)

/** Spending of a day: `≥ $0.88 of $5.00`; only the first amount where `allowed` is 0. */
export const dayCostText = (cost: number, atLeast: boolean, allowed = 0): string =>
  onScreen(spentShort(cost, allowed), atLeast)

/** Example: `≥ 12.3K of 50.0K tokens + 16.4K from the cache`. `cached`: tokens that the provider's cache served. */
export function tokensText(tokens: number, cached: number, atLeast = false, allowed = 0, unit = " tokens"): string {
  const counted = `${short(tokens)}${allowed > 0 ? ` of ${short(allowed)}` : ""}${unit}`
  return onScreen(`${counted}${cached > 0 ? ` + ${short(cached)} from the cache` : ""}`, atLeast)
}
