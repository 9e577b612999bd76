import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import { linkOf, newCode } from "../../../src/features/web/address.ts"
import { createApp } from "../../../src/features/web/app.ts"
import { WEB_SESSION_MS, WebSessions } from "../../../src/features/web/auth.ts"
import { codeIn } from "../../../src/features/web/page/route.ts"
import {
  enter,
  signIn,
  UntrustedServer,
  type WebSession,
  webSessionOf,
} from "../../../src/features/web/page/sign-in.ts"
import { accessText } from "../../../src/features/web/wire.ts"
import { HOUR_MS } from "../../../src/lib/format.ts"
import { FakeClock } from "../../support/fake-clock.ts"
import { addressOf, doorOf, TOKEN } from "../../support/web.ts"

/** How the page gets in, and who does not: the server's door with the page's own side of it. */

const URL = "http://127.0.0.1:4097"
const never = new AbortController().signal

let folder: string
let clock: FakeClock
/** All that was sent to the server. */
let sent: string[]

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "superagents-door-"))
  clock = new FakeClock()
  sent = []
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

/** A server in one life of it. */
function serve(boot = "boot-one", url = URL, opened?: () => void) {
  const address = addressOf(url, boot)
  const auth = doorOf(address, () => clock.now(), folder, opened)
  const feed = { join: async () => () => {} }
  const source = () => ({ agents: { list: () => [] } as never, person: {} as never })
  const app = createApp({ address, auth, host: "127.0.0.1", source, feed, page: () => "<p>", log: () => {} })
  const ask = async (path: string, init: RequestInit = {}) => {
    sent.push(`${init.method ?? "GET"} ${path} ${JSON.stringify(init.headers ?? {})} ${init.body ?? ""}`)
    const headers = { host: "127.0.0.1:4097", ...(init.headers as Record<string, string>) }
    return app.request(path, { ...init, headers })
  }
  return { address, door: auth, ask, around: { fetch: ask, origin: url } }
}

const codeOf = (server: ReturnType<typeof serve>) =>
  codeIn(linkOf(server.address, clock.now()).slice(URL.length + 1)) ?? ""

async function signedIn(server: ReturnType<typeof serve>): Promise<WebSession> {
  const session = await signIn(codeOf(server), server.around, never)
  if (!session) throw new Error("not signed in")
  return session
}

async function bearerOf(session: WebSession, server: ReturnType<typeof serve>): Promise<string> {
  const entered = await enter(session, server.around, never)
  return "ended" in entered ? "" : entered.bearer
}

const reads = async (server: ReturnType<typeof serve>, bearer: string) =>
  (await server.ask("/api/agents", { headers: { authorization: `Bearer ${bearer}` } })).status

describe("a sign-in link", () => {
  test("a link signs in once, and its secret and the session's key are never sent", async () => {
    const server = serve()
    const code = codeOf(server)
    const session = (await signIn(code, server.around, never)) as WebSession
    expect(await reads(server, await bearerOf(session, server))).toBe(200)
    const [secret = ""] = code.split(".").slice(-1)
    expect(sent.join()).not.toContain(secret)
    expect(session.key.extractable).toBe(false)
    expect(await signIn(code, server.around, never)).toBeUndefined()
  })

  test("a link signs in even if the address file cannot be written anew", async () => {
    const server = serve("boot-one", URL, () => {
      throw new Error("ENOSPC")
    })
    expect(await reads(server, await bearerOf(await signedIn(server), server))).toBe(200)
  })

  test("a link is valid for ten minutes while its server runs", async () => {
    const server = serve()
    const code = codeOf(server)
    await clock.advance(599_000)
    expect(await signIn(code, server.around, never)).toBeDefined()
    const late = codeOf(server)
    await clock.advance(600_000)
    expect(await signIn(late, server.around, never)).toBeUndefined()
    expect(await signIn(codeOf(server), serve("boot-two").around, never)).toBeUndefined()
  })

  test("the link in the address file is valid until the server ends", async () => {
    const server = serve()
    const code = newCode(server.address.key, server.address.boot)
    await clock.advance(100 * HOUR_MS)
    expect(await signIn(code, server.around, never)).toBeDefined()
    expect(await signIn(code, server.around, never)).toBeUndefined()
  })

  test("a link can only sign in, and a session cannot be exchanged for another session", async () => {
    const server = serve()
    const code = codeOf(server)
    const at = code.lastIndexOf(".")
    const bearer = await bearerOf(await webSessionOf(code.slice(0, at), code.slice(at + 1)), server)
    expect(await reads(server, bearer)).toBe(401)
    const post = (key: string) =>
      server.ask("/sign-in", { method: "POST", headers: { authorization: `Bearer ${key}` } })
    expect((await post(await bearerOf(await signedIn(server), server))).status).toBe(401)
    expect((await post(TOKEN)).status).toBe(401)
    expect((await post(bearer)).status).toBe(201)
  })

  test.each([
    ["another secret", (code: string) => `${code.slice(0, -1)}${code.endsWith("A") ? "B" : "A"}`],
    ["a later end", (code: string) => code.replace(/^(c\.[^.]+\.)[^.]+/, "$1zzzzzzzz")],
    ["another life", (code: string) => code.replace("boot-one", "boot-two")],
  ])("a link with %s fails, because the server cannot prove that it knows the link", async (_what, change) => {
    const server = serve()
    await expect(signIn(change(codeOf(server)), server.around, never)).rejects.toThrow(UntrustedServer)
    expect(sent.filter((each) => !each.startsWith("GET /hello?"))).toEqual([])
  })
})

