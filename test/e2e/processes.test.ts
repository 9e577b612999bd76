import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { callTool, eventually, messages, openSession, unwrap } from "../support/drive.ts"
import { statuses } from "../support/killing.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"
import { gate, isNotification, launch, notified, PACKAGE, startPlugged, wakes } from "../support/plugin.ts"

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model)
  model.use((request) => (request.lastUser.startsWith("HANG") ? { hang: true } : undefined))
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

const metadataOf = async (session: string) =>
  (await unwrap(opencode.client.session.get({ sessionID: session }))).metadata ?? {}

const recordIn = async (where: Opencode, session: string) =>
  (await unwrap(where.client.session.get({ sessionID: session }))).metadata?.superagents

describe("the companion's requests", () => {
  test("a cancel written into the session's metadata is carried out once and removed; other metadata stay", async () => {
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "HANG for the companion" })
    const before = await metadataOf(child)
    await unwrap(
      opencode.client.session.update({
        sessionID: child,
        metadata: { ...before, others: "stay", superagentsRequest: { id: "req_1", action: "cancel" } },
      }),
    )
    const [notification] = await notified(opencode, session)
    expect(notification?.visible).toMatch(/^⊘ \*\*Agent ".*" cancelled after /)
    expect(notification?.hidden).toContain("The user stopped it.")
    const after = await eventually(async () => {
      const metadata = await metadataOf(child)
      return !("superagentsRequest" in metadata) && metadata
    })
    expect(after.others).toBe("stay")
    expect(after.superagents).toMatchObject({ task: { id, status: "cancelled" } })
  })

  test("a resume written into the session's metadata asks the task again", async () => {
    const session = await openSession(opencode)
    const { child } = await launch(opencode, model, session, { prompt: "quick one" })
    await notified(opencode, session)
    const request = { id: "req_2", action: "resume", prompt: "and again" }
    await unwrap(
      opencode.client.session.update({
        sessionID: child,
        metadata: { ...(await metadataOf(child)), superagentsRequest: request },
      }),
    )
    const all = await notified(opencode, session, 2)
    expect(all[1]?.visible).toMatch(/^✓ \*\*Resume #1 completed in /)
    expect(
      model.requests.filter(({ sessionID, lastUser }) => sessionID === child && lastUser === "and again"),
    ).toHaveLength(1)
  })

  test("a clear written into the session's metadata forgets the task and notifies nobody", async () => {
    const session = await openSession(opencode)
    const { child } = await launch(opencode, model, session, { prompt: "HANG until cleared" })
    const request = { id: "req_3", action: "clear" }
    await unwrap(
      opencode.client.session.update({
        sessionID: child,
        metadata: { ...(await metadataOf(child)), superagentsRequest: request },
      }),
    )
    await eventually(async () => Object.keys(await metadataOf(child)).length === 0)
    const { output } = await callTool(opencode, model, session, "superagents_list", {})
    expect(output).toBe("No background tasks found")
  })
})

describe("a compaction of the parent", () => {
  test("a compaction of the parent gets the list of tasks, their states and what was fetched", async () => {
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "quick before compaction" })
    await notified(opencode, session)
    const summarize = opencode.client.session.summarize({
      sessionID: session,
      providerID: "scripted",
      modelID: "alpha",
    })
    const request = await model.waitFor(
      (each) => each.sessionID === session && JSON.stringify(each.body).includes("keep their ids"),
    )
    expect(JSON.stringify(request.body)).toContain(
      `${id} do quick before compaction (general): completed, answer fetched`,
    )
    await summarize
  })
})

