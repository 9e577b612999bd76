import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest"
import { ask, callTool, eventually, lastError, openSession, unwrap } from "../support/drive.ts"
import { type ModelRequest, type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, launch, launchAll, notifications, notified, startPlugged, wakes } from "../support/plugin.ts"

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

beforeEach(() => {
  model.reset()
  model.use((request) => (request.lastUser.startsWith("P-HANG") ? { hang: true, text: "so far so good" } : undefined))
})

const asked = (child: string): Promise<ModelRequest> => model.waitFor((request) => request.sessionID === child)

const call = (session: string, tool: string, args: Record<string, unknown> = {}) =>
  callTool(opencode, model, session, `superagents_${tool}`, args)

const rows = async (session: string, filter = {}) =>
  ((await call(session, "list", filter)).output ?? "").match(/^bg_.*$/gm) ?? []

describe("a cancel", () => {
  test("superagents_cancel really stops the child, confirms it, and notifies the parent without waking it", async () => {
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-HANG" })
    const request = await asked(child)
    const { status, output } = await call(session, "cancel", { task_id: id })
    expect(status).toBe("completed")
    expect(output).toContain(`Cancelled 1 task:\n- ${id} do P-HANG (after `)
    await eventually(() => request.aborted.aborted)
    await eventually(async () => (await lastError(opencode, child))?.name === "MessageAbortedError")
    expect((await unwrap(opencode.client.session.status()))[child]).toBeUndefined()
    await notified(opencode, session)
    expect(await rows(session)).toEqual([expect.stringMatching(`^${id} do P-HANG \\| general \\| cancelled \\| `)])
    expect(await notifications(opencode, session)).toHaveLength(1)
    expect(wakes(model, session)).toEqual([])
  })

  test("a cancelled task keeps the text that its child had written", async () => {
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "P-HANG" })
    await opencode.events.waitFor(({ type, properties }) => {
      return type === "message.part.delta" && properties.sessionID === child && properties.field === "text"
    })
    await call(session, "cancel", { task_id: id })
    const { output } = await call(session, "output", { task_id: id })
    expect(output).toContain("Status: cancelled")
    expect(output).toContain("Reason: It was cancelled by the agent that launched it.")
    expect(output).toContain(`Text it had written:\n<task_output id="${id}">\nso far so good\n</task_output>`)
  })

  test("cancelling a task that has ended gives an error and changes nothing", async () => {
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "P-DONE" })
    await notified(opencode, session)
    const { status, error } = await call(session, "cancel", { task_id: id })
    expect(status).toBe("error")
    expect(error).toContain(`Task ${id} is not running: it is completed.`)
    expect(await rows(session, { status: "completed" })).toHaveLength(1)
  })

  test("cancelling a batch ends only the tasks of that batch", async () => {
    const session = await openSession(opencode)
    const tasks = await launchAll(opencode, model, session, [
      { prompt: "P-HANG-1", batch: "nightly" },
      { prompt: "P-HANG-2", batch: "nightly" },
      { prompt: "P-HANG-3", batch: "daily" },
    ])
    const requests = await Promise.all(tasks.map(({ child }) => asked(child)))
    const { output } = await call(session, "cancel", { batch: "nightly" })
    expect(output).toContain("Cancelled 2 tasks:")
    await eventually(() => requests[0]?.aborted.aborted && requests[1]?.aborted.aborted)
    expect(requests[2]?.aborted.aborted).toBe(false)
    const found = await notified(opencode, session, 2)
    expect(found.map(({ visible }) => visible.split("Task Progress: ")[1])).toEqual(["1/2", "2/2"])
    expect(await rows(session, { status: "running" })).toEqual([expect.stringContaining(String(tasks[2]?.id))])
    await call(session, "cancel", { all: true })
    await eventually(() => requests[2]?.aborted.aborted)
    await notified(opencode, session, 3)
  })

  test("cancelling all tasks says when there is nothing to cancel", async () => {
    const session = await openSession(opencode)
    const { status, output } = await call(session, "cancel", { all: true })
    expect(status).toBe("completed")
    expect(output).toContain("nothing was cancelled")
  })
})

describe("a clear", () => {
  test("superagents_clear stops running tasks, forgets everything, notifies nobody and keeps the sessions", async () => {
    const session = await openSession(opencode)
    const done = await launch(opencode, model, session, { prompt: "P-CLEARED" })
    await notified(opencode, session)
    const running = await launch(opencode, model, session, { prompt: "P-HANG" })
    const request = await asked(running.child)
    const { output } = await call(session, "clear")
    expect(output).toBe("Cleared 2 background tasks. 1 running one was stopped first.")
    await eventually(() => request.aborted.aborted)
    expect((await call(session, "list")).output).toBe("No background tasks found")
    expect((await call(session, "output", { task_id: done.id })).error).toContain(`No task "${done.id}"`)
    for (const { child } of [done, running]) {
      expect((await unwrap(opencode.client.session.get({ sessionID: child }))).parentID).toBe(session)
    }
    expect(await notifications(opencode, session), "of the first task alone").toHaveLength(1)
  })

  test("superagents_clear does not touch the tasks of other sessions", async () => {
    const [mine, other] = [await openSession(opencode), await openSession(opencode)]
    const door = gate()
    model.use(async (request) => {
      if (request.lastUser !== "P-OTHER") return undefined
      await door.opened
      return { text: "untouched" }
    })
    const { id } = await launch(opencode, model, other, { prompt: "P-OTHER" })
    expect((await call(mine, "clear")).output).toBe("No background tasks found")
    door.open()
    const [notification] = await notified(opencode, other)
    expect(notification?.hidden).toContain(`Task ${id}: completed.`)
  })

  test("superagents_clear starts a new task count", async () => {
    const session = await openSession(opencode)
    await launchAll(opencode, model, session, [{ prompt: "P-OLD-1" }, { prompt: "P-OLD-2" }])
    await notified(opencode, session, 2)
    await call(session, "clear")
    await launch(opencode, model, session, { prompt: "P-NEW" })
    const [, , third] = await notified(opencode, session, 3)
    expect(third?.visible).toContain("\nTask Progress: 1/1")
  })
})
