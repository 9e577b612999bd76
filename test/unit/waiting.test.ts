import { describe, expect, test } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { Rig } from "../support/rig.ts"

/** Tasks that wait for others, through the manager. */

const rigged = (options: object = {}) => {
  const rig = new Rig({ options })
  rig.script(({ prompt }) => {
    const name = prompt.split("Your task:\n\n").at(-1) ?? ""
    if (name.startsWith("FAILS")) return { status: 400 }
    if (name.startsWith("HANGS")) return { hang: true }
    return name.startsWith("DOES") ? { text: `answer of ${name}`, delay: 300 } : undefined
  })
  return rig
}
const promptOf = (rig: Rig, sessionID: string) => {
  const part = rig.opencode.stored(sessionID).messages[0]?.parts[0]
  return part?.type === "text" ? part.text : undefined
}

describe("a task with dependencies", () => {
  test("a waiting task begins with the others' answers when all have completed, and holds no slot before", async () => {
    const rig = rigged({ maxConcurrentTasks: 2 })
    const a = await rig.launch({ prompt: "DOES a" })
    const b = await rig.launch({ prompt: "DOES b" })
    const both = await rig.launch({ prompt: "DOES both", after: [b.id, a.id] })
    const free = await rig.launch({ prompt: "DOES free" })
    expect(rig.view(both.id)).toMatchObject({ phase: `waiting for ${b.id}, ${a.id}` })
    expect(rig.view(free.id)).toMatchObject({ phase: "queued", place: 1 })
    await rig.ended(both.id)
    const text = promptOf(rig, both.sessionID) ?? ""
    expect(text.indexOf("answer of DOES b")).toBeLessThan(text.indexOf("answer of DOES a"))
    expect(text.endsWith("DOES both")).toBe(true)
    expect(rig.task(both.id).run.startedAt).toBeGreaterThanOrEqual(rig.task(b.id).run.endedAt ?? 0)
  })

  test("a waiting task begins at once when the others have already completed", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "DOES a", batch: "map" })
    await rig.ended(a.id)
    const reduce = await rig.launch({ prompt: "DOES it", after: "map" })
    await rig.ended(reduce.id)
    expect(promptOf(rig, reduce.sessionID)).toContain("answer of DOES a")
  })

  test("a waiting task also waits for a task that was resumed, until that completes again", async () => {
    const rig = rigged({ maxConcurrentTasks: 0 })
    const a = await rig.launch({ prompt: "DOES a" })
    const slow = await rig.launch({ prompt: "HANGS" })
    await rig.ended(a.id)
    const last = await rig.launch({ prompt: "DOES it", after: [a.id] })
    await rig.ended(last.id)
    await rig.manager.resume(a.id, { prompt: "DOES more" }, rig.caller)
    const next = await rig.launch({ prompt: "DOES next", after: [a.id] })
    expect(rig.view(next.id).phase).toBe(`waiting for ${a.id}`)
    await rig.ended(next.id)
    expect(promptOf(rig, next.sessionID)).toContain("answer of DOES more")
    expect(rig.task(slow.id).status).toBe("running")
  })

  test("a message to a waiting task is appended to its prompt", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "DOES a" })
    const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
    expect((await rig.manager.tell(b.id, "and more", rig.caller)).waits).toBe(true)
    await rig.ended(b.id)
    expect(promptOf(rig, b.sessionID)).toMatch(/DOES b\n\nand more$/)
  })

  test("a waiting task never begins when another fails, and only the last one wakes the parent", async () => {
    const rig = rigged({ maxConcurrentTasks: 0 })
    const a = await rig.launch({ prompt: "FAILS a" })
    const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
    const c = await rig.launch({ prompt: "DOES c", after: [b.id] })
    const d = await rig.launch({ prompt: "DOES d" })
    for (const { id } of [a, b, c, d]) await rig.ended(id)
    expect(rig.task(b.id)).toMatchObject({ status: "cancelled", outcome: { reason: { code: "after" } } })
    expect(rig.task(c.id).outcome?.reason?.text).toContain(`waited for ${b.id}`)
    expect(rig.task(d.id).status).toBe("completed")
    expect([b, c].map(({ id }) => rig.task(id).delivery)).toMatchObject([{ wake: false }, { wake: true }])
    expect(rig.notices()).toHaveLength(4)
    expect([b, c].map(({ sessionID }) => rig.opencode.stored(sessionID).messages)).toEqual([[], []])
  })

  test("a waiting task that is cancelled with the others ends as cancelled and wakes nobody", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "HANGS a" })
    const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
    const c = await rig.launch({ prompt: "DOES c", after: [b.id] })
    await rig.clock.advance(100)
    const cancelled = await Promise.all([rig.manager.cancel({ type: "all" }, rig.caller), rig.clock.advance(500)])
    expect(cancelled[0].map(({ task }) => task.id)).toEqual([a.id, b.id, c.id])
    for (const { id } of [a, b, c]) expect((await rig.ended(id)).outcome?.reason?.code).toBe("cancelled")
    expect(rig.answers()).toEqual([])
  })

  test("a waiting task ends without a wake when its parent cancels the task that it waits for", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "HANGS a" })
    const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
    await rig.clock.advance(100)
    const reference = a.id
    const [ended] = await Promise.all([
      rig.manager.cancel({ type: "task", reference }, rig.caller),
      rig.clock.advance(500),
    ])
    expect((await rig.ended(b.id)).outcome?.reason?.text).toContain("which was cancelled")
    expect(rig.answers()).toEqual([])
    // Nothing else tells the caller in time: it would wait for the second for ever.
    expect(ended.map(({ task }) => task.id)).toEqual([a.id, b.id])
  })

  test("a waiting task never begins when a user clears the other, and its parent is notified", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "DOES a" })
    await rig.ended(a.id)
    const slow = await rig.launch({ prompt: "HANGS" })
    const b = await rig.launch({ prompt: "DOES b", after: [a.id, slow.id] })
    await rig.clock.advance(1000)
    const before = rig.answers().length
    const { metadata } = rig.opencode.stored(a.sessionID)
    rig.opencode.writeMetadata(a.sessionID, { ...metadata, superagentsRequest: { id: "r1", action: "clear" } })
    expect((await rig.ended(b.id)).outcome?.reason?.text).toContain("which was cleared")
    await rig.clock.advance(1000)
    expect(rig.answers()).toHaveLength(before + 1)
  })

  test("a waiting task is cleared with the others without any notification", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "HANGS a" })
    await rig.launch({ prompt: "DOES b", after: [a.id] })
    await rig.clock.advance(100)
    const [cleared] = await Promise.all([rig.manager.clear(rig.parent), rig.clock.advance(500)])
    expect(cleared).toEqual({ cleared: 2, stopped: 2 })
    expect(rig.notices()).toEqual([])
  })

  test("a waiting task is reported as interrupted after a crash and asks no model", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "HANGS a" })
    const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
    await rig.clock.advance(100)
    rig.restart()
    await rig.manager.recover()
    const task = await rig.ended(b.id)
    expect(task.status).not.toBe("completed")
    expect(rig.opencode.stored(b.sessionID).messages).toEqual([])
    expect(rig.notices()).toHaveLength(2)
  })

  test("a task that another one waits for is not dropped from the history", async () => {
    const rig = rigged({ maxHistory: 1 })
    const a = await rig.launch({ prompt: "DOES a" })
    const slow = await rig.launch({ prompt: "HANGS" })
    await rig.ended(a.id)
    const waiting = await rig.launch({ prompt: "DOES b", after: [a.id, slow.id] })
    for (const _ of [1, 2, 3]) await rig.ended((await rig.launch({ prompt: "DOES c" })).id)
    expect(rig.task(a.id).status).toBe("completed")
    expect(rig.view(waiting.id).phase).toBe(`waiting for ${slow.id}`)
  })
})

