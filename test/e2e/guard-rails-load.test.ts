import { setTimeout as sleep } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import { afterAll, beforeAll, expect, test } from "vitest"
import { ask, callTool, eventually, idle, openSession } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launchAll, notifications, startPlugged } from "../support/plugin.ts"

const TASKS = process.env.SUPERAGENTS_LONG ? 200 : 30
const TOOL_CALLS = 5
const SLOTS = 10
/** The answers of the second round are six megabytes or more, of which one is kept; its tasks are some hundred kB. */
const ANSWER_CHARS = 400_000
const MOST_GROWTH_MB = 3
const HEAP = fileURLToPath(new URL("../support/fixtures/heap-plugin.ts", import.meta.url))

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, { maxLaunchesPerMinute: 0, toasts: false }, { others: [HEAP] })
  await ask(opencode, await openSession(opencode), "warm up")
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

/** Live objects of all of OpenCode after its garbage was collected. */
const heapMB = async () => Number((await callTool(opencode, model, await openSession(opencode), "heap", {})).output)

/** The same once they get no fewer: OpenCode lets go in its own time. */
const settledMB = async () => {
  let least = await heapMB()
  for (let patience = 5; patience > 0; patience--) {
    await sleep(1000)
    const now = await heapMB()
    if (now < least - 0.5) patience = 6
    least = Math.min(least, now)
  }
  return least
}

/** All tasks at once, five tool calls each; resolves when all have been told of. */
const round = async (name: string, count: number) => {
  const session = await openSession(opencode)
  const tasks = Array.from({ length: count }, (_, index) => ({ prompt: `P-LOAD ${name}-${index}`, description: name }))
  const launched = await launchAll(opencode, model, session, tasks, { timeout: 120_000 })
  const told = async () => (await notifications(opencode, session)).length >= count
  await eventually(told, { timeout: 600_000, message: () => `${count} notifications\n${opencode.logs()}` })
  await idle(opencode, session, { timeout: 30_000 })
  return { session, launched }
}

test(`${TASKS} tasks of five tool calls through ten slots are reported once each with constant memory`, {
  timeout: 1_500_000,
}, async () => {
  let atWork = 0
  let peak = 0
  const text = "x".repeat(ANSWER_CHARS)
  model.use((request) => {
    if (!request.lastUser.startsWith("P-LOAD")) return undefined
    if (request.sinceUser.length > 0) {
      atWork--
      return { text: `${text} ${request.lastUser}` }
    }
    atWork++
    peak = Math.max(peak, atWork)
    const pattern = (index: number) => ({ pattern: `*${index}` })
    return { tools: Array.from({ length: TOOL_CALLS }, (_, index) => ({ name: "glob", args: pattern(index) })) }
  })
  const { session, launched } = await round("first", TASKS)
  expect(peak).toBeLessThanOrEqual(SLOTS)
  expect(atWork).toBe(0)

  const found = await notifications(opencode, session)
  expect(found).toHaveLength(TASKS)
  const ids = found.map(({ hidden }) => / Task (bg_\w+): completed\./.exec(hidden)?.[1])
  expect(ids.toSorted()).toEqual(launched.map(({ id }) => id).toSorted())
  const progress = found.map(({ visible }) => visible.split("Task Progress: ")[1])
  expect(progress).toEqual(Array.from({ length: TASKS }, (_, index) => `${index + 1}/${TASKS}`))
  const { output = "" } = await callTool(opencode, model, session, "superagents_list", {})
  expect(output).toContain(`${TASKS} tasks, 0 running | ${(TASKS * TOOL_CALLS).toLocaleString("en-US")} tool calls | `)

  model.requests.length = 0
  const before = await settledMB()
  await round("second", TASKS / 2)
  let now = 0
  const flat = async () => {
    now = await heapMB()
    return now - before < MOST_GROWTH_MB
  }
  await eventually(flat, { timeout: 60_000, message: () => `from ${before.toFixed(1)} to ${now.toFixed(1)} MB` })
})
