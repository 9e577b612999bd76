import { Hono } from "hono"
import { beforeEach, describe, expect, test } from "vitest"
import { NO_USAGE } from "../../../src/core/task.ts"
import type { BoardTask } from "../../../src/features/board/task.ts"
import { eventsRoute } from "../../../src/features/web/app.ts"
import type { Env, PageCaller } from "../../../src/features/web/auth.ts"
import { Feed } from "../../../src/features/web/feed.ts"
import type { PageUserActions, Source } from "../../../src/features/web/ports.ts"
import { eventReader } from "../../../src/lib/http.ts"
import { FakeAgents, viewOf } from "../../support/fake-agents.ts"
import { FakeBoard } from "../../support/fake-board.ts"
import { type ClockView, FakeClock, flush } from "../../support/fake-clock.ts"

type Heard = { readonly event: string; readonly data: any }

let clock: FakeClock
let view: ClockView
let agents: FakeAgents
let board: FakeBoard
let source: Source
let feed: Feed
let logged: string[]

beforeEach(() => {
  clock = new FakeClock()
  view = clock.view()
  agents = new FakeAgents()
  board = new FakeBoard()
  source = { agents, board }
  logged = []
  const log = (...line: unknown[]) => void logged.push(JSON.stringify(line))
  feed = new Feed({ project: "beans", source: () => source, clock: view, log })
})

/** A reader, with what it heard and how it leaves. */
async function join() {
  const heard: Heard[] = []
  let ended = false
  const leave = await feed.join(
    (event, data) => void heard.push({ event, data: JSON.parse(data) }),
    () => {
      ended = true
    },
  )
  return { heard, leave, changes: () => heard.filter(({ event }) => event === "change"), isEnded: () => ended }
}

test("the feed has no timer and no subscription while it has no readers", async () => {
  const { leave } = await join()
  expect([agents.listeners, board.listeners]).toEqual([1, 1])
  expect(view.pending).toBeGreaterThan(0)
  leave()
  expect([agents.listeners, board.listeners, view.pending, feed.readers]).toEqual([0, 0, 0, 0])
})

test("a reader that arrives while the last one leaves is still sent changes", async () => {
  const { leave } = await join()
  const coming = join()
  leave()
  const { heard } = await coming
  agents.set(viewOf({ task: { id: "bg_a" } }))
  await clock.advance(1000)
  expect(heard.map(({ event }) => event)).toEqual(["state", "change"])
})

test("the bill of the day is not added up at each change of one task", async () => {
  let sums = 0
  const spentToday = () => ({ ...NO_USAGE, cost: ++sums })
  source = { agents, person: { spentToday } as PageUserActions }
  const { changes } = await join()
  const before = sums
  for (let at = 0; at < 5; at++) {
    agents.set(viewOf({ task: { id: "bg_a", description: `word ${at}` } }))
    await clock.advance(1000)
  }
  expect([changes().length, sums]).toEqual([5, before])
  await clock.advance(10_000)
  expect(sums).toBeGreaterThan(before)
  expect(changes().at(-1)?.data.spent).toEqual({ cost: sums, atLeast: false })
})

test("a new reader first receives the whole state", async () => {
  agents.set(viewOf({ task: { id: "bg_a" } }))
  board.put({ id: "5" }, { state: "running" })
  const { heard } = await join()
  expect(heard).toHaveLength(1)
  expect(heard[0]).toMatchObject({
    event: "state",
    data: {
      project: "beans",
      now: clock.now(),
      agents: [{ id: "bg_a" }],
      board: { tasks: [{ id: "5" }], inFlight: ["5"] },
    },
  })
})

test("a reader receives only changes after the state, with changes of one moment in one event", async () => {
  agents.set(viewOf({ task: { id: "bg_a" } }), viewOf({ task: { id: "bg_b" } }))
  board.put({ id: "5" })
  const { changes } = await join()
  await clock.advance(1000)
  expect(changes()).toEqual([])
  for (let delta = 0; delta < 100; delta++) agents.alter("bg_a", { toolCalls: delta })
  board.put({ id: "5", title: "Other" })
  await clock.advance(1000)
  expect(changes()).toHaveLength(1)
  const { data } = changes()[0] as Heard
  expect(data.agents).toEqual([expect.objectContaining({ id: "bg_a", toolCalls: 99 })])
  expect(data.tasks).toEqual([expect.objectContaining({ id: "5", title: "Other" })])
  expect(Object.keys(data).toSorted()).toEqual(["agents", "now", "tasks"])
})

