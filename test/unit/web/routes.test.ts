import { beforeEach, describe, expect, test } from "vitest"
import { OpencodeError } from "../../../src/core/ports.ts"
import { createApp } from "../../../src/features/web/app.ts"
import { Feed } from "../../../src/features/web/feed.ts"
import type { Source } from "../../../src/features/web/ports.ts"
import { FakeAgents, viewOf } from "../../support/fake-agents.ts"
import { FakeBoard } from "../../support/fake-board.ts"
import { FakeClock } from "../../support/fake-clock.ts"
import { askOf, outcomeOf } from "../../support/tasks.ts"
import { addressOf, doorOf, TOKEN } from "../../support/web.ts"

const HOST = "127.0.0.1:4097"
const address = addressOf(`http://${HOST}`)
const HTML = "<html><style>a{}</style><script>1</script></html>"

let board: FakeBoard
let agents: FakeAgents
let source: Source
let logged: string[]
let app: ReturnType<typeof createApp>

beforeEach(() => {
  board = new FakeBoard()
  agents = new FakeAgents()
  source = { agents, board }
  logged = []
  const log = (...line: unknown[]) => void logged.push(JSON.stringify(line))
  const feed = new Feed({ project: "p", source: () => source, clock: new FakeClock(), log })
  app = createApp({
    address,
    auth: doorOf(address),
    host: "127.0.0.53",
    source: () => source,
    feed,
    page: () => HTML,
    log,
  })
})

type Extra = { body?: unknown; headers?: Record<string, string | undefined> }

async function ask(method: string, path: string, { body, headers = {} }: Extra = {}) {
  const all: Record<string, string | undefined> = { host: HOST, authorization: `Bearer ${TOKEN}`, ...headers }
  if (body !== undefined) all["content-type"] ??= "application/json"
  const sent = Object.entries(all).filter((entry): entry is [string, string] => entry[1] !== undefined)
  const isRaw = typeof body === "string" || body instanceof Uint8Array || body === undefined
  const text = isRaw ? (body as string | Buffer<ArrayBuffer> | undefined) : JSON.stringify(body)
  const response = await app.request(path, { method, headers: sent, body: text })
  const raw = await response.text()
  return { status: response.status, headers: response.headers, raw, json: raw.startsWith("{") ? JSON.parse(raw) : raw }
}

describe("GET /api/tasks", () => {
  test("GET /api/tasks returns the tasks with their states, the agents, and the tasks in flight", async () => {
    board.put({ id: "5", title: "Migrate" }, { state: "running", text: "running" })
    board.put({ id: "6" }, { state: "needs you", reason: "Which port?", text: "needs you: Which port?" })
    const { status, json } = await ask("GET", "/api/tasks")
    expect(status).toBe(200)
    expect(Object.keys(json).toSorted()).toEqual(["agents", "inFlight", "tasks"])
    expect(json.tasks[0]).toMatchObject({ id: "5", title: "Migrate", status: "active", state: "running", reason: "" })
    expect(json.tasks[1]).toMatchObject({ id: "6", state: "needs you", reason: "Which port?" })
    expect(json.agents.map(({ name }: { name: string }) => name)).toEqual(["build", "plan"])
    expect(json.inFlight).toEqual(["5"])
  })

  test("GET /api/tasks says which file cannot be read", async () => {
    board.broken = "tasks.json is not valid JSON (line 3)."
    const { status, json } = await ask("GET", "/api/tasks")
    expect([status, json]).toEqual([503, { error: "tasks.json is not valid JSON (line 3)." }])
  })
})

