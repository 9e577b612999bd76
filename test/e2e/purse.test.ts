import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest"
import type { PurseReport } from "../../src/features/board/purse/report.ts"
import { blockOf, boardFolder, byHand, call, callBoard, keptBoard, saidIn, taskOf } from "../support/board.ts"
import { eventually, openSession } from "../support/drive.ts"
import { isAsked } from "../support/last-words.ts"
import { type ModelRequest, type Reply, type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, notifications, startPlugged } from "../support/plugin.ts"

/** A night on the real OpenCode: what the provider's own log says is what the report has to say. A step costs a cent. */

vi.setConfig({ testTimeout: 240_000, hookTimeout: 120_000 })

const CENT_USD = 0.01
const CENT = { input: 10_000, output: 0 }
const RUNS_AT_ONCE = 2

let model: ScriptedModel
let opencode: Opencode | undefined

beforeAll(async () => {
  model = await startModel()
})
afterAll(() => model?.close())
beforeEach(() => model.reset())
afterEach(async () => {
  await opencode?.stop()
  opencode = undefined
})

const NEVER = "0 0 30 2 *"
const start = () => startPlugged(model, { board: { schedule: NEVER, maxConcurrentRuns: RUNS_AT_ONCE }, lastWord: 5000 })

/** Tasks whose agents are asked, and not answered before a purse is opened for them. */
const openFor = async (running: Opencode, count: number, max: number) => {
  for (let at = 0; at < count; at++)
    await byHand(running, {
      type: "create",
      input: {
        title: `Part ${at + 1}`,
        owner: "general",
        status: "active",
        steps: [{ title: "read" }, { title: "write" }],
      },
      by: { kind: "user" },
    })
  const isAtWork = () => model.requests.filter((request) => taskOf(request) !== undefined).length >= RUNS_AT_ONCE
  await eventually(isAtWork, { timeout: 60_000 })
  const session = await openSession(running)
  const answer = await callBoard(running, model, session, "purse", { max, until: inMinutes(60) })
  expect(answer).toContain(`The purse is open: $0.00 of $${max}`)
  await eventually(() => Object.keys(keptBoard(running).purse?.threads ?? {}).length >= RUNS_AT_ONCE)
  opening.open()
  return session
}

/** What the provider has answered in threads, by board task. */
const log = new Map<string, number>()
/** Nobody is answered before the purse is open. */
let opening = gate()
const counting = (next: (request: ModelRequest, id: string) => Reply | undefined) => {
  log.clear()
  opening = gate()
  model.use(async (request) => {
    const id = taskOf(request)
    if (id === undefined) return undefined
    await opening.opened
    const reply = next(request, id)
    if (!reply || "status" in reply || "hang" in reply) return reply
    log.set(id, (log.get(id) ?? 0) + 1)
    return { ...reply, usage: CENT }
  })
}

/** Marks the steps one after the other and completes: four requests a task, the last of them its goodbye. */
const works = (request: ModelRequest, id: string): Reply => {
  if (isAsked(request)) return { text: `last word of #${id}` }
  const block = blockOf(request)
  if (!block.includes("Status: active")) return { text: "bye" }
  const step = block.includes("0. [ ]") ? 0 : 1
  if (block.includes(`${step}. [ ]`))
    return { ...call("update_step", { task_id: id, step_index: step, done: true }), delay: 200 }
  return call("complete_task", { task_id: id })
}

const reportOf = (running: Opencode): Promise<PurseReport> =>
  eventually(
    () => {
      const folder = join(boardFolder(running), "reports")
      const [file, ...others] = reports(running)
      expect(others).toEqual([])
      return file !== undefined && (JSON.parse(readFileSync(join(folder, file), "utf8")) as PurseReport)
    },
    { timeout: 120_000, message: () => `a report is written\n${running.logs()}` },
  )
const reports = (running: Opencode): string[] => {
  try {
    return readdirSync(join(boardFolder(running), "reports")).filter((name) => name.endsWith(".json"))
  } catch {
    return []
  }
}
const centsOf = ({ tasks }: PurseReport) =>
  Object.fromEntries(tasks.map(({ id, cost }) => [id, Math.round(cost * 100)]))
const logged = () => Object.fromEntries(log)
const inAll = () => [...log.values()].reduce((sum, count) => sum + count, 0)

