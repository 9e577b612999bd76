import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { Rig } from "../support/rig.ts"

/** Answers that come with the news; how the texts read is in `compose.test.ts`. */

const wrapped = (text: string) => `<task_output>\n${text}\n</task_output>`

describe("an answer inside a notification", () => {
  test("an answer inside a notification counts as fetched, even after a restart", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "found it" })
    const { id, sessionID } = await rig.launch()
    const task = await rig.ended(id)
    expect(rig.notices()[0]?.hidden).toContain(wrapped("found it"))
    expect(task.retrievedAt).toBeDefined()
    await rig.clock.advance(60_000)
    expect((await rig.opencode.session(sessionID))?.record?.task.retrievedAt).toBe(task.retrievedAt)
  })

  test("an answer inside a notification needs no extra read of the child's session", async () => {
    const rig = new Rig()
    const reads: string[] = []
    rig.opencode.onCall = (method, session) => {
      if (method === "messagesSince") reads.push(String(session))
      return undefined
    }
    const { id, sessionID } = await rig.launch()
    await rig.ended(id)
    expect(reads.filter((session) => session === sessionID)).toHaveLength(1)
  })

  test("tasks that end together each send their own answer, and the last message lists none as not fetched", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "found it", delay: 500 })
    const ids: string[] = []
    for (let index = 0; index < 5; index++) ids.push((await rig.launch({ description: `task ${index}` })).id)
    for (const id of ids) await rig.ended(id)
    const hidden = rig.notices().map((notice) => notice.hidden)
    for (const id of ids) expect(hidden.filter((text) => text.includes(` Task ${id}: `))).toHaveLength(1)
    expect(hidden.filter((text) => text.includes(wrapped("found it")))).toHaveLength(5)
    expect(hidden.filter((text) => /\n(?:Still running|Also ended, messages follow): /.test(text))).toHaveLength(4)
    expect(hidden.at(-1)).toContain("\nAll 5 tasks finished.\n")
    expect(ids.every((id) => rig.task(id).retrievedAt !== undefined)).toBe(true)
  })

  test("the notification of a stopped run contains the text that it had written so far", async () => {
    const rig = new Rig({ options: { taskTimeout: 5000 } })
    rig.onPrompt("FIND", { hang: true, text: "so far" })
    const { id } = await rig.launch()
    await rig.ended(id)
    expect(rig.notices()[0]?.hidden).toContain(`Its whole text so far:\n${wrapped("so far")}`)
  })

  test("a notification is sent without the answer if the answer cannot be read", async () => {
    const rig = new Rig({ options: { resultCacheTTL: 0 } })
    const { id, sessionID } = await rig.launch()
    let reads = 0
    rig.opencode.onCall = (method, session) =>
      method === "messagesSince" && session === sessionID && reads++ > 0
        ? { fail: new OpencodeError("busy") }
        : undefined
    const task = await rig.ended(id)
    expect(task.retrievedAt).toBeUndefined()
    expect(rig.notices()[0]?.hidden).toContain(`\nNot fetched yet: ${id} (find it)\n`)
  })

  test("a notification contains the answer of the run it reports, even if the task was resumed before", async () => {
    const rig = new Rig({ options: { resultCacheTTL: 0 } })
    rig.onPrompt("FIND", { text: "the first answer" })
    rig.onPrompt("MORE", { text: "the second answer" })
    const { id } = await rig.launch()
    // The parent's user has undone something: nothing is told until that is over.
    rig.opencode.stored(rig.parent).undoneFrom = "msg_zzz"
    await rig.clock.until(() => rig.task(id).status === "completed")
    await rig.manager.resume(id, { prompt: "MORE" }, rig.caller)
    await rig.clock.until(() => rig.task(id).status === "completed")
    rig.opencode.stored(rig.parent).undoneFrom = undefined
    await rig.ended(id)
    const [first, second] = rig.notices()
    expect(first?.hidden).toContain(wrapped("the first answer"))
    expect(first?.hidden).not.toContain("the second answer")
    expect(second?.hidden).toContain(wrapped("the second answer"))
  })

  test("a notification does not repeat an answer that a waiting call has already returned", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "found it", delay: 500 })
    const { id } = await rig.launch()
    const waiting = rig.output(id, rig.caller, 10_000)
    await rig.ended(id)
    expect((await waiting).answer).toBe("found it")
    expect(rig.notices()[0]?.hidden).toContain("\nYou have fetched its answer already.\n")
    expect(rig.notices()[0]?.hidden).not.toContain("found it\n</task_output>")
  })

  test("a delivered answer counts as fetched after a crash, even if the record did not say so", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "found it" })
    const { id } = await rig.launch()
    await rig.clock.until(() => rig.notices().length === 1)
    rig.restart()
    await rig.manager.recover()
    const task = await rig.ended(id)
    expect(rig.notices()).toHaveLength(1)
    expect(task.retrievedAt).toBeDefined()
  })
})

test("a task's session counts as fresh unless it is a fork or any other session", async () => {
  const rig = new Rig()
  const fresh = await rig.launch()
  const forked = await rig.launch({ fork: true })
  expect([fresh.sessionID, forked.sessionID, rig.parent].map((id) => rig.manager.isFresh(id))).toEqual([
    true,
    false,
    false,
  ])
})

test("with the option verbose each transition is logged, without any text of the prompt", async () => {
  const lines = async (options: object) => {
    const rig = new Rig({ options })
    const { id } = await rig.launch({ prompt: "FIND nobody reads this" })
    await rig.ended(id)
    expect(JSON.stringify(rig.opencode.logs)).not.toContain("nobody reads this")
    return rig.opencode.logs.flatMap(({ message, fields }) => (message === "transition" ? [fields?.event] : []))
  }
  expect(await lines({})).toEqual([])
  expect(await lines({ verbose: true })).toEqual(expect.arrayContaining(["completed", "retrieved", "notified"]))
})
