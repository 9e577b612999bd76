import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { HostError } from "../../../core/ports.ts"
import { call } from "../../../opencode/client.ts"
import { storedMessages } from "../../../opencode/messages.ts"
import { rest } from "../../../opencode/pace.ts"
import type { HistoryMessage } from "../ports.ts"
import { type Rewrite, rewrites } from "./fork-rewrite.ts"
import type { Stored } from "./history.ts"

/** How many tokens a model's requests may have before OpenCode compacts the session; undefined where nobody knows. */
export type Room = number | undefined

/**
 * Rewrites what `session.fork` copied until it holds `kept` and no more. The copy is a root session with all that was
 * said before, its steps' figures, and the parent's metadata; what it says of its weight cannot be rewritten, so a copy
 * that the host would compact at once is refused. Its calls are small and others run between them.
 */
export async function rewriteCopy(
  client: OpencodeClient,
  { sessionID, sources, room }: { sessionID: string; sources: readonly Stored[]; room: Room },
  kept: readonly HistoryMessage[],
): Promise<void> {
  const weight = weightOf(kept)
  if (room !== undefined && weight >= room)
    throw new HostError(`copy the history: its ${weight} tokens leave no room, OpenCode would compact the copy`)
  const changes = rewrites(sources, await storedMessages(client, sessionID), kept)
  if (!changes) throw new HostError("copy the history: OpenCode copied something else")
  for (const change of changes) {
    await call("rewrite the history", carryOut(client, sessionID, change))
    await rest()
  }
}

/** What the host believes that the copy weighs: the count of its last answer. */
function weightOf(kept: readonly HistoryMessage[]): number {
  const infos = kept.map(({ handle }) => (handle as Stored).info)
  const last = infos.findLast((info) => info.role === "assistant")
  if (last?.role !== "assistant" || last.summary) return 0
  const { total, input, output, cache } = last.tokens
  return total || input + output + cache.read + cache.write
}

function carryOut(client: OpencodeClient, sessionID: string, change: Rewrite): Promise<{ data?: unknown }> {
  switch (change.type) {
    case "delete message":
      return client.session.deleteMessage({ sessionID, messageID: change.messageID })
    case "delete part":
      return client.part.delete({ sessionID, messageID: change.messageID, partID: change.partID })
    case "update part": {
      const { part } = change
      return client.part.update({ sessionID, messageID: part.messageID, partID: part.id, part })
    }
  }
}
