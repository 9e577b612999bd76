import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { createServer, type Server as HttpServer } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { PassThrough } from "node:stream"
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import {
  bootstrapLines,
  type CallOptions,
  Channel,
  type ChannelPorts,
  ConnectionLost,
  LINE,
} from "../../../src/features/hosts/channel.ts"
import { HostConnection } from "../../../src/features/hosts/connection.ts"
import {
  type ConnectionInput,
  type ConnectionState,
  IDLE,
  lastLine,
  pauseBefore,
  step,
} from "../../../src/features/hosts/connection-state.ts"
import {
  bytesOf,
  encode,
  Flow,
  Frames,
  inFrames,
  MARKER,
  MOST_BODY_BYTES,
  textOf,
  WINDOW_BYTES,
} from "../../../src/features/hosts/frames.ts"
import { versionProblem } from "../../../src/features/hosts/host-place.ts"
import { commandOf } from "../../../src/features/hosts/hosts.ts"
import type { CallEnd, Hint, Order, PingReply, RemoteServerState } from "../../../src/features/hosts/orders.ts"
import { serve } from "../../../src/features/hosts/relay/serve.ts"
import { movedID, movedMessage, skewOfIDs } from "../../../src/features/hosts/remote-session.ts"
import { FakeClock } from "../../support/fake-clock.ts"
import { PROCESSES } from "../../support/far-files.ts"

/** The way to another machine: its frames, its phases, its connection. */

describe("frames", () => {
  test("frames are decoded correctly however their bytes are cut", () => {
    const long = new Uint8Array(MOST_BODY_BYTES * 2 + 3).fill(7)
    const stream = Buffer.concat([...inFrames("data", 3, long), encode("end", 3), encode("ping", 0, bytesOf("né"))])
    for (const size of [1, 7, 4096, stream.length]) {
      const frames = new Frames(false)
      const taken = []
      for (let from = 0; from < stream.length; from += size)
        taken.push(...frames.take(stream.subarray(from, from + size)))
      expect(taken.map(({ kind, call }) => [kind, call])).toEqual([
        ["data", 3],
        ["data", 3],
        ["data", 3],
        ["end", 3],
        ["ping", 0],
      ])
      expect(Buffer.concat(taken.slice(0, 3).map(({ body }) => body)).equals(long)).toBe(true)
      expect(textOf(taken[4]?.body ?? new Uint8Array())).toBe("né")
    }
  })

  test("shell output before the first frame is skipped, even if it resembles the frame marker", () => {
    const said = Buffer.concat([bytesOf(`Welcome\n${MARKER.slice(0, 5)}`), bytesOf(MARKER), encode("pong", 1)])
    const frames = new Frames(true)
    const taken = [...said].flatMap((byte) => frames.take(Uint8Array.of(byte)))
    expect(taken).toMatchObject([{ kind: "pong", call: 1 }])
  })

  test("bytes that are no frame are reported as output of something else", () => {
    expect(() => new Frames(false).take(bytesOf("this is no frame"))).toThrow("something else wrote")
  })
})

describe("credit", () => {
  const STEP = 1000
  const body = new Uint8Array(STEP)
  const spent = async () => {
    const flow = new Flow(1, () => undefined)
    await flow.send(new Uint8Array(WINDOW_BYTES))
    return flow
  }

  test("a sender spends credit for what it sends and regains it when the reader takes it", async () => {
    const sender = new Flow(1, () => undefined)
    const reader = new Flow(1, (frame) => {
      for (const { kind, body } of new Frames(false).take(frame)) if (kind === "more") sender.give(body)
      return undefined
    })
    let sent = 0
    const sending = (async () => {
      for (; sent < 10 * WINDOW_BYTES; sent += STEP) await sender.send(body)
    })()
    for (let taken = 0; taken < 10 * WINDOW_BYTES; taken += STEP) {
      for (let turn = 0; turn < 5; turn++) await Promise.resolve()
      if (sent > taken) reader.arrive(STEP)
      expect(sent - taken).toBeLessThanOrEqual(WINDOW_BYTES + STEP)
      reader.take(STEP)
    }
    await sending
  })

  test("a sender without credit waits until the reader takes more or ends", async () => {
    const flow = await spent()
    let isSent = false
    const sending = flow.send(body).then(() => {
      isSent = true
    })
    await new Promise((resolve) => setImmediate(resolve))
    expect(isSent).toBe(false)
    flow.end()
    await sending
  })

  test("credit that is invalid or exceeds what was sent is ignored", async () => {
    const flow = new Flow(1, () => undefined)
    for (const given of ["1e300", "99999999999999999999", "-5", "x", ""]) flow.give(bytesOf(given))
    await flow.send(new Uint8Array(WINDOW_BYTES))
    const more = flow.send(body).then(() => "sent")
    expect(await Promise.race([more, new Promise((resolve) => setImmediate(() => resolve("waits")))])).toBe("waits")
  })
})

