import { spawn } from "node:child_process"
import { once } from "node:events"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { callTool, eventually, messages } from "../support/drive.ts"
import { prepareHome } from "../support/home.ts"
import { fates, launchMany, notificationsOf } from "../support/killing.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { startPlugged } from "../support/plugin.ts"
import { BINARY } from "../support/server-process.ts"

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, { maxConcurrentTasks: 5 })
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

const inSession = (prompt: string) => (request: { lastUser: string }) => request.lastUser.startsWith(prompt)

describe("a SIGKILL and a restart", () => {
  test("a running task is reported once as interrupted after SIGKILL, with its text and advice", async () => {
    const remove = model.use((request) =>
      inSession("HANG")(request) ? { hang: true, text: "half an answer" } : undefined,
    )
    const { session, ids } = await launchMany(opencode, model, 2, () => "HANG")
    await eventually(() => model.requests.filter(inSession("HANG")).length === 2)
    await opencode.kill("SIGKILL")
    remove()
    await opencode.restart()
    const outcome = await fates(opencode, model, session, ids)
    expect(outcome.map(({ status, notifications }) => [status, notifications])).toEqual([
      ["error", 1],
      ["error", 1],
    ])
    const { output } = await callTool(opencode, model, session, "superagents_output", { task_id: ids[0] })
    expect(output).toContain("Reason: OpenCode stopped or was restarted while it ran")
    expect(output).toContain("To go on: launch the task again")
  })

  test("a task that ended and was reported before SIGKILL is not reported again", async () => {
    const { session, ids } = await launchMany(opencode, model, 2, (index) => `QUICK ${index}`)
    await eventually(async () => (await notificationsOf(opencode, session, ids)).every((count) => count === 1))
    await opencode.kill("SIGKILL")
    await opencode.restart()
    const outcome = await fates(opencode, model, session, ids)
    expect(outcome.map(({ status, notifications }) => [status, notifications])).toEqual([
      ["completed", 1],
      ["completed", 1],
    ])
    const { output } = await callTool(opencode, model, session, "superagents_output", { task_id: ids[1] })
    expect(output).toContain("ok")
  })

  test("an `opencode run` in another conversation neither tells nor wakes the parent, the next OpenCode does", async () => {
    const remove = model.use((request) => (inSession("HANG")(request) ? { hang: true } : undefined))
    const { session, ids } = await launchMany(opencode, model, 1, () => "HANG")
    await eventually(() => model.requests.some(inSession("HANG")))
    await opencode.kill("SIGKILL")
    remove()
    const isQuestion = ({ lastUser }: { lastUser: string }) => lastUser.includes("ONE QUESTION")
    // The turn is long enough for a process that looks for tasks of earlier ones.
    const removeSlow = model.use((request) => (isQuestion(request) ? { text: "42", delay: 6000 } : undefined))
    const { env, directory } = await prepareHome({ home: opencode.home })
    const run = spawn(BINARY, ["run", "ONE QUESTION"], { cwd: directory, env, stdio: "ignore" })
    const before = model.requests.length
    await once(run, "exit")
    removeSlow()
    const asked = model.requests.slice(before).filter((request) => !isQuestion(request))
    expect(asked.filter(({ sessionID }) => sessionID === session)).toEqual([])
    await opencode.restart()
    const [outcome] = await fates(opencode, model, session, ids)
    expect(outcome).toMatchObject({ status: "error", notifications: 1 })
    await eventually(() => model.requests.slice(before).some(({ sessionID }) => sessionID === session))
  })

  test("a queued task is not started after SIGKILL, but reported with the advice to launch it again", async () => {
    const remove = model.use((request) => (inSession("SLOT")(request) ? { hang: true } : undefined))
    const { session, ids } = await launchMany(opencode, model, 7, () => "SLOT")
    await eventually(() => model.requests.filter(inSession("SLOT")).length === 5)
    await opencode.kill("SIGKILL")
    await opencode.restart()
    const outcome = await fates(opencode, model, session, ids)
    remove()
    expect(outcome.map(({ status, notifications }) => `${status} ${notifications}`)).toEqual(Array(7).fill("error 1"))
    expect(model.requests.filter(inSession("SLOT"))).toHaveLength(5)
    const { output } = await callTool(opencode, model, session, "superagents_output", { task_id: ids[6] })
    expect(output).toContain("before it began: it was interrupted. Launch it again if it is still needed.")
  })

  test("a parent that is not used again after SIGKILL is still notified", async () => {
    const remove = model.use((request) => (inSession("ALONE")(request) ? { hang: true } : undefined))
    const { session, ids } = await launchMany(opencode, model, 1, () => "ALONE")
    await eventually(() => model.requests.some(inSession("ALONE")))
    await opencode.kill("SIGKILL")
    remove()
    await opencode.restart()
    // Any request makes OpenCode load the project and its plugins.
    await eventually(async () => (await notificationsOf(opencode, session, ids))[0] === 1, { timeout: 20_000 })
    expect((await messages(opencode, session)).filter(({ info }) => info.role === "user").length).toBe(2)
  })
})