describe("two OpenCode processes on one project", () => {
  test("a second OpenCode process can resume the first one's ended task, and the first then leaves it alone", async () => {
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "quick in the first process" })
    await notified(opencode, session)
    const second = await startOpencode({ model, plugin: [[PACKAGE, {}]], home: opencode.home })
    try {
      await eventually(async () => JSON.stringify(await recordIn(second, child)).includes("confirmed"))
      const resumed = await callTool(second, model, session, "superagents_task", { resume: id, prompt: "HANG there" })
      expect(resumed.status).toBe("completed")
      await eventually(async () => (await statuses(second, model, session)).get(id) === "resumed")
      await eventually(async () => JSON.stringify(await messages(second, child)).includes("HANG there"))
      await callTool(opencode, model, session, "superagents_output", { task_id: id })
      await callTool(opencode, model, session, "superagents_clear", {})
      expect(await recordIn(second, child)).toMatchObject({ task: { status: "resumed", run: { generation: 1 } } })
    } finally {
      await second.stop()
    }
  })

  test("tasks of two processes that end together do not both start the model of the session that launched them", async () => {
    const session = await openSession(opencode)
    const second = await startOpencode({ model, plugin: [[PACKAGE, {}]], home: opencode.home })
    const door = gate()
    const asked = () => wakes(model, session).length
    const undo = model.use(async ({ lastUser }) => {
      if (!lastUser.startsWith("TOGETHER")) return isNotification(lastUser) ? { text: "noted", delay: 4000 } : undefined
      await door.opened
      return { text: "done" }
    })
    try {
      await launch(opencode, model, session, { prompt: "TOGETHER in the first process" })
      await launch(second, model, session, { prompt: "TOGETHER in the second process" })
      door.open()
      await notified(opencode, session, 2)
      const idle = async (where: Opencode) => !(session in (await unwrap(where.client.session.status())))
      await eventually(async () => asked() > 0 && (await idle(opencode)) && (await idle(second)))
      expect(asked()).toBeLessThan(4)
    } finally {
      undo()
      await second.stop()
    }
  })
})

describe("SIGTERM", () => {
  test("SIGTERM ends OpenCode with running tasks as it does without the plugin", async () => {
    const session = await openSession(opencode)
    await launch(opencode, model, session, { prompt: "HANG through SIGTERM" })
    await opencode.kill("SIGTERM")
    await opencode.restart()
  })
})

describe("a parent that its user uses in another OpenCode", () => {
  const gated = async (prompt: string) => {
    const door = gate()
    model.use(async ({ lastUser }) => {
      if (!lastUser.startsWith(prompt)) return undefined
      await door.opened
      return { text: "done" }
    })
    const session = await openSession(opencode)
    await launch(opencode, model, session, { prompt })
    return { door, session }
  }

  test("what the user has undone there stays, until it is redone there", async () => {
    const other = await startOpencode({ home: opencode.home })
    const { door, session } = await gated("WHILE UNDONE")
    const { client } = other
    await unwrap(
      client.session.prompt({ sessionID: session, agent: "build", parts: [{ type: "text", text: "PRECIOUS" }] }),
    )
    const isPrecious = ({ parts }: Awaited<ReturnType<typeof messages>>[number]) =>
      parts.some((part) => part.type === "text" && part.text === "PRECIOUS")
    const target = (await messages(other, session)).find(isPrecious)
    await unwrap(client.session.revert({ sessionID: session, messageID: target?.info.id ?? "" }))
    const toasts = () => opencode.events.all.filter(({ type }) => type === "tui.toast.show").length
    const before = toasts()
    door.open()
    await eventually(() => toasts() > before)
    // The notification would be sent at once, so a read of the parent by a second task's launch comes after it.
    await launch(opencode, model, await openSession(opencode), { prompt: "quick one" })
    expect((await messages(other, session)).some(isPrecious)).toBe(true)
    await unwrap(client.session.unrevert({ sessionID: session }))
    await notified(opencode, session)
    expect((await messages(other, session)).some(isPrecious)).toBe(true)
    await other.stop()
  })

  test("a notification keeps to the agent that the user has chosen there", async () => {
    const other = await startOpencode({ home: opencode.home })
    const { door, session } = await gated("WHILE PLANNING")
    const parts = [{ type: "text" as const, text: "only plan now" }]
    await unwrap(other.client.session.prompt({ sessionID: session, agent: "plan", parts }))
    // What was reported of a session counts for a second.
    let [reports, since] = [-1, 0]
    await eventually(() => {
      const { length } = opencode.events.all.filter(({ type }) => type === "session.updated")
      if (length > reports) [reports, since] = [length, performance.now()]
      return performance.now() - since > 1000
    })
    door.open()
    const [told] = await notified(opencode, session)
    expect(told?.agent).toBe("plan")
    await other.stop()
  })
})
