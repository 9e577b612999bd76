import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { isActive } from "../../src/core/task.ts"
import { Rig } from "../support/rig.ts"

const rigged = (options: object = {}) => {
  const rig = new Rig({ options: { resumable: ["completed", "error", "cancelled"], ...options } })
  rig.onPrompt("AGAIN", { text: "again", delay: 60_000 })
  return rig
}

/** The next call of this kind about a session takes so long. */
const slowNext = (
  rig: Rig,
  slowed: string,
  about: string,
  fault: { slow: number; fail?: OpencodeError; after?: boolean },
) => {
  let left = 1
  rig.opencode.onCall = (method, session) => (method === slowed && session === about && left-- > 0 ? fault : undefined)
}

/** The answer of a run that is begun at once. */
const answerAgain = async (rig: Rig, id: string) => {
  const resuming = rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
  await rig.clock.until(() => rig.task(id).run.generation === 1)
  await resuming
  await rig.clock.until(() => !isActive(rig.task(id)))
  return (await rig.output(id)).answer
}

const cancelAll = (rig: Rig, ms = 1000) =>
  Promise.all([rig.manager.cancel({ type: "all" }, rig.caller), rig.clock.advance(ms)])

describe("late messages of an ended run", () => {
  test.each([undefined, new OpencodeError("cut off")])(
    "a message that arrives late after its run has ended does not stop the next run (%s)",
    async (fail) => {
      const rig = rigged()
      rig.onPrompt("FIND", { text: "first", delay: 200 })
      const { id, sessionID } = await rig.launch()
      await rig.clock.advance(100)
      slowNext(rig, "prompt", sessionID, { slow: 29_000, fail, after: true })
      const told = rig.manager.tell(id, "MORE", rig.caller).catch((error: Error) => error.message)
      await rig.ended(id)
      expect(await answerAgain(rig, id)).toBe("again")
      expect(await told).toContain("is completed: it was told nothing")
    },
  )

  test("a request for a last word that arrives after its run has ended does not stop the next", async () => {
    const rig = rigged({ taskTimeout: 90_000, lastWord: 10_000, permissionTimeout: 300_000 })
    rig.onPrompt("FIND", { tools: [{ name: "question", args: { questions: [{ question: "?" }] } }] })
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(79_000)
    slowNext(rig, "prompt", sessionID, { slow: 29_000 })
    expect((await rig.ended(id)).outcome?.reason?.code).toBe("timeout")
    expect(await answerAgain(rig, id)).toBe("again")
  })

  test("a prompt that arrives after its run was cancelled does not stop the next run", async () => {
    const rig = rigged()
    rig.onPrompt("FIND", { hang: true })
    rig.opencode.onCall = (method) => (method === "prompt" ? { slow: 29_000 } : undefined)
    const { id } = await rig.launch()
    await rig.clock.advance(100)
    rig.opencode.onCall = () => undefined
    await cancelAll(rig)
    expect(await answerAgain(rig, id)).toBe("again")
  })

  test("an abort call that arrives late does not stop the next run", async () => {
    const rig = rigged()
    rig.onPrompt("FIND", { hang: true })
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(100)
    slowNext(rig, "abort", sessionID, { slow: 29_000 })
    await cancelAll(rig, 10_000)
    expect(await answerAgain(rig, id)).toBe("again")
  })

  test("a late abort of another run does not stop a run that was waiting for permission", async () => {
    const rig = rigged()
    const { id, sessionID } = await rig.launch()
    await rig.ended(id)
    let allow = () => {}
    const leave = new Promise<void>((resolve) => {
      allow = resolve
    })
    const resuming = rig.manager.resume(id, { prompt: "AGAIN" }, { ...rig.caller, authorize: () => leave })
    await rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
    await rig.clock.advance(1000)
    slowNext(rig, "abort", sessionID, { slow: 29_000 })
    await cancelAll(rig, 10_000)
    allow()
    await rig.clock.until(() => rig.task(id).run.generation === 2)
    await resuming
    await rig.clock.until(() => !isActive(rig.task(id)))
    expect((await rig.output(id)).answer).toBe("again")
  })
})

test("a message that OpenCode refused is not sent again to a run that has ended meanwhile", async () => {
  const rig = rigged()
  rig.onPrompt("FIND", { hang: true })
  const { id, sessionID } = await rig.launch()
  await rig.clock.advance(100)
  slowNext(rig, "prompt", sessionID, { slow: 500, fail: new OpencodeError("no") })
  const told = rig.manager.tell(id, "MORE", rig.caller).catch((error: Error) => error.message)
  await rig.clock.advance(100)
  await cancelAll(rig, 10_000)
  expect(await told).toContain("is cancelled: it was told nothing")
  expect(rig.opencode.stored(sessionID).messages.filter(({ role }) => role === "user")).toHaveLength(1)
})

test("a late message from the screen goes to the run that is current when it arrives", async () => {
  const rig = rigged()
  rig.script(({ lastUser }) => (lastUser === "MORE" ? { text: "heard" } : undefined))
  rig.onPrompt("FIND", { text: "first", delay: 200 })
  const { id, sessionID } = await rig.launch()
  await rig.clock.advance(100)
  slowNext(rig, "clearRequest", sessionID, { slow: 5000 })
  const { metadata } = rig.opencode.stored(sessionID)
  rig.opencode.writeMetadata(sessionID, {
    ...metadata,
    superagentsRequest: { id: "r", action: "tell", prompt: "MORE" },
  })
  await rig.ended(id)
  expect(await answerAgain(rig, id)).toBe("heard")
  expect(rig.opencode.toasts.map(({ title }) => title)).not.toContain("Not done")
})
