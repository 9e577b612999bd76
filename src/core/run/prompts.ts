import { oneLine } from "../../lib/text.ts"
import type { Message } from "../ports.ts"
import type { Ask, MessageKind, Repeated } from "../task.ts"
import { lastWordRequest } from "../watchdog.ts"
import { type ActiveRun, hasEnded, isUnsent, type MessageCallback, type SentMessage } from "./active-run.ts"
import { callReturned, end } from "./ending.ts"
import {
  andThen,
  type Handler,
  type MachineCommand,
  type MachineStep,
  type RunContext,
  readMessages,
  stay,
} from "./steps.ts"

/** Start of each automatic message: without it, the model would take the message for the user's. */
export const AUTOMATIC = "Automatic message, not written by the user."

/** Tool names of MCP servers may have any length. */
const MOST_TOOL_CHARS = 60

type OutgoingMessage = { readonly kind: MessageKind; readonly text: string; readonly reply?: MessageCallback }

/** Adds a message to the run that the agent must read before the run ends. */
function addMessage(
  run: ActiveRun,
  { kind, text, reply }: OutgoingMessage,
  { now, messageID }: RunContext,
  held = false,
): [ActiveRun, SentMessage] {
  const at = Math.max(now, run.lastMessageAt + 1)
  const id = messageID(kind, run.taskID, run.generation, at)
  const added = { id, kind, text, at, expected: true, held, taken: false, reply }
  return [{ ...run, lastMessageAt: at, sentMessages: [...run.sentMessages, added] }, added]
}

const sending = (run: ActiveRun, commands: readonly MachineCommand[]): MachineStep => ({
  run: { ...run, calls: run.calls + commands.length },
  commands,
})

/** Sends a message to the run's session. */
export function sendMessage(
  run: ActiveRun,
  outgoing: OutgoingMessage,
  context: RunContext,
  interrupts?: readonly Ask[],
): MachineStep {
  const [next, message] = addMessage(run, outgoing, context)
  return sending(next, [{ do: "send", message, ...(interrupts && { interrupts }) }])
}

const without = (run: ActiveRun, message: SentMessage): ActiveRun => ({
  ...run,
  sentMessages: run.sentMessages.filter(({ id }) => id !== message.id),
})

/** Sends a message to a running agent; where the prompt is not sent yet, the message follows the prompt. */
export const tell: Handler<"tell"> = (run, { text, reply }, context) => {
  const { stage, prompt = "" } = run
  if (isUnsent(run, context.task))
    return {
      run: { ...run, prompt: `${prompt}\n\n${text}` },
      commands: [{ do: "answer", reply, with: "queued" }],
    }
  if (run.lastWord) return { run, commands: [{ do: "answer", reply, with: "at its last word" }] }
  if (run.away) return { run, commands: [{ do: "answer", reply, with: { away: run.away.host } }] }
  const outgoing = { kind: "word", text, reply } as const
  if (stage === "waiting") {
    const [next, message] = addMessage(run, outgoing, context)
    return sending(next, [{ do: "store", message }])
  }
  // OpenCode answers messages in the order of arrival: the prompt must come first.
  return stage === "prompting" ? stay(addMessage(run, outgoing, context, true)[0]) : sendMessage(run, outgoing, context)
}

/** Sends the messages that waited until OpenCode had accepted the prompt. */
export function release(run: ActiveRun): MachineStep {
  const held = run.sentMessages.filter((message) => message.held)
  const sentMessages = run.sentMessages.map((message) => ({ ...message, held: false }))
  return sending(
    { ...run, sentMessages },
    held.map((message) => ({ do: "send", message: { ...message, held: false } })),
  )
}

