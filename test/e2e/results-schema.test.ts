import { readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, expect, test } from "vitest"
import { callTool, openSession } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launch, notified, startPlugged } from "../support/plugin.ts"

const SCHEMA = {
  type: "object",
  properties: { verdict: { enum: ["pass", "fail"] }, name: { type: "string", pattern: "^(a+)+$" } },
  required: ["verdict"],
}
const VALID = '{"verdict":"pass"}'
const LONG = JSON.stringify({ verdict: "pass", notes: "x".repeat(1_000_000) })

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  const { scripted } = model.provider()
  const bare = { name: "bare", tool_call: false, limit: { context: 200_000, output: 8192 } }
  const provider = { scripted: { ...scripted, models: { ...scripted.models, bare } } }
  opencode = await startPlugged(model, {}, { config: { provider } })
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

/** Runs a task whose agent answers so, one answer after the other. */
const run = async (mark: string, answers: readonly string[]) => {
  const sessionID = await openSession(opencode)
  let asked = 0
  model.use((request) =>
    request.firstUser.includes(mark) ? { text: answers[Math.min(asked++, answers.length - 1)] ?? "" } : undefined,
  )
  const { id } = await launch(opencode, model, sessionID, { prompt: mark, description: "Judge it", schema: SCHEMA })
  const [notice] = await notified(opencode, sessionID)
  return { id, sessionID, asked: () => asked, notice }
}

test.each<[string, string]>([
  ["prose around it", `I looked at all of it.\n\n${VALID}\n\nThat is all.`],
  ["a fence", `\`\`\`json\n${VALID}\n\`\`\``],
  ["code beside it", `\`\`\`ts\nconst x = { a: [1] }\n\`\`\`\n${VALID}`],
])("a valid value is found in an answer with %s, without another request", async (what, answer) => {
  const { notice, asked } = await run(`P-${what}`, [answer])
  expect(notice?.visible).toContain("finished")
  expect(notice?.hidden).toContain(VALID)
  expect(notice?.hidden).toContain("Schema: valid; the value is also in ")
  expect(asked()).toBe(1)
})

test.each<[string, string]>([
  ["of a wrong type", '{"verdict":"pass","name":7}'],
  ["with a missing field", "{}"],
  ["of broken JSON", '{"verdict": pass'],
  ["of prose", "It is good."],
  ["of two objects", `First {"verdict":"maybe"}, but then ${VALID}`],
  ["of a valid value within a broken one", `{"verdict":"fail","sub":${VALID}`],
  ["with a key twice", '{"verdict":7,"verdict":"pass"}'],
  ["for which a pattern runs for ever", JSON.stringify({ verdict: "pass", name: `${"a".repeat(40)}!` })],
])("an answer %s is asked for again and never counts as completed while it is not valid", async (what, answer) => {
  const good = await run(`P-good ${what}`, [answer, VALID])
  expect(good.notice?.hidden).toContain("Schema: valid, asked 2 times")
  expect(good.asked()).toBe(2)
  const bad = await run(`P-bad ${what}`, [answer])
  expect(bad.notice?.visible).toContain("failed")
  expect(bad.notice?.hidden).toMatch(/Reason: Its answer did not match the schema \(asked 3 times; the last time: /)
  expect(bad.asked()).toBe(3)
})

test("a value is stored in a file with its task's id, named by launch, notification and output", async () => {
  const sessionID = await openSession(opencode)
  model.use(({ firstUser }) => (firstUser.includes("P-file") ? { text: `So: ${VALID}` } : undefined))
  const task = { prompt: "P-file", description: "Judge it", schema: SCHEMA }
  const { id, output } = await launch(opencode, model, sessionID, task)
  const file = join(opencode.directory, ".opencode/superagents", `${id}.json`)
  expect(output).toContain(`\nSchema: its valid value, in ${file}\n`)
  const [notice] = await notified(opencode, sessionID)
  expect(notice?.hidden).toContain(`Schema: valid; the value is also in ${file}\n`)
  expect(readFileSync(file, "utf8")).toBe(VALID)
  const shown = await callTool(opencode, model, sessionID, "superagents_output", { task_id: id })
  expect(shown.output).toContain(file)
})

test("a value of a megabyte is read by length and path, in a file private to its user", async () => {
  const { id, notice, sessionID } = await run("P-long", [LONG])
  const file = join(opencode.directory, ".opencode/superagents", `${id}.json`)
  expect(notice?.hidden).toContain(`Schema: valid; the value is also in ${file}`)
  expect(notice?.hidden.length).toBeLessThan(3000)
  expect(readFileSync(file, "utf8")).toBe(LONG)
  expect(statSync(file).mode & 0o777).toBe(0o600)
  expect(readFileSync(join(opencode.directory, ".opencode/superagents/.gitignore"), "utf8")).toBe("*\n")
  const shown = await callTool(opencode, model, sessionID, "superagents_output", { task_id: id })
  expect(shown.output).toContain(`the value is also in ${file}`)
})

test("a model without tools can give its value, and is asked again like any other", async () => {
  const sessionID = await openSession(opencode)
  const offered: number[] = []
  model.use((request) => {
    if (!request.firstUser.includes("P-bare") || request.sessionID === sessionID) return undefined
    offered.push(request.tools.length)
    return { text: offered.length === 1 ? "It is good." : VALID }
  })
  const task = { prompt: "P-bare", description: "Judge it", schema: SCHEMA, model: "scripted/bare" }
  await launch(opencode, model, sessionID, task)
  const [notice] = await notified(opencode, sessionID)
  expect(notice?.hidden).toContain("Schema: valid, asked 2 times")
  expect(offered).toHaveLength(2)
})

test("an empty answer is asked for again, and a model that gives no other has failed", async () => {
  const good = await run("P-some", ["", VALID])
  expect(good.notice?.hidden).toContain("Schema: valid, asked 2 times")
  const bad = await run("P-none", [""])
  expect(bad.notice?.visible).toContain("failed")
  expect(bad.notice?.hidden).toMatch(/Reason: .*(did not match the schema|empty answers in a row)/)
  expect(bad.asked()).toBeLessThanOrEqual(3)
})
