import { readFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest"
import { ask, callTool, eventually, idle, openSession, toolParts, unwrap } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, launch, launchAll, notified, startPlugged, wakes } from "../support/plugin.ts"

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, { verbose: true })
  await ask(opencode, await openSession(opencode), "warm up")
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => model.reset())

const call = async (session: string, tool: string, args: Record<string, unknown> = {}) =>
  (await callTool(opencode, model, session, `superagents_${tool}`, args)).output ?? ""

/** When the plugin's own record of this child says that its answer was fetched. */
const fetchedAt = async (child: string) => {
  const { metadata } = await unwrap(opencode.client.session.get({ sessionID: child }))
  const { superagents } = metadata as { superagents?: { task?: { retrievedAt?: number } } }
  return superagents?.task?.retrievedAt
}

const rowOf = async (sessionID: string) => {
  const { tokens, cost } = await unwrap(opencode.client.session.get({ sessionID }))
  return { tokens: (tokens?.input ?? 0) + (tokens?.output ?? 0) + (tokens?.reasoning ?? 0), cost: cost ?? 0 }
}

test("a conversation that its user forked is told which session owns the tasks, and how to look there", async () => {
  const door = gate()
  model.use(async ({ lastUser }) => {
    if (!lastUser.startsWith("P-FORKED")) return undefined
    await door.opened
    return { text: "the answer" }
  })
  const session = await openSession(opencode)
  const { id } = await launch(opencode, model, session, { prompt: "P-FORKED" })
  await idle(opencode, session)
  const fork = (await unwrap(opencode.client.session.fork({ sessionID: session }))).id
  expect(await call(fork, "list")).toContain(`${id} (`)
  const refused = await callTool(opencode, model, fork, "superagents_output", { task_id: id })
  expect(refused.error).toContain(`opencode --session ${session}`)
  const toasts = () =>
    opencode.events.all.flatMap(({ type, properties }) =>
      type === "tui.toast.show" && properties.title?.includes("stay with the first conversation")
        ? [properties.message]
        : [],
    )
  await eventually(() => toasts().length > 0)
  door.open()
  expect(await notified(opencode, session, 1, 30_000)).toHaveLength(1)
  // Its end has a toast as well: a second one about the fork would have come before.
  await eventually(() =>
    opencode.events.all.some(
      ({ type, properties }) =>
        type === "tui.toast.show" && properties.message?.includes("do P-FORKED") && properties.variant === "success",
    ),
  )
  expect(toasts()).toEqual(["1 task of the conversation that was forked: its answer arrives there, not here"])
})

describe("five short answers", () => {
  test("five short answers arrive whole with the notifications in one turn of the parent, and count as fetched", async () => {
    const door = gate()
    model.use(async ({ lastUser }) => {
      if (!lastUser.startsWith("P-FIVE-")) return undefined
      await door.opened
      return { text: `the answer to ${lastUser}` }
    })
    const session = await openSession(opencode)
    const prompts = [1, 2, 3, 4, 5].map((number) => ({ prompt: `P-FIVE-${number}` }))
    const tasks = await launchAll(opencode, model, session, prompts)
    await eventually(() => model.inFlight === 5)
    door.open()
    const found = await notified(opencode, session, 5, 30_000)
    for (const [index, { id }] of tasks.entries()) {
      const told = found.filter(({ hidden }) => hidden.includes(` Task ${id}: completed. `))
      expect(told).toHaveLength(1)
      expect(told[0]?.hidden).toContain(`\n<task_output>\nthe answer to P-FIVE-${index + 1}\n</task_output>\n`)
    }
    await eventually(() => wakes(model, session).length > 0)
    await idle(opencode, session)
    const [woken, ...more] = wakes(model, session)
    expect(more).toEqual([])
    for (const { prompt } of prompts) expect(JSON.stringify(woken?.messages)).toContain(`the answer to ${prompt}\\n`)
    expect(found.at(-1)?.hidden).toContain("\nAll 5 tasks finished.\n")
    expect(found.filter(({ hidden }) => /Still running: |Also ended, messages follow: /.test(hidden))).toHaveLength(4)
    expect(await toolParts(opencode, session, "superagents_output")).toEqual([])
    for (const { child } of tasks) await eventually(async () => (await fetchedAt(child)) !== undefined)
  })
})

describe("a long answer", () => {
  test("a long answer arrives with its beginning, marked as not fetched, and can be read on", async () => {
    const text = `${"a".repeat(1000)}${"b".repeat(3500)}`
    model.use(({ lastUser }) => (lastUser === "P-LONG" ? { text } : undefined))
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-LONG" })
    const [told] = await notified(opencode, session)
    expect(told?.hidden).toContain(`\n<task_output>\n${"a".repeat(1000)}\n</task_output>\n`)
    expect(told?.hidden).toContain(`\nNot fetched yet: ${id} (do P-LONG)\n`)
    const offset = Number(/offset=(\d+)\) reads on/.exec(told?.hidden ?? "")?.[1])
    expect(await fetchedAt(child)).toBeUndefined()
    expect(await call(session, "output", { task_id: id, offset })).toContain(`\n${"b".repeat(3500)}\n</task_output>`)
  })
})

