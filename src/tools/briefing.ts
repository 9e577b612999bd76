import type { Options } from "../options.ts"

const BRIEFING =
  "You work in the background for another agent, which wrote your task. Nobody follows along: a question waits for minutes, for a user who may be away. So decide for yourself, and say what you assumed. Your last message is your whole report; the other agent reads nothing else of yours. Be concise, and name files with line numbers (path:line)."

/** What the system prompt of a fresh agent says beside the host's own; undefined for nothing. */
export const briefingOf = ({ childPrompt }: Pick<Options, "childPrompt">): string | undefined =>
  typeof childPrompt === "string" ? childPrompt : childPrompt ? BRIEFING : undefined
