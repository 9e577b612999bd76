import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { OpencodeError } from "../../../core/ports.ts"
import { CALL_MS, call, Pace, yieldToEventLoop } from "../../../opencode/client.ts"
import type { HistoryMessage } from "../ports.ts"
import { forkEvents } from "./fork-events.ts"

const SLICE = { first: 8, most: 100, targetMs: CALL_MS }

/**
 * Writes messages of `tokens` tokens into a new session by OpenCode's replay route. Rejects with `notFound` where there
 * is no such route.
 */
export async function replay(
  client: OpencodeClient,
  { sessionID, directory }: { sessionID: string; directory: string },
  messages: readonly HistoryMessage[],
  tokens: number,
): Promise<void> {
  const events = forkEvents(sessionID, messages, tokens)
  const pace = new Pace(SLICE)
  for (let at = 0; at < events.length; ) {
    const slice = events.slice(at, at + pace.size)
    const begin = performance.now()
    const answer = await call("write the history", client.sync.replay({ body_directory: directory, events: slice }))
    // For an unknown route, OpenCode answers with its web page.
    if (answer?.sessionID !== sessionID)
      throw new OpencodeError("write the history: OpenCode has no such route", { notFound: true })
    pace.took(performance.now() - begin)
    at += slice.length
    await yieldToEventLoop()
  }
}