describe("connection commands", () => {
  const taken = (...inputs: readonly ConnectionInput[]): ConnectionState =>
    inputs.reduce<ConnectionState>((state, input) => step(state, input, 1000), IDLE)
  const wanted = { type: "wanted", known: false } as const
  const closed = { type: "closed", why: "cut", byItself: true } as const
  const due = { type: "due" } as const

  test("a connection command that ends by itself is tried three times, then its error is reported", () => {
    const state = taken(wanted)
    expect([state.phase, pauseBefore(state, 1000)]).toEqual(["connecting", 0])
    expect(pauseBefore(taken(wanted, closed), 1000)).toBe(1500)
    expect(pauseBefore(taken(wanted, closed, closed), 1000)).toBe(3000)
    expect(taken(wanted, closed, closed, closed)).toEqual({ phase: "ended", why: "cut" })
    expect(taken(wanted, { ...closed, fatal: true })).toEqual({ phase: "ended", why: "cut" })
    expect(taken(wanted, closed, closed, closed, wanted).phase).toBe("connecting")
  })

  test("a connection command that hangs is tried again without a limit", () => {
    const hung = { ...closed, byItself: false }
    expect(taken(wanted, hung, hung, hung, hung)).toMatchObject({ phase: "connecting", tries: 0 })
  })

  test("a lost connection is tried again at once, then after growing pauses of at most 5 s", () => {
    let state = taken(wanted, { type: "opened" }, closed)
    const pauses = []
    for (let nth = 0; nth < 6; nth++) {
      expect(state.phase).toBe("no contact")
      pauses.push(pauseBefore(state, 1000))
      state = step(step(state, due, 100_000), closed, 1000)
    }
    expect(pauses).toEqual([0, 1000, 2000, 4000, 5000, 5000])
    expect(step(state, { type: "opened" }, 1000)).toEqual({ phase: "contact" })
  })

  test("a host that was reached before is tried until it is reached again", () => {
    const again = taken({ type: "wanted", known: true })
    expect(again).toMatchObject({ phase: "no contact", since: 1000 })
    expect(taken({ type: "wanted", known: true }, due, closed, due, closed).phase).toBe("no contact")
    expect(taken(wanted, { type: "opened" }, { type: "wanted", known: true }).phase).toBe("contact")
  })

  test("a connection that nobody needs is idle, and late events do not change that", () => {
    expect(taken(wanted, { type: "unwanted" })).toEqual(IDLE)
    expect(taken({ type: "opened" })).toEqual(IDLE)
    expect(taken(closed)).toEqual(IDLE)
    expect(pauseBefore(taken(wanted, { type: "opened" }), 1000)).toBeUndefined()
  })

  test("a connection error is the last line of the command's error output", () => {
    expect(lastLine("Warning: x\nssh: Could not resolve hostname nohost\n\n")).toBe(
      "ssh: Could not resolve hostname nohost",
    )
    expect(lastLine("")).toBe("")
  })
})

test("the relay's start line survives another shell, and its input has a fixed number of lines", () => {
  expect(LINE).not.toMatch(/[!\n]/)
  const lines = bootstrapLines("a\n'b'\u2028", { client: "x" }, "it's").split("\n")
  expect(lines).toHaveLength(3)
  expect(lines[0]).toContain(`o='it'\\''s'`)
  expect(bootstrapLines("x", {}, "~/my bin/opencode")).toContain(`o="$HOME"/'my bin/opencode';`)
})

