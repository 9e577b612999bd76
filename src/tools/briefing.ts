import type { Options } from "../options/options.ts"

/** A pure JSON answer has no room for assumptions and line numbers. */
const briefing = (inJSON: boolean): string =>
  `You work in the background for another agent, which wrote your task. Nobody follows along: a call that asks the user waits for minutes, and the user may be away. So decide for yourself${inJSON ? "" : ", and say what you assumed"}. Unless your task names a place of its own, you work in the user's files, and others may be working in them too. Your last message is your whole report; the other agent reads nothing else of yours. Answer in the language in which you are asked.${inJSON ? "" : " Be concise, and name files with line numbers (path:line)."}`

/** System prompt text for a fresh agent; undefined for none. */
export const briefingOf = ({ childPrompt }: Pick<Options, "childPrompt">, inJSON = false): string | undefined =>
  typeof childPrompt === "string" ? childPrompt : childPrompt ? briefing(inJSON) : undefined
