import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Part } from "@opencode-ai/sdk/v2/types"
import { OpencodeError } from "../../../core/ports.ts"
import { yieldToEventLoop } from "../../../lib/clock.ts"
import { call } from "../../../opencode/client.ts"
import { type StoredMessage, storedMessages } from "../../../opencode/messages.ts"
import type { HistoryMessage } from "../ports.ts"
import { fromHistoryPart, isAnswered, keepsTail } from "./history.ts"

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

export type Rewrite =
  | { readonly type: "delete message"; readonly messageID: string }
  | { readonly type: "delete part"; readonly messageID: string; readonly partID: string }
  | { readonly type: "update part"; readonly part: Part }

/**
 * Changes that make the copy of `sources` hold exactly `kept`, with the same content as `forkEvents`. Undefined where
 * the copy does not match.
 */
export function rewrites(
  sources: readonly StoredMessage[],
  copies: readonly StoredMessage[],
  kept: readonly HistoryMessage[],
): readonly Rewrite[] | undefined {
  if (sources.length !== copies.length) return undefined
  const wanted = new Map(kept.map((message) => [message.id, message]))
  const tailID = copies.find((_, index) => wanted.has(sources[index]?.info.id ?? ""))?.info.id ?? ""
  const changes: Rewrite[] = []
  for (const [index, copy] of copies.entries()) {
    const source = sources[index] as StoredMessage
    if (source.info.role !== copy.info.role || source.parts.length !== copy.parts.length) return undefined
    const message = wanted.get(source.info.id)
    if (!message) changes.push({ type: "delete message", messageID: copy.info.id })
    else changes.push(...partRewrites(source, copy, message, { tailID, answered: isAnswered(message, kept) }))
  }
  return changes
}

function partRewrites(
  source: StoredMessage,
  copy: StoredMessage,
  message: HistoryMessage,
  { tailID, answered }: { tailID: string; answered: boolean },
): readonly Rewrite[] {
  const wanted = new Map(message.parts.map((part) => [(part.handle as Part).id, part]))
  return source.parts.flatMap((from, index): Rewrite[] => {
    const { id, messageID, sessionID } = copy.parts[index] as Part
    const part = wanted.get(from.id)
    const content = part && fromHistoryPart(part, answered)
    if (!content) return [{ type: "delete part", messageID, partID: id }]
    if (keepsTail(content))
      return [{ type: "update part", part: { ...content, id, messageID, sessionID, tail_start_id: tailID } }]
    return content === from ? [] : [{ type: "update part", part: { ...content, id, messageID, sessionID } }]
  })
}