test("ssh is started without password prompts and gives up when there is no answer", () => {
  expect(commandOf({ ssh: "big" })).toEqual([
    "ssh",
    "-T",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=8",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=2",
    "big",
  ])
  expect(commandOf({ command: ["docker", "exec"] })).toEqual(["docker", "exec"])
})

test.each([
  ["1.17.9", "big has OpenCode 1.17.9; 1.18.28 or newer, below 2, is needed."],
  ["1.18.27", "big has OpenCode 1.18.27; 1.18.28 or newer, below 2, is needed."],
  ["2.0.0", "big has OpenCode 2.0.0; 1.18.28 or newer, below 2, is needed."],
  ["1.18.28", undefined],
  ["1.18.33", undefined],
  ["1.19.3", undefined],
])("a host with OpenCode %s is accepted or refused by its version", (version, problem) => {
  expect(versionProblem("big", version)).toBe(problem)
})

describe("the host's clock", () => {
  const id = "msg_0123456789abxyz"

  test("message ids are shifted for the host's clock and back, and only where the clocks differ", () => {
    const day = 86_400_000
    expect(movedID(movedID(id, day), -day)).toBe(id)
    expect(movedID(id, day) > id).toBe(true)
    expect(movedID("ses_x", day)).toBe("ses_x")
    expect([skewOfIDs(59_999), skewOfIDs(-90_000.5)]).toEqual([0, -90_000])
  })

  test("message times are corrected by the difference to the host's clock", () => {
    const message = {
      id,
      role: "assistant",
      createdAt: 5000,
      completedAt: 6000,
      parentID: id,
      summary: false,
      parts: [],
    } as const
    expect(movedMessage(message, { ids: 0, clock: 1000 })).toMatchObject({ id, createdAt: 4000, completedAt: 5000 })
  })
})

const NO_QUESTION =
  " Nobody can be asked for a key or a password here: run the command of hosts.big once in a terminal, until it works without a question."

/** What a host says of its server that goes on and on. */
const ENDLESS = Symbol("endless")

