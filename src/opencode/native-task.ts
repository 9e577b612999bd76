import type { Part, UserMessage } from "@opencode-ai/sdk/v2/types"
import { addBounded } from "../lib/bounded-set.ts"
import type { Request } from "./request.ts"

/** OpenCode's own tool that hands work to agents. */
const NATIVE = "task"
/** What each user's message says of it where it is not to be offered. */
export const WITHOUT_NATIVE: Readonly<Record<string, boolean>> = { [NATIVE]: false }
/** Sessions remembered at most: a turn that goes on is among the newest. */
const MOST_SESSIONS = 256

/**
 * Takes OpenCode's own `task` out of all requests, by what each user's message says of tools: permissions stay as they
 * are. The host needs the tool for a message that mentions an agent, so that one's turn keeps it, with all that comes in
 * its middle.
 */
export class NativeTask {
  readonly #mentioned = new Map<string, true>()

  /** A user's message is about to be stored. */
  written(message: Pick<UserMessage, "sessionID" | "tools">, parts: readonly Part[]): void {
    const { sessionID } = message
    if (parts.some(({ type }) => type === "agent")) addBounded(this.#mentioned, sessionID, true, MOST_SESSIONS)
    else if (!this.#mentioned.has(sessionID)) message.tools = { ...message.tools, ...WITHOUT_NATIVE }
  }

  /** A request is about to be made. What the host writes by itself, as after a compaction, says nothing of tools. */
  asked({ messages }: Request): void {
    const newest = messages.findLast(({ info }) => info.role === "user")?.info
    // In place: the host looks at this very object.
    if (newest?.role === "user" && !this.#mentioned.has(newest.sessionID))
      newest.tools = { ...newest.tools, ...WITHOUT_NATIVE }
  }

  /** The session's turn is over. */
  idle(sessionID: string): void {
    this.#mentioned.delete(sessionID)
  }
}