describe("POST /api/tasks", () => {
  test("POST /api/tasks creates a task for its owner in the user's name", async () => {
    const steps = [{ title: "Look" }]
    const { status, json } = await ask("POST", "/api/tasks", { body: { title: "New", owner: "plan", steps } })
    expect(status).toBe(201)
    expect(json).toMatchObject({ id: "1", title: "New", owner: "plan", status: "active", state: "next run" })
    expect(json.steps).toEqual([{ title: "Look", done: false }])
    expect(board.calls).toEqual([{ method: "create", by: { kind: "user" } }])
  })

  test.each([
    ["no owner", { title: "x" }, /"owner": must be a text of 1 to 200 characters/],
    ["an owner that is no agent", { title: "x", owner: "nobody" }, /no agent "nobody"/],
    ["no title", { owner: "build" }, /"title": /],
    ["an empty title", { title: " ", owner: "build" }, /"title": must be a text of 1 to 200 characters/],
    ["a title that is too long", { title: "x".repeat(201), owner: "build" }, /"title": must be a text of 1 to 200/],
    [
      "a resource that is none",
      { title: "x", owner: "build", resources: [{ type: "url", value: "x" }] },
      /0.value": must/,
    ],
    ["a status that cannot be", { title: "x", owner: "build", status: "done" }, /"status": /],
    ["an unknown field", { title: "x", owner: "build", createdBy: "me" }, /Unrecognized key: "createdBy"/],
    ["steps that are none", { title: "x", owner: "build", steps: ["a"] }, /"steps.0": /],
    ["a subtask's link in a step", { title: "x", owner: "build", steps: [{ title: "a", taskId: "1" }] }, /taskId/],
    ["a list", [], /expected object/],
    ["broken JSON", '{"title": ', /not valid JSON/],
    ["what is not UTF-8", Buffer.from('{"title": "Käse", "owner": "build"}', "latin1"), /not valid JSON in UTF-8/],
    ["nothing", "", /not valid JSON/],
  ])("POST /api/tasks refuses %s with status 400 and a reason", async (_what, body, error) => {
    const { status, json } = await ask("POST", "/api/tasks", { body })
    expect(status).toBe(400)
    expect(json.error).toMatch(error)
    expect(board.tasks.size).toBe(0)
  })

  test("POST /api/tasks refuses lists that are too long with one short error", async () => {
    for (const list of ["steps", "resources"]) {
      const { json } = await ask("POST", "/api/tasks", {
        body: { title: "x", owner: "build", [list]: Array(101).fill(1) },
      })
      expect(json.error).toMatch(new RegExp(`^"${list}": [^;]*100[^;]*$`))
    }
    const keys = Object.fromEntries(Array.from({ length: 5000 }, (_, index) => [`key${index}`, 1]))
    const { status, json } = await ask("POST", "/api/tasks", { body: { title: "x", owner: "build", ...keys } })
    expect([status, json.error.length > 1000]).toEqual([400, false])
  })

  test("POST /api/tasks refuses a body without a JSON content type, as a form could send it", async () => {
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/jsonp"]) {
      const body = '{"title": "x", "owner": "build"}'
      const { status } = await ask("POST", "/api/tasks", { body, headers: { "content-type": type } })
      expect(status).toBe(400)
    }
    expect(board.tasks.size).toBe(0)
  })
})

describe("GET /api/tasks/history", () => {
  beforeEach(async () => {
    for (const id of ["1", "2", "3"]) {
      board.put({ id })
      await board.complete(id, { kind: "user" })
    }
  })

  test("GET /api/tasks/history returns the archived tasks, newest first, up to the limit", async () => {
    const ids = async (query: string) => {
      const { json } = await ask("GET", `/api/tasks/history${query}`)
      return json.tasks.map((task: { id: string; archivedAt?: string }) => task.archivedAt && task.id)
    }
    expect(await ids("")).toEqual(["3", "2", "1"])
    expect(await ids("?limit=2")).toEqual(["3", "2"])
  })

  test.each(["0", "-1", "1001", "2.5", "many", ""])("GET /api/tasks/history refuses the limit %j", async (limit) => {
    const { status, json } = await ask("GET", `/api/tasks/history?limit=${limit}`)
    expect([status, json.error]).toEqual([400, expect.stringContaining("from 1 to 1000")])
  })
})

describe("GET /api/tasks/:id", () => {
  test.each(["77", "%235", "abc", "5x", "..%2fagents", "1".repeat(40)])(
    "GET /api/tasks/:id returns 404 for the unknown id %s",
    async (id) => {
      const { status, json } = await ask("GET", `/api/tasks/${id}`)
      expect([status, Object.keys(json)]).toEqual([404, ["error"]])
    },
  )
})