describe("a connection", () => {
  const relay = { client: "me", unattended: 1000, kept: 1000, patience: 1000 }
  const served: RemoteServerState = { id: "one", version: "1.18.33" }

  const start = (
    script: () => Promise<string> = async () => "relay",
    says: unknown = served,
    connectTimeout = 5000,
  ) => {
    const clock = new FakeClock()
    const lines: {
      ports: ChannelPorts
      closed: boolean
      pong?: (pong: PingReply) => void
      orders: string[]
      pings: number
      listening?: CallOptions
      answers?: CallEnd
      order?: CallOptions
      cut?: (error: unknown) => void
    }[] = []
    const heard: (Hint | undefined)[] = []
    const phases: string[] = []
    const settings = { name: "big", command: ["x"], opencode: "", connectTimeout, relay }
    const link = new HostConnection(settings, {
      clock,
      script,
      log: () => {},
      changed: ({ phase }) => void phases.push(phase),
      onActivity: (hint) => void heard.push(hint),
      open(ports) {
        const line: (typeof lines)[number] = { ports, closed: false, orders: [], pings: 0 }
        lines.push(line)
        return {
          call: async (order, options) => {
            line.orders.push(order.do)
            if (order.do === "serve" && says === ENDLESS) {
              options?.receiver?.data?.(bytesOf("x".repeat(100_000)))
              return new Promise(() => {})
            }
            if (order.do === "serve") options?.receiver?.data?.(bytesOf(JSON.stringify(says)))
            if (order.do === "request") return line.answers ?? {}
            if (order.do === "look") {
              line.order = options
              return new Promise((_resolve, reject) => (line.cut = reject))
            }
            if (order.do !== "listen") return {}
            line.listening = options
            return new Promise(() => {})
          },
          ping: (answered) => {
            line.pings++
            line.pong = answered
          },
          close: () => {
            line.closed = true
            line.cut?.(new ConnectionLost("the connection was cut"))
          },
        }
      },
    })
    const opened = async (at = lines.length - 1) => {
      lines[at]?.ports.opened({ now: clock.now() + 7000, cache: "/far/.cache" })
      await clock.advance(0)
    }
    return { clock, link, lines, phases, opened, heard }
  }

  test("a connection is made when it is first needed, and measures the host's clock", async () => {
    const { clock, link, lines, opened, phases } = start()
    expect(lines).toHaveLength(0)
    link.use("a")
    await clock.advance(0)
    const reached = link.reached()
    await opened()
    expect(await reached).toEqual({ skew: 7000, cache: "/far/.cache", server: served })
    expect(phases).toEqual(["connecting", "contact"])
  })

  test("a connection whose host stops answering is closed and made again at once", async () => {
    const { clock, link, lines, opened, phases } = start()
    link.use("a")
    await clock.advance(0)
    await opened()
    await clock.advance(9999)
    expect(link.reach.phase).toBe("contact")
    await clock.advance(1)
    expect(lines[0]?.closed).toBe(true)
    expect(link.reach.phase).toBe("no contact")
    await clock.advance(0)
    expect(lines).toHaveLength(2)
    await opened()
    expect(phases).toEqual(["connecting", "contact", "no contact", "contact"])
  })

  test("answers of a relay to no ping lead to no more pings, and do not close the connection", async () => {
    const { clock, link, lines, opened } = start()
    link.use("a")
    await clock.advance(0)
    await opened()
    const pongs = () => lines[0]?.pings ?? 0
    for (let nth = 0; nth < 5; nth++) lines[0]?.pong?.({ now: 1 })
    for (let nth = 0; nth < 5; nth++) {
      await clock.advance(4000)
      expect(pongs()).toBe(nth + 2)
      lines[0]?.pong?.({ now: 1 })
    }
    expect(link.reach.phase).toBe("contact")
  })

  test("a relay that tells of its server without end is not read on", async () => {
    const { clock, link, lines, opened } = start(undefined, ENDLESS)
    link.use("a")
    await clock.advance(0)
    await opened()
    expect([link.contact, lines[0]?.closed]).toEqual([undefined, true])
  })

  test("a connection is lost when the server on the host is silent, although the relay answers", async () => {
    const { clock, link, lines, opened } = start()
    link.use("a")
    await clock.advance(0)
    await opened()
    lines[0]?.pong?.({ now: 1, server: false })
    await clock.advance(4000)
    expect(link.reach.phase).toBe("contact")
    lines[0]?.pong?.({ now: 1, server: false })
    expect(link.reach.phase).toBe("no contact")
  })

  test("a connection is made again at once when a request finds that the server is gone", async () => {
    const { clock, link, lines, opened } = start()
    link.use("a")
    await clock.advance(0)
    await opened()
    const request = { do: "request", method: "GET", path: "/session", headers: {} } as const
    Object.assign(lines[0] ?? {}, { answers: { problem: "Unable to connect", isServerGone: true } })
    const first = link.call(request).catch((error) => error)
    // Several are told of one death.
    const second = await link.call(request).catch((error) => error)
    expect([await first, second].map(({ name }) => name)).toEqual(["NoContact", "NoContact"])
    expect([link.reach.phase, lines[0]?.closed]).toEqual(["no contact", true])
    await clock.advance(0)
    await opened()
    expect([link.reach.phase, lines.length]).toEqual(["contact", 2])
    // A request that merely failed is no loss.
    Object.assign(lines[1] ?? {}, { answers: { problem: "it was too much" } })
    expect(await link.call(request)).toEqual({ problem: "it was too much" })
    expect(link.reach.phase).toBe("contact")
  })

  test("a connection is lost when nothing of an order has moved for an hour, although the host answers", async () => {
    const { clock, link, lines, opened, phases } = start()
    link.use("a")
    await clock.advance(0)
    await opened()
    const passes = async (ms: number) => {
      for (let waited = 0; waited < ms; waited += 4000) {
        lines[0]?.pong?.({ now: 1, server: true })
        await clock.advance(Math.min(4000, ms - waited))
      }
    }
    async function* parts() {
      yield bytesOf("one")
      yield bytesOf("two")
    }
    const look = { do: "look", folders: { root: "/far", store: "/far/store" } } as const
    const heard: string[] = []
    const receiver = { data: (body: Uint8Array) => void heard.push(textOf(body)) }
    const ended = link.call(look, { input: parts(), receiver }).catch((error) => error)
    const { input = parts() } = lines[0]?.order ?? {}
    const sent = (input as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]()
    for (const value of ["one", "two"]) {
      await passes(3_599_000)
      expect(await sent.next()).toEqual({ done: false, value: bytesOf(value) })
    }
    await passes(3_599_000)
    lines[0]?.order?.receiver?.data?.(bytesOf("three"))
    await passes(3_599_000)
    expect([link.reach.phase, heard]).toEqual(["contact", ["three"]])
    await passes(1000)
    expect(await ended).toMatchObject({ code: "host", message: "big: an order there neither ends nor goes on." })
    expect(lines[0]?.closed).toBe(true)
    await opened()
    expect(phases).toEqual(["connecting", "contact", "no contact", "contact"])
  })

  test("an order that has ended has no time limit any more", async () => {
    const { clock, link, lines, opened } = start()
    link.use("a")
    await clock.advance(0)
    await opened()
    await link.call({ do: "request", method: "GET", path: "/session", headers: {} })
    for (let waited = 0; waited < 4_000_000; waited += 4000) {
      lines[0]?.pong?.({ now: 1, server: true })
      await clock.advance(4000)
    }
    expect([link.reach.phase, lines.length]).toEqual(["contact", 1])
  })

  test("a connection attempt has no time limit when connectTimeout is 0", async () => {
    const { clock, link, lines } = start(undefined, served, 0)
    link.use("a")
    await clock.advance(100_000)
    expect(lines.map(({ closed }) => closed)).toEqual([false])
  })

  test("a connection attempt that hangs is repeated, without an error, until the caller stops it", async () => {
    const { clock, link, lines } = start()
    link.use("a")
    await clock.advance(0)
    const stop = new AbortController()
    const reached = link.reached(stop.signal)
    await clock.advance(5000)
    expect(lines[0]?.closed).toBe(true)
    await clock.advance(0)
    expect(lines).toHaveLength(2)
    stop.abort()
    await expect(reached).rejects.toThrow("it was stopped")
  })

  test("a connection attempt gets more time once the host has sent something", async () => {
    const { clock, link, lines, opened } = start()
    link.use("a")
    await clock.advance(4000)
    lines[0]?.ports.onActivity()
    await clock.advance(29_000)
    expect(lines).toHaveLength(1)
    await opened()
    expect(link.reach.phase).toBe("contact")
    link.close()
    link.use("b")
    await clock.advance(0)
    lines[1]?.ports.onActivity()
    await clock.advance(30_000)
    expect(lines[1]?.closed).toBe(true)
  })

  test("a failed connection gives the last line of the command, or says that OpenCode was not found", async () => {
    for (const [complaint, why, tries] of [
      [
        "x\nssh: Could not resolve hostname big\n",
        "big could not be reached: ssh: Could not resolve hostname big. Is that its name? It stands in the option hosts.big, or in ~/.ssh/config.",
        3,
      ],
      ["superagents: no opencode\n", "OpenCode was not found on big.", 1],
    ] as const) {
      const { clock, link, lines } = start()
      link.use("a")
      const reached = link.reached().catch((error) => error.message)
      for (let nth = 0; nth < tries; nth++) {
        await clock.advance(3000)
        lines[nth]?.ports.closed({ complaint, byItself: true })
      }
      expect(await reached).toBe(why)
      expect(link.reach.phase).toBe("ended")
      await expect(link.call({ do: "rest" })).rejects.toThrow("there is no contact with big")
    }
  })

  test.each([
    ["ssh: connect to host big port 22: Connection refused", ""],
    ["Host key verification failed.", NO_QUESTION],
    ["me@big: Permission denied (publickey,password).", NO_QUESTION],
    ["sudo: a password is required", NO_QUESTION],
    ["Error response from daemon: No such container: box", ""],
    ['Error from server (NotFound): deployments.apps "box" not found', ""],
  ])("a refused connection reports the command's error without asking the user: %s", async (said, advised) => {
    const { clock, link, lines } = start()
    link.use("a")
    const reached = link.reached().catch((error) => error.message)
    for (let nth = 0; nth < 3; nth++) {
      await clock.advance(3000)
      lines[nth]?.ports.closed({ complaint: `${said}\r\n`, byItself: true })
    }
    expect(await reached).toMatch(
      new RegExp(`^big could not be reached: ${said.replace(/[()"]/g, ".")}[.]?${advised}$`),
    )
  })

  test.each([
    [{ now: Number.NaN, cache: "/c" }],
    [{ now: 9e15, cache: "/c" }],
    [{ now: 1, cache: "relative" }],
    [{ now: 1, cache: "/c\nrm -rf /" }],
    [null],
    ["hello"],
  ])("a connection whose first message is %j is refused as not our relay", async (hello) => {
    const { clock, link, lines } = start()
    link.use("a")
    const reached = link.reached().catch((error) => error.message)
    for (let nth = 0; nth < 3; nth++) {
      await clock.advance(3000)
      lines[nth]?.ports.opened(hello as never)
    }
    expect(await reached).toBe(
      "big cannot be used: what answers there is not the script that was sent. Its command has to run a line of shell there, and to pass what that prints through unchanged.",
    )
    expect(lines.map(({ closed }) => closed)).toEqual([true, true, true])
  })

  test.each([[{ id: 1, version: 2 }], [{ id: "x", version: "1.18\u001b[2J" }], [null], ["x".repeat(200)], [{}]])(
    "a connection is refused if the server describes its OpenCode as %j",
    async (says) => {
      const { clock, link, opened } = start(undefined, says)
      link.use("a")
      const reached = link.reached().catch((error) => error.message)
      for (let nth = 0; nth < 3; nth++) {
        await clock.advance(3000)
        await opened()
      }
      expect(await reached).toBe("big cannot be used: what it says of its OpenCode cannot be read")
      expect(link.contact).toBeUndefined()
    },
  )

  test("a connection reports when its relay script cannot be read", async () => {
    const { clock, link } = start(() => Promise.reject(new Error("no such file")))
    link.use("a")
    const told = expect(link.reached()).rejects.toThrow("big could not be reached: no such file")
    await clock.advance(0)
    await told
  })

  test("a connection is not started if nobody needs it any more when its script is read", async () => {
    let read = (_script: string) => {}
    const { clock, link, lines } = start(() => new Promise((resolve) => (read = resolve)))
    link.use("a")
    await clock.advance(0)
    link.close()
    read("relay")
    await clock.advance(0)
    expect(lines).toHaveLength(0)
  })

  test("a connection lost while unused is not made again, and its next user requests the server anew", async () => {
    const { clock, link, lines, opened } = start()
    link.use("a")
    await clock.advance(0)
    await opened()
    link.release("a")
    expect(link.contact).toBeUndefined()
    link.use("b")
    await clock.advance(0)
    expect(lines[0]?.orders).toEqual(["serve", "listen", "rest", "serve", "listen"])
    expect(link.contact?.server).toEqual(served)
    link.release("b")
    lines[0]?.ports.closed({ complaint: "", byItself: true })
    await clock.advance(60_000)
    expect([link.reach.phase, lines.length]).toEqual(["idle", 1])
  })

  test("a connection passes on hints from the host only while somebody needs it and there is contact", async () => {
    const { clock, link, lines, opened, heard } = start()
    link.use("a")
    await clock.advance(0)
    await opened()
    expect(link.hears).toBe(false)
    const hint = { session: "ses_1", urgent: true }
    const tells = (nth: number) => {
      lines[nth]?.listening?.receiver?.head?.("{}")
      lines[nth]?.listening?.receiver?.data?.(bytesOf(JSON.stringify(hint)))
    }
    tells(0)
    expect([link.hears, heard]).toEqual([true, [undefined, hint]])
    lines[0]?.ports.closed({ complaint: "", byItself: true })
    expect(link.hears).toBe(false)
    await clock.advance(0)
    await opened()
    tells(1)
    expect([link.hears, heard.length]).toEqual([true, 4])
    link.release("a")
    expect([link.hears, lines[1]?.listening?.signal?.aborted]).toEqual([false, true])
    tells(1)
    expect(heard).toHaveLength(4)
  })

  test("a connection is kept for some minutes after its last use, and then closed", async () => {
    const { clock, link, lines, opened } = start()
    link.use("a")
    await clock.advance(0)
    await opened()
    const answer = () => lines[0]?.pong?.({ now: 1, server: true })
    link.release("a")
    expect(lines[0]?.orders).toEqual(["serve", "listen", "rest"])
    for (let waited = 0; waited < 600_000; waited += 4000) {
      answer()
      await clock.advance(4000)
    }
    expect(lines[0]?.closed).toBe(true)
    expect(link.reach.phase).toBe("idle")
  })
})

