import { spentOf } from "../lib/money.ts"
import { count, formatInteger } from "../lib/text.ts"
import { billedTokens, type Figures } from "./task.ts"

/** Limits on usage; 0 for none. */
export type UsageLimits = { readonly tokens: number; readonly cost: number }

const ANY: UsageLimits = Object.freeze({ tokens: 0, cost: 0 })

/**
 * `12,345 tokens, $0.0123`, and `at least` before it where that is all that is known; `12,345 of 50,000 tokens,
 * $0.0123 of $0.50` where there are limits; `12,345 tokens + 16,403 from the cache, $0.0123` where a cache was read.
 * Empty where nothing is known of the usage: at least 0 says nothing.
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