describe("two batches at once", () => {
  test("the hint counts two batches as one and says only at the end that all have finished", async () => {
    const [a, b] = [gate(), gate()]
    model.use(async ({ lastUser }) => {
      if (lastUser === "P-A") await a.opened
      else if (lastUser === "P-B") await b.opened
      else return undefined
      return { text: "done" }
    })
    const session = await openSession(opencode)
    const [, second] = await launchAll(opencode, model, session, [
      { prompt: "P-A", batch: "one" },
      { prompt: "P-B", batch: "two" },
    ])
    a.open()
    const [one] = await notified(opencode, session)
    expect(one?.visible).toMatch(/\nTask Progress: 1\/1$/)
    expect(one?.hidden).toContain(`\nStill running: ${second?.id} (do P-B)\n`)
    expect(one?.hidden).toContain("\nWATCH OUT for leftovers")
    expect(one?.hidden).not.toContain("tasks finished.")
    const list = await call(session, "list", { batch: "one" })
    expect(list.split("\n")[0]).toMatch(/\| batch one$/)
    expect(list).not.toContain(second?.id)
    b.open()
    const [, two] = await notified(opencode, session, 2)
    expect(two?.hidden.split("\n").slice(-2)).toEqual([
      "All 2 tasks finished.",
      "Use superagents_output tools to see agent responses.",
    ])
  })
})

describe("usage figures", () => {
  test("the figures of two runs equal OpenCode's own, and each run's figures are shown separately", async () => {
    const usage = (input: number) => ({ input, output: 10 })
    model.use(({ lastUser, sinceUser }) => {
      if (lastUser === "P-AGAIN") return { text: "twice", usage: usage(50) }
      if (lastUser !== "P-ONCE") return undefined
      const tools = [{ name: "glob", args: { pattern: "*" } }]
      return sinceUser.length === 0 ? { tools, usage: usage(700) } : { text: "once", usage: usage(900) }
    })
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-ONCE" })
    const [first] = await notified(opencode, session)
    expect(first?.hidden).toContain(" Used: 1 tool call, 1,620 tokens, $0.0016.\n")
    expect(await rowOf(child)).toEqual({ tokens: 1620, cost: expect.closeTo(0.00164, 8) })
    await callTool(opencode, model, session, "superagents_task", { resume: id, prompt: "P-AGAIN" })
    const [, second] = await notified(opencode, session, 2)
    expect(second?.hidden).toContain(
      " This run: 0 tool calls, 60 tokens, $0.0001; in all: 1 tool call, 1,680 tokens, $0.0017.\n",
    )
    const row = await rowOf(child)
    expect(row.tokens).toBe(1680)
    const output = await call(session, "output", { task_id: id })
    expect(output).toContain("\nResumed: 1 time\n")
    expect(output).toContain("\nTool calls: this run 0, in all 1\n")
    expect(output).toContain(`\nUsage: this run 60 tokens, $0.0001; in all 1,680 tokens, $${row.cost.toFixed(4)}\n`)
    const list = await call(session, "list")
    expect(list.split("\n")[0]).toContain(`| 1 tool call | 1,680 tokens, $${row.cost.toFixed(4)}`)
  })

  test("the figures of a run that was stopped within a step are shown as a minimum", async () => {
    model.use(({ lastUser, sinceUser }) => {
      if (lastUser !== "P-CUT") return undefined
      const tools = [{ name: "glob", args: { pattern: "*" } }]
      return sinceUser.length === 0 ? { tools, usage: { input: 700, output: 10 } } : { hang: true, text: "so far" }
    })
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-CUT" })
    await model.waitFor(({ sessionID, sinceUser }) => sessionID === child && sinceUser.length > 0)
    await call(session, "cancel", { task_id: id })
    expect(await call(session, "output", { task_id: id })).toMatch(/\nUsage: at least 710 tokens, \$0\.0007\n/)
    expect(await call(session, "list")).toMatch(/\| at least 710 tokens, \$0\.0007$/m)
  })
})

describe("a child's system prompt", () => {
  test("a fresh child's system prompt says that it works in the background; a fork's does not", async () => {
    const session = await openSession(opencode)
    await ask(opencode, session, "hello")
    const [fresh, forked] = await launchAll(opencode, model, session, [
      { prompt: "P-FRESH" },
      { prompt: "P-FORK", fork: true },
    ])
    await notified(opencode, session, 2)
    const systemOf = (child?: string) => model.requests.find(({ sessionID }) => sessionID === child)?.system ?? ""
    expect(systemOf(fresh?.child)).toContain("You work in the background for another agent")
    expect(systemOf(forked?.child)).not.toContain("You work in the background for another agent")
    expect(systemOf(session)).not.toContain("You work in the background for another agent")
    await eventually(() => wakes(model, session).length > 0)
  })
})

test("the log contains calls, transitions and notifications, and no prompts or answers", async () => {
  model.use(({ lastUser }) => (lastUser.startsWith("P-SECRET") ? { text: "an answer for nobody's log" } : undefined))
  const session = await openSession(opencode)
  const { id } = await launch(opencode, model, session, {
    prompt: "P-SECRET nobody may read this",
    description: "hush",
  })
  const [told] = await notified(opencode, session)
  const log = () => readFileSync(join(opencode.home, "data/opencode/log/opencode.log"), "utf8")
  await eventually(() => log().includes(`\\"message\\":\\"${told?.id}\\"`))
  const ours = log()
    .split("\n")
    .filter((line) => line.includes(id))
  for (const word of ["/prompt_async", '\\"transition\\"', '\\"task notified\\"'])
    expect(
      ours.some((line) => line.includes(word)),
      word,
    ).toBe(true)
  expect(/nobody may read this|for nobody's log/.test(log())).toBe(false)
})