test("the command of a host has neither a terminal nor a password window", async () => {
  const script = 'echo "$SSH_ASKPASS_REQUIRE" >&2; (exec </dev/tty) 2>/dev/null && echo terminal >&2; exit 1'
  const closed = await new Promise<{ complaint: string }>((resolve) => {
    new Channel({ command: ["sh", "-c", script], opening: "", onActivity: () => {}, opened: () => {}, closed: resolve })
  })
  expect(closed.complaint).toBe("never\n")
})

test("a connection is closed when the relay sends more than was asked for", async () => {
  const frame = Buffer.from(encode("data", 1, new Uint8Array(MOST_BODY_BYTES))).toString("base64")
  const hello = Buffer.from(encode("hello", 0, bytesOf('{"now":1,"cache":"/c"}'))).toString("base64")
  const flood = `
    process.stdout.write(${JSON.stringify(MARKER)})
    process.stdout.write(Buffer.from(${JSON.stringify(hello)}, "base64"))
    const frame = Buffer.from(${JSON.stringify(frame)}, "base64")
    let came = 0
    process.stdin.on("data", (chunk) => {
      const isAsked = came <= "begin".length && came + chunk.length > "begin".length
      came += chunk.length
      if (isAsked) for (let sent = 0; sent < 40; sent++) process.stdout.write(frame)
    })`
  const closed = await new Promise<{ complaint: string }>((resolve) => {
    const channel = new Channel({
      command: [process.execPath, "-e", flood],
      opening: "begin",
      onActivity: () => {},
      opened: () => {
        const receiver = { data: () => new Promise<void>(() => {}) }
        channel.call({ do: "serve" }, { receiver }).catch(() => {})
      },
      closed: resolve,
    })
  })
  expect(closed.complaint).toBe("more was sent than was asked for")
})

