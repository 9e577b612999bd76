import { addUsage, billedTokens, NO_USAGE, type Usage } from "./task.ts"
import { count } from "./text.ts"

/** What work took. `atLeast`: a step was cut off and the host did not tell what it cost. */
export type Figures = { readonly toolCalls: number; readonly usage: Usage; readonly atLeast: boolean }

export const NO_FIGURES: Figures = Object.freeze({ toolCalls: 0, usage: NO_USAGE, atLeast: false })

export const addFigures = (a: Figures, b: Figures): Figures => ({
  toolCalls: a.toolCalls + b.toolCalls,
  usage: addUsage(a.usage, b.usage),
  atLeast: a.atLeast || b.atLeast,
})

/** `12,345 tokens, $0.0123`, and `at least` before it where that is all that is known. */
export const usageText = ({ usage, atLeast }: Omit<Figures, "toolCalls">): string =>
  `${atLeast ? "at least " : ""}${count(billedTokens(usage), "token")}, $${usage.cost.toFixed(4)}`

/** `2 tool calls, 12,345 tokens, $0.0123`. */
export const figuresText = (figures: Figures): string =>
  `${count(figures.toolCalls, "tool call")}, ${usageText(figures)}`

/** For the notification: of a task that was resumed, the last run apart from the whole. */
export const figuresLine = (whole: Figures, thisRun: Figures, resumed: boolean): string =>
  resumed ? `This run: ${figuresText(thisRun)}; in all: ${figuresText(whole)}.` : `Used: ${figuresText(whole)}.`