test("when a budget ends several tasks, the tasks that wait for them end too", async () => {
  const rig = rigged({ maxCostPerSession: 0.01, maxConcurrentTasks: 1, lastWord: 0 })
  rig.onPrompt("SPENDS", { tools: [{ name: "read", args: { ms: 200 } }], usage: { input: 10_000 } })
  const spends = await rig.launch({ prompt: "SPENDS" })
  const waits = await rig.launch({ prompt: "DOES a", after: [spends.id] })
  const queued = await rig.launch({ prompt: "DOES b" })
  const last = await rig.launch({ prompt: "DOES c", after: [queued.id] })
  for (const { id } of [spends, waits, queued, last]) await rig.ended(id)
  expect([spends, waits, queued, last].map(({ id }) => rig.task(id).outcome?.reason?.code)).toEqual([
    ...["budget", "after", "budget", "after"],
  ])
})

describe("a refused or failed dependency", () => {
  test("a launch that waits for a failed, unknown or foreign task is refused", async () => {
    const rig = rigged()
    const failed = await rig.launch({ prompt: "FAILS" })
    await rig.ended(failed.id)
    await expect(rig.launch({ after: [failed.id] })).rejects.toThrow(/would wait for bg_\S+ \(find it\), which failed/)
    await expect(rig.launch({ after: ["bg_nobody"] })).rejects.toThrow('No task "bg_nobody"')
    await expect(rig.launch({ after: "nothing" })).rejects.toThrow('No batch "nothing"')
    await expect(rig.launch({ after: [failed.id] }, rig.openParent())).rejects.toThrow("No task")
    expect(rig.manager.list(rig.parent)).toHaveLength(1)
  })

  test("a waiting task ends when the other fails while its session is created", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "FAILS" })
    rig.opencode.onCall = (method) => (method === "createSession" ? { slow: 5000 } : undefined)
    const launching = rig.launch({ prompt: "DOES b", after: [a.id] })
    await rig.ended(a.id)
    await rig.clock.advance(6000)
    const b = await launching
    expect((await rig.ended(b.id)).outcome?.reason?.code).toBe("after")
  })
})

