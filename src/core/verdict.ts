import type { Message } from "./ports.ts"
import { addUsage, NO_USAGE, type Usage } from "./task.ts"

/**
 * What the messages of a run say about it. An idle session proves nothing by itself; its messages do.
 *
 * - `unanswered`: the prompt, or a later user message, has no answer yet: not begun, or begun and not stored.
 * - `unfinished`: the last answer is still open.
 * - `completed`: the model's last message ended without an error. `note` tells what a reader should know of it.
 * - `failed`: it ended with an error.
 * - `aborted`: somebody stopped the session.
 */
export type Verdict =
  | { readonly kind: "unanswered" }
  | { readonly kind: "unfinished" }
  | { readonly kind: "completed"; readonly note?: string }
  | { readonly kind: "failed"; readonly message: string }
  | { readonly kind: "aborted" }

/** Finish reasons after which the host goes on by itself, unless something stopped it. */
const GOES_ON = new Set(["tool-calls", "unknown"])

/**
 * Judges a run by its messages, oldest first, the prompt included. `messages` may hold user messages that came later
 * (a notification to the child, a word from the user): the answer to the latest one counts.
 */
export function judge(messages: readonly Message[]): Verdict {
  const asked = messages.findLast((message) => message.role === "user")
  const answer = messages.findLast((message) => message.role === "assistant")
  if (!asked || !answer || answer.parentID !== asked.id) return { kind: "unanswered" }
  return judgeAnswer(answer)
}

/** Judges the last answer alone, whatever was said after it. For sessions in which nobody will answer any more. */
export function judgeLastAnswer(messages: readonly Message[]): Verdict {
  const answer = messages.findLast((message) => message.role === "assistant")
  return answer ? judgeAnswer(answer) : { kind: "unanswered" }
}

function judgeAnswer(answer: Message): Verdict {
  if (answer.error?.name === "MessageAbortedError") return { kind: "aborted" }
  if (answer.error) return { kind: "failed", message: answer.error.message }
  if (answer.finish === undefined) return { kind: "unfinished" }
  if (answer.finish === "length")
    return { kind: "completed", note: "The answer reached the model's output limit and may be cut short." }
  if (!GOES_ON.has(answer.finish)) return { kind: "completed" }
  if (answer.parts.some((part) => part.type === "tool" && part.refused))
    return { kind: "completed", note: "The agent stopped at a refused permission." }
  if (answer.finish === "unknown")
    return { kind: "failed", message: "The model's last answer ended without a finish reason." }
  return { kind: "completed", note: "The agent stopped between two steps." }
}

/** The answer of a run: the last text since its prompt, summaries of a compaction left out. */
export function answerText(messages: readonly Message[]): string {
  for (const message of messages.toReversed()) {
    if (message.role !== "assistant" || message.summary) continue
    const text = message.parts
      .flatMap((part) => (part.type === "text" && !part.synthetic ? [part.text] : []))
      .join("\n")
      .trim()
    if (text !== "") return text
  }
  return ""
}

/** An answer that holds neither text nor a tool call: what a provider's empty body becomes. */
export const isEmptyAnswer = (message: Message): boolean =>
  message.role === "assistant" &&
  message.finish !== undefined &&
  message.error === undefined &&
  !message.parts.some((part) => part.type === "tool" || (part.type === "text" && part.text.trim() !== ""))

/** The files that were changed since the prompt, each once, in the order of their first change. */
export const changedFiles = (messages: readonly Message[]): readonly string[] => [
  ...new Set(messages.flatMap(({ parts }) => parts.flatMap((part) => (part.type === "files" ? part.paths : [])))),
]

/** What the answers since the prompt have cost. */
export const usageIn = (messages: readonly Message[]): Usage =>
  messages.reduce((sum, { usage }) => (usage ? addUsage(sum, usage) : sum), NO_USAGE)

/** The tool by which an agent keeps its todos: who did not call it left none open. */
export const keptTodos = (messages: readonly Message[]): boolean =>
  messages.some(({ parts }) => parts.some((part) => part.type === "tool" && part.tool === "todowrite"))
