import { describe, expect, test } from "vitest"
import { Rig } from "../support/rig.ts"

/** Costs that a run's messages do not show at its end. A step costs a cent. */

const CENT = { usage: { input: 10_000 } }
const STEP = { tools: [{ name: "read", args: { ms: 200 } }], ...CENT }

const rigged = (options: object = {}, steps = 4) => {
  const rig = new Rig({ options: { lastWord: 0, ...options } })
  rig.script(({ prompt, toolResults }) => {
    if (!prompt.startsWith("SPEND")) return undefined
    return toolResults.length + 1 < steps ? STEP : { text: "done", ...CENT }
  })
  return rig
}
const spend = { prompt: "SPEND" }
const billOf = (rig: Rig) => rig.manager.spentBy(rig.parent).session

describe("messages that are gone at a run's end", () => {
  test("steps that a user has undone with the run's prompt still count", async () => {
    const rig = rigged({}, 100)
    const { id, sessionID } = await rig.launch(spend)
    await rig.clock.advance(1000)
    const { cost } = billOf(rig)
    expect(cost).toBeGreaterThan(0.03)
    rig.opencode.abortByUser(sessionID)
    await rig.clock.advance(200)
    rig.opencode.undo(sessionID, rig.opencode.stored(sessionID).messages[0]?.id ?? "")
    rig.onPrompt("BETTER", { text: "done better", ...CENT })
    rig.opencode.say(sessionID, "BETTER", { agent: "general" })
    expect((await rig.ended(id)).status).toBe("completed")
    expect(billOf(rig).cost).toBeCloseTo(cost + 0.01)
  })

  test("a step that somebody has deleted from the session still counts, once", async () => {
    const rig = rigged()
    const { id, sessionID } = await rig.launch(spend)
    await rig.clock.advance(500)
    const first = rig.opencode.stored(sessionID).messages.find(({ role }) => role === "assistant")
    await rig.opencode.deleteMessage(sessionID, first?.id ?? "")
    expect((await rig.ended(id)).status).toBe("completed")
    // The agent reads again what the deleted step had read.
    expect(billOf(rig).cost).toBeCloseTo(0.05)
  })

  test("an event that comes after the run's end counts no step again, nor in a later run", async () => {
    const rig = rigged()
    rig.opencode.onEvent = () => ({ late: 30_000 })
    const { id } = await rig.launch(spend)
    await rig.clock.advance(500)
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    await rig.clock.advance(5000)
    const { cost } = billOf(rig)
    expect(cost).toBeGreaterThan(0.01)
    rig.opencode.onEvent = () => undefined
    await rig.clock.advance(60_000)
    expect(billOf(rig).cost).toBeCloseTo(cost)
  })
})
