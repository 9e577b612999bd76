import { chmodSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import {
  type Address,
  addressFile,
  ensureKeys,
  linkOf,
  portOf,
  portsOfOthers,
  readAddress,
  webSessionsFile,
  writeAddress,
} from "../../../src/features/web/address.ts"
import { proofOf } from "../../../src/features/web/app.ts"
import type { Fetch } from "../../../src/features/web/http.ts"
import { Leader, LOOK_MS, portsToTry, urlOf } from "../../../src/features/web/leader.ts"
import { type ClockView, FakeClock, flush } from "../../support/fake-clock.ts"

let folder: string
let file: string

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "superagents-seat-"))
  file = join(folder, "opencode", "superagents", "web-p.json")
})

afterEach(() => rmSync(folder, { recursive: true, force: true }))

describe("the address file", () => {
  test("the address file is stored next to OpenCode's own state, one for each project", () => {
    const env = { XDG_STATE_HOME: "/s" }
    expect(addressFile("/work/a", env)).toMatch(/^\/s\/opencode\/superagents\/web-[\da-f]{16}\.json$/)
    expect(addressFile("/work/a", env)).not.toBe(addressFile("/work/b", env))
    expect(addressFile("/work/a", { HOME: "/home/me" })).toMatch(/^\/home\/me\/\.local\/state\/opencode\//)
  })

  const addressed = (more: Partial<Address> = {}): Address => ({
    ...{ url: "http://127.0.0.1:4097", boot: "b1", ...ensureKeys(file), ...more },
  })

  test("the address file has two keys of 32 random bytes that only the user can read", () => {
    const { token, key } = ensureKeys(file)
    for (const each of [token, key]) expect(Buffer.from(each, "base64url")).toHaveLength(32)
    expect(key).not.toBe(token)
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(statSync(join(file, "..")).mode & 0o777).toBe(0o700)
    expect(JSON.parse(readFileSync(file, "utf8"))).toEqual({ url: "", token, key, boot: "" })
  })

  test("the address file keeps its keys over restarts and new addresses", () => {
    const address = addressed()
    writeAddress(file, address)
    expect(ensureKeys(file)).toMatchObject({ token: address.token, key: address.key })
    expect(readAddress(file)).toEqual(address)
    expect(statSync(file).mode & 0o777).toBe(0o600)
  })

  test("an address file that is readable by others or broken gets new keys", () => {
    const { token, key } = ensureKeys(file)
    chmodSync(file, 0o644)
    expect(readAddress(file)).toBeUndefined()
    const second = ensureKeys(file)
    expect([second.token === token, second.key === key]).toEqual([false, false])
    expect(statSync(file).mode & 0o777).toBe(0o600)
    const withoutKey = JSON.stringify({ url: "", boot: "", token })
    for (const text of ["", "{", '{"url":1,"token":"x"}', "null", withoutKey]) {
      writeFileSync(file, text, { mode: 0o600 })
      expect(ensureKeys(file).token).toMatch(/^[\w-]{43}$/)
      expect(readAddress(file)?.url).toBe("")
    }
  })

  test("writing the address file leaves no other files behind", () => {
    writeAddress(file, addressed())
    expect(readdirSync(join(file, ".."))).toEqual(["web-p.json"])
  })

  test("each link from an address is new and contains no part of the keys", () => {
    const address = addressed()
    const links = [linkOf(address, 0), linkOf(address, 0)]
    const [one, other] = links
    expect(one).not.toBe(other)
    for (const link of links) {
      expect(link).toMatch(/^http:\/\/127\.0\.0\.1:4097\/#code=c\.b1\.cuyo\.[\w-]{8}\.[\w-]{22}$/)
      expect(link).not.toContain(address.token)
    }
  })

  test("the address file contains a link that changes with each write", () => {
    const linkIn = () => JSON.parse(readFileSync(file, "utf8")).link
    writeAddress(file, addressed())
    const first = linkIn()
    expect(first).toMatch(/^http:\/\/127\.0\.0\.1:4097\/#code=c\.b1\.0\.[\w-]{8}\.[\w-]{22}$/)
    writeAddress(file, addressed())
    expect(linkIn()).not.toBe(first)
    expect(readAddress(file)).not.toHaveProperty("link")
  })

  test("the address files show which ports other projects had", () => {
    const of = (project: string) => join(folder, "opencode", "superagents", `web-${project.repeat(16)}.json`)
    expect(portsOfOthers(of("a"))).toEqual(new Set())
    for (const [project, url] of [
      ["a", "http://127.0.0.1:4097"],
      ["b", "http://127.0.0.1:4098"],
      ["c", "http://[::1]:4105"],
      ["d", ""],
    ] as const)
      writeAddress(of(project), { url, boot: "b", ...ensureKeys(of(project)) })
    writeFileSync(of("e"), "{", { mode: 0o600 })
    writeFileSync(webSessionsFile(of("b")), "{}", { mode: 0o600 })
    expect([...portsOfOthers(of("a"))].toSorted()).toEqual([4098, 4105])
    expect([portOf("http://x:1"), portOf("http://x"), portOf("x")]).toEqual([1, undefined, undefined])
  })
})

test("a project first tries its earlier port, then unused ones, then those of other projects", () => {
  const first = (port: number, before?: number, others: number[] = []) =>
    portsToTry(port, before, new Set(others)).slice(0, 3)
  expect(first(4097)).toEqual([4097, 4098, 4099])
  expect(first(4097, 4100)).toEqual([4100, 4097, 4098])
  expect(first(4097, undefined, [4097, 4099])).toEqual([4098, 4100, 4101])
  expect(first(4097, 4099, [4097, 4099])).toEqual([4099, 4098, 4100])
  expect(first(5000, 4097)).toEqual([5000, 5001, 5002])
  expect(portsToTry(4097, 4100, new Set([4097])).toSorted()).toEqual(Array.from({ length: 20 }, (_, at) => 4097 + at))
  expect([portsToTry(0, undefined, new Set()), portsToTry(0, 4321, new Set())]).toEqual([[0], [4321, 0]])
})

/** Ports of a machine that all processes of a test share. */
class Machine {
  readonly taken = new Map<number, Fetch | "stranger">()

  listen = async (fetch: Fetch, port: number) => {
    if (this.taken.has(port)) return undefined
    this.taken.set(port, fetch)
    return { port, close: async () => void this.taken.delete(port) }
  }

  get = async (url: string): Promise<string> => {
    const fetch = this.taken.get(Number(new URL(url).port))
    if (fetch === undefined) throw new Error("refused")
    if (fetch === "stranger") return "hello"
    return (await fetch(new Request(url))).text()
  }
}

describe("the page's leader", () => {
  let clock: FakeClock
  let machine: Machine
  let logged: string[]

  beforeEach(() => {
    clock = new FakeClock()
    machine = new Machine()
    logged = []
  })

  function process(port = 4097): { leader: Leader; clock: ClockView } {
    const view = clock.view()
    const leader = new Leader({
      file,
      port,
      host: "127.0.0.1",
      clock: view,
      log: (level, message, fields) => void logged.push(`${level} ${message} ${JSON.stringify(fields)}`),
      listen: machine.listen,
      get: machine.get,
      app:
        ({ token }) =>
        (request) =>
          new Response(proofOf(token, new URL(request.url).pathname.slice("/proof/".length))),
    })
    return { leader, clock: view }
  }

  test("the first process becomes the leader, and the others follow and log its address", async () => {
    const [a, b] = [process(), process()]
    await a.leader.take()
    await b.leader.take()
    expect([a.leader.state, b.leader.state]).toEqual(["serving", "following"])
    expect(readAddress(file)?.url).toBe("http://127.0.0.1:4097")
    expect(logged[0]).toContain(file)
    expect(logged[1]).toMatch(/served by another OpenCode process.*http:\/\/127\.0\.0\.1:4097/)
    await clock.advance(5 * LOOK_MS)
    expect([a.leader.state, b.leader.state, logged.length]).toEqual(["serving", "following", 2])
  })

  test("another process becomes the leader within a minute, at the same address and with the same key", async () => {
    const [a, b] = [process(), process()]
    await a.leader.take()
    await b.leader.take()
    const before = readAddress(file)
    a.clock.kill()
    machine.taken.delete(4097)
    await clock.advance(60_000)
    expect(b.leader.state).toBe("serving")
    const after = readAddress(file)
    expect(after).toEqual({ ...before, boot: after?.boot })
    expect(after?.boot).not.toBe(before?.boot)
  })

  test("a project gets its earlier port again even when another project starts before it", async () => {
    const others = join(folder, "opencode", "superagents", `web-${"b".repeat(16)}.json`)
    const own = join(folder, "opencode", "superagents", `web-${"a".repeat(16)}.json`)
    file = own
    const a = process()
    await a.leader.take()
    file = others
    const b = process()
    await b.leader.take()
    const portIn = (of: string) => portOf(readAddress(of)?.url ?? "")
    expect([portIn(own), portIn(others)]).toEqual([4097, 4098])
    for (const { leader } of [a, b]) await leader.stop()
    // The other way round.
    const again = process()
    await again.leader.take()
    file = own
    await process().leader.take()
    expect([portIn(own), portIn(others)]).toEqual([4097, 4098])
  })

  test("exactly one of two processes that start at the same moment becomes the leader", async () => {
    const [a, b] = [process(), process()]
    await Promise.all([a.leader.take(), b.leader.take()])
    expect([a.leader.state, b.leader.state].toSorted()).toEqual(["following", "serving"])
  })

  test("a leader takes another port when a stranger has the wanted one, which never sees the key", async () => {
    machine.taken.set(4097, "stranger")
    const asked: string[] = []
    const get = machine.get
    machine.get = (url) => {
      asked.push(url)
      return get(url)
    }
    const { leader } = process()
    await leader.take()
    expect(readAddress(file)?.url).toBe("http://127.0.0.1:4098")
    const { token = "", key = "" } = readAddress(file) ?? {}
    expect(asked.length).toBeGreaterThan(0)
    expect(asked.join()).not.toContain(token)
    expect(asked.join()).not.toContain(key)
  })

  test("a leader reads no more of what a stranger sends than a proof can have", async () => {
    let sent = 0
    const chunk = Buffer.alloc(65_536, "a")
    const stranger = createServer((_request, response) => {
      const send = () => {
        do sent += chunk.length
        while (!response.destroyed && response.write(chunk))
      }
      response.on("drain", send)
      send()
    })
    const port = await new Promise<number>((resolve) => {
      stranger.listen(0, "127.0.0.1", () => resolve((stranger.address() as AddressInfo).port))
    })
    writeAddress(file, { url: `http://127.0.0.1:${port}`, boot: "b", ...ensureKeys(file) })
    machine.get = undefined as never
    const { leader } = process()
    await leader.take()
    expect(leader.state).toBe("serving")
    expect(sent).toBeLessThan(20_000_000)
    stranger.closeAllConnections()
    stranger.close()
  })

  test("one of two page servers of the same project gives up the lead", async () => {
    machine.taken.set(4097, "stranger")
    const a = process()
    await a.leader.take()
    machine.taken.delete(4097)
    writeAddress(file, { url: "", boot: "", ...ensureKeys(file) })
    const b = process()
    await b.leader.take()
    expect([a.leader.state, b.leader.state, machine.taken.size]).toEqual(["serving", "serving", 2])
    await clock.advance(3000)
    expect([a.leader.state, b.leader.state, machine.taken.size]).toEqual(["following", "serving", 1])
    await clock.advance(LOOK_MS)
    expect([a.leader.state, b.leader.state]).toEqual(["following", "serving"])
  })

  test("no process becomes the leader when all ports are taken, which is logged and retried", async () => {
    for (let port = 4097; port < 4117; port++) machine.taken.set(port, "stranger")
    const { leader } = process()
    await leader.take()
    await clock.advance(5 * LOOK_MS)
    expect([leader.state, logged]).toEqual(["following", [expect.stringContaining("web.port")]])
    machine.taken.clear()
    await clock.advance(LOOK_MS)
    expect(leader.state).toBe("serving")
  })

  test("a stopped page server frees its port, leaves no timer and never leads again", async () => {
    const { leader, clock: view } = process()
    await leader.take()
    await leader.stop()
    expect([machine.taken.size, view.pending]).toEqual([0, 0])
    await leader.take()
    expect([machine.taken.size, leader.state]).toEqual([0, "stopped"])
  })

  test("a page server that is stopped while it starts does not become the leader", async () => {
    const { leader, clock: view } = process()
    const taking = leader.take()
    await leader.stop()
    await taking
    await flush()
    expect([machine.taken.size, view.pending]).toEqual([0, 0])
  })

  test("a page server logs a warning when its address file cannot be written", async () => {
    writeFileSync(join(folder, "opencode"), "a file, not a folder")
    const { leader } = process()
    await leader.take()
    expect(logged.join()).toMatch(/warn the page cannot be served.*(ENOTDIR|EEXIST)/)
  })

  test("a page server whose address could not be written once is found after the next look", async () => {
    const [folder, aside] = [dirname(file), `${dirname(file)}.aside`]
    const { listen } = machine
    let isFull = true
    machine.listen = async (...given) => {
      if (isFull) {
        renameSync(folder, aside)
        writeFileSync(folder, "no folder")
      }
      return listen(...given)
    }
    const { leader } = process()
    await leader.take()
    isFull = false
    rmSync(folder)
    renameSync(aside, folder)
    await clock.advance(LOOK_MS)
    await flush()
    expect(leader.state).toBe("serving")
    expect(readAddress(file)?.url).toBe("http://127.0.0.1:4097")
    await leader.stop()
  })

  test("the log of the page server never contains a key", async () => {
    const [a, b] = [process(), process()]
    await a.leader.take()
    await b.leader.take()
    const { token, key } = readAddress(file) ?? {}
    expect(logged.join()).not.toContain(token)
    expect(logged.join()).not.toContain(key)
  })
})

test("an address shown to people has IPv6 in brackets", () => {
  expect(urlOf("127.0.0.1", 1)).toBe("http://127.0.0.1:1")
  expect(urlOf("::1", 1)).toBe("http://[::1]:1")
})
