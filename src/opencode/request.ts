import type { Message, Part } from "@opencode-ai/sdk/v2/types"
import { isEnd } from "../core/outcome.ts"
import type { Model } from "../core/task.ts"
import { isNotice, withoutRunning } from "../present/notification.ts"
import { asksAgain } from "./convert.ts"
import { finishOf } from "./message-fields.ts"

/** What OpenCode's hook `experimental.chat.messages.transform` hands over: all that a request will tell the model. */
export type Request = { messages: { info: Message; parts: Part[] }[] }

/** The session whose model is about to be asked. */
export const sessionOf = ({ messages }: Request): string | undefined => messages[0]?.info.sessionID

/** The model that is asked. */
export function modelIn({ messages }: Request): Model | undefined {
  const asked = messages.findLast(({ info }) => info.role === "user")?.info
  // Of a message that somebody else has changed it may be anything.
  const { providerID: provider, modelID: id } = (asked?.role === "user" && asked.model) || {}
  return provider && id ? { provider, id } : undefined
}

/**
 * The turn that a request belongs to: the id of the user's message that began it, which is the first after the last
 * answer that ended a turn. It is the same in all requests of a turn, whatever messages come in its middle.
 */
export function turnOf({ messages }: Request): string {
  const last = messages.findLastIndex(({ info, parts }) => info.role === "assistant" && endsTurn(info, parts))
  const first = messages.slice(last + 1).find(({ info }) => info.role === "user")
  return (first ?? messages.at(-1))?.info.id ?? ""
}

const endsTurn = ({ error, finish }: Extract<Message, { role: "assistant" }>, parts: readonly Part[]): boolean =>
  error !== undefined || (finish !== undefined && isEnd(finishOf(finish)) && !parts.some(asksAgain))

/**
 * Leaves out of notifications what the next one says anew, where one follows directly: once a request was made, an
 * answer stands behind the last of them, so that each stays in all requests as it was in its first. Known by their
 * texts: a fork has its parent's as copies.
 */
export function leaveOutStale({ messages }: Request): void {
  for (const [index, message] of messages.entries()) {
    const next = messages[index + 1]
    if (!next || noticeIn(next) < 0) continue
    const at = noticeIn(message)
    const part = message.parts[at]
    // In place of the host's own list, and not in its parts: those may be looked at elsewhere.
    if (part?.type === "text") message.parts = message.parts.with(at, { ...part, text: withoutRunning(part.text) })
  }
}

/** Where the hidden part of a notification stands in a message; -1 where it is none. */
const noticeIn = ({ info, parts }: Request["messages"][number]): number =>
  info.role === "user" ? parts.findIndex((part) => part.type === "text" && part.synthetic && isNotice(part.text)) : -1

/**
 * Tells the model of one request something that is stored nowhere, as the user's newest message: what stands before it
 * is the same in the next request. All tools are taken away for it where that is wanted.
 */
export function tellWith(request: Request, texts: readonly string[], withoutTools = false): void {
  const newest = request.messages.findLast(({ info }) => info.role === "user")
  if (newest?.info.role !== "user") return
  const { info } = newest
  // In place: the host looks at this very object. It is read anew for each request, and not stored.
  if (withoutTools) info.tools = NO_TOOLS
  // Where the session was idle it was asked by a prompt, which is there already.
  const told = (text: string) => newest.parts.some((part) => part.type === "text" && part.text === text)
  const untold = texts.filter((text) => !told(text))
  if (untold.length === 0) return
  // Ids sort messages: this one comes after what was said since the newest message of the user.
  const last = request.messages.at(-1)?.info.id ?? info.id
  const id = `${last.slice(0, -1)}~`
  const { sessionID } = info
  const parts = untold.map(
    (text, at): Part => ({ id: `prt_${id.slice(4)}${at}`, sessionID, messageID: id, type: "text", text }),
  )
  request.messages.push({ info: { ...info, id }, parts })
}

/** Says of every tool that it is off, whatever its name: those of MCP servers are known to nobody here. */
const NO_TOOLS: Record<string, boolean> = new Proxy(
  {},
  {
    get: () => false,
    has: () => true,
    getOwnPropertyDescriptor: () => ({ value: false, enumerable: true, configurable: true }),
  },
)
