import { afterAll, beforeAll, expect, test } from "vitest"
import { callTool, eventually, openSession } from "../support/drive.ts"
import { notificationsOf, statuses } from "../support/killing.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"
import { launch, notified, PACKAGE, startPlugged } from "../support/plugin.ts"

/** Promises 2, 5 and 6 of docs/reliability.md: two OpenCode processes on one project, of which one dies. */

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model)
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

test("a second OpenCode process leaves the first one's tasks alone, and reports each once when the first dies", async () => {
  model.use(({ lastUser }) => (lastUser === "HANG" ? { hang: true, text: "half an answer" } : undefined))
  const session = await openSession(opencode)
  const ended = await launch(opencode, model, session, { prompt: "QUICK" })
  await notified(opencode, session)
  const running = await launch(opencode, model, session, { prompt: "HANG" })
  const ids = [ended.id, running.id]
  const second = await startOpencode({ model, plugin: [[PACKAGE, {}]], home: opencode.home })
  try {
    expect((await statuses(second, model, session)).get(running.id)).toBe("running")
    const refused = await callTool(second, model, session, "superagents_cancel", { task_id: running.id })
    expect(refused.error).toContain("run by another OpenCode process")
    expect(await notificationsOf(second, session, ids)).toEqual([1, 0])
    await opencode.kill("SIGKILL")
    await eventually(async () => (await notificationsOf(second, session, ids))[1] === 1, { timeout: 60_000 })
    const shown = await callTool(second, model, session, "superagents_output", { task_id: running.id })
    expect(shown.output).toContain("Reason: OpenCode stopped or was restarted while it ran")
    expect(shown.output).toContain("To go on: launch the task again")
    const found = await statuses(second, model, session)
    expect(ids.map((id) => found.get(id))).toEqual(["completed", "error"])
    expect(await notificationsOf(second, session, ids)).toEqual([1, 1])
  } finally {
    await second.stop()
  }
})