describe("PATCH /api/tasks/:id", () => {
  test.each([
    ["nothing at all", {}, /Nothing to change/],
    ["steps: they have tools of their own", { steps: [] }, /Unrecognized key: "steps"/],
    ["who made it", { createdBy: "me" }, /createdBy/],
    ["its number", { id: "6" }, /"id"/],
    ["another status than there are", { status: "paused" }, /"status"/],
    ["an owner that is no agent", { owner: "nobody" }, /nobody/],
  ])("PATCH /api/tasks/:id refuses a change of %s", async (_what, body, error) => {
    board.put({ id: "5" })
    const { status, json } = await ask("PATCH", "/api/tasks/5", { body })
    expect([status, json.error]).toEqual([400, expect.stringMatching(error)])
  })

  test("PATCH /api/tasks/:id refuses archived and unknown tasks", async () => {
    board.put({ id: "5" })
    await board.complete("5", { kind: "user" })
    expect((await ask("PATCH", "/api/tasks/5", { body: { title: "x" } })).status).toBe(409)
    expect((await ask("PATCH", "/api/tasks/9", { body: { title: "x" } })).status).toBe(404)
  })
})

describe("POST /api/tasks/:id/complete, cancel and run", () => {
  test("the cancel route archives a task together with its subtasks", async () => {
    board.put({ id: "6" })
    board.put({ id: "5", steps: [{ title: "a", done: false, taskId: "6" }] })
    const { json } = await ask("POST", "/api/tasks/5/cancel")
    expect(json).toMatchObject({ status: "canceled", canceled: ["6"] })
    expect((await ask("GET", "/api/tasks/6")).json.status).toBe("canceled")
  })

  test("the run route starts the owner of a task", async () => {
    board.put({ id: "5" })
    const { status, json } = await ask("POST", "/api/tasks/5/run")
    expect([status, json]).toEqual([200, expect.objectContaining({ id: "5", state: "running" })])
  })

  test.each([
    ["complete", "draft", /draft/],
    ["run", "draft", /draft/],
    ["run", "running", /runs already/],
    ["complete", "history", /history/],
    ["cancel", "history", /history/],
    ["run", "history", /history/],
  ])("the %s route for a task that is %s returns 409 and the reason", async (action, what, error) => {
    board.put({ id: "5", status: what === "draft" ? "draft" : "active" })
    if (what === "running") board.put({ id: "5" }, { state: "running" })
    if (what === "history") await board.complete("5", { kind: "user" })
    const { status, json } = await ask("POST", `/api/tasks/5/${action}`)
    expect([status, json.error]).toEqual([409, expect.stringMatching(error)])
  })
})

test("a start, an activation and an accept hand over which texts the caller saw, as the rows name them", async () => {
  board.put({ id: "5", title: "Migrate" })
  const { seen } = (await ask("GET", "/api/tasks/5")).json
  board.put({ id: "5", title: "Something else" })
  expect((await ask("GET", "/api/tasks")).json.tasks[0].seen).not.toBe(seen)
  for (const given of [{ seen: [seen] }, {}]) {
    await ask("POST", "/api/tasks/accept", { body: given })
    await ask("PATCH", "/api/tasks/5", { body: { status: "active", ...given } })
    await ask("POST", "/api/tasks/5/run", { body: given })
    board.put({ id: "5" }, { state: "next run" })
  }
  await ask("POST", "/api/tasks/5/run")
  expect(board.seen).toEqual([[seen], [seen], [seen], undefined, undefined, undefined, undefined])
  expect((await ask("POST", "/api/tasks/5/run", { body: { seen: "5" } })).status).toBe(400)
  expect((await ask("PATCH", "/api/tasks/5", { body: { seen: [], colour: "green" } })).status).toBe(400)
})

describe("POST /api/tasks/accept, restore and forget", () => {
  test("the accept route accepts changes that were made outside the plugin", async () => {
    board.put({ id: "5" }, { state: "waiting for a person" })
    expect(await ask("POST", "/api/tasks/accept")).toMatchObject({ status: 200, json: { tasks: [{ id: "5" }] } })
    expect(board.accepted).toBe(1)
  })

  test("the restore route brings back the tasks of a deleted board file once", async () => {
    board.gone = [board.put({ id: "5" })]
    board.tasks.clear()
    expect((await ask("GET", "/api/tasks")).json).toMatchObject({ tasks: [], lost: 1 })
    const { status, json } = await ask("POST", "/api/tasks/restore")
    expect([status, json.tasks.length, json.lost]).toEqual([200, 1, undefined])
    expect((await ask("POST", "/api/tasks/restore")).status).toBe(409)
  })

  test("the forget route drops the tasks of a deleted board file", async () => {
    board.gone = [board.put({ id: "5" })]
    board.tasks.clear()
    expect((await ask("POST", "/api/tasks/forget")).json).toEqual({ tasks: [], agents: board.owners, inFlight: [] })
  })
})

