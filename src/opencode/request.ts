import type { Message, Part, UserMessage } from "@opencode-ai/sdk/v2/types"
import { isFinalFinish } from "../core/outcome.ts"
import type { Model } from "../core/task.ts"
import { addBounded } from "../lib/collections.ts"
import { isNotice, withoutRunning } from "../present/notification.ts"
import { asksAgain, finishOf, LAUNCHING_TOOL } from "./convert.ts"

/** Argument of `experimental.chat.messages.transform`: the whole conversation of a request. */
export type RequestMessages = { messages: { info: Message; parts: Part[] }[] }

export const sessionOf = ({ messages }: RequestMessages): string | undefined => messages[0]?.info.sessionID

export function modelIn({ messages }: RequestMessages): Model | undefined {
  const asked = messages.findLast(({ info }) => info.role === "user")?.info
  // Another plugin may have changed the message, so the model can be missing.
  const { providerID: provider, modelID: id, variant } = (asked?.role === "user" && asked.model) || {}
  return provider && id ? { provider, id, ...(variant && { variant }) } : undefined
}

/**
 * Id of the user message that began the turn: the first after the last answer that ended a turn. Messages during the
 * turn do not change the id.
 */
export function turnOf({ messages }: RequestMessages): string {
  const last = messages.findLastIndex(({ info, parts }) => info.role === "assistant" && endsTurn(info, parts))
  const first = messages.slice(last + 1).find(({ info }) => info.role === "user")
  return (first ?? messages.at(-1))?.info.id ?? ""
}

const endsTurn = ({ error, finish }: Extract<Message, { role: "assistant" }>, parts: readonly Part[]): boolean =>
  error !== undefined || (finish !== undefined && isFinalFinish(finishOf(finish)) && !parts.some(asksAgain))

/**
 * Removes from a notification the list that the directly following notification repeats; a notification that the model
 * has answered never changes, so that request prefixes stay stable. Notifications are recognized by text, because forks
 * have copies.
 */
export function leaveOutStale({ messages }: RequestMessages): void {
  for (const [index, message] of messages.entries()) {
    const next = messages[index + 1]
    if (!next || noticeIn(next) < 0) continue
    const at = noticeIn(message)
    const part = message.parts[at]
    // Replaces the list of parts and leaves the old parts unchanged, because other code may hold them.
    if (part?.type === "text") message.parts = message.parts.with(at, { ...part, text: withoutRunning(part.text) })
  }
}

/** Index of a notification's hidden part; -1 for other messages. */
const noticeIn = ({ info, parts }: RequestMessages["messages"][number]): number =>
  info.role === "user" ? parts.findIndex((part) => part.type === "text" && part.synthetic && isNotice(part.text)) : -1

/**
 * Adds texts to one request only, in a user message at its end, so that the next request keeps the same prefix.
 * `withoutTools` removes all tools from the request.
 */
export function addRequestText(request: RequestMessages, texts: readonly string[], withoutTools = false): void {
  const newest = request.messages.findLast(({ info }) => info.role === "user")
  if (newest?.info.role !== "user") return
  const { info } = newest
  // Changed in place: OpenCode uses this object for the request. OpenCode makes it anew for each request and does not
  // store it.
  if (withoutTools) info.tools = NO_TOOLS
  // An idle session may have been sent the text as a prompt already.
  const told = (text: string) => newest.parts.some((part) => part.type === "text" && part.text === text)
  const untold = texts.filter((text) => !told(text))
  if (untold.length === 0) return
  // OpenCode sorts messages by id, so the new message gets an id after the newest.
  const last = request.messages.at(-1)?.info.id ?? info.id
  const id = `${last.slice(0, -1)}~`
  const { sessionID } = info
  const parts = untold.map(
    (text, at): Part => ({ id: `prt_${id.slice(4)}${at}`, sessionID, messageID: id, type: "text", text }),
  )
  request.messages.push({ info: { ...info, id }, parts })
}

/** Disables every tool, whatever its name is, because the names of MCP tools are not known here. */
const NO_TOOLS: Record<string, boolean> = new Proxy(
  {},
  {
    get: () => false,
    has: () => true,
    getOwnPropertyDescriptor: () => ({ value: false, enumerable: true, configurable: true }),
  },
)

/** Tool setting of a user message that hides OpenCode's `task` tool. */
const WITHOUT_NATIVE: Readonly<Record<string, boolean>> = { [LAUNCHING_TOOL]: false }
/** Most sessions that are kept. Sessions with an active turn are among the newest. */
const MOST_SESSIONS = 256

/**
 * Hides OpenCode's own `task` tool through the tool settings of user messages, so that permissions stay as they are. A
 * turn in which a user mentions an agent keeps the tool, because OpenCode needs it there.
 */
export class NativeTask {
  readonly #mentioned = new Map<string, true>()

  /** Called when a user message is about to be stored. */
  written(message: Pick<UserMessage, "sessionID" | "tools">, parts: readonly Part[]): void {
    const { sessionID } = message
    if (parts.some(({ type }) => type === "agent")) addBounded(this.#mentioned, sessionID, true, MOST_SESSIONS)
    else if (!this.#mentioned.has(sessionID)) message.tools = { ...message.tools, ...WITHOUT_NATIVE }
  }

  /**
   * Called before a request. Messages that OpenCode writes itself, as after a compaction, have no tool settings yet.
   */
  asked({ messages }: RequestMessages): void {
    const newest = messages.findLast(({ info }) => info.role === "user")?.info
    // Changed in place: OpenCode uses this object for the request.
    if (newest?.role === "user" && !this.#mentioned.has(newest.sessionID))
      newest.tools = { ...newest.tools, ...WITHOUT_NATIVE }
  }

  /** Called when the session's turn is over. */
  idle(sessionID: string): void {
    this.#mentioned.delete(sessionID)
  }
}

/** Names of OpenCode's options for a provider's cache key. */
const CACHE_KEYS = ["promptCacheKey", "prompt_cache_key"] as const
/** Id of OpenCode's own provider, which uses headers instead of a cache key. */
const OWN_PROVIDER = "opencode"

/**
 * Replaces the session's cache key by that of `sharedSessionID`, the session whose request prefix is shared. Options in which
 * OpenCode has set no key stay as they are.
 */
export function cacheKeyInOptions(options: Record<string, unknown>, sessionID: string, sharedSessionID: string): void {
  for (const key of CACHE_KEYS) if (options[key] === sessionID) options[key] = sharedSessionID
}

/** Sets the header by which a provider routes a session's requests to one machine. */
export function cacheKeyInHeaders(headers: Record<string, string>, providerID: string, sharedSessionID: string): void {
  if (!providerID.startsWith(OWN_PROVIDER)) headers["x-session-affinity"] = sharedSessionID
}
