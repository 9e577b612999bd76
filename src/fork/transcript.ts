import type { CutResult } from "./cut.ts"
import type { HistoryMessage } from "./ports.ts"
import { addWeights, tokensOf, weighText } from "./tokens.ts"

/** Lengths of what is shown of one call's parameters, and of one text, in characters. */
const PARAMS_CHARS = 200
const TEXT_CHARS = 400
const TAG = "left_out_messages"

/** What a preamble tells; all figures are of what really happened. */
export type PreambleFacts = {
  readonly kept: number
  readonly dropped: readonly HistoryMessage[]
  readonly cut: readonly CutResult[]
  readonly maxToolResultChars: number
  /** The limit the history was brought under, in tokens. */
  readonly maxTokens: number
}

/** The preamble, at most `tokens` long by the calibrated estimate as far as the digest is concerned. */
export function preamble(facts: PreambleFacts, tokens: number, factor: number): string {
  const { dropped } = facts
  const text = [
    "[Forked context] You are a background agent. The messages above were copied from the session that started you; " +
      "what was said there was said to the agent that you were forked from. Your own task is the next message.",
    ...whatChanged(facts),
    "Context may be truncated. Read files again and repeat searches where you need their complete or current content.",
  ].join("\n\n")
  if (dropped.length === 0) return text
  return `${text}\n\n<${TAG}>\n${digest(dropped, tokens, factor)}\n</${TAG}>`
}

function whatChanged({ kept, dropped, cut, maxToolResultChars, maxTokens }: PreambleFacts): readonly string[] {
  const lines: string[] = []
  if (dropped.length > 0)
    lines.push(
      `${count(dropped.length, "older message")} left out to stay under ${maxTokens} tokens; ` +
        `${count(kept, "message")} kept. A digest of what was left out is below.`,
    )
  if (cut.length > 0) {
    const longest = Math.max(...cut.map(({ from }) => from))
    lines.push(
      `${count(cut.length, "tool result")} over ${maxToolResultChars} characters cut, ` +
        `the longest from ${longest} characters. Each says its original length.`,
    )
  }
  return lines.length > 0 ? lines : [`Nothing was left out or cut: ${count(kept, "message")} kept.`]
}

const count = (number: number, noun: string): string => `${number} ${noun}${number === 1 ? "" : "s"}`

/**
 * Messages in short: `User:` and `Agent:` lines, and `[Tool: name] params` for every call. Weighs at most `tokens`: the
 * first line stays, then the newest as far as they fit, and a line between them says how many are not shown.
 */
export function digest(messages: readonly HistoryMessage[], tokens: number, factor = 1): string {
  const lines = messages.flatMap(linesOf)
  const [first = "", ...rest] = lines
  let weight = weighText(`${first}\n${gap(lines.length)}\n`)
  if (tokensOf(weight, factor) > tokens) return gap(lines.length)
  let from = rest.length
  for (; from > 0; from--) {
    weight = addWeights(weight, weighText(`${rest[from - 1]}\n`))
    if (tokensOf(weight, factor) > tokens) break
  }
  return [first, ...(from > 0 ? [gap(from)] : []), ...rest.slice(from)].join("\n")
}

const gap = (lines: number): string => `[… ${count(lines, "line")} not shown …]`

function linesOf(message: HistoryMessage): string[] {
  return plainLinesOf(message).map(withoutTag)
}

function plainLinesOf(message: HistoryMessage): string[] {
  const label = message.role === "user" ? "User:" : "Agent:"
  return message.parts.flatMap((part) => {
    if (part.type === "text") return part.text.trim() === "" ? [] : [`${label} ${brief(part.text, TEXT_CHARS)}`]
    if (part.type === "file") return [`${label} [File: ${oneLine(part.name)}]`]
    return part.type === "tool" ? [`[Tool: ${oneLine(part.tool)}] ${brief(paramsOf(part.input), PARAMS_CHARS)}`] : []
  })
}

/** Arguments as text; a value that is too long to be shown whole is not looked at whole. */
const paramsOf = (input: unknown): string =>
  typeof input === "string" ? input : (JSON.stringify(input, (_, value) => beginning(value)) ?? "")

const beginning = (value: unknown): unknown =>
  typeof value === "string" && value.length > 2 * PARAMS_CHARS ? value.slice(0, 2 * PARAMS_CHARS) : value

/** One line, so that no text can look like another speaker's. Only as much is looked at as can be shown. */
function brief(text: string, most: number): string {
  const line = oneLine(text.slice(0, most * 4))
  if (line.length <= most && text.length <= most * 4) return line
  return `${line.slice(0, most).replace(/[\ud800-\udbff]$/, "")}...`
}

const oneLine = (text: string): string => text.replace(/\s+/g, " ").trim()

/** A line between the digest's tags can neither close nor open them; all else in it stays as it is. */
const withoutTag = (line: string): string => line.replace(TAG_BEGINNING, "&lt;")
const TAG_BEGINNING = new RegExp(`<(?=\\s*/?\\s*${TAG})`, "gi")