test("the board's routes answer 404 without a board, and the other routes still work", async () => {
  source = { agents }
  for (const [method, path] of [
    ["GET", ""],
    ["POST", ""],
    ["GET", "/history"],
    ["GET", "/5"],
    ["PATCH", "/5"],
    ["POST", "/5/complete"],
    ["POST", "/5/cancel"],
    ["POST", "/5/run"],
  ] as const) {
    const { status, json } = await ask(method, `/api/tasks${path}`, method === "PATCH" ? { body: { title: "x" } } : {})
    expect([method, path, status, json]).toEqual([method, path, 404, { error: "the board is off" }])
  }
  expect((await ask("GET", "/api/agents")).status).toBe(200)
})

describe("the routes of background tasks", () => {
  const running = viewOf({
    task: { id: "bg_runs0000", description: "look", model: { provider: "a", id: "b" }, batch: "name:survey" },
    phase: "waiting for permission",
    toolCalls: 3,
    usage: { input: 10, output: 5, cost: 0.5 },
    lastText: `${"x".repeat(1000)}end`,
    asks: [askOf()],
    retry: { attempt: 2, message: "overloaded" },
  })
  const ended = viewOf({
    task: {
      id: "bg_ended000",
      status: "error",
      run: { endedAt: 5000 },
      outcome: outcomeOf({
        reason: { code: "timeout", text: "too long" },
        filesChanged: ["a.ts"],
        meanwhile: { files: ["NOTES.md"], more: 3 },
        note: "n",
      }),
    },
  })

  test("GET /api/agents lists the background tasks of all sessions", async () => {
    agents.set(running, ended)
    const { json } = await ask("GET", "/api/agents")
    expect(json.agents).toHaveLength(2)
    expect(json.agents[0]).toMatchObject({
      id: "bg_runs0000",
      model: "a/b",
      batch: "survey",
      tokens: 15,
      cachedTokens: expect.any(Number),
      cost: 0.5,
      toolCalls: 3,
      phase: "waiting for permission",
      asks: [{ what: "bash: ls", kind: "permission" }],
      retry: "attempt 2: overloaded",
    })
    expect(json.agents[0].lastText).toMatch(/^x+end$/)
    expect(json.agents[0].lastText.length).toBeLessThan(500)
    expect(json.agents[1]).toMatchObject({ status: "error", reason: "too long", reasonCode: "timeout" })
    expect(json.agents[1].batch).toBeUndefined()
  })

  test("GET /api/agents/:id returns a task's answer and its changes", async () => {
    agents.set(ended)
    agents.answers.set("bg_ended000", "the answer")
    const diff = [{ file: "a.ts", patch: "@@", additions: 1, deletions: 0 }]
    agents.diffs.set("bg_ended000", diff)
    const { json } = await ask("GET", "/api/agents/bg_ended000")
    expect(json).toMatchObject({ id: "bg_ended000", answer: "the answer", diff, filesChanged: ["a.ts"], note: "n" })
    expect(json.filesMeanwhile).toEqual(["NOTES.md"])
    expect((await ask("GET", "/api/agents/bg_nothere0")).status).toBe(404)
  })

  test("GET /api/agents/search finds words in answers of ended tasks, newest first, ten at a request", async () => {
    const ended = (id: number) => ({ createdAt: id, startedAt: id, endedAt: id })
    for (let id = 10; id < 35; id++) {
      agents.set(viewOf({ task: { id: `bg_old000${id}`, status: "completed", run: ended(id) } }))
      agents.answers.set(
        `bg_old000${id}`,
        `${"long ago ".repeat(20)}the Treasure ${id}\nlies under the zanzibar palm${" of old".repeat(20)}`,
      )
    }
    agents.answers.set("bg_runs0000", "the zanzibar treasure")
    const search = async (query: string) => (await ask("GET", `/api/agents/search?${query}`)).json
    const first = await search("q=ZANZIBAR%20treasure%2034")
    expect(first).toMatchObject({ found: [{ id: "bg_old00034" }], next: 10 })
    expect(first.found[0]).toEqual({
      id: "bg_old00034",
      before: expect.stringMatching(/^….* the Treasure 34 lies under the $/),
      hit: "zanzibar",
      after: expect.stringMatching(/^ palm of old.*…$/),
    })
    expect(first.found[0].before.length).toBeLessThan(100)
    const all = [await search("q=zanzibar"), await search("q=zanzibar&from=10"), await search("q=zanzibar&from=20")]
    expect(all.map(({ next }) => next)).toEqual([10, 20, undefined])
    expect(all.flatMap(({ found }) => found.map(({ id }: { id: string }) => id))).toEqual(
      Array.from({ length: 25 }, (_, at) => `bg_old000${34 - at}`),
    )
    expect(await search("q=nowhere&from=20")).toEqual({ found: [] })
    for (const query of ["", "q=", "q=%20", `q=${"x".repeat(201)}`, "q=x&from=-1", "q=x&from=5000"])
      expect((await ask("GET", `/api/agents/search?${query}`)).status).toBe(400)
  })

  test("GET /api/agents/search continues when one answer cannot be read", async () => {
    const { answer } = agents
    agents.answer = async (id: string) => (id === "bg_ended000" ? Promise.reject(new Error("gone")) : answer(id))
    agents.set(viewOf({ task: { id: "bg_old00000", status: "completed", run: { createdAt: 1, endedAt: 1 } } }))
    agents.answers.set("bg_old00000", "zanzibar")
    expect((await ask("GET", "/api/agents/search?q=zanzibar")).json.found).toMatchObject([{ id: "bg_old00000" }])
  })

  test("POST /api/agents/:id/cancel stops a running task once", async () => {
    agents.set(running)
    const { status, json } = await ask("POST", "/api/agents/bg_runs0000/cancel")
    expect([status, json]).toEqual([200, expect.objectContaining({ status: "cancelled" })])
    expect(agents.cancelled).toEqual(["bg_runs0000"])
    const again = await ask("POST", "/api/agents/bg_runs0000/cancel")
    expect([again.status, again.json.error]).toEqual([409, expect.stringContaining("has ended")])
    expect((await ask("POST", "/api/agents/bg_nothere0/cancel")).status).toBe(404)
  })

  test("POST /api/agents/:id/cancel stops only the run that the page showed", async () => {
    agents.set(running)
    agents.alter("bg_runs0000", {}, { run: { ...running.task.run, generation: 2 } })
    const other = await ask("POST", "/api/agents/bg_runs0000/cancel", { body: { generation: 1 } })
    expect([other.status, other.json.error]).toEqual([409, expect.stringContaining("resumed task bg_runs0000 since")])
    expect(agents.cancelled).toEqual([])
    expect((await ask("POST", "/api/agents/bg_runs0000/cancel", { body: { generation: 2 } })).status).toBe(200)
    expect(agents.cancelled).toEqual(["bg_runs0000"])
  })

  test("a background task of another process can be seen but not stopped", async () => {
    agents.set(running)
    agents.foreign.add("bg_runs0000")
    expect((await ask("GET", "/api/agents")).json.agents[0].foreign).toBe(true)
    const { status, json } = await ask("POST", "/api/agents/bg_runs0000/cancel")
    expect([status, json.error]).toEqual([409, expect.stringContaining("another OpenCode process")])
  })

  test("a background task whose OpenCode fails returns that error", async () => {
    agents.set(ended)
    agents.answer = () => Promise.reject(new OpencodeError("messages: no answer within 30 s"))
    const { status, json } = await ask("GET", "/api/agents/bg_ended000")
    expect([status, json.error]).toEqual([502, expect.stringContaining("no answer within 30 s")])
  })
})

