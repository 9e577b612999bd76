import { oneLine, tail } from "../lib/text.ts"
import type { AnswerError, Finish, Message } from "./ports.ts"
import { receiptOf } from "./receipt.ts"
import { addUsage, type Ending, NO_USAGE, type Outcome, type Reason, type Usage } from "./task.ts"

/**
 * What may still come of a session:
 *
 * - `working`: its host lives, and may be at work on it;
 * - `idle`: its host lives and does nothing with it, and has not for a while;
 * - `orphaned`: the host that worked on it is dead.
 */
export type SessionState = "working" | "idle" | "orphaned"

/** True where a model ended its turn, well or not. */
export const isEnd = (finish: Finish | undefined): boolean =>
  finish !== undefined && finish !== "called" && finish !== "untold"

/** A user's message that the host wrote: it asks for a summary of what was said, or to go on after one. */
const isByHost = ({ role, parts }: Message): boolean =>
  role === "user" && parts.some((part) => part.type === "compaction" || (part.type === "text" && part.goesOn === true))

const compacts = ({ parts }: Message): boolean => parts.some(({ type }) => type === "compaction")

const textOf = ({ parts }: Message): string =>
  parts
    .flatMap((part) => (part.type === "text" && !part.synthetic ? [part.text] : []))
    .join("\n")
    .trim()

/**
 * The messages without a compaction that followed an answer. The host asks such an agent to go on if something is left,
 * and its reply to that is not its answer.
 */
export function courseOf(messages: readonly Message[]): readonly Message[] {
  const course: Message[] = []
  const asked = new Set<string | undefined>()
  let isAnswered = false
  let isLeftOut = false
  for (const message of messages) {
    const { id, role, parentID } = message
    if (role === "user" && !isByHost(message)) {
      asked.clear()
      isAnswered = false
      isLeftOut = false
    }
    if (role === "user") asked.add(id)
    if (isAnswered && compacts(message)) isLeftOut = true
    if (role === "assistant") isAnswered = asked.has(parentID) && isAnswer(message)
    if (!isLeftOut) course.push(message)
  }
  return course
}

const isAnswer = (message: Message): boolean => {
  const { summary, error, finish } = message
  return !summary && !error && (finish === "done" || finish === "cut short") && textOf(message) !== ""
}

/** The conversation was compacted, and nobody has asked its agent to go on: it was not at its end. */
export const isCutByCompaction = (messages: readonly Message[]): boolean => {
  const last = courseOf(messages).at(-1)
  return last?.summary === true && last.error === undefined
}

/**
 * How a run has ended, or undefined where it has not: the one judgement, for whoever looks at a run. `messages` are the
 * session's since the run's prompt, oldest first. They may hold user messages that came later (a notification to the
 * child, a word from the user): the answer to the latest one counts. An idle session has always ended, and proves
 * nothing by itself. `heard`: an error that the host told of it, beside what its messages say.
 */
export function classify(messages: readonly Message[], session: "idle", heard?: AnswerError): Ending
export function classify(messages: readonly Message[], session: SessionState, heard?: AnswerError): Ending | undefined
export function classify(messages: readonly Message[], session: SessionState, heard?: AnswerError): Ending | undefined {
  const course = courseOf(messages)
  // What follows an answer that was compacted changes nothing, but its host is still at it.
  if (session === "working" && course.length < messages.length && !isAtRest(messages)) return undefined
  const { last, isReply } = lastIn(course)
  const ending = last && endingOf(last, session, () => answerText(messages) !== "")
  if (ending && isReply) return ending
  if (session === "working") return undefined
  if (session === "orphaned") return interrupted(messages.length > 0)
  return abandoned(last, ending, heard)
}

/** The last message of the model, and whether it replies to what was said last. */
function lastIn(messages: readonly Message[]) {
  const asked = messages.findLast(({ role }) => role === "user")
  const last = messages.findLast(({ role }) => role === "assistant")
  return { last, isReply: asked !== undefined && last?.parentID === asked.id }
}

const isAtRest = (messages: readonly Message[]): boolean => {
  const { last, isReply } = lastIn(messages)
  return isReply && last !== undefined && (last.error !== undefined || (isEnd(last.finish) && !last.summary))
}

/** The end that an answer is by itself; undefined for one that is open, or after which its host goes on. */
function endingOf(answer: Message, session: SessionState, hasText: () => boolean): Ending | undefined {
  const shared = { at: answer.completedAt, proven: true } as const
  const { error, finish } = answer
  // A host that ends in good order stops what it works on, as a user would.
  // So that whoever reads it after a crash takes it for interrupted: it is written down before it is told.
  if (error?.aborted) return session === "orphaned" ? undefined : { ...shared, proven: false, ...aborted }
  // Who reads it later does not know which server it was asked on: it is written down before it is told.
  if (error?.interrupted)
    return { type: "failed", at: answer.completedAt, reason: { code: "interrupted", text: error.message } }
  if (error && !error.refused) return { ...shared, type: "failed", reason: { code: "provider", text: error.message } }
  if ((finish === undefined && !error) || answer.summary) return undefined
  if (finish === "cut short") return { ...shared, type: "completed", note: CUT_SHORT }
  if (finish === "done") return { ...shared, type: "completed", ...thoughtIn(answer) }
  if (finish && isEnd(finish))
    return { ...shared, type: "failed", reason: { code: "provider", text: failedStep(finish) } }
  const refused = refusedIn(answer)
  if (!refused || session === "working") return undefined
  const text = refused === "question" ? DISMISSED : REFUSED
  if (hasText()) return { ...shared, type: "completed", note: text }
  return { ...shared, type: "cancelled", reason: { code: "refused", text: `${text} It had written nothing.` } }
}

