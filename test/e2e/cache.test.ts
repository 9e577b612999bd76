import { fileURLToPath } from "node:url"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import {
  anewOf,
  type CacheBench,
  launchSiblings,
  launchUncached,
  ride,
  SLOW_MS,
  sharedBy,
  startCacheBench,
  talk,
  workInThread,
} from "../../bench/support/cache-turns.ts"
import type { Form } from "../support/cache.ts"
import { callTool, unwrap } from "../support/drive.ts"
import type { ModelRequest, ScriptedModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launchedFrom, notified } from "../support/plugin.ts"

const TRY = { description: "try", prompt: "P-TRY", fork: "whole" }

/** The short form of `npm run bench -- cache`: each figure of the contract, once. */

describe.each<Form>(["openai", "anthropic"])("the cache of %s", (form) => {
  let bench: CacheBench
  let model: ScriptedModel
  let opencode: Opencode

  beforeAll(async () => {
    bench = await startCacheBench(form)
    ;({ model, opencode } = bench)
  })
  afterAll(() => bench?.stop())

  const lastOf = (sessionID: string) => model.requests.findLast((request) => request.sessionID === sessionID)

  test("a whole fork begins with its parent's last request and pays for few other tokens", async () => {
    const { session, riders } = await ride(bench, ["P-RIDE"])
    const [{ id, child, output, first, shared, anew }] = riders as [(typeof riders)[number]]
    console.log(`${form}: shared ${shared.toFixed(1)} %, read ${first.counted?.read}, anew ${anew}`)
    expect(shared).toBeGreaterThanOrEqual(99)
    expect(anew).toBeLessThanOrEqual(600)
    expect(first.messages.at(-1)?.content).toBeDefined()
    expect(first.headers["x-session-affinity"]).toBe(session)
    expect(first.headers["x-session-id"]).toBe(child)
    if (form === "openai") expect(first.body.promptCacheKey ?? first.body.prompt_cache_key).toBe(session)
    expect(output).toMatch(
      /\nInherited: \d+ messages, about [\d,]+ tokens, uncut\. From the provider's cache its first step costs about \$0\.00\d\d instead of \$0\.\d{4}\.\n[\s\S]*You will be told/,
    )
    const read = await callTool(opencode, model, session, "superagents_output", { task_id: id })
    const [{ read: cached = 0 } = {}, whole = 0] = [first.counted, (first.counted?.read ?? 0) + anewOf(first)]
    expect(read.output).toContain(
      `\nCache: ${cached.toLocaleString("en-US")} of the ${whole.toLocaleString("en-US")} tokens of its first request were read from it.\n`,
    )
  })

  test("five whole forks of one message together pay for fewer than 3,000 uncached tokens", async () => {
    const { riders } = await ride(bench, ["P-1", "P-2", "P-3", "P-4", "P-5"])
    const anew = riders.reduce((sum, rider) => sum + rider.anew, 0)
    console.log(`${form}: five riders, ${anew} tokens anew`)
    expect(anew).toBeLessThan(3000)
  })

  test("the cache gets the common part of five siblings once, and the model is asked for each", async () => {
    const session = await talk(bench)
    const { common, beside, askedAfter } = await launchSiblings(bench, session)
    console.log(
      `${form}: siblings: ${common} tokens anew, then ${beside.join(", ")}; the last asked ${Math.round(Math.max(...askedAfter))} ms after`,
    )
    // OpenAI's form finds a beginning by its session's own key: there siblings share nothing.
    if (form === "anthropic") for (const anew of beside) expect(anew).toBeLessThanOrEqual(common / 10 + 100)
    expect(Math.min(...askedAfter)).toBeGreaterThan(0)
    // The like of them have begun just now: nothing would be won. A busy machine asks even so one after the other.
    const again = await launchSiblings(bench, session, SLOW_MS)
    expect(Math.min(...again.askedAfter)).toBeLessThan(0)
  })

  test("no task is held back when the model has reported no cache", async () => {
    const spread = await launchUncached(bench)
    console.log(`${form}: five without a cache: the last asked ${Math.round(spread)} ms after the first`)
    expect(spread).toBeLessThan(1500)
  })

  test("a thread's turn of seven steps pays for new text and at most 400 other tokens a step", async () => {
    const beside = await workInThread(bench)
    console.log(`${form}: a thread's steps: ${beside.join(", ")} tokens anew beside what is new`)
    expect(beside).toHaveLength(6)
    for (const tokens of beside) expect(tokens).toBeLessThanOrEqual(400)
  })

  test("a whole fork's tool calls are refused, and its resume sends the same bytes even after a restart", async () => {
    const session = await talk(bench)
    model.use(({ lastUser, sinceUser }) => {
      if (!lastUser.includes("P-TRY")) return undefined
      return sinceUser.length > 0
        ? { text: "then I do it myself" }
        : { tools: [{ name: "task", args: { description: "x", prompt: "x", subagent_type: "general" } }] }
    })
    const outcome = await callTool(opencode, model, session, "superagents_task", TRY)
    const { id, child } = launchedFrom(outcome)
    await notified(opencode, session)
    const refused = lastOf(child)?.toolResults.at(-1)
    expect(refused?.name).toBe("task")
    expect(refused?.content).toContain("Refused: you are a background agent; these tools are here only because")
    await opencode.restart()
    const before = lastOf(child) as ModelRequest
    await callTool(opencode, model, session, "superagents_task", { resume: id, prompt: "P-TRY again" })
    await notified(opencode, session, 2)
    const [resumed, after] = model.requests.filter(
      ({ sessionID, number }) => sessionID === child && number > before.number,
    )
    expect(sharedBy(before, resumed as ModelRequest)).toBeGreaterThan(99)
    expect(resumed?.headers["x-session-affinity"]).toBe(session)
    expect(after?.toolResults.at(-1)?.content).toContain("Refused: you are a background agent")
  })
})

