import type { Part, UserMessage } from "@opencode-ai/sdk/v2/types"
import { addBounded } from "../lib/bounded-set.ts"
import { LAUNCHING_TOOL } from "./message-fields.ts"
import type { RequestMessages } from "./request.ts"

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
