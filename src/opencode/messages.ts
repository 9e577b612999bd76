import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Message, Part } from "@opencode-ai/sdk/v2/types"
import { OpencodeError } from "../core/ports.ts"
import { find } from "./client.ts"
import { CALL_MS, Pace } from "./pace.ts"

/** A message as OpenCode's API returns it. */
export type StoredMessage = { readonly info: Message; readonly parts: readonly Part[] }

/** Messages of one call. */
const PAGE = { first: 20, most: 200, targetMs: CALL_MS }

/** Pages of a session's messages from the newest on, each oldest first; empty where the session is gone. */
export async function* pagesOf(
  client: OpencodeClient,
  sessionID: string,
  mostPages = Number.POSITIVE_INFINITY,
): AsyncGenerator<{ page: readonly StoredMessage[]; isFirst: boolean }> {
  const pace = new Pace(PAGE)
  let before: string | undefined
  for (let pages = 0; pages < mostPages; pages++) {
    const begin = performance.now()
    const request = client.session.messages({ sessionID, limit: pace.size, before })
    const page = (await find("read messages", request)) ?? []
    pace.took(performance.now() - begin)
    before = (await request).response?.headers.get("x-next-cursor") ?? undefined
    yield { page, isFirst: before === undefined }
    if (before === undefined) return
  }
  throw new OpencodeError("read messages: there are more messages than can be read")
}

/**
 * Messages of a session, oldest first. Pages are read from the newest on until `isEnough` of the last page; empty where
 * the session is gone.
 */
export async function storedMessages(
  client: OpencodeClient,
  sessionID: string,
  isEnough: (page: readonly StoredMessage[]) => Promise<boolean> = async () => false,
  mostPages?: number,
): Promise<readonly StoredMessage[]> {
  const pages: (readonly StoredMessage[])[] = []
  for await (const { page, isFirst } of pagesOf(client, sessionID, mostPages)) {
    pages.push(page)
    if (isFirst || (await isEnough(page))) break
  }
  return pages.reverse().flat()
}

/** Last message that is wanted, where there is one. */
export async function lastWanted<Read>(
  pages: ReturnType<typeof pagesOf>,
  read: (stored: StoredMessage) => Read,
  isWanted: (message: Read) => boolean,
): Promise<Read | undefined> {
  for await (const { page } of pages) {
    const found = page.map(read).findLast(isWanted)
    if (found) return found
  }
  return undefined
}
