import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Message, Part } from "@opencode-ai/sdk/v2/types"
import { find } from "./client.ts"
import { CALL_MS, Pace } from "./pace.ts"

/** A message as OpenCode's API returns it. */
export type Stored = { readonly info: Message; readonly parts: readonly Part[] }

/** Messages of one call. */
const PAGE = { first: 20, most: 200, targetMs: CALL_MS }

/**
 * Messages of a session, oldest first. Pages are read from the newest on until `isEnough` of the last page; empty where
 * the session is gone.
 */
export async function storedMessages(
  client: OpencodeClient,
  sessionID: string,
  isEnough: (page: readonly Stored[]) => Promise<boolean> = async () => false,
): Promise<readonly Stored[]> {
  const pages: Stored[][] = []
  const pace = new Pace(PAGE)
  for (let before: string | undefined; ; ) {
    const begin = performance.now()
    const request = client.session.messages({ sessionID, limit: pace.size, before })
    const page = (await find("read messages", request)) ?? []
    pace.took(performance.now() - begin)
    pages.push(page)
    before = (await request).response?.headers.get("x-next-cursor") ?? undefined
    if (before === undefined || (await isEnough(page))) return pages.reverse().flat()
  }
}