test("a purse's report equals the provider's log to the cent and is told once, to its session", async () => {
  opencode = await start()
  let refused = 0
  // The provider is at its limit for a while: what was answered before stays paid for.
  counting((request, id) => {
    if (inAll() < 5 || refused >= RUNS_AT_ONCE) return works(request, id)
    refused++
    return { status: 429, body: { error: { message: "Rate limit reached for requests. Try again in 3000ms" } } }
  })
  const session = await openFor(opencode, 4, 5)
  const report = await reportOf(opencode)
  expect(report).toMatchObject({ why: "nothing left", max: 5 })
  expect(report.tasks.map(({ result }) => result)).toEqual(["done", "done", "done", "done"])
  expect(refused).toBeGreaterThan(0)
  expect(centsOf(report)).toEqual(logged())
  expect(Math.round(report.spent * 100)).toBe(inAll())
  const running = opencode
  const told = await eventually(async () => {
    const found = (await notifications(running, session)).filter(({ visible }) => visible.startsWith("**Purse"))
    return found.length > 0 && found
  })
  expect(told).toHaveLength(1)
  expect(told[0]?.hidden).toContain(`Spent $${report.spent.toFixed(report.spent >= 1 ? 2 : 4).replace(/00$/, "")}`)
  expect(keptBoard(opencode).purse).toBeUndefined()
})

test("a purse pays what its agents spend through OpenCode's own `task` tool", async () => {
  opencode = await start()
  const args = { description: "look", prompt: "P-BELOW", subagent_type: "general" }
  counting((request, id) => (saidIn(request) === 0 ? { tools: [{ name: "task", args }] } : works(request, id)))
  model.use(({ firstUser }) => (firstUser === "P-BELOW" ? { text: "seen", usage: CENT } : undefined))
  await openFor(opencode, 2, 5)
  const report = await reportOf(opencode)
  expect(model.requests.filter(({ firstUser }) => firstUser === "P-BELOW")).toHaveLength(2)
  expect(centsOf(report)).toEqual(Object.fromEntries([...log].map(([id, cents]) => [id, cents + 1])))
})

test("a purse is exceeded by at most one step per working agent, and the report equals the log", async () => {
  opencode = await start()
  // Each run goes on for ever unless it is asked for its last word.
  counting((request, id) => {
    if (isAsked(request)) return { text: `last word of #${id}` }
    const said = saidIn(request)
    return { ...call("update_step", { task_id: id, step_index: 0, title: `read ${said}` }), delay: 150 }
  })
  await openFor(opencode, 3, 0.4)
  const report = await reportOf(opencode)
  expect(report.why).toBe("money")
  expect(Math.round(report.spent * 100)).toBe(inAll())
  expect(centsOf(report)).toEqual({ "1": 0, "2": 0, "3": 0, ...logged() })
  console.log(`purse of $0.40 with ${RUNS_AT_ONCE} agents at work: spent $${report.spent.toFixed(2)}`)
  expect(report.spent).toBeLessThanOrEqual(0.4 + RUNS_AT_ONCE * CENT_USD + 1e-9)
  expect(report.spent).toBeGreaterThanOrEqual(0.36 - 1e-9)
  const partial = report.tasks.filter(({ result }) => result === "partial")
  expect(partial.some(({ text }) => text?.includes("Last word: last word of #"))).toBe(true)
  expect(report.tasks.map(({ id }) => id)).toEqual(["1", "2", "3"])
})

test("a kill while a purse's report is written leaves one report, equal to the log to the cent", async () => {
  opencode = await start()
  counting(works)
  const session = await openFor(opencode, 2, 5)
  const running = opencode
  await eventually(() => keptBoard(running).purse?.ending !== undefined || reports(running).length > 0, {
    timeout: 120_000,
  })
  await opencode.kill()
  const early = reports(running).length
  await opencode.restart()
  await openSession(opencode)
  const report = await reportOf(opencode)
  expect(centsOf(report)).toEqual(logged())
  await eventually(() => keptBoard(running).purse === undefined, { timeout: 60_000 })
  expect(reports(running)).toHaveLength(1)
  const told = await eventually(async () => {
    const found = (await notifications(running, session)).filter(({ visible }) => visible.startsWith("**Purse"))
    return found.length > 0 && found
  })
  expect(told).toHaveLength(1)
  console.log(`killed with ${early} reports written`)
})

const inMinutes = (minutes: number) => new Date(Date.now() + minutes * 60_000).toISOString()
