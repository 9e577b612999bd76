import { writeFile } from "node:fs/promises"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest"
import { ask, callTool, eventually, idle, messages, openSession, say, toolParts } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, launch, launchAll, meanwhile, notifications, notified, startPlugged, wakes } from "../support/plugin.ts"

const TIME = String.raw`(\d+ms|\d+(\.\d)?s)`
const GO_ON = [
  "You can continue working or just say 'waiting' and halt.",
  "WATCH OUT for leftovers, you will likely WANT to wait for all agents to complete.",
]
const AUTOMATIC = "Automatic message, not written by the user."
const FETCH = "Use superagents_output tools to see agent responses."

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model)
  await ask(opencode, await openSession(opencode), "warm up")
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => model.reset())

const quietSession = async (sessionID: string) => {
  await idle(opencode, sessionID)
  return notifications(opencode, sessionID)
}

describe("a notification", () => {
  test("the notification of a success has the specified text, with its second part hidden", async () => {
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "P-OK", description: "do it well" })
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).toMatch(
      new RegExp(`^✓ \\*\\*Agent "do it well" finished in ${TIME}\\.\\*\\*\nTask Progress: 1/1$`),
    )
    const lines = notification?.hidden.split("\n")
    expect(lines?.[0]).toMatch(new RegExp(`^${AUTOMATIC.replace(".", "\\.")} Task ${id}: completed\\. Used: `))
    expect(lines?.slice(-2)).toEqual(["All 1 tasks finished.", FETCH])
  })

  test("the notification of a failure has the specified text, with the reason in the hidden part", async () => {
    model.use((request) =>
      request.lastUser === "P-FAIL" ? { status: 400, body: { error: { message: "no such luck" } } } : undefined,
    )
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "P-FAIL", description: "do it badly" })
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).toMatch(
      new RegExp(`^✗ \\*\\*Agent "do it badly" failed in ${TIME}\\.\\*\\*\nTask Progress: 1/1$`),
    )
    const lines = notification?.hidden.split("\n")
    expect(lines?.[0]).toContain(`${AUTOMATIC} Task ${id}: error. `)
    expect(lines?.[1]).toBe("Reason: no such luck")
    expect(lines?.slice(-2)).toEqual(["All 1 tasks finished.", FETCH])
  })

  test("the notification of a cancel has the specified text and neither wakes the parent nor prolongs its turn", async () => {
    const door = gate()
    let id = ""
    model.use(async (request) => {
      if (request.lastUser === "P-STOP") return { hang: true }
      if (request.lastUser !== "stop it") return undefined
      if (request.sinceUser.length === 0) return { tools: [{ name: "superagents_cancel", args: { task_id: id } }] }
      await door.opened
      return { text: "stopped" }
    })
    const session = await openSession(opencode)
    const task = await launch(opencode, model, session, { prompt: "P-STOP", description: "do it not" })
    id = task.id
    await model.waitFor((request) => request.sessionID === task.child)
    await say(opencode, session, "stop it")
    await model.waitFor(({ lastUser, toolResults }) => lastUser === "stop it" && toolResults.length > 0)
    await meanwhile(opencode, model)
    door.open()
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).toMatch(
      new RegExp(`^⊘ \\*\\*Agent "do it not" cancelled after ${TIME}\\.\\*\\*\nTask Progress: 1/1$`),
    )
    expect(notification?.hidden).toBe(`${AUTOMATIC} Task ${id}: cancelled, by your own call.`)
    expect(await ask(opencode, session, "anything else?")).toBe("ok")
    const steps = model.requests.filter((request) => request.sessionID === session)
    expect(steps, "two for the launch, two for the cancel, one for the question").toHaveLength(5)
  })

  test("a notification says what to do while others run, and when all have finished", async () => {
    const door = gate()
    model.use(async (request) => {
      if (request.lastUser !== "P-LONG") return undefined
      await door.opened
      return { text: "long" }
    })
    const session = await openSession(opencode)
    const [quick] = await launchAll(opencode, model, session, [{ prompt: "P-SHORT" }, { prompt: "P-LONG" }])
    const [first] = await notified(opencode, session)
    expect(first?.visible).toContain("\nTask Progress: 1/2")
    expect(first?.hidden.split("\n").slice(-3)).toEqual([
      `If you need results immediately, use superagents_output(task_id="${quick?.id}").`,
      ...GO_ON,
    ])
    door.open()
    const [, second] = await notified(opencode, session, 2)
    expect(second?.visible).toContain("\nTask Progress: 2/2")
    expect(second?.hidden.split("\n").slice(-2)).toEqual(["All 2 tasks finished.", FETCH])
  })

  test("a notification counts a named batch separately and names the tasks that still run outside of it", async () => {
    const door = gate()
    model.use(async (request) => {
      if (request.lastUser !== "P-ASIDE") return undefined
      await door.opened
      return { text: "aside" }
    })
    const session = await openSession(opencode)
    const [aside] = await launchAll(opencode, model, session, [
      { prompt: "P-ASIDE" },
      { prompt: "P-NAMED", batch: "named" },
    ])
    const [first] = await notified(opencode, session)
    expect(first?.visible).toContain('"do P-NAMED" finished')
    expect(first?.visible).toContain("\nTask Progress: 1/1")
    expect(first?.hidden).toContain(`Still running: ${aside?.id} (do P-ASIDE)`)
    expect(first?.hidden).not.toContain("tasks finished.")
    door.open()
    const [, second] = await notified(opencode, session, 2)
    expect(second?.visible).toContain("\nTask Progress: 1/1")
    expect(second?.hidden).toContain("All 2 tasks finished.")
  })

  test("a notification contains no debug marker meant for developers", async () => {
    const session = await openSession(opencode)
    await launch(opencode, model, session, { prompt: "P-PLAIN" })
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).not.toContain("[hint attached]")
  })
})