export const sent: Handler<"sent"> = (given, { message, problem }, context) => {
  const { now } = context
  const { run, commands } = callReturned(given)
  const { reply, kind } = message
  const answer = (result: Extract<MachineCommand, { do: "answer" }>["with"]): readonly MachineCommand[] =>
    reply ? [{ do: "answer", reply, with: result }] : []
  if (!run || hasEnded(run)) return { run, commands: [...answer("ended"), ...commands] }
  if (problem === undefined) {
    const sentMessages = run.sentMessages.map((each) => (each.id === message.id ? { ...each, taken: true } : each))
    // The message is accepted: the time in which it may be absent from the session begins now.
    const missingSince = run.missingSince === undefined ? undefined : now
    return { run: { ...run, sentMessages, missingSince }, commands: [...answer("accepted"), ...commands] }
  }
  if (kind === "last-word" && run.lastWord)
    return end(run, { type: "failed", reason: run.lastWord.reason }, {}, context)
  if (kind === "check" || kind === "schema") {
    const text = `OpenCode did not take ${kind === "check" ? "the check's result" : "the question for a valid answer"}: ${problem}`
    return end(run, { type: "failed", reason: { code: "host", text } }, {}, context)
  }
  const next = { ...without(run, message), urgedAfter: undefined }
  return andThen({ run: next, commands: [...answer({ problem }), ...commands] }, (left) => readMessages(left, context))
}

/** Marks these messages as arrived. */
export const arrived = (run: ActiveRun, messages: readonly Message[]): ActiveRun => {
  const ids = new Set(messages.map(({ id }) => id))
  return {
    ...run,
    sentMessages: run.sentMessages.map((message) => (ids.has(message.id) ? { ...message, expected: false } : message)),
  }
}

/**
 * A message that the session will not answer: it arrived just before an answer to another message, or after the turn
 * had ended. OpenCode counts the message as answered.
 */
export function skippedMessage(run: ActiveRun, messages: readonly Message[]): SentMessage | undefined {
  const ids = messages.map(({ id }) => id)
  // The limit of a last word that was not read ends the run.
  const message = run.sentMessages.findLast(({ id, kind, taken }) => kind !== "last-word" && taken && ids.includes(id))
  if (!message) return undefined
  const since = new Set<string | undefined>(ids.slice(ids.indexOf(message.id)))
  return messages.every(({ parentID }) => !since.has(parentID)) ? message : undefined
}

/** Sends a skipped message again as a new message. */
export const resendMessage = (run: ActiveRun, message: SentMessage, context: RunContext): MachineStep =>
  sendMessage(without(run, message), { kind: message.kind, text: message.text }, context)

/** Asks an agent to go on after its turn ended before the work was done. */
export const askToContinue = (run: ActiveRun, why: string, context: RunContext): MachineStep =>
  sendMessage(run, { kind: "word", text: `${AUTOMATIC} ${why}` }, context)

/** Example: `Nobody allowed reading /x in time.` */
const unallowed = ({ kind, what, doing }: Ask): string =>
  kind === "permission" ? `Nobody allowed ${doing ?? `"${what}"`} in time.` : `Nobody answered "${what}" in time.`

/** Message for an agent whose question nobody answered. */
export const unansweredAskText = (ask: Ask): string =>
  `${unallowed(ask)} Go on without it; the rest of that call can be made again without it. Say in your answer what you could not do.`

/** Message after refused questions have ended the agent's turn. */
export const refusedText = (asks: readonly Ask[]): string =>
  `${asks.map(unallowed).join(" ")} The refusal ended your turn, but not your task. Go on without it, and say in your answer what you could not do.`

export const sayRepeats = (run: ActiveRun, { tool, times }: Repeated, context: RunContext): MachineStep => {
  const text = `${AUTOMATIC} You made the same call of ${oneLine(tool, MOST_TOOL_CHARS)} ${times} times in a row, and its result was the same each time. It will not change. Do something else, or finish: say in your answer what you could not do. After ${2 * context.options.maxRepeats} such calls your work is ended.`
  return sendMessage(run, { kind: "word", text }, context)
}

/**
 * Sends the request for the last word to a run that makes no request by itself, or that is interrupted for the last
 * word.
 */
export const askLastWord = (run: ActiveRun, context: RunContext, interrupts?: readonly Ask[]): MachineStep =>
  run.lastWord
    ? sendMessage(run, { kind: "last-word", text: lastWordRequest(run.lastWord.reason) }, context, interrupts)
    : stay(run)
