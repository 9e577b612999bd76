import { afterAll, beforeAll, describe, expect, test } from "vitest"
import type { Form } from "../support/cache.ts"
import { ask, callTool, callTools, openSession } from "../support/drive.ts"
import type { Host } from "../support/host.ts"
import { type ModelRequest, type ScriptedModel, startModel } from "../support/model.ts"
import { launchAll, launchedFrom, notified, startPlugged } from "../support/plugin.ts"
import { blocksOf } from "../support/prefixes.ts"

/** Sonnet's, in US dollars a million. */
const COST = { input: 3, output: 15, cache_read: 0.3, cache_write: 3.75 }
const LONG = "a line of what was read, long enough to be cut\n".repeat(400)

/** How much of an earlier request is the beginning of another, from 0 to 1, by bytes. */
const sharedBy = (earlier: ModelRequest, later: ModelRequest): number => {
  const [before, after] = [blocksOf(earlier), blocksOf(later)].map((blocks) => blocks.join("\n"))
  let at = 0
  while (at < (before ?? "").length && before?.[at] === after?.[at]) at++
  return at / (before ?? "").length
}

describe.each<Form>(["openai", "anthropic"])("with %s's cache", (form) => {
  let model: ScriptedModel
  let host: Host

  beforeAll(async () => {
    model = await startModel({ form, cache: true })
    host = await startPlugged(
      model,
      {},
      { config: { provider: model.provider({ cost: COST, settings: { setCacheKey: true } }) } },
    )
  })
  afterAll(async () => {
    await host?.stop()
    await model?.close()
  })

  const lastOf = (sessionID: string) => model.requests.findLast((request) => request.sessionID === sessionID)
  const firstOf = (sessionID: string) => model.waitFor((request) => request.sessionID === sessionID)
  const anewOf = ({ counted }: ModelRequest) => (counted?.input ?? 0) + (counted?.written ?? 0)

  /** A conversation that has read something long, in the middle of its second turn's call. */
  const talk = async () => {
    const session = await openSession(host)
    model.use(({ sessionID, lastUser, sinceUser }) => {
      if (sessionID !== session || lastUser !== "read it") return undefined
      return sinceUser.length > 0
        ? { text: "I have read it." }
        : { tools: [{ name: "bash", args: { command: `printf '${LONG}'`, description: "read" } }] }
    })
    await ask(host, session, "read it")
    return session
  }

  const rider = (prompt: string) => ({
    name: "superagents_task",
    args: { description: `do ${prompt}`, prompt, fork: "whole" },
  })

  test("a riding fork begins with its parent's last request, and pays for little beside it", async () => {
    const session = await talk()
    const outcome = await callTool(host, model, session, "superagents_task", rider("P-RIDE").args)
    const { id, child, output } = launchedFrom(outcome)
    const parent = model.requests.findLast(({ sessionID, at, messages }) => {
      const called = messages.some(({ tool_calls }) =>
        tool_calls?.some((call) => call.function.name === "superagents_task"),
      )
      return sessionID === session && at > 0 && !called
    }) as ModelRequest
    const first = await firstOf(child)
    console.log(
      `${form}: shared ${(100 * sharedBy(parent, first)).toFixed(1)} %, read ${first.counted?.read}, anew ${anewOf(first)}`,
    )
    expect(sharedBy(parent, first)).toBeGreaterThanOrEqual(0.99)
    expect(anewOf(first)).toBeLessThanOrEqual(600)
    expect(first.messages.at(-1)?.content).toBeDefined()
    expect(first.headers["x-session-affinity"]).toBe(session)
    expect(first.headers["x-session-id"]).toBe(child)
    if (form === "openai") expect(first.body.promptCacheKey ?? first.body.prompt_cache_key).toBe(session)
    expect(output).toMatch(
      /\nInherited: \d+ messages, about [\d,]+ tokens, uncut\.\nFrom the provider's cache its first step costs about \$0\.00\d\d instead of \$0\.\d{4}\.\n[\s\S]*You will be told/,
    )
    await notified(host, session)
    const read = await callTool(host, model, session, "superagents_output", { task_id: id })
    const [{ read: cached = 0 } = {}, whole = 0] = [first.counted, (first.counted?.read ?? 0) + anewOf(first)]
    expect(read.output).toContain(
      `\nCache: ${cached.toLocaleString("en-US")} of the ${whole.toLocaleString("en-US")} tokens of its first request were read from it.\n`,
    )
  })

  test("five riders of one message pay for less than 3,000 tokens anew, all together", async () => {
    const session = await talk()
    const outcomes = await callTools(
      host,
      model,
      session,
      [1, 2, 3, 4, 5].map((number) => rider(`P-FIVE-${number}`)),
    )
    const firsts = await Promise.all(outcomes.map((outcome) => firstOf(launchedFrom(outcome).child)))
    const anew = firsts.reduce((sum, first) => sum + anewOf(first), 0)
    console.log(`${form}: five riders, ${anew} tokens anew`)
    expect(anew).toBeLessThan(3000)
    await notified(host, session, 5)
  })

  test("five siblings of one message have what they have in common written once, and are all asked in time", async () => {
    const session = await talk()
    const pace = 400
    model.use(({ lastUser }) => (/^P-SIBLING-\d$/.test(lastUser) ? { text: "found", delay: pace } : undefined))
    const tasks = [1, 2, 3, 4, 5].map((number) => ({ prompt: `P-SIBLING-${number}` }))
    const launched = await launchAll(host, model, session, tasks)
    const firsts = await Promise.all(launched.map(({ child }) => firstOf(child)))
    const [first, ...others] = firsts.toSorted((a, b) => a.at - b.at) as [ModelRequest, ...ModelRequest[]]
    const common = anewOf(first)
    const beside = others.map(anewOf)
    const late = Math.max(...others.map(({ at }) => at)) - (first.at + pace)
    console.log(
      `${form}: siblings: ${common} tokens anew, then ${beside.join(", ")}; the last asked ${Math.round(late)} ms after`,
    )
    // OpenAI's form finds a beginning by its session's own key: there siblings share nothing.
    if (form === "anthropic") for (const anew of beside) expect(anew).toBeLessThanOrEqual(common / 10 + 100)
    for (const { at } of others) expect(at).toBeGreaterThan(first.at + pace)
    expect(late).toBeLessThan(2500)
    await notified(host, session, 5)
    // The like of them have begun just now: nothing would be won.
    const again = await launchAll(host, model, session, tasks)
    const seen = await Promise.all(again.map(({ child }) => firstOf(child)))
    expect(Math.max(...seen.map(({ at }) => at)) - Math.min(...seen.map(({ at }) => at))).toBeLessThan(1500)
    await notified(host, session, 10)
  })

  test("a rider's tools are refused, its resume goes on with the same bytes and keys, after a restart, too", async () => {
    const session = await talk()
    model.use(({ lastUser, sinceUser }) => {
      if (!lastUser.includes("P-TRY")) return undefined
      return sinceUser.length > 0
        ? { text: "then I do it myself" }
        : { tools: [{ name: "task", args: { description: "x", prompt: "x", subagent_type: "general" } }] }
    })
    const outcome = await callTool(host, model, session, "superagents_task", rider("P-TRY").args)
    const { id, child } = launchedFrom(outcome)
    await notified(host, session)
    const refused = lastOf(child)?.toolResults.at(-1)
    expect(refused?.name).toBe("task")
    expect(refused?.content).toContain("Refused: you are a background agent; these tools are here only because")
    await host.restart()
    const before = lastOf(child) as ModelRequest
    await callTool(host, model, session, "superagents_task", { resume: id, prompt: "P-TRY again" })
    await notified(host, session, 2)
    const [resumed, after] = model.requests.filter(
      ({ sessionID, number }) => sessionID === child && number > before.number,
    )
    expect(sharedBy(before, resumed as ModelRequest)).toBeGreaterThan(0.99)
    expect(resumed?.headers["x-session-affinity"]).toBe(session)
    expect(after?.toolResults.at(-1)?.content).toContain("Refused: you are a background agent")
  })
})
