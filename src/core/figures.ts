import { billedTokens, type Figures } from "./task.ts"
import { count } from "./text.ts"

/** `12,345 tokens, $0.0123`, and `at least` before it where that is all that is known. */
export const usageText = ({ usage }: Pick<Figures, "usage">): string =>
  `${usage.atLeast ? "at least " : ""}${count(billedTokens(usage), "token")}, $${usage.cost.toFixed(4)}`

/** `2 tool calls, 12,345 tokens, $0.0123`. */
export const figuresText = (figures: Figures): string =>
  `${count(figures.toolCalls, "tool call")}, ${usageText(figures)}`

/** For the notification: of a task that was resumed, the last run apart from the whole. */
export const figuresLine = (whole: Figures, thisRun: Figures, resumed: boolean): string =>
  resumed ? `This run: ${figuresText(thisRun)}; in all: ${figuresText(whole)}.` : `Used: ${figuresText(whole)}.`
