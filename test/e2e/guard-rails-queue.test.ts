import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest"
import { ask, callTool, callTools, eventually, messages, openSession } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, launch, launchAll, notifications, notified, startPlugged } from "../support/plugin.ts"

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, {
    maxConcurrentTasks: 2,
    maxConcurrentPerModel: { "scripted/beta": 1 },
    maxLaunchesPerMinute: 6,
  })
  await ask(opencode, await openSession(opencode), "warm up")
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => model.reset())

/** Children wait at the model until their own door is opened; `atWork` names those that do, in the order they came. */
const scriptDoors = () => {
  const doors = new Map<string, ReturnType<typeof gate>>()
  const atWork: string[] = []
  let peak = 0
  model.use(async ({ lastUser }) => {
    if (!lastUser.startsWith("P-")) return undefined
    const door = gate()
    doors.set(lastUser, door)
    atWork.push(lastUser)
    peak = Math.max(peak, doors.size)
    await door.opened
    doors.delete(lastUser)
    return { text: `answer to ${lastUser}` }
  })
  const open = async (prompt: string) => (await eventually(() => doors.get(prompt))).open()
  return { atWork, open, peak: () => peak }
}

const listed = async (session: string) =>
  ((await callTool(opencode, model, session, "superagents_list", {})).output ?? "").split("\n")

describe("a limit of two slots", () => {
  test("two slots run two of five tasks at once, and the others in order", async () => {
    const { atWork, open, peak } = scriptDoors()
    const session = await openSession(opencode)
    const prompts = [1, 2, 3, 4, 5].map((number) => `P-QUEUE-${number}`)
    const tasks = await launchAll(
      opencode,
      model,
      session,
      prompts.map((prompt) => ({ prompt })),
    )
    await eventually(() => atWork.length === 2)
    expect(tasks.filter(({ output }) => output.includes("waits for a free slot"))).toHaveLength(3)
    const rows = await listed(session)
    expect(rows.filter((row) => row.includes("| running, working |"))).toHaveLength(2)
    const queued = rows.flatMap((row) => {
      const [, prompt, place] = /do (P-QUEUE-\d) .*running, queued for a free slot \(place (\d)\)/.exec(row) ?? []
      return prompt ? [{ prompt, place: Number(place) }] : []
    })
    const waiting = queued.toSorted((one, other) => one.place - other.place)
    expect(waiting.map(({ place }) => place)).toEqual([1, 2, 3])
    const order = [...atWork, ...waiting.map(({ prompt }) => prompt)]
    for (const [index, prompt] of order.entries()) {
      await open(prompt)
      await notified(opencode, session, index + 1)
    }
    expect(atWork.toSorted()).toEqual(prompts)
    expect(atWork.slice(2), "first come, first served").toEqual(order.slice(2))
    expect(peak()).toBe(2)
    const found = await notifications(opencode, session)
    expect(found.map(({ visible }) => visible.split("Task Progress: ")[1])).toEqual(["1/5", "2/5", "3/5", "4/5", "5/5"])
  })

  test("a queued task that is cancelled takes no slot and never reaches the model", async () => {
    const { atWork, open } = scriptDoors()
    const session = await openSession(opencode)
    const prompts = ["P-ONE", "P-TWO", "P-THREE", "P-FOUR"]
    const tasks = await launchAll(
      opencode,
      model,
      session,
      prompts.map((prompt) => ({ prompt })),
    )
    await eventually(() => atWork.length === 2)
    const waiting = tasks.filter(({ output }) => output.includes("waits for a free slot"))
    const [cancelled, next] = waiting
    const { output } = await callTool(opencode, model, session, "superagents_cancel", { task_id: cancelled?.id })
    expect(output).toContain("Cancelled 1 task:")
    for (const prompt of [...atWork]) await open(prompt)
    await eventually(() => atWork.length === 3)
    await open(String(atWork[2]))
    await notified(opencode, session, 4)
    expect(await messages(opencode, String(cancelled?.child))).toEqual([])
    expect(model.requests.some(({ sessionID }) => sessionID === cancelled?.child)).toBe(false)
    expect(model.requests.some(({ sessionID }) => sessionID === next?.child)).toBe(true)
    const rows = await listed(session)
    expect(rows.filter((row) => row.includes("| completed |"))).toHaveLength(3)
    expect(rows.filter((row) => row.includes("| cancelled |"))).toHaveLength(1)
  })

  test("a session with two slots does not use the slots of another session", async () => {
    const { atWork, open } = scriptDoors()
    const [mine, other] = [await openSession(opencode), await openSession(opencode)]
    await launchAll(opencode, model, mine, [{ prompt: "P-MINE-1" }, { prompt: "P-MINE-2" }])
    await launch(opencode, model, other, { prompt: "P-OTHER" })
    await eventually(() => atWork.length === 3)
    for (const prompt of [...atWork]) await open(prompt)
    await Promise.all([notified(opencode, mine, 2), notified(opencode, other)])
  })

  test("a task for a model without a free slot does not block a task for another model", async () => {
    const { atWork, open } = scriptDoors()
    const session = await openSession(opencode)
    await launchAll(opencode, model, session, [{ prompt: "P-BETA-1", model: "scripted/beta" }])
    const queued = await launch(opencode, model, session, { prompt: "P-BETA-2", model: "scripted/beta" })
    expect(queued.output).toContain("waits for a free slot")
    await launch(opencode, model, session, { prompt: "P-ALPHA" })
    await eventually(() => atWork.includes("P-ALPHA"))
    expect(atWork).toEqual(["P-BETA-1", "P-ALPHA"])
    await open("P-BETA-1")
    await open("P-BETA-2")
    await open("P-ALPHA")
    await notified(opencode, session, 3)
    expect(model.requests.filter(({ model }) => model === "beta").map(({ lastUser }) => lastUser)).toEqual([
      "P-BETA-1",
      "P-BETA-2",
    ])
  })
})

describe("the launch rate", () => {
  test("the seventh launch in a minute is refused with a time to retry; refused launches do not count", async () => {
    const session = await openSession(opencode)
    const calls = Array.from({ length: 8 }, (_, index) => ({
      name: "superagents_task",
      args: { description: `do ${index}`, prompt: `now ${index}`, agent: index < 2 ? "nobody" : "general" },
    }))
    const outcomes = await callTools(opencode, model, session, calls)
    expect(outcomes.slice(2).map(({ status }) => status)).toEqual(Array(6).fill("completed"))
    const seventh = { description: "do it", prompt: "now", agent: "general" }
    const { status, error } = await callTool(opencode, model, session, "superagents_task", seventh)
    expect(status).toBe("error")
    expect(error).toMatch(/maxLaunchesPerMinute allows 6 a minute\. Try again in \d+ s\./)
    await notified(opencode, session, 6)
    const other = await openSession(opencode)
    await launch(opencode, model, other, { prompt: "elsewhere" })
    await notified(opencode, other)
  })
})