describe("ten parallel tasks", () => {
  test("ten parallel tasks send ten notifications, 1/10 to 10/10, and only one says that all have finished", async () => {
    const door = gate()
    model.use(async (request) => {
      if (!request.lastUser.startsWith("P-TEN-")) return undefined
      await door.opened
      return { text: `answer to ${request.lastUser}` }
    })
    const session = await openSession(opencode)
    const prompts = Array.from({ length: 10 }, (_, index) => ({ prompt: `P-TEN-${index}` }))
    const tasks = await launchAll(opencode, model, session, prompts)
    expect(new Set(tasks.map((task) => task.id)).size).toBe(10)
    await eventually(() => model.inFlight === 10)
    door.open()
    await notified(opencode, session, 10, 30_000)
    const found = await quietSession(session)
    expect(found.map(({ visible }) => visible.split("Task Progress: ")[1])).toEqual(
      Array.from({ length: 10 }, (_, index) => `${index + 1}/10`),
    )
    const told = found.map(({ hidden }) => / Task (bg_\w+): completed\./.exec(hidden)?.[1])
    expect(told.toSorted()).toEqual(tasks.map((task) => task.id).toSorted())
    expect(found.filter(({ hidden }) => hidden.includes("All 10 tasks finished."))).toHaveLength(1)
    expect(found.at(-1)?.hidden).toContain("All 10 tasks finished.")
  })
})

describe("a busy parent", () => {
  test("a parent in the middle of a long answer reads the notification once, after the answer", async () => {
    const [child, parent] = [gate(), gate()]
    model.use(async (request) => {
      if (request.lastUser === "P-MEANWHILE") {
        await child.opened
        return { text: "meanwhile" }
      }
      if (request.lastUser !== "tell me a long story") return undefined
      await parent.opened
      return { text: "and so it ended" }
    })
    const session = await openSession(opencode)
    await launch(opencode, model, session, { prompt: "P-MEANWHILE" })
    const { messageID } = await say(opencode, session, "tell me a long story")
    await model.waitFor((request) => request.lastUser === "tell me a long story")
    child.open()
    await notified(opencode, session)
    parent.open()
    await eventually(() => wakes(model, session).length > 0)
    expect(await quietSession(session)).toHaveLength(1)
    expect(wakes(model, session)).toHaveLength(1)
    const said = (await messages(opencode, session)).filter(({ info }) => info.id > messageID)
    const history = said.find(({ parts }) =>
      parts.some((part) => part.type === "text" && part.text === "and so it ended"),
    )
    expect(history?.info, "the story was not cut short").toMatchObject({ role: "assistant", finish: "stop" })
  })

  test("a parent that waits for a long tool reads the notification once, at its next step", async () => {
    const door = gate()
    const file = join(opencode.directory, "tool-may-end")
    const command = `while [ ! -e ${file} ]; do sleep 0.05; done; echo finished`
    model.use(async (request) => {
      if (request.lastUser === "P-BESIDE-TOOL") {
        await door.opened
        return { text: "beside" }
      }
      if (request.lastUser !== "run the long tool" || request.sinceUser.length > 0) return undefined
      return { tools: [{ name: "bash", args: { command, description: "waits" } }] }
    })
    const session = await openSession(opencode)
    await launch(opencode, model, session, { prompt: "P-BESIDE-TOOL" })
    await say(opencode, session, "run the long tool")
    await eventually(async () => (await toolParts(opencode, session, "bash"))[0]?.state.status === "running")
    door.open()
    await notified(opencode, session)
    await writeFile(file, "")
    await eventually(() => wakes(model, session).length > 0)
    expect(await quietSession(session)).toHaveLength(1)
    expect(wakes(model, session)).toHaveLength(1)
    expect((await toolParts(opencode, session, "bash"))[0]?.state).toMatchObject({ status: "completed" })
  })

  test("a parent that blocks on one task is notified of both tasks, once each", async () => {
    const [first, second] = [gate(), gate()]
    model.use(async (request) => {
      if (request.lastUser === "P-FIRST") await first.opened
      else if (request.lastUser === "P-SECOND") await second.opened
      else return undefined
      return { text: `this was ${request.lastUser}` }
    })
    const session = await openSession(opencode)
    const [a, b] = await launchAll(opencode, model, session, [{ prompt: "P-FIRST" }, { prompt: "P-SECOND" }])
    const args = { task_id: b?.id, block: true, timeout: 20_000 }
    const fetched = callTool(opencode, model, session, "superagents_output", args)
    await eventually(
      async () => (await toolParts(opencode, session, "superagents_output"))[0]?.state.status === "running",
    )
    first.open()
    await notified(opencode, session)
    second.open()
    expect((await fetched).output).toContain("this was P-SECOND")
    await notified(opencode, session, 2)
    const found = await quietSession(session)
    expect(found.map(({ hidden }) => / Task (bg_\w+)/.exec(hidden)?.[1])).toEqual([a?.id, b?.id])
    await eventually(() => wakes(model, session).length > 0)
  })
})