describe("an attacker", () => {
  test.each([
    ["no token", undefined],
    ["an empty one", "Bearer "],
    ["a wrong one", `Bearer ${"x".repeat(TOKEN.length)}`],
    ["a shorter one", `Bearer ${TOKEN.slice(1)}`],
    ["a longer one", `Bearer ${TOKEN}x`],
    ["a very long one", `Bearer ${"x".repeat(50_000)}`],
    ["another scheme", `Basic ${btoa(`opencode:${TOKEN}`)}`],
    ["the bare token", TOKEN],
  ])("an attacker with %s gets only a 401 error", async (_what, authorization) => {
    for (const path of ["/api/tasks", "/api/agents", "/api/agents/bg_x", "/api/events", "/api/nothing"]) {
      const { status, json, headers, raw } = await ask("GET", path, { headers: { authorization } })
      expect([path, status, Object.keys(json)]).toEqual([path, 401, ["error"]])
      expect(headers.get("www-authenticate")).toBe("Bearer")
      expect(raw).not.toContain(TOKEN)
    }
    expect(
      (await ask("POST", "/api/tasks", { body: { title: "x", owner: "build" }, headers: { authorization } })).status,
    ).toBe(401)
    expect(board.tasks.size).toBe(0)
  })

  test("an attacker with the token in the query instead of the header is refused", async () => {
    const { status } = await ask("GET", `/api/tasks?token=${TOKEN}&auth_token=${TOKEN}`, {
      headers: { authorization: undefined },
    })
    expect(status).toBe(401)
  })

  test("a thousand wrong tokens do not affect the right one and are not logged", async () => {
    for (let attempt = 0; attempt < 1000; attempt++) {
      const authorization = `Bearer ${String(attempt).padStart(TOKEN.length, "0")}`
      expect((await ask("GET", "/api/tasks", { headers: { authorization } })).status).toBe(401)
    }
    expect((await ask("GET", "/api/tasks")).status).toBe(200)
    expect(logged).toEqual([])
  })

  test.each([
    "evil.example",
    "evil.example:4097",
    "127.0.0.1.evil.example",
    "localhost.evil.example:4097",
    "0x7f.1",
    "",
    "a b",
    "127.0.0.1@evil.example",
  ])("a request with the foreign Host %j gets nothing, not even the page", async (host) => {
    for (const path of ["/", "/proof/abc", "/api/tasks", "/api/events"]) {
      const { status } = await ask("GET", path, { headers: { host } })
      expect([path, status]).toEqual([path, 403])
    }
  })

  test.each(["127.0.0.1:4097", "localhost:4097", "localhost", "[::1]:4097", "LOCALHOST:9999", "127.0.0.53:4097"])(
    "a request with the local Host %s is answered",
    async (host) => expect((await ask("GET", "/api/tasks", { headers: { host } })).status).toBe(200),
  )

  test.each([
    "https://evil.example",
    "http://evil.example:4097",
    "http://127.0.0.1:3000",
    "http://localhost:4097",
    "http://127.0.0.1:4097.evil.example",
    "null",
    "file://",
    "",
  ])("a request from another website (Origin %j) is refused even with the right token", async (origin) => {
    for (const [method, path] of [
      ["GET", "/api/tasks"],
      ["GET", "/api/events"],
      ["POST", "/api/tasks"],
      ["OPTIONS", "/api/tasks"],
    ] as const) {
      const body = method === "POST" ? { title: "x", owner: "build" } : undefined
      const { status, headers } = await ask(method, path, { body, headers: { origin } })
      expect([method, path, status]).toEqual([method, path, 403])
      expect(headers.get("access-control-allow-origin")).toBeNull()
    }
    expect(board.tasks.size).toBe(0)
  })

  test("a request without an Origin is checked by the browser's Sec-Fetch-Site header", async () => {
    for (const site of ["cross-site", "same-site"])
      expect((await ask("GET", "/api/events", { headers: { "sec-fetch-site": site } })).status).toBe(403)
    expect((await ask("GET", "/api/tasks", { headers: { "sec-fetch-site": "same-origin" } })).status).toBe(200)
  })

  test("a request from the page's own Origin is answered", async () => {
    expect((await ask("GET", "/api/tasks", { headers: { origin: `http://${HOST}` } })).status).toBe(200)
  })

  test("a request with more than a megabyte is refused before it is read", async () => {
    const body = '{"title": "x", "owner": "build"}'.padEnd(1_048_576)
    expect((await ask("POST", "/api/tasks", { body })).status).toBe(201)
    const { status, json } = await ask("POST", "/api/tasks", { body: `${body} ` })
    expect([status, json.error]).toEqual([413, expect.stringContaining("1,048,576")])
    const claimed = await ask("POST", "/api/tasks/1/run", { headers: { "content-length": "99999999" }, body: "{}" })
    expect(claimed.status).toBe(413)
  })

  test("an unknown path or method gets a JSON error", async () => {
    for (const [method, path] of [
      ["GET", "/nothing"],
      ["GET", "/api"],
      ["DELETE", "/api/tasks/5"],
      ["PUT", "/api/tasks"],
      ["POST", "/"],
      ["GET", "/../etc/passwd"],
    ] as const) {
      const { status, json } = await ask(method, path)
      expect([method, path, status, Object.keys(json)]).toEqual([method, path, 404, ["error"]])
    }
  })

  test("an internal error is logged without the token and not shown to the caller", async () => {
    agents.list = () => {
      throw new TypeError("undefined is not a function")
    }
    const { status, raw } = await ask("GET", "/api/agents")
    expect([status, raw]).toEqual([500, expect.not.stringContaining("undefined")])
    expect(logged.join()).toContain("undefined is not a function")
    expect(logged.join()).not.toContain(TOKEN)
  })
})