const fixture = (name: string) => fileURLToPath(new URL(`../support/fixtures/${name}.ts`, import.meta.url))

test("a fork stays whole next to a plugin that rewrites the messages of all sessions alike", async () => {
  const bench = await startCacheBench("openai", undefined, [fixture("shortening-plugin")])
  try {
    const { session, riders } = await ride(bench, ["P-ALIKE"])
    for (const { output, shared, child } of riders) {
      expect(output).toContain("uncut")
      expect(shared).toBeGreaterThanOrEqual(99)
      const left = await unwrap(bench.opencode.client.session.children({ sessionID: session }))
      expect(left.map(({ id }) => id)).toEqual([child])
    }
    expect(JSON.stringify(bench.model.requests.map(({ body }) => body))).not.toContain("Nothing is asked.")
  } finally {
    await bench.stop()
  }
}, 150_000)

test.each([
  ["adds to a parent's system prompt alone", "parents-plugin", "This is for parents alone."],
  ["rewrites a parent's messages alone", "shortening-parents-plugin", "[shortened]"],
])(
  "next to a plugin that %s, a whole fork is trimmed before anything is sent",
  async (_what, name, its) => {
    const bench = await startCacheBench("openai", undefined, [fixture(name)])
    try {
      const { session, riders } = await ride(bench, ["P-APART", "P-APART-TOO"])
      for (const { output, first } of riders) {
        expect(output).toContain(
          "Another plugin changes the system prompt or the messages of this conversation, but not those of a fork of it, so little of it would be read from the cache: this fork is trimmed.",
        )
        expect(output).not.toContain("uncut")
        expect(output).not.toContain("From the provider's cache")
        expect(JSON.stringify(first.body)).not.toContain(its)
      }
      const children = riders.map(({ child }) => child)
      const asked = new Set(bench.model.requests.map(({ sessionID }) => sessionID))
      expect([...asked].filter((id) => id !== session && !children.includes(id ?? ""))).toEqual([])
      expect(JSON.stringify(bench.model.requests.map(({ body }) => body))).not.toContain("Nothing is asked.")
      const left = await unwrap(bench.opencode.client.session.children({ sessionID: session }))
      expect(left.map(({ id }) => id).toSorted()).toEqual(children.toSorted())
    } finally {
      await bench.stop()
    }
  },
  240_000,
)
