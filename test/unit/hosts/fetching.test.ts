import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../../src/core/ports.ts"
import type { CallOptions } from "../../../src/features/hosts/channel.ts"
import { BASE_URL, callOver, fetchOver } from "../../../src/features/hosts/fetching.ts"
import { bytesOf } from "../../../src/features/hosts/frames.ts"
import { openRemote } from "../../../src/features/hosts/opencode/remote.ts"
import type { CallEnd } from "../../../src/features/hosts/orders.ts"

/** A server on another machine that answers with what no server should: nothing of it gets further than an error. */

const json = (body: unknown, headers: Record<string, string> = {}) =>
  new Response(JSON.stringify(body), { status: 200, headers: { "content-type": "application/json", ...headers } })

const far = (answer: (request: Request) => Response) => openRemote(async (request) => answer(request), BASE_URL)

const info = (more: object = {}) => ({
  id: "msg_1",
  role: "assistant",
  parentID: "msg_0",
  time: { created: 5, completed: 6 },
  path: { cwd: "/w", root: "/w" },
  tokens: { input: 1, output: 2, reasoning: 0, cache: { read: 0, write: 0 } },
  cost: 0.5,
  ...more,
})
const prompt = { info: { id: "msg_0", role: "user", time: { created: 1 } }, parts: [] }

describe("invalid answers of a host", () => {
  const ABSURD = [null, 3, "x", {}, { providers: 3 }, [null], [{ info: null }], [{ info: { id: "msg_0" }, parts: 3 }]]

  test.each(ABSURD.map((body) => [body]))(
    "an invalid answer from a host's server, %j, is reported as an OpencodeError",
    async (body) => {
      const server = far(() => json(body))
      const calls: Promise<unknown>[] = [
        server.agents("/w"),
        server.models("/w"),
        server.sessionOf("/w", "bg_1"),
        server.messagesSince("ses_1", "msg_0"),
        server.lastMessage("ses_1"),
        server.openTodos("ses_1"),
        server.folder("/w"),
      ]
      for (const call of await Promise.allSettled(calls))
        if (call.status === "rejected") expect(call.reason).toBeInstanceOf(OpencodeError)
      expect((await Promise.allSettled(calls)).some(({ status }) => status === "rejected")).toBe(true)
    },
  )

  test("negative or invalid usage figures from a host count as 0", async () => {
    const tokens = { input: -5e9, output: "9", reasoning: null, cache: { read: {}, write: 7 } }
    const server = far(() => json([prompt, { info: info({ tokens, cost: -1000 }), parts: [] }]))
    const [, answer] = await server.messagesSince("ses_1", "msg_0")
    expect(answer?.usage).toEqual({ input: 0, output: 0, reasoning: 0, cacheRead: 0, cacheWrite: 7, cost: 0 })
  })

  test("invalid times in a host's messages are reported as an OpencodeError", async () => {
    const server = far(() => json([prompt, { info: info({ time: { created: "yesterday" } }), parts: [] }]))
    await expect(server.messagesSince("ses_1", "msg_0")).rejects.toThrow(OpencodeError)
  })

  test("the last wanted message of a host's session is looked for in earlier pages", async () => {
    const server = far(({ url }) =>
      url.includes("before=") ? json([prompt]) : json([{ info: info(), parts: [] }], { "x-next-cursor": "more" }),
    )
    expect(await server.lastMessage("ses_1", ({ role }) => role === "user")).toMatchObject({ id: "msg_0" })
  })

  test("endless pages of messages from a host are ended with an error", async () => {
    let pages = 0
    const server = far(() => {
      pages++
      return json([{ info: info({ id: `msg_x${pages}` }), parts: [] }], { "x-next-cursor": "more" })
    })
    await expect(server.messagesSince("ses_1", "msg_0")).rejects.toThrow("more messages than can be read")
    expect(pages).toBeLessThan(1000)
  })

  test("thousands of questions from a host are cut to at most twenty", async () => {
    const asked = Array.from({ length: 5000 }, (_, at) => ({
      id: `per_${at}`,
      sessionID: "ses_1",
      permission: `\u001b[2J${"x".repeat(10_000)}`,
      patterns: [],
    }))
    const server = far(({ url }) => json(url.includes("/permission") ? asked : url.includes("/question") ? [] : {}))
    const { asks } = await server.folder("/w")
    expect(asks.length).toBeLessThanOrEqual(20)
    expect(asks[0]?.what.length).toBeLessThanOrEqual(200)
    expect(asks[0]?.what).not.toContain("\u001b")
  })
})