describe("the page", () => {
  test("the page is served without data, to anyone allowed, under a strict content security policy", async () => {
    board.put({ id: "5", title: "a secret title" })
    const { status, headers, raw } = await ask("GET", "/", { headers: { authorization: undefined } })
    expect([status, raw]).toEqual([200, HTML])
    const policy = headers.get("content-security-policy") ?? ""
    expect(policy).toContain("default-src 'none'")
    expect(policy).toMatch(/script-src 'sha256-[A-Za-z0-9+/=]{44}'(;|$)/)
    expect(policy).toMatch(/style-src 'sha256-[A-Za-z0-9+/=]{44}'(;|$)/)
    expect(policy).toContain("frame-ancestors 'none'")
    expect(policy).not.toMatch(/unsafe|\*|https?:/)
    expect(headers.get("referrer-policy")).toBe("no-referrer")
    expect(headers.get("x-content-type-options")).toBe("nosniff")
    expect(headers.get("x-frame-options")).toBe("DENY")
    expect(headers.get("cache-control")).toBe("no-store")
  })

  test("the page's data may not be cached or embedded by another website", async () => {
    const { headers } = await ask("GET", "/api/tasks")
    expect(headers.get("cache-control")).toBe("no-store")
    expect(headers.get("cross-origin-resource-policy")).toBe("same-origin")
    expect(headers.get("content-type")).toContain("application/json")
  })
})

