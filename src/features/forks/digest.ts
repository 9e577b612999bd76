import { count, escapeForTag, head } from "../../lib/text.ts"
import type { HistoryMessage, HistoryPart } from "./ports.ts"
import { addWeights, guessText, tokensOf, type Yield } from "./tokens.ts"

/** Characters shown of a call's parameters, and of a text. */
const PARAMS_CHARS = 200
const TEXT_CHARS = 400
export const DIGEST_TAG = "left_out_messages"

/**
 * Summarizes dropped messages within `tokens`: one line for each text and tool call. Keeps the first line and the
 * newest lines, and states how many lines were left out.
 */
export async function digest(messages: readonly HistoryMessage[], tokens: number, pause: Yield): Promise<string> {
  const parts = messages.flatMap(({ role, parts }) => parts.filter(isShown).map((part) => ({ role, part })))
  const [first, ...rest] = parts
  if (!first) return gap(0)
  const firstLine = lineOf(first)
  let weight = guessText(`${firstLine}\n${gap(parts.length)}\n`)
  if (tokensOf(weight) > tokens) return gap(parts.length)
  const shown: string[] = []
  for (const entry of rest.toReversed()) {
    const line = lineOf(entry)
    weight = addWeights(weight, guessText(`${line}\n`))
    if (tokensOf(weight) > tokens) break
    shown.push(line)
    await pause()
  }
  const hidden = rest.length - shown.length
  return [firstLine, ...(hidden > 0 ? [gap(hidden)] : []), ...shown.reverse()].join("\n")
}

const gap = (lines: number): string => `[… ${count(lines, "line")} not shown …]`

type ShownPart = Extract<HistoryPart, { type: "text" | "file" | "tool" }>

const isShown = (part: HistoryPart): part is ShownPart =>
  part.type === "file" || part.type === "tool" || (part.type === "text" && /\S/.test(part.text))

const lineOf = ({ role, part }: { role: HistoryMessage["role"]; part: ShownPart }): string =>
  escapeForTag(DIGEST_TAG, plainLine(role, part))

function plainLine(role: HistoryMessage["role"], part: ShownPart): string {
  const label = role === "user" ? "User:" : "Agent:"
  if (part.type === "text") return `${label} ${brief(part.text, TEXT_CHARS)}`
  if (part.type === "file") return `${label} [File: ${flat(part.name)}]`
  return `[Tool: ${flat(part.tool)}] ${brief(paramsOf(part.input), PARAMS_CHARS)}`
}

/** Arguments as text; long values are cut before they are serialized. */
export const paramsOf = (input: unknown): string =>
  typeof input === "string" ? input : (JSON.stringify(input, (_, value) => beginning(value)) ?? "")

const beginning = (value: unknown): unknown =>
  typeof value === "string" && value.length > 2 * PARAMS_CHARS ? value.slice(0, 2 * PARAMS_CHARS) : value

/** Puts a text on one line, so that it cannot imitate another speaker. Reads only the part that is shown. */
function brief(text: string, most: number): string {
  const line = flat(head(text, most * 4))
  return line.length <= most && text.length <= most * 4 ? line : `${head(line, most)}...`
}

const flat = (text: string): string => text.replace(/\s+/g, " ").trim()
