import { oneLine, tail } from "../lib/text.ts"
import type { AnswerError, Finish, Message } from "./ports.ts"
import { receiptOf } from "./receipt.ts"
import {
  addUsage,
  type Ending,
  NO_USAGE,
  type Outcome,
  type Reason,
  type Schema,
  type Task,
  type Usage,
} from "./task.ts"

export type SessionState = "working" | "idle" | "orphaned"

export const isFinalFinish = (finish: Finish | undefined): boolean =>
  finish !== undefined && finish !== "called" && finish !== "unknown"

/**
 * True for a user message that OpenCode itself wrote, to ask for a summary or to make the agent continue after a
 * summary.
 */
export const isByOpencode = ({ role, parts }: Message): boolean =>
  role === "user" &&
  parts.some((part) => part.type === "compaction" || (part.type === "text" && part.continues === true))

const compacts = ({ parts }: Message): boolean => parts.some(({ type }) => type === "compaction")

/** Text of an answer. A provider that runs tools itself may send its whole run as one message, with the answer last. */
const textOf = ({ parts }: Message): string =>
  textIn(parts.slice(parts.findLastIndex((part) => part.type === "tool" && part.final) + 1)) || textIn(parts)

const textIn = (parts: Message["parts"]): string =>
  parts
    .flatMap((part) => (part.type === "text" && !part.synthetic ? [part.text] : []))
    .join("\n")
    .trim()

/** Whether this is the message of a user's shell command. */
export const isShell = ({ role, parts }: Message): boolean =>
  role === "user" && parts.some((part) => part.type === "text" && part.shell === true)

/** Leaves out the user's shell commands, for which no model is asked: they have no finish reason. */
export function withoutShells(messages: readonly Message[]): readonly Message[] {
  const shells = new Set<string | undefined>(messages.filter(isShell).map(({ id }) => id))
  return messages.filter(
    ({ id, parentID, finish }) => !shells.has(id) && !(shells.has(parentID) && finish === undefined),
  )
}

/**
 * Leaves out shell commands, a compaction that followed an answer, and all messages from there to the next prompt.
 * OpenCode then asks the agent to go on, but the reply is not the run's answer.
 */
export function withoutCompaction(messages: readonly Message[]): readonly Message[] {
  const relevant: Message[] = []
  const asked = new Set<string | undefined>()
  let isAnswered = false
  let isLeftOut = false
  for (const message of withoutShells(messages)) {
    const { id, role, parentID } = message
    if (role === "user" && !isByOpencode(message)) {
      asked.clear()
      isAnswered = false
      isLeftOut = false
    }
    if (role === "user") asked.add(id)
    if (isAnswered && compacts(message)) isLeftOut = true
    if (role === "assistant") isAnswered = asked.has(parentID) && isAnswer(message)
    if (!isLeftOut) relevant.push(message)
  }
  return relevant
}

const isAnswer = (message: Message): boolean => {
  const { summary, error, finish } = message
  return !summary && !error && (finish === "done" || finish === "cut short") && textOf(message) !== ""
}

/**
 * True where OpenCode compacted the conversation and did not ask the agent to continue: the agent was not at its end.
 * A compaction that fails ends the turn, too. It is the agent's failure only where OpenCode itself asked for it, because
 * the context is full.
 */
export const isCutByCompaction = (messages: readonly Message[]): boolean => {
  const last = withoutCompaction(messages).at(-1)
  return last?.summary === true && (last.error === undefined || isUsersSummary(last, messages))
}

/** Whether the message is the summary of a compaction that a user asked for and that was not stopped. */
const isUsersSummary = ({ summary, error, parentID }: Message, messages: readonly Message[]): boolean =>
  summary &&
  error?.aborted !== true &&
  messages.some(({ id, parts }) => id === parentID && parts.some((part) => part.type === "compaction" && part.byUser))

/**
 * How a run has ended; undefined while it has not. `messages`: all since the prompt, oldest first; the answer to the
 * latest user message decides. An idle session always yields an end, but idleness alone proves nothing.
 */
