import type { Message, Part, UserMessage } from "@opencode-ai/sdk/v2/types"
import { isFinalFinish } from "../core/outcome.ts"
import type { Model } from "../core/task.ts"
import { addBounded } from "../lib/bounded-set.ts"
import { isNotice, withoutRunning } from "../present/notification.ts"
import { asksAgain, finishOf, LAUNCHING_TOOL } from "./convert.ts"

/** Argument of `experimental.chat.messages.transform`: the whole conversation of a request. */
export type RequestMessages = { messages: { info: Message; parts: Part[] }[] }

export const sessionOf = ({ messages }: RequestMessages): string | undefined => messages[0]?.info.sessionID

export function modelIn({ messages }: RequestMessages): Model | undefined {
  const asked = messages.findLast(({ info }) => info.role === "user")?.info
  // Other plugins may have changed the message.
  const { providerID: provider, modelID: id } = (asked?.role === "user" && asked.model) || {}
  return provider && id ? { provider, id } : undefined
}

/**
 * Id of the user's message that began the turn: the first after the last answer that ended one. Messages during the
 * turn do not change it.
 */
export function turnOf({ messages }: RequestMessages): string {
  const last = messages.findLastIndex(({ info, parts }) => info.role === "assistant" && endsTurn(info, parts))
  const first = messages.slice(last + 1).find(({ info }) => info.role === "user")
  return (first ?? messages.at(-1))?.info.id ?? ""
}

const endsTurn = ({ error, finish }: Extract<Message, { role: "assistant" }>, parts: readonly Part[]): boolean =>
  error !== undefined || (finish !== undefined && isFinalFinish(finishOf(finish)) && !parts.some(asksAgain))

/**
 * Removes repeated parts of notifications that directly follow each other. Answered ones never change, so request
 * prefixes stay stable; they are recognized by text, because forks have copies.
 */
export function leaveOutStale({ messages }: RequestMessages): void {
  for (const [index, message] of messages.entries()) {
    const next = messages[index + 1]
    if (!next || noticeIn(next) < 0) continue
    const at = noticeIn(message)
    const part = message.parts[at]
    // Replaces the list, not its parts, which other code may hold.
    if (part?.type === "text") message.parts = message.parts.with(at, { ...part, text: withoutRunning(part.text) })
  }
}

/** Index of a notification's hidden part; -1 for other messages. */
const noticeIn = ({ info, parts }: RequestMessages["messages"][number]): number =>
  info.role === "user" ? parts.findIndex((part) => part.type === "text" && part.synthetic && isNotice(part.text)) : -1

/**
 * Adds a text to one request only, to the newest user message, so that the prefix stays the same in the next request.
 * `withoutTools` removes all tools from it.
 */
export function addRequestText(request: RequestMessages, texts: readonly string[], withoutTools = false): void {
  const newest = request.messages.findLast(({ info }) => info.role === "user")
  if (newest?.info.role !== "user") return
  const { info } = newest
  // In place: OpenCode uses this very object, which is built for each request and not stored.
  if (withoutTools) info.tools = NO_TOOLS
  // An idle session got the text as a prompt already.
  const told = (text: string) => newest.parts.some((part) => part.type === "text" && part.text === text)
  const untold = texts.filter((text) => !told(text))
  if (untold.length === 0) return
  // Messages are sorted by id: this one must come after the newest.
  const last = request.messages.at(-1)?.info.id ?? info.id
  const id = `${last.slice(0, -1)}~`
  const { sessionID } = info
  const parts = untold.map(
    (text, at): Part => ({ id: `prt_${id.slice(4)}${at}`, sessionID, messageID: id, type: "text", text }),
  )
  request.messages.push({ info: { ...info, id }, parts })
}

/** Disables every tool by any name, because names of MCP tools are not known here. */
const NO_TOOLS: Record<string, boolean> = new Proxy(
  {},
  {
    get: () => false,
    has: () => true,
    getOwnPropertyDescriptor: () => ({ value: false, enumerable: true, configurable: true }),
  },
)

/** Setting in user messages that hides the tool. */
const WITHOUT_NATIVE: Readonly<Record<string, boolean>> = { [LAUNCHING_TOOL]: false }
/** Most sessions kept: active turns are among the newest. */
const MOST_SESSIONS = 256

/**
 * Hides OpenCode's own `task` tool by the tool settings of user messages, without changing permissions. A turn with a
 * mention of an agent keeps the tool, because OpenCode needs it there.
 */
export class NativeTask {
  readonly #mentioned = new Map<string, true>()

  /** A user's message is about to be stored. */
  written(message: Pick<UserMessage, "sessionID" | "tools">, parts: readonly Part[]): void {
    const { sessionID } = message
    if (parts.some(({ type }) => type === "agent")) addBounded(this.#mentioned, sessionID, true, MOST_SESSIONS)
    else if (!this.#mentioned.has(sessionID)) message.tools = { ...message.tools, ...WITHOUT_NATIVE }
  }

  /** A request is about to be made. OpenCode's own messages, as after a compaction, have no tool settings. */
  asked({ messages }: RequestMessages): void {
    const newest = messages.findLast(({ info }) => info.role === "user")?.info
    // In place: OpenCode uses this very object.
    if (newest?.role === "user" && !this.#mentioned.has(newest.sessionID))
      newest.tools = { ...newest.tools, ...WITHOUT_NATIVE }
  }

  /** The session's turn is over. */
  idle(sessionID: string): void {
    this.#mentioned.delete(sessionID)
  }
}
