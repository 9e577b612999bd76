import { describe, expect, test } from "vitest"
import { Rig } from "../support/rig.ts"

/** A child that calls a tool and then takes its time: between the two steps it is no more at an end than within them. */
const between = async () => {
  const rig = new Rig()
  rig.script(({ lastUser, toolResults }) => {
    if (!lastUser.includes("FIND")) return undefined
    if (toolResults.length === 0) return { tools: [{ name: "read", args: {} }] }
    return { text: "all done", delay: 5000 }
  })
  const task = await rig.launch()
  const { messages } = rig.opencode.stored(task.sessionID)
  await rig.clock.until(() => messages.at(-1)?.finish === "tool-calls" || messages.length > 2)
  /** OpenCode has opened no message for the next step yet. */
  if (messages.length > 2) messages.splice(2)
  return { rig, ...task }
}

describe("a run between two steps", () => {
  test.each(["idle", "error"] as const)("a run between two steps is not ended by a late %s event", async (type) => {
    const { rig, id, sessionID } = await between()
    const error = { name: "UnknownError", message: "of an earlier run" }
    rig.opencode.tell(type === "idle" ? { type, sessionID } : { type, sessionID, error })
    await rig.clock.advance(3000)
    expect(rig.task(id).status).toBe("running")
    expect((await rig.ended(id)).status).toBe("completed")
    expect((await rig.output(id)).answer).toBe("all done")
  })

  test.each(["heard", "not heard"])("a run is cancelled when the user stops it between two steps (%s)", async (how) => {
    const { rig, id, sessionID } = await between()
    if (how === "not heard") rig.opencode.onEvent = () => "lose"
    rig.opencode.abortByUser(sessionID)
    rig.opencode.stored(sessionID).messages.splice(2)
    const task = await rig.ended(id)
    expect(task).toMatchObject({ status: "cancelled", outcome: { reason: { code: "aborted" } } })
    expect(rig.notices()).toHaveLength(1)
  })

  test("a run is interrupted when its OpenCode dies between two steps", async () => {
    const { rig, id } = await between()
    rig.restart()
    await rig.manager.recover()
    expect(await rig.ended(id)).toMatchObject({ status: "error", outcome: { reason: { code: "interrupted" } } })
    expect(rig.notices()[0]?.visible).toMatch(/^✗/)
  })
})