describe("a web session", () => {
  test("a web session survives a restart of the server, and its earlier access key does not", async () => {
    const before = serve()
    const session = await signedIn(before)
    const bearer = await bearerOf(session, before)
    const after = serve("boot-two")
    expect(await reads(after, bearer)).toBe(401)
    expect(await reads(after, await bearerOf(session, after))).toBe(200)
  })

  test("a web session ends after a day without use and not before", async () => {
    const server = serve()
    const [used, left] = [await signedIn(server), await signedIn(server)]
    for (let hours = 0; hours < 30; hours += 10) {
      await clock.advance(10 * HOUR_MS)
      expect(await reads(server, await bearerOf(used, server))).toBe(200)
    }
    expect(await enter(left, server.around, never)).toEqual({ ended: true })
    await clock.advance(WEB_SESSION_MS)
    expect(await enter(used, server.around, never)).toEqual({ ended: true })
    expect(await enter(used, serve("boot-two").around, never)).toEqual({ ended: true })
  })

  test("a web session that was used before the clock was set back by days has ended", async () => {
    await clock.advance(72 * HOUR_MS)
    const session = await signedIn(serve())
    clock.setBack(HOUR_MS)
    expect(await reads(serve(), await bearerOf(session, serve()))).toBe(200)
    clock.setBack(48 * HOUR_MS)
    expect(await enter(session, serve().around, never)).toEqual({ ended: true })
  })

  test("a web session that signs out ends for good, and other sessions stay signed in", async () => {
    const server = serve()
    const [one, other] = [await signedIn(server), await signedIn(server)]
    const bearer = await bearerOf(one, server)
    const out = (key: string) =>
      server.ask("/api/sign-out", { method: "DELETE", headers: { authorization: `Bearer ${key}` } })
    expect((await out(bearer)).status).toBe(200)
    expect(await reads(server, bearer)).toBe(401)
    expect(await enter(one, server.around, never)).toEqual({ ended: true })
    expect(await enter(one, serve("boot-two").around, never)).toEqual({ ended: true })
    expect(await reads(server, await bearerOf(other, server))).toBe(200)
    expect((await out(TOKEN)).status).toBe(409)
  })

  test("a web session ends for good when the page is served at another port", async () => {
    const before = serve()
    const session = await signedIn(before)
    const moved = serve("boot-two", "http://127.0.0.1:4098")
    expect(moved.door.hello(session.id, "0".repeat(32)).state).toBe("ended")
    // As a page does that somebody else has loaded at the old address, for the server at the new one.
    const { bearer } = (await enter(session, { fetch: before.ask, origin: URL }, never)) as { bearer: string }
    expect(bearer).toContain(session.id)
    const signed = await crypto.subtle.sign("HMAC", session.key, new TextEncoder().encode(accessText("boot-two")))
    expect(await reads(moved, `${session.id}.${Buffer.from(signed).toString("base64url")}`)).toBe(401)
    expect(await enter(session, serve("boot-three").around, never)).toEqual({ ended: true })
  })

  test("an invented session id counts as ended and gives no access", async () => {
    const server = serve()
    const id = `p.4097.${"a".repeat(22)}`
    expect(await reads(server, `${id}.${"b".repeat(43)}`)).toBe(401)
    expect(server.door.hello(id, "0".repeat(32)).state).toBe("ended")
  })
})