export function classify(messages: readonly Message[], session: "idle", errorEvent?: AnswerError): Ending
export function classify(
  messages: readonly Message[],
  session: SessionState,
  errorEvent?: AnswerError,
): Ending | undefined
export function classify(
  given: readonly Message[],
  session: SessionState,
  errorEvent?: AnswerError,
): Ending | undefined {
  const messages = withoutShells(given)
  const relevant = withoutCompaction(messages)
  // After a compaction of a finished answer, OpenCode still works. Its messages do not change the end of the run.
  if (session === "working" && relevant.length < messages.length && !isAtRest(messages)) return undefined
  const { last, isReply } = lastIn(relevant)
  const isCut = last === undefined || isUsersSummary(last, relevant)
  const ending = isCut ? undefined : endingOf(last, session, () => answerText(messages) !== "")
  if (ending && isReply) return ending
  if (session === "working") return undefined
  if (session === "orphaned") return interrupted(messages.length > 0)
  return abandoned(last, ending, errorEvent)
}

/** The model's last message, and whether it answers the last user message. */
function lastIn(messages: readonly Message[]) {
  const asked = messages.findLast(({ role }) => role === "user")
  const last = messages.findLast(({ role }) => role === "assistant")
  return { last, isReply: asked !== undefined && last?.parentID === asked.id }
}

const isAtRest = (messages: readonly Message[]): boolean => {
  const { last, isReply } = lastIn(messages)
  return isReply && last !== undefined && (last.error !== undefined || (isFinalFinish(last.finish) && !last.summary))
}

/**
 * End that the answer alone proves. Undefined where the answer does not decide, or where OpenCode continues after it.
 */
function endingOf(answer: Message, session: SessionState, hasText: () => boolean): Ending | undefined {
  const shared = { at: answer.completedAt, proven: true } as const
  const { error, finish } = answer
  // OpenCode's shutdown aborts sessions as a user would. This end is recorded before the parent is notified, because a
  // later reader of the messages takes an abort for an interruption.
  if (error?.aborted) return session === "orphaned" ? undefined : { ...shared, proven: false, ...aborted }
  // Later readers do not know which server was asked, so this end is recorded before the parent is notified.
  if (error?.interrupted)
    return { type: "failed", at: answer.completedAt, reason: { code: "interrupted", text: error.message } }
  if (error && !error.refused) return { ...shared, type: "failed", reason: { code: "provider", text: error.message } }
  if ((finish === undefined && !error) || answer.summary) return undefined
  if (finish === "cut short") return { ...shared, type: "completed", note: CUT_SHORT, ...cutThoughtIn(answer) }
  if (finish === "done") return { ...shared, type: "completed", ...thoughtIn(answer) }
  if (finish && isFinalFinish(finish))
    return { ...shared, type: "failed", reason: { code: "provider", text: failedStep(finish) } }
  const refused = refusedIn(answer)
  if (!refused || session === "working") return undefined
  const text = refused === "question" ? DISMISSED : REFUSED
  if (hasText()) return { ...shared, type: "completed", note: text }
  return { ...shared, type: "cancelled", reason: { code: "refused", text: `${text} It had written nothing.` } }
}

/** Kind of the question whose refusal ended the turn. */
function refusedIn({ error, parts }: Message): "permission" | "question" | undefined {
  if (error?.refused) return "permission"
  const part = parts.find((each) => each.type === "tool" && each.refused)
  return part?.type === "tool" && part.refused ? part.refused : undefined
}

/** Longest reasoning text in a record: enough to see what the model thought last. */
const MOST_THOUGHT_CHARS = 500

/** End of the reasoning in a last message that holds nothing else. Empty reasoning after an answer changes nothing. */
function thoughtIn(answer: Message): Pick<Ending, "thought"> {
  if (textOf(answer) !== "") return {}
  const thoughts = answer.parts.filter((part) => part.type === "reasoning").map(({ text }) => text)
  if (thoughts.length === 0) return {}
  return { thought: tail(thoughts.join("\n").trim(), MOST_THOUGHT_CHARS) }
}