test("a look at thousands of tasks leaves OpenCode's thread to others in between", async () => {
  const count = 2000
  for (let at = 0; at < count; at++) agents.set(viewOf({ task: { id: `bg_${at}` } }))
  let [views, most, isOver] = [0, 0, false]
  const { get, list } = agents
  const counted = <Value>(seen: Value, much: number): Value => {
    views += much
    return seen
  }
  agents.get = (id) => counted(get(id), 1)
  agents.list = () => counted(list(), count)
  const others = () => {
    most = Math.max(most, views)
    views = 0
    if (!isOver) setImmediate(others)
  }
  others()
  const { heard } = await join()
  await flush()
  isOver = true
  expect(heard[0]?.data.agents).toHaveLength(count)
  expect(most).toBeGreaterThan(0)
  expect(most).toBeLessThanOrEqual(100)
})

test("a reader is sent which tasks and board tasks are removed and added", async () => {
  agents.set(viewOf({ task: { id: "bg_a" } }))
  board.put({ id: "5" }, { state: "running" })
  const { changes } = await join()
  agents.delete("bg_a")
  await board.complete("5", { kind: "user" })
  board.put({ id: "6" })
  await clock.advance(1000)
  expect(changes()[0]?.data).toMatchObject({
    agentsGone: ["bg_a"],
    tasksGone: ["5"],
    tasks: [{ id: "6" }],
    inFlight: [],
  })
})

test("a reader is sent how many tasks a deleted board file lost, and their restoration", async () => {
  board.gone = [board.put({ id: "9" })]
  board.tasks.clear()
  const { heard, changes } = await join()
  expect(heard[0]).toMatchObject({ data: { board: { lost: 1 } } })
  await board.restore()
  await clock.advance(1000)
  expect(changes()[0]?.data).toMatchObject({ lost: 0, tasks: [{ id: "9" }] })
})

test("a reader is sent a task's end even when it came and went between two events", async () => {
  const { changes } = await join()
  board.put({ id: "9" })
  await board.complete("9", { kind: "user" })
  await clock.advance(30_000)
  expect(changes()).toHaveLength(1)
  expect(changes()[0]?.data.ended).toContain("9")
})

test("a change without an event is found by a look every ten seconds", async () => {
  agents.set(viewOf({ task: { id: "bg_a" } }))
  const { changes } = await join()
  agents.get = (id) => (id === "bg_new" ? viewOf({ task: { id } }) : undefined)
  agents.ids = () => ["bg_new"]
  board.tasks.set("7", { ...board.put({ id: "7" }) })
  board.owners = [{ name: "build", description: "" }]
  await clock.advance(10_200)
  expect(agents.refreshes).toBe(2)
  expect(changes().flatMap(({ data }) => data.agents ?? [])).toEqual([expect.objectContaining({ id: "bg_new" })])
  expect(changes().flatMap(({ data }) => data.agentsGone ?? [])).toEqual(["bg_a"])
  expect(changes().flatMap(({ data }) => data.owners ?? [])).toEqual([{ name: "build", description: "" }])
})

test("a reader receives a heartbeat every fifteen seconds", async () => {
  const { heard } = await join()
  await clock.advance(46_000)
  expect(heard.filter(({ event }) => event === "beat")).toHaveLength(3)
})

test("a board that cannot be read reports its problem and keeps its tasks meanwhile", async () => {
  board.put({ id: "5" })
  const { changes } = await join()
  board.broken = "tasks.json is not valid JSON."
  board.put({ id: "6" })
  await clock.advance(1000)
  expect(changes()[0]?.data).toMatchObject({ problem: "tasks.json is not valid JSON." })
  expect(changes()[0]?.data.tasksGone).toBeUndefined()
  const late = await join()
  expect(late.heard[0]?.data.board).toMatchObject({ problem: "tasks.json is not valid JSON.", tasks: [{ id: "5" }] })
  board.broken = ""
  board.put({ id: "6" })
  await clock.advance(1000)
  expect(changes()[1]?.data).toMatchObject({ problem: "", tasks: [{ id: "6" }] })
})