describe("the server's proof of identity", () => {
  test("a server that cannot prove its identity receives only a session id and a nonce", async () => {
    const session = await signedIn(serve())
    const got: string[] = []
    const answers = [
      () => new Response("<html>"),
      () => Response.json({}),
      () => Response.json({ origin: URL, boot: "boot-one", state: "live", proof: "A".repeat(43) }),
      () => Response.json({ origin: URL, boot: "boot-one", state: "ended", proof: "?" }),
      () => Response.json(null),
    ]
    for (const answer of answers) {
      const fetch = async (url: string, init?: RequestInit) => {
        got.push(`${url} ${JSON.stringify(init?.headers ?? {})} ${init?.body ?? ""}`)
        return answer()
      }
      await expect(enter(session, { fetch, origin: URL }, never)).rejects.toThrow(UntrustedServer)
    }
    for (const each of got) expect(each).toMatch(/^\/hello\?id=p\.4097\.[\w-]{22}&nonce=[\da-f]{32} \{\} $/)
    expect(new Set(got).size).toBe(answers.length)
  })

  test("a repeated or changed proof of the server is rejected", async () => {
    const server = serve()
    const session = await signedIn(server)
    const old = (await (await server.ask(`/hello?id=${session.id}&nonce=${"a".repeat(32)}`)).json()) as object
    const replay = { fetch: async () => Response.json(old), origin: URL }
    await expect(enter(session, replay, never)).rejects.toThrow(UntrustedServer)
    for (const change of [{ state: "ended" }, { boot: "boot-two" }, { origin: "http://127.0.0.1:4098" }]) {
      const fetch = async (url: string) =>
        Response.json({ ...((await (await server.ask(url)).json()) as object), ...change })
      await expect(enter(session, { fetch, origin: URL }, never)).rejects.toThrow(UntrustedServer)
    }
  })

  test("a thief who relays a proof from the server's new port is detected, with advice", async () => {
    const session = await signedIn(serve())
    const moved = serve("boot-two", "http://127.0.0.1:4098")
    const relayed = enter(session, { fetch: moved.ask, origin: URL }, never)
    await expect(relayed).rejects.toThrow(UntrustedServer)
    await expect(relayed).rejects.toThrow(
      "OpenCode serves this page at http://127.0.0.1:4098, and this is http://127.0.0.1:4097.",
    )
    await expect(relayed).rejects.toThrow("ssh -L 4098:127.0.0.1:4098")
  })

  test("the server of another project is not trusted and cannot end a session", async () => {
    const session = await signedIn(serve())
    const other = serve("boot-one")
    const auth = doorOf({ ...other.address, key: "o".repeat(43) }, () => clock.now(), folder)
    const fetch = async (url: string) => {
      const { searchParams } = new globalThis.URL(url, URL)
      return Response.json(auth.hello(searchParams.get("id") ?? "", searchParams.get("nonce") ?? ""))
    }
    await expect(enter(session, { fetch, origin: URL }, never)).rejects.toThrow(UntrustedServer)
  })

  test.each([
    ["", "a".repeat(32)],
    ["p.x", ""],
    ["p.x", "short"],
    ["x.y", "a".repeat(32)],
    ["p.x\n", "a".repeat(32)],
    [`p.${"x".repeat(200)}`, "a".repeat(32)],
    ["p.x", "a".repeat(65)],
  ])("an invalid proof request (%j, %j) is refused", async (id, nonce) => {
    const query = new URLSearchParams({ id, nonce })
    expect((await serve().ask(`/hello?${query}`)).status).toBe(400)
  })

  test("other websites cannot ask for a proof or sign in", async () => {
    const server = serve()
    const path = `/hello?id=p.x&nonce=${"a".repeat(32)}`
    for (const path_ of [path, "/sign-in"]) {
      const method = path_ === path ? "GET" : "POST"
      expect((await server.ask(path_, { method, headers: { origin: "http://evil.example" } })).status).toBe(403)
      expect((await server.ask(path_, { method, headers: { host: "evil.example" } })).status).toBe(403)
    }
  })
})

