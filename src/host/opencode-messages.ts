import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Stored } from "./history.ts"
import { call } from "./opencode.ts"
import { CALL_MS, Pace } from "./pace.ts"

/** Messages read in one call. */
const PAGE = { first: 20, most: 200, targetMs: CALL_MS }

/** All messages of a session, oldest first, read in pages from the newest on. */
export async function storedMessages(client: OpencodeClient, sessionID: string): Promise<readonly Stored[]> {
  const pages: Stored[][] = []
  const pace = new Pace(PAGE)
  for (let before: string | undefined; ; ) {
    const begin = performance.now()
    const request = client.session.messages({ sessionID, limit: pace.size, before })
    pages.push(await call("read messages", request))
    pace.took(performance.now() - begin)
    before = (await request).response?.headers.get("x-next-cursor") ?? undefined
    if (before === undefined) return pages.reverse().flat()
  }
}