test("the state has no board when the board is off", async () => {
  source = { agents }
  const { heard } = await join()
  expect(heard[0]?.data.board).toBeUndefined()
})

test("a later reader receives the current state, and no reader receives a change twice", async () => {
  agents.set(viewOf({ task: { id: "bg_a" } }))
  const first = await join()
  agents.alter("bg_a", { toolCalls: 7 })
  const second = await join()
  await clock.advance(1000)
  expect(second.heard[0]?.data.agents).toEqual([expect.objectContaining({ toolCalls: 7 })])
  expect(second.changes()).toEqual([])
  expect(first.changes()).toHaveLength(1)
})

test("the feed listens to new sources as soon as the sources change", async () => {
  const { changes } = await join()
  const others = new FakeAgents()
  others.set(viewOf({ task: { id: "bg_other" } }))
  source = { agents: others, board }
  feed.changed()
  await clock.advance(1000)
  expect([agents.listeners, others.listeners]).toEqual([0, 1])
  expect(changes()[0]?.data).toMatchObject({ agents: [{ id: "bg_other" }] })
})

test("the feed does not listen to new sources while it has no readers", async () => {
  feed.changed()
  expect([agents.listeners, view.pending]).toEqual([0, 0])
})

test("a reader is sent a whole new state when a board is added or removed", async () => {
  source = { agents }
  const { heard } = await join()
  board.put({ id: "5" })
  source = { agents, board }
  feed.changed()
  await clock.advance(1000)
  expect(heard.at(-1)).toMatchObject({ event: "state", data: { board: { tasks: [{ id: "5" }] } } })
  source = { agents }
  feed.changed()
  await clock.advance(1000)
  expect(heard.at(-1)?.event).toBe("state")
  expect(heard.at(-1)?.data.board).toBeUndefined()
  expect(heard).toHaveLength(3)
})

test("sources that change while the first reader arrives are used at once", async () => {
  const coming = join()
  const others = new FakeAgents()
  source = { agents: others, board }
  feed.changed()
  const { changes } = await coming
  others.set(viewOf({ task: { id: "bg_other" } }))
  await clock.advance(1000)
  expect([agents.listeners, others.listeners]).toEqual([0, 1])
  expect(changes().flatMap(({ data }) => data.agents ?? [])).toEqual([expect.objectContaining({ id: "bg_other" })])
})

test("a failing source is logged, and the next change is still sent", async () => {
  const { changes } = await join()
  const ids = agents.ids
  agents.ids = () => {
    throw new Error("no list")
  }
  await clock.advance(10_200)
  expect(logged.join()).toContain("no list")
  agents.ids = ids
  agents.set(viewOf({ task: { id: "bg_a" } }))
  await clock.advance(1000)
  expect(changes().at(-1)?.data.agents).toHaveLength(1)
})

test("the end of the feed closes all its readers", async () => {
  const one = await join()
  const other = await join()
  feed.close()
  expect([one.isEnded(), other.isEnded(), feed.readers, view.pending]).toEqual([true, true, 0, 0])
})