test("a call whose input cannot be read ends with that reason", async () => {
  const hello = Buffer.from(encode("hello", 0, bytesOf('{"now":1,"cache":"/c"}'))).toString("base64")
  const says = `process.stdout.write(${JSON.stringify(MARKER)})
    process.stdout.write(Buffer.from(${JSON.stringify(hello)}, "base64"))
    process.stdin.resume()`
  async function* broken() {
    yield bytesOf("half of it")
    throw new Error("EIO: the disk is broken")
  }
  const end = await new Promise((resolve) => {
    const channel = new Channel({
      command: [process.execPath, "-e", says],
      opening: "begin",
      onActivity: () => {},
      opened: () => {
        const ended = channel.call({ do: "serve" }, { input: broken() })
        void ended.then(resolve, resolve).then(() => channel.close())
      },
      closed: () => {},
    })
  })
  expect(end).toEqual({ problem: "EIO: the disk is broken" })
})

describe("the relay", () => {
  const start = (patience = 60_000) => {
    const [input, output] = [new PassThrough(), new PassThrough()]
    const over = serve({ input, output }, { client: "me", unattended: 1000, kept: 1000, patience }, PROCESSES)
    const frames = new Frames(true)
    const waiting: ((taken: ReturnType<Frames["take"]>) => void)[] = []
    const bytes = new Map<number, number>()
    const came = (call: number) => bytes.get(call) ?? 0
    output.on("data", (chunk: Uint8Array) => {
      const taken = frames.take(chunk)
      for (const { kind, call, body } of taken) if (kind === "data") bytes.set(call, came(call) + body.length)
      for (const hear of waiting) hear(taken)
    })
    const request = (call: number, path: string, body = "") =>
      ask(call, { do: "request", method: "POST", path, headers: {} }, body)
    const ask = (call: number, order: Order, body = "") =>
      new Promise<{ out: string; end: object }>((resolve) => {
        let out = ""
        waiting.push((taken) => {
          for (const frame of taken.filter((each) => each.call === call)) {
            if (frame.kind === "data") out += textOf(frame.body)
            if (frame.kind === "end") resolve({ out, end: JSON.parse(textOf(frame.body)) })
          }
        })
        input.write(encode("open", call, bytesOf(JSON.stringify(order))))
        for (const frame of inFrames("data", call, bytesOf(body))) input.write(frame)
        input.write(encode("end", call))
      })
    return { input, over, ask, request, came }
  }

  let root: string
  let server: HttpServer
  beforeEach(async () => {
    root = mkdtempSync(join(tmpdir(), "superagents-relay-"))
    vi.stubEnv("XDG_STATE_HOME", root)
    server = createServer(async (request, response) => {
      if (request.url === "/hang") return
      if (request.url === "/much") return void response.end(Buffer.alloc(4_000_000))
      if (request.url === "/global/health") return void response.end('{"version":"1.18.33"}')
      let came = 0
      for await (const chunk of request) came += chunk.length
      response.end(String(came))
    })
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
    const { port } = server.address() as AddressInfo
    const folder = join(root, "opencode-superagents/serve")
    mkdirSync(folder, { recursive: true })
    writeFileSync(join(folder, "password"), "secret")
    writeFileSync(join(folder, "server.json"), JSON.stringify({ id: "one", port, pid: process.pid }))
  })
  afterEach(() => {
    vi.unstubAllEnvs()
    server.closeAllConnections()
    server.close()
    rmSync(root, { recursive: true, force: true })
  })

  test("the relay carries out orders in parallel and passes on requests with their bodies", async () => {
    const { input, over, ask, request } = start()
    expect(JSON.parse((await ask(1, { do: "serve" })).out)).toEqual({ id: "one", version: "1.18.33" })
    const [two, three] = await Promise.all([request(2, "/x", "x".repeat(200_000)), request(3, "/x", "two")])
    expect([two, three]).toEqual([
      { out: "200000", end: {} },
      { out: "3", end: {} },
    ])
    input.end()
    await over
  })

  test("the relay sends no more of an answer than its reader has taken", async () => {
    const { input, over, ask, request, came } = start()
    await ask(1, { do: "serve" })
    void request(2, "/much")
    await vi.waitFor(() => expect(came(2)).toBeGreaterThanOrEqual(WINDOW_BYTES))
    await request(3, "/x")
    expect(came(2)).toBeLessThanOrEqual(WINDOW_BYTES + MOST_BODY_BYTES)
    for (let given = 0; given < 4; given++) {
      input.write(encode("more", 2, bytesOf(String(WINDOW_BYTES))))
      await vi.waitFor(() =>
        expect(came(2)).toBeGreaterThanOrEqual(Math.min(4_000_000, (given + 2) * WINDOW_BYTES - 2 * MOST_BODY_BYTES)),
      )
    }
    expect(came(2)).toBe(4_000_000)
    input.end()
    await over
  })

  test("the relay ends a request when its call is cancelled", async () => {
    const { input, over, ask, request } = start()
    await ask(1, { do: "serve" })
    const ended = request(2, "/hang")
    input.write(encode("cancel", 2))
    expect((await ended).end).toMatchObject({ problem: expect.stringContaining("abort") })
    input.end()
    await over
  })

  test("the relay ends when it has received nothing for too long", async () => {
    await start(10).over
  })
})