test("a single task id in place of a batch name means that task", async () => {
  const rig = rigged({ maxConcurrentTasks: 0 })
  const a = await rig.launch({ prompt: "DOES a" })
  await rig.launch({ prompt: "HANGS" })
  const b = await rig.launch({ prompt: "DOES b", after: a.id })
  expect(rig.view(b.id).phase).toBe(`waiting for ${a.id}`)
  expect((await rig.ended(b.id)).status).toBe("completed")
  await expect(rig.launch({ after: '["bg_x"]' })).rejects.toThrow(/^No batch .* give their ids as an array/)
})

test("a waiting task gets the answers even when the other tasks are dropped before its prompt", async () => {
  const rig = rigged({ maxHistory: 1, maxConcurrentTasks: 0 })
  const a = await rig.launch({ prompt: "DOES a" })
  await rig.ended(a.id)
  let slow = true
  rig.opencode.onCall = (method, session) =>
    method === "prompt" && session !== rig.parent && slow ? { slow: 400 } : undefined
  const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
  await rig.clock.advance(0)
  slow = false
  for (const _ of [1, 2]) await rig.ended((await rig.launch({ prompt: "DOES c" })).id)
  await rig.ended(b.id)
  expect(promptOf(rig, b.sessionID)).toContain("answer of DOES a")
})

test("a queued task gets the answers even when the other tasks are dropped while its record is written", async () => {
  const rig = rigged({ maxHistory: 1, maxConcurrentTasks: 1 })
  const a = await rig.launch({ prompt: "DOES a" })
  await rig.ended(a.id)
  const c = await rig.launch({ prompt: "DOES c" })
  const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
  rig.opencode.onCall = (method, session) =>
    method === "saveRecord" && session === b.sessionID ? { slow: 2000 } : undefined
  await rig.ended(c.id)
  await rig.launch({ prompt: "DOES d" })
  expect(rig.manager.list(rig.parent).map(({ task }) => task.id)).not.toContain(a.id)
  await rig.ended(b.id)
  expect(promptOf(rig, b.sessionID)).toContain("answer of DOES a")
})