describe("the page's event stream", () => {
  async function open(signal?: AbortSignal) {
    const app = appOf()
    app.onError((error, context) => context.text(error.message, 409))
    return app.request("/", signal ? { signal } : {})
  }

  /** The route, as a script asks for it, and what the page's sessions have to do with it. */
  function appOf(
    caller: PageCaller = { kind: "script" },
    open = (_id: string, _end: () => void) => () => {},
    use = (_id: string) => {},
  ) {
    const app = new Hono<Env>()
    app.use(async (context, next) => {
      context.set("caller", caller)
      await next()
    })
    return app.get("/", eventsRoute(feed, { open, use }))
  }

  test("the page's event stream belongs to its web session until the reader leaves, and ends with it", async () => {
    const held = new Map<string, () => void>()
    const app = appOf({ kind: "page", pass: "p.1" }, (id, end) => {
      held.set(id, end)
      return () => held.delete(id)
    })
    const gone = new AbortController()
    await app.request("/", { signal: gone.signal })
    await flush()
    expect([[...held.keys()], feed.readers]).toEqual([["p.1"], 1])
    gone.abort()
    expect([held.size, feed.readers]).toEqual([0, 0])
    const response = await app.request("/")
    await flush()
    held.get("p.1")?.()
    expect([held.size, feed.readers]).toEqual([0, 0])
    let text = ""
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>)
      text += new TextDecoder().decode(chunk)
    expect(text).toMatch(/^event: state/)
  })

  test("the page's event stream uses its web session with each beat", async () => {
    const used: number[] = []
    const app = appOf({ kind: "page", pass: "p.1" }, undefined, () => void used.push(clock.now()))
    await app.request("/")
    await flush()
    const begun = clock.now()
    await clock.advance(45_000)
    expect(used.filter((at) => at > begun)).toEqual([15_000, 30_000, 45_000].map((ms) => begun + ms))
  })

  test("the event stream has the format of server-sent events", async () => {
    agents.set(viewOf({ task: { id: "bg_a" } }))
    const response = await open()
    expect(response.headers.get("content-type")).toBe("text/event-stream")
    const reader = response.body?.pipeThrough(new TextDecoderStream() as never).getReader() as {
      read(): Promise<{ value: string }>
      cancel(): Promise<void>
    }
    const read = eventReader()
    const [first] = read((await reader.read()).value)
    expect([first?.event, JSON.parse(first?.data ?? "").project]).toEqual(["state", "beans"])
    agents.alter("bg_a", { lastText: "line one\n\nline two" })
    await clock.advance(1000)
    const [second] = read((await reader.read()).value)
    expect(JSON.parse(second?.data ?? "").agents[0].lastText).toBe("line one\n\nline two")
    await reader.cancel()
    await flush()
    expect(feed.readers).toBe(0)
  })

  test("the event stream ends when its request is aborted", async () => {
    const gone = new AbortController()
    await open(gone.signal)
    await flush()
    expect(feed.readers).toBe(1)
    gone.abort()
    expect(feed.readers).toBe(0)
  })

  test("a reader that leaves before the stream begins leaves no reader and no error behind", async () => {
    let read = (_tasks: BoardTask[]) => {}
    board.list = () => new Promise((resolve) => (read = resolve))
    const gone = new AbortController()
    await open(gone.signal)
    await flush()
    gone.abort()
    read([])
    await flush()
    expect([feed.readers, view.pending, logged]).toEqual([0, 0, []])
  })

  test("the event stream disconnects a reader that does not read", async () => {
    const response = await open()
    await flush()
    for (let n = 0; n < 12; n++) {
      agents.set(viewOf({ task: { id: "bg_a", description: `${n}${"x".repeat(1_000_000)}` } }))
      await clock.advance(1000)
    }
    expect(feed.readers).toBe(0)
    let size = 0
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) size += chunk.length
    expect(size).toBeGreaterThan(1_000_000)
  })

  test("at most 64 event streams are open at once, and a closed one makes room for another", async () => {
    const app = appOf()
    app.onError((error, context) => context.text(error.message, 409))
    const gone = Array.from({ length: 100 }, () => new AbortController())
    const answers = await Promise.all(gone.map(({ signal }) => app.request("/", { signal })))
    expect(answers.map(({ status }) => status)).toEqual(gone.map((_each, index) => (index < 64 ? 200 : 409)))
    gone[7]?.abort()
    expect((await app.request("/")).status).toBe(200)
    expect((await app.request("/")).status).toBe(409)
    expect((await app.request("/", { signal: AbortSignal.abort() })).status).toBe(409)
    for (const each of gone) each.abort()
    for (let count = 0; count < 100; count++) await app.request("/", { signal: AbortSignal.abort() })
    expect((await app.request("/")).status).toBe(200)
  })
})