/** The kind of question whose refusal ended the turn. */
function refusedIn({ error, parts }: Message): "permission" | "question" | undefined {
  if (error?.refused) return "permission"
  const part = parts.find((each) => each.type === "tool" && each.refused)
  return part?.type === "tool" && part.refused ? part.refused : undefined
}

/** Enough to see what a model thought last: it stands in the record. */
const MOST_THOUGHT_CHARS = 500

/** The end of the reasoning of a last message that holds nothing else; an empty one behind an answer changes nothing. */
function thoughtIn(answer: Message): Pick<Ending, "thought"> {
  if (textOf(answer) !== "") return {}
  const thoughts = answer.parts.filter((part) => part.type === "reasoning").map(({ text }) => text)
  if (thoughts.length === 0) return {}
  return { thought: tail(thoughts.join("\n").trim(), MOST_THOUGHT_CHARS) }
}

/** The end of a run whose session its living host has let lie: nobody will answer any more. */
function abandoned(last: Message | undefined, ending: Ending | undefined, heard?: AnswerError): Ending {
  if (ending) return { ...ending, proven: false }
  if (heard?.aborted) return aborted
  if (heard) return { type: "failed", reason: { code: "provider", text: heard.message } }
  // Between two steps of an agent's work nothing but a stop leaves a session idle; a summary is no step.
  if (last?.finish === "called" || last?.summary) return aborted
  const text = last?.finish ? NO_REASON : last ? BROKE_OFF : NOT_BEGUN
  return { type: "failed", reason: { code: last?.finish ? "provider" : "host", text } }
}

const interrupted = (begun: boolean): Ending => ({
  type: "failed",
  reason: { code: "interrupted", text: begun ? INTERRUPTED : INTERRUPTED_BEFORE },
})

const aborted: Ending = {
  type: "cancelled",
  reason: { code: "aborted", text: "It was stopped in its own session." },
}

const CUT_SHORT = "The answer reached the model's output limit and may be cut short."
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

/** Whether a run was interrupted before its prompt reached the model. */
export const neverBegan = ({ code, text }: Reason): boolean => code === "interrupted" && text === INTERRUPTED_BEFORE

/**
 * The answer of a run: the last text since its prompt, without the summary of a compaction and what was said after one
 * that followed the answer.
 */
export function answerText(messages: readonly Message[]): string {
  for (const message of courseOf(messages).toReversed()) {
    if (message.role !== "assistant" || message.summary) continue
    const text = textOf(message)
    if (text !== "") return text
  }
  return ""
}

/** What messages tell of a run besides its end. */
export type Facts = Pick<
  Outcome,
  "toolCalls" | "usage" | "recentTools" | "filesChanged" | "moreFiles" | "meanwhile" | "receipt" | "first"
>

/** Tools that are named of those that a run called last. */
export const RECENT_TOOLS = 5
/** Paths that are kept of an ended run: its record is written into the host's database, again and again. */
const MOST_FILES = 100

export function factsOf(messages: readonly Message[]): Facts {
  // Some providers' call ids are unique in one message alone.
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

/** What the provider read from its cache for the first request, where it told of one: read, or written. */
function firstOf(messages: readonly Message[]): Pick<Outcome, "first"> {
  const { usage } = messages.find(({ finish, summary }) => finish !== undefined && !summary) ?? {}
  const { input, cacheRead, cacheWrite } = usage ?? NO_USAGE
  return cacheRead + cacheWrite > 0 ? { first: { read: cacheRead, of: input + cacheRead + cacheWrite } } : {}
}

/** The files that were changed, by calls of the agent's own or not, each once, in the order of their first change. */
const changedFiles = (messages: readonly Message[], own: boolean): readonly string[] => {
  const parts = messages.flatMap((message) => message.parts)
  return [...new Set(parts.flatMap((part) => (part.type === "files" && part.own === own ? part.paths : [])))]
}

/** What an answer used. The host does not know it of one that was cut off; one that was refused used nothing. */
function usageOf({ usage = NO_USAGE, role, finish, error, parts }: Message): Usage {
  if (role !== "assistant" || finish !== undefined) return usage
  const refused = parts.length === 0 && error !== undefined && !error.aborted
  return refused ? usage : { ...usage, atLeast: true }
}

/** Whether the agent kept todos: who kept none left none open. */
export const keptTodos = (messages: readonly Message[]): boolean =>
  messages.some(({ parts }) => parts.some((part) => part.type === "tool" && part.keepsTodos))

/** When a session last showed by an answer that it works; 0 where it has none. What it is told is no such sign. */
export const lastSignIn = (messages: readonly Message[]): number =>
  messages.reduce(
    (latest, { role, createdAt, completedAt = 0 }) =>
      role === "assistant" ? Math.max(latest, createdAt, completedAt) : latest,
    0,
  )
