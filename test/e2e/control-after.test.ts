import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest"
import { ask, callTool, callTools, messages, openSession } from "../support/drive.ts"
import { fates } from "../support/killing.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, launch, launchAll, launchedFrom, notified, startPlugged, wakes } from "../support/plugin.ts"

/** Tasks that wait for others, on the real OpenCode. */

/** Turns take long where other tests run beside. */
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 })
const PATIENT = { timeout: 90_000 }

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, { maxLaunchesPerMinute: 0, maxConcurrentTasks: 2 })
  await ask(opencode, await openSession(opencode), "warm up")
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})
beforeEach(() => model.reset())

const task = (session: string, args: object) =>
  callTool(opencode, model, session, "superagents_task", { description: "d", agent: "general", ...args }, PATIENT)
const listed = async (session: string) =>
  (await callTool(opencode, model, session, "superagents_list", {}, PATIENT)).output ?? ""
/** The prompt that stands behind what else a model is told first. */
const promptIn = (text: string) => /N-\d+/.exec(text.split("Your task:").at(-1) ?? "")?.[0]

describe("a task with dependencies", () => {
  test("a task can wait for a whole batch: map, then reduce", async () => {
    model.use(({ lastUser }) => (promptIn(lastUser) ? { text: `mapped ${promptIn(lastUser)}` } : undefined))
    const session = await openSession(opencode)
    await launchAll(
      opencode,
      model,
      session,
      ["N-1", "N-2", "N-3"].map((prompt) => ({ prompt, batch: "map" })),
      PATIENT,
    )
    const reduce = launchedFrom(await task(session, { prompt: "N-9", after: "map" }))
    await notified(opencode, session, 4, PATIENT.timeout)
    const { lastUser } = await model.waitFor(({ sessionID }) => sessionID === reduce.child, PATIENT)
    for (const text of ["mapped N-1", "mapped N-2", "mapped N-3"]) expect(lastUser).toContain(text)
  })

  test("a launch gives an error if it would wait for nothing or for a failed task", async () => {
    model.use(({ lastUser }) => (lastUser === "N-1" ? { status: 400 } : undefined))
    const session = await openSession(opencode)
    const failed = await launch(opencode, model, session, { prompt: "N-1" }, PATIENT)
    await notified(opencode, session, 1, PATIENT.timeout)
    const refused = async (after: unknown) => (await task(session, { prompt: "N-2", after })).error
    expect(await refused(["bg_zzzzzzzz"])).toContain('No task "bg_zzzzzzzz"')
    expect(await refused("nobatch")).toContain('No batch "nobatch"')
    expect(await refused([failed.id])).toMatch(new RegExp(`${failed.id}.* failed`))
    expect(await refused([])).toContain("`after`")
    const other = await openSession(opencode)
    expect((await task(other, { prompt: "N-2", after: [failed.id] })).error).toContain("No task")
    expect((await listed(session)).split("\n")).toHaveLength(2)
  })

  test("a waiting task is cancelled with the one it awaits; the parent's own cancel wakes nobody", async () => {
    model.use(({ lastUser }) => (lastUser === "N-1" ? { hang: true } : undefined))
    const session = await openSession(opencode)
    const one = await launch(opencode, model, session, { prompt: "N-1" }, PATIENT)
    const two = launchedFrom(await task(session, { prompt: "N-2", after: [one.id] }))
    await task(session, { prompt: "N-3", after: [two.id] })
    await callTool(opencode, model, session, "superagents_cancel", { task_id: one.id }, PATIENT)
    const found = await notified(opencode, session, 3, PATIENT.timeout)
    expect(found.map(({ visible }) => visible[0])).toEqual(["⊘", "⊘", "⊘"])
    expect(found[1]?.hidden).toContain(`It never began: it waited for ${one.id}`)
    expect(found[2]?.hidden).toContain(`It never began: it waited for ${two.id}`)
    expect(wakes(model, session)).toHaveLength(0)
    expect(model.requests.filter(({ lastUser }) => /N-[23]/.test(lastUser))).toEqual([])
  })
})

test("a failure in a diamond of ten tasks is reported to the waiting tasks; the others complete", async () => {
  /** Each task, and those that it waits for. */
  const graph: Record<number, number[]> = {
    1: [],
    2: [1],
    3: [1],
    4: [1],
    5: [2, 3],
    6: [3, 4],
    7: [5, 6],
    8: [7],
    9: [4],
    10: [9, 6],
  }
  const door = gate()
  const begun = new Map<number, number>()
  const ended = new Map<number, number>()
  model.use(async ({ lastUser, at, parentSessionID }) => {
    const prompt = promptIn(lastUser)
    // The parent is told the answers, which name the prompts as well.
    if (!prompt || !parentSessionID) return undefined
    await door.opened
    const number = Number(prompt.slice(2))
    begun.set(number, at)
    ended.set(number, performance.now() + 40)
    return number === 5 ? { status: 400, delay: 40 } : { text: `answer of ${prompt}`, delay: 40 }
  })
  const session = await openSession(opencode)
  const ids = new Map<number, string>()
  for (const [number, after] of Object.entries(graph)) {
    const waits = after.length > 0 ? { after: after.map((each) => ids.get(each)) } : {}
    ids.set(Number(number), launchedFrom(await task(session, { prompt: `N-${number}`, ...waits })).id)
  }
  door.open()
  const found = await notified(opencode, session, 10, PATIENT.timeout)
  expect(found).toHaveLength(10)
  const rows = await listed(session)
  const statusOf = (number: number) =>
    new RegExp(`${ids.get(number)} .*?\\| (completed|error|cancelled)`).exec(rows)?.[1]
  const statuses = Object.fromEntries(Object.keys(graph).map((number) => [number, statusOf(Number(number))]))
  const done = "completed"
  expect(statuses).toEqual({
    ...{ 1: done, 2: done, 3: done, 4: done, 6: done, 9: done, 10: done },
    ...{ 5: "error", 7: "cancelled", 8: "cancelled" },
  })
  for (const [number, at] of begun)
    for (const other of graph[number] ?? [])
      expect(at, `${number} after ${other}`).toBeGreaterThan(ended.get(other) ?? 0)
  expect([...begun.keys()].sort((a, b) => a - b)).toEqual([1, 2, 3, 4, 5, 6, 9, 10])
})

test("a waiting task whose process dies is reported once as interrupted before it began, and asks no model", async () => {
  model.use(({ lastUser }) => (lastUser === "N-1" ? { hang: true } : undefined))
  const session = await openSession(opencode)
  const one = await launch(opencode, model, session, { prompt: "N-1" }, PATIENT)
  const [two] = (
    await callTools(opencode, model, session, [
      { name: "superagents_task", args: { description: "d", agent: "general", prompt: "N-2", after: [one.id] } },
    ])
  ).map(launchedFrom)
  await model.waitFor(({ lastUser }) => lastUser === "N-1", PATIENT)
  await opencode.kill()
  await opencode.restart()
  const told = await fates(opencode, model, session, [one.id, String(two?.id)])
  expect(told.map(({ notifications }) => notifications)).toEqual([1, 1])
  expect(told[1]?.status).not.toBe("completed")
  expect(model.requests.some(({ sessionID }) => sessionID === two?.child)).toBe(false)
  expect(await messages(opencode, String(two?.child))).toEqual([])
})
