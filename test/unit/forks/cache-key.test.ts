import { describe, expect, test } from "vitest"
import { RECORD_VERSION } from "../../../src/core/record.ts"
import { cacheKeyInHeaders, cacheKeyInOptions } from "../../../src/opencode/request.ts"
import { RECORD_KEY } from "../../../src/runtime/record/codec.ts"
import { agent, counted, user } from "../../support/histories.ts"
import { SIGNER } from "../../support/records.ts"
import { Rig } from "../../support/rig.ts"

const ALPHA = { provider: "scripted", id: "alpha", variant: "high" }
const RIDER = { fork: "whole", agent: undefined } as const
const BOARD = { dir: "tasks", agents: null, schedule: "0 * * * *", maxConcurrentRuns: 1 }

describe("a whole fork", () => {
  test("a whole fork has the agent, model, variant and rules of its caller", async () => {
    const rig = new Rig({ options: { board: BOARD } })
    const rules = [{ permission: "webfetch", pattern: "*", action: "ask" as const }]
    rig.opencode.stored(rig.parent).rules.push(...rules)
    const task = await rig.launch(RIDER)
    expect(task).toMatchObject({ agent: "build", model: ALPHA, fork: { whole: true, rides: rig.parent } })
    expect(rig.opencode.stored(task.sessionID).rules).toEqual(rules)
  })

  test("a whole fork accepts its caller's own agent and model by name", async () => {
    const rig = new Rig()
    const task = await rig.launch({ fork: "whole", agent: "build", model: "scripted/alpha", place: "here" })
    expect(task).toMatchObject({ agent: "build", model: ALPHA, fork: { whole: true } })
  })

  test("a whole fork accepts its caller's own model with its variant, and no other variant", async () => {
    const rig = new Rig()
    const task = await rig.launch({ ...RIDER, model: "scripted/alpha#high" })
    expect(task).toMatchObject({ model: ALPHA, fork: { whole: true } })
    await expect(rig.launch({ ...RIDER, model: "scripted/alpha#low" })).rejects.toThrow("your own model alone")
  })

  test.each([
    [
      { agent: "general" },
      '`fork: "whole"` goes with your own agent alone: another one\'s prompt and tools are not in the cache. Leave `agent` out or give "build", or use `fork: true`. Nothing was launched.',
    ],
    [
      { model: "scripted/beta" },
      '`fork: "whole"` goes with your own model alone: another one has nothing of this conversation in its cache. Leave `model` out or give "scripted/alpha", or use `fork: true`. Nothing was launched.',
    ],
    [{ place: "worktree" } as const, /^`fork: "whole"` goes with your own folder alone: .+ Nothing was launched\.$/],
  ])("a whole fork is refused with %j, and no session is made", async (change, error) => {
    const rig = new Rig()
    await expect(rig.launch({ ...RIDER, ...change })).rejects.toThrow(error)
    expect(rig.manager.list(rig.parent)).toEqual([])
    expect(rig.opencode.calls).not.toContain("createSession")
  })

  test("a whole fork is refused if the caller is unknown", async () => {
    const rig = new Rig()
    rig.opencode.caller = async () => undefined
    await expect(rig.launch(RIDER)).rejects.toThrow("could not be read")
  })

  test("a whole fork is offered the tools that other children are denied, but its calls are refused", async () => {
    const rig = new Rig({ options: { board: BOARD } })
    const rider = await rig.launch(RIDER)
    const fresh = await rig.launch({ agent: "build" })
    const trimmed = await rig.launch({ agent: "build", fork: true })
    const look = () => {
      const refused = (sessionID: string) =>
        ["superagents_task", "superagents_clear", "task", "question", "tasks_get_task", "bash"].map(
          (tool) => rig.manager.refusesTools(sessionID, tool) !== undefined,
        )
      expect(refused(rider.sessionID)).toEqual([true, true, true, true, true, false])
      for (const { sessionID } of [fresh, trimmed]) expect(refused(sessionID)).toEqual(new Array(6).fill(false))
      expect(rig.manager.refusesTools(rider.sessionID, "task")).toBe(
        "Refused: you are a background agent; these tools are here only because your parent has them. Do the work yourself.",
      )
      expect([rider, fresh, trimmed].map(({ sessionID }) => rig.manager.cacheSessionOf(sessionID))).toEqual([
        rig.parent,
        undefined,
        undefined,
      ])
    }
    look()
    await rig.clock.advance(5000)
    rig.restart()
    await rig.manager.recover()
    look()
  })

  test("a whole fork is refused tools for primary agents only, and other children are denied them", async () => {
    const rig = new Rig({ options: { maxDepth: 0 } })
    rig.opencode.primaryTools = () => ["webfetch"]
    const rider = await rig.launch(RIDER)
    expect(rig.manager.refusesTools(rider.sessionID, "webfetch")).toContain("Refused")
    expect(rig.manager.refusesTools(rider.sessionID, "bash")).toBeUndefined()
    const denial = { permission: "webfetch", pattern: "*", action: "deny" }
    for (const fork of [undefined, true] as const) {
      const { sessionID } = await rig.launch({ agent: "build", fork })
      expect(rig.opencode.stored(sessionID).rules).toContainEqual(denial)
    }
  })

  test("a whole fork below the depth limit may use its parent's tools, except those of the board", async () => {
    const rig = new Rig({ options: { maxDepth: 2, board: BOARD } })
    const { sessionID } = await rig.launch(RIDER)
    expect(rig.manager.refusesTools(sessionID, "superagents_task")).toBeUndefined()
    expect(rig.manager.refusesTools(sessionID, "task")).toBeUndefined()
    expect(rig.manager.refusesTools(sessionID, "tasks_get_task")).toContain("Refused")
  })

  test("a whole fork of a fresh agent is treated as fresh and shares the first agent's request beginning", async () => {
    const rig = new Rig({ options: { maxDepth: 0 } })
    rig.onPrompt("FIND", { hang: true })
    const inside = async (sessionID: string, request: Parameters<Rig["launch"]>[0]) => {
      rig.opencode.stored(sessionID).messages.push({
        ...{ id: `${rig.callerIn(sessionID).messageID}`, role: "assistant" as const, createdAt: rig.clock.now() },
        ...{ agent: "build", model: ALPHA, parts: [] },
      })
      return rig.launch(request, sessionID)
    }
    const fresh = await rig.launch({ agent: "build" })
    await rig.clock.advance(100)
    const rider = await inside(fresh.sessionID, RIDER)
    await rig.clock.advance(100)
    const second = await inside(rider.sessionID, RIDER)
    expect(rider.fork).toMatchObject({ rides: fresh.sessionID, briefed: true })
    expect(second.fork).toMatchObject({ rides: fresh.sessionID, briefed: true })
    expect([fresh, rider, second].map(({ sessionID }) => rig.manager.isFresh(sessionID))).toEqual([true, true, true])
    const top = await rig.launch(RIDER)
    expect(rig.manager.isFresh(top.sessionID)).toBe(false)
  })
})

