import { beforeEach, describe, expect, test } from "vitest"
import { CallError } from "../../../src/core/errors.ts"
import { NOBODY } from "../../../src/core/task.ts"
import { createApp } from "../../../src/features/web/app.ts"
import { Feed } from "../../../src/features/web/feed.ts"
import { ACTS } from "../../../src/features/web/ports.ts"
import { joined } from "../../../src/features/web/sources.ts"
import { FakeAgents, viewOf } from "../../support/fake-agents.ts"
import { FakeBoard } from "../../support/fake-board.ts"
import { FakeClock } from "../../support/fake-clock.ts"
import { FakePerson } from "../../support/fake-person.ts"
import { askOf } from "../../support/tasks.ts"
import { addressOf, doorOf, TOKEN } from "../../support/web.ts"

/** What a person does at the page, over its routes. */

let board: FakeBoard
let agents: FakeAgents
let person: FakePerson
let app: ReturnType<typeof createApp>

beforeEach(() => {
  board = new FakeBoard()
  agents = new FakeAgents()
  person = new FakePerson()
  const source = () => ({ agents, board, person })
  const feed = new Feed({ project: "p", source, clock: new FakeClock(), log: () => {} })
  const address = addressOf("http://127.0.0.1:1")
  app = createApp({
    address,
    auth: doorOf(address),
    host: "127.0.0.1",
    source,
    feed,
    page: () => "<html></html>",
    log: () => {},
  })
})

async function ask(method: string, path: string, body?: unknown, more: Record<string, string> = {}) {
  const headers = { host: "127.0.0.1:1", authorization: `Bearer ${TOKEN}`, "content-type": "application/json", ...more }
  const response = await app.request(path, { method, headers, body: body === undefined ? null : JSON.stringify(body) })
  return { status: response.status, json: (await response.json()) as { error?: string } }
}

