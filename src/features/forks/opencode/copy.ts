import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { OpencodeError } from "../../../core/ports.ts"
import { call, yieldToEventLoop } from "../../../opencode/client.ts"
import type { StoredMessage } from "../../../opencode/messages.ts"
import { storedMessages } from "../../../opencode/messages.ts"
import type { HistoryMessage } from "../ports.ts"
import { type Rewrite, rewrites } from "./fork-rewrite.ts"

/**
 * Rewrites a copy made by `session.fork` so that it holds exactly `kept`. Rejects where OpenCode would compact the copy
 * at once, because the copy's stored token counts cannot be changed.
 */
export async function rewriteCopy(
  client: OpencodeClient,
  {
    sessionID,
    sources,
    compactionLimit,
  }: { sessionID: string; sources: readonly StoredMessage[]; compactionLimit: number | undefined },
  kept: readonly HistoryMessage[],
): Promise<void> {
  const weight = weightOf(kept)
  if (compactionLimit !== undefined && weight >= compactionLimit)
    throw new OpencodeError(`copy the history: its ${weight} tokens leave no room, OpenCode would compact the copy`)
  const changes = rewrites(sources, await storedMessages(client, sessionID), kept)
  if (!changes) throw new OpencodeError("copy the history: OpenCode copied something else")
  for (const change of changes) {
    await call("rewrite the history", carryOut(client, sessionID, change))
    await yieldToEventLoop()
  }
}

/** Token count of the copy's last answer. OpenCode takes this number for the size of the copy. */
function weightOf(kept: readonly HistoryMessage[]): number {
  const infos = kept.map(({ handle }) => (handle as StoredMessage).info)
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
