import { createServer, type Server as HttpServer, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { afterEach, describe, expect, test, vi } from "vitest"
import { type CallOptions, RemoteEventStream } from "../../../src/features/hosts/channel.ts"
import { bytesOf, type Kind, textOf } from "../../../src/features/hosts/frames.ts"
import { type CallEnd, type Hint, hintIn } from "../../../src/features/hosts/orders.ts"
import { hintOf, listen, type Server } from "../../../src/features/hosts/relay/server.ts"
import type { Place } from "../../../src/runtime/places/place.ts"
import { FakeClock } from "../../support/fake-clock.ts"
import { Rig, type RigOptions } from "../../support/rig.ts"

/** What a host's server tells of our tasks: hints, which hasten a look and are never needed. */

describe("the event stream", () => {
  type Listening = { options: CallOptions; end: (end?: CallEnd) => void; cut: () => void }

  const start = () => {
    const clock = new FakeClock()
    const timers = clock.view()
    const calls: Listening[] = []
    const heard: (Hint | undefined)[] = []
    const eventStream = new RemoteEventStream({
      clock: timers,
      onActivity: (hint) => void heard.push(hint),
      call: (order, options) => {
        expect(order).toEqual({ do: "listen" })
        return new Promise((resolve, reject) => {
          calls.push({ options, end: (end = {}) => resolve(end), cut: () => reject(new Error("cut")) })
        })
      },
    })
    const begins = (nth = calls.length - 1) => calls[nth]?.options.receiver?.head?.("{}")
    const tells = (hint: unknown, nth = calls.length - 1) =>
      calls[nth]?.options.receiver?.data?.(bytesOf(JSON.stringify(hint)))
    return { clock, timers, eventStream, calls, heard, begins, tells }
  }
  const idle = { session: "ses_1", urgent: true }

  test("the event stream first signals that events may have been missed, then passes on hints", () => {
    const { eventStream, heard, begins, tells } = start()
    expect(eventStream.hears).toBe(false)
    eventStream.listen()
    expect(eventStream.hears).toBe(false)
    begins()
    expect(eventStream.hears).toBe(true)
    tells(idle)
    tells({ session: "ses_2" })
    expect(heard).toEqual([undefined, idle, { session: "ses_2", urgent: false }])
  })

  test("the event stream ignores hints that cannot be read", () => {
    const { eventStream, heard, begins, tells } = start()
    eventStream.listen()
    begins()
    for (const absurd of [null, 3, "x", {}, { session: 3 }, { session: "\u001b[2J", urgent: true }]) tells(absurd)
    expect(heard).toEqual([undefined])
    expect(hintIn("{")).toBeUndefined()
  })

  test("the event stream is opened again after growing pauses when it fails", async () => {
    const { clock, eventStream, calls, begins } = start()
    eventStream.listen()
    for (const pause of [10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000]) {
      const before = calls.length
      calls.at(-1)?.end({ problem: "no events" })
      await clock.advance(pause - 1)
      expect(calls).toHaveLength(before)
      await clock.advance(1)
      expect(calls).toHaveLength(before + 1)
    }
    begins()
    calls.at(-1)?.end()
    await clock.advance(0)
    expect(eventStream.hears).toBe(false)
    const before = calls.length
    await clock.advance(10_000)
    expect(calls).toHaveLength(before + 1)
  })

  test("the event stream is not opened without contact and leaves no timer", async () => {
    const { clock, timers, eventStream, calls, begins } = start()
    eventStream.listen()
    begins()
    calls[0]?.cut()
    await clock.advance(1_000_000)
    expect([calls.length, eventStream.hears, timers.pending]).toEqual([1, false, 0])
    eventStream.listen()
    begins()
    expect(eventStream.hears).toBe(true)
  })

  test("the event stream ignores late events when nobody needs it", async () => {
    const { clock, timers, eventStream, calls, heard, begins, tells } = start()
    eventStream.listen()
    begins()
    eventStream.stopListening()
    expect(calls[0]?.options.signal?.aborted).toBe(true)
    begins()
    tells(idle)
    calls[0]?.end()
    await clock.advance(1_000_000)
    expect([calls.length, eventStream.hears, heard.length, timers.pending]).toEqual([1, false, 1, 0])
  })
})

describe("the relay's events", () => {
  const OURS = "/home/u/.cache/opencode-superagents/k/work/bg_1"
  const event = (type: string, properties: object, directory = OURS) =>
    JSON.stringify({ directory, payload: { id: "evt_1", type, properties } })

  test.each([
    ["session.idle", { sessionID: "ses_1" }],
    ["session.error", { sessionID: "ses_1", error: { name: "x" } }],
    ["session.status", { sessionID: "ses_1", status: { type: "retry", attempt: 1, message: "m" } }],
    ["permission.asked", { id: "per_1", sessionID: "ses_1" }],
    ["question.asked", { id: "que_1", sessionID: "ses_1" }],
    ["question.rejected", { sessionID: "ses_1", requestID: "que_1" }],
  ])("the relay marks %s as urgent, since it may be an end or a question", (type, properties) => {
    expect(hintOf(event(type, properties))).toEqual({ session: "ses_1", urgent: true })
  })

  test("the relay reports an ended answer as a change that is not urgent", () => {
    const info = { sessionID: "ses_1", role: "assistant", finish: "tool-calls" }
    expect(hintOf(event("message.updated", { info }))).toEqual({ session: "ses_1", urgent: false })
  })

  test.each([
    ["what is being written", event("message.part.delta", { sessionID: "ses_1", delta: "x" })],
    ["an answer that has not ended", event("message.updated", { info: { sessionID: "ses_1" } })],
    ["that it works", event("session.status", { sessionID: "ses_1", status: { type: "busy" } })],
    ["what happens in another folder", event("session.idle", { sessionID: "ses_1" }, "/home/u/project")],
    ["one that names ours", event("session.idle", { sessionID: "ses_1", x: OURS }, "/home/u/project")],
    ["no session", event("session.idle", {})],
    ["no event", `${OURS} {`],
    ["nothing", `"${OURS}"`],
    ["null", "null"],
  ])("the relay gives no hint for %s", (_what, text) => {
    expect(hintOf(text)).toBeUndefined()
  })

  describe("the relay's event stream", () => {
    let http: HttpServer | undefined
    afterEach(() => {
      http?.closeAllConnections()
      http?.close()
      vi.useRealTimers()
    })

    /** OpenCode's server as the relay asks it, with its stream in the test's hand. */
    const start = async (status = 200) => {
      const asked: string[] = []
      const streams: ServerResponse[] = []
      http = createServer((request, response) => {
        asked.push(request.url ?? "")
        streams.push(response.writeHead(status, { "content-type": "text/event-stream" }))
        response.flushHeaders()
      })
      await new Promise<void>((resolve) => void http?.listen(0, "127.0.0.1", resolve))
      const { port } = http.address() as AddressInfo
      const server = {
        fetch: (path: string, init: RequestInit) => fetch(`http://127.0.0.1:${port}${path}`, init),
      } as unknown as Server
      const frames: [Kind, string][] = []
      let came = () => {}
      const stop = new AbortController()
      const call = {
        signal: stop.signal,
        input: (async function* () {})(),
        send: async (kind: Kind, body: Uint8Array) => {
          frames.push([kind, textOf(body)])
          came()
        },
      }
      const until = async (count: number) => {
        while (frames.length < count)
          await new Promise<void>((resolve) => {
            came = resolve
          })
      }
      return { asked, streams, server, frames, call, until, stop }
    }

    test("the relay's event stream passes on hints from its head to its end, however the bytes are cut", async () => {
      const { asked, streams, server, frames, call, until } = await start()
      const over = listen(call, server)
      await until(1)
      const [stream] = streams
      const text = `data: {"payload":{"type":"server.connected"}}\n\ndata: ${event("session.idle", { sessionID: "ses_é" })}\n\n`
      const bytes = Buffer.from(text)
      const cut = bytes.indexOf("é") + 1
      stream?.write(bytes.subarray(0, cut))
      stream?.write(bytes.subarray(cut))
      stream?.write(`data: ${event("session.idle", { sessionID: "ses_2" })}\n\n`)
      await until(3)
      stream?.end()
      expect(await over).toEqual({})
      expect(asked).toEqual(["/global/event"])
      expect(frames).toEqual([
        ["head", '{"status":200,"headers":{}}'],
        ["data", '{"session":"ses_é","urgent":true}'],
        ["data", '{"session":"ses_2","urgent":true}'],
      ])
    })

    test("the relay's event stream skips an event that is too long and passes on the next", async () => {
      const { streams, server, frames, call, until } = await start()
      const over = listen(call, server)
      await until(1)
      streams[0]?.write(`data: ${event("session.idle", { sessionID: "ses_1", x: "x".repeat(3_000_000) })}\n\n`)
      streams[0]?.write(`data: ${event("session.idle", { sessionID: "ses_2" })}\n\n`)
      await until(2)
      streams[0]?.end()
      await over
      expect(frames.slice(1)).toEqual([["data", '{"session":"ses_2","urgent":true}']])
    })

    test("the relay's event stream ends when it has been silent for too long", async () => {
      const { server, call, until } = await start()
      const over = listen(call, server, 60).catch((error: Error) => error.name)
      await until(1)
      expect(await over).toBe("AbortError")
    })

    test("the relay's event stream ends when its caller stops it", async () => {
      const { server, call, until, stop } = await start()
      const over = listen(call, server).catch((error: Error) => error.name)
      await until(1)
      stop.abort()
      expect(await over).toBe("AbortError")
    })

    test("the relay reports an event stream that the server refuses", async () => {
      const { server, call, frames } = await start(404)
      expect(await listen(call, server)).toEqual({ problem: "OpenCode there tells no events (404)" })
      expect(frames).toEqual([])
    })
  })
})

describe("the polling of a run", () => {
  const PLACES = {
    capture: async () => {},
    enter: async () => ({ directory: "/place", preface: "" }),
    archive: async () => ({ files: [], added: 0, removed: 0, submodules: [], unsaved: [] }),
  } as never as Place

  /** A task at work of which the host tells no event, as of one on another machine. */
  const start = async (options: RigOptions["options"] = {}, hears = () => true) => {
    const rig = new Rig({ options: { stallTimeout: 0, ...options }, worktrees: async () => PLACES, hears })
    rig.opencode.move = async () => {}
    rig.opencode.onEvent = () => "lose"
    rig.onPrompt("FIND", { hang: true })
    const { id } = await rig.launch({ place: "worktree" })
    await rig.clock.advance(60_000)
    rig.opencode.calls.length = 0
    const looks = () => rig.opencode.calls.filter((call) => call === "activity").length
    const stirred = (urgent: boolean) => rig.manager.placeTold(id, { type: "active", urgent })
    return { rig, id, looks, stirred }
  }

  test("a run on a host is polled seldom while hints arrive and often while none can", async () => {
    let hears = true
    const { rig, looks } = await start({}, () => hears)
    await rig.clock.advance(120_000)
    expect(looks()).toBe(10)
    hears = false
    await rig.clock.advance(12_000)
    rig.opencode.calls.length = 0
    await rig.clock.advance(120_000)
    expect(looks()).toBe(60)
  })

  test("a run on a host is polled at once after an urgent hint, and otherwise not", async () => {
    const { rig, looks, stirred } = await start({ pollInterval: 3_600_000 })
    expect(looks()).toBe(0)
    stirred(true)
    await rig.clock.advance(0)
    expect(looks()).toBe(1)
    // Before the lease is renewed, at which it looks, too.
    await rig.clock.advance(60_000)
    expect(looks()).toBe(1)
  })

  test("hints that are not urgent cause no more polls than usual", async () => {
    const { rig, looks, stirred } = await start({ pollInterval: 3_600_000 })
    for (let nth = 0; nth < 100; nth++) {
      stirred(false)
      await rig.clock.advance(100)
    }
    expect(looks()).toBeLessThanOrEqual(6)
    expect(looks()).toBeGreaterThanOrEqual(5)
  })

  test("a flood of urgent hints causes only a few polls", async () => {
    const { rig, looks, stirred } = await start({ pollInterval: 3_600_000 })
    for (let nth = 0; nth < 1000; nth++) {
      stirred(true)
      await rig.clock.advance(1)
    }
    expect(looks()).toBeLessThanOrEqual(6)
  })

  test("an urgent hint causes a poll although polling is off", async () => {
    const { rig, looks, stirred } = await start({ pollInterval: 0 })
    await rig.clock.advance(600_000)
    expect(looks()).toBe(0)
    stirred(true)
    await rig.clock.advance(600_000)
    expect(looks()).toBe(1)
  })
})
