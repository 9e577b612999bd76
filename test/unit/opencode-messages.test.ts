import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { expect, test } from "vitest"
import { OpencodeHttpApi } from "../../src/opencode/api.ts"
import { registerInstance } from "../../src/runtime/record/identity.ts"
import { FakeClock } from "../support/fake-clock.ts"
import { SIGNER } from "../support/records.ts"

const GONE = { error: { name: "NotFoundError" }, response: new Response(null, { status: 404 }) }

/** A session of so many messages, which OpenCode hands out from the newest on; counts what it was asked for. */
const hostWith = (count: number) => {
  const ids = Array.from({ length: count }, (_, index) => `msg_${String(index).padStart(6, "0")}`)
  const all = ids.map((id) => ({ info: { id, role: "user", time: { created: 1 } }, parts: [] }))
  const asked = { pages: [] as number[], handed: 0, single: 0 }
  const messages = async ({ sessionID, limit, before }: { sessionID: string; limit: number; before?: string }) => {
    if (sessionID !== "ses_child") return GONE
    const end = before === undefined ? count : Number(before)
    const start = Math.max(0, end - limit)
    asked.pages.push(limit)
    asked.handed += end - start
    const headers = start > 0 ? { "x-next-cursor": String(start) } : undefined
    return { data: all.slice(start, end), response: new Response(null, { headers }) }
  }
  const message = async ({ messageID }: { messageID: string }) => {
    asked.single++
    const data = all.find(({ info }) => info.id === messageID)
    return data ? { data, response: new Response() } : GONE
  }
  const client = { session: { messages, message } } as unknown as OpencodeClient
  return { asked, ids, opencode: new OpencodeHttpApi(client, registerInstance(), SIGNER, new FakeClock()) }
}

test("the messages of a long run are read in small pages, with few messages from before", async () => {
  const { asked, ids, opencode } = hostWith(5000)
  const since = await opencode.messagesSince("ses_child", ids[3900] ?? "")
  expect(since.map(({ id }) => id)).toEqual(ids.slice(3900))
  expect(Math.max(...asked.pages)).toBeLessThanOrEqual(200)
  expect(asked.handed).toBeLessThanOrEqual(1100 + 200)
  expect(asked.single).toBe(1)
})

test("the messages of a short run are read in one call", async () => {
  const { asked, ids, opencode } = hostWith(5000)
  expect(await opencode.messagesSince("ses_child", ids[4990] ?? "")).toHaveLength(10)
  expect(asked).toMatchObject({ pages: { length: 1 }, single: 0 })
})

test("a prompt that is not stored is not searched for in the whole session", async () => {
  const { asked, opencode } = hostWith(5000)
  expect(await opencode.messagesSince("ses_child", "msg_none")).toEqual([])
  expect(asked).toMatchObject({ pages: { length: 1 }, single: 1 })
  expect(await opencode.messagesSince("ses_gone", "msg_none")).toEqual([])
})