/** An answer that is cut short before its first text: the model used all its output for thoughts, shown or not. */
const cutThoughtIn = (answer: Message): Pick<Ending, "thought" | "note"> =>
  textOf(answer) === "" ? { note: CUT_BEFORE, thought: "", ...thoughtIn(answer) } : {}

/** How a run ends whose session stays idle without an answer although OpenCode works. */
function abandoned(last: Message | undefined, ending: Ending | undefined, errorEvent?: AnswerError): Ending {
  // Stopped before it had read the last message to it: what it answered before that was not its end.
  if (errorEvent?.aborted) return aborted
  if (ending) return { ...ending, proven: false }
  if (errorEvent) return { type: "failed", reason: { code: "provider", text: errorEvent.message } }
  // Only an abort leaves a session idle between two steps of its agent; a summary is not a step.
  if (last?.finish === "called" || last?.summary) return aborted
  const text = last?.finish ? NO_REASON : last ? BROKE_OFF : NOT_BEGUN
  return { type: "failed", reason: { code: last?.finish ? "provider" : "host", text } }
}

/** How a run ends whose process died. */
export const interrupted = (begun: boolean): Ending => ({
  type: "failed",
  reason: { code: "interrupted", text: begun ? INTERRUPTED : INTERRUPTED_BEFORE },
})

const aborted: Ending = {
  type: "cancelled",
  reason: { code: "aborted", text: "It was stopped in its own session, most likely by the user." },
}

const CUT_SHORT = "The answer reached the model's output limit and may be cut short."
const CUT_BEFORE = "The model reached its output limit before it wrote an answer."
const REFUSED = "The agent stopped at a refused permission."
const DISMISSED = "The agent asked the user a question, which was dismissed; its turn ended there."
const failedStep = (finish: Finish): string =>
  `The model's last answer ended with the finish reason "${oneLine(finish.replace("other: ", ""))}".`
const NO_REASON = "The model's last answer ended without a finish reason."
const BROKE_OFF = "The answer broke off: OpenCode stopped working on it without an error."
const NOT_BEGUN = "OpenCode did not begin to answer the prompt in time."
const INTERRUPTED = "OpenCode stopped or was restarted while it ran: it was interrupted."
const INTERRUPTED_BEFORE =
  "OpenCode stopped or was restarted before it began: it was interrupted. Launch it again if it is still needed."

export const neverBegan = ({ code, text }: Reason): boolean => code === "interrupted" && text === INTERRUPTED_BEFORE

/**
 * The run's answer: the last text after its prompt. Summaries do not count, nor does text after a compaction that
 * followed the answer.
 */
export function answerText(messages: readonly Message[]): string {
  for (const message of withoutCompaction(messages).toReversed()) {
    if (message.role !== "assistant" || message.summary) continue
    const text = textOf(message)
    if (text !== "") return text
  }
  return ""
}

export type Facts = Pick<
  Outcome,
  "toolCalls" | "usage" | "recentTools" | "filesChanged" | "moreFiles" | "meanwhile" | "receipt" | "first"
>

/** Longest time in which another process may begin to answer a message that it has stored, in ms. */
const BEGIN_MS = 2000
/** Longest time for which an open answer counts as being written, in ms: the process that wrote it may have died. */
const ANSWERING_MS = 300_000
/** Longest time between two steps of a turn, in ms. */
const NEXT_STEP_MS = 2000

/** Whether a turn to which this last message of a session belongs may still go on, in whatever process. */
export function mayGoOn({ role, createdAt, completedAt, finish, error }: Message, now: number): boolean {
  if (error) return false
  if (role === "user") return now - createdAt < BEGIN_MS
  if (finish === "called") return now - (completedAt ?? createdAt) < NEXT_STEP_MS
  // A shell command of the user ends without a finish reason.
  return finish === undefined && completedAt === undefined && now - createdAt < ANSWERING_MS
}