describe("an open question on the page", () => {
  beforeEach(() => {
    agents.set(viewOf({ task: { id: "bg_asks0000" }, asks: [askOf({ id: "per_1", kind: "permission" })] }))
    person.questions.set("per_1", { kind: "permission", permission: "bash", patterns: ["rm x"], always: ["rm *"] })
  })

  test("an open question lists its choices and accepts one answer", async () => {
    expect((await ask("GET", "/api/asks/per_1")).json).toMatchObject({ permission: "bash", always: ["rm *"] })
    const reply = { reply: "reject", message: "Not that one." }
    expect((await ask("POST", "/api/asks/per_1", reply)).status).toBe(200)
    expect(person.replies).toEqual([{ ask: "per_1", reply }])
    const again = await ask("POST", "/api/asks/per_1", { reply: "once" })
    expect([again.status, again.json.error]).toEqual([409, expect.stringContaining("answered elsewhere")])
    expect((await ask("GET", "/api/asks/per_1")).status).toBe(409)
  })

  test.each([
    [{ reply: "twice" }, 400, /Invalid input/],
    [{ answers: [["yes"]] }, 400, /This is a permission: answer with \{"reply"/],
    [{}, 400, /Invalid input/],
  ])("an open question refuses the answer %j", async (body, status, error) => {
    const refused = await ask("POST", "/api/asks/per_1", body)
    expect([refused.status, refused.json.error]).toEqual([status, expect.stringMatching(error)])
    expect(person.replies).toEqual([])
  })

  test("an open question of another process can only be answered in that process", async () => {
    agents.foreign.add("bg_asks0000")
    const refused = await ask("POST", "/api/asks/per_1", { reply: "once" })
    expect([refused.status, refused.json.error]).toEqual([409, expect.stringContaining("another OpenCode process")])
  })

  test("an open question cannot be answered from another website or without the key", async () => {
    const body = { reply: "always" }
    expect((await ask("POST", "/api/asks/per_1", body, { origin: "https://evil.example" })).status).toBe(403)
    expect((await ask("POST", "/api/asks/per_1", body, { authorization: "Bearer x" })).status).toBe(401)
    expect(person.replies).toEqual([])
  })
})

describe("a launch from the page", () => {
  const given = { description: "Count", prompt: "Count beans", agent: "explore", check: "npm test" }

  test("a launch from the page calls the task tool in the named conversation with all its arguments", async () => {
    person.sessions.set("ses_1", { title: "Beans", folder: "" })
    person.onCall = () => {
      agents.set(viewOf({ task: { id: "bg_new00000" } }))
      return { taskID: "bg_new00000", text: "Background task launched." }
    }
    const { status, json } = await ask("POST", "/api/agents", { ...given, session: "ses_1" })
    expect([status, json]).toMatchObject([201, { agent: { id: "bg_new00000" }, text: "Background task launched." }])
    expect(person.calls).toEqual([{ args: given, session: "ses_1" }])
  })

  test("a launch without a conversation opens one, which is deleted when the launch fails", async () => {
    person.onCall = () => {
      throw new CallError('No agent "explroe" (argument `agent`). Did you mean: explore?')
    }
    const { status, json } = await ask("POST", "/api/agents", given)
    expect([status, json.error]).toEqual([409, expect.stringContaining("Did you mean")])
    expect([person.calls[0]?.session, person.sessions.size]).toEqual(["ses_opened1", 0])
  })

  test("a launch in a conversation that no longer exists is an error", async () => {
    const { status, json } = await ask("POST", "/api/agents", { ...given, session: "ses_gone" })
    expect([status, json.error]).toEqual([404, expect.stringContaining("ses_gone")])
    expect(person.calls).toEqual([])
  })

  test("the launch form offers the existing agents, models and conversations, without hidden agents", async () => {
    const seen = await person.agents()
    person.agents = async () => [...seen, { name: "ghost", description: "", mode: "all", hidden: true }]
    person.sessions.set("ses_1", { title: "Beans", folder: "" })
    expect((await ask("GET", "/api/sessions/choices")).json).toEqual({
      agents: [
        { name: "build", description: "" },
        { name: "explore", description: "" },
      ],
      models: ["mock/one", "mock/two"],
      sessions: [{ id: "ses_1", title: "Beans", updatedAt: 0 }],
    })
  })
})

describe("an action on a task", () => {
  beforeEach(() => {
    agents.set(viewOf({ task: { id: "bg_one00000", parentID: "ses_parent" } }))
    person.onCall = () => ({ taskID: "bg_one00000", text: "Told." })
  })

  test.each([
    ["tell", { prompt: "Hurry" }, { tell: "bg_one00000", prompt: "Hurry" }],
    ["resume", { prompt: "Again", check: "true" }, { resume: "bg_one00000", prompt: "Again", check: "true" }],
    ["merge", undefined, { merge: "bg_one00000" }],
  ])("the action %s calls the task tool in the conversation that launched the task", async (act, body, args) => {
    const { status, json } = await ask("POST", `/api/agents/bg_one00000/${act}`, body)
    expect([status, json]).toMatchObject([200, { agent: { id: "bg_one00000" }, text: "Told." }])
    expect(person.calls).toEqual([{ args, session: "ses_parent" }])
    expect((await ask("POST", `/api/agents/bg_none/${act}`, body)).status).toBe(404)
  })

  test("an action's body cannot redirect it to another task", async () => {
    await ask("POST", "/api/agents/bg_one00000/tell", { prompt: "x", tell: "bg_other000" })
    expect(person.calls[0]?.args).toMatchObject({ tell: "bg_one00000" })
  })

  test("a board task's run accepts a message but no resume, because its board task is run instead", async () => {
    agents.set(viewOf({ task: { id: "bg_run00000", parentID: NOBODY, description: "#5 Grind" } }))
    await ask("POST", "/api/agents/bg_run00000/tell", { prompt: "Finer" })
    expect(person.calls).toEqual([{ args: { tell: "bg_run00000", prompt: "Finer" }, session: NOBODY }])
    const { status, json } = await ask("POST", "/api/agents/bg_run00000/resume", { prompt: "Finer" })
    expect([status, json.error]).toEqual([409, expect.stringContaining("board task #5")])
  })

  test("a task's details include its parent conversation and its runs", async () => {
    person.sessions.set("ses_parent", { title: "Beans", folder: "" })
    const run = { generation: 0, at: 1, prompt: "Count", told: [], models: [], cost: 0, steps: [], earlierSteps: 0 }
    agents.stories.set("bg_one00000", [{ ...run, text: "42" }])
    expect((await ask("GET", "/api/agents/bg_one00000")).json).toMatchObject({
      parent: { id: "ses_parent", title: "Beans" },
      runs: [{ prompt: "Count", text: "42" }],
    })
  })
})

describe("a cancel of several tasks", () => {
  beforeEach(() => {
    for (const [id, parentID, batch] of [
      ["bg_a0000000", "ses_1", "name:survey"],
      ["bg_b0000000", "ses_1", "name:survey"],
      ["bg_c0000000", "ses_2", "name:survey"],
      ["bg_d0000000", "ses_1", "name:other"],
    ] as const)
      agents.set(viewOf({ task: { id, parentID, batch } }))
    agents.set(viewOf({ task: { id: "bg_ended000", batch: "name:survey", status: "completed", run: { endedAt: 1 } } }))
    agents.set(viewOf({ task: { id: "bg_theirs00", parentID: "ses_1", batch: "name:survey" } }))
    agents.foreign.add("bg_theirs00")
  })

  test.each([
    [{ all: true }, ["bg_d0000000", "bg_c0000000", "bg_b0000000", "bg_a0000000"]],
    [{ batchOf: "bg_a0000000" }, ["bg_b0000000", "bg_a0000000"]],
    [{ ids: ["bg_d0000000", "bg_ended000"] }, ["bg_d0000000"]],
    [{ batchOf: "bg_none" }, []],
  ])("the cancel request %j stops the matching tasks of this process, the newest first", async (body, stopped) => {
    const { status, json } = await ask("POST", "/api/agents/cancel", body)
    expect([status, json]).toEqual([200, { stopped }])
    expect(agents.cancelled).toEqual(stopped)
  })

  test("a cancel request can name thousands of tasks", async () => {
    const ids = ["bg_a0000000", ...Array.from({ length: 5000 }, (_, index) => `bg_${index}`)]
    expect((await ask("POST", "/api/agents/cancel", { ids })).json).toEqual({ stopped: ["bg_a0000000"] })
  })

  test("a cancel request that names runs leaves a task alone that was resumed since", async () => {
    const ids = ["bg_a0000000", "bg_b0000000"].map((id, nth) => ({ id, generation: nth }))
    expect((await ask("POST", "/api/agents/cancel", { ids })).json).toEqual({ stopped: ["bg_a0000000"] })
  })

  test("a cancel request that names no tasks is refused", async () => {
    expect((await ask("POST", "/api/agents/cancel", {})).status).toBe(400)
    expect((await ask("POST", "/api/agents/cancel", { all: false })).status).toBe(400)
    expect(agents.cancelled).toEqual([])
  })
})

describe("a reply to a board task", () => {
  beforeEach(() => {
    board.put({ id: "5", owner: "plan", threadId: "ses_thread" }, { state: "needs you", reason: "How far?" })
    person.sessions.set("ses_thread", { title: "#5", folder: "" })
  })

  test("a reply to a board task is written to its thread for its owner", async () => {
    const { status, json } = await ask("POST", "/api/tasks/5/reply", { text: " A quarter. " })
    expect([status, json]).toMatchObject([200, { id: "5" }])
    expect(person.written).toEqual([{ sessionID: "ses_thread", folder: "", text: "A quarter.", agent: "plan" }])
  })

  test("a reply to a board task is sent to its run while that goes on", async () => {
    agents.set(viewOf({ task: { id: "bg_run00000", sessionID: "ses_thread", parentID: NOBODY, description: "#5 x" } }))
    expect((await ask("POST", "/api/tasks/5/reply", { text: "A quarter." })).status).toBe(200)
    expect(person.calls).toEqual([{ args: { tell: "bg_run00000", prompt: "A quarter." }, session: NOBODY }])
    expect([person.written, (await board.list())[0]?.id]).toEqual([[], "5"])
  })

  test.each([
    ["empty", { text: " " }, 400],
    ["to a draft", { text: "x" }, 409],
    ["without a thread", { text: "x" }, 409],
    ["to one that another hand has changed", { text: "x" }, 409],
    ["to what is not there", { text: "x" }, 404],
  ])("a reply that is %s is refused", async (what, body, status) => {
    if (what === "to a draft") board.put({ id: "5", status: "draft" })
    if (what.includes("another hand")) board.put({ id: "5" }, { state: "waiting for a person" })
    if (what === "without a thread") person.sessions.clear()
    const path = `/api/tasks/${what === "to what is not there" ? 9 : 5}/reply`
    expect((await ask("POST", path, body)).status).toBe(status)
    expect(person.written).toEqual([])
  })
})

test("the page can clear all tasks of a conversation", async () => {
  expect((await ask("POST", "/api/sessions/ses_1/clear")).json).toEqual({ text: "Cleared." })
  expect(person.cleared).toEqual(["ses_1"])
})

test("an action goes to the instance that serves the folder, runs the task or asks the question", async () => {
  const [mine, theirs] = [new FakePerson(), new FakePerson()]
  const [own, others] = [new FakeAgents(), new FakeAgents()]
  others.set(viewOf({ task: { id: "bg_asks0000" }, asks: [askOf({ id: "per_1" })] }))
  for (const each of [mine, theirs]) each.sessions.set("ses_b", { title: "B", folder: "/b" })
  mine.sessions.set("ses_c", { title: "C", folder: "/c" })
  theirs.questions.set("per_1", { kind: "question", questions: [] })
  const all = joined([
    { folder: "/a", agents: own, person: mine },
    { folder: "/b", agents: others, person: theirs },
  ])
  await all.person?.call({ prompt: "x" }, "ses_b")
  for (const act of ACTS) await all.person?.call({ [act]: "bg_asks0000" }, NOBODY)
  expect([mine.calls.length, theirs.calls.map(({ session }) => session)]).toEqual([
    0,
    ["ses_b", ...ACTS.map(() => NOBODY)],
  ])
  expect(await all.person?.answer(askOf({ id: "per_1" }), { dismiss: true })).toBe(true)
  await all.person?.clear("ses_b")
  expect(theirs.cleared).toEqual(["ses_b"])
  await expect(all.person?.call({ prompt: "x" }, "ses_c")).rejects.toThrow(/does not serve/)
  expect((await all.person?.conversations())?.map(({ id }) => id)).toEqual(["ses_c", "ses_b", "ses_b"])
})
