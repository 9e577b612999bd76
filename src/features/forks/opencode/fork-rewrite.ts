import type { Part } from "@opencode-ai/sdk/v2/types"
import type { StoredMessage } from "../../../opencode/messages.ts"
import type { HistoryMessage } from "../ports.ts"
import { fromHistoryPart, isAnswered, keepsTail } from "./history.ts"

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
