import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import {
  createRefusalReader,
  type RefusalReader,
  type SessionLookup,
} from "../../src/features/rate-limits/opencode/answers.ts"

/** What the process's `fetch` is like to all others while refusals are read. No request leaves. */

const HERE = "ses_task"
const HEADERS = { "X-Session-Affinity": HERE }
const real = globalThis.fetch
const open: RefusalReader[] = []

/** What the provider answers next, and what the host's own `fetch` was called with. */
let answer: () => unknown
let calls: unknown[][]
let host: typeof fetch

beforeEach(() => {
  calls = []
  answer = () => Promise.resolve(new Response("fine"))
  const own = function (this: unknown, ...given: unknown[]) {
    calls.push([this, ...given])
    return answer()
  }
  host = Object.assign(own, { preconnect: vi.fn() }) as unknown as typeof fetch
  globalThis.fetch = host
})
afterEach(() => {
  for (const each of open.splice(0)) each.close()
  globalThis.fetch = real
})

const read = (asking: SessionLookup = (named) => (named === HERE ? [HERE] : [])) => {
  const answers = createRefusalReader(asking)
  open.push(answers)
  return answers
}
const refuse = (
  body: string | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array> | null,
  headers: Record<string, string> = {},
  status = 429,
) => {
  const response = new Response(body, { status, headers })
  answer = () => Promise.resolve(response)
  return response
}
const ask = (init: unknown = { headers: HEADERS }) => fetch("http://provider.test/v1", init as RequestInit)
const said = (answers: RefusalReader) => vi.waitFor(() => expect(answers.refusal(HERE)?.body).toBeDefined())

describe("a refusal to a task's session", () => {
  test("a refusal's status, timing headers and body are read, and OpenCode gets the same response", async () => {
    const answers = read()
    const given = refuse('{"resets_in_seconds":9}', {
      "Retry-After": "9",
      "x-ratelimit-reset-tokens": "9s",
      date: "now",
    })
    const got = await ask()
    expect(got).toBe(given)
    expect(await got.text()).toBe('{"resets_in_seconds":9}')
    await said(answers)
    expect(answers.refusal(HERE)).toEqual({
      status: 429,
      headers: { "retry-after": "9", "x-ratelimit-reset-tokens": "9s" },
      body: '{"resets_in_seconds":9}',
      at: expect.any(Number),
    })
  })

  test("a refusal is known completely before OpenCode has read its response", async () => {
    const answers = read()
    refuse("first words", { "retry-after": "9" })
    const known = await ask().then(async (response) => {
      const headers = answers.refusal(HERE)?.headers
      await response.text()
      return { headers, body: answers.refusal(HERE)?.body }
    })
    expect(known).toEqual({ headers: { "retry-after": "9" }, body: "first words" })
  })

  test.each<[string, unknown]>([
    ["headers as an object of theirs", { headers: new Headers(HEADERS) }],
    [
      "headers as a list",
      {
        headers: [
          ["a", "b"],
          ["x-session-affinity", HERE],
        ],
      },
    ],
    ["the header of OpenCode's own provider", { headers: { "x-opencode-session": HERE } }],
  ])("the session of a refused request is found by %s", async (_how, init) => {
    const answers = read()
    refuse("no")
    await ask(init)
    await said(answers)
  })

  test("the session of a refused request is found by a Request object as well", async () => {
    const answers = read()
    refuse("no")
    await fetch(new Request("http://provider.test/v1", { headers: HEADERS }))
    await said(answers)
  })

  test("a refusal is forgotten once a later request is answered or fails", async () => {
    const answers = read()
    refuse("no")
    await ask()
    await said(answers)
    answer = () => Promise.resolve(new Response("yes"))
    await ask()
    await vi.waitFor(() => expect(answers.refusal(HERE)).toBeUndefined())
    refuse("no")
    await ask()
    await said(answers)
    answer = () => Promise.reject(new TypeError("fetch failed"))
    await expect(ask()).rejects.toThrow("fetch failed")
    await vi.waitFor(() => expect(answers.refusal(HERE)).toBeUndefined())
  })

  test("a refused request of a whole fork counts for all forks sharing its cache, a person's for none", async () => {
    const asking = vi.fn((_named: string, parentID: string | undefined) => (parentID ? ["ses_one", "ses_two"] : []))
    const answers = read(asking)
    refuse("no")
    await ask({ headers: { "x-session-affinity": "ses_parent" } })
    expect(answers.refusal("ses_one")).toBeUndefined()
    await ask({ headers: { "x-session-affinity": "ses_parent", "x-parent-session-id": "ses_parent" } })
    expect([answers.refusal("ses_one")?.status, answers.refusal("ses_two")?.status]).toEqual([429, 429])
    expect(asking.mock.calls).toEqual([
      ["ses_parent", undefined],
      ["ses_parent", "ses_parent"],
    ])
  })
})