test.each([
  [{ agent: "build" }, true],
  [{ agent: "build", model: "scripted/alpha" }, false],
  [{ agent: "general" }, false],
  [{ agent: "plan" }, false],
])("a plain fork with %j is made whole when fork.whole is set to cheaper: %s", async (change, whole) => {
  const rig = new Rig({ options: { fork: { whole: "cheaper" } } })
  rig.forks.past = [user("u1", "go"), counted(agent("a1", "yes"), 9000, ALPHA, 8000)]
  rig.forks.price = { cached: 0.3e-6, uncached: 3.75e-6 }
  const { fork, sessionID } = await rig.launch({ fork: true, ...change })
  expect(fork?.whole ?? false).toBe(whole)
  expect(rig.opencode.stored(sessionID).rules.length > 0).toBe(!whole)
})

test("a request of a whole fork uses the parent's cache key and affinity header", () => {
  const options = { promptCacheKey: "ses_own", prompt_cache_key: "mine", temperature: 1 }
  cacheKeyInOptions(options, "ses_own", "ses_first")
  expect(options).toEqual({ promptCacheKey: "ses_first", prompt_cache_key: "mine", temperature: 1 })
  const [headers, own]: Record<string, string>[] = [{}, {}]
  cacheKeyInHeaders(headers as Record<string, string>, "anthropic", "ses_first")
  cacheKeyInHeaders(own as Record<string, string>, "opencode", "ses_first")
  expect([headers, own]).toEqual([{ "x-session-affinity": "ses_first" }, {}])
})

test("a trimmed fork whose record has no optional fields is resumed with its denials and own keys", async () => {
  const rig = new Rig({ options: { board: BOARD } })
  const { id, sessionID } = await rig.launch({ fork: true })
  await rig.ended(id)
  await rig.clock.advance(60_000)
  const { owner } = rig.opencode.stored(sessionID).metadata[RECORD_KEY] as { owner: object }
  const fork = { messages: 4, tokens: 900, droppedMessages: 2, cutResults: 1 }
  const used = { input: 100, output: 20, reasoning: 0, cacheRead: 0, cacheWrite: 0, cost: 0.001 }
  const task = {
    ...{ id, parentID: rig.parent, parentMessageID: "msg_1", description: "find it", agent: "general" },
    ...{ model: ALPHA, depth: 1, fork, fingerprint: "x", batch: `auto:${id}`, createdAt: 1, status: "completed" },
    earlier: { toolCalls: 0, usage: { ...used, input: 0, output: 0, cost: 0 } },
    run: {
      generation: 0,
      promptID: rig.task(id).run.promptID,
      createdAt: 1,
      timeout: 60_000,
      startedAt: 1,
      endedAt: 2,
    },
    delivery: { state: "confirmed", wake: true, done: 1, total: 1, running: 0 },
    outcome: { openTodos: 0, toolCalls: 0, usage: used, recentTools: [], filesChanged: [], moreFiles: 0 },
  }
  const record = { version: RECORD_VERSION, session: sessionID, owner, task }
  rig.opencode.stored(sessionID).metadata = { [RECORD_KEY]: { ...record, signature: SIGNER.sign(record) } }
  rig.restart()
  await rig.manager.recover()
  expect(rig.task(id)).toEqual({ ...task, sessionID })
  await rig.manager.resume(id, { prompt: "MORE" }, rig.caller)
  expect(rig.task(id)).toMatchObject({ fork, status: "resumed", run: { generation: 1 } })
  expect(rig.manager.cacheSessionOf(sessionID)).toBeUndefined()
  expect(rig.manager.isFresh(sessionID)).toBe(false)
  for (const tool of ["task", "superagents_task", "tasks_get_task"])
    expect(rig.manager.refusesTools(sessionID, tool)).toBeUndefined()
  const denied = rig.opencode.stored(sessionID).rules.map(({ permission }) => permission)
  expect(denied).toEqual(expect.arrayContaining(["task", "superagents_task", "tasks_*"]))
})
