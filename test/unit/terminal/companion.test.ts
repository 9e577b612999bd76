import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../../src/core/ports.ts"
import { Rig, running } from "../../support/rig.ts"

describe("a request from the screen", () => {
  const asked = async (rig: Rig, sessionID: string, request: object) => {
    const { metadata } = rig.opencode.stored(sessionID)
    rig.opencode.writeMetadata(sessionID, { ...metadata, superagentsRequest: { id: "r1", ...request } })
    await rig.clock.advance(100)
    expect(rig.opencode.database.sessions.get(sessionID)?.metadata).not.toHaveProperty("superagentsRequest")
  }

  test("a cancel from the screen counts as the user's: the parent is notified and woken", async () => {
    const { rig, id, sessionID } = await running()
    await asked(rig, sessionID, { action: "cancel" })
    expect(await rig.ended(id)).toMatchObject({ status: "cancelled", outcome: { reason: { code: "aborted" } } })
    await rig.clock.advance(1000)
    expect(rig.answers()).toHaveLength(1)
    expect((await rig.opencode.activity()).has(sessionID)).toBe(false)
  })

  test("a request from the screen is removed at once, however long its action takes", async () => {
    const { rig, id, sessionID } = await running()
    rig.opencode.onCall = (method) => (method === "abort" ? { slow: 4000 } : undefined)
    await asked(rig, sessionID, { action: "cancel" })
    expect(rig.notices()).toEqual([])
    expect((await rig.ended(id)).status).toBe("cancelled")
  })

  test("a request from the screen is carried out even when it cannot be removed", async () => {
    const { rig, id, sessionID } = await running()
    rig.opencode.onCall = (method) => (method === "clearRequest" ? { fail: new OpencodeError("no answer") } : undefined)
    const { metadata } = rig.opencode.stored(sessionID)
    rig.opencode.writeMetadata(sessionID, { ...metadata, superagentsRequest: { id: "r1", action: "cancel" } })
    expect((await rig.ended(id)).status).toBe("cancelled")
    await rig.clock.advance(1000)
    expect(rig.notices()).toHaveLength(1)
  })

  test("a request that could not be removed is removed later, so that no restart repeats it", async () => {
    const { rig, id, sessionID } = await running()
    let failed = 0
    const fail = new OpencodeError("no answer")
    rig.opencode.onCall = (method) => (method === "clearRequest" && failed++ === 0 ? { fail } : undefined)
    const { metadata } = rig.opencode.stored(sessionID)
    rig.opencode.writeMetadata(sessionID, { ...metadata, superagentsRequest: { id: "r1", action: "cancel" } })
    await rig.ended(id)
    await rig.clock.advance(10_000)
    expect(rig.opencode.stored(sessionID).metadata).not.toHaveProperty("superagentsRequest")
  })

  test("a clear from the screen forgets the task and notifies nobody", async () => {
    const { rig, sessionID } = await running()
    await asked(rig, sessionID, { action: "clear" })
    await rig.clock.advance(60_000)
    expect(rig.manager.list(rig.parent)).toEqual([])
    expect(rig.notices()).toEqual([])
    expect(rig.opencode.stored(sessionID).metadata).toEqual({})
  })

  test.each([
    ["cancel", "It was not cancelled."],
    ["clear", "It was not cleared."],
  ])("a %s from the screen does not stop a run that began after the person looked", async (action, text) => {
    const rig = new Rig()
    const { id, sessionID } = await rig.launch()
    const { generation } = (await rig.ended(id)).run
    rig.onPrompt("AGAIN", { text: "second", delay: 10_000 })
    await asked(rig, sessionID, { action: "resume", prompt: "AGAIN" })
    await asked(rig, sessionID, { id: "r2", action, generation })
    expect(rig.opencode.toasts.at(-1)).toMatchObject({
      title: "Not done",
      message: `Somebody has resumed task ${id} since you looked. ${text}`,
    })
    expect((await rig.ended(id)).status).toBe("completed")
  })

  test("a resume from the screen starts the task again with the new prompt", async () => {
    const rig = new Rig()
    const { id, sessionID } = await rig.launch()
    await rig.ended(id)
    rig.onPrompt("AGAIN", { text: "second", delay: 1000 })
    await asked(rig, sessionID, { action: "resume", prompt: "AGAIN" })
    expect(rig.task(id).status).toBe("resumed")
    expect((await rig.ended(id)).status).toBe("completed")
  })

  test.each([
    ["a resume without a prompt", { action: "resume" }, "A task is resumed with a prompt"],
    ["a resume of what runs", { action: "resume", prompt: "more" }, "Only completed tasks can be resumed"],
  ])("%s is refused with a toast on the screen", async (_what, request, text) => {
    const { rig, sessionID } = await running()
    await asked(rig, sessionID, request)
    expect(rig.opencode.toasts.at(-1)).toMatchObject({ title: "Not done", message: expect.stringContaining(text) })
  })

  test("a request from the screen is carried out once, however often its event arrives", async () => {
    const { rig, id, sessionID } = await running()
    rig.opencode.onEvent = () => "double"
    await asked(rig, sessionID, { action: "cancel" })
    await rig.ended(id)
    await rig.clock.advance(1000)
    expect(rig.notices()).toHaveLength(1)
  })
})
