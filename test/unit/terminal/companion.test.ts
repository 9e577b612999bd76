import { describe, expect, test } from "vitest"
import { HostError } from "../../../src/core/ports.ts"
import { Rig, running } from "../../support/rig.ts"

describe("what somebody at the screen asks for", () => {
  const asked = async (rig: Rig, sessionID: string, request: object) => {
    const { metadata } = rig.host.stored(sessionID)
    rig.host.writeMetadata(sessionID, { ...metadata, superagentsRequest: { id: "r1", ...request } })
    await rig.clock.advance(100)
    expect(rig.host.database.sessions.get(sessionID)?.metadata).not.toHaveProperty("superagentsRequest")
  }

  test("a cancel is carried out as the user's: the parent is told and woken", async () => {
    const { rig, id, sessionID } = await running()
    await asked(rig, sessionID, { action: "cancel" })
    expect(await rig.ended(id)).toMatchObject({ status: "cancelled", outcome: { reason: { code: "aborted" } } })
    await rig.clock.advance(1000)
    expect(rig.answers()).toHaveLength(1)
    expect((await rig.host.activity()).has(sessionID)).toBe(false)
  })

  test("it is taken away at once, however long it takes: one that stays counts as unheard", async () => {
    const { rig, id, sessionID } = await running()
    rig.host.onCall = (method) => (method === "abort" ? { slow: 4000 } : undefined)
    await asked(rig, sessionID, { action: "cancel" })
    expect(rig.notices()).toEqual([])
    expect((await rig.ended(id)).status).toBe("cancelled")
  })

  test("it is carried out although it could not be taken away", async () => {
    const { rig, id, sessionID } = await running()
    rig.host.onCall = (method) => (method === "clearRequest" ? { fail: new HostError("no answer") } : undefined)
    const { metadata } = rig.host.stored(sessionID)
    rig.host.writeMetadata(sessionID, { ...metadata, superagentsRequest: { id: "r1", action: "cancel" } })
    expect((await rig.ended(id)).status).toBe("cancelled")
    await rig.clock.advance(1000)
    expect(rig.notices()).toHaveLength(1)
  })

  test("and is taken away afterwards, lest it be carried out once more after a restart", async () => {
    const { rig, id, sessionID } = await running()
    let failed = 0
    const fail = new HostError("no answer")
    rig.host.onCall = (method) => (method === "clearRequest" && failed++ === 0 ? { fail } : undefined)
    const { metadata } = rig.host.stored(sessionID)
    rig.host.writeMetadata(sessionID, { ...metadata, superagentsRequest: { id: "r1", action: "cancel" } })
    await rig.ended(id)
    await rig.clock.advance(10_000)
    expect(rig.host.stored(sessionID).metadata).not.toHaveProperty("superagentsRequest")
  })

  test("a clear forgets the task and tells nobody", async () => {
    const { rig, sessionID } = await running()
    await asked(rig, sessionID, { action: "clear" })
    await rig.clock.advance(60_000)
    expect(rig.manager.list(rig.parent)).toEqual([])
    expect(rig.notices()).toEqual([])
    expect(rig.host.stored(sessionID).metadata).toEqual({})
  })

  test("a resume asks again", async () => {
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
  ])("%s is refused on the screen", async (_what, request, text) => {
    const { rig, sessionID } = await running()
    await asked(rig, sessionID, request)
    expect(rig.host.toasts.at(-1)).toMatchObject({ title: "Not done", message: expect.stringContaining(text) })
  })

  test("is carried out once, however often it is heard of", async () => {
    const { rig, id, sessionID } = await running()
    rig.host.onEvent = () => "double"
    await asked(rig, sessionID, { action: "cancel" })
    await rig.ended(id)
    await rig.clock.advance(1000)
    expect(rig.notices()).toHaveLength(1)
  })
})
