import { afterAll, beforeAll, expect, test } from "vitest"
import { readAnswers } from "../../bench/support/answers.ts"
import { readBy } from "../../bench/support/cache-turns.ts"
import { type Bench, native, startBench, superagents } from "../../bench/support/contender.ts"
import { ask, idle, openSession } from "../support/drive.ts"
import type { ModelRequest } from "../support/model.ts"
import { launch, notified, PACKAGE } from "../support/plugin.ts"

/** Option `nativeTask: false` on the real OpenCode: what a parent reads without OpenCode's own `task`, and with it. */

let theirs: Bench
let lean: Bench
let whole: Bench

beforeAll(async () => {
  const contenders = [native, superagents(PACKAGE, { nativeTask: false }), superagents(PACKAGE)]
  ;[theirs, lean, whole] = (await Promise.all(contenders.map(startBench))) as [Bench, Bench, Bench]
})

afterAll(() => Promise.all([theirs?.stop(), lean?.stop(), whole?.stop()]))

const lastOf = ({ model }: Bench, session: string) =>
  model.requests.findLast(({ sessionID }) => sessionID === session) as ModelRequest

test("OpenCode's `task` tool is in no request of parent or child, and launching works without it", async () => {
  const session = await openSession(lean.opencode)
  const { child } = await launch(lean.opencode, lean.model, session, { prompt: "P-LEAN" })
  await notified(lean.opencode, session)
  await idle(lean.opencode, session)
  for (const of of [session, child]) {
    expect(lastOf(lean, of).tools).not.toContain("task")
    expect(lastOf(lean, of).tools).toContain("bash")
  }
  const offered = lastOf(lean, session).body.tools as { function: { name: string; description: string } }[]
  const text = offered.find(({ function: { name } }) => name === "superagents_task")?.function.description
  expect(text).toContain("wait for it with `superagents_output` and `block: true`")
})

test("a message that mentions an agent offers `task` for its own turn only", async () => {
  const { opencode, model } = lean
  const session = await openSession(opencode)
  // The user's mention changes the tools, which stand first.
  model.prefixes.allow(session)
  await opencode.client.session.prompt({
    sessionID: session,
    parts: [
      { type: "text", text: "let @general look" },
      { type: "agent", name: "general" },
    ],
  })
  expect(lastOf(lean, session).tools).toContain("task")
  await ask(opencode, session, "and now?")
  expect(lastOf(lean, session).tools).not.toContain("task")
})

test("a turn that OpenCode begins after a compaction has no `task` tool and can be forked whole", async () => {
  const { opencode, model } = lean
  const session = await openSession(opencode)
  await ask(opencode, session, "a first word")
  const remove = model.use(({ lastUser, sinceUser }) => {
    if (!lastUser.includes("Continue if you have next steps") || sinceUser.length > 0) return undefined
    return { tools: [{ name: "superagents_task", args: { description: "try", prompt: "P-RIDE", fork: "whole" } }] }
  })
  const mark = model.requests.length
  const summarize = { sessionID: session, providerID: "scripted", modelID: "alpha", auto: true }
  expect((await opencode.client.session.summarize(summarize)).error).toBeUndefined()
  await notified(opencode, session)
  remove()
  const turn = model.requests.slice(mark).filter(({ sessionID, tools }) => sessionID === session && tools.length > 0)
  expect(turn.length).toBeGreaterThan(1)
  for (const { tools } of turn) expect(tools).not.toContain("task")
  expect(turn.flatMap(({ toolResults }) => toolResults.map(({ content }) => content)).join("\n")).toContain(", uncut.")
})

test("five short answers cost a parent no more than with OpenCode's own tasks, apart from `task` itself", async () => {
  const readIn = async (bench: Bench) => readBy((await readAnswers(bench)).at(-1) as ModelRequest)
  const [own, without, both] = [await readIn(theirs), await readIn(lean), await readIn(whole)]
  console.log(
    `five short answers: native ${own.all}, plugin ${without.all}, with \`task\` (${both.task} tokens) ${both.all}`,
  )
  expect(without.task).toBe(0)
  expect(without.all).toBeLessThanOrEqual(own.all)
  expect(both.all).toBeLessThanOrEqual(own.all + both.task)
})