test("a waiting task begins although the first read of an answer fails", async () => {
  const rig = rigged({ maxConcurrentTasks: 0, resultCacheTTL: 0, notifyAnswerChars: 0 })
  const a = await rig.launch({ prompt: "DOES a" })
  await rig.ended(a.id)
  let failures = 1
  rig.opencode.onCall = (method, session) =>
    method === "messagesSince" && session === a.sessionID && failures-- > 0
      ? { fail: new OpencodeError("busy") }
      : undefined
  const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
  expect((await rig.ended(b.id)).status).toBe("completed")
  expect(promptOf(rig, b.sessionID)).toContain("answer of DOES a")
})

test("a waiting task is told that an answer was deleted with its session", async () => {
  const rig = rigged({ maxConcurrentTasks: 0, resultCacheTTL: 0, notifyAnswerChars: 0 })
  const a = await rig.launch({ prompt: "DOES a" })
  await rig.ended(a.id)
  await rig.opencode.deleteSession(a.sessionID)
  const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
  await rig.ended(b.id)
  expect(promptOf(rig, b.sessionID)).toContain("(its session was deleted, and its answer with it)")
})

test("the refusal to wait for a failed task says what can be done", async () => {
  const rig = rigged()
  const failed = await rig.launch({ prompt: "FAILS" })
  await rig.ended(failed.id)
  await expect(rig.launch({ after: [failed.id] })).rejects.toThrow(
    /, which failed\. Launch it again first, or launch this without it\.$/,
  )
})

describe("dependencies within one message", () => {
  const slow = (rig: Rig) => {
    rig.opencode.onCall = (method) => (method === "createSession" ? { slow: 500 } : undefined)
  }

  test("a launch can wait for a batch whose tasks are launched by the same message", async () => {
    const rig = rigged()
    slow(rig)
    const launches = [
      rig.launch({ prompt: "DOES a", batch: "map" }),
      rig.launch({ prompt: "DOES b", batch: "map" }),
      rig.launch({ prompt: "DOES it", after: "map" }),
    ]
    await rig.clock.advance(2000)
    const [a, b, reduce] = await Promise.all(launches)
    expect(reduce?.run.after).toEqual([a?.id, b?.id])
    await rig.ended(reduce?.id ?? "")
    expect(promptOf(rig, reduce?.sessionID ?? "")).toContain("answer of DOES b")
  })

  test("a launch is refused when a task of the same message that it waits for fails to launch", async () => {
    const rig = rigged()
    slow(rig)
    const launches = [
      rig.launch({ prompt: "DOES a", batch: "map" }),
      rig.launch({ description: "the <other>", prompt: "DOES b", batch: "map", agent: "nobody" }),
      rig.launch({ prompt: "DOES it", after: "map" }),
    ]
    const [a, b, reduce] = await Promise.allSettled([...launches, rig.clock.advance(2000)])
    expect([a?.status, b?.status]).toEqual(["fulfilled", "rejected"])
    expect(reduce).toMatchObject({
      reason: {
        message:
          'Nothing was launched: it would wait for "the ‹other>", of the same message, which could not be launched. Launch that again first, or launch this without it.',
      },
    })
    expect(rig.manager.list(rig.parent)).toHaveLength(1)
  })

  test("a launch waits neither for another session's batch nor for launches after it", async () => {
    const rig = rigged()
    slow(rig)
    const other = rig.openParent()
    const launches = [
      rig.launch({ prompt: "DOES a", batch: "map" }, other),
      rig.launch({ prompt: "DOES it", after: "map" }),
      rig.launch({ prompt: "DOES b", batch: "map" }),
    ]
    const [, reduce] = await Promise.allSettled([...launches, rig.clock.advance(2000)])
    expect(reduce).toMatchObject({ reason: { message: expect.stringContaining('No batch "map" in this session') } })
  })
})
