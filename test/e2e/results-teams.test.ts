import { readFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { callTool, eventually, openSession, unwrap } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launchedFrom, notified, startPlugged } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"

/** Several agents at one thing, and one prompt for many items, on the real OpenCode. */

let model: ScriptedModel
let opencode: Opencode
let user: Repository
let session: string

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, { schemaRetries: 0 }, { permission: { bash: "allow" } })
  user = new Repository(opencode.directory)
}, 90_000)
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})
beforeEach(async () => {
  model.reset()
  session = await openSession(opencode)
})

const task = (args: Record<string, unknown>) =>
  callTool(
    opencode,
    model,
    session,
    "superagents_task",
    { description: "do it", agent: "general", ...args },
    { timeout: 90_000 },
  )
const output = async (id: string) =>
  (await callTool(opencode, model, session, "superagents_output", { task_id: id })).output ?? ""
const children = async () => (await unwrap(opencode.client.session.children({ sessionID: session }))).length
const told = async () => (await notified(opencode, session, 1, 120_000))[0]

test("a ladder is won by its second rung, which reads the first one's result, and is merged once", async () => {
  user.write("sum.txt", "wrong\n").write("test/sum.test.sh", "grep -q right sum.txt\n").commit("before")
  const asked: string[] = []
  let whole = ""
  model.use(({ sessionID, firstUser, lastUser, sinceUser, messages }) => {
    if (sessionID === session || !firstUser.includes("MEND-IT")) return undefined
    if (sinceUser.length > 0) return { text: "done" }
    if (lastUser.includes("AND-A-TITLE"))
      return { tools: [{ name: "bash", args: { command: "echo Sums > title.txt", description: "works" } }] }
    asked.push(firstUser)
    whole += JSON.stringify(messages)
    const word = asked.length === 1 ? "nearly" : "right"
    return { tools: [{ name: "bash", args: { command: `echo ${word} > sum.txt`, description: "works" } }] }
  })
  const rungs = ["scripted/alpha", "scripted/beta"]
  const launched = await task({
    prompt: "MEND-IT",
    tries: rungs,
    check: "sh test/sum.test.sh",
    guard: ["test/**"],
    merge: true,
  })
  const { id } = launchedFrom(launched)
  const notice = await told()
  expect(notice?.hidden).toMatch(/Tries: 2 of 2, won by scripted\/beta; \$/)
  expect(notice?.hidden).toContain("Merged into your files, uncommitted.")
  expect(asked).toHaveLength(2)
  expect(whole).toContain("is run here, once: your work passes only when that succeeds, and you are not asked again.")
  expect(whole).not.toContain("you are asked again when")
  expect(notice?.hidden).toMatch(/^Receipt: .*; guard: held in 2 of 2$/m)
  expect(asked[1]).toContain("Try 1 (scripted/alpha): Its check `sh test/sum.test.sh` did not pass")
  expect(readFileSync(join(opencode.directory, "sum.txt"), "utf8")).toBe("right\n")
  const text = await output(id)
  expect(text).toMatch(/^1 scripted\/alpha: check did not pass \(exit code 1\), .*refs\/superagents-cleared\//m)
  expect(text).toMatch(/^2 scripted\/beta: won, /m)
  const opened = await output(`${id}/1`)
  expect(opened).toContain("do it (try 1 of 2, scripted/alpha)")
  expect(opened).toContain("Reason: Its check `sh test/sum.test.sh` did not pass")
  expect(user.git("show", `refs/superagents-cleared/${id}/1:sum.txt`)).toBe("nearly\n")
  const list = (await callTool(opencode, model, session, "superagents_list", {})).output ?? ""
  expect(new Set(list.match(/bg_\w+/g))).toEqual(new Set([id]))
  expect(list).toContain("won by scripted/beta, 1 did not pass")
  const before = await children()
  await callTool(
    opencode,
    model,
    session,
    "superagents_task",
    { resume: id, prompt: "AND-A-TITLE" },
    { timeout: 90_000 },
  )
  const again = (await notified(opencode, session, 2, 120_000))[1]
  expect(again?.visible).toContain("Resume #1 completed")
  expect(again?.hidden).toMatch(/Tries: 2 of 2, won by scripted\/beta; \$/)
  expect(again?.hidden).toContain("Merged into your files, uncommitted.")
  expect(readFileSync(join(opencode.directory, "title.txt"), "utf8")).toBe("Sums\n")
  expect(asked).toHaveLength(2)
  expect(await children()).toBe(before)
}, 300_000)

test("tries without a check are refused, and nothing is launched", async () => {
  const { error } = await task({ prompt: "X", tries: 3 })
  expect(error).toContain("`tries` needs `check`")
  expect(await children()).toBe(0)
})

const answers = () =>
  model.use(({ sessionID, firstUser }) => {
    const item = /LOOK-AT (\d+)/.exec(firstUser)?.[1]
    if (sessionID === session || item === undefined) return undefined
    return { text: Number(item) % 3 === 1 ? "no JSON" : `{"n": ${item}}` }
  })
const SCHEMA = { type: "object", properties: { n: { type: "number" } }, required: ["n"] }

test("a map of six items reports by itself which two failed, and why", async () => {
  answers()
  const { id } = launchedFrom(await task({ prompt: "LOOK-AT {{item}}", each: [0, 1, 2, 3, 4, 5], schema: SCHEMA }))
  const notice = await told()
  expect(notice?.hidden).toContain("Items: 4 valid, 2 failed, 0 running, 0 not begun, of 6.")
  expect(notice?.hidden).toMatch(/- 2 failed \(item 2, 5\): Its answer did not match the schema/)
  const file = join(opencode.directory, ".opencode/superagents", `${id}.jsonl`)
  expect(notice?.hidden).toContain(file)
  const rows = readFileSync(file, "utf8").trim().split("\n")
  expect(rows.map((row) => JSON.parse(row).state)).toEqual(["valid", "failed", "valid", "valid", "failed", "valid"])
  // And the session of the map itself.
  expect(await children()).toBe(7)
  expect(notice?.hidden).toContain("Rows, one per item, of which the first has index 0: ")
  const [, second] = rows.map((row) => JSON.parse(row))
  for (const name of [second.task, second.session, `${id}/2`]) {
    const opened = await output(name)
    expect(opened).toContain(`Task: ${second.task} do it (item 2 of 6)`)
    expect(opened).toContain("Reason: Its answer did not match the schema")
    expect(opened).toContain("no JSON")
  }
  const wrong = await callTool(opencode, model, session, "superagents_output", { task_id: `${id}/7` })
  expect(wrong.error).toContain(`There are: ${id}/1 to ${id}/6.`)
}, 180_000)

test("a map's first item runs alone until its provider answers; a cancel becomes the others' reason", async () => {
  const HELD_MS = 3000
  const asked = new Map<string, number>()
  model.use(({ firstUser }) => {
    const item = /LOOK-AT (\d)/.exec(firstUser)?.[1]
    if (item === undefined) return undefined
    asked.set(item, asked.get(item) ?? Date.now())
    return item === "0" ? { text: "saw it", delay: HELD_MS } : { hang: true, text: "so far" }
  })
  const { id } = launchedFrom(await task({ prompt: "LOOK-AT {{item}}", each: [0, 1, 2] }))
  await eventually(() => asked.size === 3)
  const [first = 0, ...others] = ["0", "1", "2"].map((item) => asked.get(item) ?? 0)
  expect(Math.min(...others) - first).toBeGreaterThanOrEqual(HELD_MS)
  const running = await output(id)
  expect(running).toMatch(new RegExp(`^${id}/2: running, `, "m"))
  await callTool(opencode, model, session, "superagents_cancel", { task_id: id })
  const why = "Stopped with all of its task: It was cancelled by the agent that launched it."
  const ended = await eventually(async () => {
    const text = await output(`${id}/2`)
    return text.includes("Reason: ") && text
  })
  expect(ended).toContain(`Reason: ${why}`)
  expect(await output(id)).toContain(`- 2 failed (item 2, 3): ${why}`)
}, 180_000)

test("a map of more than 25 items asks the user first, and creates one more child", async () => {
  answers()
  const each = Array.from({ length: 40 }, (_none, nth) => nth * 3)
  const calling = task({ prompt: "LOOK-AT {{item}}", each, schema: SCHEMA })
  const [question] = await eventually(async () => {
    const open = await unwrap(opencode.client.permission.list())
    return open.length > 0 && open
  })
  expect(question).toMatchObject({
    permission: "superagents_each",
    patterns: [expect.stringMatching(/^40 items for general \(/)],
  })
  await opencode.client.permission.reply({ requestID: question?.id ?? "", reply: "once" })
  launchedFrom(await calling)
  const notice = await told()
  expect(notice?.hidden).toContain("Items: 40 valid, 0 failed, 0 running, 0 not begun, of 40.")
  expect(await children()).toBe(1)
}, 180_000)
