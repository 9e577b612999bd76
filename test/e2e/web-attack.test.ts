import { readdirSync, readFileSync } from "node:fs"
import { connect, type Socket } from "node:net"
import { join } from "node:path"
import { afterAll, afterEach, beforeAll, expect, test } from "vitest"
import { eventually } from "../support/eventually.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { startPlugged } from "../support/plugin.ts"
import { freePort } from "../support/server-process.ts"

/** Whoever can reach the page's port, with the key or without: OpenCode's own process must not grow by it. */

const MEGABYTE = 1_048_576
/**
 * The heap's young generation takes and gives back some 100 MB at its own times. 300 bodies of 1 MB that were kept came on
 * top of that, and stayed.
 */
const MOST_DURING_MB = 150
const MOST_AFTER_MB = 60
const PATIENCE_MS = 60_000

let model: ScriptedModel
let opencode: Opencode
let port = 0
let token = ""
const sockets: Socket[] = []

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, { web: { port: await freePort() }, board: { schedule: "0 0 30 2 *" } })
  const folder = join(opencode.home, "state", "opencode", "superagents")
  const address = await eventually(
    () => {
      const [file = ""] = readdirSync(folder).filter((name) => /^web-\w+\.json$/.test(name))
      const found = JSON.parse(readFileSync(join(folder, file), "utf8")) as { url: string; token: string }
      return found.url !== "" && found
    },
    { message: () => opencode.logs() },
  )
  port = Number(new URL(address.url).port)
  token = address.token
  // The first few hundred requests of any kind fill the heap's young generation, once.
  for (let count = 0; count < 300; count++) await answers()
})
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy()
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

const rss = (): number =>
  Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${opencode.pid}/status`, "utf8"))?.[1]) / 1024

const answers = async () => {
  const response = await fetch(`http://127.0.0.1:${port}/api/agents`, { headers: { authorization: `Bearer ${token}` } })
  return response.ok
}

type Caller = { readonly socket: Socket; readonly isClosed: () => boolean; readonly said: () => string }

/** Connects and sends; `isClosed` once the server has ended the connection. */
function call(head: string, body?: Buffer): Caller {
  const socket = connect(port, "127.0.0.1")
  sockets.push(socket)
  let closed = false
  let said = ""
  const close = () => {
    closed = true
  }
  socket.on("error", close).on("end", close).on("close", close)
  socket.on("data", (data) => {
    said += data
  })
  socket.write(head.replaceAll("\n", "\r\n"))
  if (body) socket.write(body)
  return { socket, isClosed: () => closed, said: () => said }
}

/** Does `attack`, prints what memory the process has before and after, and fails where that has grown. */
async function flat(what: string, attack: () => Promise<void>): Promise<void> {
  expect(await answers()).toBe(true)
  const before = rss()
  const failure = await attack().catch((error) => error)
  const during = rss()
  for (const socket of sockets.splice(0)) socket.destroy()
  expect(await eventually(answers)).toBe(true)
  let after = rss()
  const isLow = () => {
    after = rss()
    return after - before < MOST_AFTER_MB
  }
  const low = await eventually(isLow, { timeout: PATIENCE_MS }).catch(() => false)
  console.log(`${what}: ${before.toFixed(0)} MB before, ${during.toFixed(0)} during, ${after.toFixed(0)} after`)
  if (failure) throw failure
  expect(during - before).toBeLessThan(MOST_DURING_MB)
  expect(low).toBe(true)
}

const body = Buffer.alloc(MEGABYTE - 1, "x")

test("300 request bodies with a forbidden Host header are not read, and memory stays constant", async () => {
  const head = `POST /api/tasks HTTP/1.1\nhost: evil.example\ncontent-length: ${MEGABYTE}\n\n`
  await flat("300 connections with a forbidden Host", async () => {
    const callers = Array.from({ length: 300 }, () => call(head, body))
    await eventually(() => callers.every(({ isClosed }) => isClosed()), { timeout: 20_000 })
  })
})

test("300 chunked request bodies without the key or from a foreign page are not read either", async () => {
  const piece = Buffer.concat([Buffer.from(`${body.length.toString(16)}\r\n`), body, Buffer.from("\r\n")])
  const heads = [
    "host: 127.0.0.1\n",
    "host: 127.0.0.1\nauthorization: Bearer wrong\n",
    `host: 127.0.0.1\norigin: http://evil.example\nauthorization: Bearer ${token}\n`,
  ]
  await flat("300 connections without the key", async () => {
    const callers = Array.from({ length: 300 }, (_, index) =>
      call(`POST /api/tasks HTTP/1.1\n${heads[index % 3]}transfer-encoding: chunked\n\n`, piece),
    )
    await eventually(() => callers.every(({ isClosed }) => isClosed()), { timeout: 20_000 })
    const statuses = new Set(callers.map(({ said }) => said().slice(9, 12)))
    expect([...statuses].filter((status) => !["", "401", "403"].includes(status))).toEqual([])
  })
})

test("a request body with the right key that never arrives is waited for only a limited time", async () => {
  const head = `POST /api/tasks HTTP/1.1\nhost: 127.0.0.1\nauthorization: Bearer ${token}\ncontent-type: application/json\ncontent-length: 1000\n\n{`
  const callers = Array.from({ length: 20 }, () => call(head))
  await eventually(() => callers.every(({ isClosed }) => isClosed()), { timeout: 40_000 })
  expect(callers.map(({ said }) => said().slice(9, 12))).toEqual(callers.map(() => "408"))
})

test("1,000 upgrade requests to the page server are refused and closed", async () => {
  const heads = [
    "connection: upgrade\nupgrade: websocket\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\nsec-websocket-version: 13\n",
    "connection: upgrade\nupgrade: h2c\n",
  ]
  await flat("1,000 upgrades", async () => {
    for (let round = 0; round < 4; round++) {
      const callers = Array.from({ length: 250 }, (_, index) =>
        call(`GET / HTTP/1.1\nhost: 127.0.0.1\n${heads[index % 2]}\n`),
      )
      await eventually(() => callers.every(({ isClosed }) => isClosed()), { timeout: 20_000 })
      expect(callers.filter(({ said }) => said().startsWith("HTTP/1.1 101"))).toEqual([])
    }
    expect(call("CONNECT evil.example:80 HTTP/1.1\nhost: evil.example\n\n").said()).toBe("")
  })
})

test("64 of 500 simultaneous event streams are open, and others can open after those close", async () => {
  const head = `GET /api/events HTTP/1.1\nhost: 127.0.0.1\nauthorization: Bearer ${token}\n\n`
  await flat("500 streams", async () => {
    const callers = Array.from({ length: 500 }, () => call(head))
    await eventually(() => callers.every(({ said }) => said() !== ""), { timeout: 30_000 })
    const open = callers.filter(({ said }) => said().startsWith("HTTP/1.1 200"))
    expect(open).toHaveLength(64)
  })
  const again = await eventually(() => {
    const caller = call(head)
    return eventually(() => caller.said() !== "" && caller.said().startsWith("HTTP/1.1 200") && caller, {
      timeout: 2000,
    }).catch(() => false as const)
  })
  await eventually(() => again.said().includes("event: state"))
})