/** Number of last called tools named in an outcome. */
export const RECENT_TOOLS = 5
/**
 * Number of paths in an outcome. It is small because the record is written into OpenCode's database again and again.
 */
const MOST_FILES = 100

export function factsOf(given: readonly Message[]): Facts {
  const messages = withoutShells(given)
  const calls = new Map<string, string>()
  for (const { id, parts } of messages)
    for (const part of parts) if (part.type === "tool") calls.set(`${id} ${part.callID}`, part.tool)
  const files = changedFiles(messages, true)
  const meanwhile = changedFiles(messages, false).filter((path) => !files.includes(path))
  const receipt = receiptOf(messages.flatMap(({ parts }) => parts.filter((part) => part.type === "command")))
  return {
    toolCalls: calls.size,
    usage: messages.reduce((sum, message) => addUsage(sum, usageOf(message)), NO_USAGE),
    recentTools: [...calls.values()].slice(-RECENT_TOOLS),
    filesChanged: files.slice(0, MOST_FILES),
    moreFiles: Math.max(0, files.length - MOST_FILES),
    ...(meanwhile.length > 0 && {
      meanwhile: { files: meanwhile.slice(0, MOST_FILES), more: Math.max(0, meanwhile.length - MOST_FILES) },
    }),
    ...(receipt && { receipt }),
    ...firstOf(messages),
  }
}

/** Cache use of the first request, where the provider reported any. */
function firstOf(messages: readonly Message[]): Pick<Outcome, "first"> {
  const { usage } = messages.find(({ finish, summary }) => finish !== undefined && !summary) ?? {}
  const { input, cacheRead, cacheWrite } = usage ?? NO_USAGE
  return cacheRead + cacheWrite > 0 ? { first: { read: cacheRead, of: input + cacheRead + cacheWrite } } : {}
}

/**
 * Changed files in the order of their first change. `own`: true for changes by the agent's calls, false for all others.
 */
const changedFiles = (messages: readonly Message[], own: boolean): readonly string[] => {
  const parts = messages.flatMap((message) => message.parts)
  return [...new Set(parts.flatMap((part) => (part.type === "files" && part.own === own ? part.paths : [])))]
}

/**
 * Usage of a message, a lower bound for an answer that was cut off: OpenCode does not know its usage. A refused request
 * used nothing.
 */
function usageOf({ usage = NO_USAGE, role, finish, error, parts }: Message): Usage {
  if (role !== "assistant" || finish !== undefined) return usage
  const refused = parts.length === 0 && error !== undefined && !error.aborted
  return refused ? usage : { ...usage, atLeast: true }
}

export const keptTodos = (messages: readonly Message[]): boolean =>
  messages.some(({ parts }) => parts.some((part) => part.type === "tool" && part.keepsTodos))

/** Time of the last answer in the session; 0 for none. User messages are no sign of life. */
export const lastAnswerAt = (messages: readonly Message[]): number =>
  messages.reduce(
    (latest, { role, createdAt, completedAt = 0 }) =>
      role === "assistant" ? Math.max(latest, createdAt, completedAt) : latest,
    0,
  )

/** Longest value in the prompt of a dependent task, in UTF-16 units. Longer values are passed as a file. */
const MOST_CHARS = 8000

export const isLong = (json: string): boolean => json.length > MOST_CHARS

/** Adds the schema to the prompt. The agent learns the schema from this text only: there is no tool for it. */
export const withSchema = (prompt: string, schema: Schema | undefined): string =>
  schema === undefined
    ? prompt
    : `${prompt}\n\nYour last message is read by a program: JSON alone, valid against this JSON Schema, with nothing before or after it.\n${JSON.stringify(schema)}`

/** The valid value in the text, or the whole text where there is none. */
export function valueIn({ outcome }: Pick<Task, "outcome">, text: string): string {
  const { value } = outcome ?? {}
  return value?.valid ? text.slice(value.at, value.at + value.length) : text
}
