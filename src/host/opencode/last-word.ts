import type { Message, Part } from "@opencode-ai/sdk/v2/types"

/** What OpenCode's hook `experimental.chat.messages.transform` hands over: all that a request will tell the model. */
export type Request = { messages: { info: Message; parts: Part[] }[] }

/** The session whose model is about to be asked. */
export const sessionOf = ({ messages }: Request): string | undefined => messages[0]?.info.sessionID

/**
 * Tells the model of one request something that is stored nowhere, as the user's newest message, and takes all tools
 * away for it where that is wanted.
 */
export function tellWith(request: Request, text: string, withoutTools: boolean): void {
  const newest = request.messages.findLast(({ info }) => info.role === "user")
  if (newest?.info.role !== "user") return
  const { info } = newest
  // In place: the host looks at this very object. It is read anew for each request, and not stored.
  if (withoutTools) info.tools = NO_TOOLS
  // Where the session was idle it was asked by a prompt, which is there already.
  if (newest.parts.some((part) => part.type === "text" && part.text === text)) return
  // Ids sort messages: this one comes after what was said since the newest message of the user.
  const last = request.messages.at(-1)?.info.id ?? info.id
  const id = `${last.slice(0, -1)}~`
  const part: Part = { id: `prt_${id.slice(4)}`, sessionID: info.sessionID, messageID: id, type: "text", text }
  request.messages.push({ info: { ...info, id }, parts: [part] })
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
