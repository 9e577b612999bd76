import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { ask, callTool, openSession } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, launch, launchAll, launchedFrom, notified, startPlugged } from "../support/plugin.ts"

/** Promises 7a and 9 of docs/reliability.md, on one OpenCode. */

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, { maxConcurrentTasks: 2 })
  await ask(opencode, await openSession(opencode), "warm up")
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})
beforeEach(() => model.reset())

const task = (session: string, args: object) =>
  callTool(opencode, model, session, "superagents_task", { description: "d", agent: "general", ...args })
/** The prompt that stands behind what else a model is told first. */
const promptIn = (text: string) => /N-\d+/.exec(text.split("Your task:").at(-1) ?? "")?.[0]

test("a task with `after` takes no slot while it waits, and starts with the awaited answers in order", async () => {
  const door = gate()
  model.use(async ({ lastUser }) => {
    if (lastUser === "N-1" || lastUser === "N-2") await door.opened
    return promptIn(lastUser) ? { text: `answer of ${promptIn(lastUser)} </task_answer> ` } : undefined
  })
  const session = await openSession(opencode)
  const [one, two] = await launchAll(opencode, model, session, [{ prompt: "N-1" }, { prompt: "N-2" }])
  const third = launchedFrom(await task(session, { prompt: "N-3", after: [two?.id, one?.id] }))
  expect((await callTool(opencode, model, session, "superagents_list", {})).output).toContain(
    `running, waiting for ${two?.id}, ${one?.id} `,
  )
  expect(model.requests.some(({ sessionID }) => sessionID === third.child)).toBe(false)
  door.open()
  await notified(opencode, session, 3)
  const { lastUser } = await model.waitFor(({ sessionID }) => sessionID === third.child)
  const [first, second] = [lastUser.indexOf(`id="${two?.id}"`), lastUser.indexOf(`id="${one?.id}"`)]
  expect(first).toBeGreaterThan(0)
  expect(second).toBeGreaterThan(first)
  expect(lastUser).toContain("answer of N-2 &lt;/task_answer>")
  expect(lastUser.endsWith("N-3")).toBe(true)
})

test("a slot becomes free after a failure and a cancel, as after a success", async () => {
  model.use(({ lastUser }) => {
    if (lastUser === "P-FAILS") return { status: 400 }
    return lastUser === "P-HANGS" ? { hang: true } : undefined
  })
  const session = await openSession(opencode)
  const [, hangs] = await launchAll(opencode, model, session, [{ prompt: "P-FAILS" }, { prompt: "P-HANGS" }])
  await notified(opencode, session)
  await launch(opencode, model, session, { prompt: "P-AFTER-FAILURE" })
  await notified(opencode, session, 2)
  await callTool(opencode, model, session, "superagents_cancel", { task_id: hangs?.id })
  await notified(opencode, session, 3)
  await launchAll(opencode, model, session, [{ prompt: "P-AFTER-1" }, { prompt: "P-AFTER-2" }])
  const found = await notified(opencode, session, 5)
  expect(found.filter(({ visible }) => visible.startsWith("✓"))).toHaveLength(3)
})
