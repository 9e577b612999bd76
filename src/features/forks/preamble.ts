import { count, escapeForTag, head } from "../../lib/text.ts"
import type { HistoryMessage, HistoryPart } from "./ports.ts"
import { guessText, type Yield } from "./tokens.ts"
import { type CutResult, isAnswer, MOST_ANSWER_CHARS, type Trimmed } from "./trim.ts"

export type PreambleFacts = Pick<Trimmed, "kept" | "dropped" | "cut" | "shortened"> & {
  readonly maxToolResultChars: number
  readonly maxTokens: number
  /** Tools that the model sees but may not use: the plugin refuses their calls. */
  readonly refused?: readonly string[]
}

/** Message between the copied history and the fork's prompt. `digest`: of dropped messages, if any. */
export function preamble(facts: PreambleFacts, digest?: string): string {
  const text = [
    "[Forked context] You are a background agent. The messages above were copied from the session that started you; " +
      "what was said there was said to the agent that you were forked from. Your own task is the next message; " +
      "that session reads your last message and nothing else of yours. Unless your task names a place of its own, you " +
      "work in that session's files, and others may be working in them too. Answer in the language in which you are asked.",
    ...whatChanged(facts),
    advice(facts),
    ...(facts.kept.some(namesTasks) ? [TASK_IDS] : []),
    ...(facts.refused && facts.refused.length > 0 ? [refusedLine(facts.refused)] : []),
  ].join("\n\n")
  return digest === undefined ? text : `${text}\n\n<${DIGEST_TAG}>\n${digest}\n</${DIGEST_TAG}>`
}

const TASK_IDS =
  "Task ids (bg_…) in the messages above are those of the session that started you: you cannot fetch, cancel or " +
  "resume these tasks."

const refusedLine = (tools: readonly string[]): string =>
  `You have these tools only because that session has them, and calls of them are refused: ${tools.join(", ")}. Do the work yourself.`

function whatChanged({ kept, dropped, cut, shortened, maxToolResultChars, maxTokens }: PreambleFacts): string[] {
  const lines: string[] = []
  if (dropped.length > 0)
    lines.push(
      `${count(dropped.length, "older message")} left out to stay under ${maxTokens} tokens; ` +
        `${count(kept.length, "message")} kept. A digest of what was left out is below.`,
    )
  if (shortened && shortened.kept < shortened.of)
    lines.push(`The first message above was shortened: ${shortened.kept} of its ${shortened.of} characters kept.`)
  if (shortened && shortened.files.length > 0)
    lines.push(`Left out of the first message above: ${shortened.files.map((name) => `[File: ${name}]`).join(", ")}.`)
  const [answers, results] = partition(cut, ({ tool }) => isAnswer(tool))
  if (results.length > 0) lines.push(cutLine(count(results.length, "tool result"), results, maxToolResultChars))
  if (answers.length > 0)
    lines.push(
      cutLine(
        count(answers.length, "agent's answer", "agents' answers"),
        answers,
        Math.max(maxToolResultChars, MOST_ANSWER_CHARS),
      ),
    )
  return lines.length > 0 ? lines : [`Nothing was left out or cut: ${count(kept.length, "message")} kept.`]
}

const cutLine = (what: string, cut: readonly CutResult[], most: number): string =>
  `${what} over ${most} characters cut, the longest from ${Math.max(...cut.map(({ of }) => of))} characters. ` +
  "Each says its original length."

const READ_AGAIN =
  "Context may be truncated. Read files again and repeat searches where you need their complete or current content."

/** Advice for the fork's agent about parts that are missing in the history. */
function advice({ dropped, cut, shortened }: PreambleFacts): string {
  if (dropped.length === 0 && cut.length === 0 && !shortened)
    return "A fork's context may be truncated; yours is complete. Read files again only where they may have changed since."
  return [
    READ_AGAIN,
    ...(cut.some(({ tool }) => isCommand(tool))
      ? ["Do not run a command again only to see its output, unless it changes nothing."]
      : []),
    ...(cut.some(({ tool }) => isAnswer(tool))
      ? ["The rest of an agent's answer cannot be fetched from here: where it matters, say that you did not have it."]
      : []),
  ].join(" ")
}

const isCommand = (tool: string): boolean => tool === "bash" || tool === "shell"

const TASK_ID = /\bbg_[a-z0-9]{8}\b/

const namesTasks = ({ parts }: HistoryMessage): boolean =>
  parts.some((part) =>
    part.type === "tool" ? part.tool.startsWith("superagents_") : part.type === "text" && TASK_ID.test(part.text),
  )

function partition<Item>(items: readonly Item[], test: (item: Item) => boolean): readonly [Item[], Item[]] {
  return [items.filter(test), items.filter((item) => !test(item))]
}

/** Characters shown of a call's parameters, and of a text. */
const PARAMS_CHARS = 200
const TEXT_CHARS = 400
const DIGEST_TAG = "left_out_messages"

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
  if (weight > tokens) return gap(parts.length)
  const shown: string[] = []
  for (const entry of rest.toReversed()) {
    const line = lineOf(entry)
    weight += guessText(`${line}\n`)
    if (weight > tokens) break
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
