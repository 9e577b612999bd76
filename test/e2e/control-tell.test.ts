import { describe, expect, test } from "vitest"
import { callTool, callTools, openSession } from "../support/drive.ts"
import { launch, notified } from "../support/plugin.ts"
import { model, opencode, PATIENT, tell, tellScene } from "../support/tell-scene.ts"

/** A word to an agent at work; `control-tell-moments` has the other moments. */

tellScene()

describe("a refused message", () => {
  test("superagents_task refuses an empty message, an unknown task, and an ended task, where it suggests `resume`", async () => {
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "T-WORK" }, PATIENT)
    await notified(opencode, session, 1, PATIENT.timeout)
    const count = model.requests.length
    expect((await tell(session, id, "T-MORE")).error).toMatch(/completed.*`?resume/)
    expect((await tell(session, "bg_zzzzzzzz", "T-MORE")).error).toContain('No task "bg_zzzzzzzz"')
    expect((await tell(session, id, " ")).error).toContain("`prompt`")
    expect(model.requests.slice(count).some(({ sessionID }) => sessionID === child)).toBe(false)
  })

  test("a message is refused while the task is saying its last word", async () => {
    model.use(({ userTexts, messages: said }) => {
      if (userTexts[0] !== "T-DEAR") return undefined
      if (JSON.stringify(said).includes("Answer at once: what is done")) return { hang: true }
      const usage = { input: 10_000, output: 0 }
      return { tools: [{ name: "read", args: { filePath: "README.md" } }], usage }
    })
    const session = await openSession(opencode)
    const { id, child } = await launch(opencode, model, session, { prompt: "T-DEAR", max_cost: 0.01 }, PATIENT)
    await model.waitFor((each) => each.sessionID === child && each.messages.length > 3, PATIENT)
    expect((await tell(session, id, "T-MORE")).error).toMatch(/is saying its last word.*You will be told when it ends/)
    await callTool(opencode, model, session, "superagents_cancel", { task_id: id }, PATIENT)
    expect(model.requests.some(({ lastUser }) => lastUser === "T-MORE")).toBe(false)
  })

  test("a message together with any other argument is refused with an error that names both", async () => {
    const values = { fork: true, timeout: 5000, max_cost: 1, after: ["bg_x"] }
    const others = { resume: "bg_x", description: "d", agent: "general", model: "scripted/beta", batch: "b", ...values }
    const calls = Object.entries(others).map(([name, value]) => ({
      name: "superagents_task",
      args: { tell: "bg_x", prompt: "T-MORE", [name]: value },
    }))
    const outcomes = await callTools(opencode, model, await openSession(opencode), calls, PATIENT)
    for (const [index, name] of Object.keys(others).entries()) {
      expect(outcomes[index]?.error, name).toContain("`tell`")
      expect(outcomes[index]?.error, name).toContain(`\`${name}\``)
    }
  })
})
