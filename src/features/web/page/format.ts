import { oneLine } from "../../../lib/text.ts"

/**
 * Puts marks around text of agents or providers, so that its writing direction does not change the sentence around it.
 */
export const isolated = (text: string): string => `\u2068${oneLine(text)}\u2069`

/** Hue for a name, one of six. These hues differ from the colours of states. */
export const hueOf = (name: string): number =>
  [...name].reduce((sum, letter) => (sum * 31 + (letter.codePointAt(0) ?? 0)) % 997, 7) % 6
