import { fileURLToPath } from "node:url"
import { afterAll, beforeAll, expect, test } from "vitest"
import { ask, callTool, eventually, messages, openSession, unwrap } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"
import { gate, launch, notifications, notified, startPlugged } from "../support/plugin.ts"

const NUMB = fileURLToPath(new URL("../support/fixtures/numb-plugin.ts", import.meta.url))
const PATIENCE = { timeout: 60_000 }
const TIMEOUT = { timeout: 240_000 }

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, {}, { plugin: NUMB })
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

const statusOf = async (child: string) => {
  const { metadata } = await unwrap(opencode.client.session.get({ sessionID: child }))
  return (metadata as { superagents: { task: { status: string } } }).superagents.task.status
}

test("a run whose tool call events were missed ends normally, with all its calls counted", TIMEOUT, async () => {
  model.use(({ lastUser, sinceUser }) => {
    if (lastUser !== "E-NUMB") return undefined
    // Each call another one: OpenCode asks about calls that are repeated.
    const args = { pattern: `*.${sinceUser.length}` }
    return sinceUser.length < 10 ? { tools: [{ name: "glob", args }] } : { text: "found" }
  })
  const session = await openSession(opencode)
  const { id } = await launch(opencode, model, session, { prompt: "E-NUMB" })
  const [notification] = await notified(opencode, session, 1, 60_000)
  expect(notification?.visible, notification?.hidden).toContain(" finished in ")
  expect(notification?.hidden).toContain("5 tool calls")
  const { output } = await callTool(opencode, model, session, "superagents_output", { task_id: id })
  expect(output).toContain("Tool calls: 5 (last: glob, glob, glob, glob, glob)")
})

test(
  "messages that the user undid stay while a task ends, and its end is reported after the redo",
  TIMEOUT,
  async () => {
    const door = gate()
    model.use(async ({ lastUser }) => {
      if (lastUser !== "E-UNDO") return undefined
      await door.opened
      return { text: "the answer" }
    })
    const session = await openSession(opencode)
    const { child } = await launch(opencode, model, session, { prompt: "E-UNDO" })
    await ask(opencode, session, "never mind")
    const undone = (await messages(opencode, session)).findLast(({ info }) => info.role === "user")?.info.id ?? ""
    await unwrap(opencode.client.session.revert({ sessionID: session, messageID: undone }))
    door.open()
    await eventually(async () => (await statusOf(child)) === "completed", PATIENCE)
    const kept = async () => (await messages(opencode, session)).some(({ info }) => info.id === undone)
    expect([await kept(), (await notifications(opencode, session)).length]).toEqual([true, 0])
    await unwrap(opencode.client.session.unrevert({ sessionID: session }))
    await notified(opencode, session, 1, 60_000)
    expect(await kept()).toBe(true)
  },
)

test("two processes that restore the same tasks notify the parent of each task once", TIMEOUT, async () => {
  const door = gate()
  model.use(async ({ lastUser }) => {
    if (!lastUser.startsWith("E-TWICE")) return undefined
    await door.opened
    return { text: "too late" }
  })
  const session = await openSession(opencode)
  await launch(opencode, model, session, { prompt: "E-TWICE one" })
  await launch(opencode, model, session, { prompt: "E-TWICE two" })
  await opencode.kill("SIGKILL")
  const plugin = [[NUMB, {}]] as [string, Record<string, unknown>][]
  const others = await Promise.all([1, 2].map(() => startOpencode({ model, plugin, home: opencode.home })))
  try {
    // Any request makes an OpenCode load the project and its plugins.
    await Promise.all(others.map(({ client }) => unwrap(client.tool.ids())))
    const [first] = others
    if (!first) throw new Error("no OpenCode")
    await eventually(async () => (await notifications(first, session)).length >= 2, PATIENCE)
    await eventually(async () => (await deliveries(first, session)).every((state) => state === "confirmed"), PATIENCE)
    expect(await notifications(first, session)).toHaveLength(2)
  } finally {
    door.open()
    for (const other of others) await other.stop()
    await opencode.restart()
  }
})

const deliveries = async ({ client }: Opencode, sessionID: string) =>
  (await unwrap(client.session.children({ sessionID }))).map(
    ({ metadata }) =>
      (metadata as { superagents: { task: { delivery: { state: string } } } }).superagents.task.delivery.state,
  )