const SERVE = { do: "serve" } as const

describe("endless output of a host", () => {
  /** A link whose far end sends so many megabytes. */
  const sending = (megabytes: number, head?: object) => {
    let stopped = false
    const call = async (_order: unknown, { receiver, signal }: CallOptions = {}): Promise<CallEnd> => {
      if (head) receiver?.head?.(JSON.stringify(head))
      const body = new Uint8Array(1_048_576)
      for (let sent = 0; sent < megabytes; sent++) {
        if (signal?.aborted) {
          stopped = true
          return { problem: "aborted" }
        }
        receiver?.data?.(body)
        await Promise.resolve()
      }
      return {}
    }
    return { link: { call }, wasStopped: () => stopped }
  }

  test("endless output of an order on a host is stopped at 16 MB", async () => {
    const { link, wasStopped } = sending(10_000)
    await expect(callOver(link, SERVE)).rejects.toThrow("more than 16 MB came for one answer")
    expect(wasStopped()).toBe(true)
    expect((await callOver(sending(2).link, SERVE)).out.length).toBe(2 * 1_048_576)
  })

  test("endless output of an order on a host is stopped when its receiver refuses more", async () => {
    const { link, wasStopped } = sending(10_000)
    let taken = 0
    const take = () => {
      if (++taken > 3) throw new Error("enough")
    }
    await expect(callOver(link, SERVE, { take })).rejects.toThrow("enough")
    expect([taken, wasStopped()]).toEqual([4, true])
  })

  test("an endless response of a host's server is stopped at 64 MB", async () => {
    const { link, wasStopped } = sending(10_000, { status: 200, headers: {} })
    const response = await fetchOver(link)(new Request(`${BASE_URL}/x`))
    await expect(response.text()).rejects.toThrow("more than 64 MB came for one answer")
    expect(wasStopped()).toBe(true)
  })

  test("parallel answers from hosts are limited to 256 MB in all, without those that have ended", async () => {
    const body = new Uint8Array(15 * 2 ** 20)
    let opened: Promise<void> | undefined
    const call = async (_order: unknown, { receiver }: CallOptions = {}): Promise<CallEnd> => {
      receiver?.data?.(body)
      await opened
      return {}
    }
    const link = { call }
    for (const many of [17, 18, 17]) {
      let open = () => {}
      opened = new Promise((resolve) => {
        open = resolve
      })
      const calls = Array.from({ length: many }, () => callOver(link, SERVE).then(() => "done", String))
      open()
      const refused = (await Promise.all(calls)).filter((each) => each !== "done")
      expect(refused).toEqual(many === 18 ? ["Error: more than 256 MB came for all answers together"] : [])
    }
  })

  test("a response of a host's server is received no faster than it is read", async () => {
    let taking: void | Promise<void>
    let isTaken = false
    const call = async (_order: unknown, { receiver }: CallOptions = {}): Promise<CallEnd> => {
      receiver?.head?.(JSON.stringify({ status: 200, headers: {} }))
      taking = receiver?.data?.(bytesOf("one"))
      await taking
      isTaken = true
      return {}
    }
    const response = await fetchOver({ call })(new Request(`${BASE_URL}/x`))
    await new Promise((resolve) => setImmediate(resolve))
    expect(isTaken).toBe(false)
    expect(await response.text()).toBe("one")
    expect(isTaken).toBe(true)
  })

  test("a response of a host's server with an invalid head is rejected", async () => {
    const call = async (_order: unknown, { receiver }: CallOptions = {}): Promise<CallEnd> => {
      receiver?.head?.(JSON.stringify({ status: 42, headers: { "\n": "x" } }))
      receiver?.data?.(bytesOf("x"))
      return {}
    }
    await expect(fetchOver({ call })(new Request(`${BASE_URL}/x`))).rejects.toThrow()
  })
})