describe("a hostile provider", () => {
  test("only the beginning of a 10 MB refusal is read, while OpenCode gets all of it", async () => {
    const answers = read()
    const piece = new Uint8Array(65_536).fill(120)
    let left = 160
    refuse(
      new ReadableStream<Uint8Array>({
        pull: (controller) => (left-- > 0 ? controller.enqueue(piece) : controller.close()),
      }),
    )
    const got = await ask()
    expect((await got.arrayBuffer()).byteLength).toBe(160 * 65_536)
    expect(answers.refusal(HERE)?.body).toHaveLength(16_384)
  })

  test("the part of a broken refusal that arrived is known, and OpenCode gets the same error", async () => {
    const answers = read()
    let controller: ReadableStreamDefaultController<Uint8Array> | undefined
    refuse(
      new ReadableStream<Uint8Array>({
        start: (given) => {
          controller = given
          given.enqueue(new TextEncoder().encode('{"resets_in_seconds":9,'))
        },
      }),
      { "retry-after": "9" },
    )
    const got = await ask()
    await said(answers)
    controller?.error(new Error("the connection broke"))
    await expect(got.text()).rejects.toThrow("the connection broke")
    expect(answers.refusal(HERE)).toMatchObject({ headers: { "retry-after": "9" }, body: '{"resets_in_seconds":9,' })
  })

  test("only the beginning of a long header is kept", async () => {
    const answers = read()
    refuse(null, { "retry-after": "9".repeat(8000), "x-other": "9".repeat(8000) })
    await ask()
    expect(answers.refusal(HERE)?.headers).toEqual({ "retry-after": "9".repeat(200) })
  })

  test("a refusal whose body is not text is read without an error", async () => {
    const answers = read()
    refuse(new Uint8Array([0xff, 0xfe, 0x00, 0xc3]))
    await ask()
    await said(answers)
    expect(answers.refusal(HERE)?.body).toContain("�")
  })
})

describe("the wrapped fetch", () => {
  test("the wrapped fetch passes on the same arguments and returns the same promise", async () => {
    read()
    const promise = Promise.resolve(new Response("fine"))
    answer = () => promise
    const init = { headers: HEADERS, signal: new AbortController().signal }
    expect(fetch("http://provider.test/v1", init)).toBe(promise)
    expect(calls).toEqual([[undefined, "http://provider.test/v1", init]])
    expect(calls[0]?.[2]).toBe(init)
    await promise
  })

  test("the wrapped fetch has all properties of the original fetch", () => {
    read()
    const wrapped = fetch as typeof fetch & { preconnect(url: string): void; mine?: number }
    wrapped.preconnect("http://provider.test")
    expect((host as typeof wrapped).preconnect).toHaveBeenCalledWith("http://provider.test")
    expect([wrapped.name, wrapped.length]).toEqual([host.name, host.length])
    wrapped.mine = 1
    expect((host as typeof wrapped).mine).toBe(1)
  })

  test("the wrapped fetch rejects and throws like the original, for example on an abort", async () => {
    read()
    const abort = new DOMException("aborted", "AbortError")
    answer = () => Promise.reject(abort)
    await expect(ask()).rejects.toBe(abort)
    answer = () => {
      throw abort
    }
    expect(() => ask()).toThrow(abort)
  })

  test("the wrapped fetch does not consume one-time headers and ignores other sessions' responses", async () => {
    const answers = read()
    const response = refuse("no")
    const clone = vi.spyOn(response, "clone")
    const once = new Map(Object.entries(HEADERS)).entries()
    for (const init of [{ headers: once }, {}, undefined, { headers: { "x-session-affinity": "ses_person" } }])
      expect(await ask(init ?? null)).toBe(response)
    expect([...once]).toHaveLength(1)
    expect(clone).not.toHaveBeenCalled()
    expect(answers.refusal(HERE)).toBeUndefined()
  })

  test("the wrapped fetch copies only responses that are refusals", async () => {
    read()
    const response = new Response("a long stream")
    const clone = vi.spyOn(response, "clone")
    answer = () => Promise.resolve(response)
    await ask()
    expect(clone).not.toHaveBeenCalled()
  })

  test("the wrapped fetch goes on when an instance fails, a header throws or the response is invalid", async () => {
    read(() => {
      throw new Error("ours")
    })
    refuse("no")
    expect((await ask()).status).toBe(429)
    const bad = Object.defineProperty({}, "x-session-affinity", {
      enumerable: true,
      get: () => {
        throw new Error("theirs")
      },
    })
    expect((await ask({ headers: bad })).status).toBe(429)
    open.splice(0)[0]?.close()
    const answers = read()
    for (const odd of [undefined, "text", { status: 429 }, { status: 429, headers: new Headers() }]) {
      answer = () => odd
      expect(ask()).toBe(odd)
      await Promise.resolve()
    }
    expect(answers.refusal(HERE)?.body).toBeUndefined()
  })

  test("fetch is wrapped once for all instances and restored when the last one ends", async () => {
    const [one, two] = [read(), read()]
    const wrapped = fetch
    expect(wrapped).not.toBe(host)
    const third = read()
    expect(fetch).toBe(wrapped)
    refuse("no")
    await ask()
    expect(calls).toHaveLength(1)
    for (const each of [one, two, third]) await said(each)
    one.close()
    one.close()
    two.close()
    expect(fetch).toBe(wrapped)
    expect([one.refusal(HERE), third.refusal(HERE)?.status]).toEqual([undefined, 429])
    third.close()
    expect(fetch).toBe(host)
    // One that begins later wraps what is there then.
    const later = read()
    await ask()
    await said(later)
    expect(calls).toHaveLength(2)
  })

  test("a fetch that somebody else wrapped again stays theirs and is not wrapped twice", async () => {
    const first = read()
    const ours = fetch
    const theirs = ((...given: Parameters<typeof fetch>) => ours(...given)) as typeof fetch
    globalThis.fetch = theirs
    first.close()
    expect(fetch).toBe(theirs)
    refuse("no")
    expect((await ask()).status).toBe(429)
    const second = read()
    expect(fetch).toBe(theirs)
    await ask()
    await said(second)
    expect(calls).toHaveLength(2)
  })
})