test("a page opened under another name of the server is redirected to its one address", async () => {
  const server = serve()
  for (const host of ["localhost:4097", "[::1]:4097"]) {
    const answer = await server.ask("/", { headers: { host } })
    expect([answer.status, answer.headers.get("location")]).toEqual([302, `${URL}/`])
  }
  // Through a tunnel with another port: the page itself says what to do.
  expect((await server.ask("/", { headers: { host: "localhost:9999" } })).status).toBe(200)
  expect((await server.ask("/")).status).toBe(200)
})

describe("the session file", () => {
  const file = () => join(folder, "sessions.json")
  const passes = (port = 4097) =>
    new WebSessions({ file: file(), port, clock, log: (_level, message) => void sent.push(message) })
  const written = () => JSON.parse(readFileSync(file(), "utf8")) as Record<string, number>

  test("the session file is readable only by the user, has no secrets, and records use at intervals", async () => {
    const all = passes()
    const id = all.issue()
    const begun = clock.now()
    expect(statSync(file()).mode & 0o777).toBe(0o600)
    expect(written()).toEqual({ [id]: begun })
    await clock.advance(60_000)
    all.use(id)
    expect(written()).toEqual({ [id]: begun })
    await clock.advance(600_000)
    all.use(id)
    expect(written()).toEqual({ [id]: clock.now() })
  })

  test("the session file is read by the next process, and invalid contents count as no sessions", async () => {
    const id = passes().issue()
    expect(passes().isLive(id)).toBe(true)
    writeFileSync(file(), JSON.stringify({ [id]: "yesterday", "p.<x>": 1, "p.4098.x": 1, __proto__: 1 }))
    expect(passes().isLive(id)).toBe(false)
    for (const text of ["", "[", "null", "7"]) {
      writeFileSync(file(), text)
      expect(passes().isLive(id)).toBe(false)
    }
  })

  test("the session file drops ended sessions and the longest unused ones beyond 64", async () => {
    const all = passes()
    const first = all.issue()
    await clock.advance(WEB_SESSION_MS)
    const ids: string[] = []
    for (let count = 0; count < 65; count++) {
      ids.push(all.issue())
      await clock.advance(1000)
    }
    expect(Object.keys(written())).toHaveLength(64)
    expect([all.isLive(first), all.isLive(ids[0] ?? ""), all.isLive(ids[1] ?? "")]).toEqual([false, false, true])
  })

  test("a failed write of the session file is logged, and its sessions stay valid in this process", async () => {
    folder = join(folder, "a file")
    writeFileSync(folder, "")
    const all = passes()
    expect(all.isLive(all.issue())).toBe(true)
    expect(sent).toEqual(["the page's sessions could not be written down"])
  })

  test("an open event stream counts as use of its session and ends with the session", async () => {
    const all = passes()
    const id = all.issue()
    const ended: string[] = []
    const leave = [all.open(id, () => ended.push("one")), all.open(id, () => ended.push("two"))]
    await clock.advance(3 * WEB_SESSION_MS)
    expect(all.isLive(id)).toBe(true)
    leave[0]?.()
    leave[0]?.()
    await clock.advance(WEB_SESSION_MS)
    expect(all.isLive(id)).toBe(true)
    leave[1]?.()
    await clock.advance(WEB_SESSION_MS - 1)
    expect(all.isLive(id)).toBe(true)
    await clock.advance(1)
    expect(all.isLive(id)).toBe(false)
    const other = all.issue()
    const left = all.open(other, () => ended.push("three"))
    all.end(other)
    left()
    all.use(other)
    expect([ended, all.isLive(other), other in written()]).toEqual([["three"], false, false])
  })
})