test("a proof shows knowledge of the token without containing it", async () => {
  const { raw } = await ask("GET", "/proof/abc", { headers: { authorization: undefined } })
  expect(raw).toMatch(/^[\da-f]{64}$/)
  expect((await ask("GET", "/proof/abd")).raw).not.toBe(raw)
})

describe("the routes of the purse", () => {
  const until = "2026-03-03T07:00:00.000Z"

  test("the purse can be opened, read and closed over the API", async () => {
    expect(await ask("GET", "/api/purse")).toMatchObject({ status: 200, json: { open: false } })
    const opened = await ask("PUT", "/api/purse", { body: { max: 5, until } })
    expect(opened).toMatchObject({ status: 200, json: { open: true, max: 5, until, spent: 0 } })
    expect((await ask("GET", "/api/tasks")).json.purse).toMatchObject({ max: 5, until })
    expect((await ask("PUT", "/api/purse", { body: { max: 5, until } })).status).toBe(409)
    expect((await ask("PUT", "/api/purse", { body: { max: 0, until } })).status).toBe(400)
    expect((await ask("PUT", "/api/purse", { body: { max: 5, until, more: 1 } })).status).toBe(400)
    expect(await ask("DELETE", "/api/purse")).toMatchObject({ status: 200, json: { open: false } })
    expect((await ask("DELETE", "/api/purse")).status).toBe(409)
  })

  test("the purse's reports are listed and can be read by name", async () => {
    const head = { max: 5, until, openedAt: until, endedAt: until, why: "time", spent: 4.37, tasks: 9 } as const
    board.reports = [{ name: "2026-03-03T07-00Z", ...head }]
    expect((await ask("GET", "/api/reports")).json.reports).toEqual(board.reports)
    expect((await ask("GET", "/api/reports/2026-03-03T07-00Z")).json.text).toBe("Spent $4.37 of $5.00.")
    expect((await ask("GET", "/api/reports/..%2f..%2ftasks")).status).toBe(404)
  })

  test("the purse routes answer 404 without a board", async () => {
    source = { agents }
    for (const path of ["/api/purse", "/api/reports", "/api/reports/x"])
      expect(await ask("GET", path)).toMatchObject({ status: 404, json: { error: "the board is off" } })
  })
})
